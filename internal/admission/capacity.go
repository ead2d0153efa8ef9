package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

// A Desire is how many instances a scale set is to have, and what that is known by.
type Desire struct {
	// Capacity is what people and autoscalers set last, so far as evictions did not
	// lower it.
	Capacity int64 `json:"capacity"`
	// Seen is the scale set's capacity when it was looked at last. It is less than
	// Capacity by what evictions took and was not given back yet.
	Seen int64 `json:"seen"`
	// Evictions are those that nodes reported within evictionFor.
	Evictions []Eviction `json:"evictions,omitempty"`
	// Failures is how many restorations failed one after the other, and NotBefore when
	// the next may be tried.
	Failures  int       `json:"failures,omitempty"`
	NotBefore time.Time `json:"notBefore,omitzero"`

	// Version is the store's, of what was read; "" where there was nothing.
	Version string `json:"-"`
}

// An Eviction is one that its node reported before it came.
type Eviction struct {
	Instance fleet.ResourceID `json:"instance"`
	VMID     string           `json:"vmId"`
	At       time.Time        `json:"at"`
	// Counted is set once the capacity was seen to be lower by it.
	Counted bool `json:"counted,omitempty"`
}

// Desires keeps desires in the cluster, for all replicas and restarts. Errors are
// *fleet.Error; reads are fresh.
type Desires interface {
	// Desire returns the stored desired capacity of a scale set, whose id is
	// case-insensitive. Without one it is the zero Desire, and no error.
	Desire(ctx context.Context, pool fleet.ResourceID) (Desire, error)
	// SetDesire replaces what was read as desire.Version, and returns fleet.KindStale if
	// that has changed.
	SetDesire(ctx context.Context, pool fleet.ResourceID, desire Desire) error
}

// Scaler is the part of azure.Cloud that a capacity controller uses.
type Scaler interface {
	azure.Instances
	Pool(ctx context.Context, id fleet.ResourceID) (fleet.Pool, error)
	Begin(ctx context.Context, change fleet.Change) (fleet.Token, error)
	Poll(ctx context.Context, token fleet.Token) (fleet.Progress, error)
}

const (
	// evictionFor is how long a reported eviction explains a capacity that was lowered.
	// Azure announces evictions 30 s before.
	evictionFor = 15 * time.Minute
	// maxEvictions is a scale set's size.
	maxEvictions = 1000
	// tooManyFailures is when a restoration is not tried any more, until somebody
	// sets a capacity or the next eviction comes.
	tooManyFailures = 8
	firstBackOff    = 2 * time.Minute
	longestBack     = time.Hour
)

// A capacitySeen is one observation.
type capacitySeen struct {
	capacity int64
	// gone has the evicted instances, by key, that are deleted or being deleted. It was
	// read after the capacity; nil is unknown.
	gone map[string]bool
}

// decideCapacity returns the desired capacity after an observation, and the capacity to
// which the scale set is to be raised; 0 is not at all.
//
// The rule: a number that a user sets is desired. A capacity that rose is one, and so is
// one that fell, unless evictions explain all of the fall: as many instances were reported
// as evicted by their own nodes, in the last 15 minutes, and are deleted. Then the desired
// capacity stays, and is set again. So a restoration never exceeds what a user set, and a
// user's decrease is undone once, if evictions in the same moment match it: no evictions
// explain a second one.
//
// An eviction that its node could not report, since Azure does not promise a notice, looks
// like a user's decrease, and is not restored.
func decideCapacity(d Desire, seen capacitySeen, now time.Time) (Desire, int64) {
	next := d
	next.Evictions = slices.DeleteFunc(slices.Clone(d.Evictions), func(e Eviction) bool { return now.Sub(e.At) > evictionFor })
	next.Seen = seen.capacity
	fell := d.Seen - seen.capacity
	switch {
	case fell < 0: // or never looked at
		next.Capacity, next.Failures, next.NotBefore = seen.capacity, 0, time.Time{}
	case fell > 0:
		if seen.gone == nil && slices.ContainsFunc(next.Evictions, func(e Eviction) bool { return !e.Counted }) {
			return d, 0 // not known: nothing is concluded from half of it
		}
		explained := int64(0)
		for i := range next.Evictions {
			if e := &next.Evictions[i]; !e.Counted && seen.gone[keyOf(e.Instance)] && explained < fell {
				e.Counted = true
				explained++
			}
		}
		if explained < fell {
			next.Capacity = seen.capacity
		}
		next.Failures, next.NotBefore = 0, time.Time{}
	}
	if next.Capacity <= seen.capacity || next.Failures >= tooManyFailures || now.Before(next.NotBefore) {
		return next, 0
	}
	return next, next.Capacity
}

