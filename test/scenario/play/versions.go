package play

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/test/scenario"
)

// Names of versions: a day's, and one made with --again.
var (
	dayName   = regexp.MustCompile(`^\d{4}\.\d{2}\.\d{2}$`)
	againName = regexp.MustCompile(`^\d{4}\.\d{4}\.\d{6}$`)
)

// An image is a version as it is stored.
type image struct {
	id        fleet.ResourceID
	state     string
	published time.Time
	excluded  bool
	tags      map[string]string
	regions   []string
}

// made reports whether Ortet or kamino made it, and it is of use.
func (i image) made() bool {
	return (i.tags[fleet.TagCapture] != "" || i.tags[fleet.TagBuiltFrom] != "") && (i.state == prototype.Succeeded || i.state == prototype.Updating)
}

func (i image) left() bool { return i.tags[fleet.TagRolledBack] != "" }

// images gives all versions, those published last first.
func (w *world) images() (all []image) {
	w.azure.View(func(v *azsim.View) {
		v.Each("Microsoft.Compute/galleries/images/versions", func(id string, body any) {
			r, ok := body.(*armcompute.GalleryImageVersion)
			if !ok || r.Properties == nil {
				return
			}
			i := image{id: fleet.ResourceID(id), tags: map[string]string{}}
			if r.Properties.ProvisioningState != nil {
				i.state = string(*r.Properties.ProvisioningState)
			}
			for k, t := range r.Tags {
				if t != nil {
					i.tags[k] = *t
				}
			}
			if p := r.Properties.PublishingProfile; p != nil {
				i.excluded = p.ExcludeFromLatest != nil && *p.ExcludeFromLatest
				if p.PublishedDate != nil {
					i.published = *p.PublishedDate
				}
				for _, region := range p.TargetRegions {
					i.regions = append(i.regions, *region.Name)
				}
			}
			all = append(all, i)
		})
	})
	slices.SortStableFunc(all, func(a, b image) int { return b.published.Compare(a.published) })
	return all
}

func imageAt(all []image, id fleet.ResourceID) (image, bool) {
	if i := slices.IndexFunc(all, func(i image) bool { return i.id.Equal(id) }); i >= 0 {
		return all[i], true
	}
	return image{}, false
}

// requested is what of its request a capture's record has.
type requested struct {
	Again, Deallocate bool
	History           int
	Bootstrap         string
}

func (o open) asked() (q requested) {
	if json.Unmarshal(o.Request, &q) != nil || q.History == 0 {
		q.History = usualHistory
	}
	return q
}

// misread reports whether a read was answered with what was before, or with 404: what
// was decided by it is nobody's fault.
func (w *world) misread() bool {
	return slices.ContainsFunc(w.chooser.Happened(), func(e scenario.Event) bool {
		return e.What == scenario.Stale || e.What == scenario.Error && len(e.Args) > 0 && e.Args[0] == "404"
	})
}

// anyJumped reports whether any clock jumped: days and names go by clocks.
func (w *world) anyJumped() bool {
	return slices.ContainsFunc(w.chooser.Happened(), func(e scenario.Event) bool { return e.What == scenario.Clock })
}

// publishing is what a request says of a version.
type publishing struct {
	Tags       map[string]*string
	Properties struct {
		StorageProfile struct {
			OSDiskImage struct {
				Source struct{ ID string }
			}
		}
		PublishingProfile *struct {
			ExcludeFromLatest  *bool
			StorageAccountType string
			ReplicaCount       int
			TargetRegions      []targetRegion
		}
	}
}

type targetRegion struct {
	Name                 string
	RegionalReplicaCount int
}

// judgeVersion looks at a version that is about to be made or changed.
func (w *world) judgeVersion(p *process, rec open, id fleet.ResourceID, r *http.Request) {
	var body publishing
	if json.Unmarshal(bodyOf(r), &body) != nil {
		return
	}
	if r.Method == http.MethodPut {
		w.judgeMade(p, rec, id, body)
		w.judgeImage(p, rec, id.Name(), fleet.ResourceID(body.Properties.StorageProfile.OSDiskImage.Source.ID), body.Tags)
		return
	}
	now, there := imageAt(w.images(), id)
	if !there || r.Method != http.MethodPatch {
		return
	}
	if profile := body.Properties.PublishingProfile; profile != nil {
		switch excludes := profile.ExcludeFromLatest != nil && *profile.ExcludeFromLatest; {
		case !excludes && now.excluded:
			w.broken("%s includes version %s in latest", p.name, id.Name())
		case excludes && !now.excluded && (!againName.MatchString(id.Name()) || !now.made() && now.state != prototype.Failed):
			w.broken("%s excludes version %s from latest, which was not made with --again", p.name, id.Name())
		}
		for _, region := range now.regions {
			if !slices.ContainsFunc(profile.TargetRegions, func(t targetRegion) bool { return fleet.SameRegion(t.Name, region) }) {
				w.broken("%s takes version %s out of %s", p.name, id.Name(), region)
			}
		}
	}
	for k, v := range body.Tags {
		if old, had := now.tags[k]; k != fleet.TagRolledBack && (v == nil && had || v != nil && old != *v) {
			w.broken("%s changes the tag %s of version %s", p.name, k, id.Name())
		}
	}
	if body.Tags != nil {
		for k := range now.tags {
			if _, kept := body.Tags[k]; !kept {
				w.broken("%s leaves out the tag %s of version %s", p.name, k, id.Name())
			}
		}
		if rec.Kind != prototype.KindRollback {
			w.broken("%s tags version %s, and is no rollback", p.name, id.Name())
		}
	}
}

