package simulate

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	corev1 "k8s.io/api/core/v1"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/renew"
)

// checkRequest judges a request that is about to be served; what it returns judges its answer.
func (w *world) checkRequest(p *process, req request, r *http.Request) func(*http.Response) {
	w.observeRest()
	w.observeOut(p, req)
	about := w.byName(req.about())
	w.checkLiar(p, req, about, r)
	toPool := req.write() && (req.side() == "azure" || strings.HasPrefix(about, "nodes/") || strings.HasPrefix(about, workload+"/") || strings.HasPrefix(about, "kube-system/"))
	if !toPool {
		return func(*http.Response) {}
	}
	watches := p.ask.Do == "watch" && (strings.Contains(about, "/versions/") || strings.HasPrefix(about, "nodes/") || about == workload+"/events") // it holds no lock
	releases := p.ask.Do == "rollout" && strings.HasPrefix(about, "kube-system/daemonsets/")                                                       // its own lock of kured
	if holder, _ := w.holder(); holder != "" && !strings.HasPrefix(holder, p.name+"/") && !watches && !releases {
		w.broken(11, "%s sends %s while %s locks the pool", p.name, req.name, holder)
	}
	if req.side() == "azure" {
		w.checkRest(p, req)
		w.checkStop(p, about)
		w.checkOrder(p, req)
		w.checkDetach(p, about)
		w.checkEmptied(p, req)
		w.checkDeletion(p, about, r)
	}
	w.checkOnline(p, req)
	node, _ := strings.CutPrefix(about, "nodes/")
	before, lock := w.kube.Node(node), w.kuredHolder()
	noted, turned := w.noteWrite(p, req, about), w.checkTurn(p, req, about, r)
	return func(answer *http.Response) {
		noted()
		turned()
		if answer == nil || answer.StatusCode >= 300 {
			return
		}
		if !strings.EqualFold(req.name, "azure PATCH "+definition) { // which namespace has the pool goes with its Lease
			p.changes.Add(1)
		}
		w.checkQuarantine(p)
		w.checkMade(p, req)
		if now := w.kuredHolder(); strings.HasPrefix(about, "kube-system/") && now != lock && lock != "" && !ownLock(lock) {
			w.broken(12, "%s replaces kured's lock of %s by one of %q", p.name, lock, now)
		}
		if bench := w.workbench(); bench != nil && w.isOn(bench, 0) {
			w.checkAttached(bench.node())
		}
		after := w.kube.Node(node)
		if before == nil || after == nil {
			return
		}
		if n := w.story.Pool.LatePods; n > 0 && !before.Spec.Unschedulable && after.Spec.Unschedulable {
			for i := range n {
				id := w.nextPod()
				w.after(w.between(0, time.Second, "late", i, id), func() { w.putPod(node, "web", id, nil) })
			}
		}
		c := w.computerOf(node)
		if p.online() && node == w.donorOf(p.ask) && before.Spec.Unschedulable != after.Spec.Unschedulable {
			w.broken(19, "%s has unschedulable=%t at its donor %s", p.name, after.Spec.Unschedulable, node)
		}
		if c != nil && before.Spec.Unschedulable && !after.Spec.Unschedulable && !w.isTouched(node) && !w.isReady(c) {
			w.broken(12, "%s uncordons %s, which is not Ready since its last boot", p.name, node)
		}
		if after.Annotations[fleet.AnnotationFresh] != "" {
			w.locked(func() {
				if !slices.Contains(w.fresh, node) {
					w.fresh = append(w.fresh, node)
				}
			})
			for _, c := range before.Status.Conditions {
				if since := time.Since(c.LastTransitionTime.Time); c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue &&
					!before.Spec.Unschedulable && before.Annotations[fleet.AnnotationFresh] == "" && w.happened == 0 && !w.story.Pool.Surplus && since > 5*time.Second {
					w.broken(25, "%s takes its fresh donor %s out of service %s after it was Ready", p.name, node, since)
				}
			}
		}
		if after.Annotations[fleet.AnnotationWorkbench] != "" {
			w.locked(func() { w.workbenches[node] = true })
		}
	}
}

