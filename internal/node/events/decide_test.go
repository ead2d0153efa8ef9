package events

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the scenarios' traces")

// epoch is Azure's clock at 0s of a scenario.
func epoch() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

// A scenario is blocks with a blank line between: a command, its lines, and after
// "----" what came of it. Commands:
//
//	settings JSON
//	look AT               the document's events, a line each:
//	                      ID TYPE scheduled|started [NOTBEFORE|-] RESOURCE,… [DURATION]
//	done AT [left POD,…]  what was to be done is; with pods that are left it is not
//	failed AT [final] WHY
//	restart [BOOT]        of the daemon, with nothing but what it has kept; of the machine
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p := player{t: t, o: Observed{Name: vmName, BootID: "boot1"}}
			var out []string
			for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
				asked, _, _ := strings.Cut(block, "\n----")
				if strings.HasPrefix(asked, "#") && !strings.Contains(block, "\n----") {
					out = append(out, block)
					continue
				}
				answer := p.play(strings.Split(asked, "\n"))
				out = append(out, strings.TrimRight(asked+"\n----\n"+answer, "\n"))
			}
			got := strings.Join(out, "\n\n") + "\n"
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("another trace; with -update it is rewritten:\n%s", got)
			}
		})
	}
}

type player struct {
	t    *testing.T
	s    State
	o    Observed
	next *Action
	n    int
}

func (p *player) play(lines []string) string {
	p.t.Helper()
	words := strings.Fields(lines[0])
	at := func(i int) time.Time {
		d, err := time.ParseDuration(words[i])
		if err != nil {
			p.t.Fatal(err)
		}
		return epoch().Add(d)
	}
	var notices []Notice
	var now time.Time
	switch words[0] {
	case "settings":
		s, err := ParseSettings([]byte(strings.TrimPrefix(lines[0], "settings ")))
		if err != nil {
			p.t.Fatal(err)
		}
		p.o.Settings = s
		return ""
	case "restart":
		if len(words) > 1 {
			p.o.BootID = words[1]
		}
		text, err := json.Marshal(p.s)
		if err == nil {
			p.s, err = parseState(text)
		}
		if err != nil {
			p.t.Fatal(err)
		}
		p.next = nil
		return ""
	case "look":
		now = at(1)
		p.n++
		p.o.Document = Document{Incarnation: strconv.Itoa(p.n)}
		for _, line := range lines[1:] {
			p.o.Document.Events = append(p.o.Document.Events, p.event(line))
		}
	case "done", "failed":
		now = at(1)
		if p.next == nil {
			p.t.Fatalf("%s: nothing was to be done", lines[0])
		}
		r := Outcome{Action: *p.next, Done: true, By: ByServer}
		rest := words[2:]
		if words[0] == "failed" {
			if r.Done = false; rest[0] == "final" {
				r.Final, rest = true, rest[1:]
			}
			r.Err = errors.New(strings.Join(rest, " "))
		} else if len(rest) == 2 {
			r.Done, r.Left = false, strings.Split(rest[1], ",")
		}
		p.s, notices = Record(p.s, r, p.o, now)
	default:
		p.t.Fatalf("unknown command %q", lines[0])
	}
	s, next, more := Decide(p.s, p.o, now)
	again, sameNext, none := Decide(s, p.o, now)
	if len(none) > 0 || fmt.Sprint(again) != fmt.Sprint(s) || (next == nil) != (sameNext == nil) || next != nil && *next != *sameNext {
		p.t.Errorf("%s: the same look decides something else:\n%+v %+v\n%+v %+v %v", lines[0], s, next, again, sameNext, none)
	}
	p.s, p.next = s, next
	var b strings.Builder
	for _, n := range append(notices, more...) {
		kind := "tell"
		if n.Warning {
			kind = "warn"
		}
		_, _ = fmt.Fprintf(&b, "%s %s: %s\n", kind, n.Reason, n.Message)
	}
	for _, h := range s.Events {
		_, _ = fmt.Fprintf(&b, "%s %s %s %s", h.ID, h.Type, h.Do, h.Phase)
		if h.Problem != "" {
			_, _ = fmt.Fprintf(&b, " (%s)", h.Problem)
		}
		b.WriteByte('\n')
	}
	switch {
	case next == nil:
		b.WriteString("next: nothing\n")
	case next.Verb == Clear:
		_, _ = fmt.Fprintf(&b, "next: %s %s until %s\n", next.Do, next.ID, next.Until.Sub(epoch()))
	default:
		b.WriteString(strings.TrimSpace(fmt.Sprintf("next: %s %s", next.Verb, next.ID)) + "\n")
	}
	return b.String()
}

func (p *player) event(line string) Event {
	p.t.Helper()
	words := strings.Fields(line)
	if len(words) < 5 {
		p.t.Fatalf("an event %q", line)
	}
	e := Event{ID: words[0], Type: Type(words[1]), Started: words[2] == "started", Resources: strings.Split(words[4], ","), Duration: -1, Source: "Platform"}
	if words[3] != "-" {
		d, err := time.ParseDuration(words[3])
		if err != nil {
			p.t.Fatal(err)
		}
		e.NotBefore = epoch().Add(d)
	}
	if len(words) > 5 {
		n, err := strconv.Atoi(words[5])
		if err != nil {
			p.t.Fatal(err)
		}
		e.Duration = n
	}
	return e
}

