package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/ortet/ortet/internal/fleet"
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

// deleted is the check of a deletion. What it has never seen is looked for
// twice; after that its absence is what was asked for.
func deleted[T any](t *task, read func(ctx context.Context) (T, error)) check {
	seen := false
	return func(ctx context.Context) (bool, error) {
		look := held[T]
		if seen {
			look = found[T]
		}
		_, ok, err := look(ctx, t, read)
		seen = seen || ok
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
