package wire

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

func wrong() Verdict {
	two := 2
	return Verdict{
		Outcome: Failed, Reason: "KubeadmPreflight", Owner: OwnerUser, Message: "kubeadm join failed in preflight: “swap” is on 🙂",
		Remedy: "turn swap off", Stage: "modules-final", Module: "runcmd", Phase: "preflight", ExitCode: &two,
		Node: "pool1000003", VMID: "13c0ff4d-2a1f-4a94-8a4a-b0d6e3a9c1de", BootID: "b", At: time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC), Uptime: 61234,
		Stages:   []StageTime{{Name: "init", Begin: 1, End: 2}},
		Evidence: []Excerpt{{Source: "/var/log/cloud-init-output.log", Lines: []string{"error execution phase preflight"}}},
	}
}

func TestVerdictCrosses(t *testing.T) {
	text, err := json.Marshal(wrong())
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseVerdict(text)
	if err != nil || !reflect.DeepEqual(got, wrong()) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestVerdictRefused(t *testing.T) {
	for name, spoil := range map[string]func(v *Verdict){
		"no outcome":            func(v *Verdict) { v.Outcome = "" },
		"success with a reason": func(v *Verdict) { v.Outcome = Succeeded },
		"failure without":       func(v *Verdict) { v.Reason = "" },
		"a reason with blanks":  func(v *Verdict) { v.Reason = "Kubeadm preflight" },
		"no such owner":         func(v *Verdict) { v.Owner = "me" },
		"an escape sequence":    func(v *Verdict) { v.Evidence[0].Lines[0] = "\x1b[2J" },
		"no time":               func(v *Verdict) { v.At = time.Time{} },
		"before the boot":       func(v *Verdict) { v.Uptime = -1 },
		"too long a message":    func(v *Verdict) { v.Message = strings.Repeat("x", maxMessage+1) },
		"too many lines":        func(v *Verdict) { v.Evidence[0].Lines = make([]string, maxLines+1) },
	} {
		v := wrong()
		spoil(&v)
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseVerdict(text); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	for _, text := range []string{``, `{}`, `null`, `{"outcome":"Succeeded","at":"2026-11-21T07:00:00Z","uptimeMillis":1} {}`, `{"outcome":"Succeeded","at":"2026-11-21T07:00:00Z","uptimeMillis":1,"x":1}`} {
		if _, err := ParseVerdict([]byte(text)); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestConsoleLine(t *testing.T) {
	line := wrong().ConsoleLine()
	for _, r := range line {
		if r < ' ' || r > '~' {
			t.Fatalf("%q has %q", line, r)
		}
	}
	want := wrong()
	want.Evidence, want.Stages = nil, nil
	noise := "[   61.2] " + line + "\r\n[   61.3] cloud-init[812]: done\r\n"
	mangled := strings.Replace(line, "preflight", "pre[61.4] kernel: hellofl", 1) + "\n"
	older := Verdict{Outcome: Succeeded, At: want.At, Uptime: 1}.ConsoleLine() + "\r\n"
	for name, log := range map[string]string{
		"alone": line, "with a kernel's stamp": noise, "after an older one": older + noise, "before a mangled one": noise + mangled,
	} {
		if got, ok := FindVerdict([]byte(log)); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %t", name, got, ok)
		}
	}
	if got, ok := FindVerdict([]byte(mangled)); ok {
		t.Errorf("a mangled line is read: %+v", got)
	}
}

func TestConsoleLineIsBounded(t *testing.T) {
	v := wrong()
	v.Message, v.Remedy = strings.Repeat("ü", 500), strings.Repeat("r", 900)
	line := v.ConsoleLine()
	got, ok := FindVerdict([]byte(line))
	if len(line) > maxConsoleLine || !ok || got.Reason != v.Reason || *got.ExitCode != 2 {
		t.Errorf("%d bytes, %+v", len(line), got)
	}
}

func FuzzVerdict(f *testing.F) {
	text, err := json.Marshal(wrong())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"outcome":"Succeeded","at":"2026-11-21T07:00:00Z","uptimeMillis":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := ParseVerdict(text)
		if err != nil {
			return
		}
		if got, ok := FindVerdict([]byte(v.ConsoleLine())); !ok || got.Outcome != v.Outcome || got.Reason != v.Reason {
			t.Errorf("%+v is %q on the console, and read as %+v", v, v.ConsoleLine(), got)
		}
	})
}

func FuzzSerialLog(f *testing.F) {
	f.Add([]byte("x " + wrong().ConsoleLine() + "\r\n"))
	f.Add([]byte(consoleMark + " {" + consoleMark + " {}}"))
	f.Fuzz(func(t *testing.T, log []byte) {
		if v, ok := FindVerdict(log); ok {
			if err := v.Validate(); err != nil {
				t.Error(err)
			}
		}
	})
}
