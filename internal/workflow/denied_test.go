package workflow_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/workflow"
)

// Where the lock is not allowed, all that lacks is named at once; the lock's own refusal is the last resort.
func TestLockIsDenied(t *testing.T) {
	for _, problems := range [][]fleet.Problem{nil, {{Code: "ClusterDenied", What: "may not create leases"}, {Code: "AzureDenied", What: "may not write"}}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.denied = 1
			p := &process{world: w, name: "a"}
			err := p.runner(t).Run(t.Context(), pool, &small{p: p, problems: problems})
			want := map[bool]int{true: workflow.ExitRefused, false: workflow.ExitFailed}[problems != nil]
			if workflow.ExitCode(err) != want || (problems != nil) == strings.Contains(err.Error(), "no right to create leases") || w.begins() > 0 {
				t.Errorf("%v", err)
			}
			for _, x := range problems {
				if !strings.Contains(err.Error(), x.What) {
					t.Errorf("%v does not name %q", err, x.What)
				}
			}
		})
	}
}

// A run whose end cannot be recorded is not done: the record is open, and a person is told why.
func TestEndIsNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.deniedEnd = true
		p := &process{world: w, name: "a"}
		err := p.runner(t).Run(t.Context(), pool, &small{p: p})
		if workflow.ExitCode(err) != workflow.ExitNeedsPerson || !strings.HasPrefix(err.Error(), "step journal: ") || !strings.Contains(err.Error(), "no right to update secrets") {
			t.Errorf("%v", err)
		}
		if rec, err := w.records.Load(t.Context(), string(pool)); err != nil || !rec.Open() {
			t.Errorf("%+v, %v", rec, err)
		}
		w.deniedEnd = false
		must(t, p.runner(t).Run(t.Context(), pool, &small{p: p}))
		must(t, w.clean(true))
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
