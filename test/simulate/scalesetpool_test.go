package simulate

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/ortet/ortet/api/v1alpha1"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/operator"
	"github.com/ortet/ortet/internal/operator/notify"
)

// objects are the ScaleSetPools, in memory.
type objects struct {
	mu     sync.Mutex
	all    map[string]v1alpha1.ScaleSetPool
	events []string
}

func (o *objects) List(context.Context) (all []v1alpha1.ScaleSetPool, _ error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.all {
		all = append(all, *p.DeepCopy())
	}
	return all, nil
}

func (o *objects) SaveStatus(_ context.Context, p *v1alpha1.ScaleSetPool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now, has := o.all[p.Name]; has {
		now.Status = *p.Status.DeepCopy()
		o.all[p.Name] = now
	}
	return nil
}

func (o *objects) Event(_ context.Context, p *v1alpha1.ScaleSetPool, _ bool, _, message string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, p.Name+": "+message)
}

func (o *objects) put(p v1alpha1.ScaleSetPool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p.Generation = o.all[p.Name].Generation + 1
	p.Status = o.all[p.Name].Status
	o.all[p.Name] = p
}

func (o *objects) delete(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.all, name)
}

func (o *objects) get(name string) v1alpha1.ScaleSetPool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all[name]
}

// An operating is a world with an operator.
type operating struct {
	ledger
	objects *objects
	reads   *counting
	metrics *prometheus.Registry
	led     int
	notify  *notify.Sender
	maxRuns int
	tick    time.Duration // from one look at the objects to the next; 0 is a second
}

// spec is that of the world's pool: captured each day, proven by one node.
func (w *operating) spec(change func(*v1alpha1.ScaleSetPoolSpec)) v1alpha1.ScaleSetPool {
	hour := func(h float64) metav1.Duration {
		return metav1.Duration{Duration: time.Duration(h * float64(time.Hour))}
	}
	p := v1alpha1.ScaleSetPool{ObjectMeta: metav1.ObjectMeta{Name: poolName, CreationTimestamp: metav1.NewTime(w.begin)}, Spec: v1alpha1.ScaleSetPoolSpec{
		ScaleSet: string(w.pool), Donors: v1alpha1.DonorsSpec{MinCandidates: 1}, Canary: v1alpha1.CanarySpec{},
		Capture: &v1alpha1.CaptureSpec{Schedule: "@daily", Window: hour(23.9), MaxImageAge: hour(24 * 14)},
		Watch:   &v1alpha1.WatchSpec{Nodes: 1, Duration: hour(1), RestoreLearned: []string{"customData", "vmssCSE", "monitor"}},
	}}
	if change != nil {
		change(&p.Spec)
	}
	return p
}

// withOperator plays a pool whose newest version is bad as named, with an object and what happens.
func withOperator(t *testing.T, pool Pool, f func(w *operating)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Seed: 7, Pool: pool})
		defer w.close()
		f(&operating{ledger: ledger{w, t}, objects: &objects{all: map[string]v1alpha1.ScaleSetPool{}}, reads: &counting{Transporter: w.azure.Transport()}})
		for _, v := range w.violations {
			t.Error(v)
		}
	})
}

