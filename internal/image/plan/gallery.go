package plan

import (
	"cmp"
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

// NamesOf returns the names of a capture of the pool's first kind, for a version's name.
func NamesOf(pool fleet.ResourceID, version string) Names {
	return Names{
		Snapshot:    pool.In("snapshots", fit(maxName, "snapshot_", pool.Name(), "")),
		WorkDisk:    pool.In("disks", fit(maxName, "disk_", pool.Name(), "_work")),
		Generalized: pool.In("snapshots", fit(maxName, "snapshot_", pool.Name(), "_generalized")),
	}.Of(DefinitionOf(pool), version)
}

// Of returns the names for a definition of the pool's.
func (n Names) Of(definition fleet.ResourceID, version string) Names {
	n.Gallery, n.Definition, n.Version = definition.Parent(), definition, definition.Child("versions", version)
	return n
}

// fit puts a pool's name between two others, shortened where it has to be, and
// then with a hash that keeps it apart from others that begin alike.
func fit(limit int, before, name, after string) string {
	if len(before)+len(name)+len(after) <= limit {
		return before + name + after
	}
	hash := "-" + SHA256(strings.ToLower(name))[:8]
	most := limit - len(before) - len(hash) - len(after)
	return before + strings.ToValidUTF8(name[:most], "") + hash + after
}

// JobName names a capture's pod; the 63 characters of a label may cut the pool's name.
func JobName(pool fleet.ResourceID, capture string) string {
	begin, end := "ortet-generalize-"+regexp.MustCompile(`[^a-z0-9]`).ReplaceAllString(strings.ToLower(pool.Name()), "-"), "-"+capture
	return begin[:min(len(begin), max(0, 63-len(end)))] + end
}

// CaptureName names a capture that begins now.
func CaptureName(now time.Time) string { return now.UTC().Format("20060102-150405") }

// VersionName returns the day's version, YYYY.MM.DD in UTC, or with again one
// that no other second has, YYYY.MMDD.HHMMSS.
func VersionName(now time.Time, again bool) string {
	return now.UTC().Format(cmp.Or(when(again, "2006.0102.150405"), "2006.01.02"))
}

// AgainNamed reports whether a version has a name of VersionName's with again. It
// is higher than every date's until the end of the year.
func AgainNamed(version string) bool { return len(version) > len("2006.01.02") }

// TodaysVersion names the version that a capture without again finds or makes below a definition: of
// today's, under either name, the newest that is of use and was not rolled back. The day's name is
// not used again where it was deleted while something uses it: what was made of it, as nodes that
// failed, would count as made of the next. Nor is that of a version of another kind of the pool's.
func TodaysVersion(definition fleet.ResourceID, versions []fleet.ImageVersion, uses []fleet.ImageUse, now time.Time) string {
	day, further := VersionName(now, false), now.UTC().Format("2006.0102.")
	for _, v := range NewestFirst(versions) {
		if (v.Name == day || strings.HasPrefix(v.Name, further)) && v.ID.Parent().Equal(definition) && Ours(v.Tags) && !RolledBack(v) &&
			v.ProvisioningState != Failed && v.ProvisioningState != Deleting {
			return v.Name
		}
	}
	there := slices.IndexFunc(versions, func(v fleet.ImageVersion) bool { return v.Name == day })
	if there >= 0 {
		return VersionName(now, !versions[there].ID.Parent().Equal(definition))
	}
	return VersionName(now, slices.ContainsFunc(uses, func(u fleet.ImageUse) bool { return u.Image.Name() == day }))
}

// Provisioning states, as Azure spells them.
const (
	Succeeded = "Succeeded"
	Updating  = "Updating"
	Failed    = "Failed"
	Deleting  = "Deleting"
)

// RolledBack reports whether somebody went back from the version.
func RolledBack(v fleet.ImageVersion) bool { return v.Tags[fleet.TagRolledBack] != "" }

// Unjudged is the value of fleet.TagCanary until the version's clones came up, or it goes live
// without.
const Unjudged = "unjudged"

// IsUnjudged reports whether nothing is known of a version that never was live.
func IsUnjudged(v fleet.ImageVersion) bool { return v.Tags[fleet.TagCanary] == Unjudged }

// IsPublishedOnly reports whether the version was built for another tool, and never was recorded as live.
func IsPublishedOnly(v fleet.ImageVersion) bool { return v.Tags[fleet.TagPublished] != "" }

// NeverLive reports whether no model named the version, as far as Ortet saw. kamino's do not say it,
// and count as live ones.
func NeverLive(v fleet.ImageVersion) bool { return v.Tags[fleet.TagNotLive] != "" }

// IsMarked reports whether the version has a tag of WentLive.
func IsMarked(v fleet.ImageVersion) bool { return NeverLive(v) || IsPublishedOnly(v) }

// WentLive returns the changes of the tags of a version that a model names.
func WentLive() map[string]string {
	return map[string]string{fleet.TagNotLive: "", fleet.TagPublished: ""}
}

func isGood(v fleet.ImageVersion) bool { return !RolledBack(v) && !IsUnjudged(v) && !IsMarked(v) }

// Pending reports whether a capture that uses the version, nil for one that it makes, has to
// change its tags.
func (q Request) Pending(v *fleet.ImageVersion) bool {
	return v == nil && !q.PublishOnly || v != nil && (IsUnjudged(*v) || !q.PublishOnly && IsMarked(*v))
}

// Retried returns the newest version below a definition if it is unjudged, of use, and no older than two days.
func Retried(definition fleet.ResourceID, versions []fleet.ImageVersion, now time.Time) (v fleet.ImageVersion, found bool) {
	for _, v := range NewestFirst(versions) {
		if v.ID.Parent().Equal(definition) && v.ProvisioningState == Succeeded && !RolledBack(v) {
			return v, IsUnjudged(v) && Ours(v.Tags) && now.Sub(v.Published) < 48*time.Hour
		}
	}
	return v, false
}

// Quarantine returns the tags of a version that failed a gate, with the reason as far as it fits
// into Azure's limit of a tag's value, 256 characters.
func Quarantine(now time.Time, why string) map[string]string {
	r := []rune(why)
	return map[string]string{fleet.TagRolledBack: now.UTC().Format(time.RFC3339), fleet.TagQuarantine: string(r[:min(len(r), 250)])}
}

// Ours reports whether Ortet or kamino made what has these tags.
func Ours(tags map[string]string) bool {
	return tags[fleet.TagCapture] != "" || tags[fleet.TagBuiltFrom] != ""
}

// NewestFirst sorts by publishing date. Names give no order: 2026.1121.090000 was made
// before 2026.12.01, and is the higher version.
func NewestFirst(versions []fleet.ImageVersion) []fleet.ImageVersion {
	sorted := slices.Clone(versions)
	slices.SortStableFunc(sorted, func(a, b fleet.ImageVersion) int { return b.Published.Compare(a.Published) })
	return sorted
}

// Newer reports whether a version that Ortet or kamino made was built after
// another, by Azure's clock: the names are those of clocks that may be wrong.
func Newer(a, b fleet.ImageVersion) bool {
	return Ours(a.Tags) && !b.Published.IsZero() && a.Published.After(b.Published)
}

// FindVersion returns the version with the id, in any letter case.
func FindVersion(versions []fleet.ImageVersion, id fleet.ResourceID) (fleet.ImageVersion, bool) {
	i := slices.IndexFunc(versions, func(v fleet.ImageVersion) bool { return v.ID.Equal(id) })
	if i < 0 {
		return fleet.ImageVersion{}, false
	}
	return versions[i], true
}

// VersionOf returns the version that an image reference stands for in a region: the one
// that it names, that an instance with it runs, or as Azure resolves the definition's
// latest, the highest number that is there and not excluded. The region "" is any.
func VersionOf(versions []fleet.ImageVersion, image fleet.ImageReference, region string) (latest fleet.ImageVersion, found bool) {
	if id := image.Exact(); id != "" {
		return FindVersion(versions, id)
	}
	definition := image.LatestOf()
	for _, v := range versions {
		there := region == "" || len(v.Regions) == 0 || slices.ContainsFunc(v.Regions, func(r string) bool { return fleet.SameRegion(r, region) })
		serves := v.ProvisioningState == Succeeded || v.ProvisioningState == Updating
		if there && serves && !v.ExcludeFromLatest && v.ID.Parent().Equal(definition) && (!found || compareNumbers(v.Name, latest.Name) > 0) {
			latest, found = v, true
		}
	}
	return latest, found
}

// compareNumbers orders version names as Azure's "latest" does.
func compareNumbers(a, b string) int {
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(x, y string) int {
		x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y))
	})
}

