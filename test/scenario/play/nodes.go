package play

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/test/kubesim"
)

// Times of kubelets and controllers.
const (
	bootTime     = 15 * time.Second // from the OS's start to a Ready node
	slowBoot     = 90 * time.Second // longer than that, at most, in a quarter of the boots
	noticed      = 40 * time.Second // node-monitor-grace-period
	noticedLate  = 5 * time.Minute  // what a quarter of the clusters set it to
	nodeGoes     = time.Minute      // until the cloud's node controller sees that an instance is gone
	podStarts    = 2 * time.Second
	mostLate     = time.Second      // until the scheduler has bound a pod that it decided on
	generalizing = 20 * time.Second // at most: short, since it is polled all the while
)

const unreachable = "node.kubernetes.io/unreachable"

// booted makes the computer's node, or has it come back, after a while.
func (w *world) booted(c *computer) {
	name, life := strings.ToLower(c.HostName), c.life
	ready := func() {
		if !w.lives(c, life) {
			return
		}
		w.report(name, c, true)
		w.ends(name)
	}
	if time.Since(w.begin) == 0 { // the world is being set up
		ready()
		return
	}
	// A kubelet reports the boot before its node is Ready.
	takes := w.between(bootTime, 2*bootTime, "boot", name, life)
	if w.hash("slow boot", name, life)%4 == 0 {
		takes += w.between(0, slowBoot, "slow boot takes", name, life)
	}
	w.after(takes*2/3, func() {
		if w.lives(c, life) {
			w.report(name, c, false)
		}
	})
	w.after(takes, ready)
}

// lives reports whether the computer has been running since then.
func (w *world) lives(c *computer, life int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return c.life == life && c.running
}

// isOn reports whether a computer is on.
func (w *world) isOn(c *computer) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return c.running
}

// report is what a kubelet says of its node: it makes the Node where that is
// missing.
func (w *world) report(name string, c *computer, ready bool) {
	w.mu.Lock()
	life := c.life
	if ready {
		if c.ready != life {
			c.readied = time.Now()
		}
		c.ready = life
	}
	w.mu.Unlock()
	status := corev1.NodeStatus{
		NodeInfo: corev1.NodeSystemInfo{
			OperatingSystem: "linux", Architecture: "amd64", BootID: bootID(name, life), OSImage: "Debian", KubeletVersion: "v1.36.3",
		},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: "container runtime is down", LastTransitionTime: metav1.Now()}},
		Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.4"}},
	}
	if ready {
		status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastTransitionTime: metav1.Now()}
	}
	there := w.kube.Change("nodes", "", name, func(o runtime.Object) {
		n := o.(*corev1.Node)
		n.Status = status
		if ready {
			n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == unreachable })
		}
	})
	if there {
		return
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"}},
		Spec:       corev1.NodeSpec{ProviderID: "azure://" + w.spelled(c.ResourceID, "node", name)}, Status: status,
	}
	if c.Zone != "" {
		node.Labels[corev1.LabelTopologyZone] = location + "-" + c.Zone
	}
	if w.story.Pool.Machines {
		node.Annotations = map[string]string{fleet.AnnotationCapiMachine: name, fleet.AnnotationCapiNamespace: work}
	}
	w.kube.Put(node)
}

// halted is what the cluster sees of a computer that stopped.
func (w *world) halted(c *computer) {
	name, life := strings.ToLower(c.HostName), c.life
	grace := noticed
	if w.hash("grace period")%4 == 0 {
		grace = noticedLate
	}
	w.after(grace+w.between(0, 10*time.Second, "halt", name, life), func() {
		w.mu.Lock()
		back := c.life != life
		w.mu.Unlock()
		if back {
			return
		}
		w.kube.Change("nodes", "", name, func(o runtime.Object) {
			n := o.(*corev1.Node)
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", Message: "Kubelet stopped posting node status.", LastTransitionTime: metav1.Now()}}
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: unreachable, Effect: corev1.TaintEffectNoSchedule})
		})
	})
}