// lead runs an operator until its leadership ends, and returns once its runs have.
func (w *operating) lead(ctx context.Context) {
	w.led++
	config, err := w.config(fmt.Sprintf("operator%d", w.led), w.reads, w.kube, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.leadAs(ctx, config)
}

func (w *operating) leadAs(ctx context.Context, config capture.Config) {
	w.metrics = prometheus.NewRegistry()
	figures, err := operator.NewMetrics(w.metrics)
	if err != nil {
		w.broken(0, "no metrics: %v", err)
	}
	of := func(ctx context.Context, keys []string) (nodes []fleet.Node, _ error) { // as an index of a cache has them
		for n, err := range config.Cluster.Nodes(ctx) {
			if err != nil {
				return nil, err
			}
			if slices.ContainsFunc(n.Claim().Keys(), func(key string) bool { return slices.Contains(keys, key) }) {
				nodes = append(nodes, n)
			}
		}
		return nodes, nil
	}
	r := operator.New(ctx, operator.Config{Capture: config, Objects: w.objects, NodesOf: of, Metrics: figures, Notify: w.notify, MaxRuns: w.maxRuns, Groups: []fleet.ResourceID{w.pool.Group()}})
	due := map[string]time.Time{}
	for ctx.Err() == nil {
		all, _ := w.objects.List(ctx)
		for name := range due {
			if !slices.ContainsFunc(all, func(p v1alpha1.ScaleSetPool) bool { return p.Name == name }) {
				all = append(all, v1alpha1.ScaleSetPool{ObjectMeta: metav1.ObjectMeta{Name: name}})
				delete(due, name)
			}
		}
		for _, p := range all {
			if time.Now().Before(due[p.Name]) {
				continue
			}
			result, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: p.Name}})
			if err != nil && ctx.Err() == nil {
				w.broken(0, "reconcile %s: %v", p.Name, err)
			}
			if due[p.Name] = time.Now().Add(result.RequeueAfter); result.RequeueAfter == 0 {
				delete(due, p.Name)
			}
		}
		_ = sleep(ctx, cmp.Or(w.tick, time.Second))
	}
	r.Wait()
}

// begin starts to lead, and returns what ends that.
func (w *operating) beginLead() (end func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan struct{})
	go func() { defer close(done); w.lead(ctx) }()
	return func() { cancel(); <-done }
}

// until waits until the object is as wanted.
func (w *operating) until(what string, within time.Duration, f func(s v1alpha1.ScaleSetPoolStatus) bool) {
	w.t.Helper()
	for end := time.Now().Add(within); !f(w.objects.get(poolName).Status); time.Sleep(time.Second) {
		if time.Now().After(end) {
			w.t.Fatalf("not %s within %s: %+v; events %q", what, within, w.objects.get(poolName).Status, w.objects.events)
		}
	}
}

func is(kind string, reason string) func(v1alpha1.ScaleSetPoolStatus) bool {
	return func(s v1alpha1.ScaleSetPoolStatus) bool {
		c := meta.FindStatusCondition(s.Conditions, kind)
		return c != nil && c.Reason == reason
	}
}

func runs(kind string) func(v1alpha1.ScaleSetPoolStatus) bool {
	return func(s v1alpha1.ScaleSetPoolStatus) bool { return s.Run != nil && s.Run.Kind == kind }
}

// A counting transport counts requests to Azure.
type counting struct {
	policy.Transporter
	n atomic.Int64
}

func (c *counting) Do(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.Transporter.Do(r)
}

