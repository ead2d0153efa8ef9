package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
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
	for _, dir := range []string{v.path("config"), v.path("status"), v.rooted("run/cluster-api"), v.rooted("run/cloud-init"), v.rooted("var/lib/ortet"), v.rooted("proc/sys/kernel/random")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	v.boot("11111111-2222-3333-4444-555555555555")
	v.write(v.rooted("proc/uptime"), "100.00 200.00\n")
	v.environment()
	v.settings("0.settings", `{}`)
	t.Cleanup(func() { v.command("disable"); v.command("uninstall") })
	return v
}

func (v *vm) path(name string) string   { return filepath.Join(v.dir, name) }
func (v *vm) rooted(name string) string { return filepath.Join(v.root, name) }

func (v *vm) write(path, text string) {
	v.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		v.t.Fatal(err)
	}
}

func (v *vm) boot(id string) { v.write(v.rooted("proc/sys/kernel/random/boot_id"), id+"\n") }

func (v *vm) environment() {
	v.t.Helper()
	text, err := json.Marshal([]any{map[string]any{"name": "Ortet.Node.Linux", "version": 1.0, "handlerEnvironment": map[string]string{
		"logFolder": v.path("log"), "configFolder": v.path("config"), "statusFolder": v.path("status"), "heartbeatFile": v.path("heartbeat.log"),
	}}})
	if err != nil {
		v.t.Fatal(err)
	}
	v.write(v.path("HandlerEnvironment.json"), string(text))
}

func (v *vm) settings(file, public string) {
	v.t.Helper()
	v.write(v.path("config/"+file), `{"runtimeSettings":[{"handlerSettings":{"publicSettings":`+public+`,"protectedSettings":null,"protectedSettingsCertThumbprint":null}}]}`)
}

// prepare is one command as the agent runs it.
func (v *vm) prepare(verb string, env ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "extension", verb, "--dir", v.dir, "--root", v.root)
	cmd.Env = append(append(os.Environ(), asAgent+"=1"), env...)
	return cmd
}

func (v *vm) command(verb string, env ...string) (code int, said string) {
	v.t.Helper()
	out, err := v.prepare(verb, env...).CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		v.t.Fatal(err)
	} else if exit != nil {
		return exit.ExitCode(), string(out)
	}
	return 0, string(out)
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
	Substatus        []struct {
		Name, Status     string
		Code             int
		FormattedMessage struct{ Lang, Message string }
	}
}

// status is what the agent reads; without a status where there is no file.
func (v *vm) status(file string) handlerStatus {
	v.t.Helper()
	s, err := v.read(file)
	if err != nil {
		v.t.Fatal(err)
	}
	return s
}

// read is status for a moment in which it may be written.
func (v *vm) read(file string) (handlerStatus, error) {
	text, err := os.ReadFile(v.path("status/" + file))
	if errors.Is(err, fs.ErrNotExist) {
		return handlerStatus{}, nil
	}
	var all []struct{ Status handlerStatus }
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil || len(all) != 1 {
		return handlerStatus{}, fmt.Errorf("%s: %w: %s", file, err, text)
	}
	return all[0].Status, nil
}

// until looks until it is as wanted; what is waited for comes from other
// processes.
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
	var s handlerStatus
	v.until(file+" is "+status, func() bool {
		var err error
		s, err = v.read(file)
		return err == nil && s.Status == status
	})
	return s
}

// waiting is the process that waits, once it says so.
func (v *vm) waiting(file string) int {
	v.t.Helper()
	var w struct{ PID int }
	v.until("somebody waits", func() bool {
		text, err := os.ReadFile(v.path(file))
		return err == nil && json.Unmarshal(text, &w) == nil && w.PID > 0
	})
	return w.PID
}

func (v *vm) gone(pid int) {
	v.t.Helper()
	v.until("process "+strconv.Itoa(pid)+" has ended", func() bool { return !lives(pid) })
}