// judgeMade: a version has the name, the place and the tags that the documentation
// says, and is one of latest unless it was made with --again, or would be used by the
// model before the model's customData fits.
func (w *world) judgeMade(p *process, rec open, id fleet.ResourceID, body publishing) {
	name, q := id.Name(), rec.asked()
	profile := body.Properties.PublishingProfile
	wrong := func(what string) { w.broken("%s makes version %s %s", p.name, name, what) }
	if profile == nil {
		wrong("without a publishing profile")
		return
	}
	excluded := profile.ExcludeFromLatest != nil && *profile.ExcludeFromLatest
	early := q.Bootstrap == engine.BootstrapBaked && w.pointedAt().image == `{"id":"`+low(w.names.Definition)+`"}`
	switch {
	case !dayName.MatchString(name) && !againName.MatchString(name):
		wrong("by a name that is not one of a day's")
	case againName.MatchString(name) != q.Again && !w.misread():
		wrong("where --again says otherwise")
	case againName.MatchString(name) && !excluded:
		wrong("as one of latest, above those of the days that follow")
	case early && !excluded:
		wrong("as one of latest, which the model refers to, before its customData is what the nodes need")
	case dayName.MatchString(name) && excluded && !early && len(w.happenedTo("changeModel")) == 0:
		wrong("excluded from latest, which nobody asked for")
	}
	// Its name is of the day on which the capture began, or of preflight just before.
	day := strings.ReplaceAll(name[:min(len(name), len("2026.1122"))], ".", "")
	if dayName.MatchString(name) {
		day = strings.ReplaceAll(name, ".", "")
	}
	begun := rec.Begun.UTC()
	if day != begun.Format("20060102") && day != begun.Add(-time.Hour).Format("20060102") && !w.anyJumped() {
		wrong("on " + begun.Format(time.DateOnly))
	}
	tag := func(k string) string {
		if v := body.Tags[k]; v != nil {
			return *v
		}
		return ""
	}
	for _, k := range []string{fleet.TagCapture, fleet.TagGeneralized, fleet.TagBuiltAt, fleet.TagCreatedBy, fleet.TagReason, fleet.TagCustomData} {
		if tag(k) == "" {
			wrong("without the tag " + k)
		}
	}
	if !strings.EqualFold(tag(fleet.TagBuiltFrom), rec.Donor) {
		wrong("as built from " + tag(fleet.TagBuiltFrom) + ", and not from " + rec.Donor)
	}
	if w.story.Donor.Disk == "secrets" && !strings.Contains(tag(fleet.TagSecrets), "pool") {
		wrong("and does not say that it has the pool's credentials")
	}
	refused := slices.ContainsFunc(w.chooser.Happened(), func(e scenario.Event) bool {
		return e.What == scenario.Error && strings.Contains(e.Request, "/versions/")
	})
	if profile.StorageAccountType != "Standard_ZRS" && !w.story.Pool.NoZRS && !refused {
		wrong("that is not zone-redundant")
	}
	if !slices.ContainsFunc(profile.TargetRegions, func(t targetRegion) bool {
		return fleet.SameRegion(t.Name, location) && t.RegionalReplicaCount == usualReplicas
	}) {
		wrong("without the usual replicas in " + location)
	}
}

// usualReplicas of a version, where nobody says.
const usualReplicas = 3