// A Return is what a rollback comes down to.
type Return struct {
	From        fleet.ResourceID `json:"from,omitempty"` // version that the model uses
	To          fleet.ResourceID `json:"to,omitempty"`   // "" with ToOriginal
	ToOriginal  bool             `json:"toOriginal,omitempty"`
	TagFrom     fleet.ResourceID `json:"tagFrom,omitempty"` // to tag as rolled back; "" if nothing is to be tagged
	Forward     bool             `json:"forward,omitempty"` // TagFrom was not recorded as live: that is its only tag
	Untag       bool             `json:"untag,omitempty"`   // To was rolled back, never judged or never live, and is wanted now
	NothingToDo bool             `json:"-"`                 // the model uses it already, and its tag is right
}

const (
	// Previous asks for the version that was live before the model's, by publishing date; if no
	// such version exists, for ToOriginal.
	Previous = "previous"
	// ToOriginal asks for what the model was before its first capture.
	ToOriginal = "original"
)

// ReturnTo decides what a rollback to a version's name, Previous or ToOriginal comes
// down to, or why it cannot be done. original is nil where it was not recorded.
func ReturnTo(versions []fleet.ImageVersion, pool fleet.Pool, original *Original, to string) (r Return, problems Problems) {
	current, known := VersionOf(versions, pool.Model.Image, pool.Location)
	previous := to == "" || to == Previous
	var target *fleet.ImageVersion
	for _, v := range NewestFirst(versions) {
		older := !known || v.Published.Before(current.Published)
		if v.Name == to || previous && older && v.ProvisioningState == Succeeded && isGood(v) && !v.ID.Equal(current.ID) {
			target = &v
			break
		}
	}
	uses := original != nil && original.Image.Same(pool.Model.Image)
	if previous && uses { // nothing was before it
		target = nil
	}
	refuse, on := problems.Refuse, string(cmp.Or(NamedDefinition(pool.ID, pool.Model.Image), DefinitionOf(pool.ID)))
	switch {
	case original != nil && (to == ToOriginal || previous && target == nil && !uses):
		return Return{From: current.ID, ToOriginal: true, TagFrom: current.ID, NothingToDo: uses}, nil
	case to == ToOriginal:
		what := when(known, "what the model was before is not recorded: it named an image of this definition already when Ortet "+
			"first captured the pool, as after kamino's vmss-prototype, or the record was deleted")
		wayOut := when(known, "name a version by --to; or set image, customData and extensions by az vmss, from the scale set's template")
		refuse(true, "NoOriginal", on, cmp.Or(what, "no capture of this pool is recorded"),
			cmp.Or(wayOut, "see ortet status for what the model uses"))
	case target == nil && previous && len(versions) == 0 && !known:
		refuse(true, "NoPrevious", string(pool.ID), "it was never captured: no earlier version is kept, and no first capture is recorded",
			"there is nothing to roll back; ortet capture NODE makes its first version")
	case target == nil && previous:
		why := cmp.Or(when(uses, "the model uses the image that it had before it was captured, and nothing earlier is recorded"),
			"no earlier version is kept, and no first capture is recorded")
		refuse(true, "NoPrevious", on, why, "see ortet status for the versions, and name one by --to")
	case target == nil:
		refuse(true, "NoVersion", on, "version "+to+" does not exist", "see ortet status for the versions")
	case target.ProvisioningState != Succeeded:
		refuse(true, "VersionNotReady", on, "version "+target.Name+" is "+target.ProvisioningState, "name one that is Succeeded")
	default:
		uses := target.ID.Equal(pool.Model.Image.ID)
		older := known && target.Published.Before(current.Published)
		untag := !isGood(*target)
		r = Return{From: current.ID, To: target.ID, Untag: untag, NothingToDo: uses && !untag}
		if !uses && (older || IsMarked(current)) {
			r.TagFrom, r.Forward = current.ID, !older
		}
	}
	return r, problems
}

// when returns the value if it applies, else the zero value.
func when[T any](applies bool, value T) (zero T) {
	if applies {
		return value
	}
	return zero
}
