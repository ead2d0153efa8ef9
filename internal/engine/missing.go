package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
)

// Azure and API servers may say once, and wrongly, that something is not there:
// a cache that has not heard of it yet, a proxy that asks the wrong backend. What
// we made or hold is not forgotten for one such answer: it is asked for again, or
// something else is looked at that would show it.

// lookAgain is how long after such an answer the same is asked again.
const lookAgain = time.Second

// surely is ask for what we made or hold: KindNotFound has been said twice.
func surely[T any](ctx context.Context, t *task, read func(ctx context.Context) (T, error)) (T, error) {
	v, err := ask(ctx, t, read)
	if !fleet.Is(err, fleet.KindNotFound) {
		return v, err
	}
	if waitErr := t.wait(ctx, lookAgain, forOwn); waitErr != nil {
		return v, waitErr
	}
	return ask(ctx, t, read)
}

// held is found for what we made or hold: false has been said twice.
func held[T any](ctx context.Context, t *task, read func(ctx context.Context) (T, error)) (T, bool, error) {
	v, err := surely(ctx, t, read)
	if fleet.Is(err, fleet.KindNotFound) {
		return v, false, nil
	}
	return v, err == nil, err
}

// deleted is the check of a deletion: what is not there has been looked for twice.
func deleted[T any](t *task, read func(ctx context.Context) (T, error)) check {
	return func(ctx context.Context) (bool, error) {
		_, ok, err := held(ctx, t, read)
		return err == nil && !ok, err
	}
}

// onNode carries out what puts something back on a Node. That there is no such Node is
// believed only where it cannot be read either: then nothing of ours is left on it.
func (t *task) onNode(ctx context.Context, name string, act func(ctx context.Context) error) error {
	return do(ctx, t, func(ctx context.Context) error {
		err := act(ctx)
		if !fleet.Is(err, fleet.KindNotFound) {
			return err
		}
		if _, readErr := t.r.e.cluster.Node(ctx, name); readErr != nil {
			return ignoreMissing(readErr)
		}
		return &fleet.Error{Op: "restore node", Resource: "node " + name, Kind: fleet.KindTransient,
			Err: fmt.Errorf("it is there, and was said not to be: %w", err)}
	})
}

// openRecordOfGone finds the open record of a donor whose Node was deleted, as a cloud
// controller deletes that of a stopped machine, in the pools of all other nodes. Where
// there is none, preflight says that the Node is not there.
func (r *run) openRecordOfGone(ctx context.Context, t *task, node string) (rec journal.Record, open bool, err error) {
	pools, err := ask(ctx, t, func(ctx context.Context) ([]fleet.ResourceID, error) { return r.e.allPools(ctx) })
	if err != nil {
		return journal.Record{}, false, err
	}
	var denied error // at pools that these credentials are not for
	for _, pool := range pools {
		rec, open, err := r.loadHeld(ctx, t, pool)
		if fleet.Is(err, fleet.KindDenied) {
			denied = err
			continue
		}
		if err != nil {
			return journal.Record{}, false, err
		}
		if f, err := factsOf(rec); open && rec.Donor == node && err == nil {
			r.node = fleet.Node{Name: node, ProviderID: "azure://" + string(f.Instance)}
			return rec, true, nil
		}
	}
	return journal.Record{}, false, denied
}

// load reads the pool's record; open is true where it has not ended. Who begins another
// because none was found is refused by the store where there is one.
func (r *run) load(ctx context.Context, t *task, pool fleet.ResourceID) (rec journal.Record, open bool, err error) {
	return r.loadBy(ctx, t, pool, found)
}

// loadHeld is load for who ends, or decides, by what is in the record: that there is
// none has been said twice.
func (r *run) loadHeld(ctx context.Context, t *task, pool fleet.ResourceID) (rec journal.Record, open bool, err error) {
	return r.loadBy(ctx, t, pool, held)
}

type finder func(context.Context, *task, func(context.Context) (journal.Record, error)) (journal.Record, bool, error)

func (r *run) loadBy(ctx context.Context, t *task, pool fleet.ResourceID, find finder) (rec journal.Record, open bool, err error) {
	rec, ok, err := find(ctx, t, func(ctx context.Context) (journal.Record, error) {
		return r.e.cluster.Journals().Load(ctx, journalKey(pool))
	})
	open = ok && rec.Ended == nil
	r.mu.Lock()
	r.nothingOpen = err == nil && !open
	r.mu.Unlock()
	return rec, open, err
}
