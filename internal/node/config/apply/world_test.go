package apply

import (
	"context"
	"crypto/ed25519"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/node/config/files"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/wire"
)

// A world is a machine: a folder as its root, and a small model of systemd, the kernel's
// parameters, the kubelet and its Node. Time passes in Wait alone.
type world struct {
	t       *testing.T
	root    string
	now     time.Time
	units   map[string]*unit
	sysctls map[string]string
	log     []string // what was done to the machine
	// fails says that a unit does not stay up, by what lies on the machine then.
	fails      map[string]func() bool
	complaints map[string]string // of Verify, by a text in a staged file
	command    []string
	ready      bool
	heartbeat  time.Time
	silent     func() bool // the kubelet runs and sends no heartbeats
	onWait     func()
	step       func() // before each operation that changes the machine or its store, and some waits
	store      *hooked
	running    map[string]string // what the kubelet read at its start
	boot       bool
	deny       map[Verb]error
	unsynced   bool // the store does not wait for the disk
}

type unit struct {
	active   string
	restarts int
	since    time.Time
}

const pool = "/subscriptions/s/resourcegroups/g/providers/microsoft.compute/virtualmachinescalesets/p"

func newWorld(t *testing.T) *world {
	w := &world{t: t, root: t.TempDir(), now: time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC), units: map[string]*unit{}, ready: true,
		sysctls: map[string]string{"net.core.somaxconn": "128", "net.ipv4.tcp_rmem": "4096\t131072\t6291456"}, fails: map[string]func() bool{}, complaints: map[string]string{},
		running: map[string]string{}, step: func() {}, command: []string{"/usr/bin/kubelet", "--config-dir=" + DefaultKubeletConfigDir}, deny: map[Verb]error{}}
	w.heartbeat = w.now.Add(-time.Minute)
	w.store = w.open()
	w.write("/etc/passwd", "root:x:0:0::/root:/bin/sh\nwww:x:33:34::/:/bin/false\n")
	w.write("/etc/group", "root:x:0:\nwww:x:34:\n")
	w.write("/etc/containerd/config.toml", "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".registry]\n  config_path = \"/etc/containerd/certs.d:/etc/docker/certs.d\"\n")
	w.write("/usr/sbin/update-ca-certificates", "")
	w.write(DefaultKubeletConfigDir+"/00-image.conf", "")
	for _, name := range []string{"kubelet.service", "containerd.service", "nginx.service", "backup.service"} {
		w.write("/lib/systemd/system/"+name, "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n")
		w.units[name] = &unit{active: "active", since: w.now.Add(-time.Hour)}
	}
	w.units["backup.service"].active = "inactive"
	w.write("/lib/systemd/system/once.service", "[Service]\nType=oneshot\nExecStart=/bin/true\n")
	return w
}

func (w *world) write(name, text string) {
	w.t.Helper()
	at := filepath.Join(w.root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o644)); err != nil {
		w.t.Fatal(err)
	}
}

// read returns a file's content, "-> TARGET" of a link, "" of nothing.
func (w *world) read(name string) string {
	at := filepath.Join(w.root, name)
	if target, err := os.Readlink(at); err == nil {
		return "-> " + target
	}
	text, err := os.ReadFile(at)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.t.Fatal(err)
	}
	return string(text)
}

func (w *world) has(name, text string) func() bool {
	return func() bool { return strings.Contains(w.read(name), text) }
}

func (w *world) applier() *Applier {
	return New(Options{Root: w.root, Files: w.store, System: w, Now: func() time.Time { return w.now }, Log: slog.New(slog.DiscardHandler), Boot: w.boot,
		Heartbeat: func(context.Context) (bool, time.Time, error) { return w.ready, w.heartbeat, nil }})
}

func document(generation int64, c nodeconfig.Config) nodeconfig.Document {
	return nodeconfig.Document{Pool: pool, Generation: generation, Config: c}
}

