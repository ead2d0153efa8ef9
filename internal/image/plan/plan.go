// Package plan decides from observations only: blockers, where a capture resumes, what to go
// back to, and which versions to prune. Every function is pure; time comes in as a value.
package plan

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// A Step is one line of a plan: a step, or an undo of the good case.
type Step struct {
	ID           string         `json:"id"`
	Title        string         `json:"title"`
	After        []string       `json:"after,omitempty"`        // ids that have to be done, or skipped, before
	Skip         string         `json:"skip,omitempty"`         // why it will not run; "" runs it
	Irreversible []string       `json:"irreversible,omitempty"` // what cannot be recovered once it is done
	Usual        fleet.Duration `json:"usual"`                  // 0: a moment
	Deadline     fleet.Duration `json:"deadline"`               // counts from its begin
}

// A Plan is what a capture or rollback would do, and why it may not.
type Plan struct {
	Kind        string           `json:"kind"` // "capture", "rollback" or "abandonment"
	Pool        fleet.ResourceID `json:"pool"`
	Donor       string           `json:"donor,omitempty"`     // node name
	Workbench   string           `json:"workbench,omitempty"` // node name
	Version     fleet.ResourceID `json:"version,omitempty"`   // what the model will use
	Steps       []Step           `json:"steps"`               // in an order in which they could run one after another
	Problems    []fleet.Problem  `json:"problems,omitempty"`  // all reasons to refuse
	Notes       []string         `json:"notes,omitempty"`     // no reasons to refuse
	Resumes     bool             `json:"resumes,omitempty"`   // an earlier run was interrupted and this one goes on
	NothingToDo bool             `json:"nothingToDo,omitempty"`
	PassesOver  []string         `json:"-"` // those of Notes that name a version which an unattended rollback passes over
}

// Schedule returns when each step usually begins and ends, counted from the first: as soon as what it
// waits for has ended, a skipped one at once.
func Schedule(steps []Step) (begin, end map[string]time.Duration) {
	begin, end = map[string]time.Duration{}, map[string]time.Duration{}
	for _, s := range steps {
		if s.Skip != "" {
			continue
		}
		for _, after := range s.After {
			begin[s.ID] = max(begin[s.ID], end[after])
		}
		end[s.ID] = begin[s.ID] + time.Duration(s.Usual)
	}
	return begin, end
}

// UsualTime returns how long the plan usually takes, and how much of that a donor in service is out of
// service: 0 where it stays in service, or was added for this capture.
func (p Plan) UsualTime() (whole, out time.Duration) {
	begin, end := Schedule(p.Steps)
	for _, at := range end {
		whole = max(whole, at)
	}
	_, added := end["raise"]
	if _, cordons := end["cordon"]; cordons && !added {
		out = end["uncordon"] - begin["cordon"]
	}
	return whole, max(0, out)
}

// How new nodes come to join the cluster.
const (
	BootstrapKeep  = "keep"  // the model's customData stays
	BootstrapBaked = "baked" // all that a node needs is on its disk: customData becomes a no-op
)

