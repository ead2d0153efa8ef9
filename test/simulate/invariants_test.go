package simulate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/renew"
	"github.com/ortet/ortet/internal/image/watch"
	"github.com/ortet/ortet/internal/workflow"
)

// The invariants and their numbers are in docs/reference/simulation.md. One excuse holds for all: a
// neighbour changed this very object (world.touched).

// A lack is something that is not as it has to be at a process's end.
type lack struct {
	invariant  int
	name, what string
	also       string // another name of it
}

// A beginning is how versions and model are before a command.
type beginning struct {
	at          time.Time
	before      map[string]*armcompute.GalleryImageVersion // versions, by lower-case id
	imageBefore string                                     // lower-case id of the image that the model uses
}

func (w *world) beginningNow() beginning {
	versions := w.versions()
	for id, v := range versions {
		own, properties := *v, *v.Properties
		own.Tags, own.Properties = maps.Clone(v.Tags), &properties // azsim changes them in place
		versions[id] = &own
	}
	return beginning{time.Now(), versions, w.used(versions)}
}

// beginAsk notes how everything is before an ask.
func (w *world) beginAsk() {
	now := w.beginningNow()
	there := map[string]bool{}
	for _, i := range w.instancesOf("") {
		there[i.name] = true
	}
	w.locked(func() { w.beginning, w.hadThere = now, there })
}

// used returns the lower-case id of the image that the pool's model uses: where it names the
// definition, of its latest version.
func (w *world) used(versions map[string]*armcompute.GalleryImageVersion) string {
	image := low(w.imageNow())
	toLatest := image == low(w.names.Definition)
	for id, v := range versions {
		if profile := v.Properties.PublishingProfile; toLatest && id > image && (profile.ExcludeFromLatest == nil || !*profile.ExcludeFromLatest) {
			image = id
		}
	}
	return image
}

// expected is the model as others have it.
func (w *world) expected() model {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.model
}

// checkEnd compares a process's exit code with what Azure and the cluster show.
func (w *world) checkEnd(p *process) {
	if p.ask.Do == "rollout" {
		w.checkRollout(p)
		return
	}
	code, text, interrupted := p.code(), fmt.Sprint(p.err), p.interrupted.Load()
	w.mu.Lock()
	earlier := w.open                        // a process that left its work open
	others := earlier && p.ask.Do == "watch" // it resumes no capture
	w.open = code == workflow.ExitNeedsPerson || code == workflow.ExitInterrupted || earlier && code == workflow.ExitRefused || others
	w.mu.Unlock()
	var lacks []lack
	if !others {
		lacks = append(w.nodeLacks(p), w.leftovers(p)...)
	}
	model := w.modelNow()
	if p.ask.Do == "watch" {
		w.checkWatch(p, model)
	} else {
		w.checkModel(p, model)
	}
	w.checkRollback(p, model)
	w.checkVersions(p, model)
	w.checkNeighbour()
	w.checkQuarantine(p)
	w.checkCanary(p, model)
	w.checkClaims(p, true)
	passed := code == workflow.ExitFailed && p.watch.Outcome != watch.TakenBack && w.story.Cannot == "" && w.onlyPassing()
	rival := slices.ContainsFunc(w.story.Happen, func(e Event) bool { return strings.Contains(e.What, "another ortet") })
	switch changes := p.changes.Load(); {
	case interrupted && code == workflow.ExitFailed && !p.failed.Load():
		w.broken(9, "%s was interrupted, and ends with exit 1: %s", p.name, text)
	case passed:
		w.broken(10, "%s ends with exit 1 although what it met passes: %s", p.name, text)
	case code == workflow.ExitRefused && !earlier && changes > 0:
		w.broken(9, "%s is refused, and changed something %d times: %s", p.name, changes, text)
	case code == workflow.ExitInterrupted && !earlier && !interrupted && !rival && !strings.Contains(text, "preflight"):
		w.broken(9, "%s ends with exit 5, and was not interrupted: %s", p.name, text)
	}
	for _, l := range lacks {
		excused := false
		switch code {
		case workflow.ExitRefused:
			excused = earlier
		case workflow.ExitNeedsPerson:
			excused = strings.Contains(text, l.name) || l.also != "" && strings.Contains(text, l.also)
		case workflow.ExitInterrupted:
			excused = l.invariant != 1 || !strings.Contains(text, "is in service as it was found") && !(interrupted && w.happened == 1)
		}
		if !excused {
			w.broken(l.invariant, "%s ends with exit %d, and %s %s: %s", p.name, code, l.name, l.what, text)
		}
	}
	if (code == workflow.ExitDone || code == workflow.ExitFailed) && !others {
		if j := w.journal(); j != nil && j.Ended == nil {
			w.broken(11, "%s ends with exit %d, and %s is open in the journal", p.name, code, j.Name)
		}
	}
	if code == workflow.ExitDone || p.watch.Outcome == watch.TakenBack {
		w.locked(func() { w.model = model })
	}
}

