package simulate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/watch"
	"github.com/ortet/ortet/internal/workflow"
)

// A claim is what a command's end says of the world: with its exit code, its result, which is the
// JSON that it prints, and its message. All claims are invariant 22.
type claim struct {
	says string
	when func(e *ending) bool
	// wrong is what of the world is not as the command says; "" if it is.
	wrong func(e *ending) string
}

// An ending is how a command ended, with the world at that time.
type ending struct {
	w        *world
	p        *process
	do       string
	code     int
	said     string // result as JSON, and message
	message  string // notes and message: what a person reads who asks for a table
	left     []string
	now      model
	id       string // lower-case, of the version that the model uses
	versions map[string]*armcompute.GalleryImageVersion
	others   bool // wrote the model's image last
	alone    bool // no other command ran beside it
}

func (w *world) ending(p *process, alone bool) *ending {
	e := &ending{w: w, p: p, do: p.ask.Do, code: p.code(), now: w.modelNow(), versions: w.versions(), others: w.othersChose(), alone: alone}
	e.id = w.used(e.versions)
	message := ""
	if p.err != nil {
		message = p.err.Error()
	}
	text, _ := json.Marshal([]any{p.capture, p.rollback, p.watch, p.renew}) // of strings, numbers and times
	notes := slices.Concat(p.capture.Notes, p.rollback.Notes, p.watch.Notes, p.renew.Notes)
	e.said, e.message = string(text)+message, strings.Join(append(notes, p.watch.Why, message), "\n")
	if out := new(workflow.Outcome); errors.As(p.err, &out) && out.Exit == workflow.ExitNeedsPerson {
		e.left = out.Left
	}
	return e
}

func (e *ending) done() bool { return e.code == workflow.ExitDone }

// version is one by its id, nil where it is gone or others changed it.
func (e *ending) version(id fleet.ResourceID) *armcompute.GalleryImageVersion {
	if e.w.isTouched(string(id)) {
		return nil
	}
	return e.versions[low(id)]
}

