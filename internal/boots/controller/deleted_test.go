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
	"github.com/ortet/ortet/internal/boots/verdict"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// A deletion is a controller, the cloud, and an API server that may be away. What the
// cache has of Nodes may be older than what the API server has.
type deletion struct {
	*reconciler
	cache client.Client
	cloud *lastLogs
	now   time.Time
	away  bool
}

// lastLogs is an azure.Boots that counts what it is asked.
type lastLogs struct {
	text  string
	err   error
	reads int
}

func (*lastLogs) Pools(context.Context, fleet.ResourceID) ([]fleet.Pool, error) { return nil, nil }
func (*lastLogs) Boots(context.Context, fleet.Pool) ([]fleet.Boot, error)       { return nil, nil }
func (l *lastLogs) SerialLog(context.Context, fleet.ResourceID) ([]byte, error) {
	l.reads++
	return []byte(l.text), l.err
}

func newDeletion(t *testing.T) *deletion {
	t.Helper()
	d := &deletion{now: noon.Add(time.Minute), cloud: &lastLogs{}}
	refused := func() error {
		if d.away {
			return errors.New("connection refused")
		}
		return nil
	}
	api := fake.NewClientBuilder().WithStatusSubresource(&corev1.Node{}).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, options ...client.GetOption) error {
			return errors.Join(refused(), c.Get(ctx, k, o, options...))
		},
		List: func(ctx context.Context, c client.WithWatch, o client.ObjectList, options ...client.ListOption) error {
			return errors.Join(refused(), c.List(ctx, o, options...))
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if err := refused(); err != nil {
				return err
			}
			return c.Create(ctx, o, options...)
		},
	}).Build()
	d.cache = fake.NewClientBuilder().Build()
	now := func() time.Time { return d.now }
	config := Config{Namespace: "default", Keep: DefaultKeep, MaxEvidence: DefaultMaxEvidence, Now: now, Log: slog.New(slog.DiscardHandler), Budget: NewBudget(60, now)}
	f := NewFleet()
	m, err := newMeters(f, config)
	if err != nil {
		t.Fatal(err)
	}
	m.close() // it is not shown
	d.reconciler = &reconciler{config: config, client: api, nodes: d.cache, fleet: f, members: newMembers(), evidence: newEvidence(api, config), meters: m}
	d.poller = NewPoller(PollerConfig{Boots: d.cloud, Budget: config.Budget, Fleet: f, Now: now})
	return d
}

// list is what the cloud lists; without a change the instance is gone.
func (d *deletion) list(change ...func(*fleet.Boot)) {
	if len(change) == 0 {
		d.fleet.took(fleet.KeyOf(somePool), nil)
		return
	}
	d.fleet.took(fleet.KeyOf(somePool), []fleet.Boot{aBoot(change...)})
}

func exists(*fleet.Boot)           {}
func deleting(b *fleet.Boot)       { b.ProvisioningState = "Deleting" }
func noConsole(b *fleet.Boot)      { b.Console = false }
func (d *deletion) key() fleet.Key { return fleet.KeyOf(aBoot().Instance) }
func (d *deletion) wait(n int)     { d.now = d.now.Add(time.Duration(n) * time.Second) }

// poll reads serial logs for as long as one is due.
func (d *deletion) poll(t *testing.T) {
	t.Helper()
	for range 100 {
		task, _ := d.poller.next(d.now)
		if task == nil || !task.serial {
			return
		}
		task.do(t.Context())
	}
	t.Fatal("a serial log is read without end")
}

// settle reconciles and polls until nothing is left to do.
func (d *deletion) settle(t *testing.T) assess.Assessment {
	t.Helper()
	for range 40 {
		if _, err := d.Reconcile(t.Context(), request(d.key())); err != nil && !d.away {
			t.Fatal(err)
		}
		d.poll(t)
		d.wait(15)
	}
	known, _ := d.fleet.Get(d.key())
	return known.Previous
}