// onlyPassing reports whether one event happened, a fault after which a request is repeated
// with success.
func (w *world) onlyPassing() bool {
	if len(w.story.Happen) != 1 || w.happened != 1 {
		return false
	}
	f := faultOf(&w.story.Happen[0])
	return f.name != "" && !f.fatal
}

// nodeLacks lists what of nodes and instances is not as others have it.
func (w *world) nodeLacks(p *process) (all []lack) {
	var nodes map[string]nodeState
	var benches map[string]bool
	var fresh []string
	w.locked(func() { nodes, benches, fresh = maps.Clone(w.nodes), maps.Clone(w.workbenches), slices.Clone(w.fresh) })
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		if slices.Contains(fresh, name) {
			if w.computerOf(name) != nil {
				all = append(all, lack{25, name, "is a fresh donor that is left", "--instance-ids " + fleet.ResourceID(w.computerOf(name).ResourceID).Name()})
			}
			continue
		}
		// One that was raised may be deleted before its Node exists: the capacity says how many.
		raises := slices.ContainsFunc(w.story.Asks, func(a Ask) bool { return a.Fresh })
		added := raises && w.byNumber(name) >= w.byNumber(w.nodeName(w.story.Pool.Instances)) && w.kube.Node(name) == nil
		if w.isTouched(name) || added {
			continue
		}
		invariant := 3
		switch {
		case name == w.donorOf(p.ask) && p.ask.Do == "capture":
			invariant = 1
		case benches[name]:
			invariant = 2
		}
		c := w.computerOf(name)
		if c == nil || w.kube.Node(name) == nil {
			all = append(all, lack{invariant, name, "is gone", ""})
			continue
		}
		was, now := nodes[name], w.stateOf(name)
		add := func(format string, args ...any) {
			all = append(all, lack{invariant, name, fmt.Sprintf(format, args...), c.ResourceID})
		}
		if now.unschedulable != was.unschedulable {
			add("has unschedulable=%t", now.unschedulable)
		}
		if !maps.Equal(now.annotations, was.annotations) {
			add("is annotated %v, and was %v", now.annotations, was.annotations)
		}
		if !maps.Equal(now.machine, was.machine) {
			add("has a Machine annotated %v, and had %v", now.machine, was.machine)
		}
		if now.scaleIn != was.scaleIn || now.actions != was.actions {
			add("is protected from scale-in=%t and actions=%t", now.scaleIn, now.actions)
		}
		if !w.isOn(c, 0) {
			add("is off")
		}
	}
	return all
}