var claims = []claim{
	{"any: times in tags are by Azure's clock",
		func(e *ending) bool { return e.alone && !e.w.open },
		func(e *ending) string {
			for id, v := range e.versions {
				was := tagsOf(orEmpty(e.w.before[id]))
				for _, tag := range []string{fleet.TagRolledBack, fleet.TagProven, fleet.TagCanary, fleet.TagWatch} {
					value := tagsOf(v)[tag]
					text, _, _ := strings.Cut(value, " ")
					at, err := time.Parse(time.RFC3339, text)
					if err == nil && value != was[tag] && !e.w.isTouched(id) && at.After(time.Now().Add(time.Minute)) { // an earlier one may be of a command that this one resumes
						return id + " has the tag " + tag + ": " + value
					}
				}
			}
			return ""
		}},
	{"capture 0: nothing that keeps a version from going live is tagged on the one that the model names",
		func(e *ending) bool { return e.do == "capture" && e.done() && !e.others && !e.p.ask.PublishOnly },
		func(e *ending) string {
			for tag, value := range tagsOf(orEmpty(e.version(fleet.ResourceID(e.id)))) {
				if slices.Contains([]string{fleet.TagRolledBack, fleet.TagQuarantine, fleet.TagPublished}, tag) {
					return e.id + " has the tag " + tag + ": " + value
				}
			}
			return ""
		}},
	{"capture: no version that it replaces in the model is newer",
		func(e *ending) bool { return e.do == "capture" && len(e.p.writes) > 0 },
		func(e *ending) string {
			for _, write := range e.p.writes {
				from, to := e.versions[low(write.from)], e.versions[low(write.to)]
				if to != nil && plan.Ours(tagsOf(orEmpty(from))) && published(from).After(published(to)) {
					return "it replaced " + write.from + " by " + write.to
				}
			}
			return ""
		}},
	{"capture 0: a node of the version is the one that it says",
		func(e *ending) bool { return e.do == "capture" && e.done() && e.p.capture.BuiltFrom != "" },
		func(e *ending) string {
			v := e.version(e.p.capture.Version)
			if of := tagsOf(orEmpty(v))[fleet.TagBuiltFrom]; v != nil && of != e.p.capture.BuiltFrom {
				return fmt.Sprintf("it says %s, and the tag %s", e.p.capture.BuiltFrom, of)
			}
			return ""
		}},
	{"capture: what it says is deleted is gone, and what it says is kept is there",
		func(e *ending) bool { return e.do == "capture" && e.alone },
		func(e *ending) string {
			for id := range e.versions {
				name := fleet.ResourceID(id).Name()
				if slices.ContainsFunc(e.p.capture.Pruned, func(s string) bool { return strings.Contains(s, name) }) && stateOf(e.versions[id]) != "Deleting" {
					return name + " is there"
				}
			}
			for id := range e.w.before {
				name := fleet.ResourceID(id).Name()
				if slices.ContainsFunc(e.p.capture.Kept, func(s string) bool { return strings.Contains(s, name) }) && e.versions[id] == nil && !e.w.isTouched(id) {
					return name + " is gone"
				}
			}
			return ""
		}},
	{"capture 0: each version that it deleted is named",
		func(e *ending) bool {
			return e.do == "capture" && e.done() && e.alone && !e.p.capture.Resumed && !e.w.open
		},
		func(e *ending) string {
			for _, id := range e.p.deleted {
				if name := fleet.ResourceID(id).Name(); e.w.before[id] != nil && e.versions[id] == nil && !strings.Contains(e.said, name) {
					return name + " is gone"
				}
			}
			return ""
		}},
	{"capture 0: new nodes were made, or each that was not is named",
		func(e *ending) bool {
			return e.do == "capture" && e.done() && e.p.ask.Grow > 0 && !e.p.capture.NothingToDo
		},
		func(e *ending) string {
			all, isNew := int64(len(e.p.capture.NewNodes)) >= e.p.ask.Grow, map[string]bool{} // another one is an autoscaler's, or beyond the capacity
			for _, n := range e.p.capture.NewNodes {
				isNew[n.Instance] = true
			}
			for _, i := range e.w.instancesOf(e.p.capture.Version) {
				if i.state == "Failed" && (isNew[i.name] || !all) && !strings.Contains(e.said, i.name) && !e.w.isTouched(i.id) {
					return i.name + " is Failed"
				}
			}
			return ""
		}},
	{"capture: a new node that it names was not there before, or an earlier capture named it",
		func(e *ending) bool { return e.do == "capture" && e.alone && len(e.p.capture.NewNodes) > 0 },
		func(e *ending) string {
			named := map[string]bool{}
			for _, p := range e.w.processes {
				for _, n := range p.capture.NewNodes {
					named[n.Instance] = named[n.Instance] || p != e.p
				}
			}
			for _, n := range e.p.capture.NewNodes {
				if e.w.hadThere[n.Instance] && !named[n.Instance] && !e.p.capture.Resumed {
					return n.Instance + " was there"
				}
			}
			return ""
		}},
	{"capture and rollback, closed: ortet status says how it ended",
		func(e *ending) bool {
			return e.do != "watch" && e.do != "rollout" && e.alone && (e.done() && !e.p.capture.NothingToDo && !e.p.rollback.NothingToDo || e.code == workflow.ExitFailed)
		},
		func(e *ending) string {
			j := e.w.journal()
			if e.p.capture.Capture == "" && e.do == "capture" || j != nil && j.Ended != nil && j.Ended.Exit == e.code {
				return ""
			}
			return fmt.Sprintf("it shows %+v", j)
		}},
	{"5 at a step: the same command resumes",
		func(e *ending) bool {
			out := new(workflow.Outcome)
			return e.do != "watch" && e.do != "rollout" && e.alone && e.code == workflow.ExitInterrupted && errors.As(e.p.err, &out) && out.Step != "" && out.Step != "preflight"
		},
		func(e *ending) string {
			if j := e.w.journal(); j == nil || j.Ended != nil {
				return fmt.Sprintf("ortet status shows %+v", j)
			}
			return ""
		}},
	{"4: each line of what is left is true", func(e *ending) bool { return len(e.left) > 0 && e.alone }, (*ending).untrue},
	{"4: the message names what is left, or the step that failed", func(e *ending) bool { return e.code == workflow.ExitNeedsPerson },
		func(e *ending) string {
			if len(e.left) == 0 && !strings.Contains(e.message, "step ") {
				return "nothing is named"
			}
			return ""
		}},
	{"rollback 0: the image that it says it left is the one that it replaced",
		func(e *ending) bool {
			return e.do == "rollback" && e.done() && len(e.p.writes) > 0 && e.p.rollback.From != ""
		},
		func(e *ending) string {
			if from := e.p.writes[0].from; !e.p.rollback.From.Equal(fleet.ResourceID(from)) && low(from) != low(e.w.names.Definition) {
				return "it replaced " + from
			}
			return ""
		}},
	{"rollback 0: what it says it restored is in the model, and nothing to do wrote nothing",
		func(e *ending) bool { return e.do == "rollback" && e.done() && e.alone },
		func(e *ending) string {
			for _, name := range e.p.rollback.Restored {
				if e.now.extensions[name] == "" {
					return "extension " + name + " is not there"
				}
			}
			if e.p.rollback.NothingToDo && len(e.p.writes) > 0 {
				return fmt.Sprintf("it wrote %v", e.p.writes)
			}
			return ""
		}},
	{"rollback 0 without --to: the version was live before",
		func(e *ending) bool {
			return e.do == "rollback" && e.done() && e.p.ask.To == "" && e.p.rollback.To != ""
		},
		func(e *ending) string {
			if to := low(e.p.rollback.To); !e.w.wasLive[to] {
				return to + " never was"
			}
			return ""
		}},
	{"watch: the exit code is that of its outcome",
		func(e *ending) bool { return e.do == "watch" },
		func(e *ending) string {
			codes := map[watch.Outcome][]int{watch.Proven: {0}, watch.Unproven: {0}, watch.StoodDown: {0, 4}, watch.TakenBack: {1, 4, 5}, "": {1, 3, 4, 5}}[e.p.watch.Outcome]
			if !slices.Contains(codes, e.code) {
				return fmt.Sprintf("outcome %q", e.p.watch.Outcome)
			}
			return ""
		}},
	{"watch 0: what is live is not quarantined",
		func(e *ending) bool { return e.do == "watch" && e.done() && !e.others },
		func(e *ending) string {
			if v := e.version(fleet.ResourceID(e.id)); v != nil && v.Tags[fleet.TagQuarantine] != nil && !slices.ContainsFunc(e.w.story.Asks, func(a Ask) bool { return a.Do == "forge" || a.To != "" }) {
				return e.id + ": " + *v.Tags[fleet.TagQuarantine]
			}
			return ""
		}},
	{"watch stood down: nothing was taken back",
		func(e *ending) bool { return e.do == "watch" && e.p.watch.Outcome == watch.StoodDown && e.done() },
		func(e *ending) string {
			// What is written after its last read of the model it cannot know.
			id, at := low(e.p.watch.Version), time.Time{}
			e.w.locked(func() { at = e.w.takenBack[id] })
			if at.After(e.p.began) && at.Before(e.p.read) && !e.w.isTouched(id) {
				return "another watch took " + id + " back"
			}
			return ""
		}},
	{"watch proven: the model names it, and a node of it passed",
		func(e *ending) bool {
			return e.do == "watch" && e.p.watch.Outcome == watch.Proven && e.alone && !e.others && !strings.Contains(e.p.watch.Why, "as was decided")
		},
		func(e *ending) string {
			passed := 0
			for _, f := range e.p.watch.Nodes {
				if f.Result == "passed" {
					passed++
				}
			}
			switch {
			case low(e.p.watch.Version) != e.id:
				return "the model uses " + e.id
			case passed == 0:
				return "no node passed"
			}
			return ""
		}},
	{"watch taken back: the model does not name the version",
		func(e *ending) bool {
			return e.do == "watch" && e.p.watch.Outcome == watch.TakenBack && !e.others && e.alone
		},
		func(e *ending) string {
			if low(e.p.watch.Version) == e.id {
				return "it does"
			}
			return ""
		}},
	{"watch: a take-back replaces the version that is watched, and what others chose stays",
		func(e *ending) bool { return e.do == "watch" && len(e.p.writes) > 0 },
		func(e *ending) string {
			for _, write := range e.p.writes {
				if from := low(write.from); from != low(e.p.watch.Version) && from != low(e.w.names.Definition) {
					return "it replaced " + write.from + " by " + write.to
				}
			}
			return ""
		}},
	{"any: what others cordoned stays so, and only what a command cordoned is named to be uncordoned",
		func(*ending) bool { return true },
		func(e *ending) string {
			aside, ours := map[string]types.UID{}, map[string]bool{}
			e.w.locked(func() { maps.Copy(aside, e.w.aside) })
			for _, p := range e.w.processes {
				for _, name := range p.cordoned {
					ours[name] = true
				}
			}
			for _, name := range slices.Sorted(maps.Keys(aside)) {
				if n := e.w.kube.Node(name); n != nil && n.UID == aside[name] && !n.Spec.Unschedulable {
					return name + " is schedulable, which others cordoned"
				}
			}
			for _, line := range e.left {
				_, names, _ := strings.Cut(line, "once they are good: kubectl uncordon ")
				for _, name := range strings.Fields(names) {
					if !ours[name] {
						return "no command cordoned " + name + ", and it says: " + line
					}
				}
			}
			return ""
		}},
	{"0, of what sets the model: the version that it names exists",
		func(e *ending) bool {
			return e.done() && !e.p.ask.PublishOnly && strings.HasPrefix(low(e.now.image), low(e.w.names.Definition)+"/versions/")
		},
		func(e *ending) string {
			at := time.Time{}
			e.w.locked(func() { at = e.w.gone[low(e.now.image)] })
			if e.versions[low(e.now.image)] == nil && !at.IsZero() && at.Before(e.p.read) {
				return fmt.Sprintf("%s was deleted at %s", e.now.image, at.Format(time.TimeOnly))
			}
			return ""
		}},
	{"watch proven before its time is over: by as many nodes as were asked for when it began",
		func(e *ending) bool {
			return e.do == "watch" && e.p.watch.Outcome == watch.Proven && !strings.Contains(e.p.watch.Why, "as was decided")
		},
		func(e *ending) string {
			words, passed := strings.Fields(tagsOf(orEmpty(e.version(e.p.watch.Version)))[fleet.TagWatch]), 0
			if len(words) != 3 {
				return ""
			}
			for _, f := range e.p.watch.Nodes {
				if f.Result == "passed" {
					passed++
				}
			}
			within, _ := time.ParseDuration(words[1])
			if need, _ := strconv.Atoi(words[2]); passed < need && time.Now().Before(e.p.watch.Since.Add(within)) {
				return fmt.Sprintf("%d of %d passed", passed, need)
			}
			return ""
		}},
	{"watch taken back: an instance that has no Node to cordon is named",
		func(e *ending) bool {
			return e.do == "watch" && e.p.watch.Outcome == watch.TakenBack && e.code != workflow.ExitInterrupted && cmp.Or(e.p.ask.Bad, watch.Cordon) == watch.Cordon
		},
		func(e *ending) string {
			for _, c := range e.w.badComputers() {
				made := e.w.createdAt(c)
				if e.w.kube.Node(c.node()) == nil && !made.IsZero() && made.Before(e.p.read) && e.w.madeOf(c, low(e.p.watch.Version)) &&
					!e.w.isTouched(c.node()) && !strings.Contains(e.message, c.Name) {
					return c.Name + " is there"
				}
			}
			return ""
		}},
	{"watch: a node that it cordoned, and that is schedulable again, has no mark",
		func(e *ending) bool { return e.do == "watch" && e.code != workflow.ExitInterrupted },
		func(e *ending) string {
			for _, name := range e.p.cordoned {
				if n := e.w.kube.Node(name); n != nil && !n.Spec.Unschedulable && n.Annotations[fleet.AnnotationCordoned] != "" {
					return name + " is marked as cordoned for " + n.Annotations[fleet.AnnotationCordoned]
				}
			}
			return ""
		}},
	{"watch that has ended: no tag has the next one repeat it, and none says that the version was never live",
		func(e *ending) bool { return e.do == "watch" && e.alone && e.p.watch.Outcome != "" },
		func(e *ending) string {
			tags := tagsOf(orEmpty(e.version(e.p.watch.Version)))
			switch finished := e.p.watch.Outcome == watch.TakenBack && e.code == workflow.ExitFailed; {
			case finished && tags[fleet.TagWatch] != "":
				return "it has the tag of a watch: " + tags[fleet.TagWatch]
			case e.p.watch.Outcome != watch.StoodDown && tags[fleet.TagNotLive] != "":
				return "it is tagged as never live: " + tags[fleet.TagNotLive]
			}
			return ""
		}},
	{"watch stood down with 4: others set the model's image since it began, or deleted the version",
		func(e *ending) bool {
			_, there := e.w.versions()[low(e.p.watch.Version)]
			return e.do == "watch" && e.p.watch.Outcome == watch.StoodDown && e.code == workflow.ExitNeedsPerson && there
		},
		func(e *ending) string {
			by, at := "", time.Time{}
			e.w.locked(func() { by, at = e.w.chosenBy, e.w.chosenAt })
			if by == e.p.name || at.Before(e.p.began) {
				return fmt.Sprintf("%s set it at %s", by, at.Format(time.TimeOnly))
			}
			return ""
		}},
	{"watch: each node that it cordoned is schedulable again, gone, or named with why in an Event",
		func(e *ending) bool {
			return e.do == "watch" && e.code != workflow.ExitInterrupted && len(e.p.cordoned) > 0
		},
		func(e *ending) string {
			for _, name := range e.p.cordoned {
				n := e.w.kube.Node(name)
				switch {
				case n == nil || !n.Spec.Unschedulable || e.w.isTouched(name):
				case !strings.Contains(e.said, name):
					return name + " is cordoned"
				case !e.w.eventsMeet() && !e.w.hasEvent(name, "BadImage"):
					return name + " has no Event BadImage"
				}
			}
			return ""
		}},
	{"capture 0: Events of the donor say that it was taken and given back",
		func(e *ending) bool {
			return e.do == "capture" && e.done() && e.alone && !e.p.capture.NothingToDo && !e.p.capture.Resumed && !e.p.ask.Online && !e.w.eventsMeet() && !e.p.unaware &&
				e.w.stops[e.w.nodeName(e.p.ask.Node)] == e.p.name
		},
		func(e *ending) string {
			for _, reason := range []string{"CaptureBegun", "CaptureGaveBack"} {
				if name := e.w.nodeName(e.p.ask.Node); !e.w.hasEvent(name, reason) && !e.w.isTouched(name) {
					return name + " has no Event " + reason
				}
			}
			return ""
		}},
}

