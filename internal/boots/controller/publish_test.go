package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/fleet"
)

// A publisher is a reconciler on an API server that refuses the write whose number
// is fails, and whose Events do not expire.
type publisher struct {
	*reconciler
	writes, fails int
}

func newPublisher(t *testing.T, fails int) *publisher {
	t.Helper()
	p := &publisher{fails: fails}
	refuse := func() error {
		if p.writes++; p.writes == p.fails {
			return errors.New("the API server is restarting")
		}
		return nil
	}
	c := fake.NewClientBuilder().WithStatusSubresource(&corev1.Node{}).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if err := refuse(); err != nil {
				return err
			}
			return c.Create(ctx, o, options...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			if err := refuse(); err != nil {
				return err
			}
			return c.Update(ctx, o, options...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			if err := refuse(); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, o, patch, options...)
		},
	}).Build()
	p.reconciler = p.on(t, c)
	return p
}

// on is a controller that begins.
func (p *publisher) on(t *testing.T, c client.Client) *reconciler {
	t.Helper()
	now := func() time.Time { return noon.Add(time.Hour) }
	config := Config{Namespace: "default", Keep: time.Hour, MaxEvidence: 5, Now: now, Log: slog.New(slog.DiscardHandler), Budget: NewBudget(60, now)}
	f := NewFleet()
	m, err := newMeters(f, config)
	if err != nil {
		t.Fatal(err)
	}
	m.close() // it is not shown
	return &reconciler{config: config, client: c, fleet: f, members: newMembers(), evidence: newEvidence(c, config), meters: m}
}

func (p *publisher) counted(t *testing.T, outcome assess.State, source assess.Source) float64 {
	t.Helper()
	var m dto.Metric
	if err := p.meters.verdicts.WithLabelValues(somePool.Name(), string(outcome), string(source)).Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

func (p *publisher) node(t *testing.T) *corev1.Node {
	t.Helper()
	var n corev1.Node
	if err := p.client.Get(t.Context(), client.ObjectKey{Name: "pool1000003"}, &n); err != nil {
		t.Fatal(err)
	}
	return &n
}

// Whichever write fails, the next attempt publishes and counts what was left out, once.
func TestPublishAgainAfterAnError(t *testing.T) {
	bad := assess.Assess(aBoot(), nil, nil, assess.Assessment{}, noon.Add(time.Hour), assess.Deadlines{})
	good := assess.Assess(aBoot(), aNode(), nil, assess.Assessment{}, noon.Add(time.Hour), assess.Deadlines{})
	for _, c := range []struct {
		a      assess.Assessment
		writes int // of an attempt that succeeds, the Node's own creation among them
		events int
		status corev1.ConditionStatus
	}{{bad, 5, 1, corev1.ConditionFalse}, {good, 2, 0, corev1.ConditionTrue}} {
		for fails := 2; fails <= c.writes+1; fails++ {
			t.Run(fmt.Sprint(c.a.State, " write ", fails), func(t *testing.T) {
				p := newPublisher(t, fails)
				if err := p.client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "pool1000003"}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{SystemUUID: someVM}}}); err != nil {
					t.Fatal(err)
				}
				known := Known{Boot: aBoot()}
				if err := p.publish(t.Context(), known, p.node(t), c.a); (err != nil) != (fails <= c.writes) {
					t.Fatalf("of %d writes number %d was refused, and it ends with %v", p.writes, fails, err)
				}
				if n := p.counted(t, c.a.State, c.a.Source); fails <= c.writes && n != 0 {
					t.Errorf("counted %v times before it was published", n)
				}
				for range 2 {
					if err := p.publish(t.Context(), known, p.node(t), c.a); err != nil {
						t.Fatal(err)
					}
				}
				var events corev1.EventList
				if err := p.client.List(t.Context(), &events); err != nil {
					t.Fatal(err)
				}
				if len(events.Items) != c.events {
					t.Errorf("%d Events", len(events.Items))
				}
				if n := p.counted(t, c.a.State, c.a.Source); n != 1 {
					t.Errorf("counted %v times", n)
				}
				if cond := conditionOf(p.node(t)); cond == nil || cond.Status != c.status {
					t.Errorf("the condition: %+v", cond)
				} else if c.a.State.Bad() && !strings.Contains(cond.Message, " [unknown]") {
					t.Errorf("the condition does not say how sure it is: %q", cond.Message)
				}
				// Another controller takes over: all is published.
				p.reconciler = p.on(t, p.client)
				before := p.writes
				if err := p.publish(t.Context(), known, p.node(t), c.a); err != nil || p.writes != before || p.counted(t, c.a.State, c.a.Source) != 0 {
					t.Errorf("after a restart %d writes, and counted %v times (%v)", p.writes-before, p.counted(t, c.a.State, c.a.Source), err)
				}
			})
		}
	}
}

