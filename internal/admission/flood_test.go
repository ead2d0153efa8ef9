package admission_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/admission/attest"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// Some addresses together could ask as often as all may, each within its rate. A node that
// asks now and then is answered all the same.
func TestSomeAddressesDoNotTakeAllRequests(t *testing.T) {
	for _, addresses := range []int{10, 40} {
		t.Run(fmt.Sprint(addresses), func(t *testing.T) {
			s := newSite(t, nil)
			refused, asked := 0, 0
			for ms := range 5000 {
				for i := range addresses {
					if (ms+i)%10 == 0 { // 100 a second each
						s.sendFrom(fmt.Sprintf("10.6.6.%d:1", i), wire.NoncePath, []byte(`{}`), "")
					}
				}
				if ms%500 == 499 {
					asked++
					if r := s.sendFrom("10.0.0.9:1", wire.NoncePath, []byte(`{}`), ""); r.status != http.StatusOK {
						refused++
					}
				}
				s.clock.add(time.Millisecond)
			}
			if refused != 0 {
				t.Errorf("a node was refused %d of %d times", refused, asked)
			}
		})
	}
}

// Where a load balancer hides the addresses, and the operator said so, one has it all.
func TestOneAddressOfAllHasAllRequests(t *testing.T) {
	s := newSite(t, func(c *admission.Config) {
		c.Limits = admission.DefaultLimits()
		c.Limits.AddressRate, c.Limits.AddressBurst = c.Limits.Rate, c.Limits.Burst
	})
	for i := range 1000 {
		if r := s.sendFrom("10.6.6.6:1", wire.NoncePath, []byte(`{}`), ""); r.status != http.StatusOK {
			t.Fatalf("request %d: %d %s", i, r.status, r.body)
		}
	}
}

// stuck is an Attestation that takes as long as a network does that answers nothing.
type stuck struct{ ends chan struct{} }

func (s stuck) Verify(context.Context, string, string, string) (attest.Document, error) {
	select {
	case <-s.ends:
	case <-time.After(5 * time.Minute): // a test that fails ends too
	}
	return attest.Document{}, &attest.Error{Reason: attest.Unreachable, Err: errors.New("nothing answers")}
}

// One address whose requests take long does not take the places of all.
func TestOneAddressDoesNotTakeAllPlaces(t *testing.T) {
	ends := make(chan struct{})
	s := newSite(t, func(c *admission.Config) {
		c.Limits = admission.DefaultLimits()
		c.Limits.InFlight, c.Attest = 40, stuck{ends}
	})
	join := encode(t, wire.JoinRequest{Distribution: wire.Kubelet, CallbackPort: 1})
	header := s.node.header(s.nonce(), wire.JoinPath, join, today)
	var all sync.WaitGroup
	defer all.Wait()
	defer close(ends)
	for range 16 {
		all.Go(func() { s.sendFrom("10.6.6.6:1", wire.JoinPath, join, header) })
	}
	waitFor(t, func() bool { return metric(t, s, "ortet_admission_in_flight") == 16 })
	for range 30 {
		if r := s.sendFrom("10.6.6.6:2", wire.JoinPath, join, header); r.refusal.Reason != string(admission.RateLimited) || r.refusal.Final {
			t.Fatalf("%d %s", r.status, r.body)
		}
	}
	if r := s.sendFrom("10.0.0.9:1", wire.NoncePath, []byte(`{}`), ""); r.status != http.StatusOK {
		t.Errorf("another: %d %s", r.status, r.body)
	}
}

