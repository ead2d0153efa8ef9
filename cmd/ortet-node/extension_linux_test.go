package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ortet/ortet/internal/wire"
)

// A vm is a folder of the Azure agent's with our handler in it, and the root of
// the node that is waited for.
type vm struct {
	t         *testing.T
	dir, root string
}

func newVM(t *testing.T) *vm {
	t.Helper()
	base := t.TempDir()
	v := &vm{t, filepath.Join(base, "waagent", "Ortet.Node.Linux-1.0.0"), filepath.Join(base, "root")}
	for _, dir := range []string{v.rooted("run/cluster-api"), v.rooted("run/cloud-init"), v.rooted("proc/sys/kernel/random")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	v.write(v.rooted("proc/sys/kernel/random/boot_id"), "11111111-2222-3333-4444-555555555555\n")
	v.write(v.rooted("proc/uptime"), "100.00 200.00\n")
	v.folder()
	t.Cleanup(func() { v.command("uninstall") })
	return v
}

// folder makes the handler's folder as the agent does.
func (v *vm) folder() {
	v.t.Helper()
	for _, dir := range []string{"config", "status", "log"} {
		if err := os.MkdirAll(v.path(dir), 0o755); err != nil {
			v.t.Fatal(err)
		}
	}
	v.write(v.path("HandlerEnvironment.json"), fmt.Sprintf(`[{"name":"Ortet.Node.Linux","version":1.0,"handlerEnvironment":{"logFolder":%q,"configFolder":%q,"statusFolder":%q,"heartbeatFile":%q}}]`,
		v.path("log"), v.path("config"), v.path("status"), v.path("heartbeat.log")))
	v.settings("0.settings", `{}`)
}

func (v *vm) path(name string) string   { return filepath.Join(v.dir, name) }
func (v *vm) rooted(name string) string { return filepath.Join(v.root, name) }

func (v *vm) write(path, text string) {
	v.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		v.t.Fatal(err)
	}
}

func (v *vm) settings(file, public string) {
	v.t.Helper()
	v.write(v.path("config/"+file), `{"runtimeSettings":[{"handlerSettings":{"publicSettings":`+public+`,"protectedSettings":null,"protectedSettingsCertThumbprint":null}}]}`)
}

// command runs one command as the agent does.
func (v *vm) command(verb string, env ...string) (code int, said string) {
	v.t.Helper()
	cmd := exec.Command(os.Args[0], "extension", verb, "--dir", v.dir, "--root", v.root)
	cmd.Env = append(append(os.Environ(), asAgent+"=1"), env...)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		v.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

func (v *vm) must(verb string, env ...string) {
	v.t.Helper()
	if code, said := v.command(verb, env...); code != exitOK {
		v.t.Fatalf("%s: exit %d: %s", verb, code, said)
	}
}

type handlerStatus struct {
	Status           string
	Code             int
	Operation        string
	FormattedMessage struct{ Lang, Message string }
	Substatus        []handlerPart
}

type handlerPart struct {
	Name, Status     string
	Code             int
	FormattedMessage struct{ Lang, Message string }
}

// status is what the agent reads; its Status is empty where no file is, or it is
// being written.
func (v *vm) status(file string) handlerStatus {
	text, err := os.ReadFile(v.path("status/" + file))
	var all []struct{ Status handlerStatus }
	if err != nil || json.Unmarshal(text, &all) != nil || len(all) != 1 {
		return handlerStatus{}
	}
	return all[0].Status
}

// until waits until it is as wanted; what is waited for comes from other processes.
func (v *vm) until(what string, wanted func() bool) {
	v.t.Helper()
	for end := time.Now().Add(5 * time.Minute); !wanted(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			log, _ := os.ReadFile(v.path("log/ortet-node.log"))
			v.t.Fatalf("not within five minutes: %s\n%s", what, log)
		}
	}
}

func (v *vm) untilStatus(file, status string) handlerStatus {
	v.t.Helper()
	v.until(file+" is "+status, func() bool { return v.status(file).Status == status })
	return v.status(file)
}

// waiting is the process that waits and is not one of those, once it is recorded.
func (v *vm) waiting(file string, not ...int) int {
	v.t.Helper()
	var w struct{ PID int }
	v.until("a process waits", func() bool {
		text, err := os.ReadFile(v.path(file))
		return err == nil && json.Unmarshal(text, &w) == nil && w.PID > 0 && !slices.Contains(not, w.PID)
	})
	return w.PID
}

func (v *vm) gone(pid int) {
	v.t.Helper()
	v.until("process "+strconv.Itoa(pid)+" has ended", func() bool { return !lives(pid) })
}

