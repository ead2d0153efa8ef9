package simulate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/renew"
	"github.com/ortet/ortet/internal/schedule"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/test/kubesim"
)

// rollouts is what a world has of rollouts.
type rollouts struct {
	ill      map[string]bool      // nodes that do not come back until they are mended
	outSince map[string]time.Time // nodes of the pool that are not in service
	upgraded map[string]bool      // nodes whose instance somebody gave the model
}

// turns is what a process did as a rollout.
type turns struct {
	listed time.Time // when it last read all Nodes
	size   int       // of the pool then
	under  map[string]bool
	passed []string // nodes, as they returned with the image
	asked  map[string]bool
}

const rolloutDrain = 10 * time.Minute

func (w *world) rollsOut() bool {
	return slices.ContainsFunc(w.story.Asks, func(a Ask) bool { return a.Do == "rollout" })
}

func (p *process) rollsOut(config capture.Config) {
	p.turns = turns{under: map[string]bool{}, asked: map[string]bool{}}
	window, err := p.ask.window()
	if err != nil {
		p.w.broken(0, "cannot read a window: %v", err)
	}
	p.renew, p.err = renew.New(config).Rollout(p.ctx, renew.Request{Pool: p.w.pool, MaxUnavailable: p.ask.budget(), Soak: renew.DefaultSoak,
		DrainTimeout: rolloutDrain, Window: window})
}

func (a Ask) budget() string { return cmp.Or(a.Budget, renew.DefaultMaxUnavailable) }

func (a Ask) window() (schedule.Window, error) { return schedule.Parse(a.Window, a.For, "") }

// populateAll puts a pod on each node that a rollout has to drain.
func (w *world) populateAll() {
	if !w.rollsOut() {
		return
	}
	w.ill, w.outSince, w.upgraded = map[string]bool{}, map[string]time.Time{}, map[string]bool{}
	for i, name := range slices.Concat(w.nodesOf(w.pool), w.nodesOf(w.otherPool)) {
		w.putPod(name, "web", 50+i, nil)
	}
}

// distribution is what k3s has its kubelets report.
func (w *world) distribution() string {
	if w.rollsOut() && w.story.Pool.Spelling == "k3s" {
		return "+k3s1"
	}
	return ""
}

// joins reports whether the server of k3s lets a node join: it keeps the password of the disk that did first.
func (w *world) joins(c *computer) bool {
	if w.distribution() == "" {
		return true
	}
	name, disk := c.node()+".node-password.k3s", fmt.Sprint("disk ", c.made)
	s := w.kube.Secret("kube-system", name)
	if s == nil {
		w.kube.Put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, Annotations: map[string]string{"of": disk}}})
	}
	return s == nil || s.Annotations["of"] == disk
}

// rolled is what others do to a node that a rollout has to renew.
func (w *world) rolled(what string, c *computer) {
	switch name := c.node(); what {
	case "does not come back":
		w.locked(func() { w.ill[name] = true })
	case "kured waits": // for its lock, to reboot the node
		w.touch(name)
		w.kube.Change("nodes", "", name, func(o runtime.Object) {
			o.(*corev1.Node).Annotations = maps.Clone(o.(*corev1.Node).Annotations)
			o.(*corev1.Node).Annotations[fleet.AnnotationKuredReboot] = "now"
		})
		w.after(20*time.Minute, func() {
			w.kube.Change("nodes", "", name, func(o runtime.Object) { delete(o.(*corev1.Node).Annotations, fleet.AnnotationKuredReboot) })
		})
	case "owners protect the instance":
		w.setProtectionOf(fleet.ResourceID(c.ResourceID), false)
		now := w.nodes[name]
		now.scaleIn = true
		w.locked(func() { w.nodes[name] = now })
	default:
		w.touch(name, c.ResourceID)
		w.locked(func() { w.upgraded[name] = true })
		_ = w.request(http.MethodPost, w.pool+"/manualupgrade", computeAPI, object{"instanceIds": []string{path.Base(c.ID)}})
	}
}

// heal is a person who mends a node that did not come back.
func (w *world) heal(c *computer) {
	ill := false
	w.locked(func() { ill = w.ill[c.node()]; delete(w.ill, c.node()) })
	if ill {
		_ = w.request(http.MethodPost, fleet.ResourceID(c.ResourceID)+"/restart", computeAPI, nil)
	}
}

