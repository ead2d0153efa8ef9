package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/ortet/ortet/internal/wire"
)

const ciStart = "2024-11-12 17:23:37,912 - log_util.py[DEBUG]: Cloud-init v. 24.1.3 running 'init-local' at Tue, 12 Nov 2024 17:23:37 +0000. Up 4.31 seconds.\n"

func TestOddCloudInitLogs(t *testing.T) {
	for _, c := range []struct {
		name, text string
		state      wire.SourceState
		spans      string // names, with "!" where open
	}{
		{"rotated: its start is missing", "2024-11-12 17:23:41,612 - handlers.py[DEBUG]: finish: init-local/search-Azure: SUCCESS: found\n" + strings.Replace(ciStart, "init-local", "init", 1), wire.SourcePartial, "init-network!"},
		{"rotated, but it says how long", "2026-11-12 17:23:41,612 - handlers.py[DEBUG]: finish: init-local/search-Azure: SUCCESS: found (duration: 3.600s)\n", wire.SourcePartial, "init-local/search-Azure"},
		{"cut off", ciStart + "2024-11-12 17:23:38,000 - handlers.py[DEBUG]: start: init-local/check-cache: attempt\n2024-11-12 17:23:39,0", wire.SourceRead, "init-local! init-local/check-cache!"},
		{"the clock was set back", ciStart + "2024-11-12 17:23:30,000 - handlers.py[DEBUG]: finish: init-local: SUCCESS: x\n", wire.SourceRead, "init-local"},
		{"not UTF-8", ciStart + "2024-11-12 17:23:38,000 - handlers.py[DEBUG]: finish: init-local: FAIL\xff: \xc3\x28\x00\n", wire.SourceRead, "init-local"},
		{"an endless line", ciStart + "2024-11-12 17:23:38,000 - util.py[DEBUG]: " + strings.Repeat("x", 3<<20) + "\n2024-11-12 17:23:39,000 - handlers.py[DEBUG]: finish: init-local: SUCCESS: x\n", wire.SourcePartial, "init-local"},
		{"a time that there is none of", ciStart + "2024-13-12 17:23:38,000 - handlers.py[DEBUG]: start: a: b\n0000-00-00 00:00:00,000 - handlers.py[DEBUG]: start: a: b\n", wire.SourceRead, "init-local!"},
		{"another format", "17:23 cloud-init said nothing\n", wire.SourcePartial, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			reports := CloudInitLog(strings.NewReader(c.text), Options{})
			if len(reports) != 1 {
				t.Fatalf("%d boots", len(reports))
			}
			r := Merge(reports[0])
			if err := r.Validate(); err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, s := range r.Spans {
				name := s.Name
				if s.Open {
					name += "!"
				}
				names = append(names, name)
				if s.End < s.Start {
					t.Errorf("%+v", s)
				}
			}
			if got := strings.Join(names, " "); got != c.spans || r.Sources[0].State != c.state {
				t.Errorf("%s, %+v", got, r.Sources[0])
			}
		})
	}
}

// What cannot be read on is told as far as it was read.
func TestReadingStops(t *testing.T) {
	r := CloudInitLog(io.MultiReader(strings.NewReader(ciStart), iotest.ErrReader(io.ErrClosedPipe)), Options{})
	if len(r) != 1 || len(r[0].Spans) != 1 || r[0].Sources[0].State != wire.SourcePartial || !strings.Contains(r[0].Sources[0].Detail, "closed pipe") {
		t.Errorf("%s", printed(r))
	}
}

