//go:build e2e && linux

package elastic

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

var outage = flag.Duration("outage", 30*time.Second, "how long the coordination server is away in TestElasticTailscale while the server runs, at the least")

// readiness asks /readyz by the operator's kubeconfig, each time by a new connection, until it
// is called: it returns how often it did, how often it failed, and the last failure.
func (w *world) readiness() func() (asked, failed int, last error) {
	w.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(w.home, "kubeconfig"))
	if err != nil {
		w.t.Fatal(err)
	}
	authentication, err := rest.TLSConfigFor(config)
	if err != nil {
		w.t.Fatal(err)
	}
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: authentication, DialContext: w.dial, DisableKeepAlives: true}}
	ctx, cancel := context.WithCancel(w.ctx)
	type result struct {
		asked, failed int
		last          error
	}
	results := make(chan result)
	go func() {
		var all result
		for ctx.Err() == nil {
			began := time.Now()
			r, err := client.Get(config.Host + "/readyz")
			if err == nil {
				_ = r.Body.Close()
				if r.StatusCode != http.StatusOK {
					err = errors.New(r.Status)
				}
			}
			all.asked++
			if err != nil {
				all.failed++
				all.last = fmt.Errorf("at %s: %w", began.Format(time.TimeOnly), err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
		results <- all
	}()
	return func() (int, int, error) { cancel(); r := <-results; return r.asked, r.failed, r.last }
}

// A report is what status says of the server.
type report struct {
	Server struct {
		Tailnet struct{ State, Name, Address string }
	}
}

// wantTailnet waits for what status shows.
func (w *world) wantTailnet(state, name, address string) {
	w.t.Helper()
	w.until("status", func() error {
		var s report
		if err := json.Unmarshal([]byte(w.cluster("status", "-o", "json")), &s); err != nil {
			return err
		}
		if t := s.Server.Tailnet; t.State != state || t.Name != name || t.Address != address {
			return fmt.Errorf("server in the tailnet is %+v, want %s %s %s", t, state, name, address)
		}
		return nil
	})
}

// logIn runs up with a key.
func (w *world) logIn(key string) result {
	w.t.Helper()
	began := time.Now()
	r := w.try(key+"\n", "--azure-config", w.azure.Endpoint.AzureConfig, "cluster", "up", "--tailscale-key", "-")
	w.step(fmt.Sprintf("ortet cluster up --tailscale-key -: exit %d in %s", r.code, time.Since(began).Round(100*time.Millisecond)))
	w.t.Logf("%s%s", r.err, r.out)
	if strings.Contains(r.err+r.out, key) {
		w.t.Errorf("up shows the key")
	}
	return r
}

// TestElasticTailscale has the server in a tailnet of Tailscale's own programs.
func TestElasticTailscale(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute+*outage)
	defer cancel()
	w := newWorld(ctx, t)
	w.joinTailnet()
	key := "tskey-auth-" + rand.Text()
	w.tailnet.ask("/key?key=" + key)
	w.clusterYAML()
	w.cluster("keys")
	w.cluster("validate")

	refused := w.logIn("tskey-auth-wrong" + rand.Text())
	if refused.code != 4 || !strings.Contains(refused.err, "invalid authkey") {
		t.Errorf("up with a key that is refused: exit %d, want 4, in the coordination server's words", refused.code)
	}
	if r := w.logIn(key); r.code != 0 {
		t.Fatalf("up with the key: exit %d", r.code)
	}
	w.tailnet.ask("/key")
	t.Logf("nodes: %s", w.tailnet.nodes())
	const name, address = clusterName + "-1.tail1.example", "100.64.0.2" // the operator's has the first
	w.wantTailnet("Running", name, address)
	t.Logf("%s", w.cluster("status"))
	w.cluster("kubeconfig")
	w.wantServer(address)
	w.wantNodes(1)
	w.wantOpenPorts(address)

	w.counted("replace server", -1, func() { w.cluster("replace", "server") })
	w.wantTailnet("Running", name, address)
	w.wantNodes(1)

	w.edit(`\n  access:\n`, "\n  access:\n    publicAddress: none\n")
	w.tailnet.ask("/forbid?to=" + clusterName + "-1")
	forbidden := w.try("", "--azure-config", w.azure.Endpoint.AzureConfig, "cluster", "up")
	t.Logf("%s%s", forbidden.err, forbidden.out)
	if forbidden.code != 4 || !strings.Contains(forbidden.err, "by the server's tailnet") {
		t.Errorf("up without a public address, where the tailnet's policy forbids SSH: exit %d, want 4", forbidden.code)
	}
	w.tailnet.ask("/forbid?allow=1&to=" + clusterName + "-1")
	w.wantPublic(true)
	w.counted("publicAddress: none", 0, func() { w.cluster("up") })
	w.wantPublic(false)
	t.Logf("%s", w.cluster("endpoints"))
	w.edit(`\n    publicAddress: none\n`, "\n")
	w.counted("publicAddress: static", 0, func() { w.cluster("up") })
	w.wantPublic(true)
	w.wantTailnet("Running", name, address)

	w.counted("coordination server away", 0, func() { w.coordinationAway(name, address) })
	w.cluster("replace", "server")
	if status := w.cluster("status"); !strings.Contains(strings.Join(strings.Fields(status), " "), "its coordination server has not answered") {
		t.Errorf("status does not say that the coordination server is away:\n%s", status)
	}
	if r := w.logIn(key); r.code != 4 || !strings.Contains(r.err, "needs no key") {
		t.Errorf("up with a key while the coordination server is away: exit %d, want 4", r.code)
	}
	w.cluster("kubeconfig")
	w.wantNodes(1)
	w.tailnet.ask("/away")
	w.wantTailnet("Running", name, address)
	w.cluster("kubeconfig")
	w.wantServer(address)

	w.tailnet.ask("/expire?name=" + clusterName + "-1")
	w.wantTailnet("NeedsLogin", name, "")
	if status := w.cluster("status"); !strings.Contains(strings.Join(strings.Fields(status), " "), "ortet cluster up --tailscale-key FILE") {
		t.Errorf("status of a server whose key ended names no command:\n%s", status)
	}
	again := "tskey-auth-" + rand.Text()
	w.tailnet.ask("/key?key=" + again)
	if r := w.logIn(again); r.code != 0 {
		t.Errorf("up with another key: exit %d", r.code)
	}
	w.tailnet.ask("/key")
	w.wantTailnet("Running", name, address)
	w.cluster("kubeconfig")
	w.wantServer(address)
	w.wantNodes(1)

	w.searched(key, again)
	t.Log("\n" + strings.Join(w.times, "\n"))
}

// coordinationAway takes the coordination server away from a server that runs. status reports it,
// and the operator goes on by the tailnet: also at the outage's end, and each five minutes.
func (w *world) coordinationAway(name, address string) {
	w.t.Helper()
	end := time.Now().Add(*outage)
	w.tailnet.ask("/away?away=1")
	w.wantTailnet("OutOfSync", name, address)
	for {
		const away = "coordination server of the tailnet does not answer the server"
		if status := w.cluster("status"); !strings.Contains(strings.Join(strings.Fields(status), " "), away) {
			w.t.Errorf("status does not say that the coordination server is away:\n%s", status)
		}
		for _, args := range [][]string{{"kubeconfig"}, {"ssh", "--", "hostname"}} {
			r := w.try("", append([]string{"--azure-config", w.azure.Endpoint.AzureConfig, "cluster"}, args...)...)
			if r.code != 0 || !strings.Contains(r.err, "Server by tailnet "+address+"\n") || args[0] == "ssh" && strings.TrimSpace(r.out) != "server" {
				w.t.Errorf("ortet cluster %s while the coordination server is away: exit %d, want the server by its tailnet:\n%s%s",
					strings.Join(args, " "), r.code, r.err, r.out)
			}
		}
		w.wantServer(address)
		left := time.Until(end)
		w.step(fmt.Sprintf("coordination server away: %s left", max(left, 0).Round(time.Second)))
		if left <= 0 {
			return
		}
		time.Sleep(min(left, 5*time.Minute))
	}
}

// counted counts failures of /readyz while something is done; more than most are a fault. -1
// is any number.
func (w *world) counted(what string, most int, do func()) {
	w.t.Helper()
	ended := w.readiness()
	do()
	asked, failed, last := ended()
	line := fmt.Sprintf("%s: /readyz failed %d of %d times, last %v", what, failed, asked, last)
	w.step(line)
	w.times = append(w.times, line)
	if asked == 0 || most >= 0 && failed > most {
		w.t.Errorf("%s; want %d", line, most)
	}
}

// wantPublic: the server has a public address, at which the API server answers, or none.
func (w *world) wantPublic(want bool) {
	w.t.Helper()
	var all []struct{ Name, Address string }
	if err := json.Unmarshal([]byte(w.cluster("endpoints", "-o", "json")), &all); err != nil {
		w.t.Error(err)
	}
	public := false
	for _, e := range all {
		public = public || e.Name == "api" && strings.HasPrefix(e.Address, "127.77.")
	}
	ctx, cancel := context.WithTimeout(w.ctx, 3*time.Second)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", "127.77.0.2:6443")
	if err == nil {
		_ = c.Close()
	}
	w.t.Logf("endpoints %+v, dial of the first public address: %v", all, err)
	if public != want {
		w.t.Errorf("the API server has a public address: %t, want %t", public, want)
	}
}

// wantServer: the kubeconfig's server is that of the address.
func (w *world) wantServer(address string) {
	w.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(w.home, "kubeconfig"))
	if err != nil {
		w.t.Fatal(err)
	}
	if want := "https://" + address + ":6443"; config.Host != want {
		w.t.Errorf("the kubeconfig has server %s, want %s", config.Host, want)
	}
}

