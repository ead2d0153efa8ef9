// Package rollback points a pool's model at an earlier image version, or at what the
// model was before its first capture.
//
// Its steps change the model, restore extensions, and tag versions. What a capture deleted
// from the model is restored from Ortet's Secrets; if that is not possible, the rollback is
// refused and names what is lost.
package rollback

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

// Kind is that of a rollback's record.
const Kind = "rollback"

// A Request says what to return to. Node or Pool is required.
type Request struct {
	Pool fleet.ResourceID `json:"pool,omitempty"`
	Node string           `json:"node,omitempty"` // any node of the pool
	From string           `json:"from,omitempty"` // version that the model has to name; "" is any
	To   string           `json:"to,omitempty"`   // a version's name, "2026.11.20", plan.Previous or ToOriginal; "" is Previous

	AllowRolling         bool `json:"allowRolling,omitempty"` // as for a capture
	AllowOwned           bool `json:"allowOwned,omitempty"`
	AcceptLostExtensions bool `json:"acceptLostExtensions,omitempty"` // what cannot be restored ends in workflow.ExitNeedsPerson

	RestoreLearned []string `json:"restoreLearned,omitempty"` // customData or extensions: what donors' disks showed of these is restored
	WithoutLearned bool     `json:"withoutLearned,omitempty"` // what donors' disks showed of others is left out
	Unattended     bool     `json:"unattended,omitempty"`     // to an older version rather than to one that needs what is not in RestoreLearned
	Why            string   `json:"why,omitempty"`            // the finding of the watch that takes From back
}

// A Result says what a rollback did.
type Result struct {
	Pool        fleet.ResourceID `json:"pool"`
	From        fleet.ResourceID `json:"from,omitempty"` // a version's id, or "" for an image that is not a prototype
	To          fleet.ResourceID `json:"to"`             // "" with plan.ToOriginal
	Original    *plan.Original   `json:"original,omitempty"`
	NothingToDo bool             `json:"nothingToDo,omitempty"`
	Resumed     bool             `json:"resumed,omitempty"`
	Restored    []string         `json:"restored,omitempty"` // extensions, by name
	Lost        []string         `json:"lost,omitempty"`     // extensions that were not restored, with the reason
	Notes       []string         `json:"notes,omitempty"`
	Timing      capture.Timing   `json:"timing"`
}

// A Service rolls back. It may be used from several goroutines.
type Service struct {
	capture.Config
	runs atomic.Int64
}

// New makes a Service. Others of config returns the workflow that undoes an open capture.
func New(config capture.Config) *Service { return &Service{Config: config} }

// Workflow returns the workflow with which a capture ends an open rollback.
func (s *Service) Workflow() workflow.Workflow { return s.rollback(Request{}) }

// A rollback is one call of Rollback or Plan, as a workflow.
type rollback struct {
	*Service
	*workflow.ScaleSet
	workflow.Summary
	req    Request
	pool   fleet.ResourceID // of the request, or of its node
	s      state            // changes in the plan and in row model, beside which no other row runs
	result Result

	definitions []fleet.Definition     // all of the gallery's
	last        journal.Record         // that ended
	passesOver  []string               // notes, see plan.Plan
	customData  *fleet.Secret          // what the model's is replaced by; nil leaves it
	writes      []fleet.WriteExtension // to do
}

// A state is what a rollback decided. It is saved with the record.
type state struct {
	plan.Inherited
	plan.Return
	Pool       fleet.ResourceID `json:"pool"`                 // as Azure spells it
	CustomData string           `json:"customData,omitempty"` // SHA-256 of what the model's is replaced by; "" leaves it
	FromFailed bool             `json:"fromFailed,omitempty"` // version From was Failed before: a tag does not repair it

	Was fleet.ImageReference `json:"was,omitzero"` // of the model, on which the decision rests
}

// target returns the image that the model is pointed at, and its name for people.
func (s state) target() (fleet.ImageReference, string) {
	if s.ToOriginal {
		return s.Original.Image, s.Original.Image.Text()
	}
	return fleet.ImageReference{ID: s.To}, s.To.Name()
}

func (s *Service) rollback(q Request) *rollback {
	return &rollback{Service: s, ScaleSet: workflow.NewScaleSet(s.Cloud, s.Now), req: q, pool: q.Pool}
}