// Nor does one whose requests to leave prove nothing; while those of nodes that have
// proven who they are do not count as their address's.
func TestOneAddressDoesNotTakeAllPlacesToLeave(t *testing.T) {
	ends, goes := make(chan struct{}), make(chan struct{})
	s := newSite(t, func(c *admission.Config) {
		c.Limits = admission.DefaultLimits()
		c.Limits.Leaves, c.Attest = 40, stuck{ends}
	})
	var drains atomic.Int64
	s.cluster.hold = func(context.Context) { drains.Add(1); <-goes }
	asks := encode(t, wire.LeaveRequest{Cause: "Asked", Within: 30})
	header := s.node.header(s.nonce(), wire.LeavePath, asks, today)
	var all sync.WaitGroup
	defer all.Wait()
	defer close(goes)
	defer close(ends)
	for range 16 {
		all.Go(func() { s.sendFrom("10.6.6.6:1", wire.LeavePath, asks, header) })
	}
	waitFor(t, func() bool { return inFlight(t, s, "leave") == 16 })
	if r := s.sendFrom("10.6.6.6:2", wire.LeavePath, asks, header); r.refusal.Reason != string(admission.RateLimited) {
		t.Errorf("%d %s", r.status, r.body)
	}
	for i := range 20 {
		name := fmt.Sprintf("pool1%06d", 100+i)
		id := fleet.ResourceID(fmt.Sprintf("%s/virtualMachines/%d", pool, 100+i))
		s.cloud.put(fleet.Member{Instance: id, Pool: pool, HostName: name, VMID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i), Created: today.Add(-time.Minute)})
		s.cluster.nodes[name] = admission.NodeState{Exists: true, Ready: true, ProviderID: "azure://" + string(id)}
		certificate := s.authority.kubelet(func(c *x509.Certificate) { c.Subject.CommonName = "system:node:" + name })
		all.Go(func() {
			if r := s.send(wire.LeavePath, asks, "", certificate); r.status != http.StatusOK {
				t.Errorf("%s: %d %s", name, r.status, r.body)
			}
		})
		// One after the other: they are known then.
		waitFor(t, func() bool { return drains.Load() == int64(i+1) })
	}
	if n := inFlight(t, s, "leave"); n != 36 {
		t.Errorf("%v are worked on, want the 20 that drain and 16 that prove nothing", n)
	}
}

// inFlight is how many requests of a share are worked on.
func inFlight(t *testing.T, s *site, share string) float64 {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "ortet_admission_in_flight" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == share {
				return m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// from returns a client of an address of this host's.
func from(t *testing.T, address, hash string) *http.Client {
	t.Helper()
	c := &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{
		TLSClientConfig: pinned(hash), DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext}}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// memory is a listener in memory: what it accepts lasts by the time of a bubble.
type memory struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error   { m.once.Do(func() { close(m.closed) }); return nil }
func (m *memory) Addr() net.Addr { return &net.TCPAddr{} }

// dial connects from an address.
func (m *memory) dial(address net.IP) net.Conn {
	client, server := net.Pipe()
	m.conns <- accepted{server, &net.TCPAddr{IP: address, Port: 1}}
	return client
}

type accepted struct {
	net.Conn
	from net.Addr
}

func (a accepted) RemoteAddr() net.Addr { return a.from }

// Some addresses that each hold as many connections as they may leave some to others, which
// do not wait until silent connections are cut off.
func TestSomeAddressesDoNotTakeAllConnections(t *testing.T) {
	s := newSite(t, func(c *admission.Config) {
		c.Limits = admission.DefaultLimits()
		c.Limits.Connections = 40 // 16 of an address, 4 where half are taken
	})
	synctest.Test(t, func(t *testing.T) {
		s.t = t
		l := &memory{conns: make(chan net.Conn, 100), closed: make(chan struct{})}
		certificates, end := s.serveUntil(&keys{}, l)
		for i := range 5 {
			for range 16 {
				conn := l.dial(net.IPv4(127, 0, 0, byte(10+i)))
				defer conn.Close() // cut off already, or never answered
			}
		}
		began := time.Now()
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: pinned(certificates.Hash()),
			DialContext: func(context.Context, string, string) (net.Conn, error) { return l.dial(net.IPv4(127, 0, 0, 99)), nil }}}
		r, err := c.Post("https://admission.example"+wire.NoncePath, "application/json", strings.NewReader(`{}`))
		if err != nil {
			t.Fatalf("another address: %v", err)
		}
		if err := r.Body.Close(); err != nil || r.StatusCode != http.StatusOK || time.Since(began) > 0 {
			t.Errorf("%s %v after %s", r.Status, err, time.Since(began))
		}
		c.CloseIdleConnections()
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}

// Who opens connections over and over again, and asks nothing, is closed before we shake
// hands, beyond the rate at which it could have asked.
func TestConnectionsAreRated(t *testing.T) {
	s := newSite(t, func(c *admission.Config) {
		c.Limits = admission.DefaultLimits()
		c.Limits.AddressBurst = 30
	})
	address, certificates := s.listen(&keys{})
	for range 80 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, func() bool { return metric(t, s, "ortet_admission_connections_closed_total") == 50 })
	r, err := from(t, "127.0.0.99", certificates.Hash()).Post("https://"+address+wire.NoncePath, "application/json", strings.NewReader(`{}`))
	if err != nil {
		t.Fatalf("another address: %v", err)
	}
	if err := r.Body.Close(); err != nil || r.StatusCode != http.StatusOK {
		t.Errorf("%s %v", r.Status, err)
	}
}
