package renew

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/clones"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/prove"
	"github.com/ortet/ortet/internal/schedule"
	"github.com/ortet/ortet/internal/workflow"
)

// budget returns how many of a pool's instances may be out of service.
func budget(text string, instances int) (int, error) {
	b, err := schedule.ParseBudget(text)
	if err != nil {
		return 0, &fleet.Error{Op: "read the budget", Resource: "--max-unavailable", Kind: fleet.KindInvalid, Err: err}
	}
	return b.Of(instances), nil
}

// A state is what one round reads of the pool.
type state struct {
	pool     fleet.Pool
	image    fleet.ImageReference // the model's; of a gallery's "latest" the version that it stands for
	version  fleet.ImageVersion   // zero where it is of no gallery, or cannot be read
	versions []fleet.ImageVersion // of the definitions that the model and instances name
	clones   []prove.Clone        // without those that are being deleted
	notes    []string
}

// read reads the pool. Problems are those of the pool and its model.
func (s *Service) read(ctx context.Context, id fleet.ResourceID) (x state, d plan.Problems, err error) {
	x.pool, err = s.Cloud.Pool(ctx, id)
	if fleet.Is(err, fleet.KindNotFound) {
		d.Refuse(true, "PoolNotFound", string(id), "the scale set does not exist", "check its name, and the credentials' subscription")
		return x, d, nil
	}
	if err == nil {
		x.clones, err = clones.Pair(ctx, s.Cloud, s.Cluster, x.pool.ID)
	}
	if err != nil {
		return x, nil, err
	}
	x.clones = slices.DeleteFunc(x.clones, func(c prove.Clone) bool { return deleting(c.Instance) })
	x.image = x.pool.Model.Image
	definitions := []fleet.ResourceID{definitionOf(x.image)}
	for _, c := range x.clones {
		if of := definitionOf(c.Instance.Image); !slices.ContainsFunc(definitions, of.Equal) {
			definitions = append(definitions, of)
		}
	}
	readable := false
	for i, of := range definitions {
		if of == "" {
			continue
		}
		versions, err := azure.VersionsOf(ctx, s.Cloud, of)
		if i == 0 {
			readable = err == nil
		}
		switch denied := fleet.Is(err, fleet.KindDenied); {
		case denied && (i > 0 || x.image.LatestOf() == ""):
			x.notes = append(x.notes, fmt.Sprintf("whether versions of %s are quarantined is not known: %v", of.Name(), err))
		case err != nil:
			return x, nil, err
		}
		x.versions = append(x.versions, versions...)
	}
	version, found := plan.VersionOf(x.versions, x.image, x.pool.Location)
	if x.version = version; found {
		x.image = fleet.ImageReference{ID: x.version.ID}
	}
	d = x.problems()
	d.Refuse(readable && !found, "NoVersion", string(x.pool.ID),
		"its model names "+x.image.Text()+", which does not exist: no node can be made of it",
		"go back to a version that exists: ortet rollback "+x.pool.Name)
	return x, d, nil
}

func deleting(i fleet.Instance) bool { return strings.EqualFold(i.ProvisioningState, "Deleting") }

// definitionOf returns the definition of an image of a gallery; "" of others.
func definitionOf(i fleet.ImageReference) fleet.ResourceID {
	if exact := i.Exact(); exact.Segment("galleries") != "" && exact.Segment("versions") != "" {
		return exact.Parent()
	}
	return i.LatestOf()
}