func lives(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(text), ") Z ")
}

func (v *vm) sentinel() { v.write(v.rooted("run/cluster-api/bootstrap-success.complete"), "") }

// From install to the verdict, over damaged files, repeated commands, a waiter that is
// killed, a failure that is repaired, and other numbers.
func TestExtension(t *testing.T) {
	v := newVM(t)
	v.must("install")
	v.write(v.path("mrseq"), "\x00\x00")
	v.write(v.path("waiter.json"), `{"sequence":`)
	v.write(v.path("status/0.status"), `[{"status":`)
	v.write(v.path("config/0.settings"), "") // how the agent says that there are none
	v.must("enable", "ConfigSequenceNumber=0")
	if s := v.status("0.status"); s.Status != "transitioning" || s.Operation != "Enable" || s.FormattedMessage.Lang != "en-US" || s.FormattedMessage.Message == "" {
		t.Fatalf("at first: %+v", s)
	}
	pid := v.waiting("waiter.json")
	// The agent kills the process group of an enable that takes too long.
	if group, err := syscall.Getpgid(pid); err != nil || group != pid {
		t.Errorf("the process group of the waiter is %d, %v; want its own, %d", group, err, pid)
	}
	v.must("enable", "ConfigSequenceNumber=0") // the agent does so for every goal state
	if again := v.waiting("waiter.json"); again != pid || !lives(pid) {
		t.Errorf("a second process waits: %d, %d", pid, again)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	v.gone(pid)
	v.must("enable", "ConfigSequenceNumber=0")
	pid = v.waiting("waiter.json", pid)
	errs := `["('scripts_user', RuntimeError('Runparts: 1 failures (runcmd) in 1 attempted commands'))"]`
	v.write(v.rooted("run/cloud-init/status.json"), `{"v1":{"init-local":{"errors":[],"finished":2,"start":1},"init":{"errors":[],"finished":4,"start":3},"modules-config":{"errors":[],"finished":6,"start":5},"modules-final":{"errors":`+errs+`,"finished":9,"start":7},"stage":null}}`)
	v.write(v.rooted("run/cloud-init/result.json"), `{"v1":{"errors":`+errs+`}}`)
	s := v.untilStatus("0.status", "error")
	if s.Code != exitFailed || !strings.HasPrefix(s.FormattedMessage.Message, "Failed: ") || !strings.Contains(s.FormattedMessage.Message, "Remedy: ") {
		t.Errorf("of a failure: %+v", s)
	}
	v.gone(pid)
	if text, err := os.ReadFile(v.path("mrseq")); err != nil || string(text) != "0" {
		t.Errorf("mrseq is %q, %v", text, err)
	}

	// A repaired node is judged again for another number alone, a lower one too.
	v.sentinel()
	v.settings("3.settings", `{}`)
	v.write(v.path("config/7.settings"), `{"runtimeSettings":[{"handlerSettings":{"publicSettings":{},"protectedSettings":"MIIB","protectedSettingsCertThumbprint":"00"}}]}`)
	v.must("enable", "ConfigSequenceNumber=0")
	if s := v.status("0.status"); s.Status != "error" {
		t.Errorf("the same number: %+v", s)
	}
	v.must("enable") // the newest
	s = v.untilStatus("7.status", "success")
	if s.Code != 0 || !strings.HasPrefix(s.FormattedMessage.Message, "Degraded: ") || !strings.Contains(s.FormattedMessage.Message, "protected settings are not used") ||
		!slices.ContainsFunc(s.Substatus, func(p handlerPart) bool {
			verdict, ok := wire.FindVerdict([]byte(p.FormattedMessage.Message))
			return ok && verdict.Outcome == wire.Degraded
		}) {
		t.Errorf("in the end: %+v", s)
	}
	for range 2 { // a lost status is written again
		v.must("enable", "ConfigSequenceNumber=3")
		v.untilStatus("3.status", "success")
		v.until("no process waits", func() bool { _, err := os.Stat(v.path("waiter.json")); return err != nil })
		if err := os.Remove(v.path("status/3.status")); err != nil {
			t.Fatal(err)
		}
	}
}

// Instances of one handler have waiters of their own, which disable, update and
// uninstall end or take over.
func TestExtensionOfSeveralInstances(t *testing.T) {
	v := newVM(t)
	v.write(v.path("HandlerManifest.json"), `[{"version":1.0,"handlerManifest":{"reportHeartbeat":true}}]`)
	v.settings("blue.2.settings", `{}`)
	v.settings("green.5.settings", `{}`)
	v.must("enable", "ConfigExtensionName=blue", "ConfigSequenceNumber=2")
	v.must("enable", "ConfigExtensionName=green")
	blue, green := v.waiting("blue.waiter.json"), v.waiting("green.waiter.json")
	if text, err := os.ReadFile(v.path("heartbeat.log")); err != nil || !strings.Contains(string(text), `"status":"Ready"`) {
		t.Errorf("the heartbeat that the manifest promises: %s, %v", text, err)
	}
	for range 2 {
		v.must("disable", "ConfigExtensionName=blue")
	}
	if lives(blue) || !lives(green) || v.status("blue.2.status").Status != "transitioning" {
		t.Errorf("blue waits: %t, green: %t; want only green", lives(blue), lives(green))
	}
	next := &vm{t, strings.TrimSuffix(v.dir, "1.0.0") + "1.1.0", v.root}
	next.folder()
	next.must("update", "AZURE_GUEST_AGENT_UPDATING_FROM_VERSION=1.0.0")
	for name, want := range map[string]string{"blue.mrseq": "2", "green.mrseq": "5"} {
		if text, err := os.ReadFile(next.path(name)); err != nil || string(text) != want {
			t.Errorf("%s is %q, %v; want %s", name, text, err, want)
		}
	}
	v.must("uninstall")
	if lives(green) {
		t.Error("green waits after it is uninstalled")
	}
	left, err := filepath.Glob(v.path("*"))
	for i := range left {
		left[i] = filepath.Base(left[i])
	}
	if got := strings.Join(left, " "); err != nil || got != "HandlerEnvironment.json HandlerManifest.json config log status" {
		t.Errorf("left: %s, %v", got, err)
	}
}

func TestExtensionRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(*vm)
		env    string
		code   int
		said   string
		status string // the file's
	}{
		{"an unknown setting", func(v *vm) { v.settings("0.settings", `{"dedline":"5m"}`) }, "ConfigSequenceNumber=0", exitUsage, "dedline", "error"},
		{"no settings of that number", func(*vm) {}, "ConfigSequenceNumber=4", exitUsage, "4.settings", ""},
		{"no number", func(*vm) {}, "ConfigSequenceNumber=x", exitUsage, "not a number", ""},
		{"a name that leaves the folder", func(*vm) {}, "ConfigExtensionName=../x", exitUsage, "name", ""},
		{"no environment", func(v *vm) { _ = os.Remove(v.path("HandlerEnvironment.json")) }, "ConfigSequenceNumber=0", exitFailed, "HandlerEnvironment.json", ""},
		{"a damaged environment", func(v *vm) { v.write(v.path("HandlerEnvironment.json"), "[]") }, "ConfigSequenceNumber=0", exitFailed, "empty list", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newVM(t)
			c.damage(v)
			if code, said := v.command("enable", c.env); code != c.code || !strings.Contains(said, c.said) {
				t.Errorf("exit %d, want %d; %q is to be in: %s", code, c.code, c.said, said)
			}
			if s := v.status("0.status"); s.Status != c.status || c.status != "" && !strings.Contains(s.FormattedMessage.Message, c.said) {
				t.Errorf("status %+v", s)
			}
			if _, err := os.Stat(v.path("waiter.json")); err == nil {
				t.Error("a process waits all the same")
			}
		})
	}
}

