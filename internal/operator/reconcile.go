package operator

import (
	"context"
	"errors"
	"hash/crc32"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/ortet/ortet/api/v1alpha1"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/operator/notify"
	"github.com/ortet/ortet/internal/workflow"
)

// Objects are the ScaleSetPools of the API server.
type Objects interface {
	// List returns all, from a cache. Callers change none.
	List(ctx context.Context) ([]v1alpha1.ScaleSetPool, error)
	// SaveStatus writes the status of an object that is unchanged since it was read.
	SaveStatus(ctx context.Context, p *v1alpha1.ScaleSetPool) error
	// Event tells the object's readers what happened.
	Event(ctx context.Context, p *v1alpha1.ScaleSetPool, warning bool, reason, message string)
}

// Config is what a Reconciler works with. Capture, Objects and Groups are required.
type Config struct {
	Capture capture.Config // Holder is unique for the process; Report, Next and Others are set for each run
	Objects Objects
	Groups  []fleet.ResourceID // whose scale sets may be changed
	Reads   cluster.Cluster    // with Nodes of a cache, for what is read again before it is acted on; nil: Capture's
	// NodesOf returns those of the Nodes of Reads that have one of fleet.Claim.Keys, each once; nil: all are
	// read for each pool.
	NodesOf    func(ctx context.Context, keys []string) ([]fleet.Node, error)
	OtherPools bool           // the workbench may be of another pool
	MaxRuns    int            // at a time; less than 1 means 4. Watches are counted apart
	Metrics    *Metrics       // nil: none
	Notify     *notify.Sender // nil: none
}

// A Reconciler works while this process leads. It is a reconcile.Reconciler for several workers.
type Reconciler struct {
	c       Config
	leading context.Context // its end ends the runs
	all     sync.WaitGroup  // runs

	mu      sync.Mutex
	number  int // of runs
	running map[fleet.Key]*run
	ended   map[fleet.Key]ended
	tried   map[fleet.Key]time.Time // when a capture was begun last
	specs   map[string]spec         // by object: what want read of them
}

// A spec is what want read of an object's generation. To check a schedule takes milliseconds.
type spec struct {
	uid        types.UID
	generation int64
	wanted
	invalid *stall
}

// An ended run is how the last one of a pool ended in this process.
type ended struct {
	v1alpha1.LastRunStatus
	err  error
	took time.Duration
}

// New makes a Reconciler whose runs end with leading.
func New(leading context.Context, c Config) *Reconciler {
	if c.MaxRuns < 1 {
		c.MaxRuns = 4
	}
	r := &Reconciler{c: c, leading: leading, running: map[fleet.Key]*run{}, ended: map[fleet.Key]ended{}}
	r.tried, r.specs = map[fleet.Key]time.Time{}, map[string]spec{}
	return r
}

// Wait returns once all runs have ended. Call it after the leadership has ended, and no Reconcile runs.
func (r *Reconciler) Wait() {
	r.all.Wait()
	r.c.Metrics.clear()
}