// checkOrder: a version is built once the donor is back, and extensions go once the model uses it.
// A donor that was never out of service has nothing to come back from: it may be deleted.
func (w *world) checkOrder(p *process, req request) {
	before := w.expected()
	if strings.HasPrefix(req.name, "azure DELETE ") && strings.Contains(req.name, "/extensions/") && !w.isTouched("model") && strings.EqualFold(w.modelNow().image, before.image) {
		w.broken(4, "%s sends %s while the model uses %s", p.name, req.name, before.image)
	}
	donor := w.donorOf(p.ask)
	c := w.computerOf(donor)
	var deleted, back bool
	w.locked(func() { back, deleted = w.removed[donor] })
	away := !p.online() && deleted && !back && !w.isTouched("stopped "+donor) || c != nil && !w.isTouched(donor) && !w.isReady(c)
	if strings.HasPrefix(req.name, "azure PUT ") && strings.Contains(req.name, "/versions/") && away {
		w.broken(12, "%s sends %s while donor %s is not Ready since its last boot, or was deleted before: %t", p.name, req.name, donor, deleted)
	}
}

// checkDetach: no pod works on a copy that is detached.
func (w *world) checkDetach(p *process, about string) {
	bench := w.workbench()
	if path.Base(about) != "attachDetachDataDisks" || bench == nil || !strings.HasSuffix(low(bench.ResourceID), low(path.Dir(about))) || w.isTouched(bench.node()) || !w.isOn(bench, 0) {
		return
	}
	for _, pod := range w.podsOn(bench.node()) {
		if pod.Namespace == namespace && pod.Status.Phase == corev1.PodRunning && !slices.Contains(pod.Spec.Containers[0].Command, "--inspect") {
			w.broken(12, "%s detaches the copy from %s while pod %s works on it", p.name, bench.node(), pod.Name)
		}
	}
}

// checkDeletion: a process deletes nothing of others, and of the pool's machines none that its
// owners protect, and none whose Node may still get pods.
func (w *world) checkDeletion(p *process, about string, r *http.Request) {
	for _, id := range w.foreign {
		if r.Method == http.MethodDelete && strings.HasSuffix(low(id), "/"+low(about)) {
			w.broken(3, "%s deletes %s, which others made", p.name, id)
		}
	}
	if r.Method != http.MethodPost || !strings.HasSuffix(low(about), low(poolName+"/delete")) {
		return
	}
	text, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(text))
	var body struct {
		InstanceIDs []string `json:"instanceIds"`
	}
	if err != nil || json.Unmarshal(text, &body) != nil {
		return
	}
	for _, id := range body.InstanceIDs {
		c := w.find(func(c *computer) bool {
			set, name, _ := strings.Cut(low(c.ResourceID), "/virtualmachines/")
			return name == low(id) && (path.Base(set) == poolName || !strings.Contains(set, "/virtualmachinescalesets/"))
		})
		if c == nil {
			continue
		}
		touched, just := w.isTouched(c.node()), false
		w.locked(func() { // a fresh donor's Node is read, the journal saved, and the donor deleted
			just = touched && slices.Contains(w.fresh, c.node()) && time.Since(w.lastEvent) < time.Second
		})
		switch n, s := w.kube.Node(c.node()), w.stateOf(c.node()); {
		case s.scaleIn || s.actions:
			w.broken(3, "%s deletes %s, which its owners protect", p.name, c.Name)
		case n != nil && !n.Spec.Unschedulable && !just:
			w.broken(12, "%s deletes %s, whose Node %s is schedulable", p.name, c.Name, n.Name)
		}
		used, chosen := w.used(w.versions()), time.Time{}
		w.locked(func() { chosen = w.chosenAt })
		if used != "" && p.ask.Do == "watch" && chosen.Before(p.read) && w.madeOf(c, used) { // what is written after its last read it cannot know
			w.broken(18, "%s deletes %s, which is made of what the model names", p.name, c.Name)
		}
	}
}

