package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/prototype"
)

// schema of the facts and the request in a journal record.
const schema = 1

// facts are what was observed or chosen and cannot be observed again.
type facts struct {
	// Writer and Seq mark each save, so that one whose answer was lost is known
	// again.
	Writer string `json:"writer"`
	Seq    int64  `json:"seq"`

	Names    prototype.Names  `json:"names"`
	Pool     fleet.ResourceID `json:"pool"` // as Azure spells it
	Location string           `json:"location"`
	Instance fleet.ResourceID `json:"instance"`
	Disk     fleet.ResourceID `json:"disk"`
	Zone     string           `json:"zone,omitempty"`
	Start    prototype.Start  `json:"start"`
	// BootID of the donor before it was stopped; another one says that it booted.
	BootID string `json:"bootId,omitempty"`
	// NodeUID is the donor's Node that we marked and cordoned.
	NodeUID string `json:"nodeUid,omitempty"`
	// Machine is the donor's annotations that name its Cluster API Machine.
	Machine    map[string]string `json:"machine,omitempty"`
	Addresses  []string          `json:"addresses,omitempty"`
	Definition fleet.Definition  `json:"definition"`
	Bench      benchFacts        `json:"bench"`
	// PrivateKey opens what the workbench's pod seals.
	PrivateKey []byte    `json:"privateKey,omitempty"`
	BuiltAt    time.Time `json:"builtAt"`

	Drained       bool `json:"drained,omitempty"`
	Stopped       bool `json:"stopped,omitempty"`       // the donor was seen stopped
	SnapshotTaken bool `json:"snapshotTaken,omitempty"` // while it was
	Saved         bool `json:"saved,omitempty"`         // the copy is generalised, its secrets kept
	// CustomData is the SHA-256 of the customData that goes with the version,
	// Restore that of what the model's was, as far as it is known; "" leaves it.
	CustomData string `json:"customData,omitempty"`
	Restore    string `json:"restore,omitempty"`
	// Doomed names the extensions that were to go when the capture began.
	Doomed []string `json:"doomed,omitempty"`
	// Unsaved is what could not be kept, Credentials what the image holds.
	Unsaved     []string `json:"unsaved,omitempty"`
	Credentials []string `json:"credentials,omitempty"`
	// AcceptedSecrets are other secrets that the image holds, RemovedSecrets those whose
	// files were removed from it, Secrets its record of both, ScanNotes what the scan
	// passed over.
	AcceptedSecrets []string `json:"acceptedSecrets,omitempty"`
	RemovedSecrets  []string `json:"removedSecrets,omitempty"`
	Secrets         string   `json:"secrets,omitempty"`
	ScanNotes       []string `json:"scanNotes,omitempty"`
	StorageType     string   `json:"storageType,omitempty"`
	// Before is the model's image before it was changed; ModelChanged is true
	// from when the model was seen to use the new one.
	Before fleet.ImageReference `json:"before"`
	// Used is the version that Before stood for; "" where it is no prototype.
	Used         fleet.ResourceID `json:"used,omitempty"`
	ModelChanged bool             `json:"modelChanged,omitempty"`
	// Went is the SHA-256 of the customData that Ortet last left the model with, by the
	// records: others may have deleted the version, or set another image.
	Went string `json:"went,omitempty"`
	// WentTo is the version that Ortet last pointed the model at, by the records before.
	WentTo   fleet.ResourceID `json:"wentTo,omitempty"`
	GrowFrom int64            `json:"growFrom,omitempty"`
	GrowTo   int64            `json:"growTo,omitempty"`
	// Original is what the model was before its first capture: it is carried from
	// record to record. Learns is true where the donor's customData is its.
	Original *prototype.Original `json:"original,omitempty"`
	Learns   bool                `json:"learns,omitempty"`
	// Undoing says why all is being put back; "" while the capture goes on.
	Undoing string `json:"undoing,omitempty"`
	// Return is a rollback's.
	Return *returnFacts `json:"return,omitempty"`
	// BuiltFrom is the node of today's version where that was there already.
	BuiltFrom string `json:"builtFrom,omitempty"`
}