// leftovers lists what a capture makes for the time of its work, and is there.
func (w *world) leftovers(p *process) (all []lack) {
	w.azure.View(func(v *azsim.View) {
		add := func(id string, tags map[string]*string) {
			// What an earlier capture left is deleted by the next that succeeds.
			if of := tags[fleet.TagCapture]; of != nil && (*of != w.earlier || p.code() == workflow.ExitDone) {
				all = append(all, lack{7, fleet.ResourceID(id).Name(), "is left", ""})
			}
		}
		v.Each("Microsoft.Compute/snapshots", func(id string, body any) { add(id, body.(*armcompute.Snapshot).Tags) })
		v.Each("Microsoft.Compute/disks", func(id string, body any) { add(id, body.(*armcompute.Disk).Tags) })
	})
	all = append(all, w.setLacks()...)
	for id, version := range w.versions() {
		if s := stateOf(version); (s == "Failed" || s == "Creating") && !slices.ContainsFunc(w.foreign, fleet.ResourceID(id).Equal) && w.story.Pool.Kind != undeletable {
			all = append(all, lack{7, fleet.ResourceID(id).Name(), "is a version in state " + s, ""})
		}
	}
	if c := w.workbench(); c != nil {
		all = append(all, lack{7, c.node(), "has a copy attached", c.ResourceID})
	}
	w.kube.Peek("pods", func(o runtime.Object) bool {
		if pod := o.(*corev1.Pod); pod.Namespace == namespace && pod.DeletionTimestamp == nil {
			all = append(all, lack{7, pod.Name, "is left", ""})
		}
		return true
	})
	// One that the API server is away for runs out by itself.
	if holder, lease := w.holder(); !w.isDown("kube") && strings.HasPrefix(holder, p.name+"/") {
		all = append(all, lack{7, lease, "is a Lease that is still locked", ""})
	}
	if d := w.kube.DaemonSet("kube-system", "kured"); d != nil && ownLock(w.kuredHolder()) && path.Base(w.kuredHolder()) != renew.Step { // which expires by itself
		all = append(all, lack{7, "kured", "is locked", ""})
	}
	return all
}

// setLacks lists scale sets that captures made, and pods of the workload on their nodes.
func (w *world) setLacks() (all []lack) {
	w.azure.View(func(v *azsim.View) {
		v.Each(setType, func(id string, _ any) {
			if !w.ofStory(fleet.ResourceID(id)) {
				all = append(all, lack{15, fleet.ResourceID(id).Name(), "is a scale set that is left", ""})
			}
		})
	})
	w.kube.Each("pods", func(o runtime.Object) bool {
		if p := o.(*corev1.Pod); p.Namespace == tests {
			all = append(all, lack{16, p.Name, "is a pod of a canary's test that is left", ""})
		}
		return true
	})
	var canaries []string
	w.locked(func() { canaries = slices.Sorted(maps.Keys(w.canaries)) })
	for _, name := range canaries {
		for _, p := range w.evictable(name) {
			all = append(all, lack{16, p.Name, "stays on the canary's node " + name, name})
		}
	}
	return all
}

func (w *world) isQuarantined(id string) bool {
	v := w.versions()[low(id)]
	return v != nil && v.Tags[fleet.TagQuarantine] != nil && v.Tags[fleet.TagRolledBack] != nil
}

// badComputers are those of bad versions.
func (w *world) badComputers() (all []*computer) {
	w.find(func(c *computer) bool {
		if c.bad != "" {
			all = append(all, c)
		}
		return false
	})
	return all
}

// sawBad reports whether the version of a watch has a bad machine that is no older than its begin
// and what clocks may be apart: when an older one was given the version is not known.
func (w *world) sawBad(p *process) bool {
	bad := w.badComputers()
	return slices.ContainsFunc(w.instancesOf(p.watch.Version), func(i instance) bool {
		return !i.created.Before(p.watch.Since.Add(-2*time.Minute)) &&
			slices.ContainsFunc(bad, func(c *computer) bool { return strings.EqualFold(c.ResourceID, i.id) })
	})
}

// checkNeighbour: the other pool's model and capacity are as others have them.
func (w *world) checkNeighbour() {
	var was model
	w.locked(func() { was = w.otherModel })
	if now := w.modelOf(w.otherPool); !reflect.DeepEqual(now, was) {
		w.broken(3, "the scale set of another pool is %+v, and was %+v", now, was)
	}
}

// checkQuarantine: the pool's model names no version that failed a gate, unless a rollback was
// asked for it by name.
func (w *world) checkQuarantine(p *process) {
	versions := w.versions()
	id := w.used(versions)
	v, asked := versions[id], p.ask.Do == "rollback" && p.ask.To == path.Base(id)
	if v != nil && v.Tags[fleet.TagQuarantine] != nil && !asked && !w.othersChose() && !w.isTouched(id) && !w.isWatched() {
		w.broken(17, "the model names %s at the time of %s, which is quarantined: %s", id, p.name, *v.Tags[fleet.TagQuarantine])
	}
}

