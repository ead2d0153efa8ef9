package prototype

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// Names are those of everything that a capture makes. They are deterministic,
// so that a repeat finds what was made before, and kamino's where kamino has
// one, so that an existing gallery is adopted.
type Names struct {
	Gallery     fleet.ResourceID `json:"gallery"`
	Definition  fleet.ResourceID `json:"definition"`
	Version     fleet.ResourceID `json:"version"`
	Snapshot    fleet.ResourceID `json:"snapshot"`    // of the donor's disk
	WorkDisk    fleet.ResourceID `json:"workDisk"`    // made from Snapshot, generalised
	Generalized fleet.ResourceID `json:"generalized"` // snapshot of WorkDisk
}

// maxName is Azure's limit of the names of galleries, image definitions,
// snapshots and disks. Resource groups may have 90 characters, and scale sets 64.
const maxName = 80

// DefinitionOf gives the pool's image definition. A group's name may have
// letters, dashes and parentheses that a gallery's may not.
func DefinitionOf(pool fleet.ResourceID) fleet.ResourceID {
	gallery := "SIG_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '.' {
			return r
		}
		return '_'
	}, pool.Segment("resourceGroups"))
	if len(gallery) > maxName {
		gallery = gallery[:maxName]
	}
	return pool.In("galleries", gallery).Child("images", fit("kamino-", pool.Name(), "-prototype"))
}

// fit puts a pool's name between two others, shortened where it has to be, and
// then with a hash that keeps it apart from others that begin alike.
func fit(before, name, after string) string {
	if len(before)+len(name)+len(after) <= maxName {
		return before + name + after
	}
	hash := "-" + SHA256(strings.ToLower(name))[:8]
	most := maxName - len(before) - len(hash) - len(after)
	return before + strings.ToValidUTF8(name[:most], "") + hash + after
}

// NamesOf gives the names of a capture of the pool, for a version's name.
func NamesOf(pool fleet.ResourceID, version string) Names {
	definition := DefinitionOf(pool)
	return Names{
		Gallery:     definition.Parent(),
		Definition:  definition,
		Version:     definition.Child("versions", version),
		Snapshot:    pool.In("snapshots", fit("snapshot_", pool.Name(), "")),
		WorkDisk:    pool.In("disks", fit("disk_", pool.Name(), "_work")),
		Generalized: pool.In("snapshots", fit("snapshot_", pool.Name(), "_generalized")),
	}
}

// maxPodName is what fits in a label too.
const maxPodName = 63

// JobName names the pod that generalises: lower-case letters, digits and
// dashes, unique for the capture and, but for very long names, the pool.
func JobName(pool fleet.ResourceID, capture string) string {
	clean := func(s string) string {
		return strings.Trim(strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
				return r
			}
			return '-'
		}, strings.ToLower(s)), "-")
	}
	end := "-" + clean(capture)
	begin := "ortet-generalize-" + clean(pool.Name())
	if len(begin)+len(end) > maxPodName {
		begin = strings.TrimRight(begin[:maxPodName-len(end)], "-")
	}
	return begin + end
}

// VersionName gives the day's version, YYYY.MM.DD in UTC, or with again one
// that no other second has, YYYY.MMDD.HHMMSS.
func VersionName(now time.Time, again bool) string {
	if again {
		return now.UTC().Format("2006.0102.150405")
	}
	return now.UTC().Format("2006.01.02")
}

// AgainNamed reports whether a version has a name of VersionName's with again. It
// is higher than every date's until the end of the year.
var AgainNamed = regexp.MustCompile(`^\d{4}\.\d{3,4}\.\d{1,6}$`).MatchString

// TodaysVersion names the version that a capture without again finds or makes: of
// today's, under either name, the newest that is of use and nobody rolled back from.
func TodaysVersion(versions []fleet.ImageVersion, now time.Time) string {
	day, further := VersionName(now, false), now.UTC().Format("2006.0102.")
	for _, v := range NewestFirst(versions) {
		if (v.Name == day || strings.HasPrefix(v.Name, further)) && Ours(v.Tags) && !RolledBack(v) &&
			v.ProvisioningState != Failed && v.ProvisioningState != Deleting {
			return v.Name
		}
	}
	return day
}

// CaptureName names a capture that begins now, unlike the pool's previous one.
func CaptureName(now time.Time, previous string) string {
	name := now.UTC().Format("20060102-150405")
	if previous != name && !strings.HasPrefix(previous, name+"-") {
		return name
	}
	n := 1
	if _, err := fmt.Sscanf(strings.TrimPrefix(previous, name), "-%d", &n); err != nil {
		n = 1
	}
	return fmt.Sprintf("%s-%d", name, n+1)
}

// NewDefinition gives the pool's image definition, fitting the donor. All
// features are set, since Azure's defaults changed with its API versions.
func NewDefinition(id fleet.ResourceID, o Observed, tags map[string]string) fleet.Definition {
	d := fleet.Definition{
		ID: id, Location: o.Pool.Location, Publisher: "VMSS-Prototype-Pattern", Offer: id.Segment("resourceGroups"), SKU: o.Pool.Name,
		OSState: "Generalized", Linux: true, Generation: generation(o), Architecture: architecture(o), Controllers: "SCSI",
		Accelerated: o.Pool.Model.Accelerated, Tags: tags,
	}
	if d.Generation == "V2" {
		d.SecurityType = "Standard"
		if strings.EqualFold(securityType(o), "TrustedLaunch") {
			d.SecurityType = "TrustedLaunch"
		}
		if needsNVMe(o) || strings.Contains(strings.ToUpper(o.Disk.Controllers), "NVME") {
			d.Controllers = "SCSI, NVMe"
		}
	}
	return d
}

// needsNVMe reports whether the pool's machines have their disks by NVMe: its model says
// so, or its size knows nothing else.
func needsNVMe(o Observed) bool {
	known := o.size().Controllers
	only := len(known) > 0 && !slices.ContainsFunc(known, func(c string) bool { return strings.EqualFold(c, "SCSI") })
	return o.Pool.Model.NVMe || only
}

func generation(o Observed) string { return cmp.Or(o.Disk.Generation, o.Instance.Generation, "V1") }

func architecture(o Observed) string {
	return cmp.Or(o.Disk.Architecture, o.size().Architecture, "x64")
}

func securityType(o Observed) string {
	return cmp.Or(o.Instance.SecurityType, o.Disk.SecurityType, o.Pool.Model.SecurityType, "Standard")
}