// problems are the reasons not to roll out what the model names.
func (x state) problems() (d plan.Problems) {
	const byBudget = "; to do it by budget: az vmss update --set upgradePolicy.mode=Manual"
	ways := map[string]string{
		"AutomaticUpgrade":         "Azure gives its instances the model by itself (az vmss get-instance-view shows it)" + byBudget,
		"RollingUpgrade":           "Azure gives its instances the model by itself (az vmss rolling-upgrade get-latest)" + byBudget,
		"AutomaticOSUpgrade":       "Azure renews its instances by itself (az vmss get-os-upgrade-history); or switch that off",
		plan.CodeOwnedByClusterAPI: "its AzureMachinePool replaces instances by itself (strategy.rollingUpdate.maxUnavailable)",
		plan.CodeIsCanary:          "name the pool",
		plan.CodeNoProfile:         "replace its machines one by one",
	}
	for _, p := range plan.ModelProblems(x.pool, false, false, false) {
		p.WayOut = cmp.Or(ways[p.Code], p.WayOut)
		d = append(d, p)
	}
	on, aks := string(x.pool.ID), ""
	for _, c := range x.clones {
		if c.Node != nil {
			aks = cmp.Or(aks, fleet.AKSMark(c.Node.Labels, x.pool.ID, x.pool.Tags))
		}
	}
	aks = cmp.Or(aks, fleet.AKSMark(nil, x.pool.ID, x.pool.Tags))
	d.Refuse(aks != "", "ManagedByAKS", on, "AKS manages this pool ("+aks+")", "az aks nodepool upgrade --node-image-only renews its nodes")
	d.Refuse(x.image.ID == "" && strings.EqualFold(x.image.Version, "latest"), "MarketplaceLatest", on,
		"its model names "+x.image.Text()+", and Azure does not show which version that is now",
		"name a version in the model (az vm image list --all), capture an image of a node, or let Azure follow it: "+
			"az vmss update --enable-auto-os-upgrade")
	quarantine := cmp.Or(x.version.Tags[fleet.TagQuarantine], x.version.Tags[fleet.TagRolledBack])
	d.Refuse(quarantine != "", plan.CodeRolledBack, string(x.version.ID),
		"the model names this version, which was rolled back: "+quarantine,
		"ortet rollback "+x.pool.Name+" goes back to a good version; ortet capture makes another")
	return d
}

// has reports whether an instance was made from the model's image; known is false where Azure does not say.
func (x state) has(i fleet.ImageReference) (same, known bool) {
	if x.image.ID != "" || i.ID != "" {
		return i.Exact().Equal(x.image.ID), i.ID == "" || i.Exact() != ""
	}
	i.Version = cmp.Or(i.ExactVersion, i.Version)
	return i.Same(x.image), !strings.EqualFold(i.Version, "latest")
}

// nameOf names an image for people and in the annotation.
func nameOf(i fleet.ImageReference) string {
	if exact := i.Exact(); exact.Segment("versions") != "" {
		return exact.Name()
	}
	return i.Text()
}

// A candidate is an instance that a rollout may work on.
type candidate struct {
	prove.Clone
	Planned
	at int64 // when its image was made
}

// id names it for people.
func (c candidate) id() string { return cmp.Or(c.Planned.Node, c.Planned.Instance) }

// candidates returns the instances that lack the image, or that a rollout began with, in order, and
// those that it may not touch.
func (x state) candidates(self string) (todo []candidate, left []LeftOut) {
	for _, c := range x.clones {
		same, known := x.has(c.Instance.Image)
		p := candidate{Clone: c, Planned: Planned{Instance: c.Instance.Name, Why: Older, From: nameOf(c.Instance.Image)}}
		begun := false
		if c.Node != nil {
			p.Planned.Node = c.Node.Name
			_, begun = c.Node.Annotations[fleet.AnnotationRollout]
		}
		if same && !begun {
			continue
		}
		if why := barred(c, begun, known, self); why != "" {
			left = append(left, LeftOut{p.id(), why})
			continue
		}
		v, _ := plan.FindVersion(x.versions, c.Instance.Image.Exact())
		switch p.at = v.Published.Unix(); {
		case begun:
			p.Why = Unfinished
		case plan.RolledBack(v):
			p.Why = Quarantined
		}
		todo = append(todo, p)
	}
	rank := []string{Unfinished, Quarantined, Older}
	slices.SortFunc(todo, func(a, b candidate) int {
		return cmp.Or(slices.Index(rank, a.Why)-slices.Index(rank, b.Why), cmp.Compare(a.at, b.at),
			a.Clone.Instance.Created.Compare(b.Clone.Instance.Created), cmp.Compare(a.id(), b.id()))
	})
	return todo, left
}

