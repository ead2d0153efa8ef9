package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/prototype"
)

// returnFacts is what a rollback has decided.
type returnFacts struct {
	From    fleet.ResourceID `json:"from,omitempty"`
	To      fleet.ResourceID `json:"to"`
	TagFrom fleet.ResourceID `json:"tagFrom,omitempty"`
	Untag   bool             `json:"untag,omitempty"`
	// CustomData is the SHA-256 of what the model's is replaced by; "" leaves it.
	CustomData string `json:"customData,omitempty"`
	// Original is set instead of To where it goes back to before the first capture.
	Original *prototype.Original `json:"original,omitempty"`
}

// back is the decision, as far as it is written down.
func (f returnFacts) back() prototype.Return {
	return prototype.Return{To: fleet.ImageVersion{ID: f.To, Name: f.To.Name()}, Original: f.Original, TagFrom: f.TagFrom, Untag: f.Untag}
}

// asked reports whether this is what a request asks for.
func (f returnFacts) asked(to string) bool {
	return to == "" || to == Previous || to == Original && f.Original != nil || f.Original == nil && to == f.To.Name()
}

// A comeback is a rollback that was looked at.
type comeback struct {
	pool  fleet.Pool
	back  prototype.Return
	facts returnFacts
	had   string // SHA-256 of the customData that goes with what the model leaves
	plan  prototype.Plan
}

// lookBack observes and decides, and changes nothing.
func (e *Engine) lookBack(ctx context.Context, t *task, q RollbackRequest, last journal.Record) (c comeback) {
	c.plan = prototype.Plan{Kind: prototype.KindRollback}
	problem := func(p fleet.Problem) { c.plan.Problems = append(c.plan.Problems, p) }
	id, err := t.poolOf(ctx, q)
	if err != nil {
		problem(fleet.Problem{Code: "NoPool", On: first(string(q.Pool), "node "+q.Node), What: err.Error(), WayOut: "name a pool, or a node of one"})
		return c
	}
	c.pool, err = t.pool(ctx, id)
	if err != nil {
		problem(fleet.Problem{Code: "Unreadable", On: string(id), What: "it cannot be read: " + err.Error(), WayOut: "check its name and the credentials"})
		return c
	}
	c.plan.Pool = c.pool.ID
	for _, m := range prototype.ModelProblems(c.pool, q.AllowRolling, true, q.AllowOwned) {
		problem(m)
	}
	definition := prototype.DefinitionOf(c.pool.ID)
	versions, err := t.versions(ctx, definition, c.pool.Model.Image.Exact())
	if err != nil {
		problem(fleet.Problem{Code: "Unreadable", On: string(definition), What: "its versions cannot be read: " + err.Error(), WayOut: "check the credentials"})
		return c
	}
	denied, err := ask(ctx, t, func(ctx context.Context) ([]string, error) {
		return e.cloud.Denied(ctx, c.pool.ID.Group(), azure.ActionsOf(prototype.RollbackChanges()...))
	})
	if err != nil {
		problem(fleet.Problem{Code: "Unreadable", On: string(c.pool.ID.Group()), What: "what these credentials may do cannot be read: " + err.Error(), WayOut: "let them read their own permissions"})
	}
	w := &watcher{e: e, t: t}
	w.deniedAmong(ctx, e.accesses(RollbackAccesses(e.config.Namespace)), c.pool.ID)
	w.o.DeniedAzure, w.o.Pool = denied, &c.pool
	c.plan.Problems = append(c.plan.Problems, prototype.DeniedProblems(w.o)...)
	c.plan.Problems = append(c.plan.Problems, w.o.Unreadable...)

	back, refusal := prototype.ReturnTo(versions, c.pool, originalOf(last), q.To)
	if refusal != nil {
		problem(*refusal)
		return c
	}
	c.back = back
	current, known := prototype.VersionOf(versions, c.pool.Model.Image, c.pool.Location)
	c.facts = returnFacts{From: c.pool.Model.Image.ID, To: back.To.ID, TagFrom: back.TagFrom, Untag: back.Untag, Original: back.Original}
	if known {
		c.facts.From = current.ID
	}
	want, on := back.To.Tags[fleet.TagCustomData], string(back.To.ID)
	if back.Original != nil {
		want, on = back.Original.CustomData, string(c.pool.ID)
		if want == "" && (back.Original.Replaced || current.Tags[fleet.TagCustomData] == sha(noop)) && !back.NothingToDo {
			problem(fleet.Problem{Code: "CustomDataLost", On: on, What: "the model's customData from before the first capture is not known",
				WayOut: "name a version by --to, or set image and customData by hand"})
		}
	}
	has, went := current.Tags[fleet.TagCustomData], wentBy(last)
	if back.NothingToDo && want != "" && want != went && went == sha(noop) {
		// Somebody else set the image, and left the no-op of a baked capture.
		back.NothingToDo, c.back.NothingToDo = false, false
	}
	if want != "" && (want != has || went != "" && want != went) && !back.NothingToDo {
		c.facts.CustomData, c.had = want, believed(has, went)
		if want != sha(noop) {
			_, ok, err := found(ctx, t, func(ctx context.Context) (cluster.Kept, error) {
				return e.cluster.Kept(ctx, c.pool.ID, "customData", want)
			})
			if fleet.Is(err, fleet.KindDenied) { // it may be there
				problem(fleet.Problem{Code: "Unreadable", On: on, What: "the customData that it needs cannot be read: " + err.Error(), WayOut: "let the Role name that Secret"})
			} else if err != nil || !ok {
				problem(fleet.Problem{Code: "CustomDataLost", On: on,
					What:   "it needs customData that is not kept (SHA-256 " + want + ")",
					WayOut: "name a version that was made with --bootstrap baked, or capture a node again"})
			}
		}
		c.plan.Notes = append(c.plan.Notes, "the model's customData becomes what goes with "+back.Name())
	}
	if back.Original == nil && want == "" && has+went != "" && !back.NothingToDo {
		c.plan.Notes = append(c.plan.Notes, "which customData the nodes of "+back.Name()+" need is not known: the model keeps what it has")
	}
	if back.Original != nil {
		if missing := back.Original.Missing(c.pool.Model); len(missing) > 0 {
			c.plan.Notes = append(c.plan.Notes, "extensions that the model had are not added again: "+strings.Join(missing, ", ")+"; where one bootstraps nodes, new ones do not join until it is (az vmss extension set)")
		}
	} else if len(current.Tags) > 0 && back.TagFrom != "" {
		c.plan.Notes = append(c.plan.Notes, "extensions that were deleted for "+current.Name+" are not brought back")
	}
	c.plan.Version = back.To.ID
	c.plan.Steps = prototype.RollbackSteps(c.pool, back)
	for i := range c.plan.Steps {
		if c.plan.Steps[i].ID == prototype.StepModel && c.facts.CustomData != "" {
			c.plan.Steps[i].Skip = ""
		}
	}
	c.plan.NothingToDo = back.NothingToDo
	return c
}