// checkCanary: what a canary decides is what the nodes of its version are.
func (w *world) checkCanary(p *process, now model) {
	if p.ask.Canary == 0 || w.othersChose() {
		return
	}
	bad := w.story.Pool.Bad
	if testPods[p.ask.Test].fails {
		bad = "failing the test " + p.ask.Test
	}
	for id, v := range w.versions() {
		made := published(v).After(w.begin)
		switch live := id == low(now.image); {
		case made && live && bad != "" && p.code() == workflow.ExitDone:
			w.broken(17, "%s has %s go live, whose nodes are %s", p.name, id, bad)
		case made && bad == "" && w.isQuarantined(id):
			w.broken(17, "%s quarantines %s, whose nodes are good: %s", p.name, id, *v.Tags[fleet.TagQuarantine])
		case made && bad != "" && !*v.Properties.PublishingProfile.ExcludeFromLatest:
			w.broken(17, "%s has %s be the definition's latest, whose nodes are %s", p.name, id, bad)
		case made && live && p.code() == workflow.ExitDone && isUnjudged(v) && !w.isTouched("versions"):
			w.broken(17, "%s has %s go live, which is tagged as unjudged", p.name, id)
		}
	}
}

func isUnjudged(v *armcompute.GalleryImageVersion) bool {
	return tagsOf(v)[fleet.TagCanary] == plan.Unjudged
}

// isWatched reports whether a watch has still to take a version back.
func (w *world) isWatched() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.processes, func(p *process) bool {
		select {
		case <-p.done:
			return p.ask.Do == "watch" && (p.isDead() || p.code() == workflow.ExitNeedsPerson || p.code() == workflow.ExitInterrupted)
		default:
			return p.ask.Do == "watch"
		}
	})
}

// checkWatch: a version is proven or taken back as its nodes are, and none of a version that was
// taken back serves, but for those that passed.
func (w *world) checkWatch(p *process, now model) {
	was, id := w.expected(), low(p.watch.Version)
	v := w.versions()[id]
	back := p.watch.Outcome == watch.TakenBack
	good := w.story.Pool.Bad == ""
	// Others that fail at the same time say that the cluster is ill.
	nodesHit := slices.ContainsFunc(w.story.Happen, func(e Event) bool { return regexp.MustCompile("instance|node|away|sleeps").MatchString(e.What) })
	switch code := p.code(); {
	case back && good:
		w.broken(18, "%s takes back %s, whose nodes are good: %v", p.name, id, p.err)
	// By its own writes: a rollback or a take-back that was killed may have left the model as it is.
	case !back && len(p.writes) > 0 && (code == workflow.ExitDone || !strings.EqualFold(now.image, was.image) && code != workflow.ExitInterrupted && !w.isTouched("model") && !w.isQuarantined(was.image)):
		w.broken(18, "%s ends with exit %d and %q, and wrote the model: %v", p.name, code, p.watch.Outcome, p.writes)
	case p.watch.Outcome == watch.Proven && (v == nil || v.Tags[fleet.TagProven] == nil):
		w.broken(18, "%s reports that %s is proven, which has no such tag", p.name, id)
	case !back && code == workflow.ExitDone && w.sawBad(p) && v != nil && published(v).After(w.begin) && !w.isTouched("model") && !nodesHit:
		w.broken(18, "%s ends with %s, and the nodes of %s are %s", p.name, p.watch.Outcome, id, w.story.Pool.Bad)
	case back && code == workflow.ExitFailed && !w.isTouched("model"):
		if to := w.wanted(""); low(now.image) != to && to != "" && low(w.imageBefore) == id && !w.isTouched(to) {
			w.broken(18, "%s takes back %s, and the model has %s, not %s", p.name, id, now.image, to)
		}
		untold := !strings.Contains(strings.Join(p.watch.Notes, ""), "could not be tagged")
		if !w.isQuarantined(id) && !w.isTouched("versions") && untold {
			w.broken(18, "%s takes back %s, which is not quarantined", p.name, id)
		}
		for _, c := range w.badComputers() {
			n := w.kube.Node(c.node())
			if n == nil || n.Spec.Unschedulable || p.ask.Bad == watch.Leave || !w.madeOf(c, id) {
				continue
			}
			named := strings.Contains(fmt.Sprint(p.err), c.Name+" has no Node that could be cordoned")
			created := w.createdAt(c)
			if !named || created.IsZero() || n.CreationTimestamp.Sub(created) < 6*time.Minute { // twice the least limit: until then it is waited for
				w.broken(18, "%s takes back %s, and its node %s is not cordoned", p.name, id, n.Name)
			}
		}
	}
}

