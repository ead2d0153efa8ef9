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

// onDonor carries out what puts something back on the donor's Node. That there is
// no such Node is believed only where it cannot be read either: then nothing of
// ours is left on it.
func (t *task) onDonor(ctx context.Context, act func(ctx context.Context) error) error {
	return do(ctx, t, func(ctx context.Context) error {
		err := act(ctx)
		if !fleet.Is(err, fleet.KindNotFound) {
			return err
		}
		name := t.r.donorName()
		if _, readErr := t.r.e.cluster.Node(ctx, name); readErr != nil {
			return ignoreMissing(readErr)
		}
		return &fleet.Error{Op: "give the donor back", Resource: "node " + name, Kind: fleet.KindTransient,
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
	for _, pool := range pools {
		rec, open, err := r.load(ctx, t, pool)
		if err != nil {
			return journal.Record{}, false, err
		}
		if f, err := factsOf(rec); open && rec.Donor == node && err == nil {
			r.node = fleet.Node{Name: node, ProviderID: "azure://" + string(f.Instance)}
			return rec, true, nil
		}
	}
	return journal.Record{}, false, nil
}
