package config

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"time"

	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/wire"
)

const (
	// pollWatching and pollAlone are the pauses between two readings of the userData,
	// with and without a healthy watch; an answer Waiting has the shorter one as well.
	pollWatching = 10 * time.Minute
	pollAlone    = time.Minute
	// After a signal the userData is read at this pace for this time: the metadata service
	// may show it later than Azure Resource Manager.
	chaseEvery = time.Second
	chaseFor   = 2 * time.Minute
	// retryLeast and retryMost bound the pauses between tries of a watch or an answer.
	retryLeast = time.Second
	retryMost  = time.Minute
	// applyingWithin bounds what the answer Applying may delay.
	applyingWithin = 2 * time.Second
)

// An agent is one Run. All but the watch is its one goroutine's.
type agent struct {
	Options
	reconciler reconciler
	seen       observation
	answer     wire.ConfigurationAnswer // State "" before the first
	chased     struct {
		generation int64
		since      time.Time
	}
	pollAt, polled time.Time
	turned         time.Time // the condition's status changed
	published      bool      // the answer is at the Node
	wrote, before  string    // the two annotations that were written last
	retryAt        time.Time
	retries        int
}

// Run ends what an earlier run or the boot left open, and then keeps the machine as its
// userData says, until ctx ends.
func Run(ctx context.Context, o Options) {
	if o.Random == nil {
		o.Random = rand.Float64
	}
	if o.Ready == nil {
		o.Ready = func() {}
	}
	a := &agent{Options: o, published: true}
	a.reconciler = reconciler{Options: o, applying: func(ctx context.Context, answer wire.ConfigurationAnswer) {
		if s := a.answer.State; a.answer.Wanted == answer.Wanted && (s == wire.ConfigurationWaiting || s == wire.ConfigurationRefused) {
			return // tried again; most tries end as the last one
		}
		a.take(answer)
		ctx, cancel := context.WithTimeout(ctx, applyingWithin)
		defer cancel()
		a.publish(ctx)
	}}
	o.Ready()
	observations, watching := make(chan observation, 1), make(chan struct{})
	go func() {
		defer close(watching)
		a.watch(ctx, observations)
	}()
	a.loop(ctx, observations)
	<-watching
}

// settle ends what an earlier application left pending: boot's, or one whose restore
// failed. It says whether nothing is pending any more.
func (a *agent) settle(ctx context.Context) bool {
	d, _ := pending(a.Store) // Settle has the same error
	answer, settled := a.Applier.Settle(ctx)
	if settled && d != nil {
		a.take(a.reconciler.ended(*d, answer, true))
	} else if settled {
		answer.Wanted = a.seen.wanted
		a.take(a.reconciler.say(answer, answer.State, answer.Reason, answer.Message))
	}
	_, open, err := a.Store.Pending()
	return err == nil && !open
}

func (a *agent) loop(ctx context.Context, observations <-chan observation) {
	for ctx.Err() == nil {
		if !a.Now().Before(a.pollAt) {
			a.turn(ctx)
		}
		if !a.published && !a.Now().Before(a.retryAt) {
			a.publish(ctx)
		}
		next := a.pollAt
		if !a.published && a.retryAt.Before(next) {
			next = a.retryAt
		}
		timer := time.NewTimer(next.Sub(a.Now()))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case o := <-observations:
			a.observe(o)
		}
		timer.Stop()
	}
}

// observe takes in what the watch saw. A generation that the node has, or that was asked
// for before, costs nothing more.
func (a *agent) observe(o observation) {
	before := a.seen
	a.seen = o
	// The watch may show the annotation of before the last one for a moment.
	if o.node && a.published && a.wrote != "" && o.answer != a.wrote && (o.answer == "" || o.answer != a.before) {
		a.published, a.retryAt = false, a.Now()
	}
	if o.wanted > nodeconfig.Counted(a.answer.Generation) && o.wanted != a.chased.generation {
		a.pollAt = a.Now()
	} else if o.watching != before.watching {
		if at := a.polled.Add(a.pause()); !a.chasing() {
			a.pollAt = at
		}
	}
}

// chasing says whether the userData is read at the pace of a signal.
func (a *agent) chasing() bool {
	return a.seen.wanted > 0 && a.chased.generation == a.seen.wanted && a.Now().Sub(a.chased.since) < chaseFor
}