// A Request says which node to capture, and how. It is part of the record, so that a
// resumed run does the same.
type Request struct {
	Node                  string        `json:"node"`                            // the donor
	Again                 bool          `json:"again,omitempty"`                 // a second version on the same day
	Deallocate            bool          `json:"deallocate,omitempty"`            // instead of powering off
	Online                bool          `json:"online,omitempty"`                // copy the donor's disk while it stays in service
	GracePeriod           time.Duration `json:"gracePeriod,omitempty"`           // of each pod; 0 is 300 s
	ForceDrain            bool          `json:"forceDrain,omitempty"`            // delete what is left at the drain's deadline
	History               int           `json:"history,omitempty"`               // versions to keep; 0 is 3
	Replicas              int32         `json:"replicas,omitempty"`              // of the version; 0 is by ReplicasFor
	Shallow               bool          `json:"shallow,omitempty"`               // a version without copies, for development
	Bootstrap             string        `json:"bootstrap,omitempty"`             // "" is BootstrapKeep
	AcceptPoolCredentials bool          `json:"acceptPoolCredentials,omitempty"` // in the image
	AcceptSecrets         []string      `json:"acceptSecrets,omitempty"`         // paths of files, or of folders that end in "/"
	RemoveSecrets         bool          `json:"removeSecrets,omitempty"`         // from the copy of the disk
	ScanImages            bool          `json:"scanImages,omitempty"`            // image layers, for all kinds of secrets
	Tune                  []string      `json:"tune,omitempty"`                  // names of what is added so that clones are Ready sooner
	PublishOnly           bool          `json:"publishOnly,omitempty"`           // the version only: scale set, extensions and older versions stay as they are
	Extensions            ExtensionRule `json:"extensions"`                      // which of the model's go
	NewNodes              int64         `json:"newNodes,omitempty"`              // to add once the model is changed
	Workbench             string        `json:"workbench,omitempty"`             // node; "" is any of the pool that fits
	OtherPools            bool          `json:"otherPools,omitempty"`            // the workbench may be of another pool
	Canary                int64         `json:"canary,omitempty"`                // clones that prove the version before it goes live
	CanarySoak            time.Duration `json:"canarySoak,omitempty"`            // how long they, or a fresh donor, stay Ready; 0 is 2m
	CanaryIfPossible      bool          `json:"canaryIfPossible,omitempty"`      // left out where it cannot be made; not with CanaryTest
	CanaryTest            string        `json:"canaryTest,omitempty"`            // file with the Job that each clone has to pass: cluster.NodeTest
	TakeUnjudged          bool          `json:"takeUnjudged,omitempty"`          // prove the version of the last days that has no judgement, instead of a new one
	RestoreLearned        []string      `json:"restoreLearned,omitempty"`        // customData or extensions: what donors' disks showed, which the watch of this capture may restore
	AllowRolling          bool          `json:"allowRolling,omitempty"`
	ExcludeFromLatest     bool          `json:"excludeFromLatest,omitempty"`
	AllowOwned            bool          `json:"allowOwned,omitempty"`

	// Fresh is the pool to which a donor is added, and of which it is deleted at the end; Node is "".
	Fresh fleet.ResourceID `json:"fresh,omitempty"`
	// Prepare is what runs on a donor that is added, before its disk is taken; nil: nothing.
	Prepare *Preparation `json:"prepare,omitempty"`
}

// A Preparation is a pod that runs once on a fresh donor, as root and with the node's root at /host. It
// has to end with exit code 0, or with 10 where the donor has to restart.
type Preparation struct {
	Image   string        `json:"image,omitempty"`   // "" is Ortet's own, which updates the node's packages
	Command []string      `json:"command,omitempty"` // in place of the image's
	Timeout time.Duration `json:"timeout,omitempty"` // 0 is DefaultPrepare
}

// Limits of a Request, and the canary of pools that are captured by rules.
const (
	MaxSoak       = 30 * time.Minute
	DefaultCanary = 2

	DefaultPrepare = 20 * time.Minute
	MaxPrepare     = time.Hour // a donor that comes up has two
)

// WithDefaults sets what is 0.
func (q Request) WithDefaults() Request {
	q.GracePeriod, q.History = cmp.Or(q.GracePeriod, 300*time.Second), cmp.Or(q.History, 3)
	q.Bootstrap, q.CanarySoak = cmp.Or(q.Bootstrap, BootstrapKeep), cmp.Or(q.CanarySoak, 2*time.Minute)
	q.Extensions.None = q.Extensions.None || q.PublishOnly
	if len(q.Tune) > 0 { // clones prove it
		q.Canary = cmp.Or(q.Canary, 1)
	}
	q.CanaryIfPossible = q.CanaryIfPossible && q.CanaryTest == "" && len(q.Tune) == 0
	if x := q.Prepare; x != nil {
		q.Prepare = &Preparation{x.Image, x.Command, cmp.Or(x.Timeout, DefaultPrepare)}
	}
	return q
}

// WithoutCanary is how a capture that needs no clones is asked for: tunings need them.
func (q Request) WithoutCanary() string {
	return "without " + when(len(q.Tune) > 0, "--tune and ") + "--canary"
}

// OnlyPublishes returns why the rows behind the version are skipped. Versions are not pruned,
// since Azure does not show what names them in a template.
func (q Request) OnlyPublishes() string { return when(q.PublishOnly, "the version is only published") }

