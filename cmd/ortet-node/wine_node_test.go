//go:build e2e && linux

package main

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

// kubelet answers on the kubelet's port of the host, which is Wine's too.
func (w *wine) kubelet(t *testing.T, healthy *atomic.Bool) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:10248")
	if err != nil {
		t.Skipf("NOT RUN: the kubelet's port is taken on this host: %v", err)
	}
	s := &http.Server{ReadHeaderTimeout: wineTime, Handler: http.HandlerFunc(func(out http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/healthz" || !healthy.Load() {
			http.Error(out, "not yet", http.StatusInternalServerError)
		}
	})}
	t.Cleanup(func() { _ = s.Close() })
	go func() { _ = s.Serve(l) }()
}

func (w *wine) kubelets(t *testing.T) {
	// The port is the whole host's, on which this test may run twice.
	lock, err := os.Open(os.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Close() })
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	node := func(t *testing.T) {
		t.Helper()
		w.fresh(t)
		w.write(t, winSentinel, "")
		w.write(t, "k/kubelet.exe", "")
	}
	node(t)
	w.write(t, "k/kubelet.err.log", "E1121 07:00:01.000000    1234 run.go:72] \"command failed\" err=\"no such luck\" token=\"abcdef.0123456789abcdef\"\r\n")
	v := w.came(t, w.wait(t, nil, "--grace", "0s"), exitFailed, wire.Failed, "KubeletUnhealthy")
	if !strings.Contains(v.Message, "connection refused") || v.Stage != "kubelet" {
		t.Errorf("nobody listens: %s", v.Message)
	}
	if !quoted(v, `C:\k\kubelet.err.log`, "no such luck") || quoted(v, "kubelet.err.log", "0123456789abcdef") {
		t.Errorf("want the kubelet's log quoted, without the token: %+v", v.Evidence)
	}
	var healthy atomic.Bool
	w.kubelet(t, &healthy)
	node(t)
	if v := w.came(t, w.wait(t, nil, "--grace", "3s"), exitFailed, wire.Failed, "KubeletUnhealthy"); !strings.Contains(v.Message, "500") {
		t.Errorf("unhealthy: %s", v.Message)
	}
	node(t)
	w.came(t, w.wait(t, func() { healthy.Store(true) }, "--settle", "100ms"), exitOK, wire.Succeeded, "")
	// It does not count where there is none, and where it is not to.
	healthy.Store(false)
	node(t)
	w.came(t, w.wait(t, nil, "--kubelet", "no"), exitOK, wire.Succeeded, "")
	w.fresh(t)
	w.write(t, winSentinel, "")
	w.came(t, w.wait(t, nil), exitOK, wire.Succeeded, "")
}

// service runs the helper, which has to succeed.
func (w *wine) service(t *testing.T, args ...string) {
	t.Helper()
	if e := w.run(t, "", nil, w.helper, args...); !e.is(0) {
		t.Errorf("service %v: exit %d: %s", args, e.code, e.err)
	}
}

// create makes services, and takes them away afterwards.
func (w *wine) create(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		w.service(t, "create", name)
		t.Cleanup(func() {
			_ = w.run(t, "", nil, w.helper, "tell", name, "200") // it may have ended before
			w.service(t, "remove", name)
		})
	}
}

// blindly is what the agent says where not all services are told of: Wine tells of
// changes of services, and not of new ones.
const blindly = "looking at services every second"

