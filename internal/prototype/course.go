package prototype

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// NoopCustomData does nothing at boot; kamino's.
const NoopCustomData = "#cloud-config\n"

// NoopSHA256 is the SHA256 of NoopCustomData.
const NoopSHA256 = "88c95955b024402aa9572b663f7eeb134f01343bb92af27b50e97e72b22c565f"

// SHA256 is the hash by which the Vault and tags name data.
func SHA256(data string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(data))) }

// Start is where a capture's work begins.
type Start int

// Where a capture begins, the whole way first.
const (
	AtDonor       Start = iota // take the donor out of service and snapshot its disk
	AtSnapshot                 // today's snapshot of the donor is there
	AtGeneralized              // so is that of the generalised copy
	AtVersion                  // today's version is there or in the making
)

// A Course is how far today's work has come, by what is there.
type Course struct {
	Start    Start
	Version  *fleet.ImageVersion // of today's name, with AtVersion
	Problems Problems
	Notes    []string
}

// FromDonor reports whether the donor has to leave service.
func (c Course) FromDonor() bool { return c.Start == AtDonor }

// NeedsWorkbench reports whether a copy of the disk has to be worked on.
func (c Course) NeedsWorkbench() bool { return c.Start <= AtSnapshot }

// CourseOf decides where to begin: today's version exists → on to the model;
// today's snapshot exists → on to the build. What has one of the names and is
// not ours is a problem.
func CourseOf(o Observed, names Names, options Request, now time.Time) (c Course) {
	refuse := c.Problems.Refuse
	if v, found := FindVersion(o.Versions, names.Version); found {
		if RolledBack(v) || v.ProvisioningState != Deleting && !(v.ProvisioningState == Failed && Ours(v.Tags)) {
			return ofVersion(o, v, options)
		}
		c.Notes = append(c.Notes, "today's version "+v.Name+" is "+v.ProvisioningState+": it is built again")
	}
	look := func(s *fleet.Snapshot, tag string, start Start) {
		if s == nil {
			return
		}
		refuse(s.Tags[fleet.TagCapture] == "", "ForeignSnapshot", string(s.ID), "a snapshot of this name exists that Ortet did not make",
			"delete it if it is not needed: az snapshot delete --ids "+string(s.ID))
		at, err := time.Parse(fleet.BuiltAtLayout, s.Tags[fleet.TagBuiltAt])
		if err == nil && VersionName(at, false) == VersionName(now, false) && !options.Again && s.ProvisioningState == Succeeded &&
			s.Tags[tag] != "" && strings.EqualFold(s.Tags[fleet.TagBuiltFrom], options.Node) {
			c.Start = max(c.Start, start)
		} else if s.Tags[fleet.TagCapture] != "" {
			c.Notes = append(c.Notes, "a snapshot that an earlier capture left is replaced: "+s.ID.Name())
		}
	}
	look(o.Snapshot, fleet.TagCapture, AtSnapshot)
	look(o.Generalized, fleet.TagGeneralized, AtGeneralized)
	if d := o.WorkDisk; d != nil {
		refuse(d.Tags[fleet.TagCapture] == "", "ForeignDisk", string(d.ID), "a disk of this name exists that Ortet did not make",
			"delete it if it is not needed: az disk delete --ids "+string(d.ID))
	}
	return c
}

// ofVersion begins at today's version, and says what speaks against its use.
func ofVersion(o Observed, v fleet.ImageVersion, q Request) Course {
	c := Course{Start: AtVersion, Version: &v}
	refuse, on, back := c.Problems.Refuse, string(v.ID), "ortet rollback --to "+v.Name
	refuse(RolledBack(v), "RolledBack", on, "today's version was rolled back at "+v.Tags[fleet.TagRolledBack]+" and is not brought back by itself",
		"say --again to make another today, or "+back+" to use it after all")
	refuse(!RolledBack(v) && !Ours(v.Tags), "ForeignVersion", on, "a version of today's name is there that neither Ortet nor kamino made",
		"say --again to make another today, or delete it")
	used, known := VersionOf(o.Versions, o.Pool.Model.Image, o.Pool.Location)
	refuse(known && Newer(used, v), "OlderVersion", on, "today's version "+v.Name+" is older than "+used.Name+", which the model uses",
		"say --again to make another today, or "+back+" to go back to it")
	custom := v.Tags[fleet.TagCustomData]
	refuse(q.Bakes() && custom != "" && custom != NoopSHA256, "OtherBootstrap", on,
		"today's version was made with --bootstrap keep: its nodes need the model's customData to join", "say --again to make another today, or --bootstrap keep")
	if from := v.Tags[fleet.TagBuiltFrom]; from != "" && !strings.EqualFold(from, q.Node) {
		c.Notes = append(c.Notes, fmt.Sprintf("today's version %s was built from %s; say --again to make one from %s", v.Name, from, q.Node))
	}
	return c
}

// CaptureChanges gives a zero change of every verb that a capture of the course
// may ask for, so that preflight knows which permissions it needs. Undoing
// needs no others.
func CaptureChanges(options Request, course Course) (changes []fleet.Change) {
	add := func(applies bool, more ...fleet.Change) {
		if applies {
			changes = append(changes, more...)
		}
	}
	add(true, fleet.DeleteSnapshot{}, fleet.DeleteVersion{}, fleet.PatchModel{})
	add(!options.Extensions.None, fleet.DeleteExtension{})
	add(options.NewNodes > 0, fleet.SetCapacity{})
	add(course.Start < AtVersion, fleet.CreateGallery{}, fleet.CreateDefinition{}, fleet.CreateVersion{})
	add(course.NeedsWorkbench(), fleet.ProtectInstance{}, fleet.CreateSnapshot{}, fleet.CreateDisk{}, fleet.DeleteDisk{}, fleet.AttachDisk{}, fleet.DetachDisk{})
	add(course.FromDonor(), fleet.StopInstance{Deallocate: options.Deallocate}, fleet.StartInstance{})
	return changes
}