// madeOf reports whether a computer's instance was made of a version.
func (w *world) madeOf(c *computer, version string) (is bool) {
	w.azure.View(func(v *azsim.View) {
		i, ok := v.Instance(c.ResourceID)
		is = ok && strings.EqualFold(i.Image, version)
	})
	return is
}

// createdAt is when a computer's instance was requested, by Azure's clock.
func (w *world) createdAt(c *computer) (at time.Time) {
	w.azure.View(func(v *azsim.View) {
		if vm, _ := v.Get(c.ResourceID).(*armcompute.VirtualMachineScaleSetVM); vm != nil && vm.Properties.TimeCreated != nil {
			at = *vm.Properties.TimeCreated
		}
	})
	return at
}

func stateOf(v *armcompute.GalleryImageVersion) string {
	if v.Properties == nil || v.Properties.ProvisioningState == nil {
		return ""
	}
	return string(*v.Properties.ProvisioningState)
}

// holder is the process that locks the pool, "" for none.
func (w *world) holder() (holder, lease string) {
	w.kube.Peek("leases", func(o runtime.Object) bool {
		l, _ := o.(*coordinationv1.Lease)
		if l != nil && l.Namespace == namespace && l.Spec.HolderIdentity != nil && l.Spec.RenewTime != nil && l.Spec.LeaseDurationSeconds != nil &&
			time.Now().Before(l.Spec.RenewTime.Add(time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second)) {
			holder, lease = *l.Spec.HolderIdentity, l.Name
		}
		return true
	})
	return holder, lease
}

func (w *world) checkModel(p *process, now model) {
	was := w.expected()
	code, text := p.code(), fmt.Sprint(p.err)
	if now.rest != was.rest {
		w.broken(4, "%s changed what of the model is not its own: %s, and was %s", p.name, now.rest, was.rest)
	}
	same := strings.EqualFold(now.image, was.image) && now.customData == was.customData && maps.Equal(now.extensions, was.extensions)
	nothing := p.capture.NothingToDo || p.rollback.NothingToDo
	touched := w.othersChose() && w.isTouched("model")
	switch {
	case touched && p.ask.PublishOnly:
	case p.ask.PublishOnly && !same:
		w.broken(20, "%s only publishes, and the model has %s, %v, and had %s, %v", p.name, now.image, now.extensions, was.image, was.extensions)
	case p.ask.PublishOnly && code == workflow.ExitDone:
		if v := w.versions()[low(p.capture.Version)]; !w.isTouched("versions") && (v == nil || stateOf(v) != plan.Succeeded) {
			w.broken(20, "%s reports %s as published, which is no version that succeeded", p.name, p.capture.Version)
		}
	case p.ask.PublishOnly:
	case touched && code == workflow.ExitFailed && !strings.EqualFold(now.image, was.image):
		w.broken(4, "%s ends with exit 1, and the model has %s, and others chose %s: %s", p.name, now.image, was.image, text)
	case touched:
	case code == workflow.ExitFailed && !same:
		w.broken(4, "%s ends with exit 1, and the model has %s, %v, and had %s, %v: %s", p.name, now.image, now.extensions, was.image, was.extensions, text)
	case code == workflow.ExitDone:
		version := p.capture.Version
		if p.ask.Do == "rollback" {
			version = p.rollback.To
		}
		if p.rollback.Original == nil && !fleet.ResourceID(now.image).Equal(version) && !strings.EqualFold(now.image, string(w.names.Definition)) {
			w.broken(4, "%s reports %s, and the model uses %s", p.name, version, now.image)
		}
		if p.ask.Do == "capture" && !p.ask.KeepExtensions && now.extensions["vmssCSE"] != "" {
			w.broken(4, "%s ends with exit 0, and vmssCSE is in the model", p.name)
		}
	}
	grown := was.capacity
	if code == workflow.ExitDone && p.ask.Do == "capture" {
		n, of := p.ask.Grow, low(p.capture.Version)
		if p.capture.Resumed { // with the options of the open capture
			n = int64(len(p.capture.NewNodes))
		}
		grown += max(0, n-w.grown[of]) // a wish is of a version, and comes true once
		w.locked(func() { w.grown[of] = max(n, w.grown[of]) })
	}
	// Where neighbours delete instances while it grows, they may race; where they deleted the
	// model's version, no instance can be made.
	raced := now.capacity > grown && w.isTouched("capacity") || now.capacity < grown && w.isTouched("versions")
	if now.capacity != grown && !raced && !(nothing && now.capacity == was.capacity) && (code == workflow.ExitDone || code == workflow.ExitFailed) {
		w.broken(8, "%s ends with exit %d and capacity %d, expected %d", p.name, code, now.capacity, grown)
	}
}