// Bakes reports whether customData becomes a no-op.
func (q Request) Bakes() bool { return q.Bootstrap == BootstrapBaked }

// An ExtensionRule says which of a model's extensions go when a prototype goes
// live. Its zero value deletes those that bootstrap a node once: CustomScript and
// Cluster API's bootstrapping.
type ExtensionRule struct {
	None bool     `json:"none,omitempty"` // leave all alone
	All  bool     `json:"all,omitempty"`  // delete all but Keep, as kamino does
	Keep []string `json:"keep,omitempty"` // under any rule: patterns of path.Match in any letter case
}

// Check returns an error where a pattern cannot be read.
func (r ExtensionRule) Check() error {
	for _, p := range r.Keep {
		if _, err := path.Match(strings.ToLower(p), ""); err != nil {
			return fmt.Errorf("extension pattern %q: %w", p, err)
		}
	}
	return nil
}

// Bootstraps reports whether an extension bootstraps a node once.
func Bootstraps(e fleet.Extension) bool {
	return slices.Contains([]string{"customscript", "customscriptforlinux", "capz.linux.bootstrapping"}, strings.ToLower(e.Type))
}

// goes reports whether the rule deletes the extension.
func (r ExtensionRule) goes(e fleet.Extension) bool {
	keeps := slices.ContainsFunc(r.Keep, func(pattern string) bool {
		ok, _ := path.Match(strings.ToLower(pattern), strings.ToLower(e.Name))
		return ok
	})
	return !r.None && !keeps && (r.All || Bootstraps(e))
}

// ToDelete returns the extensions that the rule deletes, dependents first, since
// Azure refuses to delete what another names in provisionAfterExtensions. kept
// names those that stay and depend on an extension that goes, which cannot be done:
// "kept depends on deleted".
func (r ExtensionRule) ToDelete(extensions []fleet.Extension) (deleted []fleet.Extension, kept []string) {
	for _, d := range DependentsFirst(extensions) {
		if !r.goes(d) {
			continue
		}
		deleted = append(deleted, d)
		for _, e := range extensions {
			if !r.goes(e) && dependsOn(e, d) {
				kept = append(kept, fmt.Sprintf("%s depends on %s", e.Name, d.Name))
			}
		}
	}
	return deleted, kept
}

// DependentsFirst returns each extension before those that it depends on.
func DependentsFirst(extensions []fleet.Extension) (sorted []fleet.Extension) {
	left := slices.Clone(extensions)
	for len(left) > 0 {
		i := slices.IndexFunc(left, func(d fleet.Extension) bool {
			return !slices.ContainsFunc(left, func(e fleet.Extension) bool { return dependsOn(e, d) })
		})
		i = max(i, 0) // Azure does not allow a circle
		sorted, left = append(sorted, left[i]), slices.Delete(left, i, i+1)
	}
	return sorted
}

func dependsOn(e, other fleet.Extension) bool {
	return slices.ContainsFunc(e.After, func(name string) bool { return strings.EqualFold(name, other.Name) })
}

// An Original is what a model was before it came to use the pool's prototypes.
type Original struct {
	Image      fleet.ImageReference `json:"image"`
	CustomData string               `json:"customData,omitempty"` // SHA-256 of the model's, which the secret store has; "" if not known
	Extensions []OriginalExtension  `json:"extensions,omitempty"`
	At         time.Time            `json:"at"` // when it was recorded
	Learned    []Learned            `json:"learned,omitempty"`
}

// Learned is what a donor's disk showed: customData, or the protected settings of an extension.
type Learned struct {
	Kind   string    `json:"kind"`           // as the secret store names it
	Name   string    `json:"name,omitempty"` // extension's
	SHA256 string    `json:"sha256"`         // NoSettings for none
	Donor  string    `json:"donor"`
	At     time.Time `json:"at"`
}

// maxLearned limits Original.Learned: later values are not added.
const maxLearned = 10

// Learn records a value and returns the hash that counts, which is the first. known is what
// counted so far.
func (o *Original) Learn(known string, v Learned) string {
	all := o.Showed(v.Kind, v.Name)
	if known == "" {
		o.Learned = slices.DeleteFunc(slices.Clone(o.Learned), func(l Learned) bool { return slices.Contains(all, l) })
		all = nil
	}
	if len(o.Learned) < maxLearned && !slices.ContainsFunc(all, func(l Learned) bool { return l.SHA256 == v.SHA256 }) {
		o.Learned = append(slices.Clip(o.Learned), v)
	}
	return cmp.Or(known, v.SHA256)
}

