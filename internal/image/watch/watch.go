// Package watch looks at the first real nodes of a version that went live, and takes the
// version back if they do not come up.
//
// Its state is in Azure: the version that the model names, its instances, and tags of the
// version (when the watch began, how many nodes have to come up, what was decided), so the next watch
// continues after a kill. That nodes failed is saved in the pool's record before it is acted on, and
// the record of the rollback has the finding: who may write tags cannot take a version back. Before
// each write that takes something away the watch reads again what that rests on. Whether a node came
// up is decided by internal/image/prove.
package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/clones"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/prove"
	"github.com/ortet/ortet/internal/image/rollback"
	"github.com/ortet/ortet/internal/workflow"
)

// Step is what a watch is called in events and outcomes.
const Step = "watch"

const (
	interval = 15 * time.Second // from one look at the nodes to the next
	passes   = time.Hour        // limit for what passes: an API server that is away
	clocks   = 2 * time.Minute  // how far clocks are apart at most; and limit of a tag that does not matter
	drainFor = time.Minute      // of a node that is deleted
	soak     = 2 * time.Minute  // how long all gates have to hold

	maxClones = 20 // whose pods are read at one look
)

// Defaults and bounds of a Request.
const (
	DefaultFor   = 30 * time.Minute
	MinFor       = time.Minute
	MaxFor       = 7 * 24 * time.Hour
	DefaultNodes = 3
	MaxNodes     = 1000
)

// What becomes of the bad nodes of a version that was taken back.
const (
	Cordon = "cordon"
	Delete = "delete" // drained for a minute before
	Leave  = "leave"
)

// A Request says what to watch. Pool is required.
type Request struct {
	Pool     fleet.ResourceID
	Version  fleet.ResourceID // that the model has to name; "": any
	For      time.Duration    // after its begin
	Nodes    int              // that have to come up
	BadNodes string           // Cordon, Delete or Leave

	RestoreLearned []string // of a take-back, beside those of the capture before it

	AllowRolling, AllowOwned bool // as for a rollback
}

// Changes lists a zero change of each verb that a watch after a capture may need; none where For
// is 0. Whether a take-back needs more is known only after the capture.
func (q Request) Changes() []fleet.Change {
	if q.For == 0 {
		return nil
	}
	all := []fleet.Change{fleet.PatchModel{}, fleet.TagVersion{}}
	if q.BadNodes == Delete {
		all = append(all, fleet.DeleteInstances{})
	}
	return all
}

// An Outcome is how a watch ended.
type Outcome string

// Outcomes.
const (
	Proven    Outcome = "Proven"
	Unproven  Outcome = "Unproven"  // the time is over, and nothing is known
	TakenBack Outcome = "TakenBack" // the model names another version again
	StoodDown Outcome = "StoodDown" // somebody else changed the model's image, or brought the version back
)

// A Result says how a watch ended, and what it saw last.
type Result struct {
	Pool     fleet.ResourceID `json:"pool"`
	Version  fleet.ResourceID `json:"version"`
	Outcome  Outcome          `json:"outcome,omitempty"` // "" where it was interrupted or failed
	Why      string           `json:"why,omitempty"`
	Since    time.Time        `json:"since,omitzero"` // when the watch of this version began
	Nodes    []prove.Finding  `json:"nodes"`
	Rollback *rollback.Result `json:"rollback,omitempty"`
	Bad      []string         `json:"bad,omitempty"` // nodes that were cordoned, of which some may be deleted
	Notes    []string         `json:"notes,omitempty"`
}

// A Service watches. It may be used from several goroutines.
type Service struct {
	capture.Config
	Rollback *rollback.Service // with the same Config
}

// A watch is one call of Watch.
type watch struct {
	*Service
	req      Request
	version  fleet.ImageVersion
	base     prove.Baseline
	result   Result
	seen     prove.Observation // last
	outage   time.Time         // when the cluster last answered again, after a minute or more, by its own clock
	said     string
	finding  string   // of another watch, whose take-back may not be finished
	last     string   // name of the pool's last rollback when this watch began
	saved    string   // what Remember saved last
	deleted  []string // nodes of result.Bad whose machines were deleted
	observed bool     // the pool was read
}