func (e *Engine) accesses(all []cluster.Access) []cluster.Access {
	if e.config.Accesses != nil {
		return e.config.Accesses
	}
	return all
}

// poolOf finds the pool that a request names.
func (t *task) poolOf(ctx context.Context, q RollbackRequest) (fleet.ResourceID, error) {
	if q.Pool != "" {
		return q.Pool, nil
	}
	if q.Node == "" {
		return "", errors.New("neither a pool nor a node is named")
	}
	n, err := ask(ctx, t, func(ctx context.Context) (fleet.Node, error) { return t.r.e.cluster.Node(ctx, q.Node) })
	if fleet.Is(err, fleet.KindNotFound) {
		return "", errNoNode
	}
	if err != nil {
		return "", err
	}
	id, err := fleet.ParseProviderID(n.ProviderID)
	return id.Parent(), err
}

var errNoNode = errors.New("there is no such node")

// PlanRollback implements Doors.
func (e *Engine) PlanRollback(ctx context.Context, q RollbackRequest) (prototype.Plan, error) {
	r, done := e.begin(ctx)
	defer done()
	t := r.task(prototype.Step{ID: prototype.StepPreflight, Title: "Run preflight checks"})
	var (
		rec  journal.Record
		open bool
	)
	id, err := t.poolOf(ctx, q)
	if err == nil {
		rec, open, err = r.load(ctx, t, id)
	}
	c := e.lookBack(ctx, t, q, rec)
	if c.plan.Pool == "" {
		return c.plan, ctx.Err()
	}
	if err == nil && open {
		c.plan.Resumes = rec.Kind == prototype.KindRollback
		c.plan.Notes = append(c.plan.Notes, resumption(rec, ""))
	}
	return c.plan, nil
}

