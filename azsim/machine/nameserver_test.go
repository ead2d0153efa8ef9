//go:build linux

package machine

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// resolver asks a name server of two machines, as Go's clients in them do.
func resolver(t *testing.T, how string) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	n := names{conn: conn, how: how, stop: stop, lookup: func() map[string]netip.Addr {
		return map[string]netip.Addr{"pool1000001": netip.MustParseAddr("10.90.1.11"), "pool1000002": netip.MustParseAddr("10.90.1.12")}
	}}
	n.done.Go(func() { n.serve(ctx) })
	t.Cleanup(func() {
		if err := n.close(); err != nil {
			t.Error(err)
		}
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp4", conn.LocalAddr().String())
	}}
}

func TestNamesOfMachines(t *testing.T) {
	r, ctx := resolver(t, NamesAnswered), t.Context()
	for name, want := range map[string][]string{
		"pool1000001.internal.cloudapp.net.": {"10.90.1.11"},
		"POOL1000002.internal.cloudapp.net.": {"10.90.1.12"},
		"pool1000003.internal.cloudapp.net.": nil,
		"pool1000001.":                       nil, // a client puts the domain of its resolv.conf after it
		"api.mine.example.":                  nil,
	} {
		got, err := r.LookupHost(ctx, name)
		if unknown := (*net.DNSError)(nil); want == nil && (!errors.As(err, &unknown) || !unknown.IsNotFound) || want != nil && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has the addresses %v, want %v", name, got, want)
		}
	}
	if got, err := r.LookupAddr(ctx, "10.90.1.12"); err != nil || !slices.Equal(got, []string{"pool1000002.internal.cloudapp.net."}) {
		t.Errorf("10.90.1.12 has the names %v, %v", got, err)
	}
	if got, err := r.LookupAddr(ctx, "10.90.1.13"); err == nil {
		t.Errorf("10.90.1.13, which no machine has, has the names %v", got)
	}
}

func TestSilentNameServer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := resolver(t, NamesSilent).LookupHost(ctx, "pool1000001.internal.cloudapp.net.")
	if unknown := (*net.DNSError)(nil); !errors.As(err, &unknown) || !unknown.IsTimeout {
		t.Errorf("a silent name server's answer is %v, want none", err)
	}
}

func TestNoNameServerAnswersNonsense(t *testing.T) {
	n := names{lookup: func() map[string]netip.Addr { return nil }}
	for _, message := range [][]byte{nil, {1}, make([]byte, 12), make([]byte, maxMessage)} {
		if reply, err := n.answer(message); err == nil {
			t.Errorf("%d bytes are answered by %x", len(message), reply)
		}
	}
}