// back fails unless the donor of the capture is in service as before.
func (w *operating) back(donor string) {
	w.t.Helper()
	config, err := w.config("reader", w.azure.Transport(), w.kube, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	n, err := config.Cluster.Node(w.ctx, donor)
	if err != nil || n.Unschedulable || n.Annotations[fleet.AnnotationCapture] != "" {
		w.t.Errorf("node %s: %v, cordoned %t, %v", donor, err, n.Unschedulable, n.Annotations)
	}
	all, err := config.Cloud.Instances(w.ctx, w.pool)
	for _, i := range all {
		if i.Power != fleet.PowerRunning || err != nil {
			w.t.Errorf("instance %s is %s, %v", i.Name, i.Power, err)
		}
	}
}

// donorOff waits until the donor of a capture is off, and returns its node.
func (w *operating) donorOff() string {
	w.t.Helper()
	for end := time.Now().Add(time.Hour); time.Now().Before(end); time.Sleep(time.Second) {
		if j := w.journal(); j != nil && slices.Contains(j.Running, "snapshot") {
			return j.Donor
		}
	}
	w.t.Fatal("no donor is off within an hour")
	return ""
}

// An operator captures, watches, and says so; with nothing to do it asks Azure less than once a minute.
func TestOperatorProves(t *testing.T) {
	withOperator(t, fresh, func(w *operating) {
		defer w.beginLead()()
		w.objects.put(w.spec(nil))
		w.until("capturing", time.Hour, runs("capture"))
		w.until("watched", 2*time.Hour, runs("watch"))
		w.scaleOut(2)
		w.until("proven", 2*time.Hour, is(v1alpha1.ConditionProven, v1alpha1.ReasonProven))
		s := w.objects.get(poolName).Status
		if !is(v1alpha1.ConditionFresh, v1alpha1.ReasonFresh)(s) || !is(v1alpha1.ConditionReady, v1alpha1.ReasonOperating)(s) || !is(v1alpha1.ConditionStalled, v1alpha1.ReasonGoing)(s) ||
			s.Image != w.live() || s.Nodes.Summary != "2/5" || s.LastRun == nil || s.LastRun.Kind != "watch" || s.LastRun.Exit != 0 || s.Versions[0].State != v1alpha1.VersionProven {
			t.Errorf("status %+v", s)
		}
		before := w.reads.n.Load()
		time.Sleep(10 * time.Hour)
		if n := w.reads.n.Load() - before; n > 600 || n == 0 {
			t.Errorf("%d requests to Azure in 10 hours of nothing to do, want 1 to 600", n)
		} else {
			t.Logf("%d requests to Azure in 10 hours of nothing to do", n)
		}
	})
}

// A version whose nodes do not join is taken back, and neither captured again the same day nor stalled.
func TestOperatorTakesBack(t *testing.T) {
	withOperator(t, with(func(p *Pool) { p.Bad = "no join" }), func(w *operating) {
		was := w.live()
		defer w.beginLead()()
		w.objects.put(w.spec(func(s *v1alpha1.ScaleSetPoolSpec) { s.Capture.MaxImageAge.Duration = 5 * day }))
		w.until("watched", 3*time.Hour, func(s v1alpha1.ScaleSetPoolStatus) bool { return runs("watch")(s) && w.live() != was })
		bad := w.live()
		w.scaleOut(2)
		w.until("taken back", 3*time.Hour, func(s v1alpha1.ScaleSetPoolStatus) bool {
			return s.LastRun != nil && s.LastRun.Kind == "watch" && s.LastRun.Exit == 1 && s.Image == was
		})
		s := w.objects.get(poolName).Status
		i := slices.IndexFunc(s.Versions, func(v v1alpha1.VersionStatus) bool { return v.Name == bad })
		if i < 0 || s.Versions[i].State != v1alpha1.VersionQuarantined || !strings.Contains(s.Versions[i].Reason, "join") || !is(v1alpha1.ConditionStalled, v1alpha1.ReasonGoing)(s) {
			t.Errorf("status %+v", s)
		}
		time.Sleep(4 * time.Hour)
		if w.wants(was, "hours later"); w.tag(bad, fleet.TagRolledBack) == "" {
			t.Error("the bad version is not tagged")
		}
	})
}

// Nodes of older images come to a proven one, and not before.
func TestOperatorRollsOut(t *testing.T) {
	withOperator(t, fresh, func(w *operating) {
		defer w.beginLead()()
		w.objects.put(w.spec(func(s *v1alpha1.ScaleSetPoolSpec) {
			s.Rollout = v1alpha1.RolloutSpec{Mode: v1alpha1.RolloutProven, MaxUnavailable: intstr.FromInt32(1)}
		}))
		w.until("watched", 3*time.Hour, runs("watch"))
		time.Sleep(20 * time.Minute)
		if s := w.objects.get(poolName).Status; s.Nodes.Current != 0 || !runs("watch")(s) {
			t.Errorf("before a node has proven the image: %+v", s)
		}
		w.scaleOut(1)
		w.until("rolling out", time.Hour, runs("rollout"))
		w.until("renewed", 3*time.Hour, func(s v1alpha1.ScaleSetPoolStatus) bool {
			return s.LastRun.Kind == "rollout" && s.LastRun.Exit == 0 && s.Nodes.Summary == "4/4" && s.Run == nil
		})
	})
}

// held lists who holds pools' Leases.
func (w *operating) held() (all []string) {
	w.kube.Peek("leases", func(o runtime.Object) bool {
		l, _ := o.(*coordinationv1.Lease)
		if l != nil && l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "" {
			all = append(all, *l.Spec.HolderIdentity)
		}
		return true
	})
	return all
}

// No more runs are begun at a time than may be: a pool waits for its turn.
func TestOperatorLimitsRuns(t *testing.T) {
	withOperator(t, Pool{Instances: 3, Neighbour: 3}, func(w *operating) {
		w.maxRuns = 1
		other := w.spec(func(s *v1alpha1.ScaleSetPoolSpec) { s.ScaleSet = string(w.otherPool) })
		other.Name = "other"
		w.objects.put(w.spec(nil))
		w.objects.put(other)
		defer w.beginLead()()
		queued := 0
		for end := time.Now().Add(2 * time.Hour); time.Now().Before(end); time.Sleep(time.Second) {
			a, b := w.objects.get(poolName).Status, w.objects.get("other").Status
			if held := w.held(); len(held) > 1 { // statuses are of two moments
				t.Fatalf("both are captured: %q", held)
			}
			if is(v1alpha1.ConditionProgressing, v1alpha1.ReasonQueued)(a) || is(v1alpha1.ConditionProgressing, v1alpha1.ReasonQueued)(b) {
				queued++
			}
			if runs("watch")(a) && runs("watch")(b) {
				break
			}
		}
		if a, b := w.objects.get(poolName).Status, w.objects.get("other").Status; queued < 60 || !runs("watch")(a) || !runs("watch")(b) {
			t.Errorf("queued for %d s; %+v, %+v", queued, a, b)
		}
		w.locked(func() { // the world has others capture its second pool, and looks at whose the copies are
			w.violations = slices.DeleteFunc(w.violations, func(v string) bool { return strings.HasPrefix(v, "invariant 12: a copy is attached") })
		})
	})
}

// What another process runs is mirrored, and not disturbed.
func TestOperatorWaitsForOthers(t *testing.T) {
	withOperator(t, fresh, func(w *operating) {
		p, err := w.start(Ask{Do: "capture"})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // it has the Lease
		defer w.beginLead()()
		w.objects.put(w.spec(nil))
		w.until("mirrored", time.Hour, func(s v1alpha1.ScaleSetPoolStatus) bool {
			return is(v1alpha1.ConditionProgressing, v1alpha1.ReasonHeld)(s) && s.Run != nil && s.Run.Kind == "capture" && strings.HasPrefix(s.Run.Holder, p.name)
		})
		if !w.await(p) || p.code() != 0 {
			t.Fatalf("the person's capture ends with %v", p.err)
		}
		if len(w.objects.events) > 0 {
			t.Errorf("beside it the operator ran %q", w.objects.events)
		}
		w.until("watched", time.Hour, runs("watch"))
		if name := w.live(); name != p.capture.Version.Name() {
			t.Errorf("the model names %s", name)
		}
	})
}

// An operator whose leadership ends returns the donor before it returns; the next goes on with the
// capture of the same donor.
func TestOperatorThatLeadsNoMore(t *testing.T) {
	withOperator(t, fresh, func(w *operating) {
		w.objects.put(w.spec(nil))
		end := w.beginLead()
		donor := w.donorOff()
		end()
		w.back(donor)
		name := w.journal().Name
		defer w.beginLead()()
		w.until("watched", 2*time.Hour, runs("watch"))
		if j := w.journal(); j.Name != name || j.Donor != donor || j.Ended == nil || j.Ended.Exit != 0 {
			t.Errorf("the journal has %+v, want %s ended", j, name)
		}
	})
}

// With capture.fresh no node in service is taken, also by the operator that goes on with the capture, though the object has it no more.
func TestOperatorRaisesDonors(t *testing.T) {
	withOperator(t, fresh, func(w *operating) {
		before := len(w.instancesOf(""))
		w.objects.put(w.spec(func(s *v1alpha1.ScaleSetPoolSpec) { s.Capture.Fresh = true }))
		end := w.beginLead()
		w.donorOff()
		end()
		name := w.journal().Name
		if w.back(w.nodeName(0)); len(w.instancesOf("")) != before+1 {
			t.Errorf("%d instances, want one more than %d", len(w.instancesOf("")), before)
		}
		w.objects.put(w.spec(nil))
		defer w.beginLead()()
		w.until("watched", 2*time.Hour, runs("watch"))
		j := w.journal()
		if j.Name != name || j.Ended == nil || j.Ended.Exit != 0 {
			t.Errorf("the journal has %+v, want %s ended", j, name)
		}
		if n := len(w.instancesOf("")); n != before || w.modelNow().capacity != int64(before) {
			t.Errorf("%d instances and a capacity of %d, want %d", n, w.modelNow().capacity, before)
		}
	})
}

// The run of a deleted object ends, the donor first, and leaves nothing open.
func TestOperatorObjectDeleted(t *testing.T) {
	withOperator(t, fresh, func(w *operating) {
		was := w.imageNow()
		w.objects.put(w.spec(nil))
		defer w.beginLead()()
		donor := w.donorOff()
		w.objects.delete(poolName)
		for end := time.Now().Add(time.Hour); w.journal().Ended == nil; time.Sleep(time.Second) {
			if time.Now().After(end) {
				t.Fatalf("an hour later the capture is open: %+v", w.journal())
			}
		}
		if w.back(donor); w.imageNow() != was || len(w.versions()) > 0 {
			t.Errorf("the model names %s, versions %v", w.imageNow(), w.versions())
		}
		w.objects.put(w.spec(func(s *v1alpha1.ScaleSetPoolSpec) { s.Suspend = true }))
		time.Sleep(time.Hour)
		if j := w.journal(); j.Ended == nil {
			t.Errorf("a suspended object begins %+v", j)
		}
	})
}

// What a killed process left is ended also where the object is suspended, and then nothing is begun.
func TestOperatorSuspended(t *testing.T) {
	withOperator(t, fresh, func(w *operating) {
		w.next(powerOff, "kill after")
		w.kill(Ask{Do: "capture"})
		w.objects.put(w.spec(func(s *v1alpha1.ScaleSetPoolSpec) { s.Suspend = true }))
		defer w.beginLead()()
		w.until("ended", 3*time.Hour, func(s v1alpha1.ScaleSetPoolStatus) bool {
			return is(v1alpha1.ConditionReady, v1alpha1.ReasonSuspended)(s) && s.LastRun != nil && s.LastRun.Kind == "capture" && s.Run == nil
		})
		w.back(w.nodeName(0))
		ended := w.journal()
		time.Sleep(48 * time.Hour)
		if j := w.journal(); ended.Ended == nil || j.Name != ended.Name {
			t.Errorf("ended %+v, then %+v", ended, j)
		}
	})
}

// Objects for which nothing is begun say why, and what to do.
func TestOperatorStalls(t *testing.T) {
	change := func(f func(*v1alpha1.ScaleSetPool)) func(*operating) v1alpha1.ScaleSetPool {
		return func(w *operating) v1alpha1.ScaleSetPool { p := w.spec(nil); f(&p); return p }
	}
	for name, c := range map[string]struct {
		object       func(*operating) v1alpha1.ScaleSetPool
		reason, says string
	}{
		"another group": {change(func(p *v1alpha1.ScaleSetPool) {
			p.Spec.ScaleSet = strings.Replace(p.Spec.ScaleSet, "/resourceGroups/", "/resourceGroups/x", 1)
		}), v1alpha1.ReasonOutside, "--resource-group"},
		"no such scale set": {change(func(p *v1alpha1.ScaleSetPool) { p.Spec.ScaleSet += "x" }), "PoolNotFound", "name a pool that exists"},
		"a schedule":        {change(func(p *v1alpha1.ScaleSetPool) { p.Spec.Capture.Schedule = "0 25 * * *" }), v1alpha1.ReasonScheduleInvalid, "spec.capture: the schedule"},
		"a window":          {change(func(p *v1alpha1.ScaleSetPool) { p.Spec.Capture.Window.Duration = 25 * time.Hour }), v1alpha1.ReasonScheduleInvalid, "at most 24h"},
		"a budget": {change(func(p *v1alpha1.ScaleSetPool) {
			p.Spec.Rollout = v1alpha1.RolloutSpec{Mode: v1alpha1.RolloutProven, MaxUnavailable: intstr.FromString("0%")}
		}), v1alpha1.ReasonScheduleInvalid, "would never allow anything"},
		"a newer object": {change(func(p *v1alpha1.ScaleSetPool) { p.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Hour)) }), v1alpha1.ReasonDuplicate, "ScaleSetPool older is older"},
	} {
		t.Run(name, func(t *testing.T) {
			withOperator(t, fresh, func(w *operating) {
				defer w.beginLead()()
				if c.reason == v1alpha1.ReasonDuplicate {
					older := w.spec(func(s *v1alpha1.ScaleSetPoolSpec) { s.Suspend = true })
					older.Name = "older"
					w.objects.put(older)
				}
				w.objects.put(c.object(w))
				w.until("stalled", time.Minute, is(v1alpha1.ConditionStalled, c.reason))
				if m := meta.FindStatusCondition(w.objects.get(poolName).Status.Conditions, v1alpha1.ConditionStalled); !strings.Contains(m.Message, c.says) || m.Status != metav1.ConditionTrue {
					t.Errorf("%+v, want %q", m, c.says)
				}
				time.Sleep(24 * time.Hour)
				if j := w.journal(); j != nil {
					t.Errorf("it began %+v", j)
				}
			})
		})
	}
}

