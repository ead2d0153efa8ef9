package apply

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/node/config"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/wire"
)

// An agent is a machine with all that runs on it for its configuration: the agent, the
// applier and the store. Its metadata service and its API server are small models.
type agent struct {
	*world
	userData, pool string
	url            string // of the metadata service
	answers        []wire.ConfigurationAnswer
	writes         int // to the API server
	wanted         string
	signals        chan struct{}
}

func signer(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(seed)), ed25519.SeedSize)))
}

func publicOf(seeds ...byte) (all []nodeconfig.PublicKey) {
	for _, s := range seeds {
		all = append(all, nodeconfig.PublicKeyOf(signer(s).Public().(ed25519.PublicKey)))
	}
	return all
}

func newAgent(t *testing.T) *agent {
	t.Helper()
	a := &agent{world: newWorld(t), pool: pool, signals: make(chan struct{}, 1)}
	text, err := json.Marshal(config.Settings{Keys: publicOf('a')})
	if err != nil {
		t.Fatal(err)
	}
	a.write(config.SettingsFile, string(text))
	return a
}

// serve starts the metadata service; outside of virtual time.
func serve(t *testing.T, at **agent) string {
	s := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		a := *at
		if err := json.NewEncoder(out).Encode(map[string]any{"userData": a.userData, "virtualMachineScaleSet": map[string]string{"id": a.pool}}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func (a *agent) Ask(_ context.Context, method string, _ func(string) string, _ string, body []byte) (bootstrap.Answer, error) {
	a.writes++
	var n struct {
		Metadata struct{ Annotations map[string]string }
	}
	if err := json.Unmarshal(body, &n); err != nil {
		a.t.Errorf("%s: %v", method, err)
	}
	if text := n.Metadata.Annotations[wire.ConfigurationAnnotation]; text != "" {
		var answer wire.ConfigurationAnswer
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			a.t.Error(err)
		}
		a.answers = append(a.answers, answer)
	}
	return bootstrap.Answer{Code: 200, Status: "200 OK", Body: []byte("{}")}, nil
}

func (a *agent) Watch(ctx context.Context, _ func(string) string, _ string, _ time.Duration, event func([]byte) error) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.signals:
		}
		text := ""
		if len(a.answers) > 0 {
			last, err := json.Marshal(a.answers[len(a.answers)-1])
			if err != nil {
				return err
			}
			text = string(last)
		}
		line, err := json.Marshal(map[string]any{"type": "MODIFIED", "object": map[string]any{"metadata": map[string]any{"annotations": map[string]string{
			wire.ConfigurationWanted: a.wanted, wire.ConfigurationAnnotation: text}}}})
		if err == nil {
			err = event(line)
		}
		if err != nil {
			return err
		}
	}
}

func (a *agent) options() config.Options {
	return config.Options{Metadata: a.url, Root: a.root, Store: a.store, Applier: a.applier(), Kubernetes: a, Now: time.Now, Random: func() float64 { return 0.5 }, Log: slog.New(slog.DiscardHandler)}
}

func (a *agent) push(generation int64, c nodeconfig.Config) {
	a.t.Helper()
	d := document(generation, c)
	d.Pool = a.pool
	a.sign(d, 'a')
}

func (a *agent) sign(d nodeconfig.Document, seed byte) {
	a.t.Helper()
	text, err := d.Sign(signer(seed))
	if err != nil {
		a.t.Fatal(err)
	}
	a.userData = text
}

// reads has the userData read once, and gives the answer and what was done to the machine.
func (a *agent) reads() (string, []string) {
	a.t.Helper()
	a.log = nil
	answer, ok, err := config.Boot(a.t.Context(), a.options())
	if err != nil {
		return err.Error(), a.log
	}
	if !ok {
		return "", a.log
	}
	return short(answer), a.log
}

func short(a wire.ConfigurationAnswer) string {
	return strings.Join(strings.Fields(fmt.Sprintf("%s %s %d/%d", a.State, a.Reason, a.Generation, a.Wanted)), " ")
}

func (a *agent) expect(want string, actions ...string) {
	a.t.Helper()
	got, log := a.reads()
	if got != want {
		a.t.Errorf("%s, want %s", got, want)
	}
	a.did(log, actions...)
}

// runs has the daemon run for a time.
func (a *agent) runs(t *testing.T, story func()) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		config.Run(ctx, a.options())
	}()
	synctest.Wait()
	story()
	end()
	<-done
}