// Rollback implements Doors.
func (e *Engine) Rollback(ctx context.Context, q RollbackRequest) (result RollbackResult, err error) {
	r, done := e.begin(ctx)
	defer func() {
		done()
		err = r.givenUp(err)
		r.timing.End = e.now()
		result.Timing = r.timing
		r.mu.Lock()
		defer r.mu.Unlock()
		result.Notes = append(result.Notes, r.notes...)
	}()
	heads := prototype.RollbackSteps(fleet.Pool{}, prototype.Return{})
	var (
		c    comeback
		last journal.Record
		open bool
	)
	look := func() error {
		return r.carry(r.work, heads[0], func(ctx context.Context, t *task) error {
			c = e.lookBack(ctx, t, q, last)
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case len(c.plan.Problems) > 0:
				return &Refused{Problems: c.plan.Problems}
			}
			return nil
		})
	}
	t := r.task(heads[0])
	id, err := t.poolOf(r.work, q)
	if err != nil {
		return result, &Refused{Problems: []fleet.Problem{{Code: "NoPool", On: first(string(q.Pool), "node "+q.Node), What: err.Error(), WayOut: "name a pool, or a node of one"}}}
	}
	result.Pool = id
	last, open, err = r.loadHeld(r.work, t, id)
	if err != nil {
		// As for a capture: what is wanting is told at once.
		if refused := new(Refused); errors.As(look(), &refused) {
			return result, refused
		}
		return result, r.unbegun(prototype.StepPreflight, err)
	}
	if !open {
		if err := look(); err != nil {
			return result, r.unbegun(prototype.StepPreflight, err)
		}
		result.From, result.To, result.NothingToDo = c.facts.From, c.facts.To, c.plan.NothingToDo
		result.Original = c.facts.Original
		if c.plan.NothingToDo {
			r.noteAll(c.plan.Notes)
			r.letGo(last)
			return result, nil
		}
	}
	err = r.carry(r.work, e.holdStep(heads[1]), func(ctx context.Context, t *task) (err error) {
		hold, err := e.take(ctx, t, id, r.holder)
		if err == nil {
			r.hold = hold
			hold.keep(r.care, func(err error) { r.giveUp(err) })
		}
		return err
	})
	if err != nil {
		return result, r.unheld(t, id, err)
	}
	goesOn, err := r.openRollback(heads[2], q, id, &c, look)
	if err != nil {
		return result, err
	}
	result.Resumed = goesOn
	if !goesOn { // else the plan is of another decision
		r.noteAll(c.plan.Notes)
	}
	f := r.get()
	result.From, result.To, result.Original = f.Return.From, f.Return.To, f.Return.Original
	if c.plan.NothingToDo && !goesOn {
		result.NothingToDo = true
		return result, nil
	}
	steps := prototype.RollbackSteps(c.pool, c.back)
	acts := map[string]act{prototype.StepModel: goBack, prototype.StepTag: tagBack, prototype.StepEnd: end}
	for i := range steps {
		steps[i].Skip = "" // the acts look for themselves
	}
	out := r.walk(steps, acts, nil, r.onFailure)
	return result, r.conclude(out)
}