func (d *deletion) events(t *testing.T) []string {
	t.Helper()
	var events corev1.EventList
	if err := d.client.List(t.Context(), &events); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range events.Items {
		out = append(out, e.Reason+" "+e.Message)
	}
	return out
}

// kept is what is kept of the boot, nil where nothing is.
func (d *deletion) kept(t *testing.T) map[string]string {
	t.Helper()
	var list corev1.ConfigMapList
	if err := d.client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	for _, m := range list.Items {
		return m.Data
	}
	return nil
}

func (d *deletion) failures(t *testing.T, reason string) float64 {
	t.Helper()
	var m dto.Metric
	r, owner := reason, ""
	if r == "APIServerUnreachable" {
		owner = string(wire.OwnerNetwork)
	}
	if err := d.meters.failures.WithLabelValues(somePool.Name(), string(assess.Failed), r, owner, string(verdict.ConfidenceOf(r))).Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

const (
	lastWords   = "[   31.310441] cloud-init[812]: waiting for the mirror\r\n"
	unreachable = `cloud-init[9]: error execution phase preflight: couldn't validate the identity of the API Server: Get "https://10.0.0.4:6443": dial tcp 10.0.0.4:6443: i/o timeout` + "\r\n"
)

// A machine that is deleted before its Node was ever Ready has a verdict, an Event and
// evidence with the end of its serial log.
func TestDeletedBeforeReady(t *testing.T) {
	for name, c := range map[string]struct {
		console string // before the deletion
		after   string // read then
		gone    bool   // it was not seen while it was deleted
		change  func(*fleet.Boot)
		reason  string
		shows   string
	}{
		"resilient creation replaces it": {after: lastWords, change: func(b *fleet.Boot) { b.Overprovisioned, b.Recreated = true, true },
			reason: "DeletedBeforeReady", shows: "waiting for the mirror"},
		"deleting":                       {after: lastWords, reason: "DeletedBeforeReady", shows: "waiting for the mirror"},
		"the log has the cause":          {after: unreachable, reason: "APIServerUnreachable", shows: "10.0.0.4:6443"},
		"its log is gone by then":        {console: lastWords, reason: "DeletedBeforeReady", shows: "waiting for the mirror"},
		"it vanishes":                    {console: unreachable, gone: true, reason: "APIServerUnreachable", shows: "10.0.0.4:6443"},
		"it vanishes, nothing was read":  {gone: true, reason: "DeletedBeforeReady"},
		"without boot diagnostics":       {change: noConsole, reason: "DeletedBeforeReady"},
		"its own verdict is on its disk": {after: string(console(aVerdict(wire.Failed, 2*time.Minute))), reason: "BootstrapTokenUnknown", shows: "audit: y"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDeletion(t)
			if c.change == nil {
				c.change = exists
			}
			d.list(c.change)
			d.now, d.cloud.text = noon.Add(5*time.Minute), c.console
			for range 2 { // the second time with the log
				if _, err := d.Reconcile(t.Context(), request(d.key())); err != nil {
					t.Fatal(err)
				}
				d.poll(t)
			}
			if known, _ := d.fleet.Get(d.key()); known.Previous.State != assess.Booting {
				t.Fatalf("%s at first", known.Previous.State)
			}
			d.cloud.text = c.after
			if c.after == "" {
				d.cloud.err = &fleet.Error{Op: "read serial log", Kind: fleet.KindNotFound}
			}
			d.wait(120)
			if !c.gone {
				d.list(c.change, deleting)
				if a := d.settle(t); a.State != assess.Failed || a.Reason() != c.reason {
					t.Errorf("while it is deleted it is %s, %s: %s", a.State, a.Reason(), a.Message())
				}
			}
			d.list()
			d.settle(t)
			events := d.events(t)
			if len(events) != 1 || !strings.Contains(events[0], "BootFailed "+c.reason) {
				t.Errorf("Events: %q", events)
			}
			kept := d.kept(t)
			if kept == nil || !strings.Contains(kept[assess.KeyAssessment], `"`+c.reason+`"`) || c.shows != "" && !strings.Contains(kept[assess.KeyConsole], c.shows) {
				t.Errorf("evidence: %q", kept)
			}
			if _, ok := d.fleet.Get(d.key()); ok {
				t.Error("it is remembered for ever")
			}
			if c.reason != "BootstrapTokenUnknown" && d.failures(t, c.reason) > 1 {
				t.Errorf("counted %v times", d.failures(t, c.reason))
			}
		})
	}
}

