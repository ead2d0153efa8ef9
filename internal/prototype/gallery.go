package prototype

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
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

// Provisioning states, as Azure spells them.
const (
	Succeeded = "Succeeded"
	Creating  = "Creating"
	Updating  = "Updating"
	Migrating = "Migrating"
	Failed    = "Failed"
	Deleting  = "Deleting"
)

// RolledBack reports whether somebody went back from the version.
func RolledBack(v fleet.ImageVersion) bool { return v.Tags[fleet.TagRolledBack] != "" }

// Ours reports whether Ortet or kamino made what has these tags.
func Ours(tags map[string]string) bool {
	return tags[fleet.TagCapture] != "" || tags[fleet.TagBuiltFrom] != ""
}

// NewestFirst sorts by publishing date; names decide only between equal dates,
// since they do not order: 2026.1121.090000 was not made after 2027.01.01, and
// is a higher version than 2026.12.01.
func NewestFirst(versions []fleet.ImageVersion) []fleet.ImageVersion {
	sorted := slices.Clone(versions)
	slices.SortStableFunc(sorted, func(a, b fleet.ImageVersion) int {
		return cmp.Or(b.Published.Compare(a.Published), compareNumbers(b.Name, a.Name))
	})
	return sorted
}

// compareNumbers orders version names as Azure's "latest" does.
func compareNumbers(a, b string) int {
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(x, y string) int {
		m, errM := strconv.Atoi(x)
		n, errN := strconv.Atoi(y)
		if errM != nil || errN != nil {
			return strings.Compare(x, y)
		}
		return cmp.Compare(m, n)
	})
}

// FindVersion gives the version with the id, in any letter case.
func FindVersion(versions []fleet.ImageVersion, id fleet.ResourceID) (fleet.ImageVersion, bool) {
	i := slices.IndexFunc(versions, func(v fleet.ImageVersion) bool { return v.ID.Equal(id) })
	if i < 0 {
		return fleet.ImageVersion{}, false
	}
	return versions[i], true
}

// Newer reports whether a version that Ortet or kamino made was built after
// another, by Azure's clock: the names are those of clocks that may be wrong.
func Newer(a, b fleet.ImageVersion) bool {
	return Ours(a.Tags) && !b.Published.IsZero() && a.Published.After(b.Published)
}

// Latest gives what the definition of the versions stands for in a region, as Azure
// resolves it: the highest number that is there and not excluded. The region ""
// is any.
func Latest(versions []fleet.ImageVersion, region string) (latest fleet.ImageVersion, found bool) {
	for _, v := range versions {
		there := region == "" || len(v.Regions) == 0 ||
			slices.ContainsFunc(v.Regions, func(r string) bool { return fleet.SameRegion(r, region) })
		if there && serves(v) && !v.ExcludeFromLatest && (!found || compareNumbers(v.Name, latest.Name) > 0) {
			latest, found = v, true
		}
	}
	return latest, found
}

// serves reports whether instances can be made from the version; while it is
// updated they can.
func serves(v fleet.ImageVersion) bool {
	return v.ProvisioningState == Succeeded || v.ProvisioningState == Updating
}

// VersionOf gives the version that an image reference stands for in a region: the
// one that it names, that an instance with it runs, or the definition's latest.
func VersionOf(versions []fleet.ImageVersion, image fleet.ImageReference, region string) (fleet.ImageVersion, bool) {
	if id := image.Exact(); id != "" {
		return FindVersion(versions, id)
	}
	definition := image.LatestOf()
	return Latest(slices.DeleteFunc(slices.Clone(versions), func(v fleet.ImageVersion) bool {
		return !v.ID.Parent().Equal(definition)
	}), region)
}

// A Spared version lies beyond the history and stays.
type Spared struct {
	Version fleet.ImageVersion
	Why     string
}

// leastGood is how many versions are kept that nobody rolled back from: the
// newest, and one to go back to.
const leastGood = 2

// Prune says which versions go when the newest history are kept. Never goes:
// the version named current, the one to go back to from it, one that a model or instance refers to or
// runs (or that "latest" would give to one that refers to the definition; any,
// where Azure does not say what such an instance runs), one whose deletion Azure
// blocks, one that is in the making, and one that neither Ortet nor kamino made.
func Prune(versions []fleet.ImageVersion, uses []fleet.ImageUse, current fleet.ResourceID, history int) (doomed []fleet.ImageVersion, spared []Spared) {
	used := map[string]fleet.ResourceID{}
	var byLatest, unknown fleet.ResourceID
	for _, u := range uses {
		if (fleet.ImageReference{ID: u.Image}).LatestOf() == "" {
			used[strings.ToLower(string(u.Image))] = u.By
			continue
		}
		byLatest = u.By
		runs := func(x fleet.ImageUse) bool { return x.By.Equal(u.By) && !x.Image.Equal(u.Image) }
		if u.By.Segment("virtualMachines") != "" && !slices.ContainsFunc(uses, runs) {
			unknown = u.By
		}
	}
	latest := latestOf(versions)
	kept, good := 0, 0
	if _, there := FindVersion(versions, current); !there {
		kept, good = 1, 1 // it is about to be made
	}
	for _, v := range NewestFirst(versions) {
		spare := func(why string) { spared = append(spared, Spared{Version: v, Why: why}) }
		counts := v.ProvisioningState == Succeeded && Ours(v.Tags)
		if v.ID.Equal(current) || counts && (kept < history || good < leastGood && !RolledBack(v)) {
			kept++
			if !RolledBack(v) {
				good++
			}
			continue
		}
		by, isUsed := used[strings.ToLower(string(v.ID))]
		switch {
		case isUsed:
			spare(fmt.Sprintf("%s refers to it", by))
		case byLatest != "" && latest[strings.ToLower(v.Name)]:
			spare(fmt.Sprintf("%s refers to the latest version", byLatest))
		case unknown != "":
			spare(fmt.Sprintf("%s may run it: Azure does not report its version", unknown))
		case v.DeletionBlocked:
			spare("its deletion is blocked until its end of life")
		case !Ours(v.Tags):
			spare("neither Ortet nor kamino made it")
		case v.ProvisioningState == Succeeded, v.ProvisioningState == Failed:
			doomed = append(doomed, v)
		default:
			spare("it is " + v.ProvisioningState)
		}
	}
	return doomed, spared
}

// latestOf gives the names that "latest" may mean: Azure goes by number, in each
// region, people by date; all are safe.
func latestOf(versions []fleet.ImageVersion) map[string]bool {
	names := map[string]bool{}
	for _, v := range versions {
		for _, region := range append([]string{""}, v.Regions...) {
			if latest, ok := Latest(versions, region); ok {
				names[strings.ToLower(latest.Name)] = true
			}
		}
	}
	sorted := NewestFirst(versions)
	if i := slices.IndexFunc(sorted, func(v fleet.ImageVersion) bool { return serves(v) && !v.ExcludeFromLatest }); i >= 0 {
		names[strings.ToLower(sorted[i].Name)] = true
	}
	return names
}