// published is when a version was, by Azure's clock.
func published(v *armcompute.GalleryImageVersion) (at time.Time) {
	if v == nil || v.Properties.PublishingProfile.PublishedDate == nil {
		return at
	}
	return *v.Properties.PublishingProfile.PublishedDate
}

// wanted is the version that a rollback has to go to, as everything was when the ask began; ""
// is the original.
func (w *world) wanted(to string) string {
	switch to {
	case "original":
		return ""
	case "":
		used, newest := published(w.before[w.imageBefore]), time.Time{}
		for id, v := range w.before {
			at, good := published(v), stateOf(v) == plan.Succeeded && v.Tags[fleet.TagRolledBack] == nil && v.Tags[fleet.TagPublished] == nil && v.Tags[fleet.TagNotLive] == nil && !isUnjudged(v)
			if good && at.After(newest) && (used.IsZero() || at.Before(used)) {
				to, newest = id, at
			}
		}
		return to
	}
	return low(w.names.Definition.Child("versions", to))
}

// checkRollback: a rollback goes to what was asked for. One to before the first capture leaves
// what was there, or exit 4 names the extensions that are lost. One to an earlier version or the
// original tags the version that the model used, and no other.
func (w *world) checkRollback(p *process, now model) {
	code, text := p.code(), fmt.Sprint(p.err)
	w.locked(func() { // what it resumed of an earlier ask goes back from where that began
		if p.ask.Do == "rollback" && p.rollback.Resumed && w.unfinished != nil && w.unfinished.at.Before(w.beginning.at) {
			w.beginning = *w.unfinished
		} else if p.ask.Do == "rollback" && p.rollback.Resumed && slices.ContainsFunc(w.story.Happen, func(e Event) bool { return e.What == "person rolls back" }) { // that of a person whose laptop slept
			w.imageBefore = low(string(p.rollback.From))
		}
		if p.ask.Do != "watch" && (code == workflow.ExitDone || code == workflow.ExitFailed) {
			w.unfinished = nil
		}
	})
	if p.ask.Do != "rollback" || code != workflow.ExitDone && code != workflow.ExitNeedsPerson || w.isTouched("model") {
		return
	}
	killed := slices.ContainsFunc(w.processes, (*process).isDead)
	again := killed && !p.rollback.Resumed // what was killed may have been undone first, or had ended
	to := w.wanted(p.ask.To)
	if code == workflow.ExitDone && to != "" && low(now.image) != to && (p.ask.To != "" || !again && !w.isTouched("versions")) {
		w.broken(4, "%s goes back to %q from %s, and the model uses %s, not %s", p.name, p.ask.To, w.imageBefore, now.image, to)
	}
	if p.rollback.Original != nil || to == "" && (p.ask.To != "" || !again) {
		if code == workflow.ExitDone && (now.image != firstImage || now.customData != firstCustomData) {
			w.broken(4, "%s reports the original model, which has %s and customData %q", p.name, now.image, now.customData)
		}
		for name, was := range w.original {
			if now.extensions[name] != was && (code == workflow.ExitDone || !strings.Contains(text, name)) {
				w.broken(14, "%s ends with exit %d, and extension %s is %q and was %q: %s", p.name, code, name, now.extensions[name], was, text)
			}
		}
	}
	if code != workflow.ExitDone || again || w.isTouched(w.imageBefore) { // which others were deleting as the definition's latest
		return
	}
	back := to == "" || published(w.before[to]).Before(published(w.before[w.imageBefore]))
	for id, v := range w.versions() {
		before := w.before[id]
		tagged := v.Tags[fleet.TagRolledBack] != nil
		if before != nil && before.Tags[fleet.TagRolledBack] == nil && tagged != (id == w.imageBefore && back) && !w.isTouched(id) {
			w.broken(6, "%s went back from %s, and %s is tagged as rolled back: %t", p.name, w.imageBefore, id, tagged)
		}
	}
}