// openRollback begins a record, or takes up the one that is open.
func (r *run) openRollback(step prototype.Step, q RollbackRequest, id fleet.ResourceID, c *comeback, look func() error) (goesOn bool, err error) {
	var (
		rec  journal.Record
		open bool
	)
	err = r.carry(r.work, step, func(ctx context.Context, t *task) (err error) {
		rec, open, err = r.load(ctx, t, id)
		return err
	})
	if err != nil {
		return false, r.unbegun(prototype.StepJournal, err)
	}
	if open {
		if err := r.adopt(rec); err != nil {
			return false, &NeedsPerson{Step: prototype.StepJournal, Err: err, Left: []string{"the journal was written by another version of Ortet: finish with that"}}
		}
		wanted := rec.Kind == prototype.KindRollback && r.facts.Return != nil && r.facts.Undoing == "" &&
			r.facts.Return.asked(q.To)
		if to := r.facts.Return; wanted && r.facts.ModelChanged && to.To != "" {
			// Somebody may have deleted it since the model uses it.
			_, there, err := r.task(step).heldVersion(r.work, to.To)
			if err != nil {
				return false, r.unbegun(prototype.StepJournal, err)
			}
			wanted = there
		}
		if wanted {
			r.note("finished what was begun at %s as %s", rec.Begun.UTC().Format(time.RFC3339), rec.Capture)
			c.pool = fleet.Pool{ID: r.facts.Pool, Name: r.facts.Pool.Name()}
			c.back = r.facts.Return.back()
			return true, nil
		}
		if err := r.undoAll(fmt.Sprintf("%s %s of %s was not finished", rec.Kind, rec.Capture, first(rec.Donor, rec.Pool))); err != nil {
			return false, err
		}
		rec = r.record
		c.plan.Pool = ""
	}
	if c.plan.Pool == "" {
		if err := look(); err != nil {
			return false, r.unbegun(prototype.StepPreflight, err)
		}
	}
	request, err := json.Marshal(q)
	if err != nil {
		return false, err
	}
	r.mu.Lock()
	r.record = journal.Record{
		Revision: rec.Revision, Schema: schema, Capture: prototype.CaptureName(r.e.now(), rec.Capture), Kind: prototype.KindRollback,
		Pool: journalKey(c.pool.ID), Begun: r.e.now(), Request: request,
	}
	back := c.facts
	r.facts = facts{
		Names: prototype.Names{Definition: prototype.DefinitionOf(c.pool.ID), Version: back.To}, Pool: c.pool.ID, Location: c.pool.Location,
		Before: c.pool.Model.Image, Return: &back, Original: originalOf(rec), CustomData: back.CustomData, Restore: c.had,
		Went: wentBy(rec), WentTo: wentTo(rec),
	}
	r.mu.Unlock()
	if c.plan.NothingToDo {
		return false, nil
	}
	if err := r.write(func(*journal.Record, *facts) {}); err != nil {
		return false, r.unbegun(prototype.StepJournal, err)
	}
	return false, nil
}

// goBack points the model at the version, with the customData that goes with it.
func goBack(ctx context.Context, t *task) error {
	r := t.r
	f := r.get()
	var q RollbackRequest
	r.mu.Lock()
	err := json.Unmarshal(r.record.Request, &q)
	r.mu.Unlock()
	if err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	// Once we asked to tag it, it may be Failed by that, and the next request mends it.
	if f.Return.Original == nil && !r.intended(tagKey(f.Return.To)) {
		if err := t.usable(ctx, f.Return.To); err != nil {
			return err
		}
	}
	patch := fleet.PatchModel{Pool: f.Pool, Image: f.Return.back().Image()}
	switch f.Return.CustomData {
	case "":
	case sha(noop):
		s := fleet.NewSecret(noop)
		patch.CustomData = &s
	default:
		kept, err := ask(ctx, t, func(ctx context.Context) (cluster.Kept, error) {
			return r.e.cluster.Kept(ctx, f.Pool, "customData", f.Return.CustomData)
		})
		if err != nil {
			return err
		}
		patch.CustomData = &kept.Data
	}
	return t.point(ctx, patch, q.AllowRolling, true, q.AllowOwned)
}

// tagBack tags the version that the model comes back from, so that the same
// day's capture does not bring it back, and takes the tag off the other.
func tagBack(ctx context.Context, t *task) error {
	f := t.r.get()
	if f.Return.TagFrom == "" && !f.Return.Untag {
		return needless("nothing to tag")
	}
	if id := f.Return.TagFrom; id != "" {
		if err := t.tagVersion(ctx, id, t.r.e.now().UTC().Format(time.RFC3339)); err != nil {
			return err
		}
	}
	if f.Return.Untag {
		return t.tagVersion(ctx, f.Return.To, "")
	}
	return nil
}

// tagKey is what the intent to tag a version is written down under.
func tagKey(id fleet.ResourceID) string { return prototype.StepTag + "/" + id.Name() }

func (t *task) tagVersion(ctx context.Context, id fleet.ResourceID, rolledBack string) error {
	change := fleet.TagVersion{ID: id, Tags: map[string]string{fleet.TagRolledBack: rolledBack}}
	key := tagKey(id)
	whole := t.r.intended(key) // it was, before we asked
	return t.change(ctx, key, change, func(ctx context.Context) (bool, error) {
		v, ok, err := t.heldVersion(ctx, id)
		whole = whole || ok && v.ProvisioningState == prototype.Succeeded
		// An update that fails may set the tag before it ends, and leaves a version that
		// nothing can be made from: the next one that succeeds mends it.
		return !ok || prototype.RolledBack(v) == (rolledBack != "") && (v.ProvisioningState == prototype.Succeeded || !whole), err
	})
}