// An object that only observes has figures of what a CronJob did, and nothing is begun, not even ended.
func TestOperatorObserves(t *testing.T) {
	withOperator(t, fresh, func(w *operating) {
		w.objects.put(w.spec(func(s *v1alpha1.ScaleSetPoolSpec) { s.Capture, s.Watch = nil, nil }))
		defer w.beginLead()()
		w.run(0, Ask{Do: "capture"})
		w.until("seen", 10*time.Minute, func(s v1alpha1.ScaleSetPoolStatus) bool {
			return s.Image == w.live() && s.LastRun != nil && s.LastRun.Exit == 0
		})
		figures, err := w.metrics.Gather()
		var got []string
		for _, f := range figures {
			for _, m := range f.Metric {
				got = append(got, f.GetName()+" "+m.String())
			}
		}
		if text := strings.Join(got, "\n"); err != nil || !strings.Contains(text, "ortet_pool_last_success_timestamp_seconds") || !strings.Contains(text, w.live()) {
			t.Errorf("%v, figures %s", err, text)
		}
		time.Sleep(24 * time.Hour)
		w.next(powerOff, "kill after")
		w.kill(Ask{Do: "capture", Again: true})
		time.Sleep(24 * time.Hour)
		if j := w.journal(); j.Ended != nil || !is(v1alpha1.ConditionReady, v1alpha1.ReasonObserving)(w.objects.get(poolName).Status) {
			t.Errorf("somebody ended %+v; %+v", j, w.objects.get(poolName).Status)
		}
	})
}
