// Package azure is what Ortet asks of the cloud, in the fleet's words: the port and
// its decorators (retry, limit, audit). The adapter to Azure Resource Manager is azure/arm.
//
// Every method returns a *fleet.Error. Reads are fresh: nothing is cached, since
// Azure says success where nothing happened and failure where it did, and only
// a fresh GET tells.
package azure

import (
	"context"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// Reader observes. A missing resource is fleet.KindNotFound.
type Reader interface {
	// Now returns Azure's time, as of its last answer, with fleet.ClockPrecision.
	Now() time.Time
	// Pool returns a scale set and its model.
	Pool(ctx context.Context, id fleet.ResourceID) (fleet.Pool, error)
	// Instances lists a pool's instances with their instance views.
	Instances(ctx context.Context, pool fleet.ResourceID) ([]fleet.Instance, error)
	// Instance returns one instance, or one virtual machine, with its instance view. Where
	// Azure does not show a Flexible set's member below the set, Protection is the zero value.
	Instance(ctx context.Context, id fleet.ResourceID) (fleet.Instance, error)
	// Machines lists the virtual machines of a resource group, by their ids in lower case,
	// each with its scale set; "" where it is in none.
	Machines(ctx context.Context, group fleet.ResourceID) (map[fleet.ResourceID]fleet.ResourceID, error)
	Disk(ctx context.Context, id fleet.ResourceID) (fleet.Disk, error)
	Snapshot(ctx context.Context, id fleet.ResourceID) (fleet.Snapshot, error)
	EncryptionSet(ctx context.Context, id fleet.ResourceID) (fleet.EncryptionSet, error)
	Gallery(ctx context.Context, id fleet.ResourceID) (fleet.Gallery, error)
	Definition(ctx context.Context, id fleet.ResourceID) (fleet.Definition, error)
	// Definitions lists a gallery's image definitions, in no order. A missing gallery has none.
	Definitions(ctx context.Context, gallery fleet.ResourceID) ([]fleet.Definition, error)
	// Versions lists a definition's versions with their replication status,
	// in no order. A missing definition has none.
	Versions(ctx context.Context, definition fleet.ResourceID) ([]fleet.ImageVersion, error)
	// Version returns one version with its replication status, for one request
	// however many the definition has.
	Version(ctx context.Context, id fleet.ResourceID) (fleet.ImageVersion, error)
	// Uses lists who refers to definitions of one gallery or to one of their versions:
	// models and instances of all scale sets, and virtual machines, of the
	// gallery's resource group.
	Uses(ctx context.Context, definitions ...fleet.ResourceID) ([]fleet.ImageUse, error)
	// StandbyPools lists the standby pools of a Flexible scale set, for one request; none where
	// their provider is not registered.
	StandbyPools(ctx context.Context, pool fleet.ResourceID) ([]fleet.StandbyPool, error)
	// Size says what a VM size can do in a region.
	Size(ctx context.Context, subscription, location, size string) (fleet.SizeInfo, error)
	// Sizes says what VM sizes can do in a region, by their names in lower case, in one
	// request. A size that is not offered there is missing.
	Sizes(ctx context.Context, subscription, location string, sizes ...string) (map[string]fleet.SizeInfo, error)
	// Usages returns a region's quotas of vCPUs by their names in lower case: SizeInfo.Family,
	// "cores" of all, "lowprioritycores" of Spot machines.
	Usages(ctx context.Context, subscription, location string) (map[string]fleet.Usage, error)
	// Denied returns those of the actions ("Microsoft.Compute/disks/write") that
	// the credentials may not do on the scope, by the permissions API: it tries
	// nothing.
	Denied(ctx context.Context, scope fleet.ResourceID, actions []string) ([]string, error)
}

// Changer changes. A change is long-running: Begin hands it over and gives a
// token at once, Poll asks how far it is.
type Changer interface {
	// Begin starts the change. The token is "" where the change was complete at
	// once, or was there already. Where somebody began the same creation
	// before, the token follows theirs. What exists under the name but was made
	// from something else is fleet.KindConflict, and so is anything under way
	// on the target that the change cannot join. A change whose Etag is not the
	// target's any more is fleet.KindStale. A fleet.ProtectInstance that Azure
	// refuses for all members of a Flexible scale set is fleet.KindUnsupported.
	// After an error the change may have
	// begun all the same, but for KindStale: observe before repeating.
	Begin(ctx context.Context, change fleet.Change) (fleet.Token, error)
	// Poll asks once, without waiting. Progress.Done says that the operation
	// has ended; an error beside it is its failed or cancelled end. An error
	// without Done concerns the asking only, and the operation goes on: ask
	// again where the kind allows. There, fleet.KindNotFound is an operation
	// that the cloud has forgotten, and fleet.KindInvalid a token that cannot
	// be read: observe the target instead.
	Poll(ctx context.Context, token fleet.Token) (fleet.Progress, error)
}

// Cloud is all of it.
type Cloud interface {
	Reader
	Changer
}

// VersionsOf lists the versions of image definitions, none of one that does not exist.
func VersionsOf(ctx context.Context, r Reader, definitions ...fleet.ResourceID) (versions []fleet.ImageVersion, err error) {
	for _, id := range definitions {
		more, err := r.Versions(ctx, id)
		if fleet.IgnoreNotFound(err) != nil {
			return nil, err
		}
		versions = append(versions, more...)
	}
	return versions, nil
}
