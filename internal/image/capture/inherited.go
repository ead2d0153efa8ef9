package capture

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/workflow"
)

// Inherited is the part of a state that goes from record to record of a pool, of
// captures and of rollbacks. It is read from the state of either.
type Inherited struct {
	// LastCustomData is the SHA-256 of what Ortet last gave the model, "" if never.
	LastCustomData string          `json:"lastCustomData,omitempty"`
	Original       *plan.Original  `json:"original,omitempty"`
	Growth         Growth          `json:"growth,omitzero"` // the newest
	Unfinished     *Unfinished     `json:"unfinished,omitempty"`
	Watched        json.RawMessage `json:"watched,omitempty"` // what a watch found
}

// Unfinished is what a rollback decided that changed the model and did not end well.
type Unfinished struct {
	plan.Return
	Name       string `json:"name"`                 // of its record
	Asked      string `json:"asked,omitempty"`      // where to
	FromFailed bool   `json:"fromFailed,omitempty"` // version From was Failed before: a tag does not repair it
	Patched    bool   `json:"patched,omitempty"`    // the model has the customData that goes with the image
}

// Inherit reads what goes on from a pool's last record, which has ended. What cannot be read has none.
func Inherit(last journal.Record) (i Inherited) {
	_ = json.Unmarshal(last.State, &i)
	model := last.Steps[stepModel]
	if last.Kind == Kind || last.Ended == nil {
		return i
	}
	if last.Ended.Exit == workflow.ExitDone {
		i.Unfinished = nil
	} else if model.State == journal.Done || model.Change != "" {
		var asked struct {
			To string `json:"to"`
		}
		u := Unfinished{Name: last.Name, Patched: model.State == journal.Done}
		if cmp.Or(json.Unmarshal(last.Request, &asked), json.Unmarshal(last.State, &u)) == nil {
			u.Asked, i.Unfinished = asked.To, &u
		}
	}
	return i
}

// inherit takes over what goes from record to record, and records what the model is
// before the pool's first capture.
func (s *state) inherit(old journal.Record, pool fleet.Pool, donor *fleet.Instance, now time.Time) {
	s.Inherited = Inherit(old)
	image := pool.Model.Image
	if plan.NamedDefinition(pool.ID, image) != "" {
		return
	}
	if s.Original == nil || !s.Original.Image.Same(image) {
		image.ExactVersion = ""
		s.Original = &plan.Original{Image: image, At: now}
	}
	s.Original.Extensions = plan.OriginalExtensions(pool.Model.Extensions, s.Original.Extensions)
	// A donor that was created after the record has customData at least as new.
	s.LearnsOriginal = donor != nil && donor.Image.Same(image) &&
		(s.Original.CustomData == "" || donor.MadeFrom(pool) || donor.Created.After(s.Original.At))
}

// deletes notes that a capture deletes an extension: the original still has it, also if a
// later capture finds the model without it, and as it is deleted, which its owner may have
// changed since the capture began.
func (s *state) deletes(deleted fleet.Extension) {
	if s.Original == nil {
		return
	}
	o := *s.Original
	o.Extensions = slices.Clone(o.Extensions)
	for i, e := range o.Extensions {
		if strings.EqualFold(e.Name, deleted.Name) && !e.Deleted {
			o.Extensions[i] = plan.OriginalExtensions([]fleet.Extension{deleted}, o.Extensions)[0]
			o.Extensions[i].Deleted = true
		}
	}
	s.Original = &o
}
