package auto

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/donors"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/workflow"
)

// How many donors of a pool are tried in one run: nodes, and donors that are raised.
const (
	maxDonors = 5
	maxRaised = 2
)

// Run captures those of the pools that are due, MaxParallel at a time, and gives a
// Result for each in their order; with dryRun, it plans them and changes nothing. Those
// that took each other's nodes are run again at the end, one after the other. When ctx
// ends, captures under way return their donors to service first, and no other is begun.
func (a *Auto) Run(ctx context.Context, pools []fleet.ResourceID, all, dryRun bool) []Result {
	results := make([]Result, len(pools))
	// Pods that inspect and generalise are named by the pool's name, which pools of several
	// resource groups may share: these follow one another.
	byName := map[string][]int{}
	for i, id := range pools {
		name := strings.ToLower(id.Name())
		byName[name] = append(byName[name], i)
	}
	run := func(i int) {
		r := a.run(ctx, pools[i], all, dryRun)
		results[i] = r.ended()
	}
	var g errgroup.Group
	g.SetLimit(a.c.MaxParallel)
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		g.Go(func() error {
			for _, i := range byName[name] {
				run(i)
			}
			return nil
		})
	}
	_ = g.Wait() // the results have the errors
	for i, r := range results {
		raised := a.c.Fresh && r.Exit != workflow.ExitRefused
		if len(pools) > 1 && !dryRun && ctx.Err() == nil && contended(r.Err) && !raised {
			run(i)
		}
	}
	return results
}

// ended is r with what its error says.
func (r Result) ended() Result {
	if r.Err == nil {
		return r
	}
	r.Outcome, r.Exit, r.Error = Ended, workflow.ExitCode(r.Err), r.Err.Error()
	if refused := new(workflow.Refused); errors.As(r.Err, &refused) {
		r.Problems = refused.Problems
	}
	if out := new(workflow.Outcome); errors.As(r.Err, &out) && out.Exit == workflow.ExitNeedsPerson {
		r.Left = out.Left
	}
	return r
}

// contended reports whether a capture may have ended, before its donor left service, for
// a node that another pool's capture used: as its workbench, or as its donor.
func contended(err error) bool {
	if workflow.RefusedFor(err, plan.CodeNoWorkbench) {
		return true
	}
	failed := new(workflow.Outcome)
	return errors.As(err, &failed) && failed.Exit == workflow.ExitFailed && (failed.Step == "protect" || failed.Step == "protect-workbench")
}

// Exit returns the gravest exit code of the results: 4, then 1, 5, 3, 0.
func Exit(results []Result) int {
	for _, code := range []int{workflow.ExitNeedsPerson, workflow.ExitFailed, workflow.ExitInterrupted, workflow.ExitRefused} {
		if slices.ContainsFunc(results, func(r Result) bool { return r.Exit == code }) {
			return code
		}
	}
	return workflow.ExitDone
}

// run brings one pool up to date.
func (a *Auto) run(ctx context.Context, pool fleet.ResourceID, all, dryRun bool) Result {
	r := Result{Pool: pool}
	passed, limit := map[string]bool{}, maxDonors
	if a.c.Fresh {
		limit = maxRaised
	}
	for tries := 0; ; tries++ {
		if ctx.Err() != nil {
			r.Err = &workflow.Outcome{Exit: workflow.ExitInterrupted, Step: "preflight", Err: context.Cause(ctx)}
			return r
		}
		observations, err := a.Observe(ctx, []fleet.ResourceID{pool}, all)
		if err != nil {
			r.Err = err
			return r
		}
		l := observations[0]
		r.Notes = l.Notes
		donor := l.next(passed)
		if a.c.Fresh {
			donor = "a fresh donor"
		}
		switch {
		case l.Left != "":
			r.Outcome, r.Because = LeftOut, l.Left
			return r
		case len(l.Refused) > 0:
			r.Err = &workflow.Refused{Problems: l.Refused}
			return r
		// The capture of a donor that is gone is ended by a run, before it takes the next.
		case l.Resumes != "" && (!dryRun || a.c.Fresh || slices.ContainsFunc(l.Candidates, isNamed(l.Resumes))):
			donor, r.Because = l.Resumes, "an interrupted capture, resumed"
		case !l.Due:
			if r.Err != nil {
				r.Passed = append(r.Passed, PassedOver{r.Donor, why(r.Err)})
			}
			r.Outcome, r.Because, r.Donor, r.Err = NotDue, l.Because, "", nil
			return r
		default:
			r.Because = l.Because
		}
		if donor == "" || passed[donor] || tries == limit {
			return r // with the last donor's error
		}
		if r.Err != nil {
			r.Passed = append(r.Passed, PassedOver{r.Donor, why(r.Err)})
		}
		r.Donor, r.Err = donor, nil
		if err = a.capture(ctx, &r, l, all, dryRun); err == nil {
			return r
		}
		r.Err = err
		switch {
		case a.c.Fresh && r.Capture != nil && r.Capture.DonorLost: // as evicted; all is undone
		case a.c.Fresh || !a.another(ctx, pool, donor, l.instances[donor], err):
			return r
		default:
			passed[donor] = true
		}
	}
}

