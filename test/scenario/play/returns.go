package play

import (
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/plan"
	"github.com/ortet/ortet/test/scenario"
)

// A returning is what a rollback finds: the versions, and the one that the model uses.
type returning struct {
	images []image
	model  fleet.ResourceID
}

// opened keeps what is there when a record is opened.
func (w *world) opened() {
	r := returning{w.images(), w.model()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.returning = r
}

// previous is the version to go back to: of those published before the model's, the
// newest that nobody rolled back from; "" for none.
func (r returning) previous() fleet.ResourceID {
	used, known := imageAt(r.images, r.model)
	for _, i := range r.images {
		older := !known || i.published.Before(used.published)
		if older && i.state == plan.Succeeded && !i.left() && !i.id.Equal(r.model) {
			return i.id
		}
	}
	return ""
}

// checkReturn: a rollback goes to the version before the model's by publishing date, or
// to the one that was named; the one that it left bears the tag, the other does not.
func (w *world) checkReturn(p *process) {
	if p.ask.Verb != scenario.Rollback || p.rollback.NothingToDo || w.misread() || len(w.happenedTo(scenario.ChangeModel, scenario.DeleteVersion, scenario.DeleteGallery)) > 0 {
		return
	}
	w.mu.Lock()
	r := w.returning
	w.mu.Unlock()
	want := r.previous()
	if to := p.ask.To; to != "" && to != plan.Previous {
		want = w.names.Definition.Child("versions", to)
	}
	// Who waited for a process that went back to the same version finds that done.
	done := r.model.Equal(p.rollback.To) && !w.aloneSince(p)
	if !p.rollback.Resumed && !done && !p.rollback.To.Equal(want) {
		w.broken("%s goes back to %q, and the version before is %q", p.name, p.rollback.To.Name(), want.Name())
	}
	all := w.images()
	from, knownFrom := imageAt(all, p.rollback.From)
	to, knownTo := imageAt(all, p.rollback.To)
	if knownTo && to.left() {
		w.broken("%s went back to version %s, which is still tagged as one that was left", p.name, to.id.Name())
	}
	if knownFrom && knownTo && to.published.Before(from.published) && !from.left() {
		w.broken("%s went back from version %s, which is not tagged as one that was left", p.name, from.id.Name())
	}
	for _, i := range r.images {
		if now, there := imageAt(all, i.id); there && now.left() != i.left() && !i.id.Equal(p.rollback.From) && !i.id.Equal(p.rollback.To) {
			w.broken("%s changed whether version %s is tagged as one that was left", p.name, i.id.Name())
		}
	}
}