// checkStop: a donor is stopped once its pods are evicted.
func (w *world) checkStop(p *process, about string) {
	what := strings.ToLower(path.Base(about))
	if what != "poweroff" && what != "deallocate" {
		return
	}
	c := w.find(func(c *computer) bool { return strings.HasSuffix(c.ID, "/"+low(path.Dir(about))) })
	if c == nil || !w.isOn(c, 0) || w.isTouched(c.node()) {
		return
	}
	if c.node() != w.donorOf(p.ask) {
		w.broken(3, "%s stops %s, which is not its donor", p.name, c.node())
	}
	for _, pod := range w.evictable(c.node()) {
		w.broken(12, "%s stops %s while pod %s is on it", p.name, c.node(), pod.Name)
	}
}

// checkAttached: a workbench is protected, and kured locked, when a copy is attached to it.
func (w *world) checkAttached(node string) {
	if w.isTouched(node) {
		return
	}
	s := w.stateOf(node)
	if s.annotations[fleet.AnnotationScaleDownDisabled] != "true" || !s.scaleIn && !w.story.Pool.Unprotectable {
		w.broken(12, "a copy is attached to %s, which is not protected", node)
	}
	if n := w.kube.Node(node); n != nil && n.Status.NodeInfo.SystemUUID == noVM {
		w.broken(21, "a copy is attached to %s, whose Node says that it is another machine", node)
	}
	if by := s.annotations[fleet.AnnotationWorkbench]; by != "" && !w.pool.Equal(fleet.ResourceID(by)) {
		w.broken(12, "a copy is attached to %s, which is the workbench of %s", node, by)
	}
	if holder := w.kuredHolder(); w.story.Pool.Kured && !ownLock(holder) {
		w.broken(12, "a copy is attached to %s while kured's lock is %q", node, holder)
	}
}

// ownLock reports whether a capture or rollout of this pool is the holder of kured's lock.
func ownLock(holder string) bool {
	of := path.Base(holder)
	return strings.HasPrefix(holder, "ortet/") && (strings.EqualFold(of, poolName) || of == renew.Step)
}

// kuredHolder is who has kured's lock, "" for none.
func (w *world) kuredHolder() string {
	var lock struct{ NodeID string }
	if d := w.kube.DaemonSet("kube-system", "kured"); d == nil || json.Unmarshal([]byte(d.Annotations[kuredLock]), &lock) != nil {
		return ""
	}
	return lock.NodeID
}

// observeRest notes since when the pool is not at rest.
func (w *world) observeRest() {
	rest, members := true, true
	w.azure.View(func(v *azsim.View) {
		rest = !v.Running(string(w.pool))
		for _, typ := range []string{memberType, machineType} {
			v.Each(typ, func(id string, body any) {
				i, ok := v.Instance(id)
				vm, _ := body.(*armcompute.VirtualMachineScaleSetVM)
				creating := vm != nil && vm.Properties != nil && vm.Properties.ProvisioningState != nil && *vm.Properties.ProvisioningState == "Creating"
				members = members && (!creating && !(ok && i.Deleting) || !w.pool.Equal(fleet.ResourceID(i.ScaleSet)))
			})
		}
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.membersRest = members
	switch {
	case rest && members:
		w.updatingSince = time.Time{}
	case w.updatingSince.IsZero():
		w.updatingSince = time.Now()
	}
}

// checkRest: model, extensions and capacity change while the set is at rest. What began in the
// last seconds, no process has to have seen; nor an operation on the set alone, where Azure
// answered its read in these seconds as before: the deletion of an extension takes no ETag.
func (w *world) checkRest(p *process, req request) {
	set := "virtualMachineScaleSets/" + poolName
	if about := req.about(); about != set && !strings.HasPrefix(about, set+"/extensions/") {
		return
	}
	var since time.Time
	unseen := false
	w.locked(func() {
		since, unseen = w.updatingSince, w.membersRest && !req.ifMatch && time.Since(p.old) < 5*time.Second
	})
	if d := time.Since(since); !unseen && !since.IsZero() && d > 5*time.Second && d < 20*time.Minute {
		w.broken(13, "%s sends %s while the set has not been at rest for %s", p.name, req.name, d)
	}
}
