package prototype

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
)

// Problems are reasons to refuse.
type Problems []fleet.Problem

// Add adds reasons, each once.
func (p *Problems) Add(problems ...fleet.Problem) {
	for _, x := range problems {
		if !slices.Contains(*p, x) {
			*p = append(*p, x)
		}
	}
}

// Refuse adds a reason if it applies.
func (p *Problems) Refuse(applies bool, code, on, what, wayOut string) {
	if applies {
		p.Add(fleet.Problem{Code: code, On: on, What: what, WayOut: wayOut})
	}
}

// Unreadable adds that something cannot be read. That it does not exist is no reason.
func (p *Problems) Unreadable(on string, err error) {
	if fleet.IgnoreNotFound(err) == nil {
		return
	}
	way := "try again"
	switch fleet.KindOf(err) {
	case fleet.KindDenied:
		way = "grant these credentials the right to read it"
	case fleet.KindUnauthenticated:
		way = "check the credentials"
	}
	p.Refuse(true, "Unreadable", on, "it cannot be read: "+err.Error(), way)
}

// CaptureProblems gives every reason to refuse a capture that takes the course.
// What only matters to steps that the course skips is no problem.
func CaptureProblems(o Observed, q Request, course Course) (p Problems) {
	p.Add(o.Unreadable...)
	refuse := p.Refuse
	refuse(q.History < 2, "HistoryTooShort", "--history", fmt.Sprintf("%d version(s) would leave nothing to roll back to", q.History), "keep at least 2")
	if err := q.Extensions.Check(); err != nil {
		refuse(true, "BadPattern", "--keep-extension", err.Error(), "see path.Match for patterns")
	}
	refuse(q.NewNodes < 0, "BadNumber", "--grow", "nodes cannot be added by a negative number", "give 0 or more")
	refuse(q.Replicas < 1 || q.Replicas > 100, "BadNumber", "--replicas", fmt.Sprintf("%d replicas", q.Replicas), "give 1 to 100")
	if on := "node " + q.Node; o.Donor != nil {
		p.ofDonor(o, q, course)
	} else {
		unreadable := slices.ContainsFunc(o.Unreadable, func(x fleet.Problem) bool { return x.On == on })
		refuse(!unreadable, "NodeNotFound", on, "there is no such node",
			"name a node as `kubectl get nodes` shows it; if the Node was deleted, start its instance, whose kubelet registers it again")
	}
	if o.Pool != nil {
		p.ofPool(*o.Pool, q)
	}
	if course.FromDonor() && o.Pool != nil && o.Instance != nil {
		p.ofDisk(o)
	}
	refuse(course.NeedsWorkbench() && o.Pool != nil && o.Instance != nil && o.Workbench == nil, "NoWorkbench", "node "+q.Node,
		"no other node can work on a copy of its disk: "+cmp.Or(o.NoWorkbench, "the cluster has no other"),
		"add a node in its zone and of its architecture, or name one by --workbench")
	p.Add(DeniedProblems(o)...)
	p.Add(course.Problems...)
	return p
}

// DeniedProblems says which permissions lack.
func DeniedProblems(o Observed) (p Problems) {
	refuse, on := p.Refuse, "Azure"
	if o.Pool != nil {
		on = string(o.Pool.ID.Group())
	}
	refuse(len(o.DeniedAzure) > 0, "AzureDenied", on, "these credentials may not do "+strings.Join(o.DeniedAzure, ", "),
		"grant them a role with these actions on the resource group")
	refuse(len(o.DeniedCluster) > 0, "ClusterDenied", "the cluster", "these credentials may not "+strings.Join(o.DeniedCluster, ", "),
		"grant them the documented ClusterRole and Role")
	return p
}

