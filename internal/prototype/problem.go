package prototype

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// CaptureProblems gives every reason to refuse a capture that takes the course.
// What only matters to steps that the course skips is no problem.
func CaptureProblems(o Observed, options Request, course Course) []fleet.Problem {
	problems := slices.Clone(o.Unreadable)
	add := func(on, code, what, wayOut string) {
		problems = append(problems, fleet.Problem{Code: code, What: what, On: on, WayOut: wayOut})
	}
	optionProblems(options, add)
	donorProblems(o, options, course, add)
	if o.Pool != nil {
		poolProblems(o, options, add)
		extensionProblems(*o.Pool, options, add)
	}
	if course.FromDonor() {
		diskProblems(o, options, add)
	}
	if course.NeedsWorkbench() && o.Pool != nil && o.Instance != nil && o.Workbench == nil {
		add("node "+options.Node, "NoWorkbench",
			"no other node can work on a copy of its disk: "+first(o.NoWorkbench, "there is none"),
			"add a node in its zone and of its architecture, or name one by --workbench")
	}
	problems = append(problems, DeniedProblems(o)...)
	return dedupe(append(problems, course.Problems...))
}

// DeniedProblems says which permissions lack.
func DeniedProblems(o Observed) []fleet.Problem {
	var problems []fleet.Problem
	add := func(on, code, what, wayOut string) {
		problems = append(problems, fleet.Problem{Code: code, What: what, On: on, WayOut: wayOut})
	}
	if len(o.DeniedAzure) > 0 {
		on := "Azure"
		if o.Pool != nil {
			on = string(o.Pool.ID.Group())
		}
		add(on, "AzureDenied", "these credentials may not do "+strings.Join(o.DeniedAzure, ", "),
			"grant them a role with these actions on the resource group")
	}
	if len(o.DeniedCluster) > 0 {
		add("the cluster", "ClusterDenied", "these credentials may not "+strings.Join(o.DeniedCluster, ", "),
			"grant them the documented ClusterRole and Role")
	}
	return problems
}

type adder func(on, code, what, wayOut string)

func optionProblems(q Request, add adder) {
	if q.History < 2 {
		add("--history", "HistoryTooShort", fmt.Sprintf("%d version(s) would leave nothing to roll back to", q.History), "keep at least 2")
	}
	if err := q.Extensions.Check(); err != nil {
		add("--keep-extension", "BadPattern", err.Error(), "see path.Match for patterns")
	}
	if q.NewNodes < 0 {
		add("--grow", "BadNumber", "nodes cannot be added by a negative number", "give 0 or more")
	}
	if q.Replicas < 1 || q.Replicas > 100 {
		add("--replicas", "BadNumber", fmt.Sprintf("%d replicas", q.Replicas), "give 1 to 100")
	}
}

