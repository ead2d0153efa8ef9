package capture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/workflow"
)

const (
	// restFor is how long a change of the scale set waits for others': Azure gives up on
	// an instance that does not come up after 20 minutes.
	restFor = 20 * time.Minute
	// restEvery is how often a scale set is read until it is at rest.
	restEvery = 20 * time.Second
)

// unrest says what is under way in a scale set; "" if it is at rest.
func unrest(pool fleet.Pool, instances []fleet.Instance) string {
	if busy(pool.ProvisioningState) {
		return "it is " + pool.ProvisioningState
	}
	for _, i := range instances {
		if i.ProvisioningState == prototype.Creating || i.ProvisioningState == prototype.Deleting {
			return fmt.Sprintf("instance %s is %s", i.InstanceID, i.ProvisioningState)
		}
	}
	return ""
}

// A ScaleSet changes one scale set for the rows of a run, one after the other.
type ScaleSet struct {
	config   Config
	pool     fleet.Pool           // as last read, for its Etag
	restless map[string]time.Time // since when a row waits for the scale set
}

// NewScaleSet makes a ScaleSet.
func NewScaleSet(config Config) *ScaleSet {
	return &ScaleSet{config: config, restless: map[string]time.Time{}}
}

// readPool reads the scale set unless it is known.
func (x *ScaleSet) readPool(ctx context.Context, id fleet.ResourceID) (err error) {
	if x.pool.ID == "" {
		x.pool, err = x.config.Cloud.Pool(ctx, id)
	}
	return err
}

// Change makes a change of the scale set true. It is asked for while the set is at
// rest, since a newer write preempts an older one (OperationPreempted), and on the
// condition that the set is as it was read. begin may refuse the change at that moment.
func (x *ScaleSet) Change(ctx context.Context, p *workflow.Pass, id fleet.ResourceID, row string, change func(fleet.Pool) fleet.Change, is func(fleet.Pool) bool, begin func(context.Context, fleet.Pool) error) (workflow.Wait, error) {
	if err := x.readPool(ctx, id); err != nil {
		return done, err
	}
	asked := x.pool.Etag
	var waits string
	w, err := p.Ensure(ctx, change(x.pool), func(ctx context.Context) (bool, error) {
		pool, err := x.config.Cloud.Pool(ctx, id)
		if err != nil {
			return false, err
		}
		x.pool = pool
		var instances []fleet.Instance
		if !busy(pool.ProvisioningState) {
			if is(pool) {
				return true, nil
			}
			if instances, err = x.config.Cloud.Instances(ctx, id); err != nil {
				return false, err
			}
		}
		if why := unrest(pool, instances); why != "" && x.waitsForRest(p, row, why) {
			waits = why
			return false, &fleet.Error{Op: "change scale set", Resource: string(id), Kind: fleet.KindBlocked, Err: errors.New("it is not at rest: " + why)}
		}
		if is(pool) {
			return true, nil
		}
		if err = begin(ctx, pool); err == nil && pool.Etag != asked {
			err = &fleet.Error{Op: "change scale set", Resource: string(id), Kind: fleet.KindStale, Err: errors.New("it changed since it was read")}
		}
		return false, err
	})
	switch {
	case waits != "":
		return in(restEvery, "waiting until scale set %s is at rest: %s", id.Name(), waits), nil
	case fleet.Is(err, fleet.KindStale):
		x.pool = fleet.Pool{}
	}
	return w, err
}

// waitsForRest reports whether a row still waits. After restFor it notes that it does not.
func (x *ScaleSet) waitsForRest(p *workflow.Pass, row, why string) bool {
	now := x.config.Now()
	if x.restless[row].IsZero() {
		x.restless[row] = now
	}
	if now.Sub(x.restless[row]) < restFor {
		return true
	}
	p.Note("scale set %s did not come to rest within %s (%s): it was changed all the same", x.pool.Name, restFor, why)
	return false
}

// Usable gives a version, and refuses one that a new instance could not be made from.
func Usable(ctx context.Context, cloud azure.Cloud, id fleet.ResourceID) (fleet.ImageVersion, error) {
	v, err := cloud.Version(ctx, id)
	switch {
	case fleet.Is(err, fleet.KindNotFound):
		err = invalid("patch model", string(id), "", "it was deleted")
	case err == nil && v.ProvisioningState != prototype.Succeeded:
		err = invalid("patch model", string(id), "", "it is %s", v.ProvisioningState)
	}
	return v, err
}

// MayPatch looks again at what preflight found of the scale set.
func MayPatch(pool fleet.Pool, allowRolling, excludeFromLatest, allowOwned bool) error {
	if problems := prototype.ModelProblems(pool, allowRolling, excludeFromLatest, allowOwned); len(problems) > 0 {
		return invalid("patch model", string(pool.ID), problems[0].WayOut, "%s", problems[0].What)
	}
	return nil
}

// CustomData gives the customData with a SHA-256: the no-op of a baked model, or what is
// kept in a Secret.
func CustomData(ctx context.Context, c cluster.Cluster, pool fleet.ResourceID, sha string) (fleet.Secret, error) {
	if IsNoop(sha) {
		return fleet.NewSecret(noop), nil
	}
	kept, err := c.Kept(ctx, pool, "customData", sha)
	return kept.Data, err
}

// IsNoop reports whether a SHA-256 is that of a baked model's customData.
func IsNoop(sha string) bool { return sha == noopSHA }