// Watch looks at the nodes of the version that the pool's model names until it is proven,
// until the time is over, or until it is bad: then the model goes back to the version before
// it. A version that was watched before keeps its begin, time and number of nodes. Errors are
// *workflow.Refused, *workflow.Outcome, or of a cluster that does not answer.
func (s *Service) Watch(ctx context.Context, q Request) (Result, error) {
	w := &watch{Service: s, req: q, result: Result{Pool: q.Pool, Version: q.Version, Nodes: []prove.Finding{}}}
	begun := s.Now()
	w.event(workflow.Event{Kind: workflow.EventBegun, Title: "Watch the first nodes of " + cmp.Or(q.Version.Name(), q.Pool.Name())})
	err := w.run(ctx)
	switch {
	case err != nil && ctx.Err() != nil && !errors.As(err, new(*workflow.Outcome)):
		err = &workflow.Outcome{Exit: workflow.ExitInterrupted, Step: Step, Err: err,
			Ended: "interrupted, ortet watch " + w.result.Pool.Name() + " continues the watch"}
	case w.isGone(err):
		if _, _, err = w.observe(ctx); err == nil || w.isGone(err) {
			err = w.end(StoodDown, "the version or the scale set was deleted")
		}
	}
	end := workflow.Event{Kind: workflow.EventDone, Message: w.result.Why, Elapsed: s.Now().Sub(begun)}
	if err != nil {
		end.Kind, end.Message = workflow.EventFailed, workflow.FailureText(err)
	}
	w.event(end)
	return w.result, err
}

// isGone reports an error that says that the version or the scale set does not exist.
func (w *watch) isGone(err error) bool {
	var e *fleet.Error
	return w.version.ID != "" && fleet.Is(err, fleet.KindNotFound) && !errors.As(err, new(*workflow.Outcome)) && errors.As(err, &e) &&
		slices.ContainsFunc([]fleet.ResourceID{w.version.ID, w.result.Pool}, fleet.ResourceID(e.Resource).Equal)
}

func (w *watch) run(ctx context.Context) error {
	var pool fleet.Pool
	stands := false
	if err := w.until(ctx, func() (ended bool, err error) {
		pool, stands, err = w.observe(ctx)
		return true, err
	}); err != nil || !stands {
		return err
	}
	if at := w.version.Tags[fleet.TagProven]; at != "" {
		return w.end(Proven, "its nodes came up, as was decided at "+at)
	}
	for _, f := range []func(context.Context) error{
		func(ctx context.Context) error { return w.preflight(ctx, pool) }, w.begin,
		func(ctx context.Context) error { return w.baseline(ctx, pool) },
	} {
		if err := w.until(ctx, func() (bool, error) { return true, f(ctx) }); err != nil {
			return err
		}
	}
	if tag := w.version.Tags[fleet.TagQuarantine]; tag != "" && w.finding == "" {
		w.note("%s is tagged as quarantined, which alone does not take it back: %s", w.version.Name, tag)
	}
	return w.until(ctx, func() (ended bool, err error) {
		pool, stands, err := w.observe(ctx)
		if err != nil || !stands {
			return true, err
		}
		j, err := w.judge(ctx, pool)
		switch {
		case err != nil:
			return true, err
		case w.finding != "":
			return true, w.takeBack(ctx, w.finding)
		}
		if err := w.remember(ctx); err != nil {
			return true, err
		}
		return w.decide(ctx, j)
	})
}

// unfinished returns a version whose take-back an earlier watch did not finish, and its finding:
// the tag of the watch goes last. The model may name another version already. Tags alone prove
// nothing, since more may write them than may write the record.
func (w *watch) unfinished(ctx context.Context, pool fleet.ResourceID, live fleet.ImageVersion, versions []fleet.ImageVersion) (v fleet.ImageVersion, why string, err error) {
	if !slices.ContainsFunc(versions, func(v fleet.ImageVersion) bool { return v.Tags[fleet.TagWatch] != "" }) {
		return v, "", nil
	}
	last, err := w.Rollback.Last(ctx, pool)
	v, found := plan.FindVersion(versions, last.From)
	again := last.Ended && live.ID.Equal(last.From) // somebody chose it since
	if !found || again || v.Tags[fleet.TagWatch] == "" || w.req.Version != "" && !last.From.Equal(w.req.Version) {
		last.Why = ""
	}
	return v, last.Why, err
}

// until calls f until it has ended, and waits for what passes.
func (w *watch) until(ctx context.Context, f func() (ended bool, err error)) error {
	for lost := (time.Time{}); ; {
		ended, err := f()
		passing := fleet.Is(err, fleet.KindTransient, fleet.KindThrottled, fleet.KindTimedOut)
		now := w.Now()
		switch {
		case err == nil:
			if !lost.IsZero() && now.Sub(lost) >= time.Minute {
				w.outage = w.Cluster.Now()
			}
			if lost = (time.Time{}); ended {
				return nil
			}
		case ctx.Err() != nil || errors.As(err, new(*workflow.Outcome)) || !passing || !lost.IsZero() && now.Sub(lost) > passes:
			return err
		default:
			lost = cmp.Or(lost, now)
			w.say("waits: " + err.Error())
		}
		if err := azure.Sleep(ctx, interval); err != nil {
			return err
		}
	}
}