// checkVersions: the model's version is whole and what the command was asked for, and none is
// gone that is in use or of the history.
func (w *world) checkVersions(p *process, now model) {
	versions, id, donor := w.versions(), low(now.image), w.donorOf(p.ask)
	v, was, sum := versions[id], w.before[id], sha256.Sum256([]byte(now.customData))
	of, copied, copies, custom := "", time.Time{}, []time.Time(nil), map[bool]string{false: firstCustomData, true: plan.NoopCustomData}[p.ask.Baked]
	w.locked(func() {
		if d := w.disks[azsim.Volume(id)]; d != nil {
			of, copied, copies = d.of, d.at, slices.Clone(w.copies[d.of])
		}
	})
	switch {
	case !strings.Contains(id, "/versions/") || w.isTouched(id):
	case v == nil || stateOf(v) != plan.Succeeded && stateOf(v) != "Updating":
		w.broken(4, "%s ended, and the model uses %s, which is no version that succeeded", p.name, id)
	case w.othersChose():
	case v.Tags[fleet.TagCustomData] != nil && !w.story.Pool.Forged && hex.EncodeToString(sum[:]) != *v.Tags[fleet.TagCustomData]:
		w.broken(5, "%s ended, and the model has customData %q, which is not that of its version's tag", p.name, now.customData)
	case p.code() != workflow.ExitDone:
	case v.Tags[fleet.TagRolledBack] != nil || was != nil && was.Tags[fleet.TagRolledBack] != nil && p.ask.To == "":
		w.broken(4, "%s ended, and the model uses %s, which was rolled back", p.name, id)
	case was != nil || p.ask.Do != "capture" || p.capture.NothingToDo:
	case of != donor:
		w.broken(5, "%s captured %s, and version %s is of the disk of %q", p.name, donor, id, of)
	case !dated(v, copied, copies):
		w.broken(5, "%s made version %s of a disk that was copied at %s, with tags %v", p.name, id, copied, tagsOf(v))
	case now.customData != custom || v.Tags[fleet.TagCustomData] == nil:
		w.broken(5, "%s ended, and the model has customData %q, and version %s tags %v", p.name, now.customData, id, tagsOf(v))
	}
	succeeded, good := 0, 0
	for _, v := range versions {
		if stateOf(v) == plan.Succeeded {
			succeeded++
			if v.Tags[fleet.TagRolledBack] == nil {
				good++
			}
		}
	}
	history := 3
	if p.ask.History > 0 {
		history = p.ask.History
	}
	for id, was := range w.before {
		if w.isTouched(id) {
			continue
		}
		if now := versions[id]; now != nil {
			for tag, value := range was.Tags { // a version of another capture has other tags
				judged := tag == fleet.TagCanary && *value == plan.Unjudged || tag == fleet.TagPublished || tag == fleet.TagNotLive
				if is := now.Tags[tag]; !judged && stateOf(was) == plan.Succeeded && tag != fleet.TagRolledBack && tag != fleet.TagWatch && (is == nil || *is != *value) {
					w.broken(6, "%s replaced complete version %s, or its tag %s", p.name, id, tag)
				}
			}
			continue
		}
		if p.ask.PublishOnly && !w.isTouched("versions") {
			w.broken(20, "%s only publishes, and version %s is gone", p.name, id)
		}
		if good < 2 && !w.isTouched("versions") {
			w.broken(6, "%s pruned %s, and %d versions are left that were not rolled back from", p.name, id, good)
		}
		if succeeded < history && !w.isTouched("versions") {
			w.broken(6, "%s pruned %s, and %d versions are left", p.name, id, succeeded)
		}
		w.azure.View(func(v *azsim.View) {
			for _, typ := range []string{memberType, machineType} {
				v.Each(typ, func(member string, _ any) {
					if i, ok := v.Instance(member); ok && strings.EqualFold(i.Image, id) {
						w.broken(6, "%s deleted %s, which %s uses", p.name, id, member)
					}
				})
			}
		})
	}
}

