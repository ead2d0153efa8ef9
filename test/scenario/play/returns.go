package play

import (
	"slices"

	"github.com/ortet/ortet/internal/engine"
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

// checkReported: the model is what a process that is done reports, and nothing that
// bootstrapped the donor is left in it.
func (w *world) checkReported(p *process) {
	w.mu.Lock()
	theirImage, original := w.theirImage, w.original
	w.mu.Unlock()
	now := w.pointedAt()
	if p.ask.Verb == scenario.Rollback && p.rollback.Original != nil {
		// What others set before the first capture is the original as well.
		if theirs := (pointed{image: theirImage, customData: original.customData}); now != original && now != theirs {
			w.broken("%s reports that the model is as before the first capture, and it has %+v, not %+v", p.name, now, original)
		}
		return
	}
	version := p.capture.Version
	if p.ask.Verb == scenario.Rollback {
		version = p.rollback.To
	}
	if id := w.model(); !id.Equal(version) && now.image != theirImage {
		w.broken("%s reports that the model uses %q, and it uses %q", p.name, version.Name(), id.Name())
	}
	if p.ask.Verb == scenario.Capture && w.bootstraps() {
		w.broken("%s reports that it is done, and the model still has the extension that bootstrapped the donor", p.name)
	}
}

// checkStays: an hour after all ended, the model is what the last that was done reported:
// an operation that was under way may have failed since, and have restored another.
func (w *world) checkStays() {
	w.mu.Lock()
	all := slices.Clone(w.processes)
	w.mu.Unlock()
	all = slices.DeleteFunc(all, (*process).isCut)
	if len(all) == 0 {
		return
	}
	last := slices.MaxFunc(all, func(a, b *process) int { return a.returned.Compare(b.returned) })
	if engine.ExitCode(last.err) == engine.ExitDone {
		w.checkReported(last)
	}
}