func (w *world) record(d nodeconfig.Document) string {
	w.t.Helper()
	record, err := d.Sign(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	if err != nil {
		w.t.Fatal(err)
	}
	return record
}

// apply applies a document and gives the answer and what was done.
func (w *world) apply(generation int64, c nodeconfig.Config) (wire.ConfigurationAnswer, []string) {
	w.t.Helper()
	d := document(generation, c)
	// As it is read from userData: numbers are float64.
	d, err := nodeconfig.ReadUnverified(w.record(d))
	if err != nil {
		w.t.Fatal(err)
	}
	w.log = nil
	return w.applier().Apply(w.t.Context(), d, w.record(d)), w.log
}

// good applies a document that has to be applied, by exactly these actions.
func (w *world) good(generation int64, c nodeconfig.Config, actions ...string) {
	w.t.Helper()
	got, log := w.apply(generation, c)
	if got.State != wire.ConfigurationApplied || got.Generation != generation || got.Wanted != generation || got.Digest == "" || got.Message != "" {
		w.t.Fatalf("%+v", got)
	}
	w.did(log, actions...)
	if w.pending() {
		w.t.Error("the journal is open")
	}
}

func (w *world) pending() bool {
	w.t.Helper()
	_, pending, err := w.store.Pending()
	if err != nil {
		w.t.Fatal(err)
	}
	return pending
}

func (w *world) did(log []string, actions ...string) {
	w.t.Helper()
	if !slices.Equal(log, actions) {
		w.t.Errorf("done:\n%s\nwanted:\n%s", strings.Join(log, "\n"), strings.Join(actions, "\n"))
	}
}

// bad applies a document that has to be answered by state and reason, with parts of the
// message.
func (w *world) bad(generation int64, c nodeconfig.Config, state wire.ConfigurationState, reason string, parts ...string) []string {
	w.t.Helper()
	got, log := w.apply(generation, c)
	if got.State != state || got.Reason != reason || got.Wanted != generation || got.Generation >= generation {
		w.t.Fatalf("%+v", got)
	}
	for _, part := range parts {
		if !strings.Contains(got.Message, part) {
			w.t.Errorf("message lacks %q: %s", part, got.Message)
		}
	}
	if len(got.Message) > 1<<10 {
		w.t.Errorf("message has %d bytes", len(got.Message))
	}
	return log
}

// The System of the world.

func (w *world) Verify(_ context.Context, stage string, units []string) (lines []string, err error) {
	folder := stage
	if stage == "" {
		folder = filepath.Join(w.root, systemUnits)
	}
	for _, u := range units {
		text, _ := os.ReadFile(filepath.Join(folder, u))
		for part, complaint := range w.complaints {
			if strings.Contains(string(text), part) {
				lines = append(lines, filepath.Join(folder, u)+":2: "+complaint)
			}
		}
	}
	return lines, nil
}

func (w *world) Reload(context.Context) error {
	w.step()
	w.log = append(w.log, "daemon-reload")
	return nil
}

func (w *world) Control(_ context.Context, verb Verb, name string, wait bool) error {
	w.step()
	line := string(verb) + " " + name
	if !wait {
		line += " (no wait)"
	}
	w.log = append(w.log, line)
	if err := w.deny[verb]; err != nil {
		return err
	}
	u := w.unit(name)
	*u = unit{active: "inactive"}
	if verb != Stop {
		*u = unit{active: "active", since: w.now}
		w.run(name)
	}
	return nil
}

// run has a unit that runs do what it does at its start.
func (w *world) run(name string) {
	if name == "kubelet.service" {
		w.running[name] = w.read(DefaultKubeletConfigDir + "/" + kubeletDropIn)
	}
	if fails := w.fails[name]; fails != nil && fails() {
		w.units[name].active = "activating"
	} else if name == "kubelet.service" && (w.silent == nil || !w.silent()) {
		w.heartbeat = w.now
	}
}

func (w *world) unit(name string) *unit {
	if w.units[name] == nil {
		w.units[name] = &unit{active: "inactive"}
	}
	return w.units[name]
}

func (w *world) Unit(_ context.Context, name string) (UnitState, error) {
	u := w.unit(name)
	s := UnitState{Active: u.active, Restarts: u.restarts}
	if name == "once.service" {
		return UnitState{Active: "inactive", Done: true}, nil
	}
	if u.active == "active" {
		s.Since = u.since
	}
	return s, nil
}

func (w *world) Journal(_ context.Context, name string) []string {
	return []string{name + " says", "password=hunter2secret", strings.Repeat("long ", 1000)}
}

func (w *world) Sysctl(key string) (string, error) {
	v, ok := w.sysctls[key]
	if !ok {
		return "", fs.ErrNotExist
	}
	return v, nil
}

func (w *world) SetSysctl(key, value string) error {
	w.step()
	w.log = append(w.log, "sysctl "+key+"="+value)
	w.sysctls[key] = value
	return nil
}

func (w *world) UpdateCACertificates(context.Context) error {
	w.step()
	w.log = append(w.log, "update-ca-certificates")
	return nil
}

func (w *world) Command(context.Context, string) ([]string, error) { return w.command, nil }

func (w *world) Healthz(context.Context, int) error {
	if w.units["kubelet.service"].active != "active" {
		return errors.New("connection refused")
	}
	return nil
}

func (w *world) Wait(ctx context.Context, d time.Duration) error {
	if w.now.Second()%5 == 0 {
		w.step()
	}
	w.now = w.now.Add(d)
	if w.onWait != nil {
		w.onWait()
	}
	for name, u := range w.units {
		if u.active == "activating" && w.now.Second()%10 == 0 {
			u.restarts++
			w.run(name)
		}
	}
	return ctx.Err()
}

// A hooked store is the machine's, whose steps can be watched and whose Restore can fail.
type hooked struct {
	*files.Store
	w            *world
	restoreError error
	restored     func() // the files were restored
}

func (s *hooked) Begin(next files.Set, record []byte) ([]string, error) {
	s.w.step()
	changed, err := s.Store.Begin(next, record)
	s.w.step()
	return changed, err
}

func (s *hooked) Keep() error {
	s.w.step()
	err := s.Store.Keep()
	s.w.step()
	return err
}

func (s *hooked) Restore() ([]string, error) {
	s.w.step()
	if s.restoreError != nil {
		return nil, s.restoreError
	}
	changed, err := s.Store.Restore()
	s.w.step()
	if s.restored != nil {
		s.restored()
	}
	return changed, err
}

// open opens the real store of the machine.
func (w *world) open() *hooked {
	w.t.Helper()
	fsys, err := files.OS(w.root)
	if err != nil {
		w.t.Fatal(err)
	}
	if w.unsynced {
		fsys = unsynced{fsys}
	}
	store, err := files.Open(fsys)
	if err != nil {
		w.t.Fatal(err)
	}
	return &hooked{Store: store, w: w}
}

// unsynced is for many runs that end without a power cut of the disk: which syncs that
// needs is tested in package files.
type unsynced struct{ files.FS }

func (unsynced) Sync(string) error    { return nil }
func (unsynced) SyncDir(string) error { return nil }