// On a full disk the verdict overwrites the status in its block; without that block
// enable does what it can, and the next one finishes.
func TestExtensionOnAFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: a full disk needs root, to mount one")
	}
	v := newVM(t)
	if err := unix.Mount("tmpfs", v.dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("NOT TESTED: no file system can be mounted: %v", err)
	}
	t.Cleanup(func() { // before the temporary folder is removed, and after the waiters have ended
		v.command("uninstall")
		if err := unix.Unmount(v.dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	v.folder()
	fill := func(name string) {
		if err := os.WriteFile(v.path(name), make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("filling the disk: %v", err)
		}
	}
	v.must("enable", "ConfigSequenceNumber=0")
	v.waiting("waiter.json")
	fill("filler")
	v.sentinel()
	if s := v.untilStatus("0.status", "success"); !strings.HasPrefix(s.FormattedMessage.Message, "Succeeded") {
		t.Errorf("%+v", s)
	}
	if err := os.Remove(v.path("status/0.status")); err != nil {
		t.Fatal(err)
	}
	fill("filler2")
	v.must("enable", "ConfigSequenceNumber=0")
	if err := errors.Join(os.Remove(v.path("filler")), os.Remove(v.path("filler2"))); err != nil {
		t.Fatal(err)
	}
	v.must("enable", "ConfigSequenceNumber=0")
	v.untilStatus("0.status", "success")
}