func orEmpty(v *armcompute.GalleryImageVersion) *armcompute.GalleryImageVersion {
	if v == nil {
		return &armcompute.GalleryImageVersion{}
	}
	return v
}

// checkClaims compares what a command said with the world.
func (w *world) checkClaims(p *process, alone bool) {
	e := w.ending(p, alone)
	for _, c := range claims {
		if !c.when(e) {
			continue
		}
		if wrong := c.wrong(e); wrong != "" {
			w.broken(22, "%s ends with exit %d: %s; %s: %v", p.name, e.code, c.says, wrong, p.err)
		}
	}
}

// untrue is a line of what is left that is not so.
func (e *ending) untrue() string {
	donor := e.w.nodeName(e.p.ask.Node)
	node, c := e.w.kube.Node(donor), e.w.computerOf(donor)
	gone := func(id fleet.ResourceID) (is bool) {
		e.w.azure.View(func(v *azsim.View) { is = v.Get(string(id)) == nil })
		return is
	}
	lines := map[string]func() bool{ // reports that a line which begins so is wrong
		"uncordon is not done":                                    func() bool { return node != nil && !node.Spec.Unschedulable },
		"start is not done":                                       func() bool { return c != nil && e.w.isReady(c) },
		"delete-snapshot is not done":                             func() bool { return gone(e.w.names.Snapshot) },
		"delete-generalized-snapshot is not done":                 func() bool { return gone(e.w.names.Generalized) },
		"delete-work-disk is not done":                            func() bool { return gone(e.w.names.WorkDisk) },
		"delete-canary is not done":                               func() bool { return gone(fleet.CanaryOf(e.w.pool)) },
		"detach is not done":                                      func() bool { return e.w.workbench() == nil },
		"release-reboots is not done":                             func() bool { return !ownLock(e.w.kuredHolder()) },
		"the model still names " + e.p.watch.Version.Name() + ",": func() bool { return !e.others && e.id != low(e.p.watch.Version) },
	}
	for _, line := range e.left {
		// How it is now, the process could not know; nor when an operation ends that it says is under way.
		unread := strings.Contains(line, "connection refused") || strings.Contains(line, ": not done within ") && strings.Contains(line, ": Azure: ")
		for begins, wrong := range lines {
			if !unread && strings.HasPrefix(line, begins) && wrong() && !e.w.isTouched(donor) {
				return line
			}
		}
	}
	return ""
}