// failedToRestore is the desired capacity after a restoration failed and the capacity is
// what Azure left it at: the lower value is not desired.
func failedToRestore(d Desire, capacity int64, now time.Time) Desire {
	d.Seen = capacity
	d.NotBefore = now.Add(min(firstBackOff<<min(d.Failures, 16), longestBack))
	d.Failures++
	return d
}

// KeeperConfig configures a capacity controller.
type KeeperConfig struct {
	Desires Desires
	Scaler  Scaler
	// Members shows whether evicted instances are deleted.
	Members azure.Members
	// Pools are the scale sets whose capacity is kept.
	Pools    []fleet.ResourceID
	Interval time.Duration // 0 is DefaultKeepInterval
	// Lead is as ReaperConfig's. Two that keep at once do no harm: each change of the
	// capacity holds only for the scale set as it was read.
	Lead    func(ctx context.Context, run func(context.Context)) error
	Log     *slog.Logger
	Audit   *slog.Logger          // of restorations; nil is Log
	Metrics prometheus.Registerer // nil registers nowhere
	Now     func() time.Time      // nil is time.Now
}

// DefaultKeepInterval is the interval between reads of the capacities.
const DefaultKeepInterval = 30 * time.Second

// A Keeper is the capacity controller of Spot scale sets, whose eviction policy Delete
// lowers the capacity with each eviction: see decideCapacity.
type Keeper struct {
	config   KeeperConfig
	running  map[string]restoration // by scale set
	rests    map[string]*azure.Rest // of those that are to be raised
	restored *prometheus.CounterVec
	desired  *prometheus.GaugeVec
}

// A restoration is one that Azure carries out.
type restoration struct {
	token fleet.Token
	from  int64 // the capacity before
}

// NewKeeper makes a capacity controller.
func NewKeeper(c KeeperConfig) (*Keeper, error) {
	if c.Desires == nil || c.Scaler == nil || c.Members == nil || len(c.Pools) == 0 {
		return nil, &fleet.Error{Op: "keep capacities", Kind: fleet.KindInvalid, Err: errors.New("no desires, scaler, members or scale set")}
	}
	if c.Interval <= 0 {
		c.Interval = DefaultKeepInterval
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Audit = cmp.Or(c.Audit, c.Log)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Lead == nil {
		c.Lead = alone
	}
	k := &Keeper{config: c, running: map[string]restoration{}, rests: map[string]*azure.Rest{},
		restored: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ortet_admission_capacity_restored_total", Help: "Restorations of capacities that evictions had lowered, by scale set and outcome: begun, failed."}, []string{"pool", "outcome"}),
		desired:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "ortet_admission_capacity_desired", Help: "How many instances a scale set is to have whose capacity is kept."}, []string{"pool"}),
	}
	if err := register(c.Metrics, k.restored, k.desired); err != nil {
		return nil, fmt.Errorf("register the keeper's metrics: %w", err)
	}
	return k, nil
}

// Keeps reports whether the scale set's capacity is kept.
func (k *Keeper) Keeps(pool fleet.ResourceID) bool {
	return slices.ContainsFunc(k.config.Pools, pool.Equal)
}