// Rollback points the model at the version that q names. An open rollback to the same
// version is resumed; another open rollback is ended first, and an open capture is undone
// first. Errors are those of capture.Service.Capture.
func (s *Service) Rollback(ctx context.Context, q Request) (Result, error) {
	r := s.rollback(q)
	x := &r.result
	x.Timing.Begin = s.Now()
	problems, err := r.findPool(ctx)
	switch {
	case err != nil: // a record may be open
		err = &workflow.Outcome{Exit: workflow.ExitInterrupted, Step: "preflight", Err: err}
	case len(problems) > 0:
		err = &workflow.Refused{Problems: problems}
	default:
		err = r.Runner(fmt.Sprintf("rollback-%d", r.runs.Add(1)), &r.Summary).Run(ctx, r.pool, r)
	}
	out := new(workflow.Outcome)
	if errors.As(err, &out) && out.Exit == workflow.ExitNeedsPerson && slices.Contains([]string{stepExtensions, stepTag, stepUntag}, out.Step) {
		_, to := r.s.target()
		out.Ended = "new nodes come from " + to + "; once this is mended, the same command does the rest"
	}
	x.Timing.End = s.Now()
	x.Notes, x.Timing.Steps = r.Recorded()
	x.Pool, x.From, x.To = cmp.Or(r.s.Pool, r.pool), r.s.From, r.s.To
	if r.s.ToOriginal {
		x.Original = r.s.Original
	}
	return r.result, err
}

// findPool finds the pool that the request names, or returns why that is not possible.
func (r *rollback) findPool(ctx context.Context) (problems plan.Problems, err error) {
	if r.pool != "" {
		return nil, nil
	}
	n, err := r.Cluster.Node(ctx, r.req.Node)
	if fleet.Is(err, fleet.KindDenied) {
		problems.Denied("", nil, []string{"get nodes"})
		return problems, nil
	}
	var why error
	if err == nil {
		if r.pool, why = azure.PoolOfNode(ctx, r.Cloud, n); why != nil {
			r.pool = ""
		}
		if !capture.Unplaced(why) {
			err = why
		}
	}
	if why = cmp.Or(err, why); fleet.Is(why, fleet.KindNotFound) {
		why = errors.New("there is no such node, and no scale set of this name has one")
	}
	problems.Refuse(why != nil, "NoPool", "node "+r.req.Node, fmt.Sprint(why),
		"name a node of the pool, or the scale set by its ARM id (az vmss list); by its name, if it has nodes and you may list them")
	return problems, fleet.IgnoreNotFound(err)
}

func (r *rollback) Kind() string { return Kind }

func (r *rollback) State(bool) any { return r.s }

// stateOf reads a record's state. It refuses ids outside the pool: the right to write the Secret
// must not reach other resources.
func stateOf(rec journal.Record) (s state, err error) {
	if err := json.Unmarshal(rec.State, &s); err != nil {
		return s, fmt.Errorf("decode the state: %w", err)
	}
	if !s.isOf(fleet.ResourceID(rec.Pool)) {
		return s, fmt.Errorf("the state is not of the pool %s", rec.Pool)
	}
	return s, nil
}

func (s state) isOf(pool fleet.ResourceID) bool {
	ours := func(id fleet.ResourceID) bool {
		return id == "" || plan.IsDefinitionOf(s.Pool, id.Parent()) && id.Equal(id.Parent().Child("versions", id.Name())) && fleet.ValidName(id.Name())
	}
	return s.Pool.Equal(pool) && ours(s.To) && ours(s.TagFrom) && (!s.ToOriginal || s.Original != nil)
}

// Restore implements workflow.Workflow.
func (r *rollback) Restore(rec journal.Record) (t workflow.Table, why string, err error) {
	s, err := stateOf(rec)
	if err != nil {
		return nil, "", err
	}
	r.s = s
	if rec.Phase == journal.Undo {
		why = "it was being undone"
	} else if !slices.Contains([]string{"", plan.Previous, cmp.Or(s.To.Name(), plan.ToOriginal)}, r.req.To) {
		why = "this command rolls back to " + r.req.To
	}
	r.result.Resumed = why == ""
	return r.table(false), why, nil
}