func inService(n *corev1.Node) bool {
	return n != nil && !n.Spec.Unschedulable && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// observeOut notes which of the pool's nodes are out of service, and what a rollout knows of that.
func (w *world) observeOut(p *process, req request) {
	if p.ask.Do != "rollout" || req.side() != "kube" {
		return
	}
	names := w.nodesOf(w.pool)
	out := map[string]time.Time{}
	for _, name := range names {
		if c := w.computerOf(name); c != nil && !w.isDeleting(c) && !inService(w.kube.Node(name)) {
			out[name] = time.Now()
			for _, c := range w.kube.Node(name).Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
					out[name] = c.LastTransitionTime.Time
				}
			}
		}
	}
	if req.name == "kube GET nodes" {
		p.turns.listed, p.turns.size = time.Now(), len(w.instancesOf(""))
	}
	w.locked(func() {
		for name := range out {
			if since, was := w.outSince[name]; was {
				out[name] = since
			}
		}
		w.outSince = out
	})
}

// isDeleting reports whether Azure deletes a computer's instance, which is none of the pool any more.
func (w *world) isDeleting(c *computer) (is bool) {
	w.azure.View(func(v *azsim.View) {
		i, ok := v.Instance(c.ResourceID)
		is = !ok || i.Deleting
	})
	return is
}

// checkTurn judges a request of a rollout; what it returns, what it did.
func (w *world) checkTurn(p *process, req request, about string, r *http.Request) func() {
	if p.ask.Do != "rollout" {
		return func() {}
	}
	if strings.HasSuffix(low(about), "/manualupgrade") {
		w.checkUpgrade(p, r)
	}
	node, isNode := strings.CutPrefix(about, "nodes/")
	before := w.kube.Node(node)
	if !isNode || !req.write() || before == nil {
		return func() {}
	}
	c := w.computerOf(node)
	if c == nil && node != liar { // it was deleted, and its Node will be
		return func() {}
	}
	if node == liar || !w.setOf(fleet.ResourceID(c.ResourceID)).Equal(w.pool) {
		w.broken(28, "%s sends %s, which is no node of the pool", p.name, req.name)
		return func() {}
	}
	return func() {
		after := w.kube.Node(node)
		if after == nil {
			return
		}
		_, was := before.Annotations[fleet.AnnotationRollout]
		_, is := after.Annotations[fleet.AnnotationRollout]
		has := w.hasImage(c)
		switch {
		case is && !was:
			w.checkBegun(p, node)
			fallthrough
		case is:
			w.locked(func() { p.turns.under[node] = true })
		case was:
			w.locked(func() {
				if delete(p.turns.under, node); has {
					p.turns.passed = append(p.turns.passed, node)
				}
			})
		}
		switch cordoned := after.Spec.Unschedulable; {
		case cordoned == before.Spec.Unschedulable:
		case cordoned:
			w.checkBudget(p, node, inService(before))
		default:
			w.checkReturn(p, before, c, has)
		}
	}
}

// hasImage reports whether a computer's disk was made from what the model names.
func (w *world) hasImage(c *computer) (has bool) {
	used := w.used(w.versions())
	of, version, marketplace := strings.Cut(used, ":")
	w.azure.View(func(v *azsim.View) {
		i, ok := v.Instance(c.ResourceID)
		parts := strings.Split(low(i.Image), ":")
		has = ok && (strings.EqualFold(i.Image, used) || marketplace && len(parts) == 4 && parts[1] == of && parts[3] == version)
	})
	return has
}

// firstPassed reports whether a node of this process has, as far as its Node shows.
func (p *process) firstPassed() bool {
	deleted := slices.ContainsFunc(p.w.story.Happen, func(e Event) bool { return e.What == "node deleted" || e.What == "instance deleted" })
	return len(p.turns.passed) > 0 || deleted
}

// checkBegun: a node is begun in the window, and the first one alone.
func (w *world) checkBegun(p *process, node string) {
	if window, _ := p.ask.window(); !isOpen(window, p.turns.listed) && !isOpen(window, time.Now()) {
		w.broken(26, "%s begins %s while its window is closed", p.name, node)
	}
	var under []string // also by an earlier process
	for _, name := range w.nodesOf(w.pool) {
		if n := w.kube.Node(name); name != node && n.Annotations[fleet.AnnotationRollout] != "" && w.computerOf(name) != nil && !w.isTouched(name) {
			under = append(under, name)
		}
	}
	if !p.firstPassed() && len(under) > 0 {
		w.broken(26, "%s begins %s before %v has passed", p.name, node, under)
	}
	if n, c := w.kube.Node(node), w.computerOf(node); n.Status.NodeInfo.SystemUUID != c.VMID {
		w.broken(28, "%s begins %s, whose Node says that it is another machine", p.name, node)
	}
	if w.hasImage(w.computerOf(node)) && !w.isTouched("model", node) {
		w.broken(28, "%s begins %s, which has the image", p.name, node)
	}
}

func isOpen(window schedule.Window, at time.Time) bool {
	_, open := window.Open(at)
	return open
}

