package simulate

import (
	"errors"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/rollback"
	"github.com/ortet/ortet/internal/workflow"
)

// liar is the Node of a hostile kubelet, on no machine of the story's. Its credential binds the name alone.
const (
	liar         = "a-liar"
	foreignGroup = "foreign"
	noVM         = "6c5e9f1e-6d5b-4f0e-8a9d-0c1b2a3f4e5d" // no machine's
)

// Of nodes that join later the liar copies what it is to be taken for.
const aClone, badNodes, rivals = "machine id of a clone", "id of bad nodes", "id of bad nodes, and no vmId"

// lies are what it claims: provider id, vmId or both, and of whom; or an id that Azure does not show.
var lies = []string{
	"id of the pool", "vmId of the pool", "both of the pool", "id of another pool", "vmId of another pool", "both of another pool",
	"id of another group", "its id and another pool's vmId", "machine id", "boot id", "id of the donor", aClone,
}

// putLiar registers the liar. What it claims of the pool is the last instance's.
func (w *world) putLiar() {
	lie := w.story.Pool.Liar
	if lie == "" {
		return
	}
	names, others := w.nodesOf(w.pool), w.nodesOf(w.otherPool)
	victim, donor := w.computerOf(names[len(names)-1]), w.kube.Node(names[0])
	id := "azure://" + victim.ResourceID
	switch {
	case strings.Contains(lie, "another pool") && !strings.HasPrefix(lie, "its id"):
		victim = w.computerOf(others[0])
		id = "azure://" + victim.ResourceID
	case strings.HasSuffix(lie, "another group"):
		id = strings.Replace(id, string(w.pool.Group()), path.Dir(string(w.pool.Group()))+"/"+foreignGroup, 1)
	case strings.HasSuffix(lie, "the donor"):
		id = "azure://" + w.computerOf(names[0]).ResourceID
	}
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: liar, Labels: map[string]string{corev1.LabelHostname: liar, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
			corev1.LabelTopologyZone: donor.Labels[corev1.LabelTopologyZone]}},
		Spec: corev1.NodeSpec{ProviderID: id},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64", BootID: liar, MachineID: liar, SystemUUID: victim.VMID},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastTransitionTime: metav1.Now()}},
		},
	}
	switch kind, _, _ := strings.Cut(lie, " "); kind {
	case "id":
		n.Status.NodeInfo.SystemUUID = noVM
	case "vmId":
		n.Spec.ProviderID = ""
	case "its":
		n.Status.NodeInfo.SystemUUID = w.computerOf(others[0]).VMID
	case "machine":
		n.Status.NodeInfo.MachineID, n.Status.NodeInfo.SystemUUID = donor.Status.NodeInfo.MachineID, noVM
	case "boot":
		n.Status.NodeInfo.BootID, n.Status.NodeInfo.SystemUUID = donor.Status.NodeInfo.BootID, noVM
	}
	switch lie { // no workbench
	case aClone, badNodes:
		n.Spec.ProviderID, n.Status.NodeInfo.SystemUUID = "", noVM
	case rivals:
		n.Spec.ProviderID, n.Status.NodeInfo.SystemUUID = "", ""
	}
	w.kube.Put(n)
}

// lieOf has the liar claim a node that joined.
func (w *world) lieOf(n *corev1.Node) {
	w.kube.Change("nodes", "", liar, func(o runtime.Object) {
		l := o.(*corev1.Node)
		switch w.story.Pool.Liar {
		case aClone:
			l.Status.NodeInfo.MachineID = n.Status.NodeInfo.MachineID
		case badNodes, rivals: // registered again, so it is the younger one
			l.Spec.ProviderID, l.CreationTimestamp = n.Spec.ProviderID, metav1.Now()
		}
	})
}

// checkLiar: beside a liar nothing is done to it, to machines of another pool or in another group. What is
// attached to a machine has that machine's own Node as its workbench: checkAttached.
func (w *world) checkLiar(p *process, req request, about string, r *http.Request) {
	if w.story.Pool.Liar == "" || !req.write() {
		return
	}
	node, ofNode := strings.CutPrefix(about, "nodes/")
	c := w.computerOf(node)
	if !ofNode {
		c = w.find(func(c *computer) bool {
			return strings.HasSuffix(c.ID, "/"+low(about)) || strings.HasSuffix(c.ID, "/"+low(path.Dir(about)))
		})
	}
	set := low(w.otherPool.Name())
	switch foreign := "/resourcegroups/" + foreignGroup + "/"; {
	case ofNode && node == liar, strings.Contains(low(about), "virtualmachinescalesets/"+set), strings.Contains(low(r.URL.Path), foreign),
		c != nil && w.setOf(fleet.ResourceID(c.ResourceID)).Equal(w.otherPool):
		w.broken(21, "%s sends %s beside a Node that claims %s", p.name, req.name, w.story.Pool.Liar)
	}
	if slices.ContainsFunc(w.podsOn(liar), func(p *corev1.Pod) bool { return p.Namespace == namespace }) {
		w.broken(21, "a pod of %s is on a Node that claims %s", p.name, w.story.Pool.Liar)
	}
}

// checkRemove: a machine that a rival claims is not deleted.
func (w *world) checkRemove(id string) {
	if w.story.Pool.Liar != rivals {
		return
	}
	n := w.kube.Node(liar)
	if c := w.find(func(c *computer) bool { return c.ID == id }); c != nil && n != nil && strings.EqualFold(n.Spec.ProviderID, "azure://"+c.ResourceID) {
		w.broken(21, "machine %s is deleted beside a Node that claims it", c.Name)
	}
}