type benchFacts struct {
	Node     string           `json:"node,omitempty"`
	Instance fleet.ResourceID `json:"instance,omitempty"`
	Zone     string           `json:"zone,omitempty"`
	LUN      int32            `json:"lun"`
	// BootID when the copy was attached; another one is of a reboot beside it.
	BootID string `json:"bootId,omitempty"`
	// Lost are the workbenches before this one, by node.
	Lost []string `json:"lost,omitempty"`
}

// factsOf reads a record's facts. Those that name anything but the pool's own are
// refused: a journal lies in a Secret, and who can write one must not have us
// change or delete what is not the pool's.
func factsOf(rec journal.Record) (facts, error) {
	var f facts
	if err := json.Unmarshal(rec.Facts, &f); err != nil {
		return facts{}, fmt.Errorf("read the journal: %w", err)
	}
	foreign := func(what string, id fleet.ResourceID) (facts, error) {
		return facts{}, fmt.Errorf("read the journal: %s %q is not of the pool %s", what, id, rec.Pool)
	}
	if !f.Pool.Equal(fleet.ResourceID(rec.Pool)) {
		return foreign("the pool", f.Pool)
	}
	n, definition := f.Names, prototype.DefinitionOf(f.Pool)
	back := returnFacts{}
	if f.Return != nil {
		back = *f.Return
	}
	for _, x := range []struct {
		what string
		id   fleet.ResourceID
		want fleet.ResourceID
	}{
		{"the instance", f.Instance, f.Pool.Child("virtualMachines", f.Instance.Name())},
		{"the gallery", n.Gallery, definition.Parent()},
		{"the image definition", n.Definition, definition},
		{"the image definition", f.Definition.ID, definition},
		{"the version", n.Version, definition.Child("versions", n.Version.Name())},
		{"the version", back.To, definition.Child("versions", back.To.Name())},
		{"the version", back.TagFrom, definition.Child("versions", back.TagFrom.Name())},
		{"the snapshot", n.Snapshot, f.Pool.In("snapshots", n.Snapshot.Name())},
		{"the snapshot", n.Generalized, f.Pool.In("snapshots", n.Generalized.Name())},
		{"the disk", n.WorkDisk, f.Pool.In("disks", n.WorkDisk.Name())},
	} {
		if x.id != "" && (!x.id.Equal(x.want) || !fleet.ValidName(x.id.Name())) {
			return foreign(x.what, x.id)
		}
	}
	// The workbench may be of another pool.
	if id := f.Bench.Instance; id != "" {
		if _, err := fleet.ParseProviderID("azure://" + string(id)); err != nil {
			return facts{}, fmt.Errorf("read the journal: the workbench: %w", err)
		}
	}
	return f, nil
}

// originalOf gives what a record carries of before the pool's first capture; nil
// where it has nothing, or cannot be read.
func originalOf(rec journal.Record) *prototype.Original {
	f, err := factsOf(rec)
	if err != nil || f.Original == nil {
		return nil
	}
	o := *f.Original
	if (f.Return != nil && f.CustomData != "" || f.CustomData == sha(noop)) && rec.Intents[prototype.StepModel].Tries > 0 {
		o.Replaced = o.CustomData == ""
	}
	return &o
}

// remember records what the model is before a capture, unless it uses a prototype:
// then that of before the first is kept.
func (f *facts) remember(old journal.Record, pool fleet.Pool, donor *fleet.Instance, now time.Time) {
	f.Original = originalOf(old)
	image := pool.Model.Image
	f.Went, f.WentTo = wentBy(old), wentTo(old)
	if image.LatestOf().Equal(f.Names.Definition) || image.Exact().Parent().Equal(f.Names.Definition) {
		return
	}
	if f.Original == nil || !f.Original.Image.Same(image) {
		image.ExactVersion = ""
		f.Original = &prototype.Original{Image: image, Extensions: prototype.OriginalExtensions(pool.Model.Extensions, nil), At: now}
	}
	// A change of the model's userData makes LatestModelApplied false everywhere, and
	// Azure does not say why it is. A donor that was created after the record of the
	// original has customData at least as new as the recorded one.
	f.Learns = donor != nil && donor.Image.Same(image) &&
		(f.Original.CustomData == "" || donor.LatestModelApplied || donor.Created.After(f.Original.At))
}

// wentBy gives the SHA-256 of the customData that the model was left with, by a record
// that ended; "" where it is not known.
func wentBy(rec journal.Record) string {
	f, err := factsOf(rec)
	if err == nil && f.ModelChanged && f.CustomData != "" {
		return f.CustomData
	}
	return f.Went
}

