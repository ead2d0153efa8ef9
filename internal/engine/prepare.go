package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/wire"
)

// preparation is what was found before a capture.
type preparation struct {
	observed prototype.Observed
	input    prototype.CaptureInput
	steps    []prototype.Step
	plan     prototype.Plan
}

// prepare observes and decides, and changes nothing.
func (e *Engine) prepare(ctx context.Context, t *task, q CaptureRequest) (preparation, error) {
	o, names := e.observe(ctx, t, q)
	if ctx.Err() != nil {
		return preparation{}, context.Cause(ctx)
	}
	options := q.options()
	course := prototype.Course{}
	if o.Pool != nil {
		course = prototype.CourseOf(o, names, options, e.now())
		denied, err := ask(ctx, t, func(ctx context.Context) ([]string, error) {
			return e.cloud.Denied(ctx, o.Pool.ID.Group(), azure.ActionsOf(prototype.CaptureChanges(options, course)...))
		})
		o.DeniedAzure = denied
		if err != nil {
			o.Unreadable = append(o.Unreadable, fleet.Problem{
				Code: "Unreadable", On: string(o.Pool.ID.Group()), What: "what these credentials may do cannot be read: " + err.Error(),
				WayOut: "let them read their own permissions",
			})
		}
	}
	p := preparation{observed: o, plan: prototype.Plan{Kind: prototype.KindCapture, Donor: q.Node, Notes: course.Notes}}
	p.plan.Problems = prototype.CaptureProblems(o, options, course)
	p.plan.Problems = append(p.plan.Problems, e.requestProblems(q, course)...)
	if o.Pool == nil {
		return p, nil
	}
	p.plan.Pool, p.plan.Version = o.Pool.ID, names.Version
	p.input = prototype.CaptureInput{
		Names: names, Options: options, Pool: *o.Pool, Course: course,
		HasGallery: o.Gallery != nil, HasDefinition: o.Definition != nil,
		InModel: pinned(o.Pool.Model.Image, names.Version),
	}
	if o.Workbench != nil {
		p.input.Workbench = o.Workbench.Node.Name
		p.plan.Workbench = o.Workbench.Node.Name
	}
	p.input.Doomed, _ = options.Extensions.Doomed(o.Pool.Model.Extensions)
	p.input.Prunable = prunable(o.Versions, o.Uses, names.Version, options.History)
	p.steps = prototype.CaptureSteps(p.input)
	p.plan.Steps = p.steps
	p.plan.NothingToDo = prototype.NothingToDo(p.input)
	if p.plan.NothingToDo && q.NewNodes > 0 {
		p.plan.Notes = append(p.plan.Notes, "no nodes were added, since nothing else was to do")
	}
	if o.Donor != nil && o.Donor.Unschedulable {
		p.plan.Notes = append(p.plan.Notes, "node "+q.Node+" is cordoned, and stays so")
	}
	return p, nil
}

// baked reports whether the model's customData is the no-op of a capture with --bootstrap baked.
func (p preparation) baked() bool {
	pool := p.input.Pool
	used, known := prototype.VersionOf(p.observed.Versions, pool.Model.Image, pool.Location)
	return known && used.Tags[fleet.TagCustomData] == sha(noop)
}

// prunable names what will be pruned once the version is there.
func prunable(versions []fleet.ImageVersion, uses []fleet.ImageUse, id fleet.ResourceID, history int) []string {
	if _, there := prototype.FindVersion(versions, id); !there {
		history--
	}
	doomed, _ := prototype.Prune(versions, uses, id, history)
	var names []string
	for _, v := range doomed {
		if !v.ID.Equal(id) {
			names = append(names, v.Name)
		}
	}
	return names
}