// next is the best donor that was not passed over; "" where none is left.
func (l Observation) next(passed map[string]bool) string {
	for _, c := range l.Candidates {
		if c.Eligible && !passed[c.Node] {
			return c.Node
		}
	}
	return ""
}

// capture captures, or plans to, and notes in r what became of it.
func (a *Auto) capture(ctx context.Context, r *Result, l Observation, all, dryRun bool) error {
	q := a.c.Request
	if q.Node = r.Donor; a.c.Fresh {
		q.Node, q.Fresh = "", r.Pool
	}
	if dryRun {
		p, err := a.c.Service(r.Pool).Plan(ctx, q)
		if err = cmp.Or(err, workflow.NewRefused(p.Problems)); err == nil {
			r.Outcome, r.Plan = Planned, &p
		}
		return err
	}
	result, err := a.c.Service(r.Pool).Capture(ctx, q, func(ctx context.Context) error { return a.check(ctx, r.Pool, r.Donor, all) })
	r.Capture = &result
	r.Donor = cmp.Or(result.Donor, r.Donor)
	switch {
	case err != nil:
		return err
	case result.NothingToDo:
		r.Outcome, r.Donor, r.Because = NotDue, "", "today's version "+result.Version.Name()+" is there"
		if !q.PublishOnly {
			r.Because += ", and its model uses it"
		}
	case l.Resumes != "" && !result.Resumed:
		r.Because = "an interrupted capture was undone; " + l.Because
		fallthrough
	default:
		r.Outcome = Captured
	}
	return nil
}

// check chooses again under the pool's lock: another run may have captured the pool
// meanwhile, or taken the donor as its workbench.
func (a *Auto) check(ctx context.Context, pool fleet.ResourceID, donor string, all bool) error {
	observations, err := a.Observe(ctx, []fleet.ResourceID{pool}, all)
	if err != nil {
		return err
	}
	l := observations[0]
	what := ""
	for _, c := range l.Candidates {
		for _, reason := range c.Reasons {
			if c.Node == donor {
				what += "; " + reason.Text
			}
		}
	}
	switch {
	case len(l.Refused) > 0:
		return &workflow.Refused{Problems: l.Refused}
	case what != "":
	case l.Left != "":
		what = "; " + l.Left
	case !l.Due:
		what = "; " + l.Because
	case !a.c.Fresh && !slices.ContainsFunc(l.Candidates, isNamed(donor)):
		what = "; it is gone"
	default:
		return nil
	}
	return &workflow.Refused{Problems: []fleet.Problem{{
		Code: "NotChosen", On: "node " + donor, What: "it is no longer the donor to choose: " +
			strings.TrimPrefix(what, "; "), WayOut: "nothing: the pool is judged again",
	}}}
}

// another reports whether the next donor is to be tried after err: where it was refused
// for reasons of its own, or is gone and all is undone. Credentials that all nodes of the
// pool share are no such reason: the next disk would only be inspected for the same.
func (a *Auto) another(ctx context.Context, pool fleet.ResourceID, donor string, instance fleet.ResourceID, err error) bool {
	if refused := new(workflow.Refused); errors.As(err, &refused) {
		return !slices.ContainsFunc(refused.Problems, func(p fleet.Problem) bool {
			return p.Code == capture.CodePoolCredentials || p.On != "node "+donor && !(instance != "" && instance.Equal(fleet.ResourceID(p.On)))
		})
	}
	if failed := new(workflow.Outcome); !errors.As(err, &failed) || failed.Exit != workflow.ExitFailed {
		return false
	}
	observations, lookErr := a.Observe(ctx, []fleet.ResourceID{pool}, false)
	return lookErr == nil && !slices.ContainsFunc(observations[0].Candidates, isNamed(donor))
}

func isNamed(node string) func(donors.Candidate) bool {
	return func(c donors.Candidate) bool { return c.Node == node }
}

// why says why a donor was passed over, in one line: it was refused, or it is gone.
func why(err error) string {
	if refused := new(workflow.Refused); errors.As(err, &refused) {
		return strings.Join(fleet.Each(refused.Problems, func(p fleet.Problem) string { return p.What }), "; ")
	}
	return fmt.Sprintf("it is gone: %v", err)
}
