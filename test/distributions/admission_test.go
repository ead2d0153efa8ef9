package distributions

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/cli"
	"github.com/ortet/ortet/internal/node/join"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/port"
	"github.com/ortet/ortet/test/syncbuffer"
)

// admitted has the donor join through ortet admission, by the node's own code: its cell is the
// reason of a refusal.
func (w *world) admitted() string {
	t, dir := w.t, w.t.TempDir()
	t.Helper()
	roots := filepath.Join(dir, "roots.pem")
	must(t, os.WriteFile(roots, w.azure.AttestationPEM(), 0o600))
	args := append([]string{"admission", "--pool", w.fixture.pool(), "--attestation-roots", roots, "--tls-san", "127.0.0.1", "--api-server", w.url, "--listen", "127.0.0.1:0",
		"--metrics-address", "0", "--health-address", "0", "--callback-port", "1024-65535", "--leader-elect=false", "--log-level", "INFO"}, w.flags...)
	process, hash, errs := w.process()
	if code := cli.Run(t.Context(), append(slices.Clone(args), "--print-ca-hash"), process); code != 0 {
		t.Fatalf("--print-ca-hash: code %d: %s", code, errs)
	}
	logs := &syncbuffer.Buffer{}
	process.Out, process.Err = &syncbuffer.Buffer{}, logs
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- cli.Run(ctx, args, process) }()
	defer func() {
		stop()
		if code := <-ended; code != 0 || t.Failed() {
			t.Errorf("ortet admission: code %d\n%s", code, logs)
		}
	}()
	listening := regexp.MustCompile(`for=machines address=(\S+)`)
	var found []string
	for end := time.Now().Add(time.Minute); found == nil && len(ended) == 0; time.Sleep(5 * time.Millisecond) {
		if found = listening.FindStringSubmatch(logs.String()); found == nil && time.Now().After(end) {
			t.Fatal("ortet admission does not listen within a minute")
		}
	}
	if found == nil {
		return "ended"
	}
	donor := w.donor()
	metadata := httptest.NewServer(donor.IMDS)
	defer metadata.Close()
	distribution := w.fixture.Distribution
	if distribution == "" {
		distribution = wire.Kubelet
	}
	// The Node of a machine that joins is not Ready yet.
	w.kube.Remove("nodes", "", w.node())
	root := t.TempDir()
	c, err := join.NewClient(join.Settings{Servers: []string{"https://" + found[1]}, CAHash: strings.TrimSpace(hash.String()), Distribution: distribution, CallbackPort: port.Free(t)},
		join.Options{Root: root, Metadata: metadata.URL, Agent: noAgent{}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	must(t, err)
	err = c.Join(t.Context(), true)
	var refused *join.RefusedError
	if errors.As(err, &refused) {
		return refused.Reason
	}
	must(t, err)
	file := map[string]string{wire.K3s: join.RancherToken, wire.RKE2: join.RancherToken, wire.Kubelet: "etc/kubernetes/bootstrap-kubelet.conf"}[distribution]
	if text, err := os.ReadFile(filepath.Join(root, file)); err != nil || len(text) == 0 {
		t.Errorf("%s joined, and has no %s: %v", w.node(), file, err)
	}
	return accepted
}

type noAgent struct{}

func (noAgent) Stop(context.Context, string) error         { return nil }
func (noAgent) Runs(context.Context, string) (bool, error) { return false, nil }
