package lifecycle

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

// A FieldChange is a field of cluster.yaml that is not what the cluster has, and what Up
// does about it.
type FieldChange struct {
	Field   string   `json:"field"`            // "spec.pools[agents].labels.tier"
	Before  string   `json:"before,omitempty"` // "" is none
	After   string   `json:"after,omitempty"`
	Effects []Effect `json:"effects"`
}

var secretDigest = regexp.MustCompile(regexp.QuoteMeta(k3s.SecretPrefix) + "[0-9a-f]{16}")

// Line is "FIELD: BEFORE -> AFTER", without secrets.
func (f FieldChange) Line() string {
	show := func(v string) string { return cmp.Or(secretDigest.ReplaceAllString(v, "(secret)"), "none") }
	if show(f.Before) == show(f.After) {
		return f.Field + ": changed (its value may be a secret)"
	}
	return f.Field + ": " + show(f.Before) + " -> " + show(f.After)
}

// Line is an effect for a person.
func (e Effect) Line() string {
	text := e.Reaches
	if len(e.Pools) > 0 {
		text += " of pool " + strings.Join(e.Pools, ", ")
	}
	text += ": " + e.When
	if e.Loses != "" {
		text += "; goes away: " + e.Loses
	}
	if e.Then != "" {
		text += "; after up: " + e.Then
	}
	return text
}

// A comparison of cluster.yaml with what the cluster has.
type comparison struct {
	m             *Manager
	o             *observation
	d             *recipe.Documents
	want          map[string]string // the file, with what pools keep
	world         map[string]string // what Azure shows
	server, other *recipe.Applied   // records of the server's settings, and of network and storage; nil is not known
	pools         map[string]*recipe.Applied
	known         []string // fields of the server and the network that Azure shows
}

// fields compares every field of cluster.yaml with what the cluster has: with what Azure
// shows, otherwise with the record of the deployment that applied it. notes name what is not
// known.
func (m *Manager) fields(ctx context.Context, o *observation, d *recipe.Documents) (changes []FieldChange, notes []string, err error) {
	c := &comparison{m: m, o: o, d: d, other: o.applied(), want: map[string]string{}, world: map[string]string{}, pools: map[string]*recipe.Applied{}}
	if err := c.read(ctx); err != nil {
		return nil, nil, err
	}
	paths := maps.Clone(c.want)
	for _, more := range []map[string]string{c.world, fieldsOf(c.server), fieldsOf(c.other)} {
		maps.Copy(paths, more)
	}
	for _, name := range sorted(o.sets) {
		maps.Copy(paths, fieldsOf(c.pools[name]))
		if m.pool(name) == nil {
			changes = append(changes, FieldChange{Field: "spec.pools[" + name + "]", Before: strconv.Itoa(o.sets[name].SKU.Capacity) + " agents",
				Effects: []Effect{{Reaches: ReachPool, Pools: []string{name}, When: "by ortet cluster up --prune, not by up alone", Loses: "its agents, each drained first"}}})
		}
	}
	for _, p := range m.Cluster.Spec.Pools {
		if o.sets[p.Name].ID == "" && (o.server != nil || len(o.sets) > 0) {
			changes = append(changes, FieldChange{Field: "spec.pools[" + p.Name + "]", After: "a new pool", Effects: []Effect{{Reaches: ReachPool, Pools: []string{p.Name}, When: byUp}}})
		}
	}
	table := Reaches()
	for _, path := range sorted(paths) {
		change := FieldChange{Field: path, After: c.want[path]}
		for _, e := range reachOf(table, path) {
			if before, differs := c.before(&e, path); differs {
				change.Effects, change.Before = append(change.Effects, e), cmp.Or(change.Before, before)
			}
		}
		if len(change.Effects) > 0 {
			changes = append(changes, change)
		}
	}
	for _, name := range sorted(o.sets) {
		tag, want := recipe.AppliedSetting(o.sets[name].Tags[recipe.TagApplied], "cloudinit"), d.Applied.CloudInit[name]
		named := slices.ContainsFunc(changes, func(f FieldChange) bool {
			return slices.ContainsFunc(f.Effects, func(e Effect) bool { return e.Reaches == ReachAgents && slices.Contains(e.Pools, name) })
		})
		switch {
		case want == "" || tag == want:
		case tag == "":
			notes = append(notes, "pool "+name+": not known whether its cloud-init document changes, since an earlier version of ortet made it; up records it")
		case c.pools[name] == nil:
			notes = append(notes, "pool "+name+": cloud-init document changes, for new agents; which fields is not known, since no record of the last up is left")
		case !named:
			notes = append(notes, "pool "+name+": cloud-init document changes, for new agents: that of this version of ortet")
		}
	}
	if c.server == nil && o.server != nil {
		notes = append(notes, "server: fields of its settings that change are not known, since an earlier version of ortet wrote them; up records them")
	}
	return changes, append(notes, m.lockedOut()...), nil
}

func fieldsOf(a *recipe.Applied) map[string]string {
	if a == nil {
		return nil
	}
	return a.Fields
}

