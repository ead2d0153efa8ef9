package simulate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/test/kubesim"
)

const (
	bootTime         = 15 * time.Second // from the OS's start to a Ready node; up to twice that
	bootLimit        = 20 * time.Minute // for which Azure waits for an OS; no limit of a boot is longer
	nodeMonitorGrace = 40 * time.Second // five minutes in a quarter of the stories
	unreachable      = "node.kubernetes.io/unreachable"
	kuredLock        = "weave.works/kured-node-lock"
	tightPod         = 99 // number of the pod that keeps the budget
)

// A nodeState is a node with its instance and Machine as others have them.
type nodeState struct {
	unschedulable bool
	annotations   map[string]string
	machine       map[string]string
	scaleIn       bool // protected from
	actions       bool
}

func (w *world) stateOf(name string) (s nodeState) {
	if n := w.kube.Node(name); n != nil {
		s.unschedulable, s.annotations = n.Spec.Unschedulable, maps.Clone(n.Annotations)
	}
	if m, ok := w.kube.Get("machines", workload, name).(*unstructured.Unstructured); ok {
		s.machine = m.GetAnnotations()
	}
	if c := w.computerOf(name); c != nil {
		w.azure.View(func(v *azsim.View) {
			i, ok := v.Get(c.ResourceID).(*armcompute.VirtualMachineScaleSetVM)
			if !ok || i.Properties == nil || i.Properties.ProtectionPolicy == nil {
				return
			}
			p := i.Properties.ProtectionPolicy
			s.scaleIn = p.ProtectFromScaleIn != nil && *p.ProtectFromScaleIn
			s.actions = p.ProtectFromScaleSetActions != nil && *p.ProtectFromScaleSetActions
		})
	}
	return s
}

// nodesOf returns the names of a scale set's Nodes in the order of their instances' creation.
func (w *world) nodesOf(set fleet.ResourceID) (names []string) {
	w.kube.Peek("nodes", func(o runtime.Object) bool {
		n := o.(*corev1.Node)
		if id, err := fleet.ParseMachine(w.azures(n.Spec.ProviderID)); err == nil && n.Name != liar && w.setOf(id).Equal(set) {
			names = append(names, n.Name)
		}
		return true
	})
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(w.byNumber(a), w.byNumber(b)) })
	return names
}

// providerID is what a Node is registered with: of k3s its name, and no id of Azure's.
func (w *world) providerID(c *computer) string {
	id := "azure://" + c.ResourceID
	if w.story.Pool.Spelling == "k3s" {
		own := "k3s://" + c.node()
		w.locked(func() { w.ofK3s[own] = id })
		return own
	}
	return id
}

// azures is Azure's provider id of the machine that was registered with one.
func (w *world) azures(providerID string) (id string) {
	w.locked(func() { id = cmp.Or(w.ofK3s[providerID], providerID) })
	return id
}

// booted has a computer's kubelet report, after a while.
func (w *world) booted(c *computer) {
	life := w.lifeOf(c)
	ill := false
	if w.locked(func() { ill = w.ill[c.node()] }); ill {
		return
	}
	if time.Since(w.begin) == 0 { // the world is being set up
		w.report(c, life, true)
		return
	}
	takes := w.between(bootTime, 2*bootTime, "boot", c.node(), life) + w.story.Pool.SlowBoot
	switch c.bad {
	case "no join":
		return
	case "slow":
		takes += bootLimit
	}
	w.after(takes*2/3, func() { w.report(c, life, false) })
	if c.bad != "not ready" {
		w.after(takes, func() { w.report(c, life, true) })
	}
	if c.bad == "restarts" {
		w.after(takes+time.Minute, func() { w.restartDaemons(c, life) })
	}
}

// restartDaemons has pods of DaemonSets be Ready again each minute.
func (w *world) restartDaemons(c *computer, life int) {
	if !w.isOn(c, life) {
		return
	}
	for _, p := range w.podsOn(c.node()) {
		if owner := metav1.GetControllerOf(p); owner != nil && owner.Kind == "DaemonSet" {
			w.setStatus(p, corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}})
		}
	}
	w.after(time.Minute, func() { w.restartDaemons(c, life) })
}