// judgeOlder: a capture moves the model to no version that is older than the one it
// uses, but to give back what was there.
func (w *world) judgeOlder(p *process, rec open, profile string) {
	if rec.Kind != prototype.KindCapture {
		return
	}
	all := w.images()
	used, known := imageAt(all, w.model())
	w.mu.Lock()
	before := strings.Trim(w.pointed0.image, "{}")
	w.mu.Unlock()
	profile = strings.ToLower(profile)
	if !known || !used.made() || before != "" && strings.Contains(profile, before) {
		return
	}
	for _, i := range all {
		if strings.Contains(profile, `"`+low(i.id)+`"`) && i.published.Before(used.published) && !w.misread() {
			w.broken("%s moves the model from version %s to the older %s", p.name, used.id.Name(), i.id.Name())
		}
	}
}

// judgeNeeded: a donor is not taken out of service where the day's version is there.
func (w *world) judgeNeeded(p *process, rec open) {
	if rec.asked().Again || w.misread() || w.anyJumped() {
		return
	}
	begun := rec.Begun.UTC()
	for _, i := range w.images() {
		today := i.id.Name() == begun.Format("2006.01.02") || strings.HasPrefix(i.id.Name(), begun.Format("2006.0102."))
		if today && i.made() && !i.left() {
			w.broken("%s takes %s out of service though today's version %s is there", p.name, rec.Donor, i.id.Name())
		}
	}
}

// judgeGone: of versions that succeeded, the newest stay: as many as were asked for,
// two of which nobody rolled back from.
func (w *world) judgeGone(p *process, rec open, id fleet.ResourceID) {
	all := w.images()
	gone, there := imageAt(all, id)
	if !there || !gone.made() || id.Equal(rec.facts.Names.Version) || w.misread() {
		return
	}
	history, newer, good := rec.asked().History, 0, 0
	for _, i := range all {
		if i.made() && i.published.After(gone.published) {
			newer++
		}
		if i.made() && !i.left() && !i.id.Equal(id) {
			good++
		}
	}
	w.mu.Lock()
	theirs := len(w.othersGone) > 0
	w.mu.Unlock()
	if newer < history && !theirs {
		w.broken("%s prunes version %s, which is one of the newest %d", p.name, id.Name(), history)
	}
	if !gone.left() && good < 2 && !theirs {
		w.broken("%s prunes version %s, after which %d are left that nobody rolled back from", p.name, id.Name(), good)
	}
}

// checkVersions is what a capture that is done leaves: the model pinned to its version,
// latest where the day's version is, and no more versions than were asked for.
func (w *world) checkVersions(p *process) {
	rec, ok := w.record()
	if !ok || p.ask.Verb != scenario.Capture || len(w.happenedTo("changeModel", "deleteVersion", "deleteGallery")) > 0 {
		return
	}
	if want := `{"id":"` + low(p.capture.Version) + `"}`; w.pointedAt().image != want {
		w.broken("%s reports that the model uses %s, and its image is %s", p.name, p.capture.Version.Name(), w.pointedAt().image)
	}
	all := w.images()
	said := strings.Join(append(slices.Clone(p.capture.Notes), p.capture.Kept...), "\n")
	for _, i := range all {
		if againName.MatchString(i.id.Name()) && i.made() && !i.excluded && !strings.Contains(said, i.id.Name()) {
			w.broken("%s ends, and version %s, made with --again, is one of latest", p.name, i.id.Name())
		}
	}
	mine, there := imageAt(all, p.capture.Version)
	if there && !mine.excluded && dayName.MatchString(mine.id.Name()) && len(all) > 0 && all[0].id.Equal(mine.id) && !w.anyJumped() {
		w.azure.View(func(v *azsim.View) {
			if got := latest(v, w.names.Definition); !got.Equal(mine.id) && !strings.Contains(said, got.Name()) {
				defer w.broken("%s made version %s, and latest is %s", p.name, mine.id.Name(), got.Name())
			}
		})
	}
	kept, good := 0, 0
	history := open{Record: rec}.asked().History
	for _, i := range all {
		if !i.made() {
			continue
		}
		if kept < history || good < 2 && !i.left() {
			kept++
			if !i.left() {
				good++
			}
			continue
		}
		// One that somebody uses is kept, and it may be another process that said so.
		used := w.references(i.id) != "" || w.misread() || len(w.happenedTo(scenario.DeleteInstance, scenario.ScaleIn)) > 0
		if !used && !strings.Contains(said, i.id.Name()) && rec.Capture == p.capture.Capture && !p.capture.NothingToDo {
			w.broken("%s ends, and version %s is beyond the newest %d, and nobody uses it", p.name, i.id.Name(), history)
		}
	}
}

// happenedTo gives what happened of some kinds.
func (w *world) happenedTo(kinds ...scenario.What) (some []scenario.Event) {
	for _, e := range w.chooser.Happened() {
		if slices.Contains(kinds, e.What) {
			some = append(some, e)
		}
	}
	return some
}