// Evicted takes down that an instance said of itself that it is being evicted (a leave
// with the cause Preempt). Again for the same machine it changes nothing. Every replica
// may take it, whoever leads.
func (k *Keeper) Evicted(ctx context.Context, member fleet.Member) error {
	if !k.Keeps(member.Pool) {
		return nil
	}
	now := k.config.Now()
	return k.update(ctx, member.Pool, func(d Desire) (Desire, bool) {
		if slices.ContainsFunc(d.Evictions, func(e Eviction) bool { return e.Instance.Equal(member.Instance) && e.VMID == member.VMID }) {
			return d, false
		}
		d.Evictions = append(slices.Clone(d.Evictions), Eviction{Instance: member.Instance, VMID: member.VMID, At: now})
		d.Evictions = d.Evictions[max(0, len(d.Evictions)-maxEvictions):]
		// It is a new try, should earlier ones have been given up.
		d.Failures = min(d.Failures, tooManyFailures-1)
		return d, true
	})
}

// update changes what is kept of a scale set, again where somebody else did meanwhile.
func (k *Keeper) update(ctx context.Context, pool fleet.ResourceID, change func(Desire) (Desire, bool)) error {
	for try := 1; ; try++ {
		d, err := k.config.Desires.Desire(ctx, pool)
		if err != nil {
			return err
		}
		next, changed := change(d)
		if !changed {
			return nil
		}
		if err = k.config.Desires.SetDesire(ctx, pool, next); !fleet.Is(err, fleet.KindStale) || try == 10 {
			return err
		}
	}
}

// Run does a round at every interval until ctx ends, and returns its error then.
func (k *Keeper) Run(ctx context.Context) error {
	return k.config.Lead(ctx, func(ctx context.Context) {
		for ctx.Err() == nil {
			if err := k.Round(ctx); err != nil && ctx.Err() == nil {
				k.config.Log.WarnContext(ctx, "a capacity could not be looked after", "error", err)
			}
			t := time.NewTimer(k.config.Interval)
			select {
			case <-t.C:
			case <-ctx.Done():
			}
			t.Stop()
		}
	})
}

// Round reconciles every scale set once. It is for one goroutine at a time.
func (k *Keeper) Round(ctx context.Context) error {
	var errs []error
	for _, pool := range k.config.Pools {
		if err := k.keep(ctx, pool); err != nil {
			errs = append(errs, fmt.Errorf("keep the capacity of %s: %w", pool.Name(), err))
		}
	}
	return errors.Join(errs...)
}

// keep reconciles one scale set. The desired capacity is stored before it is set, and each
// is written only while the values that it was decided on are unchanged.
func (k *Keeper) keep(ctx context.Context, id fleet.ResourceID) error {
	d, err := k.config.Desires.Desire(ctx, id)
	if err != nil {
		return err
	}
	from := k.running[keyOf(id)].from
	failed, err := k.follow(ctx, id)
	if err != nil {
		return err
	}
	pool, err := k.config.Scaler.Pool(ctx, id)
	if err != nil {
		return err
	}
	if !pool.Spot || !strings.EqualFold(pool.EvictionPolicy, "Delete") {
		return &fleet.Error{Op: "keep capacity", Resource: string(id), Kind: fleet.KindUnsupported,
			Err: errors.New("evictions lower the capacity of Spot scale sets with the eviction policy Delete alone"), Remedy: "leave the scale set out of --keep-capacity"}
	}
	now := k.config.Now()
	if failed != nil {
		if pool.Capacity >= from && pool.Capacity <= d.Capacity { // else somebody set it meanwhile
			d = failedToRestore(d, pool.Capacity, now)
		}
		k.tellFailure(ctx, pool, d, failed)
	}
	seen := capacitySeen{capacity: pool.Capacity}
	if pool.Capacity < d.Seen && slices.ContainsFunc(d.Evictions, func(e Eviction) bool { return !e.Counted }) {
		if seen.gone, err = k.gone(ctx, id, d.Evictions); err != nil {
			return err
		}
	}
	next, to := decideCapacity(d, seen, now)
	k.desired.WithLabelValues(id.Name()).Set(float64(next.Capacity))
	if failed != nil || !same(d, next) || d.Version == "" {
		err := k.config.Desires.SetDesire(ctx, id, next)
		if fleet.Is(err, fleet.KindStale) {
			return nil // a node reported its eviction meanwhile: the next round counts it
		}
		if err != nil {
			return err
		}
	}
	if to == 0 || k.running[keyOf(id)].token != "" {
		delete(k.rests, keyOf(id))
		return nil
	}
	rest := k.rests[keyOf(id)]
	if rest == nil {
		rest = &azure.Rest{}
		k.rests[keyOf(id)] = rest
	}
	// The next round reads the set again.
	if waits, _, err := rest.Updating(ctx, k.config.Scaler, pool, now); err != nil || waits != "" {
		return err
	}
	return k.restore(ctx, pool, to)
}

