package config_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/node/config"
	"github.com/ortet/ortet/internal/node/config/files"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/wire"
)

const pool = "/subscriptions/s/resourcegroups/g/providers/microsoft.compute/virtualmachinescalesets/p"

func key(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(seed)), ed25519.SeedSize)))
}

func public(seeds ...byte) (all []nodeconfig.PublicKey) {
	for _, s := range seeds {
		all = append(all, nodeconfig.PublicKeyOf(key(s).Public().(ed25519.PublicKey)))
	}
	return all
}

// world is a machine with its metadata service, its API server, and what was applied.
type world struct {
	t    *testing.T
	root string
	mu   sync.Mutex

	// The metadata service.
	userData, pool string
	reads          int

	// The store and the applier.
	record, opened  []byte // kept, and pending
	pending, forgot bool
	applied         []int64
	outcome         wire.ConfigurationAnswer // of Apply, Applied where State is ""
	settle          wire.ConfigurationAnswer
	recovers        bool

	// The Node.
	wanted   string
	answers  []wire.ConfigurationAnswer
	status   []string // patches of the status
	watches  int
	broken   bool
	changed  chan struct{}
	alone    bool // there is no cluster
	refusals int  // of patches, still to come
}

func newWorld(t *testing.T, keys ...byte) *world {
	t.Helper()
	w := &world{t: t, root: t.TempDir(), pool: pool, changed: make(chan struct{}, 1)}
	if err := os.MkdirAll(filepath.Join(w.root, "var/lib/ortet/config"), 0o700); err != nil {
		t.Fatal(err)
	}
	if len(keys) > 0 {
		w.settings(config.Settings{Keys: public(keys...)})
	}
	return w
}

