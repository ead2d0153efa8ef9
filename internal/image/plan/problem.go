package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
)

// Codes of problems by which others decide.
const (
	CodeAzureDenied        = "AzureDenied"
	CodeClusterDenied      = "ClusterDenied"
	CodeInstanceNotRunning = "InstanceNotRunning"
	CodeIsCanary           = "IsCanary"
	CodeNoProfile          = "NoProfile"
	CodeNoWorkbench        = "NoWorkbench"
	CodeNodeNotReady       = "NodeNotReady"
	CodeOwnedByClusterAPI  = "OwnedByClusterAPI"
	CodeRolledBack         = "RolledBack"
)

// Observed is the world before a capture. What could not be observed, because
// what leads there is missing, is nil.
type Observed struct {
	Donor            *fleet.Node
	InstanceID       fleet.ResourceID // the donor's machine
	NotInstance      error            // why the Node names none, or none of a scale set
	Pool             *fleet.Pool
	Instance         *fleet.Instance
	Disk             *fleet.Disk         // the donor's OS disk
	Keys             fleet.EncryptionSet // EncryptionSet(o), where that is one
	NoKeys           error               // why it cannot be read
	Size             *fleet.SizeInfo
	ModelSizes       []fleet.SizeInfo // that new nodes may have, without the donor's
	Gallery          *fleet.Gallery
	Definitions      []fleet.Definition   // all of the gallery's
	Definition       *fleet.Definition    // of the donor's kind
	OtherKind        string               // why that is not the one of the pool's first kind
	Versions         []fleet.ImageVersion // of all of the pool's definitions
	Uses             []fleet.ImageUse
	Snapshot         *fleet.Snapshot // of Names.Snapshot
	Generalized      *fleet.Snapshot // of Names.Generalized
	WorkDisk         *fleet.Disk     // of Names.WorkDisk
	Workbench        *Workbench
	NoWorkbench      string             // why none fits
	EvictionBlockers []fleet.BlockedPod // to a drain
	SelfNode         string             // that this process runs on
	NoImage          bool               // no container image was given for the pods on donor and workbench
	DeniedAzure      []string           // permissions that lack
	DeniedCluster    []string
	Unreadable       Problems // for another reason than that it is not there
}

// A Workbench is a node on which a copy of the donor's disk is worked on.
type Workbench struct {
	Node     fleet.Node
	Instance fleet.Instance
	LUN      int32 // free on it
}

// CannotServe says why a node cannot be the workbench of a donor of this pool, as far as
// Kubernetes knows; "" means that it may. The words are for counting. others allows nodes of other
// pools; that a virtual machine is of another, its id does not show.
func CannotServe(donor, node fleet.Node, pool fleet.ResourceID, others bool) string {
	id, err := fleet.ParseMachine(node.ProviderID)
	of, _ := fleet.ParseMachine(donor.ProviderID)
	elsewhere := !id.UniformPool().Equal(of.UniformPool())
	_, marked := node.Annotations[fleet.AnnotationCapture]
	return cmp.Or(
		when(node.Name == donor.Name, "is the donor"),
		when(err != nil, "is no virtual machine of Azure"),
		when(elsewhere && !others, "is of another pool"),
		when(!strings.EqualFold(node.OS, "linux"), "is not Linux"),
		when(donor.Architecture != "" && node.Architecture != donor.Architecture, "has another architecture"),
		when(!node.Ready, "is not Ready"),
		when(node.Unschedulable, "is cordoned"),
		when(marked, "is being captured"),
		when(UsedBy(node, pool) != "", "is another capture's workbench"),
		when(node.Annotations[fleet.AnnotationKuredReboot] != "", "is about to reboot"),
	)
}

// NeedsWorkbench is what to do where no node can be a donor's workbench.
const NeedsWorkbench = "add a Ready Linux node in the donor's zone and of its architecture to its pool, or uncordon one; --other-pools allows one of another pool, whose root then decides what the image is"

// UsedBy returns the pool whose capture uses the node as its workbench; "" where none
// but the given pool's does.
func UsedBy(node fleet.Node, pool fleet.ResourceID) fleet.ResourceID {
	by := fleet.ResourceID(node.Annotations[fleet.AnnotationWorkbench])
	return when(!by.Equal(pool), by)
}