func (p *Problems) ofDonor(o Observed, q Request, course Course) {
	refuse, d, on := p.Refuse, *o.Donor, "node "+q.Node
	if o.NotInstance != nil {
		refuse(true, "NotAnInstance", on, o.NotInstance.Error(), "name a node of a Uniform scale set")
	}
	refuse(!strings.EqualFold(d.OS, "linux"), "NotLinux", on, fmt.Sprintf("its operating system is %q", d.OS), "name a Linux node")
	// Its disk holds the cluster's own keys, which no image may hold, and stopping it may
	// take the API server away, which is needed to start it.
	refuse(d.ControlPlane, "ControlPlane", on, "it is a control plane node", "name a worker")
	why := Managed(d, o.Pool)
	refuse(why != "", "ManagedByAKS", on, "AKS manages this pool ("+why+"), and does not support changes to its scale sets",
		"use AKS's own node images, or a pool of your own")
	if !course.FromDonor() {
		return
	}
	refuse(!d.Ready, "NodeNotReady", on, "it is not Ready: "+cmp.Or(d.NotReadyWhy, "no reason given"), "name a node that works")
	refuse(o.SelfNode != "" && d.Name == o.SelfNode, "OwnNode", on, "this process runs on it and would be evicted with it", "run it elsewhere, or name another node")
	if i := o.Instance; i != nil {
		refuse(i.Power != fleet.PowerRunning, "InstanceNotRunning", string(i.ID), "the instance is "+cmp.Or(string(i.Power), "in no known state"), "start it first")
		refuse(q.Deallocate && o.Pool != nil && o.Pool.Spot, "SpotDeallocate", string(i.ID), "a Spot instance that is deallocated may not come back",
			"leave out --deallocate: power-off keeps its place")
	}
	if o.Pool != nil {
		by := string(UsedBy(d, o.Pool.ID))
		refuse(by != "", "IsWorkbench", on, "a capture of "+by+" uses it as its workbench",
			"wait until that capture ends, or name another node; if no such capture is open (ortet status): kubectl annotate node "+d.Name+" "+fleet.AnnotationWorkbench+"-")
	}
	for _, x := range o.Obstacles {
		refuse(!q.ForceDrain && x.Budget != "", "BudgetAllowsNoEviction", on, "its pod "+x.Pod+" cannot be evicted (PodDisruptionBudget "+x.Budget+"): "+x.Why,
			"let the budget allow an eviction, add a replica, name another node, or say --force, which overrides budgets when the drain's time is over")
		refuse(!q.ForceDrain && x.Budget == "", "PodNotEvictable", on, "its pod "+x.Pod+" cannot be evicted: "+x.Why,
			"give it a controller, remove it, or say --force, which deletes it")
	}
	refuse(d.Annotations[fleet.AnnotationKuredReboot] != "", "RebootPending", on, "kured is about to reboot it", "wait until it has")
}

// Managed gives the mark of a pool that AKS manages, or ""; pool may be nil. AKS Engine,
// which is served, labels its nodes with kubernetes.azure.com/cluster too, but names its
// own resource group there.
func Managed(d fleet.Node, pool *fleet.Pool) string {
	if v := d.Labels["kubernetes.azure.com/cluster"]; strings.HasPrefix(strings.ToUpper(v), "MC_") {
		return "label kubernetes.azure.com/cluster=" + v
	}
	if v, ok := d.Labels["kubernetes.azure.com/node-image-version"]; ok {
		return "label kubernetes.azure.com/node-image-version=" + v
	}
	if pool == nil {
		return ""
	}
	if k := tagWith(*pool, "aks-managed-"); k != "" {
		return "tag " + k
	}
	if g := pool.ID.Segment("resourceGroups"); strings.HasPrefix(strings.ToUpper(g), "MC_") {
		return "resource group " + g
	}
	return ""
}

const tagCAPZ = "sigs.k8s.io_cluster-api-provider-azure_cluster_"

func (p *Problems) ofPool(pool fleet.Pool, q Request) {
	refuse, on := p.Refuse, string(pool.ID)
	refuse(pool.Orchestration != "" && pool.Orchestration != fleet.Uniform, "NotUniform", on, "its orchestration mode is "+pool.Orchestration, "only Uniform scale sets are served")
	refuse(!pool.Model.Linux, "NotLinuxPool", on, "its model is not Linux", "name a node of a Linux pool")
	p.Add(ModelProblems(pool, q.AllowRolling, q.ExcludeFromLatest, q.AllowOwned)...)
	refuse(pool.AutomaticRepairs, "AutomaticRepairs", on, "its automatic instance repairs would replace the donor while it is stopped",
		"switch them off for the capture: az vmss update --enable-automatic-repairs false")
	refuse(pool.Model.EphemeralOS, "EphemeralDisk", on, "its OS disks are ephemeral: they cannot be stopped or snapshotted", "use a pool with managed OS disks")
	_, kept := q.Extensions.Doomed(pool.Model.Extensions)
	for _, k := range kept {
		refuse(true, "ExtensionNeeded", on, "an extension that stays needs one that would go: "+k, "keep both, or let both go")
	}
}