// A boot that failed is counted once, though its Node comes later; that it came up
// in the end is another outcome.
func TestPublishCountsABootOnce(t *testing.T) {
	p := newPublisher(t, 0)
	known := Known{Boot: aBoot()}
	p.fleet.took(fleet.KeyOf(somePool), []fleet.Boot{known.Boot})
	a := assess.Assess(known.Boot, nil, nil, assess.Assessment{}, noon.Add(time.Hour), assess.Deadlines{})
	if err := p.publish(t.Context(), known, nil, a); err != nil {
		t.Fatal(err)
	}
	if err := p.client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "pool1000003"}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{SystemUUID: someVM}}}); err != nil {
		t.Fatal(err)
	}
	// The Node is there, not Ready, which is another reason.
	b := assess.Assess(known.Boot, aNode(notReady), nil, a, noon.Add(time.Hour), assess.Deadlines{})
	b.Verdict.Reason = "CNINotReady"
	for _, a := range []assess.Assessment{a, b} {
		if err := p.publish(t.Context(), known, p.node(t), a); err != nil {
			t.Fatal(err)
		}
	}
	if n := p.counted(t, assess.TimedOut, assess.FromNode); n != 1 {
		t.Errorf("TimedOut counted %v times", n)
	}
	up := assess.Assess(known.Boot, aNode(), nil, b, noon.Add(time.Hour), assess.Deadlines{})
	for range 2 {
		if err := p.publish(t.Context(), known, p.node(t), up); err != nil {
			t.Fatal(err)
		}
	}
	if n := p.counted(t, assess.Succeeded, assess.FromNode); n != 1 {
		t.Errorf("Succeeded counted %v times", n)
	}
	// Its Node is deleted, and registered again.
	if err := p.client.Delete(t.Context(), p.node(t)); err != nil {
		t.Fatal(err)
	}
	if err := p.client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "pool1000003"}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{SystemUUID: someVM}}}); err != nil {
		t.Fatal(err)
	}
	if err := p.publish(t.Context(), known, p.node(t), up); err != nil {
		t.Fatal(err)
	}
	if n := p.counted(t, assess.Succeeded, assess.FromNode); n != 1 {
		t.Errorf("registered again, Succeeded is counted %v times", n)
	}
}

// A Node that was an earlier machine's has its condition; of the machine that is it
// now all is published and counted again.
func TestPublishOnTheNodeOfAnEarlierMachine(t *testing.T) {
	p := newPublisher(t, 0)
	known := Known{Boot: aBoot()}
	p.fleet.took(fleet.KeyOf(somePool), []fleet.Boot{known.Boot})
	before := metav1.NewTime(noon.Add(-240 * time.Hour))
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(2 * time.Minute))}
	if err := p.client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "pool1000003", CreationTimestamp: before}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{SystemUUID: someVM}, Conditions: []corev1.NodeCondition{
		ready, {Type: fleet.ConditionBootSucceeded, Status: corev1.ConditionTrue, Reason: "Succeeded", Message: "the node became Ready", LastTransitionTime: before, LastHeartbeatTime: before},
	}}}); err != nil {
		t.Fatal(err)
	}
	a := assess.Assess(known.Boot, viewOf(p.node(t)), nil, assess.Assessment{}, noon.Add(time.Hour), assess.Deadlines{})
	for range 2 {
		if err := p.publish(t.Context(), known, p.node(t), a); err != nil {
			t.Fatal(err)
		}
	}
	if c := conditionOf(p.node(t)); c == nil || c.LastTransitionTime.Time.Before(noon) || p.writes != 2 {
		t.Errorf("the condition after %d writes: %+v", p.writes, c)
	}
	if n := p.counted(t, assess.Succeeded, assess.FromNode); n != 1 {
		t.Errorf("counted %v times", n)
	}
}

// However long the API server was away, what is to be published is published within a minute.
func TestRetriesAreSoon(t *testing.T) {
	r, longest := retries(), time.Duration(0)
	for range 100 {
		longest = max(longest, r.When(request("x")))
	}
	if longest != time.Minute {
		t.Errorf("it waits up to %s", longest)
	}
}
