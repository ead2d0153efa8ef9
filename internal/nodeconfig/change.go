package nodeconfig

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// What a Change does to its subject.
const (
	Added   = "added"
	Changed = "changed"
	Removed = "removed"
)

// A Change is one difference between two configurations.
type Change struct {
	Kind string `json:"kind"` // "file", "unit", "drop-in", "sysctl", "kubelet", "registry mirror" or "CA certificate"
	Name string `json:"name"` // path, unit, UNIT.d/NAME, sysctl, kubelet field, registry, certificate
	What string `json:"what"` // Added, Changed or Removed
	// Restarts are the units that it restarts, and "kubelet" and "containerd", by whatever
	// unit runs them. What is removed restarts what it restarted before.
	Restarts []string `json:"restarts,omitempty"`
}

// Changes lists what differs, by kind and name. The agent restarts by the same rule: a
// file its units, a unit and its drop-ins that unit where it is started (but not where only
// enabled changes), kubelet fields the kubelet, a CA certificate containerd and the kubelet, a sysctl nothing.
//
// A registry mirror restarts nothing, since containerd reads hosts.toml at each pull; k3s
// reads its registries.yaml at a start only, so there the agent restarts k3s.
func Changes(old, next Config) []Change {
	before, after := old.items(), next.items()
	var all []Change
	for at, i := range after {
		switch was, found := before[at]; {
		case !found:
			all = append(all, Change{at.kind, at.name, Added, i.restarts})
		case was.state != i.state:
			all = append(all, Change{at.kind, at.name, Changed, i.restarts})
		case !reflect.DeepEqual(was.enabled, i.enabled):
			all = append(all, Change{at.kind, at.name, Changed, nil})
		}
	}
	for at, i := range before {
		if _, found := after[at]; !found {
			all = append(all, Change{at.kind, at.name, Removed, i.restarts})
		}
	}
	slices.SortFunc(all, func(a, b Change) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	return all
}

type subject struct{ kind, name string }

// An item is a subject's state, as JSON, and what a change of it restarts. A change of
// enabled restarts nothing.
type item struct {
	state    string
	restarts []string
	enabled  *bool // of a unit
}

func (c Config) items() map[subject]item {
	all := map[subject]item{}
	add := func(kind, name string, state any, restarts ...string) {
		text, err := json.Marshal(state)
		if err != nil {
			text = []byte(err.Error()) // a value that no file and no document can have
		}
		all[subject{kind, name}] = item{state: string(text), restarts: restarts}
	}
	for _, f := range c.Files {
		mode, owner := strings.TrimLeft(cmp.Or(f.Mode, "0644"), "0"), cmp.Or(f.Owner, "root:root")
		restarts := slices.Clone(f.Restart)
		slices.Sort(restarts)
		add("file", f.Path, []string{mode, owner, f.Content}, restarts...)
	}
	for _, u := range c.Units {
		var restarts []string
		if u.Started != nil && *u.Started {
			restarts = []string{u.Name}
		}
		for _, d := range u.DropIns {
			add("drop-in", u.Name+".d/"+d.Name, d.Content, restarts...)
		}
		if u.Content != "" || u.Enabled != nil || u.Started != nil {
			add("unit", u.Name, []any{u.Content, u.Started}, restarts...)
			at := subject{"unit", u.Name}
			i := all[at]
			i.enabled = u.Enabled
			all[at] = i
		}
	}
	for name, value := range c.Sysctls {
		add("sysctl", name, value)
	}
	for name, value := range c.Kubelet {
		add("kubelet", name, value, "kubelet")
	}
	for _, m := range c.RegistryMirrors {
		add("registry mirror", m.Registry, m.Endpoints)
	}
	for _, ca := range c.CACertificates {
		add("CA certificate", ca.Name, ca.PEM, "containerd", "kubelet")
	}
	return all
}
