package lifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

// Ways out of a difference between cluster.yaml and what exists.
const (
	newCompute = ", or to make the network again: ortet cluster down, then ortet cluster up"
	newState   = ", or to make a new cluster without the objects of this one: ortet cluster down --state, then ortet cluster up"
)

// anotherBackup is the way out of a backup that cannot be restored; "" without a restore.
func anotherBackup(o *observation) string {
	if o.restore == "" {
		return ""
	}
	return ", or restore another backup: ortet cluster backup --list"
}

// backupOr is what is being restored, or otherwise.
func backupOr(otherwise string, o *observation) string {
	if o.restore != "" {
		return "backup " + fleet.ResourceID(o.restore).Name()
	}
	return otherwise
}

func (m *Manager) ours(r *resource) bool { return r != nil && r.Tags[recipe.TagCluster] == m.name() }

// checkNetwork refuses other ranges than those of the network that exists. Azure refuses
// them too, but only in the deployment, after it has changed security groups.
func (m *Manager) checkNetwork(network *resource, p *problems) {
	if !m.ours(network) {
		return
	}
	n := m.Cluster.Spec.Network
	check := func(field string, have []string, want string) {
		if slices.Equal(have, []string{want}) {
			return
		}
		wayOut := "write " + field + ": " + strings.Join(have, ", ")
		if len(have) > 1 {
			wayOut = "delete the others from the network" // cluster.yaml has one of each
		}
		what := fmt.Sprintf("spec.network.%s is %s, but the network has %s", field, want, strings.Join(have, ", "))
		p.add("NetworkFixed", network.ID, what, wayOut+newCompute)
	}
	check("addressSpace", network.Properties.AddressSpace.AddressPrefixes, n.AddressSpace)
	want := map[string]string{k3s.ToServers: n.Servers, k3s.ToAgents: n.Agents}
	for _, s := range network.Properties.Subnets {
		q, mine := want[s.Name]
		if !mine {
			p.add("SubnetForeign", network.ID, "subnet "+s.Name+" was not made by ortet cluster, and up would delete it",
				"move what is in it to another network, and delete it")
			continue
		}
		have := s.Properties.AddressPrefixes
		if len(have) == 0 {
			have = []string{s.Properties.AddressPrefix}
		}
		check(s.Name, have, q)
		// Without its gateway, an agent that has no address yet would be cut off.
		outbound := k3s.Gateway
		if s.Properties.NATGateway == nil {
			outbound = k3s.Addresses
		}
		if s.Name == k3s.ToAgents {
			check("outbound", []string{outbound}, n.Outbound)
		}
	}
}

// checkRules refuses to delete security rules of others, which a deployment would do, as
// it writes the whole group.
func (m *Manager) checkRules(group *resource, to string, p *problems) {
	if !m.ours(group) {
		return
	}
	for _, have := range group.Properties.SecurityRules {
		kept := func(r k3s.AccessRule) bool { return r.To == to && strings.EqualFold(r.Name, have.Name) }
		if k3s.IsRuleName(have.Name) || have.Properties.Description == recipe.RuleDescription ||
			slices.ContainsFunc(m.Cluster.Spec.Access.Rules, kept) {
			continue
		}
		p.add("RuleForeign", group.ID, "security rule "+have.Name+" is not in cluster.yaml, and up would delete it",
			fmt.Sprintf("write it in spec.access.rules, with to: %s and the same name, "+
				"or delete it: az network nsg rule delete --resource-group %s --nsg-name %s --name %s",
				to, m.group(RoleCompute).Name(), to, have.Name))
	}
}