// Showed returns what donors' disks showed of one kind and name.
func (o *Original) Showed(kind, name string) []Learned {
	if o == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(o.Learned), func(l Learned) bool { return l.Kind != kind || !strings.EqualFold(l.Name, name) })
}

// NoSettings is the hash of settings that an extension does not have.
const NoSettings = "none"

// An OriginalExtension is an extension of an Original, with the SHA-256 of its settings,
// which the secret store has: NoSettings for none, "" if not known.
type OriginalExtension struct {
	fleet.Extension
	PublicSHA256    string `json:"publicSha256,omitempty"`
	ProtectedSHA256 string `json:"protectedSha256,omitempty"`
	Deleted         bool   `json:"deleted,omitempty"` // by a capture, and in no model beside the image since
}

// Handler names the extension's handler, as its folder on a node does.
func (e OriginalExtension) Handler() string { return e.Publisher + "." + e.Type }

// OriginalExtensions records a model's extensions, and those that captures deleted before.
// What is known of the protected settings of an extension in before holds as long as the
// rest of that extension is the same.
func OriginalExtensions(model []fleet.Extension, before []OriginalExtension) (all []OriginalExtension) {
	for _, e := range model {
		text := e.Settings.Reveal()
		x := OriginalExtension{Extension: e, PublicSHA256: cmp.Or(when(text != "", SHA256(text)), NoSettings)}
		i := slices.IndexFunc(before, func(old OriginalExtension) bool {
			return strings.EqualFold(old.Name, x.Name) && old.Handler() == x.Handler() && old.PublicSHA256 == x.PublicSHA256 &&
				old.ForceUpdateTag == x.ForceUpdateTag
		})
		if x.ProtectedSHA256 = when(e.KeyVault != nil, NoSettings); e.KeyVault == nil && i >= 0 {
			x.ProtectedSHA256 = before[i].ProtectedSHA256
		}
		all = append(all, x)
	}
	for _, old := range before {
		if old.Deleted && !slices.ContainsFunc(model, func(e fleet.Extension) bool { return strings.EqualFold(e.Name, old.Name) }) {
			all = append(all, old)
		}
	}
	return all
}

// NoopCustomData does nothing at boot. kamino uses the same text.
const NoopCustomData = "#cloud-config\n"

// NoopSHA256 is the SHA256 of NoopCustomData.
const NoopSHA256 = "88c95955b024402aa9572b663f7eeb134f01343bb92af27b50e97e72b22c565f"

// SHA256 is the hash by which the secret store and tags name data.
func SHA256(data string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(data))) }

// ResumePoint is where a capture's work begins.
type ResumePoint int

// Where a capture begins, the whole way first.
const (
	AtDonor       ResumePoint = iota // take the donor out of service and snapshot its disk
	AtSnapshot                       // today's snapshot of the donor is there
	AtGeneralized                    // so is that of the generalised copy
	AtVersion                        // today's version is there or in the making
)

// A ResumePlan is how far today's work has come, by what is there.
type ResumePlan struct {
	From     ResumePoint
	Version  *fleet.ImageVersion // of today's name, with AtVersion
	Problems Problems
	Notes    []string
	// Unrecorded is the version that the model names, if its tags say that it never was live and
	// going live with Version does not remove them.
	Unrecorded *fleet.ImageVersion
}