func donorProblems(o Observed, options Request, course Course, add adder) {
	on := "node " + options.Node
	if o.Donor == nil {
		if !unreadable(o, on) {
			add(on, "NodeNotFound", "there is no such node", "name a node as `kubectl get nodes` shows it")
		}
		return
	}
	d := *o.Donor
	if o.NotInstance != nil {
		add(on, "NotAnInstance", o.NotInstance.Error(), "name a node of a Uniform scale set")
	}
	if !strings.EqualFold(d.OS, "linux") {
		add(on, "NotLinux", fmt.Sprintf("its operating system is %q", d.OS), "name a Linux node")
	}
	if d.ControlPlane {
		// Its disk holds the cluster's own keys, which no image may hold, and
		// stopping it may take the API server away, which is needed to start it.
		add(on, "ControlPlane", "it is a control plane node", "name a worker")
	}
	if why := Managed(d, o.Pool); why != "" {
		add(on, "ManagedByAKS", "AKS manages this pool ("+why+"), and does not support changes to its scale sets",
			"use AKS's own node images, or a pool of your own")
	}
	if !course.FromDonor() {
		return
	}
	if !d.Ready {
		add(on, "NodeNotReady", "it is not Ready: "+first(d.NotReadyWhy, "no reason given"), "name a node that works")
	}
	if o.SelfNode != "" && d.Name == o.SelfNode {
		add(on, "OwnNode", "this process runs on it and would be evicted with it", "run it elsewhere, or name another node")
	}
	if o.Instance != nil {
		i := *o.Instance
		if i.Power != fleet.PowerRunning {
			add(string(i.ID), "InstanceNotRunning", fmt.Sprintf("the instance is %s", first(string(i.Power), "in no known state")), "start it first")
		}
		if options.Deallocate && o.Pool != nil && o.Pool.Spot {
			add(string(i.ID), "SpotDeallocate", "a Spot instance that is deallocated may not come back", "leave out --deallocate: power-off keeps its place")
		}
	}
	if o.Pool != nil {
		if by := UsedBy(d, o.Pool.ID); by != "" {
			add(on, "IsWorkbench", "a capture of "+string(by)+" uses it as its workbench",
				"wait until that capture ends, or name another node; if no such capture is open (ortet status): kubectl annotate node "+d.Name+" "+fleet.AnnotationWorkbench+"-")
		}
	}
	for _, x := range o.Obstacles {
		switch {
		case options.ForceDrain:
		case x.Budget != "":
			add(on, "BudgetAllowsNoEviction", "its pod "+x.Pod+" cannot be evicted (PodDisruptionBudget "+x.Budget+"): "+x.Why,
				"let the budget allow an eviction, add a replica, name another node, or say --force, which overrides budgets when the drain's time is over")
		default:
			add(on, "PodNotEvictable", "its pod "+x.Pod+" cannot be evicted: "+x.Why, "give it a controller, remove it, or say --force, which deletes it")
		}
	}
	if d.Annotations[fleet.AnnotationKuredReboot] != "" {
		add(on, "RebootPending", "kured is about to reboot it", "wait until it has")
	}
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
	for _, k := range sortedKeys(pool.Tags) {
		if strings.HasPrefix(strings.ToLower(k), "aks-managed-") {
			return "tag " + k
		}
	}
	if g := pool.ID.Segment("resourceGroups"); strings.HasPrefix(strings.ToUpper(g), "MC_") {
		return "resource group " + g
	}
	return ""
}

const tagCAPZ = "sigs.k8s.io_cluster-api-provider-azure_cluster_"

func poolProblems(o Observed, options Request, add adder) {
	p := *o.Pool
	on := string(p.ID)
	if p.Orchestration != "" && p.Orchestration != fleet.Uniform {
		add(on, "NotUniform", "its orchestration mode is "+p.Orchestration, "only Uniform scale sets are served")
	}
	if !p.Model.Linux {
		add(on, "NotLinuxPool", "its model is not Linux", "name a node of a Linux pool")
	}
	problems := ModelProblems(p, options.AllowRolling, options.ExcludeFromLatest, options.AllowOwned)
	for _, m := range problems {
		add(m.On, m.Code, m.What, m.WayOut)
	}
	if p.AutomaticRepairs {
		add(on, "AutomaticRepairs", "its automatic instance repairs would replace the donor while it is stopped",
			"switch them off for the capture: az vmss update --enable-automatic-repairs false")
	}
	if p.Model.EphemeralOS {
		add(on, "EphemeralDisk", "its OS disks are ephemeral: they cannot be stopped or snapshotted", "use a pool with managed OS disks")
	}
}