// report is a kubelet's heartbeat: it registers the Node where that is missing.
func (w *world) report(c *computer, life int, ready bool) {
	if !w.isOn(c, life) {
		return
	}
	name := c.node()
	if !w.joins(c) { // its server refuses it, and it tries again
		if ready {
			w.after(10*time.Second, func() { w.report(c, life, true) })
		}
		return
	}
	condition := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", LastTransitionTime: metav1.Now(), LastHeartbeatTime: metav1.Now()}
	if ready {
		w.locked(func() { c.ready = life })
		condition.Status, condition.Reason = corev1.ConditionTrue, "KubeletReady"
		w.heartbeat(c, life)
	}
	n := w.hash("address", name)
	address := fmt.Sprintf("10.%d.%d.%d", n>>16&0xff, n>>8&0xff, n&0xff)
	status := corev1.NodeStatus{
		NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64", KubeletVersion: "v1.36.3" + w.distribution(),
			BootID: fmt.Sprintf("%s-%d", name, life), MachineID: cmp.Or(c.twin, name), SystemUUID: c.VMID},
		Conditions: []corev1.NodeCondition{condition}, Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}},
	}
	if w.story.Pool.GPUs { // a kubelet has none until the device plugin registers them
		gpus := resource.NewQuantity(0, resource.DecimalSI)
		if ready && c.bad != "no GPU" {
			gpus.Set(1)
		}
		status.Allocatable = corev1.ResourceList{"nvidia.com/gpu": *gpus, corev1.ResourcePods: resource.MustParse("110")}
	}
	if c.bad == "verdict" {
		status.Conditions = append(status.Conditions, corev1.NodeCondition{Type: fleet.ConditionBootSucceeded, Status: corev1.ConditionFalse, Reason: "KubeletFailed", LastTransitionTime: metav1.Now()})
	}
	if !w.kube.Change("nodes", "", name, func(o runtime.Object) {
		n := o.(*corev1.Node)
		n.Status = status
		if ready {
			n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == unreachable })
		}
	}) {
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"}},
			Spec:       corev1.NodeSpec{ProviderID: w.providerID(c)}, Status: status,
		}
		if c.Zone != "" {
			node.Labels[corev1.LabelTopologyZone] = location + "-" + c.Zone
		}
		if w.story.Pool.Machines {
			node.Annotations = map[string]string{fleet.AnnotationCapiMachine: name, fleet.AnnotationCapiNamespace: workload}
			w.kube.Put(&unstructured.Unstructured{Object: object{"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine",
				"metadata": object{"namespace": workload, "name": name}, "spec": object{}}})
		}
		w.kube.Put(node)
		w.lieOf(node)
		switch {
		case !w.ofStory(w.setOf(fleet.ResourceID(c.ResourceID))):
			w.locked(func() { w.canaries[name] = true })
		case c.bad != "" || w.story.Pool.Surplus: // a watch may cordon and delete it, Azure does
			w.touch(name)
		default:
			w.locked(func() { w.nodes[name] = nodeState{annotations: node.Annotations} })
		}
	}
	if ready { // what was deleted while the kubelet was away ends now
		if slow := w.story.Pool.SlowDaemons; slow > 0 {
			w.after(slow, func() {
				if w.isOn(c, life) {
					w.runDaemons(c)
				}
			})
		} else {
			w.runDaemons(c)
		}
		for _, p := range w.podsOn(name) {
			if p.DeletionTimestamp != nil {
				w.kube.Remove("pods", p.Namespace, p.Name)
			}
		}
	}
}

