package arm

import (
	"context"
	"fmt"

	"github.com/ortet/ortet/internal/fleet"
)

// Begin starts a change.
func (c *Cloud) Begin(ctx context.Context, change fleet.Change) (fleet.Token, error) {
	switch ch := change.(type) {
	case fleet.StopInstance:
		return c.stop(ctx, ch)
	case fleet.StartInstance:
		return c.start(ctx, ch)
	case fleet.ProtectInstance:
		return c.protect(ctx, ch)
	case fleet.AttachDisk:
		return c.attach(ctx, ch)
	case fleet.DetachDisk:
		return c.detach(ctx, ch)
	case fleet.CreateSnapshot:
		return c.createSnapshot(ctx, ch)
	case fleet.DeleteSnapshot:
		return c.deleteSnapshot(ctx, ch)
	case fleet.CreateDisk:
		return c.createDisk(ctx, ch)
	case fleet.DeleteDisk:
		return c.deleteDisk(ctx, ch)
	case fleet.CreateGallery:
		return c.createGallery(ctx, ch)
	case fleet.CreateDefinition:
		return c.createDefinition(ctx, ch)
	case fleet.TagDefinition:
		return c.tagDefinition(ctx, ch)
	case fleet.CreateVersion:
		return c.createVersion(ctx, ch)
	case fleet.TagVersion:
		return c.tagVersion(ctx, ch)
	case fleet.PublishVersion:
		return c.publishVersion(ctx, ch)
	case fleet.CreateCanary:
		return c.createCanary(ctx, ch)
	case fleet.DeleteVersion:
		return c.deleteVersion(ctx, ch)
	case fleet.PatchModel:
		return c.patchModel(ctx, ch)
	case fleet.DeleteExtension:
		return c.deleteExtension(ctx, ch)
	case fleet.WriteExtension:
		return c.writeExtension(ctx, ch)
	case fleet.SetCapacity:
		return c.setCapacity(ctx, ch)
	case fleet.SetModelUserData:
		return c.setModelUserData(ctx, ch)
	case fleet.SetUserData:
		return c.setUserData(ctx, ch)
	case fleet.SetSize:
		return c.setSize(ctx, ch)
	case fleet.UpgradeInstances:
		return c.upgradeInstances(ctx, ch)
	case fleet.DeleteInstances:
		return c.deleteInstances(ctx, ch)
	case fleet.DeallocateScaleSet:
		return c.deallocateScaleSet(ctx, ch)
	case fleet.StartScaleSet:
		return c.startScaleSet(ctx, ch)
	case fleet.DeleteScaleSet:
		return c.deleteScaleSet(ctx, ch)
	case fleet.ReimageInstance:
		return c.reimage(ctx, ch)
	case fleet.RestartInstance:
		return c.restart(ctx, ch)
	}
	return "", &fleet.Error{Op: "begin a change", Kind: fleet.KindInvalid, Err: fmt.Errorf("unknown change %T", change)}
}
