package bootstrap

import (
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/boots/verdict"
)

func TestCloudbaseSeen(t *testing.T) {
	booted := time.Unix(1000, 0)
	at := func(s int64) time.Time { return time.Unix(1000+s, 0) }
	for _, c := range []struct {
		name          string
		active, sub   string
		since, ended  time.Time
		runs, is, end bool
		begun, done   int64
	}{
		{"never started", "inactive", "not-started", time.Time{}, time.Time{}, false, false, false, 0, 0},
		{"to be started", "activating", "not-started", time.Time{}, time.Time{}, true, false, false, 0, 0},
		{"it runs", "active", "running", at(30), time.Time{}, true, true, false, 30000, 0},
		{"since nobody knows when", "active", "running", time.Time{}, time.Time{}, true, true, false, 0, 0},
		{"it may reboot", "deactivating", "stop", at(30), at(90), true, true, false, 30000, 0},
		{"it ended", "inactive", "dead", at(30), at(90), true, true, true, 30000, 90000},
		{"it ended before it was seen", "inactive", "dead", time.Time{}, at(90), true, true, true, 0, 0},
		{"it failed", "failed", "failed", at(30), at(90), false, false, false, 0, 0},
	} {
		units := map[string]unitSeen{cloudbaseInit: {Unit: verdict.Unit{Name: cloudbaseInit, Active: c.active, Sub: c.sub}, since: c.since, ended: c.ended}}
		ci, runs := cloudbaseSeen(units, booted)
		if runs != c.runs || (ci != nil) != c.is || ci != nil && ci.Done != c.end {
			t.Errorf("%s: %+v, runs %t", c.name, ci, runs)
			continue
		}
		var stage verdict.Stage
		if ci != nil && len(ci.Stages) > 0 {
			stage = ci.Stages[0]
		}
		if stage.Begin != c.begun || stage.End != c.done {
			t.Errorf("%s: from %d to %d", c.name, stage.Begin, stage.End)
		}
	}
	if ci, runs := cloudbaseSeen(nil, booted); ci != nil || runs {
		t.Error("a node without it")
	}
}

func TestPythonBytes(t *testing.T) {
	for _, c := range []struct {
		name, text string
		cut        bool
		want       string
	}{
		{"plain lines", "a\r\nC:\\new\\b'x'\n", false, "a\r\nC:\\new\\b'x'\n"},
		{"output", `b'one\r\n[ERROR \'x\']: C:\\k\ttwo\xe2\x80\xa6' execute_user_data_script C:\x.py:105` + "\n", false, "one\r\n[ERROR 'x']: C:\\k\ttwo…\nexecute_user_data_script C:\\x.py:105\n"},
		{"in double quotes", `b"it's\n"` + "\nnext\n", false, "it's\n\nnext\n"},
		{"none", "b''\n", false, "\n"},
		{"without an end", `b'a\nb`, false, "a\nb"},
		{"an escape that is cut off", `b'a\`, false, `a\`},
		{"an escape that is none", `b'\q\x0g\xff`, false, `\q\x0g` + "\xff"},
		{"begun before", `ne\r\ntwo\r\n' execute` + "\nb'three'\n", true, "ne\r\ntwo\r\n' execute\nthree\n"},
		{"a plain line begun before", "d\nb\n", true, "d\nb\n"},
	} {
		if got := string(pythonBytes([]byte(c.text), c.cut)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// What a script printed is told line by line, also where it is more than a line
// may have.
func TestCloudbaseLogHasLines(t *testing.T) {
	text := "2026-11-21 06:58:14.402 1820 DEBUG cloudbaseinit.plugins.common.userdatautils [-] User_data stdout:\nb'" +
		strings.Repeat(`a line that is printed over and over\r\n`, 100) + `error execution phase preflight: no luck\r\n' execute_user_data_script` + "\n"
	l := lastLines(pythonBytes([]byte(text), false), "cloudbase-init.log", false)
	if len(l.Lines) < 100 || !strings.Contains(strings.Join(l.Lines, "\n"), "\nerror execution phase preflight: no luck\n") {
		t.Errorf("%d lines: %s", len(l.Lines), strings.Join(l.Lines, "\n"))
	}
}

func FuzzPythonBytes(f *testing.F) {
	f.Add([]byte(`b'one\r\n\xe2\x80' execute`+"\nplain\n"), true)
	f.Add([]byte("b'\\"), false)
	f.Fuzz(func(t *testing.T, text []byte, cut bool) {
		if got := pythonBytes(text, cut); len(got) > len(text)+strings.Count(string(text), "\n")+1 {
			t.Errorf("%d bytes of %d", len(got), len(text))
		}
	})
}