// The deadline of 12 minutes comes before an autoscaler gives up; the deletion then is
// no second failure.
func TestDeletedAfterTheDeadline(t *testing.T) {
	d := newDeletion(t)
	d.list(exists)
	d.cloud.text = lastWords
	d.settle(t)
	d.now = noon.Add(12 * time.Minute)
	before := d.settle(t)
	if before.State != assess.TimedOut || !before.Since.Before(noon.Add(15*time.Minute)) {
		t.Fatalf("%s since %s", before.State, before.Since)
	}
	d.now = noon.Add(15 * time.Minute)
	d.list(deleting)
	if a := d.settle(t); a.State != assess.TimedOut || !a.Since.Equal(before.Since) {
		t.Errorf("%s since %s", a.State, a.Since)
	}
	d.list()
	d.settle(t)
	if events := d.events(t); len(events) != 1 || !strings.Contains(events[0], "BootTimedOut") {
		t.Errorf("Events: %q", events)
	}
}

// What was Ready, or may have been, and what somebody switched off, has not failed
// because it is deleted.
func TestDeletedIsNoFailure(t *testing.T) {
	node := func(ready bool, change ...func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "pool1000003", CreationTimestamp: metav1.NewTime(noon.Add(time.Minute))}}
		n.Status.NodeInfo.SystemUUID = someVM
		status, since := corev1.ConditionTrue, noon.Add(2*time.Minute)
		if !ready {
			status, since = corev1.ConditionUnknown, noon.Add(5*time.Minute)
		}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: "x", LastTransitionTime: metav1.NewTime(since)}}
		for _, c := range change {
			c(n)
		}
		return n
	}
	for name, c := range map[string]struct {
		before  func(*testing.T, *deletion) // it is deleted
		api     *corev1.Node                // as it is deleted
		surplus bool
	}{
		"it was Ready, and its Node is deleted": {before: func(t *testing.T, d *deletion) {
			n := node(true)
			if err := d.cache.Create(t.Context(), n); err != nil {
				t.Fatal(err)
			}
			d.settle(t)
			if err := d.cache.Delete(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		}},
		"it is Ready, and the cache does not know it": {api: node(true), before: func(t *testing.T, d *deletion) { d.settle(t) }},
		"it may have been Ready before it was looked at": {before: func(t *testing.T, d *deletion) {
			if err := d.cache.Create(t.Context(), node(false)); err != nil {
				t.Fatal(err)
			}
			d.settle(t)
		}},
		"it was switched off": {before: func(t *testing.T, d *deletion) {
			d.settle(t)
			d.list(func(b *fleet.Boot) { b.Power = fleet.PowerDeallocated })
			d.settle(t)
		}},
		"it may be surplus of its scale set": {surplus: true, before: func(t *testing.T, d *deletion) {
			d.cloud.text = unreachable
			d.settle(t)
		}},
		"it was never seen before": {before: func(*testing.T, *deletion) {}},
	} {
		for _, vanishes := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", vanishes ", vanishes), func(t *testing.T) {
				d := newDeletion(t)
				surplus := func(b *fleet.Boot) { b.Overprovisioned = c.surplus }
				d.list(surplus)
				if strings.HasPrefix(name, "it may have been") {
					d.now = noon.Add(6 * time.Minute)
				}
				c.before(t, d)
				if c.api != nil {
					n := c.api.DeepCopy()
					if err := d.client.Create(t.Context(), n); err != nil {
						t.Fatal(err)
					}
				}
				d.now = noon.Add(11*time.Minute + 30*time.Second)
				if !vanishes {
					d.list(surplus, deleting)
					if a := d.settle(t); a.State.Bad() {
						t.Errorf("%s, %s: %s", a.State, a.Reason(), a.Message())
					}
				}
				d.list()
				d.settle(t)
				if events := d.events(t); len(events) != 0 {
					t.Errorf("Events: %q", events)
				}
				if kept := d.kept(t); kept != nil {
					t.Errorf("evidence: %q", kept)
				}
			})
		}
	}
}