// Resume decides where to begin: today's version exists → on to the model;
// today's snapshot exists → on to the build. own is the open capture, or "": its own
// snapshots count on any day. What has one of the names and is not ours is a problem.
func Resume(o Observed, names Names, options Request, now time.Time, own string) (c ResumePlan) {
	refuse := c.Problems.Refuse
	if v, known := VersionOf(o.Versions, o.Pool.Model.Image, o.Pool.Location); known && IsMarked(v) && (options.PublishOnly || !v.ID.Equal(names.Version)) {
		c.Unrecorded = &v
	}
	if v, found := FindVersion(o.Versions, names.Version); found {
		if RolledBack(v) || v.ProvisioningState != Deleting && !(v.ProvisioningState == Failed && Ours(v.Tags)) {
			return ofVersion(o, v, options, c)
		}
		c.Notes = append(c.Notes, "today's version "+v.Name+" is "+v.ProvisioningState+": it is built again")
	}
	check := func(s *fleet.Snapshot, tag string, start ResumePoint) {
		s = cmp.Or(s, &fleet.Snapshot{})
		refuse(s.ID != "" && s.Tags[fleet.TagCapture] == "", "ForeignSnapshot", string(s.ID),
			"a snapshot of this name exists that Ortet did not make",
			"delete it if it is not needed: az snapshot delete --ids "+string(s.ID))
		at, err := time.Parse(fleet.BuiltAtLayout, s.Tags[fleet.TagBuiltAt])
		today := err == nil && VersionName(at, false) == VersionName(now, false) && !options.Again &&
			strings.EqualFold(s.Tags[fleet.TagBuiltFrom], options.Node) && (options.Online || s.Tags[fleet.TagOnline] == "") &&
			(start != AtGeneralized || s.Tags[fleet.TagTuned] == strings.Join(options.Tune, ","))
		if (today || own != "" && s.Tags[fleet.TagCapture] == own) && s.ProvisioningState == Succeeded && s.Tags[tag] != "" {
			c.From = max(c.From, start)
		} else if s.Tags[fleet.TagCapture] != "" {
			c.Notes = append(c.Notes, "a snapshot that an earlier capture left is replaced: "+s.ID.Name())
		}
	}
	check(o.Snapshot, fleet.TagCapture, AtSnapshot)
	check(o.Generalized, fleet.TagGeneralized, AtGeneralized)
	disk := cmp.Or(o.WorkDisk, &fleet.Disk{})
	refuse(disk.ID != "" && disk.Tags[fleet.TagCapture] == "", "ForeignDisk", string(disk.ID),
		"a disk of this name exists that Ortet did not make",
		"delete it if it is not needed: az disk delete --ids "+string(disk.ID))
	return c
}

// ofVersion begins at today's version, and says what speaks against its use.
func ofVersion(o Observed, v fleet.ImageVersion, q Request, c ResumePlan) ResumePlan {
	c.From, c.Version = AtVersion, &v
	refuse, on, back := c.Problems.Refuse, string(v.ID), "ortet rollback --to "+v.Name
	bad := v.Tags[fleet.TagQuarantine]
	refuse(RolledBack(v) && bad != "", CodeRolledBack, on, "today's version is quarantined: "+bad,
		"mend the node and give --again to make another today, or "+back+" to use it after all")
	refuse(RolledBack(v) && bad == "", CodeRolledBack, on, "today's version was rolled back at "+v.Tags[fleet.TagRolledBack]+" and is not brought back by itself",
		"give --again to make another today, or "+back+" to use it after all")
	refuse(!RolledBack(v) && !Ours(v.Tags), "ForeignVersion", on, "a version of today's name is there that neither Ortet nor kamino made",
		"give --again to make another today, or delete it")
	used, known := VersionOf(o.Versions, o.Pool.Model.Image, o.Pool.Location)
	refuse(known && Newer(used, v) && !q.PublishOnly, "OlderVersion", on, "today's version "+v.Name+" is older than "+used.Name+", which the model uses",
		"give --again to make another today, or "+back+" to go back to it")
	custom := v.Tags[fleet.TagCustomData]
	refuse(q.Bakes() && custom != "" && custom != NoopSHA256, "OtherBootstrap", on,
		"today's version was made with --bootstrap keep: its nodes need the model's customData to join", "give --again to make another today, or --bootstrap keep")
	if from := v.Tags[fleet.TagBuiltFrom]; from != "" && !strings.EqualFold(from, q.Node) {
		c.Notes = append(c.Notes, fmt.Sprintf("version %s was built from %s; give --again to make one from %s", v.Name, from, q.Node))
	}
	if v.Tags[fleet.TagOnline] != "" && !q.Online {
		c.Notes = append(c.Notes, "version "+v.Name+" was captured while its donor stayed in service; give --again to make one of a donor that is stopped")
	}
	if note := q.OtherTunings(v.Name, v.Tags[fleet.TagTuned]); note != "" {
		c.Notes = append(c.Notes, note)
	}
	return c
}