// Plan implements workflow.Workflow: it observes, and sets the state of a run that begins
// now. An open record keeps what it decided.
func (r *rollback) Plan(ctx context.Context, rec journal.Record) (workflow.Plan, error) {
	if !rec.Open() {
		r.s, r.last = state{Inherited: capture.Inherit(rec)}, rec
	}
	s, changes := &r.s, []fleet.Change{fleet.PatchModel{}, fleet.TagVersion{}}
	var d plan.Problems
	var versions []fleet.ImageVersion
	var notes []string
	pool, err := r.Cloud.Pool(ctx, r.pool)
	d.Refuse(fleet.Is(err, fleet.KindNotFound), "PoolNotFound", string(r.pool), "the scale set does not exist",
		"check its name, and the credentials' subscription")
	d.Unreadable(string(r.pool), err)
	if err == nil {
		s.Pool = pool.ID
		if standby := r.Standby(ctx, pool); standby != "" {
			r.Note("%s", standby)
		}
		d = append(d, plan.ModelProblems(pool, r.req.AllowRolling, true, r.req.AllowOwned)...)
		versions, r.definitions, err = r.History(ctx, pool.ID, pool.Model.Image)
		d.Unreadable(string(plan.DefinitionOf(pool.ID).Parent()), err)
		r.allow(rec)
		if !rec.Open() && fleet.IgnoreNotFound(err) == nil {
			notes = r.chooseAllowed(ctx, &d, pool, versions)
		} else {
			notes = r.load(ctx, &d, pool, rec.Steps[stepModel].State == journal.Done)
		}
		if len(r.writes) > 0 {
			changes = append(changes, r.writes[0])
		}
	}
	inCluster, err := r.Denied(ctx, r.pool)
	d.Unreadable("what the cluster allows", err)
	inAzure, err := r.Cloud.Denied(ctx, r.pool.Group(), azure.ActionsIn(pool, changes))
	d.Unreadable("what "+string(r.pool.Group())+" allows", err)
	d.Denied(r.pool.Group(), inAzure, inCluster)
	if ctx.Err() != nil || len(d) > 0 {
		return workflow.Plan{Problems: d}, context.Cause(ctx)
	}
	for _, note := range append(notes, r.ClockNote()) {
		r.Note("%s", note)
	}
	image, _ := s.target()
	patched := s.CustomData == ""
	if rec.Open() {
		was := rec.Steps[stepModel].State
		patched = was == journal.Done || was == journal.Skipped
	}
	t := r.table(patched && pool.Model.Image.Same(image))
	r.result.NothingToDo = !rec.Open() && !slices.ContainsFunc(t, func(row workflow.Step) bool { return row.Skip == "" })
	return workflow.Plan{Name: plan.CaptureName(r.Now()), Request: r.req, Table: t, Left: r.result.Lost}, nil
}

// unfinished returns what a rollback decided that changed the model and did not end well: the same
// command, also with its target named, finishes it instead of going back again. Captures that did
// not change the model may have come since.
func (r *rollback) unfinished(pool fleet.Pool, versions []fleet.ImageVersion) (u plan.Unfinished, found bool) {
	if r.s.Unfinished == nil {
		return u, false
	}
	u = *r.s.Unfinished
	s := state{Inherited: r.s.Inherited, Return: u.Return, Pool: pool.ID}
	if !s.isOf(pool.ID) {
		return u, false
	}
	same := cmp.Or(u.Asked, plan.Previous) == cmp.Or(r.req.To, plan.Previous) ||
		r.req.To == cmp.Or(s.To.Name(), plan.ToOriginal)
	image, _ := s.target()
	_, there := plan.FindVersion(versions, s.TagFrom)
	return u, same && pool.Model.Image.Same(image) && (s.ToOriginal || there)
}

// reached returns what the last rollback decided if the same command ended well and was killed before
// it reported that: this one does not go back again.
func (r *rollback) reached(pool fleet.Pool) (back plan.Return, reached bool) {
	if !r.last.Unreleased || r.last.Kind != Kind || r.last.Ended.Exit != workflow.ExitDone {
		return back, false
	}
	var was Request
	s, err := stateOf(r.last)
	if cmp.Or(err, json.Unmarshal(r.last.Request, &was)) != nil {
		return back, false
	}
	image, _ := s.target()
	same := cmp.Or(was.To, plan.Previous) == plan.Previous && cmp.Or(r.req.To, plan.Previous) == plan.Previous
	return plan.Return{From: s.From, To: s.To, ToOriginal: s.ToOriginal, NothingToDo: true}, same && pool.Model.Image.Same(image)
}

// A Last is the pool's last run: but for Watched, if that is a rollback whose record can be read.
type Last struct {
	Name     string           // of its record; "" for none
	By       string           // process that wrote it
	From, To fleet.ResourceID // versions; "" for other images
	Why      string           // finding of the watch that took From back; "" for a person's rollback
	Ended    bool             // well
	Watched  json.RawMessage  // what a watch saved; nil for nothing
}