// Of a unit with several starts, that of the boot is told: not the initrd's, not
// one that failed where a later one did not, not one of days later.
func TestJournalStarts(t *testing.T) {
	var b strings.Builder
	say := func(mono int, id, unit, more string) {
		fmt.Fprintf(&b, "__CURSOR=x\n__REALTIME_TIMESTAMP=%d\n__MONOTONIC_TIMESTAMP=%d\n_BOOT_ID=4f1c8a52b7e94d0e9c33a1d2e5f60718\nMESSAGE_ID=%s\nUNIT=%s\n%sMESSAGE=x\n\n", 1731432213412356+mono, mono, id, unit, more)
	}
	say(500000, idStarting, "systemd-journald.service", "") // in the initrd
	say(600000, idStarted, "systemd-journald.service", "")
	say(2100000, idStarting, "systemd-journald.service", "")
	say(2200000, idStarted, "systemd-journald.service", "")
	for i := range 40 {
		say(3000000+i*100000, idStarting, "kubelet.service", "")
		say(3050000+i*100000, idFailed, "kubelet.service", "JOB_RESULT=failed\n")
	}
	say(8000000, idStarting, "kubelet.service", "")
	say(8100000, idStarted, "kubelet.service", "")
	say(9000000, idFinished, "", "KERNEL_USEC=1000000\nINITRD_USEC=900000\nUSERSPACE_USEC=7000000\n")
	say(90000000000, idStarting, "kubelet.service", "")
	say(90000100000, idStarted, "kubelet.service", "")
	say(90000200000, idStarted, "cri-containerd-4711.scope", "")
	r, err := Read("x", strings.NewReader(b.String()), Options{})
	if err != nil || len(r) != 1 {
		t.Fatal(err, len(r))
	}
	if s := r[0].System; s.InitRD != 1000000 || s.Userspace != 1900000 || s.Finish != 8900000 {
		t.Errorf("%+v", s)
	}
	if len(r[0].Units) != 2 {
		t.Errorf("%d units, of which the boot has 2", len(r[0].Units))
	}
	if u := unitOf(t, r[0], "systemd-journald.service"); u.Activating != 2100000 || u.Activated != 2200000 || u.Restarts != 0 {
		t.Errorf("%+v", u)
	}
	if u := unitOf(t, r[0], "kubelet.service"); u.Activating != 8000000 || u.Activated != 8100000 || u.Restarts == 0 || u.Result != "" {
		t.Errorf("%+v", u)
	}
}

// Readings of the clocks are few, and the moment of each step lies between two.
func TestClocksAreFew(t *testing.T) {
	var f clockFilter
	offset := wire.Micros(1731432213412356)
	steps := map[int]wire.Micros{300: 2500000, 7000: -1000000, 7001: 400000}
	for i := range 10000 {
		offset += steps[i]
		f.take(wire.ClockReading{Monotonic: wire.Micros(i) * 10000, Wall: offset + wire.Micros(i)*10000 + wire.Micros(i%7)})
	}
	got := f.readings()
	if len(got) > 8 {
		t.Fatalf("%d readings", len(got))
	}
	for at, by := range steps {
		found := false
		for i := 1; i < len(got); i++ {
			d := (got[i].Wall - got[i].Monotonic) - (got[i-1].Wall - got[i-1].Monotonic)
			found = found || got[i].Monotonic == wire.Micros(at)*10000 && got[i-1].Monotonic == wire.Micros(at-1)*10000 && d > by-100 && d < by+100
		}
		if !found {
			t.Errorf("the step at %d is not among %v", at, got)
		}
	}
	// A clock that is set at each reading does not fill memory.
	var wild clockFilter
	for i := range 100000 {
		wild.take(wire.ClockReading{Monotonic: wire.Micros(i) * 1000, Wall: offset + wire.Micros(i%2)*wire.Micros(3600e6)})
	}
	if got := wild.readings(); len(got) > wire.MaxBootClocks {
		t.Errorf("%d readings", len(got))
	}
}

