package azure

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// maxWaits is how many operations are waited for at once. An operation is polled every
// 2 s where Azure names no interval, so this is 20 reads a second, below Azure Resource
// Manager's refill of 25.
const maxWaits = 40

// LimitResources is Limit for Resources: Get and List are reads, Send is a change. What
// is below a scale set has the limits of each, too. Polls of Operation.Wait are not
// counted, since they are the adapter's own; how many operations are waited for at once
// bounds them.
func LimitResources(resources Resources, limits Limits) Resources {
	return limitedResources{resources, newLimiter(limits), make(chan struct{}, maxWaits)}
}

type limitedResources struct {
	next  Resources
	layer layer
	waits chan struct{}
}

func (l limitedResources) request(name string, id fleet.ResourceID, changes bool) request {
	c := request{name: name, changes: changes}
	if strings.Contains(strings.ToLower(string(id)), "/virtualmachinescalesets/") {
		c.on = id
	}
	return c
}

func (l limitedResources) Get(ctx context.Context, id fleet.ResourceID, version string, into any, query ...string) error {
	return l.layer.around(ctx, l.request("read", id, false), func(ctx context.Context) error {
		return l.next.Get(ctx, id, version, into, query...)
	})
}

func (l limitedResources) List(ctx context.Context, id fleet.ResourceID, version string, each func(json.RawMessage) error, query ...string) error {
	return l.layer.around(ctx, l.request("list", id, false), func(ctx context.Context) error {
		return l.next.List(ctx, id, version, each, query...)
	})
}

func (l limitedResources) Send(ctx context.Context, op, method string, id fleet.ResourceID, version string, body any, query ...string) (out Operation, err error) {
	err = l.layer.around(ctx, l.request(op, id, true), func(ctx context.Context) (err error) {
		out, err = l.next.Send(ctx, op, method, id, version, body, query...)
		return err
	})
	if err != nil || out == nil {
		return nil, err
	}
	return limitedOperation{out, l.waits}, nil
}

type limitedOperation struct {
	Operation
	waits chan struct{}
}

func (o limitedOperation) Wait(ctx context.Context) (json.RawMessage, error) {
	select {
	case o.waits <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-o.waits }()
	return o.Operation.Wait(ctx)
}

// Expected is how long as many changes of different resources take at least, where
// nothing else takes from the limits.
func (l Limits) Expected(changes int) time.Duration {
	l = l.withDefaults()
	return time.Duration(max(0, float64(changes-l.ChangeBurst)/l.Changes) * float64(time.Second))
}