// A modelWrite is a change of the model's image.
type modelWrite struct{ from, to string }

// othersChose reports whether others set the model's image last.
func (w *world) othersChose() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.chosenBy == "others"
}

// An instance is a member of the pool.
type instance struct {
	id, name, state string
	created         time.Time
}

// instancesOf are the pool's members that were made of a version; "" is any.
func (w *world) instancesOf(version fleet.ResourceID) (all []instance) {
	w.azure.View(func(v *azsim.View) {
		for _, typ := range []string{memberType, machineType} {
			v.Each(typ, func(id string, body any) {
				i, ok := v.Instance(id)
				vm, _ := body.(*armcompute.VirtualMachineScaleSetVM)
				if ok && vm != nil && vm.Name != nil && vm.Properties.ProvisioningState != nil && w.pool.Equal(fleet.ResourceID(i.ScaleSet)) && (version == "" || strings.EqualFold(i.Image, string(version))) {
					i := instance{id: id, name: *vm.Name, state: *vm.Properties.ProvisioningState}
					if at := vm.Properties.TimeCreated; at != nil {
						i.created = *at
					}
					all = append(all, i)
				}
			})
		}
	})
	return all
}

// eventsMeet reports whether an event of the story meets Kubernetes Events, which are not repeated.
func (w *world) eventsMeet() bool {
	return slices.ContainsFunc(w.story.Happen, func(e Event) bool {
		return strings.Contains(e.At, "/events") || strings.HasPrefix(e.What, "away") || strings.HasPrefix(e.What, "kill") || e.What == "interrupt"
	})
}