// barred says why an instance is left out, as far as it and its Node show; "" if it is not.
func barred(c prove.Clone, begun, known bool, self string) string {
	n, deletes := c.Node, func(t fleet.Taint) bool { return strings.HasPrefix(t.Key, "ToBeDeletedBy") }
	switch {
	case len(c.Rivals) > 0:
		return "node " + strings.Join(c.Rivals, ", ") + " reports that it is this machine; " + fleet.DeleteStaleNode
	case n == nil:
		return "has no Node that could be drained; ortet nodes " + c.Instance.Name + " says why, or delete the instance: " +
			"az vmss delete-instances"
	case begun:
		return ""
	case c.Instance.Protection.Protects():
		return "is protected from scale-in; az vmss update --instance-id " + c.Instance.InstanceID +
			" --protect-from-scale-in false --protect-from-scale-set-actions false allows it"
	case n.ControlPlane:
		return "is a control plane node; replace it by hand"
	case n.Name == self:
		return "this process runs on it; run it elsewhere"
	case n.Annotations[fleet.AnnotationCapture] != "":
		return "is the donor of capture " + n.Annotations[fleet.AnnotationCapture] + "; wait until that ends"
	case n.Annotations[fleet.AnnotationWorkbench] != "":
		return "is the workbench of a capture of " +
			fleet.ResourceID(n.Annotations[fleet.AnnotationWorkbench]).Name() + "; wait until that ends"
	case slices.ContainsFunc(n.Taints, deletes):
		return "an autoscaler is about to delete it"
	case !known:
		return "Azure does not say from which version it was made"
	case n.Unschedulable && n.Annotations[fleet.AnnotationCordoned] == "":
		return "somebody cordoned it; kubectl uncordon " + n.Name + " lets it be renewed"
	}
	return ""
}

// blockers says why a node cannot be emptied, as its pods show, and what goes with its disk.
func (s *Service) blockers(ctx context.Context, node string) (why string, disk []string, err error) {
	pods, err := s.Cluster.Pods(ctx, node)
	if err != nil {
		return "", nil, err
	}
	for _, p := range pods {
		if p.Stays {
			why = "its pod " + p.Name + " is annotated " + fleet.AnnotationDoNotDisrupt
			return why + "; take that off, or wait until it has ended", nil, nil
		}
		if p.Volumes != "" && p.DaemonSet == "" && !p.Mirror {
			claims := workflow.SkipIf(strings.Contains(p.Volumes, "claim "), ", a claim if its volume lies on the node")
			disk = append(disk, p.Volumes+" of pod "+p.Name+claims)
		}
	}
	blocked, err := s.Cluster.EvictionBlockers(ctx, node, nil)
	if len(blocked) > 0 {
		why = (&cluster.BlockedError{Node: node, Pods: blocked}).Error()
	}
	return why, disk, err
}

// preflight adds what keeps a rollout from the pool as a whole.
func (s *Service) preflight(ctx context.Context, x state, d *plan.Problems) error {
	if x.pool.ID == "" {
		return nil
	}
	rec, err := s.Journal.Load(ctx, strings.ToLower(string(x.pool.ID)))
	if fleet.IgnoreNotFound(err) != nil && !fleet.Is(err, fleet.KindDenied) { // which Accesses names
		return err
	}
	d.Refuse(rec.Open(), "OpenRecord", string(x.pool.ID), "its last "+rec.Kind+" did not finish: "+cmp.Or(rec.Subject, rec.Name),
		"run the same command again, or ortet capture --abandon "+x.pool.Name+"; ortet status shows it")
	accesses := s.Accesses(x.pool.ID)
	for _, c := range x.clones {
		if k3s := distribution(c.Node); k3s != "" && !slices.ContainsFunc(accesses, func(a cluster.Access) bool { return a == passwords }) {
			accesses = append(accesses, passwords)
		}
	}
	lacks, err := s.Cluster.Denied(ctx, accesses)
	if err != nil {
		return err
	}
	group := x.pool.ID.Group()
	denied, err := s.Cloud.Denied(ctx, group, azure.ActionsIn(x.pool, Changes()))
	d.Denied(group, denied, fleet.Each(lacks, cluster.Access.String))
	return err
}

