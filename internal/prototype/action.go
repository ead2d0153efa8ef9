package prototype

import (
	"github.com/ortet/ortet/internal/fleet"
)

// CaptureChanges gives a zero change of every verb that a capture of the course
// may ask for, so that preflight knows which permissions it needs. Undoing
// needs no others.
func CaptureChanges(options Request, course Course) []fleet.Change {
	changes := []fleet.Change{fleet.DeleteSnapshot{}, fleet.DeleteVersion{}, fleet.PatchModel{}}
	if !options.Extensions.None {
		changes = append(changes, fleet.DeleteExtension{})
	}
	if options.NewNodes > 0 {
		changes = append(changes, fleet.SetCapacity{})
	}
	if course.Start < AtVersion {
		changes = append(changes, fleet.CreateGallery{}, fleet.CreateDefinition{}, fleet.CreateVersion{})
	}
	if course.NeedsWorkbench() {
		changes = append(changes, fleet.ProtectInstance{}, fleet.CreateSnapshot{}, fleet.CreateDisk{}, fleet.DeleteDisk{}, fleet.AttachDisk{}, fleet.DetachDisk{})
	}
	if course.FromDonor() {
		changes = append(changes, fleet.StopInstance{Deallocate: options.Deallocate}, fleet.StartInstance{})
	}
	return changes
}

// RollbackChanges gives those of a rollback.
func RollbackChanges() []fleet.Change {
	return []fleet.Change{fleet.PatchModel{}, fleet.TagVersion{}}
}