func (w *world) hasEvent(node, reason string) (has bool) {
	w.kube.Peek("events", func(o runtime.Object) bool {
		e, _ := o.(*corev1.Event)
		has = has || e != nil && e.InvolvedObject.Name == node && e.Reason == reason
		return !has
	})
	return has
}

// noteWrite notes what a process changes, and returns what compares it with what others chose.
func (w *world) noteWrite(p *process, req request, about string) func() {
	image, used := "", ""
	if req.name == patchModel {
		image, used = w.imageNow(), w.used(w.versions())
	}
	donor := w.donorOf(p.ask)
	if version := low(w.names.Definition.Child("versions", path.Base(about))); req.name == "azure PUT "+definition+"/versions/"+path.Base(about) && w.versions()[version] == nil {
		w.locked(func() { delete(w.grown, version) }) // nodes of a deleted one of this name were not made of it
	}
	node, isNode := strings.CutPrefix(about, "nodes/")
	before := w.kube.Node(node)
	w.checkTaken(p, req, node)
	return func() {
		after := w.kube.Node(node)
		now := w.imageNow()
		w.mu.Lock()
		defer w.mu.Unlock()
		switch method, what := methodOf(req.name), low(path.Base(about)); {
		case image != "" && !strings.EqualFold(image, now):
			p.writes = append(p.writes, modelWrite{image, now})
			w.chosenBy, w.chosenAt = p.name, time.Now()
			w.wasLive[low(now)] = true
			if p.ask.Do == "watch" {
				w.takenBack[used] = time.Now()
			}
		case isNode && before != nil && after != nil && !before.Spec.Unschedulable && after.Spec.Unschedulable:
			p.cordoned = append(p.cordoned, node)
		case method == http.MethodDelete && strings.Contains(about, "/versions/"):
			p.deleted = append(p.deleted, low(w.names.Definition.Child("versions", path.Base(about))))
		case what == "poweroff" || what == "deallocate":
			w.stops[donor] = p.name
		}
	}
}

func methodOf(name string) string {
	if words := strings.Fields(name); len(words) > 1 {
		return words[1]
	}
	return ""
}

// checkTaken: a watch cordons no node of a version that a person chose, for a minute at least.
func (w *world) checkTaken(p *process, req request, node string) {
	chosen := time.Time{}
	w.locked(func() {
		if w.chosenBy == "others" {
			chosen = w.chosenAt
		}
	})
	n := w.kube.Node(node)
	if p.ask.Do != "watch" || chosen.IsZero() || time.Since(chosen) < time.Minute || n == nil || n.Spec.Unschedulable || !strings.Contains(req.name, " PATCH ") {
		return
	}
	live := w.used(w.versions())
	c := w.computerOf(node)
	if slices.ContainsFunc(w.instancesOf(fleet.ResourceID(live)), func(i instance) bool { return c != nil && strings.EqualFold(i.id, c.ResourceID) }) {
		w.broken(22, "%s sends %s, a node of %s, which others chose at %s", p.name, req.name, live, chosen.Format(time.TimeOnly))
	}
}