// turn reads the userData once and acts on it.
func (a *agent) turn(ctx context.Context) {
	if !a.settle(ctx) {
		a.pollAt = a.Now().Add(jitter(pollAlone, a.Random()))
		return
	}
	wanted := a.seen.wanted
	if wanted != a.chased.generation {
		a.chased.generation, a.chased.since = wanted, a.Now()
	}
	m, err := readMetadata(ctx, a.Metadata)
	a.polled = a.Now()
	if ctx.Err() != nil {
		return
	}
	if wanted > m.generation() && a.chasing() {
		a.pollAt = a.polled.Add(chaseEvery)
		return
	}
	if err != nil {
		a.Log.Warn("cannot read the userData", "error", err)
		if wanted > nodeconfig.Counted(a.answer.Generation) {
			answer := a.answer
			answer.Wanted = wanted
			a.take(a.reconciler.say(answer, wire.ConfigurationWaiting, wire.ReasonMachineUnknown, err.Error()))
		}
	} else if answer, ok := a.reconciler.reconcile(ctx, m, wanted); ok {
		a.take(answer)
	}
	a.pollAt = a.polled.Add(a.pause())
}

// pause is the time to the next reading, at random by a tenth.
func (a *agent) pause() time.Duration {
	if a.seen.watching && a.answer.State != wire.ConfigurationWaiting {
		return jitter(pollWatching, a.Random())
	}
	return jitter(pollAlone, a.Random())
}

func jitter(d time.Duration, random float64) time.Duration {
	return d - d/10 + time.Duration(random*float64(d/5))
}

// take makes an answer the present one. At is when its state began; the first report
// of a failure stays.
func (a *agent) take(answer wire.ConfigurationAnswer) {
	if answer.Reason == wire.ReasonFailedEarlier && a.answer.State == wire.ConfigurationFailed && a.answer.Wanted == answer.Wanted {
		return
	}
	same := answer
	same.At = a.answer.At
	if a.answer.State == answer.State && a.answer.Reason == answer.Reason && a.answer.Generation == answer.Generation && a.answer.Wanted == answer.Wanted {
		answer.At = a.answer.At
	}
	if encode(same) == encode(a.answer) {
		return
	}
	if statusOf(a.answer) != statusOf(answer) || a.turned.IsZero() {
		a.turned = answer.At
	}
	a.answer, a.published, a.retryAt, a.retries = answer, false, a.Now(), 0
	a.Log.Info("configuration", "state", answer.State, "reason", answer.Reason, "generation", answer.Generation, "wanted", answer.Wanted, "drift", answer.Drift, "message", answer.Message)
}

// publish writes the answer to the Node, or sets when that is tried again.
func (a *agent) publish(ctx context.Context) {
	err := publish(ctx, a.Kubernetes, a.answer, a.turned)
	if err == nil {
		a.published, a.retries = true, 0
		a.before, a.wrote = a.wrote, encode(a.answer)
		return
	}
	if a.retries == 0 && ctx.Err() == nil {
		a.Log.Warn("cannot answer at the Node; trying again", "error", err)
	}
	a.retryAt = a.Now().Add(jitter(backoff(a.retries), a.Random()))
	a.retries++
}

func backoff(retries int) time.Duration { return min(retryLeast<<min(retries, 6), retryMost) }

func encode(a wire.ConfigurationAnswer) string {
	text, err := json.Marshal(a)
	if err != nil {
		return "" // an answer always can
	}
	return string(text)
}

// watch follows the machine's own Node. A watch that the server ends is begun again at
// once; a watch that breaks is none until the next event.
func (a *agent) watch(ctx context.Context, observations chan observation) {
	put := func(o observation) {
		select {
		case <-observations: // the newest alone counts
		default:
		}
		observations <- o
	}
	var o observation
	for failures := 0; ctx.Err() == nil; {
		err := a.Kubernetes.Watch(ctx, watchPath(a.Random()), metadataOnly, watchIdle, func(line []byte) error {
			if err := o.observe(line); err != nil {
				return err
			}
			failures = 0
			put(o)
			return nil
		})
		if err != nil && ctx.Err() == nil {
			if failures == 0 {
				a.Log.Warn("cannot watch the Node; polling", "error", err)
			}
			if o.watching {
				o.watching = false
				put(o)
			}
			failures++
		}
		a.wait(ctx, jitter(backoff(failures), a.Random()))
	}
}

// wait waits for a time, or for the end of ctx.
func (a *agent) wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