// idle waits until the process that told the last status has ended.
func (v *vm) idle() {
	v.t.Helper()
	v.until("nobody waits", func() bool {
		var w struct{ PID int }
		text, err := os.ReadFile(v.path("waiter.json"))
		return err != nil || json.Unmarshal(text, &w) == nil && !lives(w.PID)
	})
}

func lives(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(text), ") Z ")
}

func (v *vm) sentinel() { v.write(v.rooted("run/cluster-api/bootstrap-success.complete"), "") }

func TestExtensionTellsThatTheNodeCameUp(t *testing.T) {
	v := newVM(t)
	v.must("install")
	v.must("enable", "ConfigSequenceNumber=0")
	if s := v.status("0.status"); s.Status != "transitioning" || s.Operation != "Enable" || s.FormattedMessage.Lang != "en-US" || s.FormattedMessage.Message == "" {
		t.Fatalf("at first: %+v", s)
	}
	pid := v.waiting("waiter.json")
	// The agent runs enable again for every goal state.
	v.must("enable", "ConfigSequenceNumber=0")
	if again := v.waiting("waiter.json"); again != pid {
		t.Errorf("a second process waits: %d, %d", pid, again)
	}
	v.sentinel()
	s := v.untilStatus("0.status", "success")
	if s.Code != 0 || !strings.HasPrefix(s.FormattedMessage.Message, "Succeeded") {
		t.Errorf("in the end: %+v", s)
	}
	found := false
	for _, p := range s.Substatus {
		if told, ok := wire.FindVerdict([]byte(p.FormattedMessage.Message)); ok {
			found = told.Outcome == wire.Succeeded
		}
	}
	if !found {
		t.Errorf("no verdict for programs: %+v", s.Substatus)
	}
	v.gone(pid)
	if text, err := os.ReadFile(v.path("mrseq")); err != nil || string(text) != "0" {
		t.Errorf("mrseq is %q, %v", text, err)
	}

	// After the end: the same number is done, another is answered by the verdict
	// that is kept, a lower one too, a lost status comes back.
	before, err := os.Stat(v.path("status/0.status"))
	if err != nil {
		t.Fatal(err)
	}
	v.must("enable", "ConfigSequenceNumber=0")
	if after, err := os.Stat(v.path("status/0.status")); err != nil || !os.SameFile(before, after) {
		t.Errorf("the status of a number that is done was written again: %v", err)
	}
	for _, n := range []string{"7", "3"} {
		v.settings(n+".settings", `{"deadline":"5m"}`)
		v.must("enable", "ConfigSequenceNumber="+n)
		v.untilStatus(n+".status", "success")
	}
	v.idle()
	if err := os.Remove(v.path("status/3.status")); err != nil {
		t.Fatal(err)
	}
	v.must("enable", "ConfigSequenceNumber=3")
	v.untilStatus("3.status", "success")
	// The newest settings count where the agent does not say.
	v.must("enable")
	v.untilStatus("7.status", "success")
}