// What is done about an event by its type and the settings, at the first look.
func TestRules(t *testing.T) {
	seconds := func(n int) *int { return &n }
	rules := func(text string) Settings {
		s, err := ParseSettings([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, c := range []struct {
		name        string
		settings    Settings
		event       Event
		do          Do
		acknowledge bool
	}{
		{"Preempt", Settings{}, Event{Type: Preempt}, Leave, true},
		{"Terminate", Settings{}, Event{Type: Terminate}, Leave, true},
		{"Reboot", Settings{}, Event{Type: Reboot}, Drain, true},
		{"Redeploy", Settings{}, Event{Type: Redeploy}, Drain, true},
		{"Freeze", Settings{}, Event{Type: Freeze, Duration: -1}, Cordon, false},
		{"a short Freeze", Settings{}, Event{Type: Freeze, Duration: 9}, Ignore, false},
		{"a long Freeze", Settings{}, Event{Type: Freeze, Duration: 10}, Cordon, false},
		{"a Freeze that is none", Settings{IgnoreFreezeBelow: seconds(0)}, Event{Type: Freeze, Duration: 0}, Ignore, false},
		{"a short Freeze that matters", Settings{IgnoreFreezeBelow: seconds(3)}, Event{Type: Freeze, Duration: 5}, Cordon, false},
		{"an unknown type", Settings{}, Event{Type: "Nap"}, Ignore, false},
		{"with another machine", Settings{}, Event{Type: Reboot, Resources: []string{vmName, "pool1_4"}}, Drain, false},
		{"with itself in capitals", Settings{}, Event{Type: Reboot, Resources: []string{vmName, "POOL1_3"}}, Drain, true},
		{"with another machine, always", rules(`{"events":{"Reboot":{"acknowledge":"always"}}}`), Event{Type: Reboot, Resources: []string{vmName, "pool1_4"}}, Drain, true},
		{"never", rules(`{"events":{"Preempt":{"acknowledge":"never"}}}`), Event{Type: Preempt}, Leave, false},
		{"ignored, so not hurried", rules(`{"events":{"Reboot":{"action":"ignore"}}}`), Event{Type: Reboot}, Ignore, false},
		{"ignored and hurried", rules(`{"events":{"Freeze":{"action":"ignore","acknowledge":"alone"}}}`), Event{Type: Freeze, Duration: -1}, Ignore, true},
		{"no admission server", Settings{stay: true}, Event{Type: Preempt}, Drain, true},
		{"no notice of a Reboot", Settings{}, Event{Type: Reboot, Started: true}, Cordon, false},
		{"no notice of a Preempt", Settings{}, Event{Type: Preempt, Started: true}, Leave, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := c.event
			e.ID = "E1"
			if e.Resources == nil {
				e.Resources = []string{vmName}
			}
			s, _, notices := Decide(State{}, Observed{Name: vmName, BootID: "boot1", Document: Document{Incarnation: "1", Events: []Event{e}}, Settings: c.settings}, epoch())
			if len(s.Events) != 1 || s.Events[0].Do != c.do || s.Events[0].Acknowledge != c.acknowledge || len(notices) != 1 {
				t.Errorf("%+v %v, want %s, acknowledge %v", s.Events, notices, c.do, c.acknowledge)
			}
		})
	}
}

// Events of other machines are of no concern, whatever they are called.
func TestOtherMachines(t *testing.T) {
	o := Observed{Name: vmName, BootID: "boot1", Document: Document{Incarnation: "2", Events: []Event{
		{ID: "E1", Type: Preempt, Resources: []string{"pool1_30", "pool1_", "1_3", "pool1000003", ""}}, {ID: "E2", Type: Preempt}}}}
	s, next, notices := Decide(State{}, o, epoch())
	if len(s.Events) > 0 || next != nil || len(notices) > 0 {
		t.Errorf("%+v %+v %v", s, next, notices)
	}
}

// Decide does not change what it is given: the daemon compares before and after.
func TestDecideIsPure(t *testing.T) {
	o := Observed{Name: vmName, BootID: "boot1", Document: Document{Events: []Event{{ID: "E1", Type: Preempt, Resources: []string{vmName}}}}}
	s := State{Events: []Handling{{ID: "E0", Type: Freeze, Do: Cordon, Phase: Cleared}, {ID: "E1", Type: Preempt, Do: Leave, Phase: Noticed, Deadline: epoch()}}}
	before := slices.Clone(s.Events)
	_, next, _ := Decide(s, o, epoch())
	if fmt.Sprint(before) != fmt.Sprint(s.Events) {
		t.Errorf("changed to %+v", s.Events)
	}
	Record(s, Outcome{Action: *next, Done: true}, o, epoch())
	if fmt.Sprint(before) != fmt.Sprint(s.Events) {
		t.Errorf("changed to %+v", s.Events)
	}
}
