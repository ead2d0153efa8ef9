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
	// restFor limits how long a change waits until the scale set is at rest: Azure gives
	// up on an instance that does not start within 20 minutes.
	restFor = 20 * time.Minute
	// restEvery is how often a scale set is read until it is at rest.
	restEvery = 20 * time.Second
)

// unrest says which operation a scale set has in progress; "" if it is at rest.
func unrest(pool fleet.Pool, instances []fleet.Instance) string {
	if busy(pool.ProvisioningState) {
		return "the scale set is " + pool.ProvisioningState
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
	restless map[string]time.Time // by row: since when it waits for the scale set to be at rest
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

// Change makes a change of the scale set while that is at rest, since a newer write
// preempts an older one (OperationPreempted), and only if the set is still as it was read.
// begin is called right before the write, and may refuse it.
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
			return false, &fleet.Error{Op: "change scale set", Resource: string(id), Kind: fleet.KindBlocked, Err: errors.New("not at rest: " + why)}
		}
		if is(pool) {
			return true, nil
		}
		if err = begin(ctx, pool); err == nil && pool.Etag != asked {
			err = &fleet.Error{Op: "change scale set", Resource: string(id), Kind: fleet.KindStale, Err: errors.New("scale set changed since it was read")}
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

// waitsForRest reports whether a row has to wait longer. After restFor it adds a note and
// reports false.
func (x *ScaleSet) waitsForRest(p *workflow.Pass, row, why string) bool {
	now := x.config.Now()
	if x.restless[row].IsZero() {
		x.restless[row] = now
	}
	if now.Sub(x.restless[row]) < restFor {
		return true
	}
	p.Note("scale set %s was not at rest after %s (%s): it was changed nevertheless", x.pool.Name, restFor, why)
	return false
}

// Usable returns an image version, or an error if no instance can be created from it.
func Usable(ctx context.Context, cloud azure.Cloud, id fleet.ResourceID) (fleet.ImageVersion, error) {
	v, err := cloud.Version(ctx, id)
	switch {
	case fleet.Is(err, fleet.KindNotFound):
		err = invalid("patch model", string(id), "", "the version was deleted")
	case err == nil && v.ProvisioningState != prototype.Succeeded:
		err = invalid("patch model", string(id), "", "the version is %s", v.ProvisioningState)
	}
	return v, err
}

// MayPatch repeats preflight's checks of the model, right before it is changed.
func MayPatch(pool fleet.Pool, allowRolling, excludeFromLatest, allowOwned bool) error {
	if problems := prototype.ModelProblems(pool, allowRolling, excludeFromLatest, allowOwned); len(problems) > 0 {
		return invalid("patch model", string(pool.ID), problems[0].WayOut, "%s", problems[0].What)
	}
	return nil
}

// CustomData returns the customData that has this SHA-256: the no-op of a baked model, or
// what was saved in a Secret.
func CustomData(ctx context.Context, c cluster.Cluster, pool fleet.ResourceID, sha string) (fleet.Secret, error) {
	if IsNoop(sha) {
		return fleet.NewSecret(noop), nil
	}
	kept, err := c.Kept(ctx, pool, "customData", sha)
	return kept.Data, err
}

// IsNoop reports whether a SHA-256 is that of a baked model's customData.
func IsNoop(sha string) bool { return sha == noopSHA }