func TestExtensionTellsWhatBroke(t *testing.T) {
	v := newVM(t)
	v.must("enable", "ConfigSequenceNumber=0")
	v.waiting("waiter.json")
	if err := os.MkdirAll(v.rooted("var/log"), 0o755); err != nil {
		t.Fatal(err)
	}
	v.write(v.rooted("var/log/cloud-init-output.log"), "[preflight] Running pre-flight checks\nerror execution phase preflight: couldn't validate the identity of the API Server: could not find a JWS signature in the cluster-info ConfigMap for token ID \"abcdef\"\n")
	v.write(v.rooted("run/cloud-init/status.json"), `{"v1":{"datasource":"DataSourceAzure","init-local":{"errors":[],"finished":2,"start":1},"init":{"errors":[],"finished":4,"start":3},"modules-config":{"errors":[],"finished":6,"start":5},"modules-final":{"errors":["('scripts_user', RuntimeError('Runparts: 1 failures (runcmd) in 1 attempted commands'))"],"finished":9,"start":7},"stage":null}}`)
	v.write(v.rooted("run/cloud-init/result.json"), `{"v1":{"datasource":"DataSourceAzure","errors":["('scripts_user', RuntimeError('Runparts: 1 failures (runcmd) in 1 attempted commands'))"]}}`)
	s := v.untilStatus("0.status", "error")
	if s.Code == 0 {
		t.Errorf("the code of a failure is 0")
	}
	for _, part := range []string{"Failed: ", "owner: ", "Remedy: ", "JWS signature"} {
		if !strings.Contains(s.FormattedMessage.Message, part) {
			t.Errorf("%q is not in the message: %s", part, s.FormattedMessage.Message)
		}
	}
	states := map[string]string{}
	for _, p := range s.Substatus {
		states[p.Name] = p.Status
	}
	if states["init"] != "success" || states["modules-final"] != "error" || states["node"] != "error" {
		t.Errorf("the stages: %v", states)
	}
}

// A node that was mended is judged anew when the operator forces an update.
func TestExtensionIsForcedToJudgeAnew(t *testing.T) {
	v := newVM(t)
	if err := os.MkdirAll(v.rooted("var/lib/cloud/instance"), 0o755); err != nil {
		t.Fatal(err)
	}
	v.write(v.rooted("run/cloud-init/result.json"), `{"v1":{"errors":[]}}`)
	v.must("enable", "ConfigSequenceNumber=0")
	v.untilStatus("0.status", "error")
	v.idle()
	v.sentinel()
	v.must("enable", "ConfigSequenceNumber=0")
	if s := v.status("0.status"); s.Status != "error" {
		t.Errorf("the same number: %+v", s)
	}
	v.settings("1.settings", `{}`)
	v.must("enable", "ConfigSequenceNumber=1")
	if s := v.untilStatus("1.status", "success"); !strings.HasPrefix(s.FormattedMessage.Message, "Degraded: SentinelMissing") {
		t.Errorf("%s", s.FormattedMessage.Message)
	}
}