func tagsOf(v *armcompute.GalleryImageVersion) map[string]string {
	tags := map[string]string{}
	for k, value := range v.Tags {
		tags[k] = *value
	}
	return tags
}

// dated reports whether a version's tag is the time of its disk's copy, and its name the day of a
// capture that began before it: one that is older than 24 hours and has no snapshot is not resumed,
// but one that had a snapshot is, and may have to take another. A laptop may sleep for two hours
// between tag and copy. copies are when the donor's disk was copied.
func dated(v *armcompute.GalleryImageVersion, copied time.Time, copies []time.Time) bool {
	builtAt, err := time.Parse(fleet.BuiltAtLayout, tagsOf(v)[fleet.TagBuiltAt])
	began, nameErr := time.Parse("20060102", strings.ReplaceAll(*v.Name, ".", "")[:8])
	first := slices.ContainsFunc(copies, func(at time.Time) bool { return !at.Before(began) && !at.After(copied) && at.Sub(began) < 49*time.Hour })
	return err == nil && nameErr == nil && copied.Sub(builtAt).Abs() < 3*time.Hour && first
}

// checkOver looks once more when everything has ended: what others made is there, too.
func (w *world) checkOver() {
	if p := w.story.Pool; p.Foreign && w.versions()[low(w.oldest)] == nil && !w.isTouched(string(w.oldest)) {
		w.broken(6, "the version %s of others is gone", w.oldest)
	}
	for _, id := range w.foreign {
		w.azure.View(func(v *azsim.View) {
			if v.Get(string(id)) == nil {
				w.broken(3, "what others made as %s is gone", id)
			}
		})
	}
	w.checkStore()
	w.checkNeighbour()
	for i := range w.story.Pool.Instances {
		if id := w.instance(i); w.story.Pool.Volumes && !w.isTouched(string(id)) && !w.hasVolume(id) {
			w.broken(3, "the disk of others is not attached to %s", id)
		}
	}
	if len(w.processes) == 0 {
		return
	}
	p := w.processes[len(w.processes)-1]
	if c := p.code(); (c == workflow.ExitDone || c == workflow.ExitFailed) && !w.open {
		for _, l := range append(w.nodeLacks(p), w.leftovers(p)...) {
			w.broken(l.invariant, "an hour after the end %s %s", l.name, l.what)
		}
	}
}

// hasVolume reports whether the disk of others is attached to an instance.
func (w *world) hasVolume(id fleet.ResourceID) (is bool) {
	w.azure.View(func(v *azsim.View) {
		vm, _ := v.Get(string(id)).(*armcompute.VirtualMachineScaleSetVM)
		is = vm != nil && slices.ContainsFunc(vm.Properties.StorageProfile.DataDisks, func(d *armcompute.DataDisk) bool {
			return *d.Lun == 0 && d.ManagedDisk != nil && ofOthers(azsim.Volume(low(*d.ManagedDisk.ID)))
		})
	})
	return is
}
