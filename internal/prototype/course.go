package prototype

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// NoopCustomData does nothing at boot; kamino's.
const NoopCustomData = "#cloud-config\n"

// noopSHA is what a version's TagCustomData is that needs no customData.
func noopSHA() string {
	sum := sha256.Sum256([]byte(NoopCustomData))
	return hex.EncodeToString(sum[:])
}

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
	Start Start
	// Version is what was found under today's name, where Start is AtVersion.
	Version  *fleet.ImageVersion
	Problems []fleet.Problem
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
	refuse := func(on fleet.ResourceID, code, what, wayOut string) {
		c.Problems = append(c.Problems, fleet.Problem{Code: code, On: string(on), What: what, WayOut: wayOut})
	}
	if v, ok := FindVersion(o.Versions, names.Version); ok {
		switch {
		case RolledBack(v):
			refuse(v.ID, "RolledBack", "today's version was rolled back at "+v.Tags[fleet.TagRolledBack]+" and is not brought back by itself",
				"say --again to make another today, or ortet rollback --to "+v.Name+" to use it after all")
			c.Start, c.Version = AtVersion, &v
			return c
		case v.ProvisioningState == Failed && Ours(v.Tags):
			c.Notes = append(c.Notes, "today's version "+v.Name+" is Failed: it is deleted and built again")
		case v.ProvisioningState == Deleting:
			c.Notes = append(c.Notes, "today's version "+v.Name+" is being deleted: it is built again")
		case !Ours(v.Tags):
			refuse(v.ID, "ForeignVersion", "a version of today's name is there that neither Ortet nor kamino made",
				"say --again to make another today, or delete it")
			c.Start, c.Version = AtVersion, &v
			return c
		default:
			c.Start, c.Version = AtVersion, &v
			if o.Pool != nil {
				if used, ok := VersionOf(o.Versions, o.Pool.Model.Image, o.Pool.Location); ok && Newer(used, v) {
					refuse(v.ID, "OlderVersion", "today's version "+v.Name+" is older than "+used.Name+", which the model uses",
						"say --again to make another today, or ortet rollback --to "+v.Name+" to go back to it")
				}
			}
			if custom := v.Tags[fleet.TagCustomData]; options.Bakes() && custom != "" && custom != noopSHA() {
				refuse(v.ID, "OtherBootstrap", "today's version was made with --bootstrap keep: its nodes need the model's customData to join",
					"say --again to make another today, or --bootstrap keep")
			}
			if from := v.Tags[fleet.TagBuiltFrom]; from != "" && !strings.EqualFold(from, options.Node) {
				c.Notes = append(c.Notes, fmt.Sprintf("today's version %s was built from %s; say --again to make one from %s", v.Name, from, options.Node))
			}
			return c
		}
	}
	today := func(s *fleet.Snapshot, tag string) bool {
		at, err := time.Parse(fleet.BuiltAtLayout, s.Tags[fleet.TagBuiltAt])
		return err == nil && Day(at) == Day(now) && !options.Again && s.ProvisioningState == Succeeded &&
			s.Tags[tag] != "" && strings.EqualFold(s.Tags[fleet.TagBuiltFrom], options.Node)
	}
	look := func(s *fleet.Snapshot, tag string, start Start) {
		switch {
		case s == nil:
		case s.Tags[fleet.TagCapture] == "":
			refuse(s.ID, "ForeignSnapshot", "a snapshot of this name exists that Ortet did not make",
				"delete it if it is not needed: az snapshot delete --ids "+string(s.ID))
		case today(s, tag):
			c.Start = max(c.Start, start)
		default:
			c.Notes = append(c.Notes, "a snapshot that an earlier capture left is replaced: "+s.ID.Name())
		}
	}
	look(o.Snapshot, fleet.TagCapture, AtSnapshot)
	look(o.Generalized, fleet.TagGeneralized, AtGeneralized)
	if d := o.WorkDisk; d != nil && d.Tags[fleet.TagCapture] == "" {
		refuse(d.ID, "ForeignDisk", "a disk of this name exists that Ortet did not make",
			"delete it if it is not needed: az disk delete --ids "+string(d.ID))
	}
	return c
}