// wentTo gives the version that the model was pointed at, by a record that ended or one
// before it; "" where that is not known, or none.
func wentTo(rec journal.Record) fleet.ResourceID {
	f, err := factsOf(rec)
	switch {
	case err != nil:
		return ""
	case f.ModelChanged:
		return f.Names.Version
	}
	return f.WentTo
}

// used is the version that the model used; another where that is no prototype of ours.
func (f facts) used() fleet.ResourceID {
	if f.Before.LatestOf() != "" {
		return f.Used // by now the latest may be another
	}
	return f.Before.ID
}

// The names on the undo list.
const (
	undoScaleDown   = "annotation/" + fleet.AnnotationScaleDownDisabled
	undoMark        = "annotation/" + fleet.AnnotationCapture
	undoMachine     = "machine/" + fleet.AnnotationSkipRemediation
	undoProtection  = "protection"
	undoCordon      = "cordon"
	undoStop        = "stop"
	undoSnapshot    = "snapshot"
	undoReboots     = "reboots"
	undoWorkDisk    = "work-disk"
	undoAttach      = "attach"
	undoBench       = "workbench"
	undoJob         = "job"
	undoGeneralized = "generalized-snapshot"
	undoVersion     = "version"
	undoModel       = "model"
)

// donorUndos are those that keep the donor from being as it was found.
var donorUndos = []string{undoScaleDown, undoMark, undoMachine, undoProtection, undoCordon, undoStop}

// look reads the record and facts; what look gets must not be changed.
func (r *run) look(f func(rec *journal.Record, f *facts)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.record, &r.facts)
}

func (r *run) get() facts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.facts
}

// write changes the record by change and saves it; where saving fails, nothing
// has changed. It outlives the cancellation of the step that calls it, so that
// what was begun is written down. One write follows the other; what is in the
// record can be read meanwhile. Once another process wrote the record, or the Lease ran
// out while it was written, the pool is given up: what was to follow is not begun.
func (r *run) write(change func(rec *journal.Record, f *facts)) error {
	r.writing <- struct{}{}
	defer func() { <-r.writing }()
	r.mu.Lock()
	rec, f := r.record, r.facts
	spent := r.spent
	r.spent = nil
	r.mu.Unlock()
	rec.Intents, rec.Undo = maps.Clone(rec.Intents), slices.Clone(rec.Undo)
	if rec.Intents == nil {
		rec.Intents = map[string]journal.Intent{}
	}
	for key, token := range spent {
		if intent := rec.Intents[key]; intent.Token == token {
			intent.Token = ""
			rec.Intents[key] = intent
		}
	}
	change(&rec, &f)
	// A write that failed may have been stored all the same: no other has its number.
	r.seq = max(r.seq, f.Seq) + 1
	f.Writer, f.Seq = r.holder, r.seq
	raw, err := json.Marshal(f) //nolint:gosec // the key lies in the cluster's Secret, beside the journal, until the record is closed
	if err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	rec.Facts = raw
	ctx, cancel := context.WithTimeout(r.care, time.Minute)
	defer cancel()
	saved, err := r.save(ctx, rec)
	if fleet.Is(err, fleet.KindHeld) {
		r.giveUp(fmt.Errorf("%w: %w", errLost, err)) // what is open in the journal is another's now
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record, r.facts, r.unsaved = saved, f, false
	if rec.Ended == nil && r.hold != nil && !r.hold.valid(r.e.now()) {
		r.giveUp(errLost) // the answer took so long that another may have taken over since
		return errLost
	}
	return nil
}

// amend changes the record without saving it: the next write does, at the latest the
// one with the intent of a change. It is for what is recorded before a change that
// begin records too, and for what the world shows as well.
func (r *run) amend(change func(rec *journal.Record, f *facts)) error {
	if err := context.Cause(r.care); err != nil {
		return err
	}
	r.writing <- struct{}{}
	defer func() { <-r.writing }()
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.record
	rec.Intents, rec.Undo = maps.Clone(rec.Intents), slices.Clone(rec.Undo)
	change(&rec, &r.facts)
	r.record, r.unsaved = rec, true
	return nil
}

// flush saves what was amended since the last write.
func (r *run) flush() {
	r.mu.Lock()
	unsaved := r.unsaved
	r.mu.Unlock()
	if !unsaved || r.fence(r.care) != nil {
		return
	}
	if err := r.write(func(*journal.Record, *facts) {}); err != nil {
		r.e.log.Warn("cannot write the end to the journal", "error", err)
	}
}

// save writes a record. One whose answer was lost is recognised by its mark, so
// that it is not taken for somebody else's; an earlier one of this run that was
// believed to have failed is written over. One that somebody deleted is written
// again, for as long as the pool is held: a donor may depend on it.
func (r *run) save(ctx context.Context, rec journal.Record) (journal.Record, error) {
	store := r.e.cluster.Journals()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		saved, err := store.Save(ctx, rec)
		if err == nil {
			return saved, nil
		}
		switch fleet.KindOf(err) {
		case fleet.KindConflict:
			there, loadErr := store.Load(ctx, rec.Pool)
			ours, same := compareSaves(there.Facts, rec.Facts)
			switch {
			case loadErr == nil && same:
				return there, nil
			case loadErr == nil && rec.Revision != "" && there.Revision == rec.Revision: // nobody wrote: it was refused for another reason
			case loadErr == nil && ours:
				rec.Revision = there.Revision
			case fleet.Is(loadErr, fleet.KindNotFound) && rec.Revision != "" && r.fence(r.care) == nil:
				rec.Revision = ""
			case loadErr == nil, fleet.Is(loadErr, fleet.KindNotFound):
				return journal.Record{}, &fleet.Error{Op: "write the journal", Resource: rec.Pool, Kind: fleet.KindHeld, Err: err,
					Remedy: "somebody else works on this pool: see ortet status"}
			}
		case fleet.KindTransient, fleet.KindThrottled, fleet.KindTimedOut, fleet.KindUnauthenticated: // credentials are renewed
		default:
			return journal.Record{}, err
		}
		if sleep(ctx, max(wait, azure.RetryAfter(err))) != nil {
			return journal.Record{}, err
		}
	}
}

