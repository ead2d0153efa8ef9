package play

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/test/scenario"
)

// A returning is what a rollback finds: the versions, the one that the model uses, and
// what else there is in the model.
type returning struct {
	images []image
	model  fleet.ResourceID
	rest   string
}

// opened keeps what is there when a record is opened.
func (w *world) opened() {
	r := returning{w.images(), w.model(), w.restOfModel()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.returning = r
}

// restOfModel is what of the pool's model no rollback changes: all but image and customData.
func (w *world) restOfModel() string {
	rest, _, capacity := w.modelNow()
	return fmt.Sprint(rest, " with the extensions ", w.extensionNames(), " and the capacity ", capacity)
}

// versionAsked gives the name of the version that a rollback is to go to.
func (w *world) versionAsked(to string) string {
	all := slices.DeleteFunc(w.images(), func(i image) bool { return i.state != prototype.Succeeded })
	var at int
	switch to {
	case scenario.Oldest:
		at = len(all) - 1
	case scenario.Newest:
		at = min(0, len(all)-1)
	case scenario.Left:
		at = slices.IndexFunc(all, image.left)
	default:
		return to
	}
	if at < 0 {
		return prototype.Previous
	}
	return all[at].id.Name()
}

// previous is the version to go back to: of those published before the model's, the
// newest that nobody rolled back from; "" for none.
func (r returning) previous() fleet.ResourceID {
	used, known := imageAt(r.images, r.model)
	for _, i := range r.images {
		older := !known || i.published.Before(used.published)
		if older && i.state == prototype.Succeeded && !i.left() && !i.id.Equal(r.model) {
			return i.id
		}
	}
	return ""
}

// checkReturn: a rollback goes to the version before the model's by publishing date, or
// to the one that was named, or to what the model was before its first capture; it says
// from which it came. The one that it left bears the tag, the other does not.
func (w *world) checkReturn(p *process) {
	if p.ask.Verb != scenario.Rollback || w.superseded(p) || w.misread() || len(w.happenedTo(scenario.ChangeModel, scenario.DeleteVersion, scenario.DeleteGallery)) > 0 {
		return
	}
	asked, alone := p.ask.To, w.aloneSince(p)
	w.mu.Lock()
	r := w.returning
	w.mu.Unlock()
	if p.rollback.NothingToDo {
		r = returning{images: w.images(), model: w.model()}
	}
	if rec, ok := w.record(); ok && p.rollback.Resumed {
		asked = recordedTo(rec) // by who began it
	}
	byName := func(to string) bool { return to != "" && to != prototype.Previous && to != prototype.ToOriginal }
	want := r.previous()
	switch {
	case byName(asked):
		want = w.names.Definition.Child("versions", asked)
	case asked == prototype.ToOriginal:
		want = ""
	}
	// Who waited for a process that went back to the same version finds that done.
	done := r.model.Equal(p.rollback.To) && !alone
	if !done && !p.rollback.To.Equal(want) {
		w.broken("%s goes back to %q, and the version to go back to is %q", p.name, p.rollback.To.Name(), want.Name())
	}
	if byName(p.ask.To) && p.rollback.To.Name() != p.ask.To || p.ask.To == prototype.ToOriginal && p.rollback.Original == nil {
		w.broken("%s was asked to go back to %s, and reports %q", p.name, p.ask.To, p.rollback.To.Name())
	}
	if alone && !p.rollback.From.Equal(r.model) && imagesHave(r.images, r.model) {
		w.broken("%s reports that it came from %q, and the model used %q", p.name, p.rollback.From.Name(), r.model.Name())
	}
	if p.rollback.NothingToDo {
		if to, known := imageAt(r.images, p.rollback.To); known && to.left() {
			w.broken("%s had nothing to do, and version %s is tagged as one that was left", p.name, to.id.Name())
		}
		return
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

// superseded reports whether another process ended a record since this one began, and after
// its own: the model is what that one reports.
func (w *world) superseded(p *process) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.recorded.Ended != nil && w.closed.After(p.began) && !p.owns(w.recorded.Facts.Writer)
}

// checkReported: the model is what a process that is done reports, and nothing that
// bootstrapped the donor is left in it.
func (w *world) checkReported(p *process) {
	if w.superseded(p) {
		return
	}
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

func imagesHave(all []image, id fleet.ResourceID) bool {
	_, there := imageAt(all, id)
	return there
}

// recordedTo is what a rollback on record was asked to go to.
func recordedTo(rec journal.Record) string {
	var asked struct{ To string }
	if json.Unmarshal(rec.Request, &asked) != nil {
		return ""
	}
	return asked.To
}

// checkClosedAt: when a record is closed with exit 0, the model has the image that is
// recorded, and nothing beside, and the customData that goes with it. A rollback changed
// nothing else, however it ended.
func (w *world) checkClosedAt(rec noted) {
	w.mu.Lock()
	was, theirImage, original := w.returning, w.theirImage, w.original
	w.mu.Unlock()
	now, to := w.pointedAt(), rec.Facts.Names.Version
	switch {
	case rec.Ended.Exit != engine.ExitDone || now.image == theirImage:
	case rec.Facts.Return != nil && rec.Facts.Return.Original != nil:
		if now != original && theirImage == "" {
			w.broken("the record of %s ends, and the model has %+v, and had %+v before the first capture", rec.Capture, now, original)
		}
	case now.image != `{"id":"`+low(to)+`"}`:
		w.broken("the record of %s ends, and the model has the image %s, and not version %s", rec.Capture, now.image, to.Name())
	}
	if rec.Kind != prototype.KindRollback || len(w.happenedTo(scenario.ChangeModel, scenario.ScaleOut, scenario.ScaleIn, scenario.DeleteInstance, scenario.Evict)) > 0 {
		return
	}
	if rest := w.restOfModel(); rest != was.rest {
		w.broken("the rollback %s ends, and the model is %s, and was %s", rec.Capture, rest, was.rest)
	}
}

// usesInText is how an error names what the model uses.
var usesInText = regexp.MustCompile(`the model uses (\d[\d.]*\d), but step`)

// checkUses: who ends with exit 4 names the version that the model uses.
func (w *world) checkUses(p *process) {
	said := usesInText.FindStringSubmatch(p.err.Error())
	if said == nil || w.misread() || len(w.happenedTo(scenario.ChangeModel)) > 0 {
		return
	}
	if id := w.model(); id.Name() != said[1] {
		w.broken("%s says that the model uses %s, and it uses %q", p.name, said[1], id.Name())
	}
}

// saidUnrecorded reports whether a rollback ended with exit 4 since the customData that it
// replaced is not recorded, which is so: the version that the model used has no tag for it.
func (w *world) saidUnrecorded() bool {
	w.mu.Lock()
	r, all := w.returning, slices.Clone(w.processes)
	w.mu.Unlock()
	used, _ := imageAt(r.images, r.model)
	return used.tags[fleet.TagCustomData] == "" && slices.ContainsFunc(all, func(p *process) bool {
		return p.over() && !p.isCut() && engine.ExitCode(p.err) == engine.ExitNeedsPerson && strings.Contains(p.err.Error(), "what it had before is not recorded")
	})
}
