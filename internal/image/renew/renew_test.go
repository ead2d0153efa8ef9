package renew_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/image/renew"
	"github.com/ortet/ortet/internal/workflow"
)

// wants wants the sentence of an error, and its exit code.
func wants(t *testing.T, err error, exit int, sentence ...string) {
	t.Helper()
	for _, s := range sentence {
		if workflow.ExitCode(err) != exit || err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("exit %d: %v\nwant %d with %q", workflow.ExitCode(err), err, exit, s)
		}
	}
}

// Six nodes come to the model's image with two at a time out of service at most, and the first alone.
func TestRolloutOfSixNodes(t *testing.T) {
	play(t, 6, func(w *world) {
		p, err := renew.New(w.config(w.Context())).Plan(w.Context(), request())
		if err != nil || len(p.Nodes) != 6 || p.MaxUnavailable != 2 || len(p.Problems)+len(p.LeftOut) > 0 || p.Nodes[0].From != version(1).Name() || p.Nodes[0].Why != renew.Older {
			t.Fatalf("plan %+v, %v", p, err)
		}
		w.requests, w.out = map[string]int{}, 0
		begun := time.Now()
		r, err := w.rollout(w.Context(), request())
		if err != nil || !slices.Equal(slices.Sorted(slices.Values(r.Renewed)), w.nodes()) || !r.Image.Equal(version(2)) {
			t.Errorf("%+v, %v\n%s", r, err, strings.Join(w.lines, "\n"))
		}
		w.has(2)
		total := 0
		for _, n := range w.requests {
			total += n
		}
		t.Logf("%d requests to Azure (%v) for 6 nodes in %s, at most %d out of service", total, w.requests, time.Since(begun), w.out)
		if w.out != 2 || total > 6*40 {
			t.Errorf("%d nodes were out of service at once, want 2; %d requests to Azure, want at most %d", w.out, total, 6*40)
		}
		if len(w.drained) != 6 {
			t.Errorf("drained %v, want each node", w.drained)
		}
		before := w.boots()
		r, err = w.rollout(w.Context(), request())
		if err != nil || len(r.Renewed) > 0 || !maps.Equal(before, w.boots()) {
			t.Errorf("again: %+v, %v", r, err)
		}
	})
}

// A node that does not come back stops the rollout, stays cordoned and is named; once its machine is
// mended, the same command does the rest.
func TestNodeThatDoesNotComeBack(t *testing.T) {
	play(t, 4, func(w *world) {
		q := request()
		q.MaxUnavailable = "1"
		w.bad["pool1000001"] = true
		r, err := w.rollout(w.Context(), q)
		wants(t, err, workflow.ExitNeedsPerson, "node pool1000001 did not come back with 2026.11.02", "ready: ", "node pool1000001 stays cordoned", "1 node renewed, 2 not begun")
		if r.Failed != "pool1000001" || !slices.Equal(r.Renewed, []string{"pool1000000"}) || !w.kube.Node("pool1000001").Spec.Unschedulable {
			t.Errorf("%+v\n%s", r, strings.Join(w.lines, "\n"))
		}
		before := w.boots()
		if before["pool1000002"] != 1 || before["pool1000003"] != 1 {
			t.Errorf("the rest was touched: %v", before)
		}
		w.bad["pool1000001"] = false
		w.restart("pool1000001")
		if r, err = w.rollout(w.Context(), q); err != nil || r.Renewed[0] != "pool1000001" || len(r.Renewed) != 3 {
			t.Errorf("mended: %+v, %v\n%s", r, err, strings.Join(w.lines, "\n"))
		}
		w.has(2)
	})
}

// Interrupted anywhere, the same command goes on; a node whose disk was not replaced yet is in service.
func TestInterruptedRolloutGoesOn(t *testing.T) {
	for _, at := range []string{"drain it", "give its machine the model", "wait until it is back"} {
		play(t, 3, func(w *world) {
			ctx, cancel := context.WithCancel(w.Context())
			w.on = func(what string) {
				if strings.HasSuffix(what, at) {
					cancel()
				}
			}
			r, err := w.rollout(ctx, request())
			wants(t, err, workflow.ExitInterrupted, "ortet rollout pool1 goes on with 2026.11.02")
			if len(r.Renewed) > 0 || r.Failed != "" {
				t.Errorf("at %s: %+v", at, r)
			}
			if drains := strings.HasPrefix(at, "drain"); drains {
				w.has(1)
			}
			w.on = nil
			if r, err = w.rollout(w.Context(), request()); err != nil || len(r.Renewed) != 3 {
				t.Errorf("at %s: again: %+v, %v\n%s", at, r, err, strings.Join(w.lines, "\n"))
			}
			w.has(2)
		})
	}
}

// A model that was changed and changed back leaves nothing to do, whatever latestModelApplied says.
func TestModelChangedAndBack(t *testing.T) {
	play(t, 2, func(w *world) {
		w.model(object{"id": string(version(1))}, "Manual")
		list, err := w.config(w.Context()).Cloud.Instances(w.Context(), pool)
		if err != nil || list[0].LatestModelApplied {
			t.Fatalf("azsim calls it up to date, which Azure does not: %+v, %v", list, err)
		}
		if r, err := w.rollout(w.Context(), request()); err != nil || len(r.Renewed)+len(r.Left) > 0 || len(w.drained) > 0 {
			t.Errorf("%+v, %v, drained %v", r, err, w.drained)
		}
	})
}

// A node that a budget of pods keeps is named and stays in service, and the others are renewed.
func TestBudgetOfPodsKeepsNode(t *testing.T) {
	play(t, 3, func(w *world) {
		w.budget("web-pool1000000")
		r, err := w.rollout(w.Context(), request())
		if err != nil || len(r.Renewed) != 2 || len(r.Left) != 1 || r.Left[0].Node != "pool1000000" || !strings.Contains(r.Left[0].Why, "PodDisruptionBudget default/keep") {
			t.Errorf("%+v, %v\n%s", r, err, strings.Join(w.lines, "\n"))
		}
		w.has(2, "pool1000000")
		if n := w.kube.Node("pool1000000"); n.Spec.Unschedulable || len(n.Annotations) > 0 || slices.Contains(w.drained, n.Name) {
			t.Errorf("%+v; drained %v", n, w.drained)
		}
	})
}

func refusals(t *testing.T, w *world, q renew.Request, code string) {
	t.Helper()
	_, err := w.rollout(w.Context(), q)
	p, planErr := renew.New(w.config(w.Context())).Plan(w.Context(), q)
	if !workflow.RefusedFor(err, code) || planErr != nil || len(p.Problems) != 1 || p.Problems[0].Code != code || p.Problems[0].WayOut == "" {
		t.Errorf("want %s: %v; plan %+v, %v", code, err, p.Problems, planErr)
	}
	t.Logf("%v", errors.Unwrap(err))
}
