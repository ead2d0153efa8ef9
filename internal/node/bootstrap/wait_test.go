package bootstrap

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

const (
	sentinelPath = "/run/cluster-api/bootstrap-success.complete"
	runPath      = "/run/cloud-init/"
	dataPath     = "/var/lib/cloud/data/"
	outputLog    = "/var/log/cloud-init-output.log"
	bootA        = "11111111-1111-1111-1111-111111111111"
	bootB        = "22222222-2222-2222-2222-222222222222"
)

// root is a node's root in a folder.
type root struct {
	t   testing.TB
	dir string
}

func newRoot(t testing.TB) root {
	t.Helper()
	// Its name is short: below it are sockets, whose paths have at most 107 bytes.
	dir, err := os.MkdirTemp("", "node")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	// Goroutines inherit the label: nothingRuns knows by it whose they are.
	pprof.SetGoroutineLabels(pprof.WithLabels(t.Context(), pprof.Labels("test", t.Name())))
	r := root{t, dir}
	r.write("/proc/sys/kernel/random/boot_id", bootA+"\n")
	r.write("/proc/uptime", "20.50 30.00\n")
	// What Cluster API gave to cloud-init.
	r.write("/var/lib/cloud/instance/scripts/runcmd", "kubeadm join && echo success > "+defaultSentinel+"\n")
	return r
}

func (r root) path(name string) string { return filepath.Join(r.dir, filepath.FromSlash(name)) }

func (r root) folder(name string) {
	r.t.Helper()
	if err := os.MkdirAll(r.path(name), 0o755); err != nil {
		r.t.Fatal(err)
	}
}