// checkBudget: what was out of service when the Nodes were read last, or a minute ago, counts.
func (w *world) checkBudget(p *process, node string, served bool) {
	if !served {
		return
	}
	var out []string
	w.locked(func() {
		for name, since := range w.outSince {
			if name != node && (!since.After(p.turns.listed) || time.Since(since) > time.Minute) {
				out = append(out, name)
			}
		}
	})
	budget, err := schedule.ParseBudget(p.ask.budget())
	if size := max(p.turns.size, len(w.instancesOf(""))); err == nil && len(out)+1 > budget.Of(size) {
		w.broken(26, "%s takes %s out of service beside %v, and may have %s of %d", p.name, node, out, p.ask.budget(), size)
	}
}

// checkReturn: a node returns to service as it was, or with the image once it is Ready and its DaemonSets are.
func (w *world) checkReturn(p *process, before *corev1.Node, c *computer, has bool) {
	node := before.Name
	if _, marked := before.Annotations[fleet.AnnotationRollout]; !marked {
		w.broken(28, "%s uncordons %s, which no rollout had begun", p.name, node)
	}
	var aside, upgraded bool
	w.locked(func() { aside, upgraded = w.aside[node] == before.UID && before.UID != "", w.upgraded[node] })
	if aside {
		w.broken(28, "%s uncordons %s, which a person cordoned", p.name, node)
	}
	if !has || !upgraded || w.isTouched(node) {
		return
	}
	ready := time.Time{}
	for _, x := range before.Status.Conditions {
		if x.Type == corev1.NodeReady && x.Status == corev1.ConditionTrue {
			ready = x.LastTransitionTime.Time
		}
	}
	soaked := p.firstPassed() || time.Since(ready) >= renew.DefaultSoak-time.Second
	daemons := 0
	for _, pod := range w.podsOn(node) {
		if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" && pod.Status.Phase == corev1.PodRunning {
			daemons++
		}
	}
	if !w.isReady(c) || ready.IsZero() || !soaked || daemons < w.story.Pool.Daemons {
		w.broken(27, "%s returns %s to service, Ready since %s (soaked: %t), with %d DaemonSets", p.name, node, ready, soaked, daemons)
	}
}

// checkUpgrade: what gets the model lacks its image, is cordoned and marked, and has no pods to evict.
func (w *world) checkUpgrade(p *process, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(text))
	var body struct {
		InstanceIDs []string `json:"instanceIds"`
	}
	if err != nil || json.Unmarshal(text, &body) != nil || len(body.InstanceIDs) != 1 || !strings.Contains(low(r.URL.Path), "/"+poolName+"/") {
		w.broken(28, "%s upgrades %s", p.name, text)
		return
	}
	c := w.find(func(c *computer) bool {
		id := fleet.ResourceID(c.ResourceID)
		return strings.EqualFold(id.Name(), body.InstanceIDs[0]) && (id.UniformPool() == "" || w.pool.Equal(id.UniformPool()))
	})
	if c == nil {
		return
	}
	name := c.node()
	n := w.kube.Node(name)
	again := p.turns.asked[name] // of which Azure's answer was lost
	w.locked(func() { w.upgraded[name], p.turns.asked[name] = true, true })
	if n == nil || w.isTouched(name) {
		return
	}
	if _, marked := n.Annotations[fleet.AnnotationRollout]; !marked || !n.Spec.Unschedulable {
		w.broken(27, "%s upgrades %s, which is cordoned: %t, and marked: %t", p.name, name, n.Spec.Unschedulable, marked)
	}
	if pods := w.evictable(name); len(pods) > 0 && w.isReady(c) {
		w.broken(27, "%s upgrades %s while pod %s is on it", p.name, name, pods[0].Name)
	}
	if w.hasImage(c) && !w.isTouched("model") && !again {
		w.broken(28, "%s upgrades %s, which has the image", p.name, name)
	}
}

// checkDrained: a rollout evicts no pods of a node that has the image, or of another pool.
func (w *world) checkDrained(d kubesim.Deletion) {
	if !w.rollsOut() || d.User != ortetUser || d.Pod.Namespace != workload || slices.ContainsFunc(w.story.Happen, func(e Event) bool { return e.What == "capture begins" }) {
		return
	}
	c := w.computerOf(d.Pod.Spec.NodeName)
	switch {
	case c == nil || w.isTouched("model", c.node()):
	case !w.setOf(fleet.ResourceID(c.ResourceID)).Equal(w.pool):
		w.broken(28, "pod %s of another pool's node is evicted", d.Pod.Name)
	case w.hasImage(c):
		w.broken(28, "pod %s is evicted from %s, which has the image", d.Pod.Name, c.node())
	}
}