// ModelProblems gives the reasons not to change a pool's model, which are
// looked at again right before it is changed.
func ModelProblems(pool fleet.Pool, allowRolling, excludeFromLatest, allowOwned bool) (p Problems) {
	refuse, on := p.Refuse, string(pool.ID)
	refuse(strings.EqualFold(pool.UpgradeMode, fleet.Automatic), "AutomaticUpgrade", on,
		"its upgrade mode is Automatic: a changed model may take down all instances at once", "set it to Manual: az vmss update --set upgradePolicy.mode=Manual")
	refuse(strings.EqualFold(pool.UpgradeMode, fleet.Rolling) && !allowRolling, "RollingUpgrade", on,
		"its upgrade mode is Rolling: Azure will replace the instances by itself", "set it to Manual, or say --allow-rolling")
	refuse(pool.AutomaticOSUpgrade && !excludeFromLatest, "AutomaticOSUpgrade", on,
		"automatic OS upgrades are on: a published version would be rolled out by itself", "switch them off, or say --exclude-from-latest")
	owner := tagWith(pool, tagCAPZ)
	refuse(owner != "" && !allowOwned, "OwnedByClusterAPI", on, "Cluster API's cluster "+strings.TrimPrefix(owner, tagCAPZ)+" owns its model and would change it back",
		"change the image of its AzureMachinePool instead, or say --allow-owned")
	return p
}

// tagWith gives the first tag of a pool whose name begins so, in any letter case; "" if
// it has none.
func tagWith(pool fleet.Pool, prefix string) string {
	for _, k := range slices.Sorted(maps.Keys(pool.Tags)) {
		if strings.HasPrefix(strings.ToLower(k), prefix) {
			return k
		}
	}
	return ""
}

func (p *Problems) ofDisk(o Observed) {
	refuse := p.Refuse
	if o.Disk == nil {
		refuse(o.Instance.OSDisk == "" && !o.Pool.Model.EphemeralOS, "NoDisk", string(o.Instance.ID), "it has no managed OS disk", "use a pool with managed OS disks")
		return
	}
	security := securityType(o)
	refuse(strings.Contains(strings.ToLower(security), "confidential"), "ConfidentialDisk", string(o.Disk.ID),
		"it belongs to a confidential VM and can be read by that alone", "use a pool without confidential VMs")
	if o.Definition == nil {
		return
	}
	def := *o.Definition
	need := func(what, has, needs string, fits bool) {
		refuse(!fits, "DefinitionMismatch", string(def.ID), fmt.Sprintf("the image definition's %s is %s, the donor needs %s", what, has, needs),
			"what a definition says cannot be changed: delete it once nothing uses it; the capture creates it again")
	}
	same := func(what, has, needs string) { need(what, has, needs, strings.EqualFold(has, needs)) }
	same("OS state", cmp.Or(def.OSState, "Generalized"), "Generalized")
	need("operating system", "not Linux", "Linux", def.Linux)
	same("generation", cmp.Or(def.Generation, "V1"), generation(o))
	same("architecture", cmp.Or(def.Architecture, "x64"), architecture(o))
	need("security type", cmp.Or(def.SecurityType, "Standard"), security, securityFits(security, def.SecurityType))
	need("disk controller", cmp.Or(def.Controllers, "SCSI"), "NVMe", !needsNVMe(o) || strings.Contains(strings.ToUpper(def.Controllers), "NVME"))
}

// securityFits reports whether a VM of the security type can be made from an
// image whose definition has the feature.
func securityFits(donor, definition string) bool {
	d := strings.ToLower(definition)
	if strings.EqualFold(donor, "TrustedLaunch") {
		return strings.HasPrefix(d, "trustedlaunch")
	}
	return d == "" || d == "standard" || strings.HasSuffix(d, "supported")
}