// OtherTunings says that a version, of which has is the tag, was not made with these tunings; "" if it was.
func (q Request) OtherTunings(version, has string) string {
	return when(has != strings.Join(q.Tune, ","), "version "+version+" has other tunings than were asked for: "+
		cmp.Or(has, "none")+"; give --again to make one with those")
}

// CaptureChanges returns one zero change for each verb that a capture from this resume point may
// need, for the check of permissions. Undoing needs no others.
func CaptureChanges(q Request, resume ResumePlan) []fleet.Change {
	type changes = []fleet.Change
	return slices.Concat(
		changes{fleet.DeleteSnapshot{}, fleet.DeleteVersion{}},
		when(!q.PublishOnly, changes{fleet.PatchModel{}}),
		when(q.Canary > 0 || resume.Unrecorded != nil || q.Pending(resume.Version), changes{fleet.TagVersion{}, fleet.PublishVersion{}}),
		when(!q.Extensions.None, changes{fleet.DeleteExtension{}}),
		when(q.NewNodes > 0 || q.Fresh != "", changes{fleet.SetCapacity{}}),
		when(q.Fresh != "", changes{fleet.DeleteInstances{}}),
		when(resume.From < AtVersion, changes{fleet.CreateGallery{}, fleet.CreateDefinition{}, fleet.CreateVersion{}}),
		when(resume.From <= AtSnapshot, changes{fleet.ProtectInstance{}, fleet.CreateSnapshot{}, fleet.CreateDisk{}, fleet.DeleteDisk{},
			fleet.AttachDisk{}, fleet.DetachDisk{}}),
		when(resume.From == AtDonor && !q.Online, changes{fleet.StopInstance{Deallocate: q.Deallocate}, fleet.StartInstance{}}),
	)
}

// PoolNotes returns what of the pool and its gallery a person may not expect of this capture, which
// prunes the obsolete versions.
func PoolNotes(o Observed, q Request, obsolete []fleet.ImageVersion) (notes []string) {
	pool := *o.Pool
	var from []string
	for _, x := range []struct {
		what string
		id   fleet.ResourceID
	}{{"capacity reservation group", pool.Model.CapacityReservation}, {"dedicated host group", pool.HostGroup}, {"proximity placement group", pool.PlacementGroup}} {
		if x.id != "" {
			from = append(from, x.what+" "+x.id.Name())
		}
	}
	who := strings.TrimPrefix(when(q.Canary > 0, " and the canary's clones")+when(q.NewNodes > 0, " and the new nodes"), " and ")
	if len(from) > 0 && who != "" {
		notes = append(notes, who+" take room in the pool's "+strings.Join(from, ", "))
	}
	if o.Gallery != nil && o.Gallery.SoftDelete && len(obsolete) > 0 && !q.PublishOnly {
		notes = append(notes, fmt.Sprintf("gallery %s deletes softly: what is pruned (%s) can be recovered and costs storage until its retention ends, and its name stays taken",
			o.Gallery.ID.Name(), strings.Join(fleet.Each(obsolete, func(v fleet.ImageVersion) string { return v.Name }), ", ")))
	}
	if n := ReplicasFor(q, pool.Capacity); q.Replicas == 0 && n > minReplicas && !q.Shallow {
		notes = append(notes, fmt.Sprintf("the version gets %d replicas, one for %d of the pool's machines", n, perReplica))
	}
	if id, _, _ := ChooseDefinition(o); o.Definition == nil && o.OtherKind != "" {
		notes = append(notes, "another image definition is created, "+id.Name()+", since what one says cannot be changed: "+o.OtherKind)
	}
	return notes
}

// Limits of a version's replicas, and how many machines that come up at once one is for. Source:
// "Store and share images in an Azure Compute Gallery", scaling.
const minReplicas, maxReplicas, perReplica = 3, 50, 50

// ReplicasFor returns how many replicas a version of a pool with that capacity gets: what was
// requested, else one for each 50 machines, from 3 to 50.
func ReplicasFor(q Request, capacity int64) int32 {
	byCapacity := min(max((capacity+q.NewNodes+perReplica-1)/perReplica, minReplicas), maxReplicas)
	return cmp.Or(q.Replicas, int32(byCapacity))
}