// Reconcile looks at one object and its pool, and does what Decide says.
func (r *Reconciler) Reconcile(ctx context.Context, q reconcile.Request) (reconcile.Result, error) {
	objects, err := r.c.Objects.List(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	i := slices.IndexFunc(objects, func(p v1alpha1.ScaleSetPool) bool { return p.Name == q.Name })
	r.mu.Lock()
	for _, x := range r.running {
		if x.object == q.Name && i < 0 {
			x.cancel(errDeleted)
		}
	}
	if i < 0 {
		delete(r.specs, q.Name)
	}
	r.mu.Unlock()
	if i < 0 {
		r.c.Metrics.forget(q.Name)
		return reconcile.Result{}, nil
	}
	p := objects[i].DeepCopy()
	v := &view{object: p, before: objects[i].Status, now: r.c.Capture.Cluster.Now()}
	next := r.look(ctx, v, objects)
	v.write()
	if !equality.Semantic.DeepEqual(p.Status, v.before) {
		err = r.c.Objects.SaveStatus(ctx, p)
	}
	if err == nil { // else another has written the status, or will be tried again
		r.c.Notify.Send(notify.Find(p, v.before, v.now))
	}
	if was := v.before.LastRun; err == nil && v.last != nil && (was == nil || was.Ended.Before(&v.last.Ended)) {
		r.c.Objects.Event(ctx, p, v.last.Exit != workflow.ExitDone, "RunEnded", v.last.Kind+": "+v.last.Message)
	}
	r.c.Metrics.set(v)
	if err != nil {
		return reconcile.Result{}, err
	}
	spread := 0.9 + 0.2*float64(crc32.ChecksumIEEE([]byte(q.Name))%100)/100 // pools are not all read at once
	return reconcile.Result{RequeueAfter: time.Duration(spread * float64(max(next.Sub(v.now), time.Second)))}, nil
}

// look observes, decides and begins, and returns when to look again.
func (r *Reconciler) look(ctx context.Context, v *view, objects []v1alpha1.ScaleSetPool) (next time.Time) {
	idle := v.now.Add(Idle)
	w, invalid := r.want(*v.object)
	v.want, v.stall = w, r.c.standing(*v.object, objects)
	if v.stall != nil {
		return idle
	}
	key := fleet.KeyOf(w.pool)
	v.stall = invalid
	r.mu.Lock()
	if x := r.running[key]; x != nil {
		v.run = new(*x)
	}
	if last, has := r.ended[key]; has {
		v.last, v.err, v.took = &last.LastRunStatus, last.err, last.took
	}
	tried := r.tried[key]
	r.mu.Unlock()
	if v.open, v.failed = r.journal(ctx, w.pool); v.failed != nil {
		return v.now.Add(Running)
	}
	if v.run != nil {
		return v.now.Add(Running)
	}
	seen := Seen{Held: v.open.holder}
	if v.open.record.Open() {
		seen.Open = v.open.record.Kind
	} else if seen.Held == "" {
		o, err := r.observe(ctx, w)
		if v.failed = err; err == nil {
			v.failed = v.observed(o)
		}
		if v.failed != nil {
			return v.now.Add(Unread)
		}
		seen = o.seen(v.open)
	}
	if invalid != nil || v.stall != nil {
		return idle
	}
	times := []time.Time{tried, v.open.tried()}
	if last := v.lastRun(); last != nil {
		changed := v.object.Generation != v.before.ObservedGeneration // so it is tried as it is wanted now
		if !changed && !v.ofAnother(last) {
			seen.Last = Run{Do(last.Kind), last.Ended.Time, int(last.Exit)}
		}
		switch {
		case last.Kind != v1alpha1.RunCapture:
		case changed && last.Exit != workflow.ExitDone: // in the same window, too
			times = []time.Time{{}}
		default:
			times = append(times, last.Ended.Time)
		}
	}
	seen.Tried = slices.MaxFunc(times, time.Time.Compare)
	do, next := Decide(w.Want, seen, v.now)
	if do != Nothing {
		v.run = &run{do: do, kind: string(do), begun: v.now}
		if do == Resume {
			v.run.kind = seen.Open
		}
		v.queued = !r.start(v.object.Name, v.run, w, v.open)
		next = v.now.Add(Running)
	}
	return next
}

// want reads a spec once for each generation.
func (r *Reconciler) want(p v1alpha1.ScaleSetPool) (wanted, *stall) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, has := r.specs[p.Name]
	if !has || s.uid != p.UID || s.generation != p.Generation {
		s = spec{uid: p.UID, generation: p.Generation}
		s.wanted, s.invalid = r.c.want(p)
		r.specs[p.Name] = s
	}
	return s.wanted, s.invalid
}

// observed takes what was seen, and returns an error if it could not be read. What forbids any change
// of the pool stalls.
func (v *view) observed(o observation) error {
	v.seenPool = &o
	if len(o.Unread) > 0 && !o.pool.JournalDenied {
		return errors.New(o.Unread[0].What)
	}
	if len(o.Refused) > 0 && (!v.want.Observes || o.pool.Gone) { // what others own may be observed
		v.stall = &stall{o.Refused[0].Code, o.Refused[0].What + "; " + o.Refused[0].WayOut}
	}
	return nil
}
