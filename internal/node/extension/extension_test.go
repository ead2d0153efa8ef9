package extension

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/wire"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestNext(t *testing.T) {
	for _, c := range []struct {
		name  string
		taken bool
		state string
		runs  bool
		want  action
	}{
		{"the first", false, "", false, waitAnew},
		{"it waits already", true, transitioning, true, nothing},
		{"it waits, and the number was not recorded", false, transitioning, true, nothing},
		{"whoever waited is gone", true, transitioning, false, waitAnew},
		{"it succeeded", true, success, false, nothing},
		{"it failed", true, failure, false, nothing},
		{"the status is lost", true, "", false, waitAnew},
		{"another's status by the same number", false, success, false, waitAnew},
		{"a status of somebody else's", true, warning, false, waitAnew},
	} {
		if got := next(c.taken, c.state, c.runs); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// open makes a handler's folder with settings 0.
func open(t *testing.T, o Options) *Handler {
	t.Helper()
	o.Dir = filepath.Join(t.TempDir(), "X-1")
	for _, dir := range []string{"config", "status", "log"} {
		if err := os.MkdirAll(filepath.Join(o.Dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	slash := filepath.ToSlash(o.Dir)
	for name, text := range map[string]string{
		environmentFile:     `[{"name":"X","version":1.0,"handlerEnvironment":{"logFolder":"` + slash + `/log","configFolder":"` + slash + `/config","statusFolder":"` + slash + `/status","heartbeatFile":"` + slash + `/heartbeat.log"}}]`,
		"config/0.settings": "",
	} {
		if err := os.WriteFile(filepath.Join(o.Dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if o.Now == nil {
		o.Now = func() time.Time { return time.Unix(1e9, 0) }
	}
	o.ExitCode = func(wire.Verdict) int { return 9 }
	h, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A service of systemd's is asked for with what brings it back if it is killed,
// and where systemd refuses a process of its own waits.
func TestWaiterIsAServiceWhereThereIsSystemd(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("NOT TESTED: systemd is on Linux only")
	}
	dir := t.TempDir()
	script := filepath.Join(dir, "systemd-run")
	program := filepath.Join(dir, "program")
	for name, text := range map[string]string{
		script:  "#!/bin/sh\nprintf '%s\\n' \"$@\" >" + dir + "/asked\n[ ! -e " + dir + "/refuse ]\n",
		program: "#!/bin/sh\nprintf '%s\\n' \"$@\" >" + dir + "/begun.new && mv " + dir + "/begun.new " + dir + "/begun\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	h := open(t, Options{Program: program, SystemdRun: script})
	if err := h.Enable(t.Context(), "", "0"); err != nil {
		t.Fatal(err)
	}
	asked, err := os.ReadFile(filepath.Join(dir, "asked"))
	if err != nil {
		t.Fatal(err)
	}
	for _, arg := range []string{"--collect", "--unit=ortet-extension-0.service", "--property=Type=exec", "--property=Restart=on-failure", program, "extension\nwait", "--sequence\n0"} {
		if !strings.Contains(string(asked), arg+"\n") {
			t.Errorf("systemd-run was not asked for %q: %s", arg, asked)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "begun")); err == nil {
		t.Error("a process waits besides the service")
	}
	if err := os.WriteFile(filepath.Join(dir, "refuse"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.Enable(t.Context(), "", "0"); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if begun, err := os.ReadFile(filepath.Join(dir, "begun")); err == nil {
			if !strings.HasPrefix(string(begun), "extension\nwait\n") {
				t.Errorf("left behind: %s", begun)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatal("nobody waits where systemd refuses")
		}
	}
}

// A waiter that is begun again has what is left of its time, whatever the clock
// says.
func TestDeadlineGoesOnAcrossWaiters(t *testing.T) {
	var now time.Time
	var got bootstrap.Options
	h := open(t, Options{
		Now: func() time.Time { return now },
		Wait: func(_ context.Context, o bootstrap.Options, _ *slog.Logger) (wire.Verdict, error) {
			got = o
			return wire.Verdict{Outcome: wire.TimedOut, Reason: wire.ReasonUnknown, At: time.Unix(1e9, 0)}, nil
		},
	})
	begun := time.Unix(1e9, 0)
	for after, want := range map[time.Duration]time.Duration{0: 20 * time.Minute, 5 * time.Minute: 15 * time.Minute, time.Hour: time.Second, -time.Hour: 20 * time.Minute} {
		now = begun.Add(after)
		if err := h.recordWaiter("", waiter{Begun: begun}); err != nil {
			t.Fatal(err)
		}
		if err := h.Wait(t.Context(), "", "0", false); err != nil {
			t.Fatal(err)
		}
		if got.Deadline != want {
			t.Errorf("%s later: a deadline of %s, want %s", after, got.Deadline, want)
		}
		if s := h.state(Call{}); s != failure {
			t.Errorf("status %q", s)
		}
	}
}

// enabled is a handler's folder in which enable can be played without a process.
func enabled(t *testing.T, now *time.Time) *Handler {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("NOT TESTED: systemd is on Linux only")
	}
	script := filepath.Join(t.TempDir(), "systemd-run")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "proc/uptime"), []byte("600.00 0.00\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := open(t, Options{Program: "/bin/false", SystemdRun: script, Root: root, Now: func() time.Time { return *now }})
	if err := os.WriteFile(filepath.Join(h.dir, "config/1.settings"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return h
}

// What is left of the deadline goes on for the same number in the same boot;
// another number, another boot, and who was disabled begin anew.
func TestDeadlineGoesOnAcrossEnables(t *testing.T) {
	begun := time.Unix(1e9, 0)
	now := begun
	h := enabled(t, &now)
	for _, step := range []struct {
		name     string
		after    time.Duration
		sequence string
		before   func()
		begun    time.Duration
		again    bool
		until    string
	}{
		{name: "the first", sequence: "0", until: "02:06 UTC"},
		{name: "once more", after: 5 * time.Minute, sequence: "0", until: "02:06 UTC"},
		{name: "a waiter that was killed", after: 6 * time.Minute, sequence: "0", until: "02:06 UTC"},
		{name: "after a reboot", after: 11 * time.Minute, sequence: "0", begun: 11 * time.Minute, until: "02:17 UTC"},
		{name: "another number", after: 12 * time.Minute, sequence: "1", begun: 12 * time.Minute, again: true, until: "02:18 UTC"},
		{name: "that once more", after: 13 * time.Minute, sequence: "1", begun: 12 * time.Minute, again: true, until: "02:18 UTC"},
		{name: "disabled in between", after: 14 * time.Minute, sequence: "1", before: func() {
			if err := h.Disable(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
		}, begun: 14 * time.Minute, again: true, until: "02:20 UTC"},
	} {
		now = begun.Add(step.after)
		if step.before != nil {
			step.before()
		}
		if err := h.Enable(t.Context(), "", step.sequence); err != nil {
			t.Fatal(err)
		}
		w, ok := h.waiterOf("")
		if !ok || w.Begun.Sub(begun) != step.begun || w.Again != step.again {
			t.Errorf("%s: begun after %s, again %v; want after %s, %v", step.name, w.Begun.Sub(begun), w.Again, step.begun, step.again)
		}
		text, err := os.ReadFile(filepath.Join(h.dir, "status", step.sequence+".status"))
		if err != nil || !strings.Contains(string(text), "until "+step.until) {
			t.Errorf("%s: %s, %v; want until %s", step.name, text, err, step.until)
		}
	}
}

// Who changes the configuration has it judged anew; what was judged since then
// counts for a waiter that is begun again.
func TestAnotherNumberIsJudgedAnew(t *testing.T) {
	now := time.Unix(1e9, 0)
	h := enabled(t, &now)
	var got bootstrap.Options
	h.o.Wait = func(_ context.Context, o bootstrap.Options, _ *slog.Logger) (wire.Verdict, error) {
		got = o
		return wire.Verdict{Outcome: wire.Failed, Reason: wire.ReasonUnknown, At: time.Unix(1e9, 0)}, nil
	}
	for _, step := range []struct {
		sequence string
		after    time.Time
	}{{"0", time.Time{}}, {"1", time.Unix(1e9+60, 0)}, {"0", time.Unix(1e9+120, 0)}} {
		if err := h.Enable(t.Context(), "", step.sequence); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Minute)
		if err := h.Wait(t.Context(), "", step.sequence, false); err != nil {
			t.Fatal(err)
		}
		if !got.After.Equal(step.after) {
			t.Errorf("number %s: verdicts count from %s on, want %s", step.sequence, got.After, step.after)
		}
	}
}

// A waiter that begins while it is disabled does not wait, whoever is first.
func TestDisableWhileTheWaiterBegins(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("NOT TESTED: the lock is tested on Linux only")
	}
	waited := 0
	h := open(t, Options{Wait: func(context.Context, bootstrap.Options, *slog.Logger) (wire.Verdict, error) {
		waited++
		return wire.Verdict{}, errors.New("no notifications")
	}})
	if err := h.recordWaiter("", waiter{}); err != nil {
		t.Fatal(err)
	}
	// disable has the lock, and has not taken the record away yet.
	unlock, err := lock(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- h.Wait(t.Context(), "", "0", false) }()
	if err := os.Remove(h.waiterPath("")); err != nil {
		t.Fatal(err)
	}
	unlock()
	if err := <-ended; err != nil || waited != 0 {
		t.Errorf("it waits after it was disabled: %d times, %v", waited, err)
	}
	if _, ok := h.waiterOf(""); ok {
		t.Error("the record is there again")
	}
	// It looked before, and goes on after it.
	if err := h.recordWaiter("", waiter{}); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := h.dismiss(""); !ok || err != nil {
		t.Fatalf("%v, %v", ok, err)
	}
	if _, ok := h.claim(Call{}, false); ok {
		t.Error("a record that was taken away was claimed")
	}
	// Disabled while it waits, by somebody who cannot end it: it says nothing.
	h.o.Wait = func(context.Context, bootstrap.Options, *slog.Logger) (wire.Verdict, error) {
		if err := os.Remove(h.waiterPath("")); err != nil {
			t.Error(err)
		}
		return wire.Verdict{}, errors.New("it comes too late")
	}
	if err := h.recordWaiter("", waiter{}); err != nil {
		t.Fatal(err)
	}
	if err := h.Wait(t.Context(), "", "0", false); err != nil || h.state(Call{}) != "" {
		t.Errorf("status %q, %v", h.state(Call{}), err)
	}
}

// Nobody waits who is not wanted, and no failure goes untold.
func TestWaiterThatIsNotWanted(t *testing.T) {
	waited := 0
	h := open(t, Options{Wait: func(context.Context, bootstrap.Options, *slog.Logger) (wire.Verdict, error) {
		waited++
		return wire.Verdict{}, errors.New("no notifications")
	}})
	if err := h.Wait(t.Context(), "", "0", false); err != nil || waited != 0 {
		t.Errorf("disabled: %v, waited %d times", err, waited)
	}
	if err := h.recordWaiter("", waiter{Sequence: 1}); err != nil {
		t.Fatal(err)
	}
	if err := h.Wait(t.Context(), "", "0", false); err != nil || waited != 0 {
		t.Errorf("of another number: %v, waited %d times", err, waited)
	}
	if err := os.Remove(h.waiterPath("")); err != nil {
		t.Fatal(err)
	}
	if err := h.Wait(t.Context(), "", "0", true); err != nil || waited != 1 || h.state(Call{}) != failure {
		t.Errorf("without room for a record: %v, waited %d times, %q", err, waited, h.state(Call{}))
	}
}

// A process that has the number of a waiter that ended is not the waiter, and so not
// ended.
func TestNumberOfAWaiterIsAnothers(t *testing.T) {
	started, err := startOf(os.Getpid())
	if err != nil && runtime.GOOS == "linux" {
		t.Fatal(err)
	}
	for w, want := range map[waiter]bool{{PID: os.Getpid(), Started: started, Boot: bootID()}: err == nil, {PID: os.Getpid(), Started: "1", Boot: bootID()}: false, {PID: os.Getpid(), Started: started, Boot: "x"}: false} {
		if w.runs() != want {
			t.Errorf("%+v runs: %t", w, !want)
		}
	}
}

// A process that was told to end leaves the status as it is: it is waited for
// after the reboot.
func TestWaiterThatIsInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	h := open(t, Options{Wait: func(ctx context.Context, _ bootstrap.Options, _ *slog.Logger) (wire.Verdict, error) {
		stop()
		return wire.Verdict{}, context.Cause(ctx)
	}})
	if err := h.recordWaiter("", waiter{}); err != nil {
		t.Fatal(err)
	}
	if err := h.Wait(ctx, "", "0", false); err != nil || h.state(Call{}) != "" {
		t.Errorf("%v, status %q", err, h.state(Call{}))
	}
}

func TestSettings(t *testing.T) {
	file := func(public string) string {
		return `{"runtimeSettings":[{"handlerSettings":{"publicSettings":` + public + `}}]}`
	}
	s, err := parseSettings([]byte(file(`{"deadline":"90m","units":["a","b.service"],"sentinel":"none","kubelet":"yes","node":"registered"}`)))
	if o := s.options("", 0); err != nil || o.Deadline != 90*time.Minute || len(o.Units) != 2 || o.Sentinel != "none" || o.Kubelet != bootstrap.KubeletYes || o.Node != bootstrap.NodeRegistered {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := parseSettings([]byte(file(`{"settle":"0s","grace":"10m"}`))); err != nil || s.options("", 0).Settle != 0 || s.options("", 0).Grace != 10*time.Minute {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := parseSettings(nil); err != nil || s.options("", 0).Settle != bootstrap.Defaults().Settle || s.options("", 0).Grace != bootstrap.Defaults().Grace {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := parseSettings([]byte(file(`{"units":"a, b.service,"}`))); err != nil || strings.Join(s.Units, " ") != "a b.service" {
		t.Errorf("units in one text: %q, %v", s.Units, err)
	}
	for _, text := range []string{"", "\n", "\xef\xbb\xbf" + file("{}"), file("null"), file(`{"deadline":null}`), `{"runtimeSettings":[{"handlerSettings":{"protectedSettings":null,"new":1}}],"new":1}`} {
		if s, err := parseSettings([]byte(text)); err != nil || s.options("", 0).Deadline != bootstrap.Defaults().Deadline || s.Protected {
			t.Errorf("%q: %+v, %v", text, s, err)
		}
	}
	for _, text := range []string{
		"{", "[]", "null", `{"runtimeSettings":[]}`, file(`"{}"`), file(`{"deadline":"soon"}`), file(`{"deadline":20}`), file(`{"deadline":"0s"}`), file(`{"deadline":"-1m"}`), file(`{"deadline":"25h"}`),
		file(`{"settle":"-1s"}`), file(`{"settle":"25h"}`), file(`{"settle":10}`), file(`{"grace":"soon"}`), file(`{"grace":"-1ns"}`), file(`{"grace":""}`),
		file(`{"units":["../x"]}`), file(`{"units":"a b"}`), file(`{"units":{}}`), file(`{"sentinel":"relative"}`), file(`{"kubelet":"perhaps"}`), file(`{"node":"maybe"}`), file(`{"x":1}`),
	} {
		if s, err := parseSettings([]byte(text)); err == nil {
			t.Errorf("%q is let through: %+v", text, s)
		}
	}
}

// What is wrong is said in the words of who wrote the settings.
func TestWrongSettingsAreTold(t *testing.T) {
	for public, want := range map[string]string{
		`[]`: "array, not an object", `"x"`: "string, not an object", `{"deadline":30}`: "deadline is a JSON number", `{"kubelet":true}`: "kubelet is a JSON bool",
		`{"units":{}}`: "units is a JSON object", `{"units":[1]}`: "units is a JSON number", `{"units":"a b"}`: `units "a b"`, `{"node":"yes"}`: `: node "yes"`,
	} {
		_, err := parseSettings([]byte(`{"runtimeSettings":[{"handlerSettings":{"publicSettings":` + public + `}}]}`))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "Go ") || strings.Contains(err.Error(), "--") {
			t.Errorf("%s: %v, want %s in it, and nothing of flags and Go", public, err, want)
		}
	}
}

func TestFindFolder(t *testing.T) {
	h := open(t, Options{})
	bin := filepath.Join(h.dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(bin, "ortet-node")
	if err := os.WriteFile(program, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	want, err := filepath.EvalSymlinks(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := FindFolder(program); err != nil || got != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
	if _, err := FindFolder(filepath.Join(t.TempDir(), "x", "y", "z")); err == nil || !strings.Contains(err.Error(), "--dir") {
		t.Errorf("no folder: %v", err)
	}
}

func FuzzSettings(f *testing.F) {
	f.Add([]byte(`{"runtimeSettings":[{"handlerSettings":{"publicSettings":{"deadline":"20m","units":["a"],"sentinel":"/x","kubelet":"auto"},"protectedSettings":"MIIB"}}]}`))
	f.Add([]byte(`{"runtimeSettings":[{"handlerSettings":{"publicSettings":{"dedline":"20m"}}}]}`))
	f.Add([]byte("\xef\xbb\xbf"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseSettings(text)
		if err != nil {
			return
		}
		if err := s.options("", 0).Validate(); err != nil || s.Deadline <= 0 || s.Deadline > maxTime || s.Grace < 0 || s.Grace > maxTime || s.Settle < 0 || s.Settle > maxTime {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// The manifest beside us, the status that is there already, and the record of
// who waits: whatever they hold, they say something or nothing.
func FuzzOwnFiles(f *testing.F) {
	f.Add([]byte(`[{"version":1.0,"handlerManifest":{"reportHeartbeat":true}}]`))
	f.Add([]byte(`[{"version":1,"timestampUTC":"2026-11-21T07:00:00Z","status":{"status":"success","code":0}}]`))
	f.Add([]byte(`{"pid":7,"began":"1234"}`))
	f.Add([]byte("\xef\xbb\xbf[null]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, _ = promisesHeartbeat(text), stateIn(text)
		dir := t.TempDir()
		h := &Handler{dir: dir, env: Environment{Config: dir}, log: discard()}
		if err := os.WriteFile(h.waiterPath(""), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, mrseq), text, 0o600); err != nil {
			t.Fatal(err)
		}
		h.waiterOf("")
		if n, known, err := h.last(""); err != nil || known && n == 3 && strings.Trim(string(text), "0 \t\r\n\v\f\u0085\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\u1680+") != "3" {
			t.Errorf("%d, %v, %v", n, known, err)
		}
	})
}

// Names of files in the agent's folder, and of instances.
func FuzzSequence(f *testing.F) {
	f.Add("3.settings", "")
	f.Add("NAME.12.settings", "NAME")
	f.Add("../3.settings", "..")
	f.Fuzz(func(t *testing.T, file, instance string) {
		if checkName(instance) != nil {
			return
		}
		n, ok := sequenceOf(file, instance)
		if !ok {
			return
		}
		// What it stands for is what it is called, but for leading zeros.
		if c := (Call{instance, n}); filepath.Base(c.file("settings")) != c.file("settings") || len(c.file("settings")) > len(file) {
			t.Errorf("%q of %q is %d: %q", file, instance, n, c.file("settings"))
		}
	})
}

// What stands in the place of a file of the agent's is not waited for.
func TestFilesThatAreNone(t *testing.T) {
	dir := t.TempDir()
	if _, err := readBounded(dir); err == nil {
		t.Error("a folder was read")
	}
	if runtime.GOOS == "linux" {
		fifo := filepath.Join(dir, "fifo")
		if out, err := exec.CommandContext(t.Context(), "mkfifo", fifo).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		if _, err := readBounded(fifo); err == nil {
			t.Error("a FIFO was read")
		}
	}
	huge := filepath.Join(dir, "huge")
	if err := os.WriteFile(huge, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(huge, 1<<30); err != nil {
		t.Fatal(err)
	}
	if text, err := readBounded(huge); err == nil || len(text) > maxFile+1 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

func FuzzEnvironment(f *testing.F) {
	f.Add([]byte(`[{"name":"X","version":1.0,"handlerEnvironment":{"logFolder":"/l","configFolder":"/c","statusFolder":"/s","heartbeatFile":"/h"}}]`))
	f.Add([]byte(`[{}]`))
	f.Add([]byte(`[null]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := parseEnvironment(text)
		if err != nil {
			return
		}
		for _, path := range []string{e.Log, e.Config, e.Status} {
			if !filepath.IsAbs(path) {
				t.Errorf("%q", path)
			}
		}
	})
}
