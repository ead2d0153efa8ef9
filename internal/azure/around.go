package azure

import (
	"context"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// A request is one call of a Cloud's method, as the decorators see it.
type request struct {
	name   string           // "get scale set"
	on     fleet.ResourceID // the one scale set or instance that is read or changed; "" for others
	change fleet.Change     // of Begin; else nil
	// changes is true for what changes something without a fleet.Change: Resources.Send.
	changes bool
	poll    *fleet.Progress
}

// ended reports a Poll that failed because its operation did: asking again
// gives the same.
func (c request) ended() bool { return c.poll != nil && c.poll.Done }

// A layer does something around every request.
type layer interface {
	around(ctx context.Context, c request, do func(context.Context) error) error
}

// around is a Cloud with a layer about it.
type around struct {
	next  Cloud
	layer layer
}

var _ Cloud = around{}

func (a around) Now() time.Time { return a.next.Now() }

func call[T any](ctx context.Context, a around, name string, do func(context.Context) (T, error)) (T, error) {
	return callOn(ctx, a, name, "", do)
}

func callOn[T any](ctx context.Context, a around, name string, on fleet.ResourceID, do func(context.Context) (T, error)) (T, error) {
	var out T
	err := a.layer.around(ctx, request{name: name, on: on}, func(ctx context.Context) (err error) {
		out, err = do(ctx)
		return err
	})
	return out, err
}

func (a around) Pool(ctx context.Context, id fleet.ResourceID) (fleet.Pool, error) {
	return callOn(ctx, a, "get scale set", id, func(ctx context.Context) (fleet.Pool, error) { return a.next.Pool(ctx, id) })
}

func (a around) Instances(ctx context.Context, pool fleet.ResourceID) ([]fleet.Instance, error) {
	return call(ctx, a, "list instances", func(ctx context.Context) ([]fleet.Instance, error) { return a.next.Instances(ctx, pool) })
}

func (a around) Instance(ctx context.Context, id fleet.ResourceID) (fleet.Instance, error) {
	return callOn(ctx, a, "get instance", id, func(ctx context.Context) (fleet.Instance, error) { return a.next.Instance(ctx, id) })
}

func (a around) Machines(ctx context.Context, group fleet.ResourceID) (map[fleet.ResourceID]fleet.ResourceID, error) {
	return call(ctx, a, "list virtual machines", func(ctx context.Context) (map[fleet.ResourceID]fleet.ResourceID, error) {
		return a.next.Machines(ctx, group)
	})
}

func (a around) Disk(ctx context.Context, id fleet.ResourceID) (fleet.Disk, error) {
	return call(ctx, a, "get disk", func(ctx context.Context) (fleet.Disk, error) { return a.next.Disk(ctx, id) })
}

func (a around) Snapshot(ctx context.Context, id fleet.ResourceID) (fleet.Snapshot, error) {
	return call(ctx, a, "get snapshot", func(ctx context.Context) (fleet.Snapshot, error) { return a.next.Snapshot(ctx, id) })
}

func (a around) EncryptionSet(ctx context.Context, id fleet.ResourceID) (fleet.EncryptionSet, error) {
	return call(ctx, a, "get disk encryption set", func(ctx context.Context) (fleet.EncryptionSet, error) { return a.next.EncryptionSet(ctx, id) })
}

func (a around) Gallery(ctx context.Context, id fleet.ResourceID) (fleet.Gallery, error) {
	return call(ctx, a, "get gallery", func(ctx context.Context) (fleet.Gallery, error) { return a.next.Gallery(ctx, id) })
}

func (a around) Definition(ctx context.Context, id fleet.ResourceID) (fleet.Definition, error) {
	return call(ctx, a, "get image definition", func(ctx context.Context) (fleet.Definition, error) { return a.next.Definition(ctx, id) })
}

func (a around) Definitions(ctx context.Context, gallery fleet.ResourceID) ([]fleet.Definition, error) {
	return call(ctx, a, "list image definitions", func(ctx context.Context) ([]fleet.Definition, error) { return a.next.Definitions(ctx, gallery) })
}

func (a around) Versions(ctx context.Context, definition fleet.ResourceID) ([]fleet.ImageVersion, error) {
	return call(ctx, a, "list image versions", func(ctx context.Context) ([]fleet.ImageVersion, error) { return a.next.Versions(ctx, definition) })
}

func (a around) Version(ctx context.Context, id fleet.ResourceID) (fleet.ImageVersion, error) {
	return call(ctx, a, "get image version", func(ctx context.Context) (fleet.ImageVersion, error) { return a.next.Version(ctx, id) })
}

func (a around) Uses(ctx context.Context, definitions ...fleet.ResourceID) ([]fleet.ImageUse, error) {
	return call(ctx, a, "list who uses an image", func(ctx context.Context) ([]fleet.ImageUse, error) { return a.next.Uses(ctx, definitions...) })
}

func (a around) StandbyPools(ctx context.Context, pool fleet.ResourceID) ([]fleet.StandbyPool, error) {
	return call(ctx, a, "list standby pools", func(ctx context.Context) ([]fleet.StandbyPool, error) { return a.next.StandbyPools(ctx, pool) })
}

func (a around) Size(ctx context.Context, subscription, location, size string) (fleet.SizeInfo, error) {
	return call(ctx, a, "look up a VM size", func(ctx context.Context) (fleet.SizeInfo, error) {
		return a.next.Size(ctx, subscription, location, size)
	})
}

func (a around) Sizes(ctx context.Context, subscription, location string, sizes ...string) (map[string]fleet.SizeInfo, error) {
	return call(ctx, a, "look up VM sizes", func(ctx context.Context) (map[string]fleet.SizeInfo, error) {
		return a.next.Sizes(ctx, subscription, location, sizes...)
	})
}

func (a around) Usages(ctx context.Context, subscription, location string) (map[string]fleet.Usage, error) {
	return call(ctx, a, "list usages", func(ctx context.Context) (map[string]fleet.Usage, error) {
		return a.next.Usages(ctx, subscription, location)
	})
}

func (a around) Denied(ctx context.Context, scope fleet.ResourceID, actions []string) ([]string, error) {
	return call(ctx, a, "list permissions", func(ctx context.Context) ([]string, error) { return a.next.Denied(ctx, scope, actions) })
}

func (a around) Begin(ctx context.Context, change fleet.Change) (fleet.Token, error) {
	var out fleet.Token
	err := a.layer.around(ctx, request{name: change.Verb(), on: scaleSetOrInstance(change.Target()), change: change}, func(ctx context.Context) (err error) {
		out, err = a.next.Begin(ctx, change)
		return err
	})
	return out, err
}

// scaleSetOrInstance returns the id where it is one of a scale set or of one of
// its instances.
func scaleSetOrInstance(id fleet.ResourceID) fleet.ResourceID {
	if id.Segment("virtualMachineScaleSets") == "" {
		return ""
	}
	return id
}

func (a around) Poll(ctx context.Context, token fleet.Token) (fleet.Progress, error) {
	var out fleet.Progress
	err := a.layer.around(ctx, request{name: "poll", poll: &out}, func(ctx context.Context) (err error) {
		out, err = a.next.Poll(ctx, token)
		return err
	})
	return out, err
}
