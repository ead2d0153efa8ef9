package simulate

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/workflow"
)

// TestOutcomeInterruptedCaptureIsAbandoned: a capture that was killed at any of these requests is
// undone and closed, given by any node or by the pool; what stays is said, and the exit code is 4 if
// the model was changed.
func TestOutcomeInterruptedCaptureIsAbandoned(t *testing.T) {
	for _, c := range []struct {
		at   string
		node bool
		exit int
		left string // of the error
	}{
		{at: powerOff, node: true},
		{at: "azure PUT disks/disk_pool1_work"},
		{at: putVersion, node: true},
		{at: patchModel, exit: workflow.ExitNeedsPerson, left: "the model names 2000.01.01, from which new nodes come: ortet rollback pool1 goes back"},
	} {
		t.Run(c.at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(Story{Seed: 1, Pool: usual, Happen: at(c.at, 1, "kill after")})
				defer w.close()
				config, changes := w.of(t, namespace)
				captures := capture.New(config)
				node, pool := "", w.pool
				if c.node {
					node, pool = w.nodeName(1), ""
				}
				nothing, err := captures.Abandon(t.Context(), pool, node)
				if err != nil || !nothing.NothingToDo || nothing.Abandoned || changes() > 0 {
					t.Errorf("with nothing open: %+v, %v, %d changes", nothing, err, changes())
				}
				w.pursue(0, Ask{Do: "capture", Once: true})
				if _, err := captures.Abandon(t.Context(), pool, node); workflow.ExitCode(err) != c.exit || c.exit != 0 && !strings.Contains(err.Error(), c.left) {
					t.Errorf("it ends with %v, expected exit %d and %q", err, c.exit, c.left)
				}
				if j := w.journal(); j == nil || j.Ended == nil {
					t.Fatalf("the record is open: %+v", j)
				} else if c.at != patchModel && !strings.HasSuffix(j.Ended.Message, "did not finish, and was undone") {
					t.Errorf("the record ends with %q", j.Ended.Message)
				}
				time.Sleep(time.Hour)
				name := w.nodeName(0)
				if s := w.stateOf(name); s.unschedulable || !w.isReady(w.computerOf(name)) || s.annotations["ortet.io/capture"] != "" {
					t.Errorf("the donor is not back: %+v", s)
				}
				if again, err := captures.Abandon(t.Context(), pool, node); err != nil || !again.NothingToDo {
					t.Errorf("the second time: %+v, %v", again, err)
				}
			})
		})
	}
}

// TestOutcomeAbandonSaysWhatItDoes: the dry run names the undos and changes nothing, and what stays
// is in the result. A note that was printed while it ran is not printed again.
func TestOutcomeAbandonSaysWhatItDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Seed: 1, Pool: usual, Happen: at(patchModel, 1, "kill before")})
		defer w.close()
		config, changes := w.of(t, namespace)
		var said []string // notes
		config.Report = func(e workflow.Event) {
			if e.Kind == workflow.EventNote {
				said = append(said, e.Message)
			}
		}
		captures := capture.New(config)
		w.pursue(0, Ask{Do: "capture", Once: true})
		time.Sleep(2 * leaseFor)
		plan, err := captures.PlanAbandon(t.Context(), w.pool, "")
		if notes := strings.Join(plan.Notes, "\n"); err != nil || len(plan.Problems) > 0 || plan.NothingToDo || changes() > 0 || plan.Donor != w.nodeName(0) ||
			!strings.Contains(notes, "this command abandons it") {
			t.Errorf("the dry run: %+v, %v, %d changes", plan, err, changes())
		}
		elsewhere, _ := w.of(t, "team-b")
		for where, theirs := range map[fleet.ResourceID]*capture.Service{w.pool: capture.New(elsewhere), "": captures} { // "": of a node that does not exist
			node, code := "", capture.CodeOtherNamespace
			if where == "" {
				node, code = "no-such-node", "NoPool"
			}
			refused, err := theirs.PlanAbandon(t.Context(), where, node)
			if err != nil || len(refused.Problems) != 1 || refused.Problems[0].Code != code || len(refused.Steps) > 0 || refused.NothingToDo {
				t.Errorf("the dry run of %q%s: %+v, %v", where, node, refused, err)
			}
			if _, err := theirs.Abandon(t.Context(), where, node); !workflow.RefusedFor(err, code) {
				t.Errorf("the command of %q%s: %v", where, node, err)
			}
		}
		result, err := captures.Abandon(t.Context(), w.pool, "")
		if left := strings.Join(result.Left, "\n"); err != nil || !result.Abandoned || result.NothingToDo || !strings.Contains(left, "version 2000.01.01, which is complete") {
			t.Errorf("%+v, %v", result, err)
		}
		if strings.Contains(w.modelNow().image, "2000.01.01") {
			t.Error("the model names the version")
		}
		if len(said) != 1 || !strings.HasSuffix(said[0], "is undone first: this command abandons it") || slices.Contains(result.Notes, said[0]) {
			t.Errorf("notes while it ran: %q; of the result, below them: %q", said, result.Notes)
		}
		refused := new(workflow.Refused)
		if _, err := capture.New(elsewhere).Abandon(t.Context(), w.pool, ""); !errors.As(err, &refused) || refused.Problems[0].Code != capture.CodeOtherNamespace {
			t.Errorf("in another namespace: %v", err)
		}
	})
}