func TestExtensionWaitsOnWhateverIsKilled(t *testing.T) {
	v := newVM(t)
	// The agent kills the process group of an enable that takes too long.
	long := exec.Command("sh", "-c", `"$@"; echo enabled; sleep 300`, "sh", os.Args[0], "extension", "enable", "--dir", v.dir, "--root", v.root)
	long.Env = append(os.Environ(), asAgent+"=1", "ConfigSequenceNumber=0")
	long.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := long.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := long.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	pid := v.waiting("waiter.json")
	if group, err := syscall.Getpgid(pid); err != nil || group != pid {
		t.Errorf("the process group of the one that waits is %d, %v; want its own, %d", group, err, pid)
	}
	if err := syscall.Kill(-long.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = long.Wait() // it was killed
	if !lives(pid) {
		t.Fatal("the one that waits was killed too")
	}
	// One that is killed itself is put up again by the next enable, as after a
	// reboot.
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	v.gone(pid)
	if s := v.status("0.status"); s.Status != "transitioning" {
		t.Fatalf("nobody waits: %+v", s)
	}
	v.must("enable", "ConfigSequenceNumber=0")
	v.until("another waits", func() bool { return v.waiting("waiter.json") != pid })
	v.sentinel()
	v.untilStatus("0.status", "success")
}

func TestExtensionIsDisabledAndUninstalled(t *testing.T) {
	v := newVM(t)
	v.write(v.path("HandlerManifest.json"), `[{"version":1.0,"handlerManifest":{"reportHeartbeat":true}}]`)
	v.must("enable", "ConfigSequenceNumber=0")
	pid := v.waiting("waiter.json")
	if text, err := os.ReadFile(v.path("heartbeat.log")); err != nil || !strings.Contains(string(text), `"status":"Ready"`) {
		t.Errorf("the heartbeat that the manifest promises: %s, %v", text, err)
	}
	v.must("disable")
	if lives(pid) {
		t.Error("it still waits")
	}
	// The next version goes on from there.
	if s := v.status("0.status"); s.Status != "transitioning" {
		t.Errorf("a disabled one's status: %+v", s)
	}
	v.must("disable")
	v.must("enable", "ConfigSequenceNumber=0")
	pid = v.waiting("waiter.json")
	v.must("uninstall")
	if lives(pid) {
		t.Error("it waits after it is uninstalled")
	}
	var left []string
	entries, err := os.ReadDir(v.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if got := strings.Join(left, " "); got != "HandlerEnvironment.json HandlerManifest.json config log status" {
		t.Errorf("left: %s", got)
	}
}

// Somebody else's process that has got the number of ours is not ended.
func TestExtensionEndsNobodyElse(t *testing.T) {
	v := newVM(t)
	other := exec.Command("sleep", "300")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	v.write(v.path("waiter.json"), `{"sequence":0,"pid":`+strconv.Itoa(other.Process.Pid)+`,"started":"1","boot":"`+strings.TrimSpace(string(boot))+`"}`)
	v.must("disable")
	if !lives(other.Process.Pid) {
		t.Error("it was ended")
	}
}

func TestExtensionRefuses(t *testing.T) {
	for _, c := range []struct {
		name    string
		damage  func(*vm)
		env     string
		code    int
		said    string
		status  string // the file's
		message string
	}{
		{"an unknown setting", func(v *vm) { v.settings("0.settings", `{"dedline":"5m"}`) }, "ConfigSequenceNumber=0", exitUsage, "dedline", "error", "dedline"},
		{"no deadline", func(v *vm) { v.settings("0.settings", `{"deadline":"0s"}`) }, "ConfigSequenceNumber=0", exitUsage, "more than 0", "error", "deadline"},
		{"settings cut off", func(v *vm) { v.write(v.path("config/0.settings"), `{"runtimeSettings":[{`) }, "ConfigSequenceNumber=0", exitUsage, "JSON", "error", "JSON"},
		{"no settings of that number", func(*vm) {}, "ConfigSequenceNumber=4", exitUsage, "4.settings", "", ""},
		{"no number", func(*vm) {}, "ConfigSequenceNumber=x", exitUsage, "not a number", "", ""},
		{"a name that leaves the folder", func(*vm) {}, "ConfigExtensionName=../x", exitUsage, "name", "", ""},
		{"no environment", func(v *vm) { _ = os.Remove(v.path("HandlerEnvironment.json")) }, "ConfigSequenceNumber=0", exitFailed, "HandlerEnvironment.json", "", ""},
		{"a damaged environment", func(v *vm) { v.write(v.path("HandlerEnvironment.json"), "[]") }, "ConfigSequenceNumber=0", exitFailed, "empty list", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newVM(t)
			c.damage(v)
			code, said := v.command("enable", c.env)
			if code != c.code || !strings.Contains(said, c.said) {
				t.Errorf("exit %d, want %d; %q is to be in: %s", code, c.code, c.said, said)
			}
			if s := v.status("0.status"); s.Status != c.status || !strings.Contains(s.FormattedMessage.Message, c.message) {
				t.Errorf("status %+v", s)
			}
			if _, err := os.Stat(v.path("waiter.json")); err == nil {
				t.Error("it is waited for all the same")
			}
		})
	}
}

// Files that a crash or somebody else damaged cost no verdict.
func TestExtensionGetsOverDamage(t *testing.T) {
	v := newVM(t)
	v.write(v.path("mrseq"), "\x00\x00")
	v.write(v.path("waiter.json"), `{"sequence":`)
	v.write(v.path("status/0.status"), `[{"status":`)
	v.write(v.path("config/0.settings"), "") // how the agent says that there are none
	v.sentinel()
	v.must("enable", "ConfigSequenceNumber=0")
	v.until("the status is final", func() bool {
		text, err := os.ReadFile(v.path("status/0.status"))
		return err == nil && strings.Contains(string(text), `"success"`)
	})
}

// Protected settings are neither needed nor decrypted, and that is said.
func TestExtensionSaysThatProtectedSettingsAreNotUsed(t *testing.T) {
	v := newVM(t)
	v.write(v.path("config/0.settings"), `{"runtimeSettings":[{"handlerSettings":{"publicSettings":{},"protectedSettings":"MIIB","protectedSettingsCertThumbprint":"00"}}]}`)
	v.sentinel()
	v.must("enable", "ConfigSequenceNumber=0")
	if s := v.untilStatus("0.status", "success"); !strings.Contains(s.FormattedMessage.Message, "protected settings are not used") {
		t.Errorf("%s", s.FormattedMessage.Message)
	}
}

func TestExtensionOfSeveralInstances(t *testing.T) {
	v := newVM(t)
	v.settings("blue.2.settings", `{}`)
	v.settings("green.5.settings", `{}`)
	v.must("enable", "ConfigExtensionName=blue", "ConfigSequenceNumber=2")
	v.must("enable", "ConfigExtensionName=green")
	blue, green := v.waiting("blue.waiter.json"), v.waiting("green.waiter.json")
	v.must("disable", "ConfigExtensionName=blue")
	if lives(blue) || !lives(green) {
		t.Errorf("blue waits: %t, green: %t; want only green", lives(blue), lives(green))
	}
	v.sentinel()
	v.untilStatus("green.5.status", "success")
	if s := v.status("blue.2.status"); s.Status != "transitioning" {
		t.Errorf("blue: %+v", s)
	}

	// The next version.
	next := &vm{t, strings.TrimSuffix(v.dir, "1.0.0") + "1.1.0", v.root}
	for _, dir := range []string{"config", "status"} {
		if err := os.MkdirAll(next.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	next.environment()
	next.must("update", "AZURE_GUEST_AGENT_UPDATING_FROM_VERSION=1.0.0")
	for name, want := range map[string]string{"blue.mrseq": "2", "green.mrseq": "5"} {
		if text, err := os.ReadFile(next.path(name)); err != nil || string(text) != want {
			t.Errorf("%s is %q, %v; want %s", name, text, err, want)
		}
	}
}

// On a full disk the verdict is told all the same, in the block that the status has.
func TestExtensionOnAFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: a full disk needs root, to mount one")
	}
	v := newVM(t)
	disk := v.dir
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("NOT TESTED: no file system can be mounted: %v", err)
	}
	// Before the temporary folder is removed, and after the waiters have ended.
	t.Cleanup(func() {
		v.command("uninstall")
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	for _, dir := range []string{"config", "status", "log"} {
		if err := os.Mkdir(v.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	v.environment()
	v.settings("0.settings", `{}`)
	v.must("enable", "ConfigSequenceNumber=0")
	v.waiting("waiter.json")
	if err := os.WriteFile(v.path("filler"), make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	v.sentinel()
	if s := v.untilStatus("0.status", "success"); !strings.HasPrefix(s.FormattedMessage.Message, "Succeeded") {
		t.Errorf("%+v", s)
	}
	// Where there is not even room to say that it is waited for, it is.
	if err := os.Remove(v.path("status/0.status")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(v.path("filler2"), make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	if code, said := v.command("enable", "ConfigSequenceNumber=0"); code != exitOK {
		t.Errorf("exit %d: %s", code, said)
	}
	for _, filler := range []string{"filler", "filler2"} {
		if err := os.Remove(v.path(filler)); err != nil {
			t.Fatal(err)
		}
	}
	v.must("enable", "ConfigSequenceNumber=0")
	v.untilStatus("0.status", "success")
}