// Last reads the pool's last run.
func (s *Service) Last(ctx context.Context, pool fleet.ResourceID) (Last, error) {
	rec, err := s.Journal.Load(ctx, string(pool))
	last := Last{Watched: capture.Inherit(rec).Watched}
	if err != nil || rec.Kind != Kind {
		return last, fleet.IgnoreNotFound(err)
	}
	var q Request
	if st, err := stateOf(rec); cmp.Or(err, json.Unmarshal(rec.Request, &q)) == nil {
		last.Name, last.By, last.From, last.To, last.Why = rec.Name, rec.Writer, st.From, st.To, q.Why
		last.Ended = rec.Ended != nil && rec.Ended.Exit == workflow.ExitDone
	}
	return last, nil
}

// String names the rollback and its process for people.
func (l Last) String() string { return Kind + " " + l.Name + " of " + l.By }

// choose decides what the request comes down to, and which customData goes with it.
func (r *rollback) choose(d *plan.Problems, pool fleet.Pool, versions []fleet.ImageVersion) (notes []string) {
	s := &r.s
	s.Return, s.CustomData, s.Was = plan.Return{}, "", pool.Model.Image
	now, _ := plan.VersionOf(versions, pool.Model.Image, pool.Location)
	d.Refuse(r.req.From != "" && r.req.From != now.Name, CodeModelChanged, string(pool.ID),
		"the model names "+pool.Model.Image.Text()+" by now, not "+r.req.From, "see ortet status for what new nodes come from")
	back, problems := plan.ReturnTo(versions, pool, s.Original, r.req.To)
	before, unfinished := r.unfinished(pool, versions)
	reached, done := r.reached(pool)
	switch {
	case done:
		back = reached
		notes = append(notes, Kind+" "+r.last.Name+" did this, and its process was killed before it reported that; the same command goes back further now")
	case unfinished:
		back = before.Return
		notes = append(notes,
			Kind+" "+before.Name+" changed the model and did not finish: this command does what is left of it; --to VERSION goes to another")
	case len(problems) > 0:
		*d = append(*d, problems...)
		return nil
	}
	s.Return = back
	to, _ := plan.FindVersion(versions, s.To)
	current, _ := plan.FindVersion(versions, s.From)
	if s.FromFailed = before.FromFailed; !unfinished {
		s.FromFailed = current.ProvisioningState == plan.Failed
	}
	want, has, last := to.Tags[fleet.TagCustomData], current.Tags[fleet.TagCustomData], s.LastCustomData
	if s.ToOriginal {
		want = s.Original.CustomData
	}
	_, name := s.target()
	switch {
	case unfinished && want == last && before.Patched: // it was set with the image
	case s.NothingToDo && (want == "" || want == last || last != plan.NoopSHA256):
	case s.ToOriginal && want == "" && (last != "" || has == plan.NoopSHA256):
		d.Refuse(true, "CustomDataLost", string(pool.ID), "the model's customData from before the first capture is not known",
			"name a version by --to, or set image and customData by hand")
	case want != "" && (last != "" || has == plan.NoopSHA256) && (want != has || last != "" && want != last): // else it is the owner's
		s.CustomData = want
	case !s.ToOriginal && want == "" && has+last != "":
		notes = append(notes, "which customData the nodes of "+name+" need is not known: the model keeps what it has")
	}
	if !s.ToOriginal && len(current.Tags) > 0 && s.TagFrom != "" && !s.Forward {
		notes = append(notes, "extensions that captures deleted are not added again")
	}
	return notes
}

// chooseAllowed chooses, and loads what goes with it. An unattended rollback passes over versions
// that need what it may not restore.
func (r *rollback) chooseAllowed(ctx context.Context, d *plan.Problems, pool fleet.Pool,
	versions []fleet.ImageVersion) []string {
	var nearest plan.Problems
	r.passesOver = nil
	for {
		var p plan.Problems
		found := r.choose(&p, pool, versions)
		found = append(found, r.load(ctx, &p, pool, false)...)
		r.boots(ctx, &p, pool)
		_, passable := plan.FindVersion(versions, r.s.To)
		passable = passable && r.req.Unattended && slices.ContainsFunc(p, func(x fleet.Problem) bool { return x.Code == codeLearned || x.Code == codeOtherKind })
		if nearest == nil {
			nearest = p
		}
		switch {
		case passable:
			cannot := slices.ContainsFunc(p, func(x fleet.Problem) bool { return x.Code == codeOtherKind })
			r.passesOver = append(r.passesOver, "passes over "+r.s.To.Name()+
				cmp.Or(workflow.SkipIf(cannot, ", which the model's machines cannot boot"), ", which needs what a donor's disk showed"))
			versions = slices.DeleteFunc(slices.Clone(versions), func(v fleet.ImageVersion) bool { return v.ID.Equal(r.s.To) })
			continue
		case len(p) > 0:
			*d = append(*d, nearest...)
		}
		return append(slices.Clone(r.passesOver), found...)
	}
}