// compareSaves reports whether two records' facts were saved by one run, and whether
// at one and the same save.
func compareSaves(a, b json.RawMessage) (run, same bool) {
	var x, y facts
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false, false
	}
	run = x.Writer != "" && x.Writer == y.Writer
	return run, run && x.Seq == y.Seq
}

// addUndo puts an entry on the undo list, once: what was there before the first
// time is what has to come back.
func addUndo(rec *journal.Record, name string, what any) {
	if hasUndo(rec, name) {
		return
	}
	raw, err := json.Marshal(what)
	if err != nil { // strings, booleans and structs of them
		raw = nil
	}
	rec.Undo = append(rec.Undo, journal.Undo{Name: name, What: raw})
}

func hasUndo(rec *journal.Record, names ...string) bool {
	return slices.ContainsFunc(rec.Undo, func(u journal.Undo) bool { return slices.Contains(names, u.Name) })
}

func dropUndo(rec *journal.Record, names ...string) {
	rec.Undo = slices.DeleteFunc(rec.Undo, func(u journal.Undo) bool { return slices.Contains(names, u.Name) })
}

// undo gives an entry and whether it is there.
func (r *run) undo(name string) (journal.Undo, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, u := range r.record.Undo {
		if u.Name == name {
			return u, true
		}
	}
	return journal.Undo{}, false
}

// donorOut reports whether something of ours keeps the donor from being as found.
func (r *run) donorOut() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return hasUndo(&r.record, donorUndos...)
}

// holdsNothingUp reports whether a run that was begun can wait: the donor is as it
// was found, and the cluster's nodes may reboot.
func (r *run) holdsNothingUp() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record.Capture != "" && r.record.Ended == nil && !hasUndo(&r.record, donorUndos...) && !hasUndo(&r.record, undoReboots)
}

// drop takes entries off the undo list, since they are put back, with the next
// write: what is put back twice is put back.
func (r *run) drop(names ...string) {
	r.mu.Lock()
	there := hasUndo(&r.record, names...)
	r.mu.Unlock()
	if !there {
		return
	}
	if err := r.amend(func(rec *journal.Record, _ *facts) { dropUndo(rec, names...) }); err != nil {
		r.e.log.Warn("cannot write to the journal that something is put back", "names", names, "error", err)
	}
}