// observe reads the pool and the version that its model names, and reports whether the model
// still names the watched version.
func (w *watch) observe(ctx context.Context) (pool fleet.Pool, stands bool, err error) {
	var d plan.Problems
	pool, err = w.Cloud.Pool(ctx, w.req.Pool)
	d.Refuse(fleet.Is(err, fleet.KindNotFound) && w.version.ID == "", "PoolNotFound", string(w.req.Pool), "the scale set does not exist",
		"check its name, and the credentials' subscription")
	if err = cmp.Or(workflow.NewRefused(d), err); err != nil {
		return pool, false, err
	}
	if !w.observed {
		w.observed = true
		if standby := w.Standby(ctx, pool); standby != "" {
			w.note("%s", standby)
		}
	}
	w.result.Pool = pool.ID
	var versions []fleet.ImageVersion
	if w.version.ID == "" { // a take-back that was not finished may be of a version of another kind
		versions, _, err = w.History(ctx, pool.ID, pool.Model.Image)
	} else {
		versions, err = w.Named(ctx, pool)
	}
	if fleet.IgnoreNotFound(err) != nil {
		return pool, false, err
	}
	version, known := plan.VersionOf(versions, pool.Model.Image, pool.Location)
	switch {
	case w.finding != "": // takeBack looks at what the model names
		return pool, true, nil
	case w.version.ID == "":
		v, why, err := w.unfinished(ctx, pool.ID, version, versions)
		if err != nil {
			return pool, false, err
		}
		if why != "" {
			w.version, w.result.Version, w.finding = v, v.ID, why
			return pool, true, nil
		}
	case !version.ID.Equal(w.version.ID):
		last, err := w.Rollback.Last(ctx, pool.ID)
		if err != nil {
			return pool, false, err
		}
		if last.Why != "" && last.From.Equal(w.version.ID) {
			w.note("another command took %s back: %s", w.version.Name, last)
			w.finding = last.Why
			return pool, true, nil
		}
	}
	watched := cmp.Or(w.version.ID, w.req.Version)
	switch {
	case watched != "" && !known && pool.Model.Image.ID.Equal(watched):
		w.result.Outcome = StoodDown
		return pool, false, &workflow.Outcome{Exit: workflow.ExitNeedsPerson, Step: Step, Err: errors.New("the model names " + watched.Name() + ", which was deleted"),
			Left: []string{"no new node can be made: ortet rollback " + pool.Name + " goes back to the version before"}}
	case watched != "" && !version.ID.Equal(watched):
		return pool, false, w.end(StoodDown, "the model names "+pool.Model.Image.Text()+" by now")
	case !known:
		d.Refuse(true, "NotAPrototype", string(pool.ID), "its model names "+pool.Model.Image.Text()+", which is no version of this pool's",
			"capture a node of the pool first")
		return pool, false, &workflow.Refused{Problems: d}
	}
	w.version, w.result.Version = version, version.ID
	return pool, true, nil
}

// preflight refuses a watch that could not take back for lack of rights. Another reason why
// there is no way back is a note, since the version may be good.
func (w *watch) preflight(ctx context.Context, pool fleet.Pool) error {
	p, err := w.Rollback.Plan(ctx, w.back(""))
	if err != nil {
		return err
	}
	var d plan.Problems
	if w.req.BadNodes == Delete {
		group := w.result.Pool.Group()
		denied, err := w.Cloud.Denied(ctx, group, azure.ActionsIn(pool, []fleet.Change{fleet.DeleteInstances{}}))
		if err != nil {
			return err
		}
		d.Denied(group, denied, nil)
	}
	for _, x := range p.Problems {
		switch x.Code {
		case plan.CodeAzureDenied, plan.CodeClusterDenied, capture.CodeOtherNamespace:
			d = append(d, x)
			continue
		}
		if w.finding == "" {
			w.note("if its nodes fail, there is no way back: %s", x.What)
		}
	}
	for _, note := range p.PassesOver {
		if w.finding == "" {
			w.note("if its nodes fail, the way back %s", note)
		}
	}
	return workflow.NewRefused(d)
}