// load reads from the secret store what the model is given, and refuses what is lost, or not
// allowed. given: the model has the customData.
func (r *rollback) load(ctx context.Context, d *plan.Problems, pool fleet.Pool, given bool) (notes []string) {
	l := learned{rollback: r, problems: d}
	defer func() { notes = l.end() }()
	r.customData = nil
	if sha := r.s.CustomData; sha != "" {
		_, name := r.s.target()
		data, err := capture.CustomData(ctx, r.Cluster, pool.ID, sha)
		d.Refuse(fleet.Is(err, fleet.KindNotFound), "CustomDataLost", name, "it needs customData that is not kept (SHA-256 "+sha+")",
			"name a version that was made with --bootstrap baked, or capture a node again")
		d.Unreadable("the customData of "+name, err)
		r.customData = &data
		switch {
		case given || err != nil:
		case sha == plan.NoopSHA256 || l.restores(ctx, pool, plan.Learned{Kind: string(wire.CustomData), SHA256: sha}, data):
			l.notes = append(l.notes, "the model's customData becomes what goes with "+name)
		default:
			r.s.CustomData, r.customData = "", nil
		}
	}
	if r.writes, r.result.Lost = nil, nil; !r.s.ToOriginal {
		return
	}
	writes, lost, err := restorable(ctx, r.Cluster, *r.s.Original, pool)
	d.Unreadable("the saved settings of extensions", err)
	r.result.Lost = fleet.Each(lost, func(p fleet.Problem) string { return p.On + ": " + p.What + "; add it by az vmss extension set" })
	r.writes = slices.DeleteFunc(writes, func(w fleet.WriteExtension) bool { return l.leavesOut(ctx, pool, w) })
	if !r.req.AcceptLostExtensions {
		*d = append(*d, lost...)
		return
	}
	for i, e := range r.s.Original.Extensions { // the next capture need not know those that are accepted as lost
		isLost := slices.ContainsFunc(lost, func(p fleet.Problem) bool { return p.On == "extension "+e.Name })
		r.s.Original.Extensions[i].Deleted = e.Deleted && !isLost
	}
	return
}

// Plan says what Rollback would do, and changes nothing. Problems are in the plan, not
// in the error.
func (s *Service) Plan(ctx context.Context, q Request) (p plan.Plan, err error) {
	r := s.rollback(q)
	p.Kind = Kind
	if p.Problems, err = r.findPool(ctx); err != nil || len(p.Problems) > 0 {
		return p, err
	}
	p, _, err = r.Preview(ctx, r.pool, r, func(rec journal.Record) (plan.Plan, error) {
		run, err := r.Plan(ctx, rec)
		notes, _ := r.Recorded()
		return plan.Plan{
			Kind: Kind, Pool: r.s.Pool, Version: r.s.To, Problems: run.Problems, Notes: slices.Concat(notes, run.Left), PassesOver: r.passesOver,
			NothingToDo: r.result.NothingToDo, Steps: capture.Steps(run.Table, nil),
		}, err
	})
	return p, err
}

const (
	// CodeModelChanged is the problem of a model whose image others changed meanwhile.
	CodeModelChanged = "ModelChanged"
	codeOtherKind    = "OtherKind" // of a version that the model's machines cannot boot
)

// boots refuses a version of another definition than the model names, if the model's size or security
// type does not fit. That sizes cannot be read is no reason to refuse: listing them needs a right on the subscription.
func (r *rollback) boots(ctx context.Context, d *plan.Problems, pool fleet.Pool) {
	definition := plan.FindDefinition(r.definitions, r.s.To.Parent())
	if definition == nil || definition.ID.Equal(plan.NamedDefinition(pool.ID, pool.Model.Image)) {
		return
	}
	var sizes []fleet.SizeInfo
	known, err := r.Cloud.Sizes(ctx, pool.ID.Segment("subscriptions"), pool.Location, pool.NewSizes()...)
	if err != nil {
		r.Log.Debug("cannot read what VM sizes can do", "sizes", pool.NewSizes(), "error", err)
	}
	for _, name := range pool.NewSizes() {
		if size, is := known[strings.ToLower(name)]; is {
			sizes = append(sizes, size)
		}
	}
	what, why := plan.CannotBoot(*definition, pool, sizes)
	d.Refuse(what != "", codeOtherKind, string(pool.ID),
		fmt.Sprintf("version %s of %s does not boot with the model's %s: %s", r.s.To.Name(), definition.ID.Name(), what, why),
		"change the model's size and security type back first (az vmss update), or name another target: --to VERSION, or --to "+plan.ToOriginal)
}
