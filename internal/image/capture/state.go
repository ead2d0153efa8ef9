package capture

import (
	"cmp"
	"maps"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture/canary"
	"github.com/ortet/ortet/internal/image/capture/donor"
	"github.com/ortet/ortet/internal/image/capture/fresh"
	"github.com/ortet/ortet/internal/image/capture/model"
	"github.com/ortet/ortet/internal/image/capture/report"
	"github.com/ortet/ortet/internal/image/capture/version"
	"github.com/ortet/ortet/internal/image/plan"
)

// A state is what was chosen or observed and cannot be observed again. It is saved with
// the record.
type state struct {
	plan.Inherited
	Names    plan.Names       `json:"names"`
	Pool     fleet.ResourceID `json:"pool"` // as Azure spells it
	Location string           `json:"location"`
	donor.Machine
	Definition fleet.Definition `json:"definition"`
	Encryption fleet.Encryption `json:"encryption,omitzero"` // of the copies and of the version
	Replicas   int32            `json:"replicas,omitempty"`  // of the version
	BuiltAt    string           `json:"builtAt,omitempty"`   // the tag's value
	BuiltFrom  string           `json:"builtFrom,omitempty"` // node of a version that was found
	donor.Taken
	Fresh   fresh.Donor `json:"freshDonor,omitzero"` // that the capture raises
	NoKured bool        `json:"noKured,omitempty"`   // the cluster has no lock to hold
	Bench   workbench   `json:"workbench"`
	Pod     string      `json:"pod,omitempty"` // that was created
	model.Changed

	LearnsOriginal bool   `json:"learnsOriginal,omitempty"` // the donor was made from the original's image
	Key            []byte `json:"key,omitempty"`            // opens what the pod on the workbench seals

	report.Found
	canary.Outcome
	version.Build
}

type workbench struct {
	Node     string           `json:"node,omitempty"`
	Pool     fleet.ResourceID `json:"pool,omitempty"` // "" for a virtual machine of its own
	Instance fleet.ResourceID `json:"instance,omitempty"`
	VMID     string           `json:"vmId,omitempty"`
	UID      string           `json:"uid,omitempty"` // of its Node
	Zone     string           `json:"zone,omitempty"`
	LUN      int32            `json:"lun"`
	BootID   string           `json:"bootId,omitempty"` // another one may be of a boot from the copy
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

// tags are on everything that a capture makes.
func (c *capture) tags(more map[string]string) map[string]string {
	s := c.get()
	tags := map[string]string{
		fleet.TagCapture:   c.name,
		fleet.TagBuiltAt:   s.BuiltAt,
		fleet.TagCreatedBy: "ortet " + c.Version,
		fleet.TagReason:    "prototype of " + s.Names.Definition.Name() + " from node " + c.req.Node,
		fleet.TagBuiltFrom: cmp.Or(s.BuiltFrom, c.req.Node),
	}
	if s.Online != "" {
		tags[fleet.TagOnline] = s.Online
	}
	if s.Devices != "" {
		tags[fleet.TagDevices] = string(s.Devices)
	}
	maps.Copy(tags, more)
	return tags
}