// beside adds a hostile kubelet to an eighth of the seeds. Its victim cannot be a workbench, and other
// pools' nodes are none, so the pool has an instance more.
func beside(seed uint64, s Story) Story {
	p := &s.Pool
	if seed%8 == 3 && s.Cannot == "" && p.Others != "cordoned" && p.Bench != "other" {
		p.Liar = lies[seed/8%uint64(len(lies))]
		p.Neighbour, p.Instances = max(p.Neighbour, 2), p.Instances+1
	}
	return s
}

// besideLiar plays a story on a Uniform and on a Flexible set, beside each liar.
func besideLiar(t *testing.T, s Story, lies ...string) {
	t.Helper()
	for _, lie := range lies {
		s := s
		s.Name, s.Pool.Liar, s.Pool.Neighbour, s.Pool.Instances = lie, lie, 2, 4
		for _, s := range []Story{s, onFlexible(s)} {
			if r := play(t, s); len(r.violations) > 0 {
				t.Error(explain(s, r))
			}
		}
	}
}

// No pod is on a Node that is no machine of the pool, and the capture ends well.
func TestHoleWorkbenchByFalseProviderID(t *testing.T) {
	besideLiar(t, Story{Seed: 3, Pool: usual, Asks: []Ask{{Do: "capture", Canary: 2, Once: true}}}, lies...)
}

// A rollback that is given the liar's name changes no pool that it claims.
func TestHoleRollbackByLiarsName(t *testing.T) {
	for _, lie := range lies[:7] {
		synctest.Test(t, func(t *testing.T) {
			pool := usual
			pool.Liar, pool.Neighbour = lie, 2
			w := newWorld(Story{Seed: 3, Pool: pool})
			defer w.close()
			config, err := w.config("rollback", w.azure.Transport(), w.kube, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = rollback.New(config).Rollback(t.Context(), rollback.Request{Node: liar, WithoutLearned: true, AcceptLostExtensions: true})
			refused := new(workflow.Refused)
			if !errors.As(err, &refused) || len(refused.Problems) != 1 || refused.Problems[0].On != "node "+liar {
				t.Errorf("of a Node that claims %s: %v", lie, err)
			}
		})
	}
}

// A watch deletes bad nodes; a younger Node that claims their ids is not drained in their place.
func TestHoleLiarPairedWithMachine(t *testing.T) {
	besideLiar(t, watched("daemon", "delete"), badNodes)
	s := watched("daemon", "delete")
	s.Asks[1].Once, s.Asks[1].Exit, s.Cannot = true, 4, "reports that it is this machine" // which is left, and named
	besideLiar(t, s, rivals)
}

// A Node of no machine that copies a clone's machine id makes the clone no twin.
func TestHoleOneNodeVetoesImages(t *testing.T) {
	besideLiar(t, Story{Seed: 3, Pool: usual, Asks: []Ask{{Do: "capture", Canary: 2, Once: true}}}, aClone)
}

// nodeChanges are stories of a donor's Node that changes between the plan and the power-off. They are no
// seeds': where other events come first, it does not change in time.
var nodeChanges = []Story{
	{Name: "the donor's Node is another machine's before it is stopped", Seed: 77, Pool: usual, Asks: []Ask{{Do: "capture", Once: true, Exit: 1}},
		Cannot: "reports the systemUUID", Happen: at("kube PATCH nodes/pool1000000", 2, "donor says that it is another machine")},
	{Name: "the donor's Node is made again before it is stopped", Seed: 77, Pool: usual, Asks: []Ask{{Do: "capture", Once: true, Exit: 1}},
		Cannot: "another Node has its name", Happen: at("kube PATCH nodes/pool1000000", 2, "donor's Node made again")},
}

// Of a Node that changes before the first change of a capture nothing is changed: it is not even drained.
func TestHoleNodeThatChangesIsNotDrained(t *testing.T) {
	s := nodeChanges[0]
	s.Name, s.Happen = "the donor's Node is another machine's before it is protected", at("kube POST ortet-system/pods", 1, "donor says that it is another machine")
	for _, s := range []Story{s, onFlexible(s)} {
		r := play(t, s)
		if len(r.violations)+len(r.missed) > 0 {
			t.Error(explain(s, r))
		}
		if i := slices.IndexFunc(r.trace, func(l string) bool { return strings.Contains(l, "kube PATCH nodes/pool1000000") }); i >= 0 {
			t.Errorf("the Node was changed: %s", r.trace[i])
		}
	}
}

// To a Node that is not its machine any more nothing is attached: another one is the workbench.
func TestHoleWorkbenchThatChanges(t *testing.T) {
	s := Story{Name: "the workbench's Node is another machine's before the attach", Seed: 3, Pool: usual, Asks: []Ask{{Do: "capture", Once: true}},
		Happen: at("azure PUT disks/disk_pool1_work", 1, "workbench says that it is another machine")}
	for _, s := range []Story{s, onFlexible(s)} {
		ended := func(l string) bool { return strings.Contains(l, " ends: 0 ") }
		if r := play(t, s); len(r.violations)+len(r.missed) > 0 || !slices.ContainsFunc(r.trace, ended) {
			t.Error(explain(s, r))
		}
	}
}

func TestHoleNodeThatChangesIsNotStopped(t *testing.T) {
	for _, s := range nodeChanges {
		for _, s := range []Story{s, onFlexible(s)} {
			if r := play(t, s); len(r.violations)+len(r.missed) > 0 {
				t.Error(explain(s, r))
			}
		}
	}
}
