package azure

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// settledAfter is how long after a write a read from another region may answer 404.
const settledAfter = time.Minute

// Settled makes the fleet.KindNotFound of a resource KindTransient for a minute after
// this process began a change of it, since ARM's reads may be older than its writes. A
// 404 after a deletion, and any later one, is the truth. It belongs below Retry.
func Settled(cloud Cloud) Cloud {
	return &settled{Cloud: cloud, begun: map[string]time.Time{}}
}

type settled struct {
	Cloud
	mu    sync.Mutex
	begun map[string]time.Time // by the resource's id in lower case
}

func (s *settled) Begin(ctx context.Context, c fleet.Change) (fleet.Token, error) {
	token, err := s.Cloud.Begin(ctx, c)
	key := func(id fleet.ResourceID) string { return strings.ToLower(string(id)) }
	s.mu.Lock()
	if x, is := c.(fleet.DeleteInstances); is { // the scale set stays
		for _, name := range x.Instances {
			delete(s.begun, key(x.Pool.Child("virtualMachines", name)))
			delete(s.begun, key(x.Pool.In("virtualMachines", name)))
		}
	} else if strings.HasPrefix(c.Verb(), "delete ") {
		delete(s.begun, key(c.Target()))
	} else {
		s.begun[key(c.Target())] = time.Now()
	}
	s.mu.Unlock()
	return token, s.judge(source(c), err)
}

// source is what a change reads beside its target.
func source(c fleet.Change) fleet.ResourceID {
	switch c := c.(type) {
	case fleet.CreateSnapshot:
		return c.Source
	case fleet.CreateDisk:
		return c.Source
	case fleet.CreateVersion:
		return c.Source
	case fleet.AttachDisk:
		return c.Disk
	case fleet.CreateCanary:
		return c.Image
	case fleet.PatchModel:
		return c.Image.ID
	}
	return ""
}

func (s *settled) judge(id fleet.ResourceID, err error) error {
	if !fleet.Is(err, fleet.KindNotFound) {
		return err
	}
	s.mu.Lock()
	begun, ok := s.begun[strings.ToLower(string(id))]
	s.mu.Unlock()
	if !ok || time.Since(begun) >= settledAfter {
		return err
	}
	return &fleet.Error{Op: "read soon after a write", Resource: string(id), Kind: fleet.KindTransient, Err: err}
}

// read reads one resource, and judges an error of it.
func read[T any](ctx context.Context, s *settled, id fleet.ResourceID, get func(context.Context, fleet.ResourceID) (T, error)) (T, error) {
	v, err := get(ctx, id)
	return v, s.judge(id, err)
}

func (s *settled) Pool(ctx context.Context, id fleet.ResourceID) (fleet.Pool, error) {
	return read(ctx, s, id, s.Cloud.Pool)
}

func (s *settled) Instances(ctx context.Context, pool fleet.ResourceID) ([]fleet.Instance, error) {
	return read(ctx, s, pool, s.Cloud.Instances)
}

func (s *settled) Instance(ctx context.Context, id fleet.ResourceID) (fleet.Instance, error) {
	return read(ctx, s, id, s.Cloud.Instance)
}

func (s *settled) Disk(ctx context.Context, id fleet.ResourceID) (fleet.Disk, error) {
	return read(ctx, s, id, s.Cloud.Disk)
}

func (s *settled) Snapshot(ctx context.Context, id fleet.ResourceID) (fleet.Snapshot, error) {
	return read(ctx, s, id, s.Cloud.Snapshot)
}

func (s *settled) Gallery(ctx context.Context, id fleet.ResourceID) (fleet.Gallery, error) {
	return read(ctx, s, id, s.Cloud.Gallery)
}

func (s *settled) Definition(ctx context.Context, id fleet.ResourceID) (fleet.Definition, error) {
	return read(ctx, s, id, s.Cloud.Definition)
}

func (s *settled) Version(ctx context.Context, id fleet.ResourceID) (fleet.ImageVersion, error) {
	return read(ctx, s, id, s.Cloud.Version)
}