// heartbeat is a kubelet's report that nothing has changed. Only stories of captures that wait for
// one have it.
func (w *world) heartbeat(c *computer, life int) {
	if !slices.ContainsFunc(w.story.Asks, func(a Ask) bool { return a.Online }) &&
		!slices.ContainsFunc(w.story.Happen, func(e Event) bool { return e.What == "operation preempted" }) {
		return
	}
	w.after(5*time.Minute, func() {
		silent := false
		if w.locked(func() { silent = w.silent }); silent || !w.isOn(c, life) {
			return
		}
		w.kube.Change("nodes", "", c.node(), func(o runtime.Object) {
			for i := range o.(*corev1.Node).Status.Conditions {
				o.(*corev1.Node).Status.Conditions[i].LastHeartbeatTime = metav1.Now()
			}
		})
		w.heartbeat(c, life)
	})
}

// halted is what the cluster sees of a computer that stopped.
func (w *world) halted(c *computer) {
	life := w.lifeOf(c)
	grace := nodeMonitorGrace
	if w.story.Seed%4 == 2 {
		grace = 5 * time.Minute
	}
	grace = cmp.Or(w.story.Pool.Stale, grace)
	w.after(grace+w.between(0, 10*time.Second, "halt", c.node(), life), func() {
		if w.lifeOf(c) != life { // it is back
			return
		}
		w.kube.Change("nodes", "", c.node(), func(o runtime.Object) {
			n := o.(*corev1.Node)
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", LastTransitionTime: metav1.Now()}}
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: unreachable, Effect: corev1.TaintEffectNoSchedule})
		})
	})
}

// removeNode is the cloud controller, which deletes the Node of a deleted instance.
func (w *world) removeNode(c *computer) {
	if n := w.kube.Node(c.node()); n == nil || !strings.EqualFold(n.Spec.ProviderID, w.providerID(c)) {
		return
	}
	pods := w.podsOn(c.node())
	w.kube.Remove("nodes", "", c.node())
	w.kube.Remove("machines", workload, c.node())
	for _, p := range pods {
		w.kube.Remove("pods", p.Namespace, p.Name)
		if p.DeletionTimestamp == nil {
			w.replace(p)
		}
	}
}

func (w *world) podsOn(node string) (pods []*corev1.Pod) {
	w.kube.Peek("pods", func(o runtime.Object) bool {
		if p := o.(*corev1.Pod); p.Spec.NodeName == node {
			pods = append(pods, p)
		}
		return true
	})
	return pods
}

// evictable returns the pods on a node that a drain has to evict.
func (w *world) evictable(node string) (pods []*corev1.Pod) {
	for _, p := range w.podsOn(node) {
		owner := metav1.GetControllerOf(p)
		if p.Namespace == workload && (owner == nil || owner.Kind != "DaemonSet") && p.Annotations[corev1.MirrorPodAnnotationKey] == "" {
			pods = append(pods, p)
		}
	}
	return pods
}

// populate puts the workload on the donor, and what its owners set on it.
func (w *world) populate() {
	p, donor := w.story.Pool, w.nodeName(0)
	w.kube.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	w.kube.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tests}})
	w.kube.Put(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tests, Name: "tester"}})
	if p.Kured {
		w.kube.Put(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kured"}, Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "kured"}},
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "kured", Image: "kured"}}, NodeSelector: map[string]string{"none": "none"}}},
		}})
		if p.Rebooting > 0 {
			w.lockKured("pool2000000", p.Rebooting)
		}
	}
	budgeted := p.Budgeted
	if p.Tight > 0 { // one more elsewhere, which is not Ready until then
		budgeted++
		w.putPod(w.nodeName(1), "db", tightPod, func(pod *corev1.Pod) { pod.Status.Conditions[0].Status = corev1.ConditionFalse })
		w.after(p.Tight, func() {
			w.kube.Change("pods", workload, fmt.Sprintf("db-%d", tightPod), func(o runtime.Object) { o.(*corev1.Pod).Status.Conditions[0].Status = corev1.ConditionTrue })
		})
	}
	w.putSet("web", p.Pods)
	w.putSet("db", budgeted)
	for i := range p.Pods {
		w.putPod(donor, "web", i, nil)
	}
	w.populateAll()
	for i := range p.Budgeted {
		w.putPod(donor, "db", i, nil)
	}
	if p.Budgeted > 0 {
		at := intstr.FromInt32(1)
		if p.Blocked {
			at = intstr.FromInt32(0)
		}
		w.kube.Put(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: workload, Name: "db"},
			Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}, MaxUnavailable: &at}})
	}
	for i := range p.Daemons { // kubesim places their pods
		labels := map[string]string{"app": fmt.Sprintf("agent-%d", i)}
		w.kube.Put(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: workload, Name: labels["app"], UID: types.UID(labels["app"])},
			Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "agent"}}}}}})
	}
	for _, name := range slices.Concat(w.nodesOf(w.pool), w.nodesOf(w.otherPool)) {
		w.runDaemons(w.computerOf(name))
	}
	if p.Unmanaged {
		w.putPod(donor, "alone", 0, func(pod *corev1.Pod) { pod.OwnerReferences = nil })
	}
}

