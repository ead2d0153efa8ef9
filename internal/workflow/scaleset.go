package workflow

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

// A ScaleSet changes one scale set for the rows of a run, one after the other.
type ScaleSet struct {
	Last fleet.Pool // as it was read last, for its ETag; zero if it never was

	cloud azure.Reader
	now   func() time.Time
	rest  azure.Rest
}

// NewScaleSet makes a ScaleSet.
func NewScaleSet(cloud azure.Reader, now func() time.Time) *ScaleSet {
	return &ScaleSet{cloud: cloud, now: now}
}

// Pool returns Last, which it reads if it never was.
func (x *ScaleSet) Pool(ctx context.Context, id fleet.ResourceID) (_ fleet.Pool, err error) {
	if x.Last.ID == "" {
		x.Last, err = x.cloud.Pool(ctx, id)
	}
	return x.Last, err
}

// Change changes the scale set only while that is not updating, and unchanged since it was read.
// begin is called right before the write, and may refuse it.
func (x *ScaleSet) Change(ctx context.Context, p *Pass, id fleet.ResourceID, change func(fleet.Pool) fleet.Change,
	is func(fleet.Pool) bool, begin func(context.Context, fleet.Pool) error) (Wait, error) {
	if _, err := x.Pool(ctx, id); err != nil {
		return Wait{}, err
	}
	asked, waits := x.Last.Etag, ""
	w, err := p.Ensure(ctx, change(x.Last), func(ctx context.Context) (bool, error) {
		pool, err := x.cloud.Pool(ctx, id)
		if err != nil {
			return false, err
		}
		x.Last = pool
		if !azure.Busy(pool.ProvisioningState) && is(pool) {
			return true, nil
		}
		var overdue string
		if waits, overdue, err = x.rest.Updating(ctx, x.cloud, pool, x.now()); err != nil || waits != "" {
			return false, cmp.Or(err, errors.New(waits))
		}
		if overdue != "" && is(pool) { // to ask again would raise a capacity twice
			return true, nil
		}
		if overdue != "" {
			p.Note("scale set %s was updating for %s (%s): it was changed nevertheless", pool.Name, azure.RestFor, overdue)
		}
		if err = begin(ctx, pool); err == nil && pool.Etag != asked {
			err = &fleet.Error{Op: "change scale set", Resource: string(id), Kind: fleet.KindStale,
				Err: errors.New("scale set changed since it was read")}
		}
		return false, err
	})
	if waits != "" {
		return In(azure.RestInterval, "waiting until scale set %s is not updating: %s", id.Name(), waits), nil
	}
	return w, err
}

// HadNoEffect reports whether the service itself refused a change. What is without a code may be
// the answer of a proxy.
func HadNoEffect(err error) bool {
	e := new(fleet.Error)
	return fleet.Is(err, fleet.KindStale, fleet.KindThrottled) ||
		errors.As(err, &e) && e.Code != "" && !fleet.Is(err, fleet.KindUnknown, fleet.KindTransient, fleet.KindTimedOut)
}