// requestProblems are those that only the engine's own request has.
func (e *Engine) requestProblems(q CaptureRequest, course prototype.Course) []fleet.Problem {
	var problems []fleet.Problem
	if q.Bootstrap != BootstrapKeep && q.Bootstrap != BootstrapBaked {
		problems = append(problems, fleet.Problem{Code: "BadBootstrap", On: "--bootstrap", What: fmt.Sprintf("%q is neither keep nor baked", q.Bootstrap), WayOut: "say one of them"})
	}
	for _, at := range q.AcceptSecrets {
		if err := wire.CheckAcceptedSecret(at); err != nil {
			problems = append(problems, fleet.Problem{Code: "BadPath", On: "--accept-secret", What: err.Error(), WayOut: "give the path as the scan reports it"})
		}
	}
	if n := len(q.AcceptSecrets); n > wire.MaxAcceptedSecrets {
		problems = append(problems, fleet.Problem{Code: "BadNumber", On: "--accept-secret", What: fmt.Sprintf("%d paths", n), WayOut: fmt.Sprintf("give at most %d; a folder that ends in / stands for all below it", wire.MaxAcceptedSecrets)})
	}
	if e.config.Image == "" && course.NeedsWorkbench() {
		problems = append(problems, fleet.Problem{Code: "NoContainerImage", On: "--image", What: "the container image with ortet-node is not known", WayOut: "name it"})
	}
	return problems
}

// Plan implements Doors.
func (e *Engine) Plan(ctx context.Context, q CaptureRequest) (prototype.Plan, error) {
	q = q.withDefaults()
	r, done := e.begin(ctx)
	defer done()
	t := r.task(prototype.Step{ID: prototype.StepPreflight, Title: "Run preflight checks"})
	rec, open, journalErr := r.openRecord(ctx, t, q.Node)
	p, err := e.prepare(ctx, t, q)
	if err != nil {
		return prototype.Plan{}, err
	}
	if journalErr != nil {
		if len(p.plan.Problems) > 0 {
			return p.plan, nil // the permission that lacks is among them
		}
		return prototype.Plan{}, journalErr
	}
	if held := e.atWork(ctx, t, p.plan.Pool, rec, open); len(held) > 0 {
		p.plan.Problems = held // the others may be of its making
	} else if !open && p.inspectable() {
		r.sweepLook(p.plan.Pool, false)
		err := r.inspectBefore(q, p)
		r.endLook()
		if refused := new(Refused); errors.As(err, &refused) {
			p.plan.Problems = append(p.plan.Problems, refused.Problems...)
		} else if err != nil {
			return prototype.Plan{}, err
		}
		p.plan.Notes = append(p.plan.Notes, r.notes...)
	}
	if p.input.Course.FromDonor() && p.input.Course.Version == nil {
		p.plan.Notes = append(p.plan.Notes, "the drain evicts the pods of "+q.Node+": where they fit on no other node, an autoscaler may add one, and remove it later; the model is changed once that has ended")
	}
	if open {
		p.plan.Resumes = true
		p.plan.NothingToDo = false
		p.plan.Notes = append(p.plan.Notes, resumption(rec, q.Node))
	}
	return p.plan, nil
}

// inspectable reports whether a dry run may inspect the donor's disk: nothing is
// wrong, or pods alone that a drain would not evict.
func (p preparation) inspectable() bool {
	return !slices.ContainsFunc(p.plan.Problems, func(x fleet.Problem) bool {
		return x.Code != "PodNotEvictable" && x.Code != "BudgetAllowsNoEviction"
	})
}

func resumption(rec journal.Record, node string) string {
	var f facts
	_ = json.Unmarshal(rec.Facts, &f) // what cannot be read is left out of the sentence
	what := "is finished first"
	if rec.Kind != prototype.KindCapture || rec.Donor != node || f.Undoing != "" {
		what = "is undone first"
	}
	return fmt.Sprintf("%s %s of %s, begun %s, has not ended and %s", rec.Kind, rec.Capture, first(rec.Donor, rec.Pool), rec.Begun.UTC().Format(time.RFC3339), what)
}