// wantOpenPorts: of all at which the server listens, the tailnet reaches SSH and the API server.
func (w *world) wantOpenPorts(address string) {
	w.t.Helper()
	// tailscaled's own is the API for its peers, which has files from those of the same user.
	listening := w.ssh("sudo ss -Htlnp | grep -v '\"tailscaled\"' | awk '{print $4}'")
	open := map[string]bool{}
	for line := range strings.FieldsSeq(listening) {
		_, p, err := net.SplitHostPort(line)
		if err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(w.ctx, 3*time.Second)
		c, err := w.dial(ctx, "tcp", net.JoinHostPort(address, p))
		cancel()
		if err == nil {
			open[p] = true
			_ = c.Close()
		}
	}
	w.t.Logf("the server listens at %v", strings.Fields(listening))
	if len(open) != 2 || !open["22"] || !open["6443"] {
		w.t.Errorf("the tailnet reaches %v, want 22 and 6443", open)
	}
}

// searched searches all that keys may not be in, and then plants one to see that it would be
// found.
func (w *world) searched(keys ...string) {
	w.t.Helper()
	for _, key := range keys {
		if at := w.holders(key); len(at) > 0 {
			w.t.Errorf("a key is in %v", at)
		}
	}
	planted := "tskey-auth-" + rand.Text()
	w.ssh("for f in /root/planted /var/lib/ortet/state/planted /srv/planted; do echo " + planted + " | sudo tee $f >/dev/null; done; logger " + planted)
	if f, err := w.azure.Clients(); err != nil {
		w.t.Error(err)
	} else if _, err := f.NewVirtualMachinesClient().Get(w.ctx, planted, "planted", nil); err == nil {
		w.t.Error("a group of the planted key's name is there")
	}
	at := w.holders(planted)
	for _, want := range []string{"journal", "azure/machine/shares/", "azure/machine/volumes/server_", "azure/machine/volumes/state-", "requests"} {
		if !slices.ContainsFunc(at, func(place string) bool { return strings.HasPrefix(place, want) }) {
			w.t.Errorf("the search does not find the planted key in %s: it finds it in %v", want, at)
		}
	}
}