// TestOutcomeFreshCaptureIsAbandoned: the donor is deleted with the rest, and no sentence names it as a
// node that could be captured.
func TestOutcomeFreshCaptureIsAbandoned(t *testing.T) {
	for at, left := range map[string]string{"azure POST virtualMachineScaleSets/pool1/virtualMachines/4/powerOff": "", "azure POST virtualMachineScaleSets/pool1/delete": "ortet capture NODE, with any node of the pool, does the rest instead"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := freshStory()
				s.Happen = []Event{{At: at, N: 1, What: "kill after"}}
				w := newWorld(s)
				defer w.close()
				config, _ := w.of(t, namespace)
				captures := capture.New(config)
				w.pursue(0, Ask{Do: "capture", Fresh: true, Once: true})
				time.Sleep(2 * leaseFor)
				plan, err := captures.PlanAbandon(t.Context(), w.pool, "")
				if err != nil || plan.Donor != "the fresh donor" {
					t.Errorf("the dry run is of %q: %v", plan.Donor, err)
				}
				result, err := captures.Abandon(t.Context(), w.pool, "")
				if left == "" && err != nil || left != "" && (workflow.ExitCode(err) != workflow.ExitNeedsPerson || !strings.Contains(err.Error(), left)) {
					t.Errorf("%v, want %q", err, left)
				}
				if n := w.modelNow().capacity; n != 4 || len(w.instancesOf("")) != 4 || result.Donor != "the fresh donor" {
					t.Errorf("capacity %d, %d instances, of %q", n, len(w.instancesOf("")), result.Donor)
				}
			})
		})
	}
}

// TestOutcomeFreshDonorInsteadOfANode: a command with --fresh names itself as it undoes the capture of a node.
func TestOutcomeFreshDonorInsteadOfANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := freshStory()
		s.Happen = at(powerOff, 1, "kill after")
		w := newWorld(s)
		defer w.close()
		config, changes := w.of(t, namespace)
		w.pursue(0, Ask{Do: "capture", Once: true})
		time.Sleep(2 * leaseFor)
		p, err := capture.New(config).Plan(t.Context(), capture.Request{Fresh: w.pool})
		if notes := strings.Join(p.Notes, "\n"); err != nil || changes() > 0 || !strings.Contains(notes, "is undone first: this command captures the fresh donor") {
			t.Errorf("%v, %d changes, notes %q", err, changes(), p.Notes)
		}
		if slices.Contains(p.Notes, "") {
			t.Errorf("an empty note in %q", p.Notes)
		}
	})
}