// ModelProblems gives the reasons not to change a pool's model, which are
// looked at again right before it is changed.
func ModelProblems(p fleet.Pool, allowRolling, excludeFromLatest, allowOwned bool) []fleet.Problem {
	var problems []fleet.Problem
	add := func(code, what, wayOut string) {
		problems = append(problems, fleet.Problem{Code: code, What: what, On: string(p.ID), WayOut: wayOut})
	}
	switch {
	case strings.EqualFold(p.UpgradeMode, fleet.Automatic):
		add("AutomaticUpgrade", "its upgrade mode is Automatic: a changed model may take down all instances at once",
			"set it to Manual: az vmss update --set upgradePolicy.mode=Manual")
	case strings.EqualFold(p.UpgradeMode, fleet.Rolling) && !allowRolling:
		add("RollingUpgrade", "its upgrade mode is Rolling: Azure will replace the instances by itself",
			"set it to Manual, or say --allow-rolling")
	}
	if p.AutomaticOSUpgrade && !excludeFromLatest {
		add("AutomaticOSUpgrade", "automatic OS upgrades are on: a published version would be rolled out by itself",
			"switch them off, or say --exclude-from-latest")
	}
	if !allowOwned {
		for _, k := range sortedKeys(p.Tags) {
			if name, ok := strings.CutPrefix(k, tagCAPZ); ok {
				add("OwnedByClusterAPI", "Cluster API's cluster "+name+" owns its model and would change it back",
					"change the image of its AzureMachinePool instead, or say --allow-owned")
				break
			}
		}
	}
	return problems
}

func extensionProblems(p fleet.Pool, options Request, add adder) {
	_, kept := options.Extensions.Doomed(p.Model.Extensions)
	for _, k := range kept {
		add(string(p.ID), "ExtensionNeeded", "an extension that stays needs one that would go: "+k,
			"keep both, or let both go")
	}
}

func diskProblems(o Observed, _ Request, add adder) {
	if o.Pool == nil || o.Instance == nil {
		return
	}
	if o.Disk == nil {
		if o.Instance.OSDisk == "" && !o.Pool.Model.EphemeralOS {
			add(string(o.Instance.ID), "NoDisk", "it has no managed OS disk", "use a pool with managed OS disks")
		}
		return
	}
	on := string(o.Disk.ID)
	size := fleet.SizeInfo{}
	if o.Size != nil {
		size = *o.Size
	}
	security := securityType(*o.Pool, *o.Instance, *o.Disk)
	if strings.Contains(strings.ToLower(security), "confidential") {
		add(on, "ConfidentialDisk", "it belongs to a confidential VM and can be read by that alone", "use a pool without confidential VMs")
	}
	if o.Definition == nil {
		return
	}
	def := *o.Definition
	mismatch := func(what, has, needs string) {
		add(string(def.ID), "DefinitionMismatch",
			fmt.Sprintf("the image definition's %s is %s, the donor needs %s", what, has, needs),
			"what a definition says cannot be changed: delete it once nothing uses it; the capture creates it again")
	}
	if def.OSState != "" && !strings.EqualFold(def.OSState, "Generalized") {
		mismatch("OS state", def.OSState, "Generalized")
	}
	if !def.Linux {
		mismatch("operating system", "not Linux", "Linux")
	}
	if g := generation(*o.Instance, *o.Disk); !strings.EqualFold(first(def.Generation, "V1"), g) {
		mismatch("generation", first(def.Generation, "V1"), g)
	}
	if a := architecture(*o.Disk, size); !strings.EqualFold(first(def.Architecture, "x64"), a) {
		mismatch("architecture", first(def.Architecture, "x64"), a)
	}
	if !securityFits(security, def.SecurityType) {
		mismatch("security type", first(def.SecurityType, "Standard"), security)
	}
	if needsNVMe(*o.Pool, size) && !strings.Contains(strings.ToUpper(def.Controllers), "NVME") {
		mismatch("disk controller", first(def.Controllers, "SCSI"), "NVMe")
	}
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

func unreadable(o Observed, on string) bool {
	return slices.ContainsFunc(o.Unreadable, func(p fleet.Problem) bool { return p.On == on })
}

func dedupe(problems []fleet.Problem) []fleet.Problem {
	seen := map[fleet.Problem]bool{}
	var out []fleet.Problem
	for _, p := range problems {
		if !seen[p] {
			seen[p] = true
			out = append(out, p)
		}
	}
	return out
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Day is the UTC day of a time, as versions are named.
func Day(t time.Time) string { return t.UTC().Format("2006-01-02") }