// write makes a file as cloud-init does: whole, by a rename.
func (r root) write(name, content string) {
	r.t.Helper()
	r.folder(filepath.Dir(name))
	if err := os.WriteFile(r.path(name)+".new", []byte(content), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(r.path(name)+".new", r.path(name)); err != nil {
		r.t.Fatal(err)
	}
}

func (r root) remove(name string) {
	r.t.Helper()
	if err := os.Remove(r.path(name)); err != nil {
		r.t.Fatal(err)
	}
}

func (r root) link(target, name string) {
	r.t.Helper()
	r.folder(filepath.Dir(name))
	if err := os.Symlink(target, r.path(name)); err != nil {
		r.t.Fatal(err)
	}
}

// cloudInit writes one of its files with the link to it, from a fixture.
func (r root) cloudInit(name, fixture string) {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", fixture))
	if err != nil {
		r.t.Fatal(err)
	}
	r.write(dataPath+name, string(text))
	r.link("../../var/lib/cloud/data/"+name, runPath+name)
}

func (r root) options() Options {
	o := Defaults()
	o.Root, o.Kubelet, o.Console, o.Deadline = r.dir, KubeletNo, "", time.Hour // what is missed hangs, and is seen
	return o
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// wait returns the verdict, and fails where it is not one that can be read again.
func (r root) wait(o Options) wire.Verdict {
	r.t.Helper()
	v, err := Wait(r.t.Context(), o, quiet())
	if err != nil {
		r.t.Fatal(err)
	}
	text, err := json.Marshal(v)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := wire.ParseVerdict(text); err != nil {
		r.t.Errorf("the verdict is not valid: %v", err)
	}
	kept, err := load(r.path(defaultState))
	if err != nil || kept.Outcome != v.Outcome || kept.Reason != v.Reason {
		r.t.Errorf("kept is %+v (%v), want %s %s", kept, err, v.Outcome, v.Reason)
	}
	r.nothingRuns()
	return v
}

// nothingRuns fails where something of this package is still at work for the test.
func (r root) nothingRuns() {
	r.t.Helper()
	label := fmt.Sprintf("# labels: {%q:%q}", "test", r.t.Name())
	for try := 0; ; try++ {
		var all bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
			r.t.Fatal(err)
		}
		left := ""
		for stack := range strings.SplitSeq(all.String(), "\n\n") {
			if s := stack; strings.Contains(s, label) && strings.Contains(s, "internal/node/bootstrap.") && !strings.Contains(s, "testing.tRunner") && !strings.Contains(s, "bootstrap.Test") && !strings.Contains(s, "bootstrap.root") && !strings.Contains(s, "newSystemd") {
				left = s
			}
		}
		if left == "" {
			return
		}
		if try == 6000 {
			r.t.Errorf("still at work:\n%s", left)
			return
		}
		time.Sleep(10 * time.Millisecond) // a goroutine that ends is seen for a moment
	}
}

// whileWaiting runs f once the wait has begun, and gives the verdict.
func (r root) whileWaiting(o Options, f func()) wire.Verdict {
	r.t.Helper()
	o, err := o.complete()
	if err != nil {
		r.t.Fatal(err)
	}
	acted := make(chan struct{})
	began := make(chan struct{})
	n := newNode(o, identifyNode(o), slog.New(notice{said: "waiting", began: began, once: new(atomic.Bool)}))
	go func() {
		defer close(acted)
		<-began
		f()
	}()
	v, err := n.wait(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	<-acted
	r.nothingRuns()
	return v
}

// notice tells when something is logged for the first time.
type notice struct {
	slog.Handler
	said  string
	began chan struct{}
	once  *atomic.Bool
}

func (n notice) Enabled(context.Context, slog.Level) bool { return true }

func (n notice) Handle(_ context.Context, r slog.Record) error {
	if r.Message == n.said && n.once.CompareAndSwap(false, true) {
		close(n.began)
	}
	return nil
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	t.Run("there before", func(t *testing.T) {
		t.Parallel()
		r := newRoot(t)
		r.write(sentinelPath, "success\n")
		if v := r.wait(r.options()); v.Outcome != wire.Succeeded || v.BootID != bootA || v.Uptime != 20500 {
			t.Errorf("%+v", v)
		}
	})
	for _, c := range []struct{ name, folder string }{
		{"folder is there", "/run/cluster-api"}, {"folder comes with it", "/run"}, {"nothing is there", "/"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRoot(t)
			r.folder(c.folder)
			if v := r.whileWaiting(r.options(), func() { r.write(sentinelPath, "success\n") }); v.Outcome != wire.Succeeded {
				t.Errorf("%+v", v)
			}
		})
	}
	t.Run("folder is replaced", func(t *testing.T) {
		t.Parallel()
		r := newRoot(t)
		r.folder("/run/cluster-api")
		v := r.whileWaiting(r.options(), func() {
			if err := os.Remove(r.path("/run/cluster-api")); err != nil {
				t.Error(err)
			}
			r.write(sentinelPath, "success\n")
		})
		if v.Outcome != wire.Succeeded {
			t.Errorf("%+v", v)
		}
	})
	t.Run("a directory", func(t *testing.T) {
		t.Parallel()
		r := newRoot(t)
		r.folder(sentinelPath)
		o := r.options()
		o.Deadline = 50 * time.Millisecond
		v := r.wait(o)
		if v.Outcome != wire.TimedOut || !strings.Contains(v.Message, "a directory") || len(v.Evidence) == 0 || v.Evidence[0].Source != sentinelPath {
			t.Errorf("%+v, want to be told of the directory", v)
		}
	})
	t.Run("a directory, and cloud-init is done", func(t *testing.T) {
		t.Parallel()
		r := newRoot(t)
		r.folder(sentinelPath)
		r.cloudInit("result.json", "result-good.json")
		if v := r.wait(r.options()); v.Outcome != wire.Failed || v.Reason != "SentinelMissing" || !strings.Contains(v.Message, "a directory") {
			t.Errorf("%+v", v)
		}
	})
	t.Run("a link elsewhere", func(t *testing.T) {
		t.Parallel()
		r := newRoot(t)
		r.write("/etc/passwd", "x")
		r.link("/etc/passwd", sentinelPath)
		o := r.options()
		o.Deadline = 50 * time.Millisecond
		if v := r.wait(o); v.Outcome != wire.TimedOut || !strings.Contains(v.Message, "a link") {
			t.Errorf("%+v", v)
		}
	})
	t.Run("another path", func(t *testing.T) {
		t.Parallel()
		r := newRoot(t)
		r.write("/run/other", "")
		o := r.options()
		o.Sentinel = "/run/other"
		if v := r.wait(o); v.Outcome != wire.Succeeded {
			t.Errorf("%+v", v)
		}
	})
}

func TestResultWithoutSentinel(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	r.write(outputLog, "[preflight] Running pre-flight checks\nerror execution phase preflight: [preflight] Some fatal errors occurred:\n\t[ERROR FileAvailable--etc-kubernetes-kubelet.conf]: /etc/kubernetes/kubelet.conf already exists\n")
	r.cloudInit("status.json", "status-25.1.json")
	v := r.whileWaiting(r.options(), func() { r.cloudInit("result.json", "result-runcmd.json") })
	if v.Outcome != wire.Failed || v.Module != "runcmd" || v.Phase != "preflight" || len(v.Evidence) == 0 {
		t.Errorf("%+v", v)
	}
}

func TestRecoverableErrorsDegrade(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	r.cloudInit("status.json", "status-23.4.json")
	r.cloudInit("result.json", "result-good.json")
	r.write(sentinelPath, "")
	if v := r.wait(r.options()); v.Outcome != wire.Degraded || len(v.Ignored) != 1 {
		t.Errorf("%+v", v)
	}
}

// The data of an earlier boot lie on the disk until cloud-init takes them away.
func TestResultOfAnEarlierBoot(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	r.write(dataPath+"result.json", `{"v1":{"datasource":null,"errors":["old"]}}`)
	v := r.whileWaiting(r.options(), func() { r.write(sentinelPath, "") })
	if v.Outcome != wire.Succeeded {
		t.Errorf("%+v", v)
	}
}

// After a reboot cloud-init does not run the commands again, and nobody writes a
// sentinel.
func TestReboot(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	r.write(sentinelPath, "")
	first := r.wait(r.options())

	r.write(outputLog, "much happened since\n")
	r.cloudInit("result.json", "result-runcmd.json")
	if err := os.Remove(r.path(sentinelPath)); err != nil {
		t.Fatal(err)
	}
	if again := r.wait(r.options()); !again.At.Equal(first.At) || again.Outcome != wire.Succeeded {
		t.Errorf("in the same boot: %+v, want the first verdict", again)
	}

	r.write("/proc/sys/kernel/random/boot_id", bootB+"\n")
	o := r.options()
	if v := r.wait(o); v.Outcome != wire.Failed || v.BootID != bootB {
		t.Errorf("in another boot: %+v, want it judged anew", v)
	}
	r.write("/proc/sys/kernel/random/boot_id", bootA+"\n")
	r.write("/var/log/cloud-init.log", "cc[DEBUG]: Cloud-init v. 22.4.2 running 'modules:final' at x. Up 9.1 seconds.\nhelpers.py[DEBUG]: config-scripts-user already ran (freq=once-per-instance)\n")
	if v := r.wait(o); v.Outcome == wire.Failed {
		t.Errorf("where the commands ran in an earlier boot: %+v", v)
	}
}

func TestTimedOutIsWaitedForAgain(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	o := r.options()
	o.Deadline = 20 * time.Millisecond
	if v := r.wait(o); v.Outcome != wire.TimedOut {
		t.Fatalf("%+v", v)
	}
	r.write(sentinelPath, "")
	if v := r.wait(o); v.Outcome != wire.Succeeded {
		t.Errorf("%+v", v)
	}
}

func TestProvisionOnAKS(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	r.folder("/var/log/azure/aks")
	r.cloudInit("result.json", "result-good.json")
	v := r.whileWaiting(r.options(), func() {
		text, err := os.ReadFile("testdata/provision-50.json")
		if err != nil {
			t.Error(err)
		}
		// As AKS does it: in place, and here in two parts.
		f, err := os.Create(r.path(provisionFile))
		if err != nil {
			t.Error(err)
			return
		}
		for _, part := range [][]byte{text[:100], text[100:]} {
			if _, err := f.Write(part); err != nil {
				t.Error(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	if v.Outcome != wire.Failed || v.ExitCode == nil || *v.ExitCode != 50 {
		t.Errorf("%+v", v)
	}
}

// A kubelet of the test's own.
func kubelet(t *testing.T, healthy *atomic.Bool) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/healthz" || !healthy.Load() {
			http.Error(w, "not yet", http.StatusInternalServerError)
		}
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func (r root) withKubelet(o Options, address string) wire.Verdict {
	r.t.Helper()
	o, err := o.complete()
	if err != nil {
		r.t.Fatal(err)
	}
	n := newNode(o, identifyNode(o), quiet())
	n.kubelet.address, n.kubelet.within = address, time.Minute // a busy machine answers late
	v, err := n.wait(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return v
}

// nobody is an address at which nobody listens, and that no kernel gives to others.
const nobody = "127.0.0.1:1"

func TestKubeletHealth(t *testing.T) {
	t.Parallel()
	var healthy atomic.Bool
	healthy.Store(true)
	address := kubelet(t, &healthy)
	r := newRoot(t)
	r.write(sentinelPath, "")
	r.write("/etc/systemd/system/kubelet.service", "[Service]\n")
	o := r.options()
	o.Kubelet, o.Settle = KubeletAuto, 10*time.Millisecond
	if v := r.withKubelet(o, address); v.Outcome != wire.Succeeded {
		t.Errorf("healthy: %+v", v)
	}
	healthy.Store(false)
	o.Grace = time.Millisecond
	if v := r.withKubelet(o, address); v.Outcome != wire.Failed || v.Stage != "kubelet" {
		t.Errorf("unhealthy: %+v", v)
	}
	v := r.withKubelet(o, nobody)
	if v.Outcome != wire.Failed || !strings.Contains(v.Message, "connection refused") {
		t.Errorf("nobody listens: %+v", v)
	}
	r.nothingRuns()
}

// Where the kernel's watches are used up there is a verdict all the same.
func TestNoNotifications(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	o, err := r.options().complete()
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan struct{})
	n := newNode(o, identifyNode(o), slog.New(notice{said: "waiting", began: waiting, once: new(atomic.Bool)}))
	n.newWatcher = func(func()) (*watcher, error) { return nil, errors.New("too many") }
	go func() {
		<-waiting
		r.write(sentinelPath, "")
	}()
	if v, err := n.wait(t.Context()); err != nil || v.Outcome != wire.Succeeded {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestStops(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if v, err := Wait(ctx, r.options(), quiet()); err == nil {
		t.Errorf("%+v, want no verdict", v)
	}
	r.nothingRuns()
	if _, err := os.Stat(r.path(defaultState)); err == nil {
		t.Error("a verdict was kept")
	}
}

func TestOptionsSayAllThatIsWrong(t *testing.T) {
	o := Options{Sentinel: "run/x", Units: []string{"a b"}, Kubelet: "maybe", Node: "perhaps", ReportURL: "http://example.com"}
	err := o.Validate()
	for _, want := range []string{"--sentinel", "--unit", "--kubelet", "--node", "--deadline", "--report-url"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s named", err, want)
		}
	}
	if err := Defaults().Validate(); err != nil {
		t.Error(err)
	}
}

// Nothing on a clone that joins by itself, or on a node of k3s's own installer,
// writes a sentinel: that it works in its cluster is what counts, however late.
func TestNobodyWritesASentinel(t *testing.T) {
	t.Parallel()
	clone := func(t *testing.T) root {
		r := newRoot(t)
		r.remove("/var/lib/cloud/instance/scripts/runcmd")
		r.write("/var/lib/cloud/instance/user-data.txt", "#cloud-config\n")
		r.write("/run/cloud-init/enabled", "")
		return r
	}
	result := func(r root, errs string) { r.write("/run/cloud-init/result.json", `{"v1":{"errors":[`+errs+`]}}`) }
	t.Run("it came up", func(t *testing.T) {
		t.Parallel()
		r := clone(t)
		result(r, "")
		if v := r.wait(r.options()); v.Outcome != wire.Succeeded {
			t.Errorf("%+v", v)
		}
	})
	t.Run("its kubelet is late", func(t *testing.T) {
		t.Parallel()
		r := clone(t)
		result(r, "")
		o := r.options()
		o.Kubelet, o.Grace, o.Deadline = KubeletYes, 0, 3*time.Second
		if v := r.wait(o); v.Outcome != wire.TimedOut || v.Reason == "SentinelMissing" {
			t.Errorf("%s %s, want it waited for until the deadline", v.Outcome, v.Reason)
		}
	})
	t.Run("a command failed", func(t *testing.T) {
		t.Parallel()
		r := clone(t)
		result(r, `"('scripts_user', RuntimeError('Runparts: 1 failures (runcmd) in 1 attempted commands'))"`)
		if v := r.wait(r.options()); v.Outcome != wire.Failed || v.Module != "runcmd" {
			t.Errorf("%+v, want it Failed: nothing else tells", v)
		}
	})
	t.Run("a sentinel is promised", func(t *testing.T) {
		t.Parallel()
		for _, promise := range []string{"/run/cluster-api/placeholder", "/var/lib/cloud/instance/cloud-config.txt"} {
			r := clone(t)
			r.write(promise, "runcmd: [touch "+defaultSentinel+"]")
			result(r, "")
			if v := r.wait(r.options()); v.Outcome != wire.Failed || v.Reason != "SentinelMissing" {
				t.Errorf("%s: %s %s", promise, v.Outcome, v.Reason)
			}
		}
	})
	t.Run("a unit that nobody can see", func(t *testing.T) {
		t.Parallel()
		r := clone(t)
		result(r, "")
		o := r.options()
		o.Units, o.Deadline = []string{"x.service"}, 2*time.Second
		if v := r.wait(o); v.Outcome != wire.TimedOut || v.Reason != "UnitHung" {
			t.Errorf("%s %s: what was asked for was never seen", v.Outcome, v.Reason)
		}
	})
}

// What AKS's provisioning left in an earlier boot says nothing of this one.
func TestProvisionedInAnEarlierBoot(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"0", "50"} {
		r := newRoot(t)
		r.remove("/var/lib/cloud/instance/scripts/runcmd")
		r.write("/run/cloud-init/result.json", `{"v1":{"errors":[]}}`)
		r.write(provisionFile, `{"ExitCode":"`+code+`"}`)
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(r.path(provisionFile), old, old); err != nil {
			t.Fatal(err)
		}
		if v := r.wait(r.options()); v.Outcome != wire.Succeeded {
			t.Errorf("exit code %s of an earlier boot: %s %s", code, v.Outcome, v.Reason)
		}
	}
}