func (a *agent) last() string {
	if len(a.answers) == 0 {
		return ""
	}
	return short(a.answers[len(a.answers)-1])
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// disk is all files but the agent's own notes.
func (a *agent) disk() map[string]string {
	a.t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(a.root, func(at string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.Contains(at, "/var/lib/ortet/") {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(at, a.root)
		all[name] = info.Mode().String() + a.read(name)
		return nil
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return all
}

func (a *agent) restart() { a.store = a.open() }

const motdFile = "/etc/motd"

// The image of a node that was configured in place is started in its own pool, and in
// another one.
func TestCloneOfAConfiguredNode(t *testing.T) {
	t.Parallel()
	var a *agent
	url := serve(t, &a)
	a = newAgent(t)
	a.url = url
	c := kubelet(50)
	c.Files, c.Sysctls = motd("x").Files, map[string]string{"net.core.somaxconn": "4096"}
	a.write(motdFile, "of the image")
	a.push(7, c)
	a.expect("Applied 7/7", "sysctl net.core.somaxconn=4096", "restart kubelet.service")
	before := a.disk()
	a.restart()
	a.boot = true
	a.expect("Applied 7/7")
	a.boot = false
	a.expect("Applied 7/7")
	if fmt.Sprint(before) != fmt.Sprint(a.disk()) {
		t.Error("a clone in the same pool changed files")
	}
	a.restart()
	a.pool = strings.Replace(pool, "/p", "/q", 1)
	a.push(1, motd("y"))
	a.expect("Applied 1/1")
	if a.read(motdFile) != "y" || !strings.Contains(a.read(kubeletFile), "50") || a.sysctls["net.core.somaxconn"] != "4096" {
		t.Errorf("motd %q, kubelet %q, sysctls %v", a.read(motdFile), a.read(kubeletFile), a.sysctls)
	}
	a.push(2, nodeconfig.Config{})
	a.expect("Applied 2/2")
	if a.read(motdFile) != "x" {
		t.Errorf("the image's file is %q", a.read(motdFile))
	}
}

// A node keeps what it had, and says why, whatever comes.
func TestBadInputChangesNothing(t *testing.T) {
	t.Parallel()
	full := func(c nodeconfig.Config) nodeconfig.Config {
		c.Files = append(c.Files, nodeconfig.File{Path: "/etc/first", Content: "1"}, nodeconfig.File{Path: motdFile, Content: "new"})
		c.Sysctls = map[string]string{"net.core.somaxconn": "8192"}
		return c
	}
	other := document(9, motd("z"))
	other.Pool += "x"
	for name, c := range map[string]struct {
		prepare func(a *agent)
		want    string
	}{
		"broken unit": {func(a *agent) {
			a.complaints["Bad"] = "Unknown key 'Bad'"
			a.push(9, full(nodeconfig.Config{Units: []nodeconfig.Unit{{Name: "x.service", Content: "[Service]\nBad=1\n"}}}))
		}, "Failed ConfigurationBad 7/9"},
		"unit that fails": {func(a *agent) {
			a.fails["x.service"] = func() bool { return true }
			a.push(9, full(nodeconfig.Config{Units: []nodeconfig.Unit{{Name: "x.service", Content: "[Service]\n", Started: yes()}}}))
		}, "Failed Unhealthy 7/9"},
		"kubelet that fails": {func(a *agent) {
			a.fails["kubelet.service"] = a.has(kubeletFile, "99")
			a.push(9, full(kubelet(99)))
		}, "Failed Unhealthy 7/9"},
		"kubelet without folder": {func(a *agent) {
			if err := os.RemoveAll(filepath.Join(a.root, DefaultKubeletConfigDir)); err != nil {
				t.Fatal(err)
			}
			a.push(9, full(kubelet(50)))
		}, "Refused NotPrepared 7/9"},
		"leaf certificate": {func(a *agent) {
			a.push(9, full(nodeconfig.Config{CACertificates: []nodeconfig.CACertificate{{Name: "corp", PEM: certificate(t, false, time.Hour)}}}))
		}, "Failed ConfigurationBad 7/9"},
		"folder": {func(a *agent) {
			a.write("/etc/folder/x", "")
			a.push(9, full(nodeconfig.Config{Files: []nodeconfig.File{{Path: "/etc/folder", Content: "x"}}}))
		}, "Failed ApplyFailed 7/9"},
		"parent is a file": {func(a *agent) {
			a.write("/etc/nsswitch.conf", "")
			a.push(9, full(nodeconfig.Config{Files: []nodeconfig.File{{Path: "/etc/nsswitch.conf/x", Content: "x"}}}))
		}, "Failed ApplyFailed 7/9"},
		"unknown owner": {func(a *agent) {
			a.push(9, full(nodeconfig.Config{Files: []nodeconfig.File{{Path: "/etc/x", Owner: "absent:root"}}}))
		}, "Failed ConfigurationBad 7/9"},
		"unknown sysctl": {func(a *agent) { a.push(9, nodeconfig.Config{Sysctls: map[string]string{"net.absent": "1"}}) }, "Failed ConfigurationBad 7/9"},
		"credential": {func(a *agent) {
			a.push(9, full(nodeconfig.Config{Files: []nodeconfig.File{{Path: "/etc/ortet/config.json"}}}))
		}, "Failed ConfigurationBad 7/9"},
		"another key":  {func(a *agent) { a.sign(document(9, motd("z")), 'b') }, "Refused SignatureInvalid 7/9"},
		"another pool": {func(a *agent) { a.sign(other, 'a') }, "Refused OtherPool 7/9"},
		"replayed":     {func(a *agent) { a.push(6, motd("z")) }, "Refused GenerationOlder 7/6"},
		"too large":    {func(a *agent) { a.userData = strings.Repeat("A", nodeconfig.MaxUserData+1) }, "Refused DocumentInvalid 7/0"},
		"cut":          {func(a *agent) { a.userData = a.userData[:len(a.userData)/2] }, "Refused DocumentInvalid 7/0"},
		"others' userData": {func(a *agent) {
			a.userData = base64.StdEncoding.EncodeToString([]byte("#!/bin/sh\n"))
		}, "Applied 7/7"},
		"not Ready": {func(a *agent) { a.ready = false; a.push(9, full(nodeconfig.Config{})) }, "Waiting NodeNotReady 7/9"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAgent(t)
			a.url = serve(t, &a)
			a.push(7, motd("old"))
			a.expect("Applied 7/7")
			c.prepare(a)
			before := a.disk()
			sysctl := a.sysctls["net.core.somaxconn"]
			if got, _ := a.reads(); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if after := a.disk(); fmt.Sprint(after) != fmt.Sprint(before) || a.sysctls["net.core.somaxconn"] != sysctl {
				t.Errorf("before %v\nafter %v", before, after)
			}
			// A failed generation stays so; what is corrected is tried at once.
			if strings.HasPrefix(c.want, "Failed") {
				a.expect("Failed FailedEarlier 7/9")
			}
			a.ready = true
			a.push(10, motd("right"))
			a.expect("Applied 10/10")
		})
	}
}

// killed ends a reading before the nth operation; false where it has fewer.
func (a *agent) killed(n int) (yes bool) {
	count := 0
	a.step = func() {
		if count++; count == n {
			panic("killed")
		}
	}
	defer func() {
		yes = recover() != nil
		a.step = func() {}
		a.log, a.onWait = nil, nil
	}()
	a.reads()
	return
}

func six(generation int) nodeconfig.Config {
	c := kubelet(generation)
	c.Files = []nodeconfig.File{{Path: motdFile, Content: fmt.Sprint(generation)}, {Path: "/etc/nginx.conf", Content: fmt.Sprint(generation), Restart: []string{"nginx"}}}
	c.Sysctls = map[string]string{"net.core.somaxconn": fmt.Sprint(1000 * generation)}
	c.Units = []nodeconfig.Unit{{Name: "hello.service", Content: "[Service]\nExecStart=/bin/true\n# " + fmt.Sprint(generation) + "\n", Started: yes()}}
	return c
}

// consistent has the machine be of one generation: its files, sysctls, kubelet and answer.
func (a *agent) consistent(t *testing.T, what string) {
	t.Helper()
	of := a.read(motdFile)
	kubelet := a.read(kubeletFile)
	if a.read("/etc/nginx.conf") != of || a.sysctls["net.core.somaxconn"] != of+"000" || !strings.HasSuffix(a.read("/etc/systemd/system/hello.service"), "# "+of+"\n") ||
		!strings.Contains(kubelet, ": "+of+"\n") || a.running["kubelet.service"] != kubelet {
		t.Errorf("%s: a mix: motd %s, sysctl %s, kubelet %s that runs with %s", what, of, a.sysctls["net.core.somaxconn"], kubelet, a.running["kubelet.service"])
	}
	if a.pending() {
		t.Errorf("%s: the journal is open", what)
	}
	if want := map[string]string{"1": "1/2", "2": "2/2"}[of]; !strings.HasSuffix(a.last(), want) {
		t.Errorf("%s: files of %s, and the Node says %s", what, of, a.last())
	}
}

// The agent or the machine stops before each operation of an application: of one that is
// kept, and of one that is restored.
func TestKilledAtEachOperation(t *testing.T) {
	t.Parallel()
	for _, power := range []bool{false, true} {
		for _, fails := range []bool{false, true} {
			t.Run(fmt.Sprintf("power %t, fails %t", power, fails), func(t *testing.T) {
				t.Parallel()
				var a *agent
				url := serve(t, &a)
				for n, more := 1, true; more; n++ {
					synctest.Test(t, func(t *testing.T) {
						what := fmt.Sprintf("operation %d", n)
						a = newAgent(t)
						a.url, a.unsynced = url, true
						a.restart()
						a.push(1, six(1))
						if got, _ := a.reads(); got != "Applied 1/1" {
							t.Fatal(got)
						}
						a.fails["hello.service"] = func() bool { return fails && a.read(motdFile) == "2" }
						a.push(2, six(2))
						more = a.killed(n)
						a.restart()
						if power {
							a.reboot(t)
						}
						a.runs(t, func() { pass(10 * time.Second) })
						a.consistent(t, what)
						a.fails = map[string]func() bool{}
						a.push(3, motd("3"))
						a.runs(t, func() { pass(10 * time.Second) })
						if a.last() != "Applied 3/3" || a.read(motdFile) != "3" {
							t.Errorf("%s: the next generation: %s", what, a.last())
						}
					})
				}
			})
		}
	}
}

// reboot is a start of the machine with the two early units, and the kubelet's start.
func (a *agent) reboot(t *testing.T) {
	t.Helper()
	a.sysctls["net.core.somaxconn"] = "128"
	for _, u := range a.units {
		*u = unit{active: "inactive"}
	}
	if _, err := config.Recover(t.Context(), a.root, a.store, a.applier()); err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(a.read(sysctlDropIn)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), " = "); ok {
			a.sysctls[key] = value
		}
	}
	a.boot = true
	a.reads()
	a.boot = false
	for _, name := range []string{"containerd.service", "kubelet.service", "nginx.service"} {
		a.units[name] = &unit{active: "active", since: a.now}
		a.run(name)
	}
}

// A restore that failed is tried again by the running agent, and what is pushed meanwhile
// is applied after it.
func TestFailedRestoreIsTriedAgain(t *testing.T) {
	t.Parallel()
	var a *agent
	url := serve(t, &a)
	synctest.Test(t, func(t *testing.T) {
		a = newAgent(t)
		a.url = url
		a.push(1, kubelet(50))
		a.expect("Applied 1/1", "restart kubelet.service")
		a.fails["kubelet.service"], a.store.restoreError = a.has(kubeletFile, "51"), fs.ErrPermission
		a.push(2, kubelet(51))
		a.runs(t, func() {
			pass(90 * time.Second)
			if a.last() != "Failed RestoreFailed 1/2" {
				t.Errorf("the Node says %s", a.last())
			}
			a.push(3, kubelet(52))
			pass(90 * time.Second)
			a.store.restoreError = nil
			pass(90 * time.Second)
			if a.last() != "Applied 3/3" || !strings.Contains(a.read(kubeletFile), "52") {
				t.Errorf("the Node says %s; kubelet %s", a.last(), a.read(kubeletFile))
			}
		})
	})
}

// Where the module of a sysctl is loaded after the agents' start, the rest is applied
// before it, and the value when it is there.
func TestSysctlOfALateModule(t *testing.T) {
	t.Parallel()
	var a *agent
	url := serve(t, &a)
	for loaded, want := range map[bool]string{true: "Applied 1/1", false: "Failed Unhealthy 0/1"} {
		synctest.Test(t, func(t *testing.T) {
			a = newAgent(t)
			a.url = url
			a.boot = true
			c := motd("x")
			c.Sysctls = map[string]string{"net.netfilter.nf_conntrack_max": "4096"}
			a.push(1, c)
			a.expect("Applying 0/1")
			if a.read(motdFile) != "x" {
				t.Error("the agents start without the file")
			}
			a.boot = false
			began := a.now
			a.onWait = func() {
				if _, there := a.sysctls["net.netfilter.nf_conntrack_max"]; loaded && !there && a.now.Sub(began) > 20*time.Second {
					a.sysctls["net.netfilter.nf_conntrack_max"] = "1"
				}
			}
			a.runs(t, func() { pass(90 * time.Second) })
			if a.last() != want || loaded != (a.read(motdFile) == "x") || a.pending() {
				t.Errorf("loaded %t: the Node says %s, file %q", loaded, a.last(), a.read(motdFile))
			}
			if loaded {
				a.push(2, nodeconfig.Config{})
				a.expect("Applied 2/2", "sysctl net.netfilter.nf_conntrack_max=1")
			}
		})
	}
}

// The limit of boot, or a stop of the agent, is no fault of the document: it is restored
// and tried again by the next agent.
func TestEndInTheMiddleIsTriedAgain(t *testing.T) {
	t.Parallel()
	var a *agent
	url := serve(t, &a)
	for _, boot := range []bool{true, false} {
		a = newAgent(t)
		a.url, a.boot = url, boot
		c := motd("x")
		c.Units = []nodeconfig.Unit{{Name: "backup.service", Started: yes()}}
		a.push(1, c)
		ctx, end := context.WithCancel(t.Context())
		defer end()
		a.deny[Start] = context.DeadlineExceeded
		a.step = func() {
			if len(a.log) > 0 {
				end()
			}
		}
		answer, _, err := config.Boot(ctx, a.options())
		if err != nil || answer.State == wire.ConfigurationApplied || a.read(motdFile) != "" || a.pending() {
			t.Errorf("boot %t: %+v %v", boot, answer, err)
		}
		a.restart()
		a.step, a.boot = func() {}, false
		delete(a.deny, Start)
		a.expect("Applied 1/1", "start backup.service")
	}
}

// A node that waits or is not prepared writes its answer once, however often it tries.
func TestWaitingNodeIsQuiet(t *testing.T) {
	t.Parallel()
	var a *agent
	url := serve(t, &a)
	synctest.Test(t, func(t *testing.T) {
		a = newAgent(t)
		a.url, a.ready = url, false
		a.push(1, kubelet(50))
		a.runs(t, func() {
			pass(90 * time.Second)
			before := a.writes
			pass(10 * time.Minute)
			if a.last() != "Waiting NodeNotReady 0/1" || a.writes != before {
				t.Errorf("the Node says %s; %d writes more", a.last(), a.writes-before)
			}
		})
	})
}

// A foreign document with a high generation does not silence the signals of the pool's own.
func TestSignalAfterAForeignDocument(t *testing.T) {
	t.Parallel()
	var a *agent
	url := serve(t, &a)
	synctest.Test(t, func(t *testing.T) {
		a = newAgent(t)
		a.url, a.wanted = url, "1"
		a.sign(document(1000, motd("z")), 'b')
		a.runs(t, func() {
			a.signals <- struct{}{}
			pass(20 * time.Minute)
			if a.last() != "Refused SignatureInvalid 0/1000" {
				t.Errorf("the Node says %s", a.last())
			}
			a.push(8, motd("x"))
			a.wanted = "8"
			a.signals <- struct{}{}
			pass(time.Second)
			if a.last() != "Applied 8/8" {
				t.Errorf("the Node says %s", a.last())
			}
		})
	})
}

// Keys count from the document that was kept: of one that was restored they do not.
func TestKeyIsRotatedInTheMiddle(t *testing.T) {
	t.Parallel()
	var a *agent
	url := serve(t, &a)
	a = newAgent(t)
	a.url = url
	step := func(generation int64, n int, signer byte, keys string, want string) {
		t.Helper()
		d := document(generation, kubelet(n))
		d.Keys = publicOf([]byte(keys)...)
		a.sign(d, signer)
		a.restart()
		if got, _ := a.reads(); got != want {
			t.Errorf("generation %d: %s, want %s", generation, got, want)
		}
	}
	a.fails["kubelet.service"] = a.has(kubeletFile, "99")
	step(1, 50, 'b', "b", "Refused SignatureInvalid 0/1")
	step(2, 50, 'a', "ab", "Applied 2/2")
	step(3, 99, 'b', "b", "Failed Unhealthy 2/3")
	step(4, 51, 'a', "ab", "Applied 4/4")
	step(5, 52, 'b', "b", "Applied 5/5")
	step(6, 53, 'a', "ab", "Refused SignatureInvalid 5/6")
}

// The machine loses power after boot applied a document and before its health was judged.
func TestPowerCutBeforeHealthWasJudged(t *testing.T) {
	t.Parallel()
	var a *agent
	url := serve(t, &a)
	synctest.Test(t, func(t *testing.T) {
		a = newAgent(t)
		a.url = url
		a.push(1, six(1))
		if got, _ := a.reads(); got != "Applied 1/1" {
			t.Fatal(got)
		}
		a.push(2, six(2))
		a.boot = true
		if got, _ := a.reads(); got != "Applying 1/2" || a.read(motdFile) != "2" {
			t.Errorf("boot: %s, file %s", got, a.read(motdFile))
		}
		a.restart()
		a.reboot(t)
		a.runs(t, func() { pass(90 * time.Second) })
		a.consistent(t, "after the power cut")
		if a.last() != "Failed FailedEarlier 1/2" {
			t.Errorf("the Node says %s", a.last())
		}
		a.push(3, six(2))
		a.restart()
		a.reboot(t)
		a.runs(t, func() { pass(90 * time.Second) })
		if a.last() != "Applied 3/3" || a.running["kubelet.service"] != a.read(kubeletFile) || a.pending() {
			t.Errorf("the Node says %s", a.last())
		}
	})
}

// A store that cannot be read is answered, and nothing is applied over it.
func TestUnreadableStoreIsAnswered(t *testing.T) {
	t.Parallel()
	var a *agent
	url := serve(t, &a)
	synctest.Test(t, func(t *testing.T) {
		a = newAgent(t)
		a.url, a.wanted = url, "2"
		a.push(1, motd("x"))
		a.expect("Applied 1/1")
		a.write("/var/lib/ortet/config/current.json", "{")
		a.push(2, motd("y"))
		a.runs(t, func() {
			a.signals <- struct{}{}
			pass(90 * time.Second)
			if a.last() != "Failed ApplyFailed 0/2" || !strings.Contains(a.answers[len(a.answers)-1].Message, "current.json") || a.read(motdFile) != "x" {
				t.Errorf("%+v, file %s", a.answers, a.read(motdFile))
			}
		})
	})
}

// What somebody changes is reported, left, and overwritten by the next document with it.
func TestDrift(t *testing.T) {
	t.Parallel()
	var a *agent
	url := serve(t, &a)
	synctest.Test(t, func(t *testing.T) {
		a = newAgent(t)
		a.url = url
		a.push(1, motd("x"))
		a.runs(t, func() {
			pass(90 * time.Second)
			a.write(motdFile, "changed by hand")
			pass(90 * time.Second)
			if d := a.answers[len(a.answers)-1].Drift; a.last() != "Applied 1/1" || len(d) != 1 || d[0] != motdFile || a.read(motdFile) != "changed by hand" {
				t.Errorf("%s, drift %v", a.last(), d)
			}
			a.push(2, motd("y"))
			pass(90 * time.Second)
			if d := a.answers[len(a.answers)-1].Drift; a.last() != "Applied 2/2" || len(d) > 0 || a.read(motdFile) != "y" {
				t.Errorf("%s, drift %v", a.last(), d)
			}
		})
	})
}

// Notes of an application that was killed just after it was kept do not count for the next.
func TestKilledAfterKeepAndInTheNext(t *testing.T) {
	t.Parallel()
	var a *agent
	url := serve(t, &a)
	synctest.Test(t, func(t *testing.T) {
		a = newAgent(t)
		a.url = url
		killed := func(generation int, now func() bool) {
			t.Helper()
			a.push(int64(generation), six(generation))
			a.step = func() {
				if now() {
					panic("killed")
				}
			}
			func() {
				defer func() {
					if recover() == nil {
						t.Fatal("not killed")
					}
				}()
				a.reads()
			}()
			a.step = func() {}
			a.restart()
		}
		killed(1, func() bool { return a.read(motdFile) == "1" && !a.pending() })
		killed(2, func() bool { return a.read(motdFile) == "2" })
		a.runs(t, func() { pass(90 * time.Second) })
		a.consistent(t, "after both")
	})
}