// The API server is away while a machine is deleted, and until it is gone: the verdict
// is published once when the API server is back.
func TestDeletedWhileTheAPIServerIsAway(t *testing.T) {
	d := newDeletion(t)
	d.list(exists)
	d.now, d.cloud.text = noon.Add(5*time.Minute), lastWords
	if _, err := d.Reconcile(t.Context(), request(d.key())); err != nil {
		t.Fatal(err)
	}
	d.away = true
	d.list(deleting)
	d.settle(t)
	d.list()
	d.settle(t)
	d.away = false
	if events := d.events(t); len(events) != 0 {
		t.Fatalf("Events before it is back: %q", events)
	}
	d.settle(t)
	if events := d.events(t); len(events) != 1 || !strings.Contains(events[0], "BootFailed DeletedBeforeReady") {
		t.Errorf("Events: %q", events)
	}
	if kept := d.kept(t); !strings.Contains(kept[assess.KeyConsole], "waiting for the mirror") {
		t.Errorf("evidence: %q", kept)
	}
	if n := d.failures(t, "DeletedBeforeReady"); n != 1 {
		t.Errorf("counted %v times", n)
	}
}

// The last look is one request, and few where Azure does not answer; what is kept of
// logs, and of machines that are gone, is bounded.
func TestLastLogIsBounded(t *testing.T) {
	long := strings.Repeat("[   31.310441] a line of a long serial log\r\n", 1<<20/45)
	for _, c := range []struct {
		err   error
		reads int
	}{{nil, 1}, {&fleet.Error{Op: "read serial log", Kind: fleet.KindNotFound}, 1}, {errors.New("no answer"), deletedReads}} {
		d := newDeletion(t)
		d.list(exists)
		d.now = noon.Add(3 * time.Minute)
		if _, err := d.Reconcile(t.Context(), request(d.key())); err != nil {
			t.Fatal(err)
		}
		d.cloud.text, d.cloud.err = long, c.err
		for i := range 5 { // its power state changes as it is deleted
			d.list(deleting, func(b *fleet.Boot) { b.Power = fleet.PowerState(fmt.Sprint(i)) })
			d.settle(t)
		}
		if d.cloud.reads < 1 || d.cloud.reads > c.reads {
			t.Errorf("%v: the log was read %d times", c.err, d.cloud.reads)
		}
		size := 0
		for k, text := range d.kept(t) {
			size += len(k) + len(text)
		}
		if size == 0 || size > 64<<10 {
			t.Errorf("evidence of %d bytes", size)
		}
	}
	if n := len(lastLog([]byte(long))); n > maxLastLog || n < maxLastLog/2 {
		t.Errorf("%d bytes are kept of a log that was judged", n)
	}
	f := NewFleet()
	var boots []fleet.Boot
	for i := range 2 * maxGone {
		boots = append(boots, aBoot(func(b *fleet.Boot) { b.Instance = somePool.Child("virtualMachines", fmt.Sprint(i)) }))
	}
	f.took(fleet.KeyOf(somePool), boots)
	for _, b := range boots {
		f.Decided(fleet.KeyOf(b.Instance), assess.Assessment{VMID: b.VMID, State: assess.Booting}, nil)
	}
	f.took(fleet.KeyOf(somePool), nil)
	if len(f.gone) != maxGone {
		t.Errorf("%d machines that are gone are kept", len(f.gone))
	}
}