func (w *wine) services(t *testing.T) {
	node := func(t *testing.T) {
		t.Helper()
		w.fresh(t)
		w.write(t, winSentinel, "")
	}
	t.Run("asked for", func(t *testing.T) {
		w.create(t, "Demo")
		node(t)
		w.service(t, "start", "Demo")
		w.came(t, w.wait(t, nil, "--unit", "demo"), exitOK, wire.Succeeded, "")

		node(t)
		w.service(t, "tell", "Demo", "200")
		v := w.came(t, w.wait(t, nil, "--unit", "Demo.service", "--deadline", "100ms"), exitDeadline, wire.TimedOut, "UnitHung")
		if !quoted(v, "services", "demo: inactive (dead)") {
			t.Errorf("%+v", v.Evidence)
		}

		node(t)
		w.came(t, w.wait(t, func() { w.service(t, "start", "Demo") }, "--unit", "Demo"), exitOK, wire.Succeeded, "")

		// With a code of its own, while the kubelet is waited for.
		node(t)
		w.write(t, "k/kubelet.exe", "")
		e := w.wait(t, func() { w.service(t, "tell", "Demo", "207") }, "--unit", "Demo")
		v = w.came(t, e, 7, wire.Failed, "UnitFailed")
		if v.Stage != "demo" || !quoted(v, "services", "demo: failed (failed), result exit-code, exit code 7") {
			t.Errorf("%+v", v)
		}
		if !strings.Contains(e.err, blindly) {
			t.Error("it did not say that it has to look for services that come")
		}
	})
	t.Run("that comes", func(t *testing.T) {
		node(t)
		w.came(t, w.wait(t, nil, "--unit", "later", "--deadline", "100ms"), exitFailed, wire.Failed, "UnitMissing")
		node(t)
		w.came(t, w.wait(t, func() {
			w.create(t, "later")
			w.service(t, "start", "later")
		}, "--unit", "later"), exitOK, wire.Succeeded, "")
	})
	t.Run("told of", func(t *testing.T) {
		// Where all are there nothing is asked again and again.
		w.create(t, "kubelet", "rke2", "containerd", "cloudbase-init", "Demo")
		node(t)
		e := w.wait(t, func() {
			w.service(t, "start", "Demo")
		}, "--unit", "Demo", "--kubelet", "no")
		w.came(t, e, exitOK, wire.Succeeded, "")
		if strings.Contains(e.err, blindly) {
			t.Errorf("it looks every second: %s", e.err)
		}
	})
	t.Run("kubelet", func(t *testing.T) {
		w.create(t, "Kubelet")
		w.service(t, "start", "Kubelet")
		var healthy atomic.Bool
		healthy.Store(true)
		w.kubelet(t, &healthy)
		node(t)
		w.came(t, w.wait(t, nil, "--settle", "100ms"), exitOK, wire.Succeeded, "")

		// It ends after the sentinel.
		node(t)
		w.write(t, "var/log/kubelet/kubelet.err.log", "E1121 07:00:01.000000    1234 server.go:302] \"Failed to run kubelet\" err=\"no such luck\"\r\n")
		v := w.came(t, w.wait(t, func() { w.service(t, "tell", "Kubelet", "209") }, "--settle", "20s"), 9, wire.Failed, "KubeletCrashLoop")
		if !quoted(v, `C:\var\log\kubelet\kubelet.err.log`, "no such luck") || !quoted(v, "services", "exit code 9") {
			t.Errorf("%+v", v.Evidence)
		}

		// It is started over and over by a wrapper, which says so like NSSM.
		healthy.Store(false)
		w.service(t, "start", "Kubelet")
		node(t)
		v = w.came(t, w.wait(t, func() {
			// What comes and goes between two looks may be missed on a busy machine.
			for range 12 {
				w.service(t, "tell", "Kubelet", "198")
				w.service(t, "tell", "Kubelet", "197")
			}
		}), exitFailed, wire.Failed, "KubeletCrashLoop")
		if !quoted(v, "services", "kubelet crash-loops") && !quoted(v, "services", " restarts") {
			t.Errorf("%s %+v", v.Message, v.Evidence)
		}
	})
}

// What runs the user's commands, on its own: it hangs, and it ends without the
// sentinel.
func (w *wine) cloudbase(t *testing.T) {
	const log = "Program Files/Cloudbase Solutions/Cloudbase-Init/log/cloudbase-init.log"
	w.create(t, "cloudbase-init")
	// Not started yet: it is waited for.
	w.came(t, w.wait(t, nil, "--deadline", "100ms"), exitDeadline, wire.TimedOut, wire.ReasonUnknown)
	w.fresh(t)
	w.service(t, "start", "cloudbase-init")
	w.write(t, log, "2026-11-21 06:57:31.007 1712 INFO cloudbaseinit.init [-] Executing plugin 'UserDataPlugin'\r\n")
	v := w.came(t, w.wait(t, nil, "--deadline", "100ms"), exitDeadline, wire.TimedOut, "CloudInitHung")
	if v.Stage != "cloudbase-init" || len(v.Stages) != 1 || v.Stages[0].Begin == 0 || !quoted(v, `\log\cloudbase-init.log`, "Executing plugin") {
		t.Errorf("%+v", v)
	}
	// As it logs what a script printed.
	w.write(t, log, "2026-11-21 06:58:14.402 1712 DEBUG cloudbaseinit.plugins.common.userdatautils [-] User_data stderr:\r\n"+
		`b'[preflight] Running pre-flight checks\r\nerror execution phase preflight: [preflight] Some fatal errors occurred:\r\n\t[ERROR FileAvailable--etc-kubernetes-kubelet.conf]: \\etc\\kubernetes\\kubelet.conf already exists\r\n' execute_user_data_script C:\x\userdatautils.py:106`+"\r\n"+
		"2026-11-21 06:58:14.402 1712 INFO cloudbaseinit.plugins.common.userdatautils [-] User_data script ended with return code: 1\r\n")
	// Longer than it may take to have the machine reboot.
	v = w.came(t, w.wait(t, func() { w.service(t, "tell", "cloudbase-init", "200") }, "--deadline", "50s"), exitFailed, wire.Failed, "NodeNotClean")
	if v.Phase != "preflight" || v.ExitCode == nil || *v.ExitCode != 1 || !quoted(v, "cloudbase-init.log", `[ERROR FileAvailable--etc-kubernetes-kubelet.conf]: \etc\kubernetes\kubelet.conf already exists`) {
		t.Errorf("%+v", v)
	}
	if len(v.Stages) != 1 || v.Stages[0].End <= v.Stages[0].Begin {
		t.Errorf("%+v, want when it began and ended", v.Stages)
	}
}