// removed is what the cluster sees of an instance that is gone.
func (w *world) removed(c *computer) {
	name := strings.ToLower(c.HostName)
	w.after(nodeGoes, func() {
		if n, ok := w.kube.Get("nodes", "", name).(*corev1.Node); !ok || !strings.EqualFold(n.Spec.ProviderID, "azure://"+c.ResourceID) {
			return
		}
		w.kube.Remove("nodes", "", name)
		var pods []*corev1.Pod
		w.kube.Each("pods", func(o runtime.Object) bool {
			if p := o.(*corev1.Pod); p.Spec.NodeName == name {
				pods = append(pods, p)
			}
			return true
		})
		for _, p := range pods {
			w.kube.Remove("pods", p.Namespace, p.Name)
			if p.DeletionTimestamp == nil { // else podGoes did
				w.replace(p)
			}
		}
	})
}

// node gives the name of the n-th instance's node, "" where there is none.
func (w *world) node(n int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.computers[low(w.instance(n))]; c != nil {
		return strings.ToLower(c.HostName)
	}
	return ""
}

func (w *world) nodeNames() (names []string) {
	w.kube.Each("nodes", func(o runtime.Object) bool {
		names = append(names, o.(*corev1.Node).Name)
		return true
	})
	return names
}

// computerOf gives the computer of a node.
func (w *world) computerOf(node string) *computer {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.computers {
		if strings.EqualFold(c.HostName, node) {
			return c
		}
	}
	return nil
}

// populate puts the workload on the donor, and what others set on it.
func (w *world) populate() {
	d := w.story.Donor
	donor := w.node(0)
	for _, ns := range []string{work, "kube-system", namespace} {
		w.kube.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	}
	if w.story.Pool.Kured {
		w.kube.Put(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kured"},
			Spec: appsv1.DaemonSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "kured"}},
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "kured", Image: "kured"}},
					NodeSelector: map[string]string{"none": "none"}}},
			}})
	}
	if w.story.Pool.Machines {
		for _, name := range w.nodeNames() {
			m := &unstructured.Unstructured{Object: object{"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine",
				"metadata": object{"namespace": work, "name": name}, "spec": object{}}}
			if d.Skip && name == donor {
				m.SetAnnotations(map[string]string{fleet.AnnotationSkipRemediation: "true"})
			}
			w.kube.Put(m)
		}
	}
	w.kube.Change("nodes", "", donor, func(o runtime.Object) {
		n := o.(*corev1.Node)
		n.Spec.Unschedulable = d.Cordoned
		if d.Cordoned {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
		}
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations["example.com/owner"] = "others"
		if d.ScaleDown {
			n.Annotations[fleet.AnnotationScaleDownDisabled] = "true"
		} else if d.Offered {
			n.Annotations[fleet.AnnotationScaleDownDisabled] = "false"
		}
	})
	w.putSet("web", d.Pods)
	w.putSet("db", d.Budgeted+w.setUpTight(donor))
	for i := range d.Pods {
		w.putPod(donor, "web", i, nil)
	}
	for i := range d.Budgeted {
		w.putPod(donor, "db", i, nil)
	}
	for i := range d.Daemons {
		w.putPod(donor, "agent", i, func(p *corev1.Pod) {
			p.OwnerReferences[0].Kind = "DaemonSet"
			w.kube.Put(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: work, Name: p.OwnerReferences[0].Name, UID: p.OwnerReferences[0].UID},
				Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}},
					Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeSelector: map[string]string{"none": "none"}}}}})
		})
	}
	for i := range d.Mirrors {
		w.putPod(donor, "static", i, func(p *corev1.Pod) {
			p.OwnerReferences[0] = metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: donor, UID: "node", Controller: yes()}
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		})
	}
	for i := range d.Unmanaged {
		w.putPod(donor, "alone", i, func(p *corev1.Pod) { p.OwnerReferences = nil })
	}
	one := intstr.FromInt32(1)
	none := intstr.FromInt32(0)
	if d.Budgeted > 0 {
		w.putBudget("db", &one)
	}
	if d.Blocked {
		w.putSet("stays", 1)
		w.putPod(donor, "stays", 0, nil)
		w.putBudget("stays", &none)
	}
}

