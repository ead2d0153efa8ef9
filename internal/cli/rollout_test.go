package cli

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // cmd/ortet has it

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/renew"
	"github.com/ortet/ortet/internal/schedule"
	"github.com/ortet/ortet/internal/workflow"
)

func rolloutPlan() renew.Plan {
	return renew.Plan{Pool: pool1, Image: theVersion, MaxUnavailable: 1,
		Nodes: []renew.Planned{
			{Node: "k8s-pool1-12345678-vmss000004", Instance: "k8s-pool1-12345678-vmss_4", Why: renew.Unfinished, From: "2026.11.20"},
			{Node: "k8s-pool1-12345678-vmss000002", Instance: "k8s-pool1-12345678-vmss_2", Why: renew.Quarantined, From: "2026.11.19",
				Disk: []string{"emptyDir cache of pod default/web-7d4b9c", "local volume pvc-0f6b1d2e-3c4a-4f5b-8d6e-7a8b9c0d1e2f of pod databases/postgres-0"}},
			{Instance: "k8s-pool1-12345678-vmss_7", Why: renew.Older, From: "Debian:debian-12:12-gen2:0.20261101.1918"},
		},
		Differs: []string{"size Standard_D4s_v5 instead of Standard_D2s_v5", "customData"},
		LeftOut: []renew.LeftOut{{Node: "k8s-pool1-12345678-vmss000001", Why: "a capture prepares its disk there; it is renewed once the capture has ended"}},
		Notes:   []string{"the pool's journal has an open capture"},
	}
}

func TestRolloutShown(t *testing.T) {
	nothing := renew.Plan{Pool: pool1, Image: theVersion, MaxUnavailable: 1, LeftOut: rolloutPlan().LeftOut}
	done := renew.Result{Pool: pool1, Image: theVersion, Renewed: []string{"k8s-pool1-12345678-vmss000004", "k8s-pool1-12345678-vmss000002"}, Left: rolloutPlan().LeftOut}
	closed := done
	closed.Waiting = "3 nodes for the window \"0 1 * * 6\" (Europe/Berlin) for 5h, which opens next at 2026-12-05T01:00:00+01:00"
	for name, show := range map[string]func(io.Writer){
		"rollout-plan":         func(w io.Writer) { writeRolloutPlan(w, rolloutPlan()) },
		"rollout-plan-nothing": func(w io.Writer) { writeRolloutPlan(w, nothing) },
		"rollout":              func(w io.Writer) { writeRollout(w, done) },
		"rollout-closed":       func(w io.Writer) { writeRollout(w, closed) },
		"rollout-nothing":      func(w io.Writer) { writeRollout(w, renew.Result{Pool: pool1, Image: theVersion}) },
		"rollout-waits": func(w io.Writer) {
			writeRollout(w, renew.Result{Pool: pool1, Image: theVersion, Waiting: closed.Waiting})
		},
	} {
		var b strings.Builder
		show(&b)
		for l := range strings.Lines(b.String()) {
			if len([]rune(strings.TrimSuffix(l, "\n"))) > resultWidth {
				t.Errorf("%s: wider than %d columns: %s", name, resultWidth, l)
			}
		}
		golden(t, name, b.String())
	}
}

// A plan with blockers ends as refused in any form, and a program still reads the plan's keys.
func TestRolloutPlanRefused(t *testing.T) {
	p := rolloutPlan()
	p.Problems = []fleet.Problem{{Code: "Rolling", On: string(pool1), What: "its upgrade policy is Rolling", WayOut: "Azure does it"}}
	for _, form := range []string{"table", "json"} {
		var out strings.Builder
		o := &options{output: form, process: Process{Out: &out}}
		if err := o.printRolloutPlan(p); workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), "upgrade policy is Rolling") {
			t.Errorf("%s: %v", form, err)
		}
		var read struct {
			Exit     int
			Nodes    []renew.Planned
			Problems []fleet.Problem
		}
		if form == "table" && out.Len() > 0 {
			t.Errorf("a plan that is refused is shown:\n%s", out.String())
		} else if err := json.Unmarshal([]byte(out.String()), &read); form == "json" && (err != nil || read.Exit != workflow.ExitRefused || len(read.Nodes) != 3 || len(read.Problems) != 1) {
			t.Errorf("%v: %s", err, out.String())
		}
	}
}

// A rollout that fails says what it did, beside the node that failed.
func TestRolloutFailed(t *testing.T) {
	r := renew.Result{Pool: pool1, Image: theVersion, Renewed: []string{"n1", "n2"}, Failed: "n3", Why: "join: runs and has no Node", Left: []renew.LeftOut{{Node: "n4", Why: "it is protected"}}}
	failure := &workflow.Outcome{Exit: workflow.ExitNeedsPerson, Step: renew.Step, Ended: "n3 stays cordoned"}
	failure.Err = io.ErrUnexpectedEOF
	var out, said strings.Builder
	o := &options{output: "table", process: Process{Out: &out, Err: &said}}
	err := o.printFailure(r, rolloutNotes(r), failure)
	if workflow.ExitCode(err) != workflow.ExitNeedsPerson || out.Len() > 0 {
		t.Errorf("%v, and the result is %q", err, out.String())
	}
	for _, want := range []string{"2 nodes came to 2026.11.21: n1, n2", "n4 is left out: it is protected"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("%q is missing in: %s", want, said.String())
		}
	}
}

func TestWindowNotes(t *testing.T) {
	now := time.Date(2026, 11, 27, 23, 30, 0, 0, time.UTC)
	for name, c := range map[string]struct{ window, zone, says string }{
		"open":   {"0 0 * * 6", "Europe/Berlin", `"0 0 * * 6" (Europe/Berlin) for 5h is open until 2026-11-28T05:00:00+01:00`},
		"closed": {"0 1 * * 6", "Europe/Berlin", "is closed until 2026-11-28T01:00:00+01:00: no node is begun before"},
	} {
		w, err := schedule.Parse(c.window, 5*time.Hour, c.zone)
		if err != nil {
			t.Fatal(err)
		}
		if notes := windowNotes(w, now); len(notes) != 1 || !strings.Contains(notes[0], c.says) {
			t.Errorf("%s: %q, want %q", name, notes, c.says)
		}
	}
	if notes := windowNotes(schedule.Window{}, now); notes != nil {
		t.Errorf("without a window: %q", notes)
	}
}