// A Candidate is a node that may be a workbench, and its scale set; "" for a virtual
// machine that is in none, or of which that is not known.
type Candidate struct {
	Node fleet.Node
	Pool fleet.ResourceID
}

// RankWorkbenches sorts candidates, the best first: of the donor's pool, of a known one, no
// control plane, of the donor's zone, then by name.
func RankWorkbenches(donor fleet.Node, pool fleet.ResourceID, candidates []Candidate) {
	rank := func(c Candidate) string { // false sorts before true
		return fmt.Sprintf("%t %t %t %t %s", !c.Pool.Equal(pool), c.Pool == "", c.Node.ControlPlane, c.Node.Zone != donor.Zone, c.Node.Name)
	}
	slices.SortFunc(candidates, func(a, b Candidate) int { return strings.Compare(rank(a), rank(b)) })
}

// BenchLUN returns a free LUN of an instance that may be the donor's workbench,
// or why it cannot serve. The highest is taken, since volume drivers take the
// lowest, so that the two do not race for one.
func BenchLUN(donor, instance fleet.Instance, size fleet.SizeInfo) (lun int32, why string) {
	lun = min(size.MaxDataDisks, 64) - 1
	for slices.ContainsFunc(instance.DataDisks, func(d fleet.AttachedDisk) bool { return d.LUN == lun }) {
		lun--
	}
	state := cmp.Or(instance.ProvisioningState, Succeeded)
	return lun, cmp.Or(
		when(instance.Zone != donor.Zone, "is in another zone"),
		when(instance.Power != fleet.PowerRunning, "is "+string(instance.Power)),
		when(state != Succeeded && state != Updating, "is "+state),
		when(lun < 0 || len(instance.DataDisks) >= int(size.MaxDataDisks), "has no room for a disk"),
	)
}

// Tally counts reasons: "is in another zone (2), is not Ready (1)".
func Tally(reasons map[string]int) string {
	words := slices.Sorted(maps.Keys(reasons))
	return strings.Join(fleet.Each(words, func(w string) string { return fmt.Sprintf("%s (%d)", w, reasons[w]) }), ", ")
}

// List returns names for the end of a title, ": a, b"; "" for none.
func List(names []string) string { return strings.TrimSuffix(": "+strings.Join(names, ", "), ": ") }

// MaxNamed limits the names that a problem or note lists.
const MaxNamed = 10