// setUpTight puts a pod of the budgeted ReplicaSet on another node, which becomes Ready
// later. It gives how many that is.
func (w *world) setUpTight(donor string) int {
	others := slices.DeleteFunc(w.nodeNames(), func(n string) bool { return strings.EqualFold(n, donor) })
	if w.story.Donor.Tight <= 0 || len(others) == 0 {
		return 0
	}
	ready := func(status corev1.ConditionStatus) func(o runtime.Object) {
		return func(o runtime.Object) {
			o.(*corev1.Pod).Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
		}
	}
	const n = 999
	w.putPod(others[0], "db", n, func(p *corev1.Pod) { ready(corev1.ConditionFalse)(p) })
	w.after(w.story.Donor.Tight, func() { w.kube.Change("pods", work, fmt.Sprintf("db-%d", n), ready(corev1.ConditionTrue)) })
	return 1
}

func yes() *bool { b := true; return &b }

func (w *world) putBudget(app string, unavailable *intstr.IntOrString) {
	w.kube.Put(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: work, Name: app}, Spec: policyv1.PodDisruptionBudgetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, MaxUnavailable: unavailable,
	}})
}

// putSet puts a ReplicaSet: a budget goes by how many pods that shall have, also where
// one of them never ends since its node is off.
func (w *world) putSet(app string, pods int) {
	n := int32(pods)
	w.kube.Put(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: work, Name: app, UID: setUID(app)}, Spec: appsv1.ReplicaSetSpec{
		Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
	}})
}

func setUID(app string) types.UID { return types.UID("owner-" + app) }

func (w *world) putPod(node, app string, i int, change func(*corev1.Pod)) {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: work, Name: fmt.Sprintf("%s-%d", app, i), Labels: map[string]string{"app": app},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: app, UID: setUID(app), Controller: yes()}},
		},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: app}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue},
		}},
	}
	if change != nil {
		change(p)
	}
	w.kube.Put(p)
}

// latePods come to a node that was cordoned after the scheduler had decided on it.
func (w *world) latePods(node string) {
	for i := range w.story.Donor.Late {
		w.mu.Lock()
		w.born++
		n := 1000 + w.born
		w.mu.Unlock()
		w.after(w.between(0, mostLate, "late", node, i, n), func() { w.putPod(node, "web", n, nil) })
	}
}

// podEnds is how long the kubelet takes to end a pod: for ever while its
// computer is off.
func (w *world) podEnds(p *corev1.Pod, grace time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.computers {
		if !strings.EqualFold(c.HostName, p.Spec.NodeName) {
			continue
		}
		switch {
		case !c.running:
			return -1
		case p.Namespace == namespace:
			return min(time.Second, grace)
		}
		return min(w.story.Donor.Slow, grace)
	}
	return -1
}

// ends has a kubelet that is back end what was being deleted meanwhile.
func (w *world) ends(node string) {
	var going []*corev1.Pod
	w.kube.Each("pods", func(o runtime.Object) bool {
		if p := o.(*corev1.Pod); p.Spec.NodeName == node && p.DeletionTimestamp != nil {
			going = append(going, p)
		}
		return true
	})
	for _, p := range going {
		w.kube.Remove("pods", p.Namespace, p.Name)
	}
}

// podGoes looks at who deletes a pod, and has it replaced.
func (w *world) podGoes(d kubesim.Deletion) {
	w.judgeDeletion(d)
	if d.Pod.DeletionTimestamp == nil {
		w.replace(d.Pod)
	}
}

// replace has the ReplicaSet of a pod that goes make another.
func (w *world) replace(p *corev1.Pod) {
	owner := metav1.GetControllerOf(p)
	if owner == nil || owner.Kind != "ReplicaSet" {
		return
	}
	app := p.Labels["app"]
	w.mu.Lock()
	w.born++
	n := 1000 + w.born
	w.mu.Unlock()
	w.after(w.between(2*time.Second, 20*time.Second, "replace", p.Name), func() { w.schedule(app, n, p.Spec.NodeName) })
}

// schedule puts a pod on a node, not the one that another left, as soon as there is one
// for it.
func (w *world) schedule(app string, n int, left string) {
	node := ""
	w.kube.Each("nodes", func(o runtime.Object) bool {
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