// back is what a take-back asks for.
func (w *watch) back(why string) rollback.Request {
	return rollback.Request{Pool: w.result.Pool, From: w.version.Name, AllowRolling: w.req.AllowRolling, AllowOwned: w.req.AllowOwned,
		RestoreLearned: w.req.RestoreLearned, Unattended: true, Why: why}
}

// tag sets tags of the version, and waits until Azure has them.
func (w *watch) tag(ctx context.Context, within time.Duration, tags map[string]string) error {
	return w.writer(within).Do(ctx, fleet.TagVersion{ID: w.version.ID, Tags: tags})
}

func (w *watch) writer(within time.Duration) azure.Writer {
	return azure.Writer{Cloud: w.Cloud, Now: w.Now, Within: within, Report: w.note}
}

// read reads the instances of the version and their Nodes, and those of others.
func (w *watch) read(ctx context.Context, pool fleet.Pool) (o prove.Observation, err error) {
	all, err := clones.Pair(ctx, w.Cloud, w.Cluster, pool.ID)
	for _, c := range all {
		if c.Instance.Image.Exact().Equal(w.version.ID) {
			o.Clones = append(o.Clones, c)
		} else {
			o.Others = append(o.Others, c)
		}
	}
	return o, err
}

// baseline is the pool's nodes of other images.
func (w *watch) baseline(ctx context.Context, pool fleet.Pool) error {
	o, err := w.read(ctx, pool)
	if err == nil {
		err = clones.Pods(ctx, w.Cluster, o.Others, clones.MaxSiblings, nil)
	}
	o.Now, o.AzureNow = w.Cluster.Now(), w.Cloud.Now()
	w.base = prove.NewBaseline(o, w.version.Tags)
	return err
}

// judge judges the nodes of the version.
func (w *watch) judge(ctx context.Context, pool fleet.Pool) (j prove.Judgement, err error) {
	o, err := w.read(ctx, pool)
	if err != nil {
		return j, err
	}
	judged := 0
	if err = clones.Pods(ctx, w.Cluster, o.Clones, maxClones, func(c prove.Clone) bool {
		if w.passed(c) {
			return false
		}
		judged++
		return true
	}); err == nil && judged > 0 && len(w.base.DaemonSets) > 0 {
		err = clones.Pods(ctx, w.Cluster, o.Others, clones.MaxSiblings, nil)
	}
	if err != nil {
		return j, err
	}
	o.Now, o.AzureNow = w.Cluster.Now(), w.Cloud.Now()
	o.Begun, o.Outage, o.Soak = w.result.Since, w.outage, soak
	if at := w.version.Published; !at.IsZero() && at.Before(o.Begun) { // nodes may have come before the watch
		o.Begun = at
	}
	o.Recreates = pool.Recreates
	end := w.result.Since.Add(w.req.For)
	j = prove.Watch{Need: w.req.Nodes, Within: end.Sub(o.Begun), Known: w.result.Nodes, Before: w.seen}.Decide(o, w.base)
	w.seen, w.result.Nodes = o, j.Findings
	return j, nil
}

// decide acts on a judgement, and reports whether the watch has ended.
func (w *watch) decide(ctx context.Context, j prove.Judgement) (ended bool, err error) {
	now := w.Cloud.Now().UTC().Format(time.RFC3339)
	switch j.Result {
	case prove.Passed:
		if err := w.tag(ctx, passes, map[string]string{fleet.TagProven: now}); err != nil {
			return true, err
		}
		return true, w.end(Proven, j.Why)
	case prove.Failed:
		why := j.Gate + ": " + j.Why
		_, _ = w.cordon(ctx, why) // at once; what fails is tried again
		return true, w.takeBack(ctx, why)
	case prove.NoResult, prove.Unproven:
		return true, w.end(Unproven, j.Why)
	}
	w.say(j.Why)
	return false, nil
}

// end ends the watch.
func (w *watch) end(how Outcome, why string) error {
	w.result.Outcome, w.result.Why = how, why
	return nil
}

// note reports what a person should know, once. An empty note is none.
func (w *watch) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if text != "" && !slices.Contains(w.result.Notes, text) {
		w.result.Notes = append(w.result.Notes, text)
		w.event(workflow.Event{Kind: workflow.EventNote, Message: text})
	}
}

// say reports what the watch waits for, when that changes.
func (w *watch) say(text string) {
	if text != w.said {
		w.said = text
		w.event(workflow.Event{Kind: workflow.EventProgress, Message: text})
	}
}

func (w *watch) event(e workflow.Event) {
	if e.At, e.Step, e.Percent = w.Now(), Step, -1; w.Report != nil {
		w.Report(e)
	}
}