func (w *world) settings(s config.Settings) {
	w.t.Helper()
	text, err := json.Marshal(s)
	if err == nil {
		err = os.MkdirAll(filepath.Join(w.root, "etc/ortet"), 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(w.root, config.SettingsFile), text, 0o600)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// document is one of this pool whose content is its generation's.
func document(generation int64) nodeconfig.Document {
	return nodeconfig.Document{Pool: pool, Generation: generation, Config: nodeconfig.Config{Files: []nodeconfig.File{{Path: "/etc/motd", Content: fmt.Sprint(generation)}}}}
}

func (w *world) push(d nodeconfig.Document, seed byte) {
	w.t.Helper()
	text, err := d.Sign(key(seed))
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.userData = text
}

// ServeHTTP is the metadata service.
func (w *world) ServeHTTP(out http.ResponseWriter, q *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	if q.Header.Get("Metadata") != "true" || q.URL.Path != "/metadata/instance/compute" {
		http.NotFound(out, q)
		return
	}
	err := json.NewEncoder(out).Encode(map[string]any{"userData": w.userData, "virtualMachineScaleSet": map[string]string{"id": strings.ToUpper(w.pool)}})
	if err != nil {
		w.t.Error(err)
	}
}

// Current and the following are config.Store.
func (w *world) Current() (files.Set, []byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return nil, w.record, nil
}
func (w *world) Pending() ([]byte, bool, error) { return w.opened, w.pending, nil }
func (w *world) Drift() ([]string, error)       { return nil, nil }
func (w *world) Forget() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record, w.forgot = nil, true
	return nil
}

// Apply, Recover and Settle are config.Applier.
func (w *world) Apply(_ context.Context, d nodeconfig.Document, record string) wire.ConfigurationAnswer {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.applied = append(w.applied, d.Generation)
	a := w.outcome
	if a.State == "" {
		a.State, w.record = wire.ConfigurationApplied, []byte(record)
	}
	if signed, err := nodeconfig.Read(string(w.record)); err == nil {
		if d, err := signed.Unverified(); err == nil {
			a.Generation = d.Generation
		}
	}
	w.pending, w.opened = a.State == wire.ConfigurationApplying, []byte(record)
	return a
}

func (w *world) Recover(context.Context) (bool, error) { return w.recovers, nil }

func (w *world) Settle(context.Context) (wire.ConfigurationAnswer, bool) {
	settled := w.pending
	w.pending = false
	return w.settle, settled
}

// Ask and Watch are config.Kubernetes.
func (w *world) Ask(_ context.Context, method string, path func(string) string, contentType string, body []byte) (bootstrap.Answer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.alone {
		return bootstrap.Answer{}, fs.ErrNotExist
	}
	if w.refusals > 0 {
		w.refusals--
		return bootstrap.Answer{Code: 503, Status: "503 Service Unavailable"}, nil
	}
	p, _, _ := strings.Cut(path("me"), "?")
	if method == "GET" && p == "/api/v1/nodes/me" {
		return bootstrap.Answer{Code: 200, Status: "200 OK", Body: []byte(`{"status":{"conditions":[{"type":"DiskPressure","status":"True"},{"type":"Ready","status":"True","lastHeartbeatTime":"2026-11-21T10:00:00Z"}]}}`)}, nil
	}
	switch method + " " + p + " " + contentType {
	case "PATCH /api/v1/nodes/me/status application/strategic-merge-patch+json":
		w.status = append(w.status, string(body))
		var n struct {
			Metadata struct{ Annotations map[string]string }
		}
		var a wire.ConfigurationAnswer
		text := ""
		err := json.Unmarshal(body, &n)
		if err == nil {
			text = n.Metadata.Annotations[wire.ConfigurationAnnotation]
			err = json.Unmarshal([]byte(text), &a)
		}
		if err != nil || len(text) > wire.MaxConfigurationAnswer {
			w.t.Errorf("an annotation of %d bytes: %v", len(text), err)
		}
		w.answers = append(w.answers, a)
	default:
		w.t.Errorf("%s %s %s", method, p, contentType)
	}
	return bootstrap.Answer{Code: 200, Status: "200 OK", Body: []byte("{}")}, nil
}

func (w *world) Watch(ctx context.Context, path func(string) string, accept string, _ time.Duration, event func([]byte) error) error {
	if p := path("me"); !strings.Contains(p, "fieldSelector=metadata.name%3Dme") || !strings.Contains(p, "allowWatchBookmarks=true") || !strings.Contains(accept, "as=PartialObjectMetadata") {
		w.t.Errorf("watch %s as %s", p, accept)
	}
	w.mu.Lock()
	w.watches++
	w.mu.Unlock()
	for kind := "ADDED"; ; kind = "MODIFIED" {
		w.mu.Lock()
		if w.alone {
			w.mu.Unlock()
			return fs.ErrNotExist
		}
		if w.broken {
			w.mu.Unlock()
			return errors.New("connection reset by peer")
		}
		annotations := map[string]string{}
		if w.wanted != "" {
			annotations[wire.ConfigurationWanted] = w.wanted
		}
		if len(w.answers) > 0 {
			text, err := json.Marshal(w.answers[len(w.answers)-1])
			if err != nil {
				w.t.Error(err)
			}
			annotations[wire.ConfigurationAnnotation] = string(text)
		}
		w.mu.Unlock()
		line, err := json.Marshal(map[string]any{"type": kind, "object": map[string]any{"metadata": map[string]any{"annotations": annotations}}})
		if err == nil {
			err = event(line)
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.changed:
		}
	}
}

// signal changes the Node or the connection, and has the watch see it.
func (w *world) signal(change func()) {
	w.mu.Lock()
	change()
	w.mu.Unlock()
	w.changed <- struct{}{}
}

func (w *world) options(metadata string) config.Options {
	return config.Options{Root: w.root, Metadata: metadata, Store: w, Applier: w, Kubernetes: w, Now: time.Now, Random: func() float64 { return 0.5 }, Log: slog.New(slog.DiscardHandler)}
}

// boot is one reading of the userData and its application.
func (w *world) boot() wire.ConfigurationAnswer {
	w.t.Helper()
	s := httptest.NewServer(w)
	defer s.Close()
	a, ok, err := config.Boot(w.t.Context(), w.options(s.URL))
	if err != nil {
		w.t.Fatal(err)
	}
	if !ok {
		return wire.ConfigurationAnswer{}
	}
	return a
}

func (w *world) last() wire.ConfigurationAnswer {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.answers) == 0 {
		return wire.ConfigurationAnswer{}
	}
	return w.answers[len(w.answers)-1]
}

func (w *world) count() (reads, watches int, applied []int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reads, w.watches, slices.Clone(w.applied)
}
