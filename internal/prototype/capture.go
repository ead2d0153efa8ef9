package prototype

import (
	"fmt"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// The steps of a capture and a rollback.
const (
	StepPreflight           = "preflight"
	StepHold                = "hold"
	StepJournal             = "journal"
	StepInspect             = "inspect"
	StepGallery             = "gallery"
	StepDefinition          = "definition"
	StepProtect             = "protect"
	StepProtectBench        = "protect-workbench"
	StepCordon              = "cordon"
	StepDrain               = "drain"
	StepStop                = "stop"
	StepSnapshot            = "snapshot"
	StepStart               = "start"
	StepReady               = "ready"
	StepUncordon            = "uncordon"
	StepUnprotect           = "unprotect"
	StepHoldReboots         = "hold-reboots"
	StepWorkDisk            = "work-disk"
	StepAttach              = "attach"
	StepGeneralize          = "generalize"
	StepSave                = "save"
	StepDetach              = "detach"
	StepUnprotectBench      = "unprotect-workbench"
	StepDeletePod           = "delete-pod"
	StepReleaseReboots      = "release-reboots"
	StepGeneralizedSnapshot = "generalized-snapshot"
	StepDeleteWorkDisk      = "delete-work-disk"
	StepVersion             = "version"
	StepDeleteSnapshots     = "delete-snapshots"
	StepPrune               = "prune"
	StepModel               = "model"
	StepExclude             = "exclude"
	StepExtensions          = "extensions"
	StepGrow                = "grow"
	StepTag                 = "tag"
	StepEnd                 = "end"
)

// CaptureInput is what decides which of a capture's steps run.
type CaptureInput struct {
	Names     Names
	Options   Options
	Pool      fleet.Pool
	Course    Course
	Workbench string // node name
	// DonorOut is true where a resumed capture still has to give the donor back.
	DonorOut bool
	// Saved is true where a resumed capture's copy of the disk is generalised,
	// and what was on it is saved.
	Saved         bool
	HasGallery    bool
	HasDefinition bool
	// InModel is true where the model uses Names.Version.
	InModel bool
	// Doomed are the extensions that go, Prunable the versions that go, by name,
	// as far as is known beforehand.
	Doomed   []fleet.Extension
	Prunable []string
}

const moment = time.Minute // deadline of what takes a moment

// drainDeadline leaves pods that are deleted by force the time to end.
func drainDeadline(o Options) time.Duration {
	if o.ForceDrain {
		return 4*o.GracePeriod + 2*moment
	}
	return 3*o.GracePeriod + moment
}

// CaptureSteps is the table of contents of a capture. Usual durations are
// those of kamino's published logs and of the documentation.
func CaptureSteps(in CaptureInput) []Step {
	donor, o := in.Options.Node, in.Options
	version := in.Names.Version.Name()
	stop := "Power off " + donor
	if o.Deallocate {
		stop = "Deallocate " + donor
	}
	build, versionDeadline := 40*time.Minute, 8*time.Hour
	if o.Shallow {
		build, versionDeadline = time.Minute, time.Hour
	}

	served := skipIf(!in.Course.FromDonor(), "a snapshot of the donor's disk exists from today")
	back := skipIf(!in.Course.FromDonor() && !in.DonorOut, "the donor is in service")
	work := skipIf(!in.Course.NeedsWorkbench(), "the generalised snapshot exists")
	if work == "" && in.Saved {
		work = "the copy of the disk is generalised"
	}
	copied := skipIf(!in.Course.NeedsWorkbench(), "the generalised snapshot exists")
	made := ""
	if v := in.Course.Version; in.Course.Start == AtVersion {
		state := Succeeded
		if v != nil {
			state = v.ProvisioningState
		}
		reason := "today's version exists"
		served, work, copied = reason, reason, reason
		if !in.DonorOut {
			back = reason
		}
		if state == Succeeded {
			made = reason
		}
	}
	gallery := skipIf(in.HasGallery, "already exists")
	definition := skipIf(in.HasDefinition, "already exists")
	if made != "" {
		gallery, definition = made, made
	}

	var losses []string
	model := skipIf(in.InModel && in.Course.Start == AtVersion, "the model uses "+version)
	if o.Bake {
		losses = append(losses, "the model's customData cannot be read back: it is kept in Ortet's Secrets where the donor's disk still has it, else it is lost")
	}
	var lost []string
	for _, e := range in.Doomed {
		lost = append(lost, fmt.Sprintf("extension %s (%s): its protected settings cannot be read back; they are kept where the donor's certificate decrypts them, else they are lost", e.Name, e.Type))
	}
	steps := []Step{
		{ID: StepPreflight, Title: "Run preflight checks", Deadline: 5 * moment},
		{ID: StepHold, Title: "Acquire the pool lock", Deadline: 2 * moment},
		{ID: StepJournal, Title: "Open the journal", Deadline: moment},
		{ID: StepInspect, Title: "Inspect " + donor + "'s disk for blockers", Usual: 20 * time.Second, Deadline: 5 * moment, Skip: served},
		{ID: StepGallery, Title: "Create the gallery " + in.Names.Gallery.Name(), Usual: 10 * time.Second, Deadline: 15 * moment, Skip: gallery},
		{ID: StepDefinition, Title: "Create the image definition " + in.Names.Definition.Name(), Usual: 10 * time.Second, Deadline: 15 * moment, Skip: definition},

		{ID: StepProtect, Title: "Protect " + donor + " from autoscalers and repairs", Usual: 15 * time.Second, Deadline: 15 * moment, Skip: served},
		{ID: StepProtectBench, Title: strings.TrimSpace("Protect the workbench "+in.Workbench) + " from scale-in", Usual: 15 * time.Second, Deadline: 15 * moment, Skip: work},
		{ID: StepCordon, Title: "Cordon " + donor, Deadline: moment, Skip: served},
		{ID: StepDrain, Title: "Drain " + donor, Usual: time.Minute, Deadline: drainDeadline(o), Skip: served},
		{ID: StepStop, Title: stop, Usual: 150 * time.Second, Deadline: 20 * moment, Skip: served},
		{ID: StepSnapshot, Title: "Take a snapshot of " + donor + "'s OS disk", Usual: 6 * time.Second, Deadline: 30 * moment, Skip: served},
		{ID: StepStart, Title: "Start " + donor, Usual: time.Minute, Deadline: 20 * moment, Skip: back, GivesBack: true},
		{ID: StepReady, Title: "Wait until " + donor + " is Ready", Usual: 2 * time.Minute, Deadline: 40 * moment, Skip: back, GivesBack: true},
		{ID: StepUncordon, Title: "Uncordon " + donor, Deadline: 5 * moment, Skip: back, GivesBack: true},
		{ID: StepUnprotect, Title: "Restore " + donor + "'s protection", Usual: 15 * time.Second, Deadline: 15 * moment, Skip: back, GivesBack: true},

		{ID: StepHoldReboots, Title: "Block kured reboots", Deadline: 120 * moment, Skip: work},
		{ID: StepWorkDisk, Title: "Create a copy of the disk from the snapshot", Usual: 10 * time.Second, Deadline: 30 * moment, Skip: work},
		{ID: StepAttach, Title: strings.TrimSpace("Attach the copy to the workbench " + in.Workbench), Usual: 30 * time.Second, Deadline: 20 * moment, Skip: work},
		{ID: StepGeneralize, Title: generalizeTitle(o), Usual: 2 * time.Minute, Deadline: 60 * moment, Skip: work},
		{ID: StepSave, Title: "Save customData and protected settings in Secrets", Deadline: 30 * moment, Skip: work},
		{ID: StepDetach, Title: "Detach the copy from the workbench", Usual: 30 * time.Second, Deadline: 20 * moment, Skip: copied},
		{ID: StepUnprotectBench, Title: "Restore the workbench's protection", Usual: 15 * time.Second, Deadline: 15 * moment, Skip: copied},
		{ID: StepDeletePod, Title: "Delete the pod on the workbench", Deadline: 5 * moment, Skip: copied},
		{ID: StepReleaseReboots, Title: "Unblock kured reboots", Deadline: 5 * moment, Skip: copied},
		{ID: StepGeneralizedSnapshot, Title: "Take a snapshot of the generalised copy", Usual: 6 * time.Second, Deadline: 30 * moment, Skip: copied},
		{ID: StepDeleteWorkDisk, Title: "Delete the copy of the disk", Usual: 5 * time.Second, Deadline: 15 * moment, Skip: copied},

		{ID: StepVersion, Title: "Build image version " + version, Usual: build, Deadline: versionDeadline, Skip: made},
		{ID: StepDeleteSnapshots, Title: "Delete the snapshots", Usual: 10 * time.Second, Deadline: 15 * moment, Skip: skipIf(made != "" && len(in.Course.Stale) == 0, made)},
		{ID: StepPrune, Title: "Prune versions to the newest " + fmt.Sprint(o.History) + orNone(": ", in.Prunable), Usual: pruneUsual(in.Prunable), Deadline: 60 * moment, Skip: skipIf(made != "" && len(in.Prunable) == 0, "no older versions")},
		{ID: StepModel, Title: "Point " + in.Pool.Name + "'s model at " + version, Usual: 30 * time.Second, Deadline: 60 * moment, Skip: model, Irreversible: losses},
		{ID: StepExclude, Title: "Exclude versions made with --again from latest" + orNone(": ", versionNames(in.Course.Exclude)), Usual: time.Duration(len(in.Course.Exclude)) * 10 * time.Second, Deadline: 30 * moment, Skip: skipIf(len(in.Course.Exclude) == 0, "none to exclude")},
		{ID: StepExtensions, Title: "Delete extensions from the model" + orNone(": ", extensionNames(in.Doomed)), Usual: time.Duration(len(in.Doomed)) * 30 * time.Second, Deadline: 60 * moment, Skip: skipIf(len(in.Doomed) == 0, "none to delete"), Irreversible: lost},
		{ID: StepGrow, Title: fmt.Sprintf("Add %d new node(s)", o.NewNodes), Usual: 2 * time.Minute, Deadline: 60 * moment, Skip: skipIf(o.NewNodes == 0, "not requested")},
		{ID: StepEnd, Title: "Close the journal and release the pool lock", Deadline: 30 * moment},
	}
	after := map[string][]string{
		StepHold: {StepPreflight}, StepJournal: {StepHold}, StepInspect: {StepJournal}, StepGallery: {StepInspect}, StepDefinition: {StepGallery},
		// A workbench that cannot be protected costs the donor nothing.
		StepProtect: {StepDefinition}, StepProtectBench: {StepDefinition}, StepCordon: {StepProtect, StepProtectBench}, StepDrain: {StepCordon}, StepStop: {StepDrain}, StepSnapshot: {StepStop},
		// The Node may be Ready long before Azure's start operation ends, which keeps the
		// instance from other changes until then.
		StepStart: {StepSnapshot}, StepReady: {StepSnapshot}, StepUncordon: {StepReady}, StepUnprotect: {StepUncordon, StepStart},
		StepHoldReboots: {StepSnapshot}, StepWorkDisk: {StepSnapshot}, StepAttach: {StepProtectBench, StepHoldReboots, StepWorkDisk},
		// What is saved comes from the pod's log: a workbench that is lost before that is
		// replaced by one step, and not by two at once.
		StepGeneralize: {StepAttach}, StepSave: {StepGeneralize}, StepDetach: {StepSave}, StepUnprotectBench: {StepDetach}, StepDeletePod: {StepSave, StepDetach},
		StepReleaseReboots: {StepDetach}, StepGeneralizedSnapshot: {StepSave, StepDetach}, StepDeleteWorkDisk: {StepGeneralizedSnapshot},
		// The version waits for the donor: an image of one that does not come
		// back must not go live.
		StepVersion: {StepGeneralizedSnapshot, StepUnprotect}, StepDeleteSnapshots: {StepVersion}, StepPrune: {StepVersion},
		StepModel: {StepVersion}, StepExclude: {StepModel, StepPrune}, StepExtensions: {StepModel}, StepGrow: {StepExtensions},
		StepEnd: {StepGrow, StepExclude, StepPrune, StepDeleteSnapshots, StepDeleteWorkDisk, StepReleaseReboots, StepDeletePod, StepUnprotectBench},
	}
	if in.DonorOut && !in.Course.FromDonor() {
		// A stopped donor does not wait for what the rest of a resumed capture needs.
		after[StepStart], after[StepReady] = nil, nil
	}
	for i := range steps {
		steps[i].After = after[steps[i].ID]
	}
	return steps
}

// NothingToDo reports whether all is as a capture of today would leave it. New
// nodes alone are no reason to run: a repeat must not add them twice.
func NothingToDo(in CaptureInput) bool {
	v := in.Course.Version
	return in.Course.Start == AtVersion && v != nil && v.ProvisioningState == Succeeded && in.InModel &&
		len(in.Doomed) == 0 && len(in.Prunable) == 0 && len(in.Course.Exclude) == 0 && len(in.Course.Stale) == 0 && !in.DonorOut
}

func skipIf(yes bool, why string) string {
	if yes {
		return why
	}
	return ""
}

func orNone(before string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return before + strings.Join(names, ", ")
}

// generalizeTitle says what is done to the copy of the disk.
func generalizeTitle(o Options) string {
	title := "Remove the donor's identity from the copy, and scan it for secrets"
	if o.ScanImages {
		title += ", image layers too"
	}
	if o.RemoveSecrets {
		title += "; delete files with secrets that no node needs to join"
	}
	return title
}

func extensionNames(extensions []fleet.Extension) []string {
	names := make([]string, len(extensions))
	for i, e := range extensions {
		names[i] = e.Name
	}
	return names
}

func versionNames(versions []fleet.ImageVersion) []string {
	names := make([]string, len(versions))
	for i, v := range versions {
		names[i] = v.Name
	}
	return names
}

func pruneUsual(prunable []string) time.Duration {
	return time.Duration(len(prunable)) * time.Minute
}