// holders are the files of Azure and of the operator that have the key in their bytes, disks and
// shares and requests among them, and "journal" for that of the server.
func (w *world) holders(key string) (at []string) {
	w.t.Helper()
	if strings.Contains(w.ssh("sudo journalctl --no-pager --output=export; sync"), key) {
		at = append(at, "journal")
	}
	var top unix.Stat_t
	if err := unix.Stat(w.dir, &top); err != nil {
		w.t.Fatal(err)
	}
	bytesRead := int64(0)
	if err := filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		var s unix.Stat_t
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // as of a process that ended
		case err != nil:
			return err
		case path == w.path("tailnet"):
			return filepath.SkipDir // Tailscale's, not ours
		case d.IsDir() && unix.Stat(path, &s) == nil && s.Dev != top.Dev:
			return filepath.SkipDir // a machine's mounted disk, whose bytes are searched
		case !d.Type().IsRegular():
			return nil
		}
		n, found, err := contains(path, []byte(key))
		bytesRead += n
		if found {
			at = append(at, strings.TrimPrefix(path, w.dir+"/"))
		}
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	w.step(fmt.Sprintf("searched %d MB", bytesRead>>20))
	return at
}

// contains reads what of a file is no hole.
func contains(path string, key []byte) (n int64, found bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, false, err
	}
	defer func() { _ = f.Close() }()
	block := make([]byte, 1<<20)
	for at := int64(0); ; {
		data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, syscall.ENXIO) {
			return n, false, nil
		}
		if err != nil {
			return n, false, err
		}
		read, err := f.ReadAt(block, data)
		if bytes.Contains(block[:read], key) {
			return n, true, nil
		}
		n += int64(read)
		if errors.Is(err, io.EOF) {
			return n, false, nil
		}
		if err != nil {
			return n, false, err
		}
		at = data + int64(read-len(key))
	}
}