func TestTimes(t *testing.T) {
	for text, want := range map[string]wire.Micros{
		"16min 55.434s": 1015434000, "270ms": 270000, "1h 2min 3s": 3723000000, "0": 0, "5us": 5, "1.5s": 1500000,
		"380 ms": 380000, "1d 2h": 93600000000, "2w": 1209600000000, "": -1, "s": -1, "5": -1, "1.2.3s": -1, "-5s": -1, "9999999y": -1,
	} {
		got, ok := timespan(text)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %d, not %d", text, got, want)
		}
	}
	const sec = 1731432213000000
	for text, want := range map[string]wire.Micros{
		"Tue 2024-11-12 17:23:33 UTC":        sec,
		"Tue 2024-11-12 17:23:33.412356 UTC": sec + 412356,
		"Tue Nov 12 17:23:33 UTC 2024":       sec,
		"Tue Nov 12 05:23:33 PM UTC 2024":    sec,
		"Tue Nov  2 05:23:33 AM UTC 2024":    1730525013000000,
		"Tue, 12 Nov 2024 17:23:33 +0000":    sec,
		"2024-11-12 17:23:33.412":            sec + 412000,
		"2024-11-12T17:23:33.412356Z":        sec + 412356,
		"2024-11-12T19:23:33.412356+02:00":   sec + 412356,
		"Tue 2024-11-12 17:23:33 CET":        -1,
		"n/a":                                -1,
		"":                                   -1,
		"Tue 1900-01-01 00:00:00 UTC":        -1,
	} {
		got, ok := dateText(text)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %d, not %d", text, got, want)
		}
	}
}

// A program is no pool of key-value pairs, however many zeros it has.
func TestProgramsAreUnknown(t *testing.T) {
	program := make([]byte, 4*kvpRecord)
	copy(program, "\x7fELF\x02\x01\x01")
	if reports, err := Read("ls", bytes.NewReader(program), Options{}); !errors.Is(err, ErrUnknown) {
		t.Errorf("%d reports, error %v", len(reports), err)
	}
}

// A unit whose condition was not met is told of with the id of a start, and was
// not started; one that was started at another time was.
func TestJournalConditions(t *testing.T) {
	var b strings.Builder
	say := func(mono int, id, unit, message string) {
		fmt.Fprintf(&b, "__CURSOR=x\n__REALTIME_TIMESTAMP=%d\n__MONOTONIC_TIMESTAMP=%d\n_BOOT_ID=4f1c8a52b7e94d0e9c33a1d2e5f60718\nMESSAGE_ID=%s\nUNIT=%s\nJOB_RESULT=done\nMESSAGE=%s\n\n", 1731432213412356+mono, mono, id, unit, message)
	}
	say(2000000, idStarted, "new.service", "new.service - New was skipped because of an unmet condition check (ConditionPathExists=/x).")
	say(2000000, idStarted, "any.service", "any.service - Any was skipped because no trigger condition checks were met.")
	say(2000000, idStarted, "old.service", "Condition check resulted in Old being skipped.")
	say(2000000, idStarted, "later.service", "later.service - Later was skipped because of an unmet condition check (ConditionPathExists=/x).")
	say(3000000, idStarting, "later.service", "Starting later.service - Later...")
	say(3500000, idStarted, "later.service", "Started later.service - Later.")
	say(4000000, idStarted, "twice.service", "Started twice.service - Twice.")
	say(5000000, idStarted, "twice.service", "twice.service - Twice was skipped because of an unmet condition check (ConditionPathExists=/x).")
	r, err := Read("x", strings.NewReader(b.String()), Options{})
	if err != nil || len(r) != 1 {
		t.Fatal(err, len(r))
	}
	for name, want := range map[string]wire.BootUnit{
		"new.service": {Skipped: true}, "any.service": {Skipped: true}, "old.service": {Skipped: true},
		"later.service": {Activating: 3000000, Activated: 3500000, Grain: 1000},
		"twice.service": {Activating: 4000000, Activated: 4000000, Grain: 1000},
	} {
		u := unitOf(t, r[0], name)
		if u.Skipped != want.Skipped || u.Activating != want.Activating || u.Activated != want.Activated || u.Grain != want.Grain {
			t.Errorf("%+v, want %+v", u, want)
		}
	}
}