// checkPools refuses what Azure cannot change in a scale set.
func (m *Manager) checkPools(o *observation, p *problems) {
	for _, name := range sorted(o.sets) {
		set, pool := o.sets[name], m.pool(name)
		if pool == nil {
			continue
		}
		check := func(field, have, want string) {
			if have != want {
				what := fmt.Sprintf("%s of pool %s is %s and cannot become %s", field, name, cmp.Or(have, "none"), cmp.Or(want, "none"))
				p.add("PoolFixed", set.ID, what,
					fmt.Sprintf("write %s, or give the pool another name: ortet cluster up makes it, and ortet cluster up --prune deletes pool %s",
						fieldLine(field, have), name))
			}
		}
		priority := cmp.Or(set.Properties.Profile.Priority, k3s.Regular)
		check("priority", priority, pool.Priority)
		if priority == k3s.Spot && pool.Priority == k3s.Spot {
			check("evictionPolicy", set.Properties.Profile.EvictionPolicy, pool.EvictionPolicy)
		}
		check("zones", zones(set.Zones), zones(pool.Zones))
		// Azure takes it when a scale set is made ("Modify an Azure Virtual Machine Scale Set",
		// properties with restrictions on modification).
		if have := set.Properties.Profile.StorageProfile.OSDisk.ManagedDisk.Type; have != "" {
			check("diskType", have, pool.DiskType)
		}
	}
}

// checkUser refuses another user of SSH: Azure cannot change that of a scale set, and one
// cluster has one user.
func (m *Manager) checkUser(o *observation, p *problems) {
	users := map[string]fleet.ResourceID{}
	if o.server != nil && len(o.sets) == 0 && !o.replace {
		users[o.server.Properties.OSProfile.AdminUsername] = o.server.ID
	}
	for name, set := range o.sets {
		if m.pool(name) != nil {
			users[set.Properties.Profile.OSProfile.AdminUsername] = set.ID
		}
	}
	for _, have := range sorted(users) {
		if want := m.Cluster.Spec.Access.User; have != "" && have != want {
			p.add("UserFixed", users[have], fmt.Sprintf("spec.access.user is %s, but machines were made with %s, and Azure cannot change that", want, have),
				"write user: "+have+", or to make all machines again, on the same state: ortet cluster down, then ortet cluster up")
		}
	}
}

// zones are zones in their order, as cluster.yaml has them, or "".
func zones(all []string) string {
	if len(all) == 0 {
		return ""
	}
	return `["` + strings.Join(slices.Sorted(slices.Values(all)), `", "`) + `"]`
}

// fieldLine is the line of cluster.yaml for a value that exists.
func fieldLine(field, have string) string {
	if have == "" {
		return "no " + field
	}
	return field + ": " + have
}

// state is what the datastore is made of: the state disk of this cluster, the backup that
// is being restored, or nil.
func (m *Manager) state(o *observation) *resource {
	if o.restore != "" {
		return o.backup
	}
	for i, r := range o.resources[RoleStorage] {
		if r.ID.Equal(m.in(RoleStorage, "Microsoft.Compute/disks", recipe.StateDisk)) && m.ours(&r) {
			return &o.resources[RoleStorage][i]
		}
	}
	return nil
}

// checkState refuses what the datastore on the state disk cannot become: k3s cannot change
// its ranges, and a disk attaches only to machines of its region.
func (m *Manager) checkState(o *observation, p *problems) {
	disk := m.state(o)
	if disk == nil {
		return
	}
	newState := cmp.Or(anotherBackup(o), newState)
	if want := m.Cluster.Spec.Location; !fleet.SameRegion(disk.Location, want) && (o.groups[RoleStorage] == nil || fleet.SameRegion(o.groups[RoleStorage].Location, want)) {
		p.add("LocationFixed", disk.ID, fmt.Sprintf("%s is in %s, but spec.location is %s", backupOr("state disk", o), disk.Location, m.Cluster.Spec.Location),
			"write location: "+disk.Location+newState)
	}
	pods, services, tagged := strings.Cut(disk.Tags[recipe.TagRanges], ",")
	if !tagged {
		return
	}
	n := m.Cluster.Spec.Network
	for _, r := range []struct{ field, have, want string }{{"pods", pods, n.Pods}, {"services", services, n.Services}} {
		if r.have != r.want {
			p.add("RangesFixed", disk.ID, fmt.Sprintf("spec.network.%s is %s, but %s has %s", r.field, r.want, backupOr("the cluster", o), r.have),
				"write "+r.field+": "+r.have+newState)
		}
	}
}