// UpTo lists most of the names, of so many.
func UpTo(most int, names []string, all int) string {
	text := strings.Join(names[:min(len(names), most)], ", ")
	if more := all - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Problems are reasons to refuse.
type Problems []fleet.Problem

// Refuse adds a reason if it applies.
func (p *Problems) Refuse(applies bool, code, on, what, wayOut string) {
	if applies {
		*p = append(*p, fleet.Problem{Code: code, On: on, What: what, WayOut: wayOut})
	}
}

// Unreadable adds that something cannot be read. That it does not exist is no reason.
func (p *Problems) Unreadable(on string, err error) {
	ways := map[fleet.Kind]string{fleet.KindDenied: "grant these credentials the right to read it",
		fleet.KindUnauthenticated: "check the credentials",
		fleet.KindUnsupported:     "use a cloud and region that serve this API version; Azure Stack Hub does not"}
	kind, what, remedy := fleet.KindOf(err), fmt.Sprintf("it cannot be read: %v", err), ""
	if e := (*fleet.Error)(nil); ways[kind] == "" && errors.As(err, &e) && e.Remedy != "" {
		what, remedy = strings.TrimSuffix(what, "; "+e.Remedy), e.Remedy
	}
	p.Refuse(fleet.IgnoreNotFound(err) != nil, "Unreadable", on, what, cmp.Or(ways[kind], remedy, "try again"))
}

// Err makes one error of the problems, nil if there are none.
func (p Problems) Err(op, on string) error {
	if len(p) == 0 {
		return nil
	}
	what := fleet.Each(p, func(x fleet.Problem) string { return x.What })
	wayOut := fleet.Each(p, func(x fleet.Problem) string { return x.WayOut })
	return fleet.Invalid(op, on, strings.Join(wayOut, "; "), "%s", strings.Join(what, "; "))
}

// CaptureProblems returns every reason to refuse a capture from this resume point.
// What only matters to steps that it skips is no problem.
func CaptureProblems(o Observed, q Request, resume ResumePlan) (p Problems) {
	p = append(p, o.Unreadable...)
	refuse, pool := p.Refuse, cmp.Or(o.Pool, &fleet.Pool{})
	refuse(q.History < 2, "HistoryTooShort", "--history", fleet.Count(q.History, "version")+" would leave nothing to roll back to",
		"keep at least 2")
	err := q.Extensions.Check()
	refuse(err != nil, "BadPattern", "--keep-extension", fmt.Sprint(err), "see path.Match for patterns")
	refuse(q.NewNodes < 0, "BadNumber", "--grow", "nodes cannot be added by a negative number", "give 0 or more")
	refuse(q.Replicas < 0 || q.Replicas > 100, "BadNumber", "--replicas", fmt.Sprintf("%d replicas", q.Replicas), "give 1 to 100")
	refuse(q.Online && q.Deallocate, "OnlineAndDeallocate", "--online", "the node stays in service, and --deallocate stops it", "leave out one of them")
	refuse(o.NoImage && resume.From < AtGeneralized, "NoImage", "--image",
		"no container image is given for the pods that read disks, and this ortet is of no release, which would name its own",
		"build one with make image, push bin/ortet-image.tar to a registry that the nodes pull from, and add --image REGISTRY/ortet:TAG")
	refuse(o.Donor == nil && len(o.Unreadable) == 0 && q.Node != "", "NodeNotFound", "node "+q.Node, "there is no such node",
		"name a node as `kubectl get nodes` shows it (ortet status shows the node of each virtual machine), or a scale set with --pool; if the Node was deleted, start its instance, whose kubelet registers it again; `ortet nodes NAME` says why a machine never joined")
	if o.Donor != nil {
		p.ofDonor(o, *pool, q, resume)
	}
	if on := string(pool.ID); o.Pool != nil {
		refuse(!pool.NoProfile && !pool.Model.Linux, "NotLinuxPool", on, "its model is not Linux", "name a node of a Linux pool")
		p = append(p, SetProblems(*pool, q.ExcludeFromLatest)...)
		p.ofFresh(*pool, q, resume)
		for _, x := range changeProblems(*pool, q.AllowRolling, q.AllowOwned || q.Fresh != "") {
			x.WayOut += OrPublishOnly
			p.Refuse(!q.PublishOnly, x.Code, x.On, x.What, x.WayOut)
		}
		refuse(pool.AutomaticRepairs && !q.Online, "AutomaticRepairs", on, "its automatic instance repairs would replace the donor while it is stopped",
			"switch them off for the capture: az vmss update --enable-automatic-repairs false")
		refuse(pool.Model.EphemeralOS, "EphemeralDisk", on, "its OS disks are ephemeral: they cannot be stopped or snapshotted",
			"use a pool with managed OS disks")
		_, kept := q.Extensions.ToDelete(pool.Model.Extensions)
		for _, k := range kept {
			refuse(true, "ExtensionNeeded", on, "an extension that stays needs another that would go: "+k, "keep both, or let both go")
		}
	}
	if resume.From == AtDonor && o.Pool != nil && o.Instance != nil {
		p.ofDisk(o)
		p.ofEncryption(o)
	}
	if resume.From < AtVersion && o.Pool != nil {
		p.ofKeys(o, q)
	}
	refuse(resume.From <= AtSnapshot && o.Pool != nil && o.Instance != nil && o.Workbench == nil, CodeNoWorkbench, "node "+q.Node,
		"no other node can work on a copy of its disk: "+cmp.Or(o.NoWorkbench, "the cluster has no other"),
		cmp.Or(when(q.Workbench != "", "name another by --workbench, or leave it out"), NeedsWorkbench))
	p.Denied(pool.ID.Group(), o.DeniedAzure, o.DeniedCluster, when(q.Fresh != "", "capture a node by its name, without --fresh"))
	return append(p, resume.Problems...)
}

// Denied adds the permissions that lack, on the resource group and in the cluster. instead is what to do
// without that to delete instances, if it is not a watch's.
func (p *Problems) Denied(group fleet.ResourceID, azure, cluster []string, instead ...string) {
	p.Refuse(len(azure) > 0, CodeAzureDenied, string(group), "these credentials may not do "+strings.Join(azure, ", "),
		"grant them a role with these actions on the resource group: docs/reference/azure-permissions.md has it"+
			when(slices.Contains(azure, "Microsoft.Compute/virtualMachineScaleSets/delete/action"),
				"; or "+cmp.Or(strings.Join(instead, ""), "give --bad-nodes cordon")))
	p.Refuse(len(cluster) > 0, CodeClusterDenied, "the cluster", "these credentials may not "+strings.Join(cluster, ", "),
		"grant them the ClusterRole and Role that charts/vmss-prototype makes: docs/reference/kubernetes-permissions.md lists the rules")
}

func (p *Problems) ofDonor(o Observed, pool fleet.Pool, q Request, resume ResumePlan) {
	refuse, d, on := p.Refuse, *o.Donor, "node "+q.Node
	notInstance := o.NotInstance
	if e := (*fleet.Error)(nil); errors.As(notInstance, &e) && e.Err != nil {
		notInstance = e.Err // the node is named beside it
	}
	wayOut := "name a node of a scale set (ortet status lists them)"
	if o.Instance != nil { // it names one, and is not it
		wayOut = fleet.RegisterByHostName
	}
	refuse(notInstance != nil, "NotAnInstance", on, fmt.Sprint(notInstance), wayOut)
	refuse(!strings.EqualFold(d.OS, "linux"), "NotLinux", on, fmt.Sprintf("its operating system is %q", d.OS), "name a Linux node")
	// Its disk holds the cluster's own keys, which no image may hold, and stopping it may
	// take the API server away, which is needed to start it.
	refuse(d.ControlPlane, "ControlPlane", on, "it is a control plane node", "name a worker")
	why := fleet.AKSMark(d.Labels, pool.ID, pool.Tags)
	refuse(why != "", "ManagedByAKS", on, "AKS manages this pool ("+why+"), and does not support changes to its scale sets",
		"use AKS's own node images, or a pool of your own")
	if resume.From != AtDonor {
		return
	}
	refuse(!d.Ready, CodeNodeNotReady, on, "it is not Ready: "+cmp.Or(d.NotReadyWhy, "no reason given"), "name a node that works")
	refuse(d.Name == o.SelfNode && !q.Online, "OwnNode", on, "this process runs on it and would be evicted with it",
		"run it elsewhere, or name another node")
	if i := o.Instance; i != nil {
		refuse(i.Power != fleet.PowerRunning, CodeInstanceNotRunning, string(i.ID), "the instance is "+cmp.Or(string(i.Power), "in no known state"),
			"start it first")
		refuse(q.Deallocate && pool.Spot, "SpotDeallocate", string(i.ID), "a Spot instance that is deallocated may not come back",
			"leave out --deallocate: power-off keeps its place")
	}
	by := string(UsedBy(d, pool.ID))
	refuse(by != "", "IsWorkbench", on, "a capture of "+by+" uses it as its workbench",
		"wait until that capture ends, or name another node; if no such capture is open (ortet status): kubectl annotate node "+d.Name+" "+fleet.AnnotationWorkbench+"-")
	for _, x := range o.EvictionBlockers {
		refuse(x.Budget != "", "BudgetAllowsNoEviction", on, "its pod "+x.Pod+" cannot be evicted (PodDisruptionBudget "+x.Budget+"): "+x.Why,
			"let the budget allow an eviction, add a replica, name another node, or say --force, which overrides budgets when the drain's time is over")
		refuse(x.Budget == "", "PodNotEvictable", on, "its pod "+x.Pod+" cannot be evicted: "+x.Why,
			"give it a controller, remove it, or say --force, which deletes it")
	}
	refuse(d.Annotations[fleet.AnnotationKuredReboot] != "", "RebootPending", on, "kured is about to reboot it", "wait until it has")
}

// ofFresh refuses a donor that is raised where no machine can be added, or none kept.
func (p *Problems) ofFresh(pool fleet.Pool, q Request, resume ResumePlan) {
	if q.Fresh == "" {
		return
	}
	on, owner := string(pool.ID), ownerOf(pool)
	p.Refuse(owner != "", CodeOwnedByClusterAPI, on,
		"Cluster API's cluster "+owner+" owns its capacity: it would set that back, and Azure would choose which machine goes",
		"capture a node of the pool by its name, without --fresh")
	if resume.From == AtVersion {
		return
	}
	why := fleet.AKSMark(nil, pool.ID, pool.Tags)
	p.Refuse(why != "" && q.Node == "", "ManagedByAKS", on,
		"AKS manages this pool ("+why+"), and does not support changes to its scale sets",
		"use AKS's own node images, or a pool of your own")
	p.Refuse(q.Online, "FreshAndOnline", "--online", "a donor that is added serves nothing, so nothing is kept in service",
		"leave out one of them")
	p.Refuse(q.Deallocate && pool.Spot && q.Node == "", "SpotDeallocate", on, "a Spot instance that is deallocated may not come back",
		"leave out --deallocate: power-off keeps its place")
}

// ownerOf names the cluster of Cluster API that owns a scale set; "" for none.
func ownerOf(pool fleet.Pool) string {
	return strings.TrimPrefix(cmp.Or(slices.DeleteFunc(slices.Sorted(maps.Keys(pool.Tags)), func(tag string) bool {
		return !strings.HasPrefix(strings.ToLower(tag), tagCAPZ)
	})...), tagCAPZ)
}

// OrPublishOnly is the way out of a capture for what only a change of the model meets.
const OrPublishOnly = "; --publish-only makes an image and leaves the model alone"

const tagCAPZ = "sigs.k8s.io_cluster-api-provider-azure_cluster_"

// SetProblems returns the reasons not to make an image of a pool's nodes, as far as its scale
// set shows them.
func SetProblems(pool fleet.Pool, excludeFromLatest bool) (p Problems) {
	refuse, on := p.Refuse, string(pool.ID)
	refuse(pool.NoProfile, CodeNoProfile, on, "it has no profile: its members were made one by one, and no new node comes from it",
		"use a scale set with a profile; machines that are made by hand take an image by themselves")
	of, _, canary := pool.Canary()
	refuse(canary, CodeIsCanary, on, "it is a canary of "+of.Name()+": a capture made it to prove an image version, and deletes it",
		"name a node of "+of.Name()+", or that scale set")
	refuse(pool.AutomaticOSUpgrade && !excludeFromLatest, "AutomaticOSUpgrade", on,
		"automatic OS upgrades are on: a published version would be rolled out by itself", "switch them off, or say --exclude-from-latest")
	return p
}

// ModelProblems returns the reasons not to change a pool's model, which are
// looked at again right before it is changed.
func ModelProblems(pool fleet.Pool, allowRolling, excludeFromLatest, allowOwned bool) Problems {
	return append(SetProblems(pool, excludeFromLatest), changeProblems(pool, allowRolling, allowOwned)...)
}

func changeProblems(pool fleet.Pool, allowRolling, allowOwned bool) (p Problems) {
	refuse, on := p.Refuse, string(pool.ID)
	refuse(strings.EqualFold(pool.UpgradeMode, fleet.Automatic), "AutomaticUpgrade", on,
		"its upgrade mode is Automatic: a changed model may take down all instances at once", "set it to Manual: az vmss update --set upgradePolicy.mode=Manual")
	refuse(strings.EqualFold(pool.UpgradeMode, fleet.Rolling) && !allowRolling, "RollingUpgrade", on,
		"its upgrade mode is Rolling: Azure will replace the instances by itself", "set it to Manual, or say --allow-rolling")
	owner := ownerOf(pool)
	refuse(owner != "" && !allowOwned, CodeOwnedByClusterAPI, on,
		"Cluster API's cluster "+owner+" owns its model and would change it back",
		"change the image of its AzureMachinePool instead, or say --allow-owned")
	return p
}

func (p *Problems) ofDisk(o Observed) {
	refuse := p.Refuse
	refuse(o.Instance.OSDisk == "" && !o.Pool.Model.EphemeralOS, "NoDisk", string(o.Instance.ID), "it has no managed OS disk",
		"use a pool with managed OS disks")
	refuse(o.Disk != nil && strings.Contains(strings.ToLower(securityType(o)), "confidential"), "ConfidentialDisk", string(o.Instance.OSDisk),
		"it belongs to a confidential VM and can be read by that alone", "use a pool without confidential VMs")
	if o.Disk == nil {
		return
	}
	want := NewDefinition("", o, nil)
	for _, size := range o.ModelSizes {
		if why := doesNotFit(want, size); why != "" {
			refuse(true, "MixedPool", string(o.Instance.ID), "new nodes may have size "+size.Name+", and its disk does not fit: "+why,
				cmp.Or(when(len(o.Pool.Sizes) > 0, "take that size out of the instance mix, or use a pool whose sizes boot the same disk"), "name a node of that size"))
		}
	}
	what, why := CannotBoot(want, *o.Pool, nil)
	refuse(what != "", "OlderKind", string(o.Instance.ID), "new nodes have "+what+", and an image of its disk does not fit: "+why,
		"name a node that was made since the model has that")
	if o.Definition == nil {
		id, _, _ := ChooseDefinition(o)
		for _, d := range o.Definitions {
			w := NewDefinition(id, o, nil)
			refuse(d.ID.Equal(id) || strings.EqualFold(d.Publisher, w.Publisher) && strings.EqualFold(d.Offer, w.Offer) && strings.EqualFold(d.SKU, w.SKU),
				"ForeignDefinition", string(d.ID), "an image definition that Ortet did not make has the name or the publisher, offer and SKU of "+id.Name(),
				"delete it if it is not needed: az sig image-definition delete --ids "+string(d.ID))
		}
		return
	}
	d, on, wayOut := *o.Definition, string(o.Definition.ID), "what a definition says cannot be changed: delete it once nothing uses it; the capture creates it again"
	state := cmp.Or(d.OSState, "Generalized")
	refuse(!strings.EqualFold(state, want.OSState), "DefinitionMismatch", on, lack{"OS state", state, want.OSState}.String(), wayOut)
	refuse(!d.Linux, "DefinitionMismatch", on, lack{"operating system", "not Linux", "Linux"}.String(), wayOut)
	for _, l := range kindLacks(d, o) {
		refuse(true, "DefinitionMismatch", on, l.String(), wayOut)
	}
}

// NewDefinition returns the pool's image definition, fitting the donor. All
// features are set, since Azure's defaults changed with its API versions.
func NewDefinition(id fleet.ResourceID, o Observed, tags map[string]string) fleet.Definition {
	size := cmp.Or(o.Size, &fleet.SizeInfo{})
	kind, _ := kindIn(o.Pool.ID, id)
	d := fleet.Definition{
		ID: id, Location: o.Pool.Location, Publisher: publisher, Offer: id.Segment("resourceGroups"), SKU: skuOf(o.Pool.Name, kind),
		OSState: "Generalized", Linux: true, Controllers: "SCSI", Accelerated: o.Pool.Model.Accelerated, Hibernates: o.Disk.Hibernates, Tags: tags,
		Generation: cmp.Or(o.Disk.Generation, o.Instance.Generation, "V1"), Architecture: cmp.Or(o.Disk.Architecture, size.Architecture, "x64"),
	}
	if d.Generation == "V2" {
		d.SecurityType = cmp.Or(when(strings.EqualFold(securityType(o), "TrustedLaunch"), "TrustedLaunch"), "Standard")
		d.Controllers += when(needsNVMe(o) || strings.Contains(strings.ToUpper(o.Disk.Controllers), "NVME"), ", NVMe")
	}
	return d
}

func onlyNVMe(size *fleet.SizeInfo) bool {
	return size != nil && len(size.Controllers) > 0 &&
		!slices.ContainsFunc(size.Controllers, func(c string) bool { return strings.EqualFold(c, "SCSI") })
}

func securityType(o Observed) string {
	return cmp.Or(o.Instance.SecurityType, o.Disk.SecurityType, o.Pool.Model.SecurityType, "Standard")
}

// needsNVMe reports whether the pool's machines have their disks by NVMe: its model says
// so, or its size knows nothing else.
func needsNVMe(o Observed) bool {
	return o.Pool.Model.NVMe || onlyNVMe(o.Size)
}

// ofEncryption refuses disks whose copies the workbench could not read.
func (p *Problems) ofEncryption(o Observed) {
	disk := cmp.Or(o.Disk, &fleet.Disk{})
	const wayOut = "use a pool without Azure Disk Encryption; encryption at host needs nothing inside the machine"
	p.Refuse(disk.Encrypted, "DiskEncrypted", string(disk.ID), "Azure Disk Encryption encrypts it inside the machine: a copy cannot be read elsewhere", wayOut)
	for _, e := range o.Pool.Model.Extensions {
		p.Refuse(!disk.Encrypted && encrypts(e), "DiskEncrypted", string(o.Pool.ID),
			"its extension "+e.Name+" ("+e.Type+") encrypts the disks of its machines: a copy cannot be read elsewhere", wayOut)
	}
}

// encrypts reports whether an extension of a model is Azure Disk Encryption. Source: "Azure Disk
// Encryption for Linux".
func encrypts(e fleet.Extension) bool {
	return strings.EqualFold(e.Publisher, "Microsoft.Azure.Security") && strings.EqualFold(e.Type, "AzureDiskEncryptionForLinux")
}

// EncryptionSet is the disk encryption set that the copies get: the one of the donor's disk or,
// where that has none, of the model. It is "" for the platform's key.
func EncryptionSet(o Observed) fleet.ResourceID {
	return cmp.Or(cmp.Or(o.Disk, &fleet.Disk{}).Encryption, o.Pool.Model.Encryption)
}

// ofKeys refuses a disk encryption set that the copies cannot have, or new nodes not. Source: "Create
// an encrypted image version with customer-managed keys" and the restrictions of such keys.
func (p *Problems) ofKeys(o Observed, q Request) {
	const code, another = "OwnKeys", "name a node whose disk has another set"
	set, model := EncryptionSet(o), o.Pool.Model.Encryption
	if set == "" {
		return
	}
	on := string(set)
	if o.NoKeys != nil {
		p.Refuse(fleet.Is(o.NoKeys, fleet.KindNotFound), code, on, "the disk encryption set does not exist: no copy of the disk can be encrypted with it",
			"create it again with the same key, or "+another)
		p.Unreadable(on, o.NoKeys)
		return
	}
	p.Refuse(!fleet.SameRegion(o.Keys.Location, o.Pool.Location) || !strings.EqualFold(set.Segment("subscriptions"), o.Pool.ID.Segment("subscriptions")), code, on,
		"the disk encryption set is in "+o.Keys.Location+" of subscription "+set.Segment("subscriptions")+": copies and the gallery's version need one of their own subscription and region", another)
	p.Refuse(strings.HasPrefix(strings.ToLower(o.Keys.Type), "confidential"), code, on, "the disk encryption set is for the disks of confidential VMs alone", another)
	p.Refuse(o.Keys.Problem != "", code, on, "Azure cannot use the key of the disk encryption set: "+o.Keys.Problem,
		"let the set's identity get, wrap and unwrap with a key that exists (az disk-encryption-set show --ids "+on+"), then run this again")
	p.Refuse(!set.Equal(model) && !q.PublishOnly, code, string(o.Pool.ID),
		"its model makes disks with "+cmp.Or(when(model != "", "the disk encryption set "+model.Name()), "the platform's key")+", and the image of this disk would need the set "+set.Name(),
		"name a node whose disk has the model's set, or give the model that set"+OrPublishOnly)
}
