package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// donor is a Node of a donor in one moment, as the cache holds it.
func donor(t *testing.T, boot string, mark, ready bool) *corev1.Node {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "pool1000003", UID: "u", CreationTimestamp: metav1.NewTime(noon.Add(time.Minute))}}
	n.Status.NodeInfo.SystemUUID = someVM
	n.Status.NodeInfo.BootID = boot
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(noon.Add(20 * time.Minute))}}
	if ready {
		n.Status.Conditions[0].Status = corev1.ConditionTrue
	}
	if mark {
		n.Annotations = map[string]string{fleet.AnnotationCapture: "2026.11.22"}
	}
	trimmed, err := trim(n)
	if err != nil {
		t.Fatal(err)
	}
	kept, ok := trimmed.(*corev1.Node)
	if !ok {
		t.Fatalf("the cache holds %T", trimmed)
	}
	return kept
}

// raisedDonor is one that a capture added to the pool.
func raisedDonor(t *testing.T, boot string) *corev1.Node {
	t.Helper()
	n := donor(t, boot, false, true)
	n.Annotations = map[string]string{fleet.AnnotationFresh: "2026.11.22"}
	kept, err := trim(n)
	if err != nil {
		t.Fatal(err)
	}
	return kept.(*corev1.Node)
}

// A capture restarts its donor: the report of that boot is taken away, and neither
// kept nor counted, during the capture and after it. Boots before and after count.
func TestDonorsRestartIsNotCounted(t *testing.T) {
	for name, c := range map[string]struct {
		seen   []*corev1.Node // in this order, before the report is looked at
		marked bool           // the Node, as the report is taken
		kept   int
	}{
		"under the mark":                         {seen: []*corev1.Node{donor(t, "boot-z", false, true), donor(t, "boot-z", true, true)}, marked: true},
		"after it":                               {seen: []*corev1.Node{donor(t, "boot-z", false, true), donor(t, "boot-z", true, true), donor(t, "boot-z", true, false), donor(t, "boot-a", true, true), donor(t, "boot-a", false, true)}},
		"the controller began in the capture":    {seen: []*corev1.Node{donor(t, "boot-a", true, true), donor(t, "boot-a", false, true)}},
		"a donor that was raised, in its first":  {seen: []*corev1.Node{donor(t, "boot-a", false, true), raisedDonor(t, "boot-a")}},
		"of the boot before it":                  {seen: []*corev1.Node{donor(t, "boot-a", false, true), donor(t, "boot-a", true, true)}, marked: true, kept: 1},
		"a reboot later":                         {seen: []*corev1.Node{donor(t, "boot-y", false, true), donor(t, "boot-y", true, true), donor(t, "boot-z", true, true), donor(t, "boot-z", false, true), donor(t, "boot-a", false, true)}, kept: 1},
		"a node that was never captured":         {seen: []*corev1.Node{donor(t, "boot-z", false, true), donor(t, "boot-a", false, true)}, kept: 1},
		"a capture that did not restart it":      {seen: []*corev1.Node{donor(t, "boot-a", false, true), donor(t, "boot-a", true, true), donor(t, "boot-a", false, true)}, kept: 1},
		"a second capture, after the first boot": {seen: []*corev1.Node{donor(t, "boot-y", true, true), donor(t, "boot-z", true, true), donor(t, "boot-z", false, true), donor(t, "boot-z", true, true), donor(t, "boot-a", true, true), donor(t, "boot-a", false, true)}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newReporter(t)
			l.known()
			var old *corev1.Node
			for _, n := range c.seen {
				l.captures.see(old, n)
				old = n
			}
			l.arrives(t, encoded(t, bootOf(aBoot())), true)
			if c.marked {
				var n corev1.Node
				if err := l.client.Get(t.Context(), client.ObjectKey{Name: "pool1000003"}, &n); err != nil {
					t.Fatal(err)
				}
				n.Annotations[fleet.AnnotationCapture] = "2026.11.22"
				if err := l.client.Update(t.Context(), &n); err != nil {
					t.Fatal(err)
				}
			}
			l.now = noon.Add(30 * time.Minute)
			l.goes(t)
			l.has(t, c.kept, false, 0)
			if n := l.counted(t); n != uint64(c.kept) {
				t.Errorf("counted %d times", n)
			}
		})
	}
	// What it reports of that boot, if only with errors, is published and counted in
	// no metric.
	p := newPublisher(t, 0)
	known := Known{Boot: aBoot()}
	p.fleet.took(fleet.KeyOf(somePool), []fleet.Boot{known.Boot})
	p.captures.see(donor(t, "boot-z", false, true), donor(t, "boot-z", true, true))
	p.captures.see(donor(t, "boot-z", true, true), donor(t, "boot-a", true, true))
	node := donor(t, "boot-a", false, true)
	if err := p.client.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	a := assess.Assess(known.Boot, viewOf(node), console(aVerdict(wire.Degraded, time.Minute)), assess.Assessment{}, noon.Add(time.Hour), assess.Deadlines{})
	for range 2 {
		if err := p.publish(t.Context(), known, p.node(t), a); err != nil {
			t.Fatal(err)
		}
	}
	if n := p.counted(t, assess.Degraded, assess.FromConsole); a.State != assess.Degraded || n != 0 {
		t.Errorf("%s counted %v times", a.State, n)
	}
	if c := conditionOf(p.node(t)); c == nil || c.Reason != a.Reason() {
		t.Errorf("the condition: %+v", c)
	}
	p.captures.forget(node)
	if len(p.captures.of) != 0 {
		t.Error("a Node that is gone is remembered")
	}
}

// A donor that is down for its capture has not failed, also where the controller sees
// it for the first time then.
func TestAssessDonorOfACapture(t *testing.T) {
	view := viewOf(donor(t, "boot-a", true, false))
	view.ReadySince = noon.Add(5 * time.Minute) // within its time, so it may never have been Ready
	for _, previous := range []assess.Assessment{{}, assess.Assess(aBoot(func(b *fleet.Boot) { b.Power = fleet.PowerDeallocated }), view, nil, assess.Assessment{}, noon.Add(time.Hour), assess.Deadlines{})} {
		a := assess.Assess(aBoot(), view, nil, previous, noon.Add(time.Hour), assess.Deadlines{})
		if a.State.Final() || a.Verdict != nil {
			t.Errorf("started again after %q: %s: %s", previous.State, a.State, a.Message())
		}
		a = assess.Assess(aBoot(), view, nil, a, noon.Add(3*time.Hour), assess.Deadlines{})
		if a.State.Final() {
			t.Errorf("beyond the deadline of a boot: %s: %s", a.State, a.Message())
		}
		ready := viewOf(donor(t, "boot-b", true, true))
		if a = assess.Assess(aBoot(), ready, nil, a, noon.Add(4*time.Hour), assess.Deadlines{}); a.State != assess.Succeeded {
			t.Errorf("Ready again: %s: %s", a.State, a.Message())
		}
	}
}
