//go:build linux

package machine

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/ortet/ortet/azsim"
)

// A pod's network on a machine: a namespace with a wire to the machine, and the
// machine as its way out.
const podNetwork = `set -e
ip netns add pod
ip link add vpod type veth peer name eth0 netns pod
ip addr add 10.254.254.1/24 dev vpod
ip link set vpod up
ip -n pod addr add 10.254.254.2/24 dev eth0
ip -n pod link set eth0 up
ip -n pod route add default via 10.254.254.1
`

// The metadata service takes all methods and paths. A pod reaches it as well, from an
// address and over an interface of its own, and does not with the shipped rules.
func TestPodsReachTheMetadataServiceUnlessGuarded(t *testing.T) {
	s, ctx := newLab(t), t.Context()
	c := instance(1)
	c.IMDS = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		from, _, _ := strings.Cut(r.RemoteAddr, ":")
		_, _ = fmt.Fprintf(w, "%s %s %s %s", r.Method, r.URL.RequestURI(), from, body)
	})
	if a, own := s.PrivateAddress(c.ID); !own || a.IsValid() {
		t.Errorf("%v (%v) before the boot", a, own)
	}
	boot(ctx, t, s, c, azsim.Source{Platform: "debian:debian-12:12-gen2:latest"})
	sh := func(script string) string { return command(ctx, t, s, c.ID, "sh", "-c", script) }
	want := func(what, script, want string) {
		t.Helper()
		if got := sh(script); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	const get = "curl -s -m 5 -H Metadata:true 'http://169.254.169.254/metadata/attested/document?api-version=2025-04-07&nonce=n'"
	const post = "curl -s -m 5 -H Metadata:true -X POST -d '{}' 'http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01'"
	want("GET", get, "GET /metadata/attested/document?api-version=2025-04-07&nonce=n 169.254.169.254")
	want("POST", post, "POST /metadata/scheduledevents?api-version=2020-07-01 169.254.169.254 {}")

	sh(podNetwork)
	want("a pod's GET", "ip netns exec pod "+get, "GET /metadata/attested/document?api-version=2025-04-07&nonce=n 10.254.254.2")
	want("a pod's POST", "ip netns exec pod "+post, "POST /metadata/scheduledevents?api-version=2020-07-01 10.254.254.2 {}")

	rules, err := os.ReadFile("../../deploy/systemd/ortet-metadata-guard.nft")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Exec(ctx, c.ID, rules, "nft", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	want("a guarded pod", "ip netns exec pod "+get+" || echo refused", "refused")
	want("a guarded machine", get, "GET /metadata/attested/document?api-version=2025-04-07&nonce=n 169.254.169.254")

	address, _ := s.PrivateAddress(c.ID)
	want("the machine's address", "ip -4 -o addr show dev eth0 | awk '{print $4}'", address.String())
}
