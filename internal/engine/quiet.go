package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
)

const (
	// quietLimit is how long a change of the scale set waits for others': Azure gives
	// up on an instance that does not come up after 20 minutes, so that whatever goes
	// on after that is stuck, and would be for ever.
	quietLimit = 20 * time.Minute
	// quietEvery is how often a scale set is read that is waited for, with its
	// instances: as often as our own limit of requests to one allows.
	quietEvery = 20 * time.Second
)

// quietPool gives the pool once nobody adds or removes instances: in Azure a newer
// write to a scale set preempts the older one (OperationPreempted), and a scale-up
// that was under way ends without its nodes. After quietLimit it gives the pool all
// the same, with a note.
func (t *task) quietPool(ctx context.Context, id fleet.ResourceID) (fleet.Pool, error) {
	said := ""
	for {
		pool, err := t.pool(ctx, id)
		if err != nil {
			return pool, err
		}
		why, err := t.restlessness(ctx, pool)
		if err != nil || why == "" {
			return pool, err
		}
		now := t.r.e.now()
		if t.restless.IsZero() {
			t.restless = now
		}
		if now.Sub(t.restless) >= quietLimit {
			t.r.note("scale set %s did not come to rest within %s (%s): it was changed all the same", id.Name(), quietLimit, why)
			return pool, nil
		}
		if why != said {
			t.progress(-1, "waiting until scale set %s is at rest: %s", id.Name(), why)
			said = why
		}
		if err := t.wait(ctx, quietEvery, forWorld); err != nil {
			return pool, t.timedOut(ctx, "wait until the scale set is at rest", string(id), errors.New(why))
		}
	}
}

// settled reports whether the model of a scale set stays as it is shown: an operation
// that is under way may fail, and then restores what was there before it. As in
// quietPool, one that does not end within quietLimit is not waited for.
func (t *task) settled(pool fleet.Pool) bool {
	if !busy(pool.ProvisioningState) {
		return true
	}
	now := t.r.e.now()
	if t.restless.IsZero() {
		t.restless = now
	}
	return now.Sub(t.restless) >= quietLimit
}

// restlessness says what goes on in a scale set; "" where it is at rest.
func (t *task) restlessness(ctx context.Context, pool fleet.Pool) (string, error) {
	if busy(pool.ProvisioningState) {
		return "it is " + pool.ProvisioningState, nil
	}
	instances, err := ask(ctx, t, func(ctx context.Context) ([]fleet.Instance, error) { return t.r.e.cloud.Instances(ctx, pool.ID) })
	if err != nil {
		return "", err
	}
	for _, i := range instances {
		if i.ProvisioningState == prototype.Creating || i.ProvisioningState == prototype.Deleting {
			return fmt.Sprintf("instance %s is %s", i.InstanceID, i.ProvisioningState), nil
		}
	}
	return "", nil
}