// runDaemons has a kubelet run the pods of DaemonSets.
func (w *world) runDaemons(c *computer) {
	is := corev1.ConditionTrue
	if c.bad == "daemon" {
		is = corev1.ConditionFalse
	}
	for _, p := range w.podsOn(c.node()) {
		if owner := metav1.GetControllerOf(p); owner != nil && owner.Kind == "DaemonSet" && p.Status.Phase != corev1.PodRunning {
			w.setStatus(p, corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: is}}})
		}
	}
}

func (w *world) putSet(app string, pods int) {
	n := int32(pods)
	w.kube.Put(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: workload, Name: app, UID: types.UID(app)},
		Spec: appsv1.ReplicaSetSpec{Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}})
}

func (w *world) putPod(node, app string, i int, change func(*corev1.Pod)) {
	yes := true
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: workload, Name: fmt.Sprintf("%s-%d", app, i), Labels: map[string]string{"app": app},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: app, UID: types.UID(app), Controller: &yes}}},
		Spec:   corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: app}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	if change != nil {
		change(p)
	}
	w.kube.Put(p)
}

func (w *world) nextPod() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.podNumber++
	return 1000 + w.podNumber
}

// podEnds is how long a kubelet takes to end a pod: for ever while its computer is off.
func (w *world) podEnds(p *corev1.Pod, grace time.Duration) time.Duration {
	c := w.computerOf(p.Spec.NodeName)
	if c == nil || !w.isOn(c, 0) {
		return -1
	}
	if p.Namespace == namespace {
		return min(time.Second, grace)
	}
	return min(max(time.Second, w.story.Pool.PodsTake), grace)
}

func (w *world) podDeleted(d kubesim.Deletion) {
	forced := slices.ContainsFunc(w.story.Asks, func(a Ask) bool { return a.Force })
	if d.User == ortetUser && !d.Eviction && !forced && d.Pod.Namespace == workload {
		w.broken(12, "pod %s is deleted and not evicted, without --force", d.Pod.Name)
	}
	w.checkDrained(d)
	if d.User == ortetUser && d.Pod.Namespace != namespace && w.captures(d.Pod.Spec.NodeName) {
		w.broken(19, "pod %s of the donor is evicted", d.Pod.Name)
	}
	if d.Pod.DeletionTimestamp == nil {
		w.replace(d.Pod)
	}
}

// replace has the ReplicaSet of a deleted pod make another.
func (w *world) replace(p *corev1.Pod) {
	if owner := metav1.GetControllerOf(p); owner == nil || owner.Kind != "ReplicaSet" {
		return
	}
	n, app, left := w.nextPod(), p.Labels["app"], p.Spec.NodeName
	w.after(w.between(2*time.Second, 20*time.Second, "replace", p.Name), func() { w.schedule(app, n, left) })
}

// schedule binds a pod to a node other than the node that it left.
func (w *world) schedule(app string, n int, left string) {
	node := ""
	w.kube.Peek("nodes", func(o runtime.Object) bool {
		if n := o.(*corev1.Node); !n.Spec.Unschedulable && len(n.Spec.Taints) == 0 && n.Name != left {
			node = n.Name
		}
		return node == ""
	})
	if node == "" {
		w.after(time.Minute, func() { w.schedule(app, n, left) })
		return
	}
	w.putPod(node, app, n, nil)
}
