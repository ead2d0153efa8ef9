package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// ownAddresses are the flags that say what "own" in cluster.yaml stands for.
type ownAddresses struct {
	list []string
	from string
}

func (o *ownAddresses) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&o.list, "own-address", nil, "`ADDRESS` or range that \"own\" in cluster.yaml stands for; may be given several times")
	f.StringVar(&o.from, "own-address-from", "", "https `URL` of a service that answers with your address, as text or as JSON with \"ip\"; instead of --own-address")
}

func (o *ownAddresses) check() error {
	if o == nil {
		return nil
	}
	for _, a := range o.list {
		_, err := netip.ParsePrefix(a)
		if _, single := netip.ParseAddr(a); err != nil && single != nil {
			return usagef("--own-address %q: want an address or a range such as 203.0.113.7/32", a)
		}
	}
	if u, err := url.Parse(o.from); o.from != "" && (err != nil || u.Scheme != "https" || u.Host == "") {
		return usagef("--own-address-from %q: want https://HOST/PATH", o.from)
	}
	return nil
}

// resolve asks the service, if there is one.
func (o *ownAddresses) resolve(ctx context.Context) ([]string, error) {
	if o.from == "" {
		return o.list, nil
	}
	address, err := askAddress(ctx, http.DefaultTransport, o.from)
	if err != nil {
		return nil, fmt.Errorf("cannot get the own address from %s: %w; give --own-address", o.from, err)
	}
	return append(o.list, address), nil
}

// askAddress gets the caller's address from a service. A redirect could lead to plain
// HTTP, and is not followed.
func askAddress(ctx context.Context, transport http.RoundTripper, from string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return "", err
	}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }() // only read
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
	if err != nil {
		return "", err
	}
	var v struct{ IP string }
	if json.Unmarshal(text, &v) != nil {
		v.IP = strings.TrimSpace(string(text))
	}
	address, err := netip.ParseAddr(v.IP)
	if answer.StatusCode != http.StatusOK || err != nil || address.Zone() != "" {
		return "", fmt.Errorf("answer %d with %.60q is not an address", answer.StatusCode, text)
	}
	return address.Unmap().String(), nil
}