// Changes lists a zero change of each verb that a rollout may need.
func Changes() []fleet.Change { return []fleet.Change{fleet.UpgradeInstances{}, fleet.StartInstance{}} }

var passwords = cluster.Access{Verb: "delete", Resource: "secrets", Namespace: "kube-system"}

// distribution returns "k3s" or "rke2" where the node's server keeps its password; else "".
func distribution(n *fleet.Node) string {
	for _, d := range []string{"k3s", "rke2"} {
		if n != nil && strings.Contains(n.Kubelet, "+"+d) {
			return d
		}
	}
	return ""
}

// Plan reads what a rollout would do, and changes nothing. Problems refuse it.
func (s *Service) Plan(ctx context.Context, q Request) (Plan, error) {
	p := Plan{Pool: q.Pool, Nodes: []Planned{}}
	x, d, err := s.read(ctx, q.Pool)
	if err == nil {
		err = s.preflight(ctx, x, &d)
	}
	if err != nil {
		return p, err
	}
	if p.MaxUnavailable, err = budget(q.MaxUnavailable, len(x.clones)); err != nil {
		return p, err
	}
	p.Pool, p.Image, p.Problems, p.Notes = cmp.Or(x.pool.ID, q.Pool), fleet.ResourceID(x.image.Text()), d, x.notes
	todo, left := x.candidates(s.SelfNode)
	p.LeftOut = left
	for _, c := range todo {
		why, disk, err := s.blockers(ctx, c.Planned.Node)
		if err != nil {
			return p, err
		}
		if c.Disk = disk; why != "" && c.Why != Unfinished {
			p.LeftOut = append(p.LeftOut, LeftOut{c.id(), why})
			continue
		}
		p.Nodes = append(p.Nodes, c.Planned)
		p.Differs = append(p.Differs, x.differs(c.Clone.Instance)...)
	}
	if slices.Sort(p.Differs); len(p.Nodes) > 0 {
		p.Differs = append(slices.Compact(p.Differs),
			"what else somebody changed in the model since the node was made, such as customData or extensions: Azure does not show it")
		p.Notes = append(slices.Clone(p.Notes), "each Node keeps its taints: a kubelet sets taints and labels only when it registers "+
			"its Node, and the Node stays; set what the model's customData changed with kubectl taint and kubectl label")
	}
	return p, nil
}

// differs says what beside the image an instance would get.
func (x state) differs(i fleet.Instance) (all []string) {
	add := func(differs bool, what, from, to string) {
		if differs {
			all = append(all, what+" "+to+" in place of "+from)
		}
	}
	m, sizes := x.pool.Model, x.pool.NewSizes()
	own := slices.ContainsFunc(sizes, func(s string) bool { return strings.EqualFold(s, i.Size) })
	add(!own, "size", i.Size, strings.Join(sizes, " or "))
	differs := m.OSDiskSizeGB != 0 && i.OSDiskSizeGB != 0 && m.OSDiskSizeGB != i.OSDiskSizeGB
	add(differs, "OS disk of", fmt.Sprintf("%d GB", i.OSDiskSizeGB), fmt.Sprintf("%d GB", m.OSDiskSizeGB))
	was, is := cmp.Or(i.SecurityType, "Standard"), cmp.Or(m.SecurityType, "Standard")
	add(!strings.EqualFold(was, is), "security type", was, is)
	return all
}