// read reads what fields are compared with.
func (c *comparison) read(ctx context.Context) error {
	m, o, r := c.m, c.o, &reads{m: c.m}
	file, live := *m.Cluster, *m.Cluster
	file.Spec.Pools, live.Spec.Pools = nil, nil
	scaled := map[string]resource{}
	if o.groups[RoleCompute] != nil {
		for _, s := range r.list(ctx, m.in(RoleCompute, "Microsoft.Insights", "autoscaleSettings"), autoscaleVersion) {
			scaled[s.Name] = s
		}
		if group := o.security[k3s.ToServers]; m.ours(group) {
			c.sources(group, &live, &file)
		}
	}
	for _, p := range m.Cluster.Spec.Pools {
		set, exists := o.sets[p.Name]
		if !exists {
			continue
		}
		file.Spec.Pools = append(file.Spec.Pools, c.d.Pools[p.Name])
		live.Spec.Pools = append(live.Spec.Pools, livePool(set, scaled[p.Name]))
	}
	if s := o.server; s != nil {
		settings := s.settings()
		c.server = find(o.records, func(a recipe.Applied) bool { return a.Settings == recipe.Digest(settings) })
		live.Spec.Access.PublicAddress = k3s.None
		if m.publicAddress(ctx, r) != nil {
			live.Spec.Access.PublicAddress = k3s.Static
		}
		c.known = append(c.known, "spec.access.publicAddress")
		disk := s.Properties.StorageProfile.OSDisk
		live.Spec.Server.Size, live.Spec.Server.DiskGB, live.Spec.Server.DiskType, live.Spec.Server.Image =
			s.Properties.HardwareProfile.VMSize, disk.DiskSizeGB, disk.ManagedDisk.Type, s.Properties.StorageProfile.ImageReference
		c.known = append(c.known, "spec.server.size", "spec.server.diskGB", "spec.server.diskType", "spec.server.image")
		if made := s.Tags[recipe.TagApplied]; made != "" {
			live.Spec.Storage.Mount = recipe.AppliedSetting(made, "mount")
			live.Spec.Options.RebootAfterUpdates = recipe.AppliedSetting(made, "reboot") == "true"
			c.known = append(c.known, "spec.storage.mount", "spec.options.rebootAfterUpdates")
		}
	}
	if o.state != nil {
		live.Spec.Server.StateGB = o.state.Properties.DiskSizeGB
		file.Spec.Server.StateGB = max(file.Spec.Server.StateGB, live.Spec.Server.StateGB)
		c.known = append(c.known, "spec.server.stateGB")
	}
	for name, set := range o.sets {
		tag := recipe.AppliedSetting(set.Tags[recipe.TagApplied], "cloudinit")
		c.pools[name] = find(o.records, func(a recipe.Applied) bool { return tag != "" && a.CloudInit[name] == tag })
	}
	c.want, c.world = file.Fields(), live.Fields()
	c.want["spec.access.sshKey"] = k3s.Fingerprint(m.SSHPublicKey)
	if key := m.serverKey(o); key != "" {
		c.world["spec.access.sshKey"] = k3s.Fingerprint(key)
		c.known = append(c.known, "spec.access.sshKey")
	}
	return r.err
}

func find(all []recipe.Applied, is func(recipe.Applied) bool) *recipe.Applied {
	if i := slices.IndexFunc(all, is); i >= 0 {
		return &all[i]
	}
	return nil
}

// livePool is a pool as its scale set and its autoscale setting have it.
func livePool(set, scaled resource) k3s.Pool {
	profile := set.Properties.Profile
	p := k3s.Pool{Name: set.Name, Size: set.SKU.Name, Count: &set.SKU.Capacity, Zones: set.Zones,
		DiskGB: profile.StorageProfile.OSDisk.DiskSizeGB, DiskType: profile.StorageProfile.OSDisk.ManagedDisk.Type, Image: profile.StorageProfile.ImageReference}
	if rules := set.Properties.ScaleIn.Rules; len(rules) > 0 {
		p.ScaleInPolicy = rules[0]
	}
	if all := scaled.Properties.Profiles; len(all) > 0 {
		least, _ := strconv.Atoi(all[0].Capacity.Minimum)
		most, _ := strconv.Atoi(all[0].Capacity.Maximum)
		p.Count, p.Min, p.Max, p.ScaleBy = nil, &least, &most, k3s.CPU
	}
	if byPods(set) {
		least, _ := strconv.Atoi(set.Tags["min"])
		most, _ := strconv.Atoi(set.Tags["max"])
		p.Count, p.Min, p.Max, p.ScaleBy = nil, &least, &most, k3s.Pods
	}
	return p
}

// sources has both files have the ranges of access that the security group and the templates have.
func (c *comparison) sources(group *resource, live, file *k3s.Cluster) {
	a, b := &live.Spec.Access, &file.Spec.Access
	want := c.m.sources()
	for _, name := range sorted(want) {
		c.known = append(c.known, "spec.access."+name)
	}
	a.SSH, a.API, a.Ingress = sourcesOf(group, "ssh"), sourcesOf(group, "api"), sourcesOf(group, "ingress")
	b.SSH, b.API, b.Ingress = want["ssh"], want["api"], want["ingress"]
}