func (k *Keeper) tellFailure(ctx context.Context, pool fleet.Pool, d Desire, failed error) {
	k.restored.WithLabelValues(pool.Name, "failed").Inc()
	k.config.Log.WarnContext(ctx, "a capacity that evictions lowered could not be restored", "pool", string(pool.ID), "desired", d.Capacity, "capacity", pool.Capacity,
		"failures", d.Failures, "again", d.NotBefore, "error", failed)
}

// same reports that two desires are equal.
func same(a, b Desire) bool {
	return a.Capacity == b.Capacity && a.Seen == b.Seen && slices.Equal(a.Evictions, b.Evictions) && a.Failures == b.Failures && a.NotBefore.Equal(b.NotBefore)
}

// gone returns which of the evicted instances are deleted or being deleted.
func (k *Keeper) gone(ctx context.Context, pool fleet.ResourceID, evictions []Eviction) (map[string]bool, error) {
	list, err := k.config.Members.Members(ctx, pool, false)
	if err != nil {
		return nil, err
	}
	stays := map[string]string{} // vmId by instance
	for _, m := range list {
		if !strings.EqualFold(m.ProvisioningState, "Deleting") {
			stays[keyOf(m.Instance)] = m.VMID
		}
	}
	gone := map[string]bool{}
	for _, e := range evictions {
		vm, there := stays[keyOf(e.Instance)]
		gone[keyOf(e.Instance)] = !there || vm != "" && e.VMID != "" && !strings.EqualFold(vm, e.VMID)
	}
	return gone, nil
}

// restore sets the capacity, if the scale set is what it was when it was read.
func (k *Keeper) restore(ctx context.Context, pool fleet.Pool, to int64) error {
	token, err := k.config.Scaler.Begin(ctx, fleet.SetCapacity{Pool: pool.ID, Capacity: to, Etag: pool.Etag})
	switch {
	case fleet.Is(err, fleet.KindStale), fleet.Is(err, fleet.KindConflict):
		return nil // a user changes it now: the next round reads the new value
	case fleet.Is(err, fleet.KindBlocked), fleet.Is(err, fleet.KindUnsupported): // no quota, no machines of this size
		failed := err
		return k.update(ctx, pool.ID, func(d Desire) (Desire, bool) {
			if d.Capacity != to || d.Seen != pool.Capacity {
				return d, false
			}
			d = failedToRestore(d, pool.Capacity, k.config.Now())
			k.tellFailure(ctx, pool, d, failed)
			return d, true
		})
	case err != nil:
		return err
	}
	k.running[keyOf(pool.ID)] = restoration{token, pool.Capacity}
	k.restored.WithLabelValues(pool.Name, "begun").Inc()
	k.config.Audit.InfoContext(ctx, "admission", "operation", "keep capacity", "decision", "restored", "reason", "Evicted", "pool", string(pool.ID), "from", pool.Capacity, "to", to)
	// From here on a capacity below is another fall.
	return k.update(ctx, pool.ID, func(d Desire) (Desire, bool) {
		if d.Capacity != to || d.Seen != pool.Capacity {
			return d, false
		}
		d.Seen = to
		return d, true
	})
}

// follow asks how far a restoration is: failed is why it ended without success.
func (k *Keeper) follow(ctx context.Context, pool fleet.ResourceID) (failed, err error) {
	token := k.running[keyOf(pool)].token
	if token == "" {
		return nil, nil
	}
	progress, err := k.config.Scaler.Poll(ctx, token)
	switch {
	case progress.Done:
		delete(k.running, keyOf(pool))
		return err, nil
	case fleet.Is(err, fleet.KindNotFound), fleet.Is(err, fleet.KindInvalid): // dropped: the capacity shows the result
		delete(k.running, keyOf(pool))
		return nil, nil
	}
	return nil, err
}