// checkRollout compares how a rollout ended with what Azure and the cluster show.
func (w *world) checkRollout(p *process) {
	code, r, text := p.code(), p.renew, fmt.Sprint(p.err)
	said, _ := json.Marshal(r) // of strings
	all := text + string(said)
	var earlier, disturbed bool
	w.locked(func() {
		earlier = w.open
		w.open = code == workflow.ExitNeedsPerson || code == workflow.ExitInterrupted || earlier && code != workflow.ExitDone
		disturbed = w.happened > 0
	})
	now, was := w.modelNow(), w.expected()
	if w.othersChose() {
		was.image, was.rest = now.image, now.rest
	}
	if !reflect.DeepEqual(now, was) && !w.isTouched("capacity") {
		w.broken(4, "%s rolls out, and the model is %+v, and was %+v", p.name, now, was)
	}
	w.checkNeighbour()
	w.checkClaims(p, true)
	rival := slices.ContainsFunc(w.story.Happen, func(e Event) bool { return strings.Contains(e.What, "another ortet") || e.What == "capture begins" })
	interrupted := p.interrupted.Load()
	switch changes := p.changes.Load(); {
	case code == workflow.ExitRefused && !earlier && changes > 0:
		w.broken(9, "%s is refused, and changed something %d times: %s", p.name, changes, text)
	case code == workflow.ExitInterrupted && !earlier && !interrupted && !rival && !w.isTouched("model") && !strings.Contains(text, "lock"):
		w.broken(9, "%s ends with exit 5, and was not interrupted: %s", p.name, text)
	case interrupted && code == workflow.ExitFailed:
		w.broken(9, "%s was interrupted, and ends with exit 1: %s", p.name, text)
	case (code == workflow.ExitFailed || code == workflow.ExitNeedsPerson) && w.onlyPassing() && w.story.Cannot == "":
		w.broken(10, "%s ends with exit %d although what it met passes: %s", p.name, code, text)
	}
	touched := w.isTouched("model")
	for _, name := range w.nodesOf(w.pool) {
		n, c := w.kube.Node(name), w.computerOf(name)
		if n == nil || c == nil {
			continue
		}
		_, marked := n.Annotations[fleet.AnnotationRollout]
		named := strings.Contains(all, name) || strings.Contains(all, path.Base(c.ResourceID))
		returns := interrupted && w.happened == 1 && n.Annotations[fleet.AnnotationRollout] != "" && !w.upgradedNow(name) && !w.isTouched(name)
		switch {
		case marked && code == workflow.ExitDone:
			w.broken(29, "%s ends with exit 0, and %s is marked %s: %s", p.name, name, n.Annotations[fleet.AnnotationRollout], all)
		case marked && code == workflow.ExitNeedsPerson && !named:
			w.broken(29, "%s ends with exit 4, and does not name %s, which is marked: %s", p.name, name, all)
		case returns && !w.isDown("kube"):
			w.broken(29, "%s is interrupted before it upgrades %s, which stays marked: %s", p.name, name, all)
		case code == workflow.ExitDone && r.Waiting == "" && !named && !touched && !w.isTouched(name) && !w.hasImage(c):
			w.broken(29, "%s ends with exit 0, and %s has another image: %s", p.name, name, all)
		}
		if says := "node " + name + " stays cordoned"; strings.Contains(text, says) && !n.Spec.Unschedulable && !w.isTouched(name) {
			w.broken(22, "%s says %q, and it is in service: %s", p.name, says, text)
		}
	}
	for _, name := range r.Renewed {
		if !slices.Contains(p.turns.passed, name) && !touched && !w.isTouched(name) {
			w.broken(22, "%s says that it renewed %s, which did not return with the image", p.name, name)
		}
		if slices.ContainsFunc(r.Left, func(l renew.LeftOut) bool { return l.Node == name }) {
			w.broken(22, "%s says that it renewed %s, and that it is left out", p.name, name)
		}
	}
	if code == workflow.ExitDone || code == workflow.ExitFailed && !disturbed {
		for _, l := range w.nodeLacks(p) {
			w.broken(29, "%s ends with exit %d, and %s %s: %s", p.name, code, l.name, l.what, all)
		}
	}
	holder, lease := w.holder()
	if held := strings.HasPrefix(holder, p.name+"/"); held && !w.isDown("kube") {
		w.broken(7, "%s ends with exit %d, and %s is locked", p.name, code, lease)
	}
	if by := w.kuredHolder(); strings.HasSuffix(by, "/"+renew.Step) && !w.isDown("kube") && (code == workflow.ExitDone || code == workflow.ExitNeedsPerson) && w.happened == 0 {
		w.broken(7, "%s ends with exit %d, and kured is locked by %s", p.name, code, by)
	}
	if code == workflow.ExitDone {
		w.locked(func() { w.model = now })
	}
}

func (w *world) upgradedNow(name string) (is bool) {
	w.locked(func() { is = w.upgraded[name] })
	return is
}
