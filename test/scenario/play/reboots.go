package play

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/test/scenario"
)

// kuredLock is the annotation in which kured 1.23 keeps which node may reboot
// (pkg/daemonsetlock): a node's name, since when, and for how long in nanoseconds;
// 0 does not expire.
const kuredLock = "weave.works/kured-node-lock"

// ours stands before our holder in it.
const ours = "ortet/"

// A rebootLock is who may reboot, and until when; the zero time is for ever.
type rebootLock struct {
	holder string
	until  time.Time
}

// free reports whether anybody may take it.
func (l rebootLock) free() bool {
	return l.holder == "" || !l.until.IsZero() && !time.Now().Before(l.until)
}

func (l rebootLock) isOurs() bool { return !l.free() && strings.HasPrefix(l.holder, ours) }

// rebootLockRanOut reports whether kured's lock was ours until its time was over.
func (w *world) rebootLockRanOut() bool {
	lock, _ := w.rebootLockNow()
	return lock.free() && strings.HasPrefix(lock.holder, ours)
}

// rebootLockNow reads kured's lock; there is none where there is no kured.
func (w *world) rebootLockNow() (l rebootLock, kured bool) {
	d, kured := w.kube.Get("daemonsets", "kube-system", "kured").(*appsv1.DaemonSet)
	if !kured {
		return l, false
	}
	return readLock(d), true
}

func readLock(d *appsv1.DaemonSet) (l rebootLock) {
	var lock struct {
		NodeID  string
		Created time.Time
		TTL     time.Duration
	}
	if json.Unmarshal([]byte(d.Annotations[kuredLock]), &lock) != nil {
		return l
	}
	l.holder = lock.NodeID
	if lock.TTL > 0 {
		l.until = lock.Created.Add(lock.TTL)
	}
	return l
}

// kuredHidden reports whether the API server said more than once that there is no
// kured, or a clock jumped, by which a lock's time is reckoned.
func (w *world) kuredHidden(p *process) bool {
	denied := 0
	for _, e := range w.chooser.Happened() {
		if e.What == scenario.Error && len(e.Args) > 0 && e.Args[0] == "404" && strings.Contains(e.Request, "daemonsets") {
			denied++
		}
	}
	return denied > 1 || p.hasJumped()
}

// judgeReboots: while a copy is attached to a workbench kured reboots nobody, since a
// node that boots beside a copy of a node's disk may boot from it.
func (w *world) judgeReboots(p *process, when string) {
	lock, kured := w.rebootLockNow()
	if !kured || lock.isOurs() || w.kuredHidden(p) {
		return
	}
	w.broken("%s %s while kured may reboot it: its lock is held by %q until %s", p.name, when, lock.holder, lock.until.Format(time.TimeOnly))
}

// rebootsChange serves a change of kured's DaemonSet: its lock is taken where it is
// free, and given back once no copy is attached any more.
func (p *process) rebootsChange(r *http.Request, serve func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	w := p.w
	before, _ := w.rebootLockNow()
	answer, err := p.kubeChange(r, serve)
	after, kured := w.rebootLockNow()
	if kured && before != after {
		w.judgeRebootLock(p, before, after)
	}
	return answer, err
}

func (w *world) judgeRebootLock(p *process, before, after rebootLock) {
	if !before.free() && !strings.HasPrefix(before.holder, ours) && !p.hasJumped() {
		w.broken("%s takes kured's lock from %s, which reboots", p.name, before.holder)
	}
	if after.holder != "" && !strings.HasPrefix(after.holder, ours) {
		w.broken("%s gives kured's lock to %s", p.name, after.holder)
	}
	if rec, ok := w.openRecord(); after.isOurs() && (!ok || !rec.undoes("reboots")) {
		w.broken("%s takes kured's lock, and has not written down that it is to be given back", p.name)
	}
	if !before.isOurs() || after.isOurs() {
		return
	}
	w.mu.Lock()
	node := ""
	for _, c := range w.computers {
		if len(c.luns) > 0 && c.running {
			node = strings.ToLower(c.HostName)
		}
	}
	w.mu.Unlock()
	if node != "" && !w.byOthers(node) {
		w.broken("%s gives kured's lock back while a copy is attached to %s", p.name, node)
	}
}

// judgePod: kured's lock lasts for as long as the pod may work.
func (w *world) judgePod(p *process) {
	lock, kured := w.rebootLockNow()
	if !kured || !lock.isOurs() || lock.until.IsZero() || p.hasJumped() {
		return // judgeReboots says so
	}
	w.kube.Each("pods", func(o runtime.Object) bool {
		pod := o.(*corev1.Pod)
		d := pod.Spec.ActiveDeadlineSeconds
		isWork := pod.Namespace == namespace && pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded &&
			slices.Contains(pod.Spec.Containers[0].Command, "--lun")
		if isWork && d != nil && lock.until.Before(time.Now().Add(time.Duration(*d)*time.Second)) {
			w.broken("%s has pod %s work for up to %d s, and kured's lock runs out at %s", p.name, pod.Name, *d, lock.until.Format(time.TimeOnly))
		}
		return true
	})
}

// setUpReboot has kured reboot a node of another pool at the beginning.
func (w *world) setUpReboot() {
	const other = "pool2000000"
	if w.story.Pool.Rebooting <= 0 || !w.story.Pool.Kured {
		return
	}
	w.kube.Change("daemonsets", "kube-system", "kured", func(o runtime.Object) {
		text, err := json.Marshal(object{"nodeID": other, "metadata": object{"unschedulable": false}, "created": time.Now().UTC(), "TTL": 0})
		if err != nil {
			w.broken("%v", err)
		}
		o.(*appsv1.DaemonSet).Annotations = map[string]string{kuredLock: string(text)}
	})
	w.after(w.story.Pool.Rebooting, func() {
		w.kube.Change("daemonsets", "kube-system", "kured", func(o runtime.Object) {
			if d := o.(*appsv1.DaemonSet); readLock(d).holder == other {
				delete(d.Annotations, kuredLock)
			}
		})
	})
}