// before returns what a field was where an effect reaches, and whether the file has another
// value. It completes the effect.
func (c *comparison) before(e *Effect, path string) (before string, differs bool) {
	_, in, _ := strings.Cut(path, "spec.pools[")
	name, _, ofPool := strings.Cut(in, "]")
	if ofPool && (c.o.sets[name].ID == "" || c.m.pool(name) == nil) {
		return "", false
	}
	after := c.want[path]
	switch e.Reaches {
	case ReachNewServer:
		if c.o.server != nil && !c.m.stateStays(c.o) {
			e.Loses, e.Then = "the cluster's objects", anotherCluster
		}
	case ReachPool:
		if before = c.world[path]; strings.EqualFold(before, after) {
			return before, false
		}
		e.Pools = []string{name}
		if was := c.o.sets[name].SKU.Capacity; strings.HasSuffix(path, ".count") && after != "" {
			switch now := *c.d.Pools[name].Count; {
			case now < was:
				e.Loses = fmt.Sprintf("%d of %d agents, each drained first; a PodDisruptionBudget that forbids it stops up", was-now, was)
			case c.d.Evicted[name] > 0:
				before, e.When = strconv.Itoa(was), byUp+": agents that were evicted come back"
			}
		}
		if before == "" && strings.HasSuffix(path, ".max") && c.d.Pools[name].ScaleBy == k3s.CPU {
			e.Loses = "agents that Azure chooses, when it scales in"
		}
		if strings.HasSuffix(path, ".scaleBy") {
			e.Loses = map[string]string{k3s.CPU: "Azure's autoscale setting", k3s.Pods: "the right of cluster-autoscaler on the scale set"}[before]
		}
		e.Then = strings.NewReplacer("POOL", name, "SIZE", after).Replace(e.Then)
		return before, true
	case ReachAgents:
		for _, pool := range sorted(c.o.sets) {
			record := c.pools[pool]
			if ofPool && pool != name || record == nil || c.m.pool(pool) == nil || record.Fields[path] == c.file(path) ||
				record.CloudInit[pool] == c.d.Applied.CloudInit[pool] { // a field that other pools' documents have
				continue
			}
			before, differs, e.Pools = cmp.Or(before, record.Fields[path]), true, append(e.Pools, pool)
		}
		e.Then = strings.ReplaceAll(e.Then, "POOL", strings.Join(e.Pools, ", then "))
		if len(e.Pools) > 1 {
			e.Then = "for each of the pools " + reimage
		}
		return before, differs
	}
	if path == "spec.access.publicAddress" && after != k3s.None {
		e.When, e.Loses = byUp+": another address, by its former name", ""
	}
	shown := slices.ContainsFunc(c.known, func(f string) bool { return path == f || strings.HasPrefix(path, f+".") })
	switch {
	case e.Reaches == ReachRefused, e.Reaches == ReachNewServer && !shown: // plan ends with what is refused
		return "", false
	case shown && !(e.Reaches == ReachStorage || e.Reaches == ReachNothing):
		return c.world[path], !strings.EqualFold(c.world[path], after)
	case e.Reaches == ReachServer && c.server != nil:
		return c.server.Fields[path], c.server.Fields[path] != c.file(path)
	case e.Reaches != ReachServer && c.other != nil:
		return c.other.Fields[path], c.other.Fields[path] != c.file(path)
	}
	return "", false
}

// file is a field as the record has it.
func (c *comparison) file(path string) string { return c.d.Applied.Fields[path] }

// serverKey is the public key that opens the server, "" if it is not known.
func (m *Manager) serverKey(o *observation) string {
	if o.server == nil {
		return ""
	}
	var settings struct {
		Files []struct{ Path, Content string }
	}
	_ = json.Unmarshal(o.server.settings(), &settings) // what is no JSON is not ours
	for _, f := range settings.Files {
		if f.Path == recipe.KeyFile {
			return strings.TrimSpace(f.Content)
		}
	}
	return o.server.sshKey()
}

// lockedOut warns where the operator's own address may not reach the server any more.
func (m *Manager) lockedOut() (notes []string) {
	if m.withoutAddress() {
		return nil // another way is checked before this one closes
	}
	a := m.Cluster.Spec.Access
	return append(m.shutOut("ssh", a.SSH), m.shutOut("api", a.API)...)
}

// shutOut warns of own addresses that are not among the sources of spec.access.NAME.
func (m *Manager) shutOut(name string, sources []string) (notes []string) {
	v4, v6, err := k3s.Sources(sources, m.OwnAddresses)
	for _, own := range m.OwnAddresses {
		with4, with6, unread := k3s.Sources(slices.Concat(sources, []string{own}), m.OwnAddresses)
		if err == nil && unread == nil && !(slices.Equal(v4, with4) && slices.Equal(v6, with6)) {
			notes = append(notes, "spec.access."+name+" does not have your own address, "+own+": from there you cannot reach the server after up; add it, or own")
		}
	}
	return notes
}
