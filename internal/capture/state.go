package capture

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/workflow/journal"
)

// A state is what was chosen or observed and cannot be observed again. It is saved with
// the record.
type state struct {
	carried
	Names      prototype.Names  `json:"names"`
	Pool       fleet.ResourceID `json:"pool"` // as Azure spells it
	Location   string           `json:"location"`
	Instance   fleet.ResourceID `json:"instance"` // the donor's
	Disk       fleet.ResourceID `json:"disk"`     // its OS disk when it was stopped
	Addresses  []string         `json:"addresses,omitempty"`
	Definition fleet.Definition `json:"definition"`
	BuiltAt    time.Time        `json:"builtAt,omitzero"`
	BuiltFrom  string           `json:"builtFrom,omitempty"` // node of a version that was found

	Stopped   bool `json:"stopped,omitempty"` // it was seen so
	DonorGone bool `json:"donorGone,omitempty"`

	Bench        workbench `json:"workbench"`
	Pod          string    `json:"pod,omitempty"`      // that was created
	ToDelete     []string  `json:"toDelete,omitempty"` // extensions, when the capture began
	ModelChanged bool      `json:"modelChanged,omitempty"`
}

// carried is the part of a state that a resumed run takes over from the record.
type carried struct {
	Inherited
	LearnsOriginal bool   `json:"learnsOriginal,omitempty"` // the donor's customData is the original's
	Key            []byte `json:"key,omitempty"`            // opens what the pod on the workbench seals
	Pods           int    `json:"pods,omitempty"`           // that were begun: each has a name of its own

	CustomData      string   `json:"customData,omitempty"` // SHA-256 of what goes with the version
	Unsaved         []string `json:"unsaved,omitempty"`
	Credentials     []string `json:"credentials,omitempty"`
	AcceptedSecrets []string `json:"acceptedSecrets,omitempty"`
	RemovedSecrets  []string `json:"removedSecrets,omitempty"`
	Secrets         string   `json:"secrets,omitempty"` // the version's tag
	ScanNotes       []string `json:"scanNotes,omitempty"`

	StorageType string `json:"storageType,omitempty"`
	GrowTo      int64  `json:"growTo,omitempty"`
}

// Inherited is the part of a state that goes from record to record of a pool, of
// captures and of rollbacks.
type Inherited struct {
	// LastCustomData is the SHA-256 of what Ortet last gave the model, "" if never.
	LastCustomData string              `json:"lastCustomData,omitempty"`
	Original       *prototype.Original `json:"original,omitempty"`
}

// InheritedFrom reads it from a record of any kind; none if the state cannot be read.
func InheritedFrom(r journal.Record) (i Inherited) {
	if err := json.Unmarshal(r.State, &i); err != nil {
		return Inherited{}
	}
	return i
}

type workbench struct {
	Node     string           `json:"node,omitempty"`
	Instance fleet.ResourceID `json:"instance,omitempty"`
	Zone     string           `json:"zone,omitempty"`
	LUN      int32            `json:"lun"`
	BootID   string           `json:"bootId,omitempty"` // when the copy was attached
}

func (c *capture) get() state {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.s
}

// set changes the state. The next save writes it.
func (c *capture) set(change func(s *state)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.s)
}

// stateOf reads a record's state, and refuses a state that names what is not the pool's:
// who can write the Secret must not have Ortet change or delete that.
func stateOf(r journal.Record) (s state, err error) {
	if err := json.Unmarshal(r.State, &s); err != nil {
		return state{}, fmt.Errorf("decode the state: %w", err)
	}
	names := prototype.NamesOf(s.Pool, s.Names.Version.Name())
	ours := s.Pool.Equal(fleet.ResourceID(r.Pool)) && s.Names == names && fleet.ValidName(names.Version.Name()) && (s.Definition.ID == "" || s.Definition.ID == names.Definition)
	if i := s.Instance; !ours || i != "" && (!i.Equal(s.Pool.Child("virtualMachines", i.Name())) || !fleet.ValidName(i.Name())) {
		return state{}, fmt.Errorf("the state is not of the pool %s", r.Pool)
	}
	if id := s.Bench.Instance; id != "" { // it may be of another pool
		if _, err := fleet.ParseProviderID("azure://" + string(id)); err != nil {
			return state{}, fmt.Errorf("read the workbench: %w", err)
		}
	}
	return s, nil
}

// inherit takes over what goes from record to record, and records what the model is
// before the pool's first capture.
func (s *state) inherit(old journal.Record, pool fleet.Pool, donor *fleet.Instance, now time.Time) {
	s.Inherited = InheritedFrom(old)
	image := pool.Model.Image
	if image.LatestOf().Equal(s.Names.Definition) || image.Exact().Parent().Equal(s.Names.Definition) {
		return
	}
	if s.Original == nil || !s.Original.Image.Same(image) {
		image.ExactVersion = ""
		s.Original = &prototype.Original{Image: image, At: now}
	}
	s.Original.Extensions = prototype.OriginalExtensions(pool.Model.Extensions, s.Original.Extensions)
	// A donor that was created after the record has customData at least as new.
	s.LearnsOriginal = donor != nil && donor.Image.Same(image) &&
		(s.Original.CustomData == "" || donor.LatestModelApplied || donor.Created.After(s.Original.At))
}

// tags are on everything that a capture makes.
func (c *capture) tags(more map[string]string) map[string]string {
	s := c.get()
	tags := map[string]string{
		fleet.TagCapture:   c.name,
		fleet.TagCreatedBy: "ortet " + c.Version,
		fleet.TagReason:    "prototype of " + s.Names.Definition.Name() + " from node " + c.req.Node,
		fleet.TagBuiltFrom: first(s.BuiltFrom, c.req.Node),
	}
	if !s.BuiltAt.IsZero() {
		tags[fleet.TagBuiltAt] = s.BuiltAt.UTC().Format(fleet.BuiltAtLayout)
	}
	maps.Copy(tags, more)
	return tags
}