// checkVersion refuses a lower version of k3s than the cluster's, and a version that skips a
// minor version: Kubernetes supports neither (its version skew policy).
func (m *Manager) checkVersion(o *observation, p *problems) {
	want, have, on := m.Cluster.Spec.Artifacts.Version, "", fleet.ResourceID("")
	wayOut := ", or to make a new cluster: ortet cluster down, then ortet cluster up"
	for _, r := range []*resource{m.state(o), o.server} {
		// A restore ends what the server runs now: it is the way back from a newer k3s.
		if r != nil && r.Tags[recipe.TagK3s] != "" && (r != o.server || o.restore == "") {
			have, on = r.Tags[recipe.TagK3s], r.ID
		}
	}
	runs := "the cluster runs "
	back := ""
	if m.state(o) != nil {
		back, wayOut = ", or to go back to "+want+": ortet cluster backup --list, then ortet cluster restore NAME", newState
	}
	// Settings that another up wrote may not be reported yet. Before all files are fetched,
	// k3s is not replaced.
	if o.restore == "" && o.server != nil && !strings.Contains(o.server.Tags[recipe.TagBoot], "fetching ") {
		record := find(o.records, func(a recipe.Applied) bool { return a.Settings == recipe.Digest(o.server.settings()) })
		if v := fieldsOf(record)["spec.artifacts.version"]; v != "" && (have == "" || olderK3s(have, v)) {
			have, on, runs = v, o.server.ID, "the server was given "
		}
	}
	if o.restore != "" {
		back, wayOut, runs = "", anotherBackup(o), backupOr("", o)+" is of "
	}
	w, err := version.ParseSemantic(want)
	h, otherErr := version.ParseSemantic(have)
	switch {
	case err != nil || otherErr != nil: // not set, or of a build without a version
	case olderK3s(want, have):
		p.add("DowngradeRefused", on, fmt.Sprintf("spec.artifacts.version is %s, but %s; k3s cannot go back", want, runs+have),
			"use the artifacts of "+have+" or later"+back+wayOut)
	case w.Major() != h.Major() || w.Minor() > h.Minor()+1:
		p.add("MinorVersionSkipped", on,
			fmt.Sprintf("spec.artifacts.version is %s, but %s; Kubernetes upgrades by one minor version at a time",
				want, runs+have),
			fmt.Sprintf("use the artifacts of v%d.%d first%s", h.Major(), h.Minor()+1, wayOut))
	}
}

// olderK3s reports whether a version of k3s is older than another; what is no version is not.
func olderK3s(a, b string) bool {
	v, err := version.ParseSemantic(a)
	w, otherErr := version.ParseSemantic(b)
	return err == nil && otherErr == nil && (v.LessThan(w) || v.EqualTo(w) && k3sRelease(a) < k3sRelease(b))
}

// k3sRelease is the number of k3s's release of a Kubernetes version, 2 of "v1.36.3+k3s2",
// which versions do not compare by.
func k3sRelease(v string) int {
	_, n, _ := strings.Cut(v, "+k3s")
	release, _ := strconv.Atoi(n) // 0 is none
	return release
}

// checkOtherAccounts refuses another storage account than the cluster's, which would
// leave its data behind.
func (m *Manager) checkOtherAccounts(o *observation, p *problems) {
	for _, r := range o.resources[RoleStorage] {
		if strings.EqualFold(r.Type, "Microsoft.Storage/storageAccounts") && m.ours(&r) && !r.ID.Equal(m.accountID()) {
			p.add("AccountFixed", r.ID, fmt.Sprintf("spec.storage.account is %s, but the cluster's data is in %s",
				m.Cluster.Spec.Storage.Account, r.Name),
				"write account: "+r.Name+", or to make a new cluster without that data: ortet cluster down --all, then ortet cluster up")
		}
	}
}
