package plan

import (
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// A Return is what a rollback comes down to.
type Return struct {
	To fleet.ImageVersion
	// TagFrom is the version to tag as rolled back from; "" where the model
	// goes forward, or used no prototype.
	TagFrom fleet.ResourceID
	// Untag is true where To was rolled back from earlier, and is wanted again.
	Untag bool
	// NothingToDo is true where the model uses To already, and its tag is right.
	NothingToDo bool
}

// Previous asks for the version before the model's, by publishing date.
const Previous = "previous"

// ReturnTo decides what a rollback to a version's name, or Previous, comes down
// to. problem is nil where it can be done.
func ReturnTo(versions []fleet.ImageVersion, pool fleet.Pool, to string) (r Return, problem *Problem) {
	definition := DefinitionOf(pool.ID)
	refuse := func(code, what, wayOut string) (Return, *Problem) {
		return Return{}, &Problem{Code: code, On: string(definition), What: what, WayOut: wayOut}
	}
	sorted := NewestFirst(versions)
	current, known := FindVersion(versions, pool.Model.Image.ID)
	var target *fleet.ImageVersion
	for i := range sorted {
		v := &sorted[i]
		if to == "" || to == Previous {
			older := !known || v.Published.Before(current.Published)
			if older && v.ProvisioningState == Succeeded && !RolledBack(*v) && !v.ID.Equal(pool.Model.Image.ID) {
				target = v
				break
			}
		} else if v.Name == to {
			target = v
			break
		}
	}
	if target == nil {
		if to == "" || to == Previous {
			return refuse("NoPrevious", "no earlier version is kept", "see ortet status for the versions, and name one by --to")
		}
		return refuse("NoVersion", "version "+to+" does not exist", "see ortet status for the versions")
	}
	if target.ProvisioningState != Succeeded {
		return refuse("VersionNotReady", "version "+target.Name+" is "+target.ProvisioningState, "name one that is Succeeded")
	}
	r = Return{To: *target, Untag: RolledBack(*target)}
	if target.ID.Equal(pool.Model.Image.ID) {
		r.NothingToDo = !r.Untag
		return r, nil
	}
	if known && target.Published.Before(current.Published) {
		r.TagFrom = current.ID
	}
	return r, nil
}

// RollbackSteps is the table of contents of a rollback.
func RollbackSteps(pool fleet.Pool, r Return) []Step {
	title := "Tag the version that the model comes back from"
	if r.TagFrom != "" {
		title = "Tag version " + r.TagFrom.Name() + " as rolled back"
	}
	skip := ""
	if r.NothingToDo {
		skip = "the model uses " + r.To.Name
	}
	return []Step{
		{ID: StepPreflight, Title: "Look for all reasons not to", Deadline: 5 * moment},
		{ID: StepHold, Title: "Hold the pool, so that nobody else changes it", Deadline: 2 * moment, After: []string{StepPreflight}, Skip: skip},
		{ID: StepJournal, Title: "Open the journal", Deadline: moment, After: []string{StepHold}, Skip: skip},
		{ID: StepModel, Title: "Point " + pool.Name + "'s model at " + r.To.Name, Usual: 30 * time.Second, Deadline: 30 * moment, After: []string{StepJournal}, Skip: skipIf(r.To.ID.Equal(pool.Model.Image.ID), "the model uses "+r.To.Name)},
		{ID: StepTag, Title: title, Usual: 10 * time.Second, Deadline: 15 * moment, After: []string{StepModel}, Skip: skipIf(r.TagFrom == "" && !r.Untag, "there is nothing to tag")},
		{ID: StepEnd, Title: "Close the journal and let go of the pool", Deadline: 2 * moment, After: []string{StepTag}, Skip: skip},
	}
}