// What a journal tells of beyond the bounds is left out, and that is said.
func TestJournalsBounds(t *testing.T) {
	entry := func(b *strings.Builder, boot, mono int, unit string) {
		fmt.Fprintf(b, "__CURSOR=x\n__REALTIME_TIMESTAMP=%d\n__MONOTONIC_TIMESTAMP=%d\n_BOOT_ID=%032x\nMESSAGE_ID=%s\nUNIT=%s\nMESSAGE=Started x.\n\n",
			1731432213412356+boot*3600000000+mono, mono, boot+1, idStarted, unit)
	}
	var boots, units strings.Builder
	for i := range maxBoots + 1 {
		entry(&boots, i, 1000000, "a.service")
	}
	for i := range wire.MaxBootUnits + 1 {
		entry(&units, 0, 1000000+i, fmt.Sprintf("u%d.service", i))
	}
	for says, text := range map[string]string{"of more than 64 boots the last are told": boots.String(), "more was said than a report holds": units.String()} {
		r, err := Read("x", strings.NewReader(text), Options{})
		if err != nil || len(r) == 0 {
			t.Fatal(err, len(r))
		}
		if s := r[0].Sources[0]; s.State != wire.SourcePartial || !strings.Contains(s.Detail, says) {
			t.Errorf("%d boots, %d units: %+v", len(r), len(r[0].Units), s)
		}
	}
}

func TestUTF16IsNamed(t *testing.T) {
	if _, err := Read("x", strings.NewReader("\xff\xfeg\x00r\x00"), Options{}); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "UTF-16") {
		t.Error(err)
	}
}

// Steps of ortet-boot go on until the next one, with the last problem; one that has not ended is
// open, and what comes after the start of k3s is none. Other units' lines are none either.
func TestStepsOfOrtetBoot(t *testing.T) {
	by := func(unit string, at int, text string) string {
		if unit != "" {
			unit = "_SYSTEMD_UNIT=" + unit + "\n"
		}
		return fmt.Sprintf("__REALTIME_TIMESTAMP=%d\n__MONOTONIC_TIMESTAMP=%d\n_BOOT_ID=%032d\n%sSYSLOG_IDENTIFIER=python3\nMESSAGE=ortet-boot: %s\n\n", 1700000000000000+at*1000000, at*1000000, 1, unit, text)
	}
	asJSON := func(export string) (lines string) {
		for one := range strings.SplitSeq(strings.TrimSpace(export), "\n\n") {
			fields := map[string]string{}
			for line := range strings.SplitSeq(one, "\n") {
				name, value, _ := strings.Cut(line, "=")
				fields[name] = value
			}
			line, _ := json.Marshal(fields)
			lines += string(line) + "\n"
		}
		return lines
	}
	entry := func(at int, text string) string { return by("ortet-boot.service", at, text) }
	began := entry(1, "installing packages") + entry(3, "waiting for the NVIDIA driver: extension X has reported nothing yet") + entry(9, "waiting for the NVIDIA driver: extension X reports transitioning: installing")
	const first = "installing packages 1 2 false ,waiting for the NVIDIA driver 3 "
	for name, c := range map[string]struct{ journal, want string }{
		"goes on": {began, first + "6 true extension X reports transitioning: installing"},
		"of others": {began + by("", 7, "starting k3s") + by("ortet-share.service", 8, "the share at /srv does not answer") + by("session-1.scope", 9, "waiting for the NVIDIA driver: forged"),
			first + "6 true extension X reports transitioning: installing"},
		"has gone": {began + entry(11, "starting k3s; state.db was damaged") + entry(12, "published: ortet.io_boot"), first + "8 false extension X reports transitioning: installing"},
	} {
		for _, journal := range []string{c.journal, asJSON(c.journal)} {
			var got []string
			for _, s := range Journal(strings.NewReader(journal), Options{})[0].Spans {
				got = append(got, fmt.Sprint(s.Name, " ", s.Start/1e6, " ", (s.End-s.Start)/1e6, " ", s.Open, " ", s.Detail))
			}
			if strings.Join(got, ",") != c.want {
				t.Errorf("%s: %q, want %q", name, got, c.want)
			}
		}
	}
}