// The commands as the Azure agent for Windows runs them, with its folders.
func (w *wine) extension(t *testing.T) {
	const dir = "Packages/Plugins/Ortet.Node/1.0.0"
	place := func(name string) string { return `C:\` + strings.ReplaceAll(dir+"/"+name, "/", `\`) }
	environment, err := json.Marshal([]any{map[string]any{"name": "Ortet.Node", "version": 1.0, "handlerEnvironment": map[string]string{
		"logFolder": `C:\WindowsAzure\Logs\Plugins\Ortet.Node\1.0.0`, "configFolder": place("RuntimeSettings"),
		"statusFolder": place("Status"), "heartbeatFile": place("Status/HeartBeat.Json"),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	w.write(t, dir+"/HandlerEnvironment.json", string(environment))
	for name, from := range map[string]string{"HandlerManifest.json": "../../deploy/extension/windows/HandlerManifest.json", "bin/ortet-node.exe": w.path("ortet/ortet-node.exe")} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		w.write(t, dir+"/"+name, string(text))
	}
	for _, name := range []string{"RuntimeSettings", "Status"} {
		if err := os.MkdirAll(w.path(dir+"/"+name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	settings := func(n, public string) {
		w.write(t, dir+"/RuntimeSettings/"+n+".settings", `{"runtimeSettings":[{"handlerSettings":{"publicSettings":`+public+`}}]}`)
	}
	call := func(verb string, code int) {
		t.Helper()
		if e := w.run(t, "", nil, place("bin/ortet-node.exe"), "extension", verb); !e.is(code) {
			t.Fatalf("%s: exit %d, want %d: %s%s", verb, e.code, code, e.out, e.err)
		}
	}
	status := func(n string) (s handlerStatus) {
		text, err := os.ReadFile(w.path(dir + "/Status/" + n + ".status"))
		if err != nil {
			return s
		}
		var all []struct{ Status handlerStatus }
		if err := json.Unmarshal(text, &all); err != nil || len(all) != 1 {
			t.Fatalf("%v in %s", err, text)
		}
		return all[0].Status
	}
	until := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(wineTime); !is(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("it never came that %s", what)
			}
		}
	}
	waiting := func() bool { return there(w.path(dir + "/waiter.json")) }

	settings("0", `{"deadline":"1m","units":"","kubelet":"auto"}`)
	call("install", exitOK)
	call("enable", exitOK)
	until("a process waits", waiting)
	if s := status("0"); s.Status != "transitioning" {
		t.Errorf("%+v, want it to wait", s)
	}
	w.write(t, winSentinel, "")
	until("the status is final", func() bool { return status("0").Status == "success" })
	s := status("0")
	if i := slices.IndexFunc(s.Substatus, func(p handlerPart) bool { return p.Name == "verdict" }); i < 0 || s.Code != 0 || !strings.HasPrefix(s.FormattedMessage.Message, "Succeeded") {
		t.Errorf("%+v", s)
	} else if v, ok := wire.FindVerdict([]byte(s.Substatus[i].FormattedMessage.Message)); !ok || v.Outcome != wire.Succeeded {
		t.Errorf("programs read %+v", v)
	}
	w.verdict(t)

	// Another configuration, which is not met, and one that is wrong.
	w.fresh(t)
	settings("1", `{"deadline":"100ms"}`)
	call("enable", exitOK)
	until("time is up", func() bool { return status("1").Status == "error" })
	if s := status("1"); s.Code != exitDeadline {
		t.Errorf("%+v, want the deadline's code", s)
	}
	settings("2", `{"dedline":"5m"}`)
	call("enable", exitUsage)
	if s := status("2"); s.Status != "error" || s.Code != exitUsage {
		t.Errorf("%+v", s)
	}
	// One that waits is ended with the extension.
	w.fresh(t)
	settings("3", `{"deadline":"1m"}`)
	call("enable", exitOK)
	until("a process waits", waiting)
	call("disable", exitOK)
	call("uninstall", exitOK)
	w.write(t, winSentinel, "")
	if s := status("3"); s.Status != "transitioning" || waiting() {
		t.Errorf("%+v, waiting %t; want nobody to wait", s, waiting())
	}
	if !there(w.path("WindowsAzure/Logs/Plugins/Ortet.Node/1.0.0/ortet-node.log")) {
		t.Error("there is no log")
	}
}
