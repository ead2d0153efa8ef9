package renew

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/clones"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/prove"
	"github.com/ortet/ortet/internal/workflow"
)

const (
	interval  = 10 * time.Second // from one look at a node to the next
	roundsFor = 5 * time.Minute  // from one round to the next while nodes are renewed, whose ends begin another at once
	passes    = time.Hour        // limit for what passes: an API server that is away, nodes of others that are out of service
	kuredFor  = 15 * time.Minute // of kured's lock, which each round renews
	tidies    = 30 * time.Second // limit of a return to service after an interruption
)

// A rollout is one call of Rollout.
type rollout struct {
	*Service
	workflow.Summary
	req   Request
	image fleet.ImageReference // that is rolled out; zero until the first round
	model fleet.ImageReference // the model's, which may be "latest"
	base  prove.Baseline
	kured bool // its lock may be held

	upgrading chan struct{} // full while an upgrade runs: Azure refuses, or cancels, a second one of a scale set

	result Result
	failed []LeftOut // nodes, in the order in which they failed

	mu   sync.Mutex // guards what turns share with rounds
	last state
	said string
}

// Rollout renews the nodes, and returns once none is left, one has failed, the window has closed or the
// model was changed. Errors are *workflow.Refused, *workflow.Outcome (ExitNeedsPerson with the node that
// failed, ExitInterrupted), or of a cluster that does not answer. A closed window is no error: Waiting.
func (s *Service) Rollout(ctx context.Context, q Request) (Result, error) {
	if _, err := budget(q.MaxUnavailable, 1); err != nil {
		return Result{Pool: q.Pool, Renewed: []string{}}, err
	}
	q.DrainTimeout = cmp.Or(q.DrainTimeout, DefaultDrainTimeout)
	x := &rollout{Service: s, req: q, upgrading: make(chan struct{}, 1), result: Result{Pool: q.Pool, Renewed: []string{}}}
	begun := s.Now()
	x.event(workflow.Event{Kind: workflow.EventBegun, Title: "Renew the nodes of " + q.Pool.Name()})
	x.Note("%s", s.ClockNote())
	err := x.Runner(Step, &x.Summary).Locked(ctx, q.Pool, x.run)
	out, is := errors.AsType[*workflow.Outcome](err)
	if lost := is && out.Step == ""; lost || !is && err != nil && ctx.Err() != nil {
		if lost {
			err = out.Err
		}
		err = &workflow.Outcome{Exit: workflow.ExitInterrupted, Step: Step, Err: err,
			Ended: "interrupted, ortet rollout " + q.Pool.Name() + " goes on with " + cmp.Or(nameOf(x.image), "the model's image")}
	}
	x.result.Notes, _ = x.Recorded()
	end := workflow.Event{Kind: workflow.EventDone, Elapsed: s.Now().Sub(begun)}
	end.Message = cmp.Or(x.result.Waiting, fleet.Count(len(x.result.Renewed), "node")+" renewed")
	if err != nil {
		end.Kind, end.Message = workflow.EventFailed, workflow.FailureText(err)
	}
	x.event(end)
	return x.result, err
}

// An ended is what became of a node's turn.
type ended struct {
	candidate
	err error // nil: renewed; *turnError: neither renewed nor failed
}

// run makes rounds until none is left to begin or to wait for.
func (x *rollout) run(ctx context.Context) error {
	over, inFlight := make(chan ended), map[string]candidate{}
	defer func() {
		for range inFlight { // they end with ctx, which ends before the lock is released
			x.took(<-over)
		}
		x.releaseReboots(ctx)
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(context.Canceled)
	for waits, waiting := x.Now(), ""; ; {
		todo, begin, stop, err := []candidate(nil), []candidate(nil), error(nil), error(nil)
		if err = x.passing(ctx, func() error {
			if todo, stop, err = x.round(ctx); err != nil || stop != nil {
				return err
			}
			todo = slices.DeleteFunc(todo, func(c candidate) bool { _, is := inFlight[c.Clone.Instance.Name]; return is })
			var later string
			begin, later, err = x.choose(ctx, todo, inFlight)
			waiting = cmp.Or(later, waiting)
			return err
		}); err != nil {
			return err
		}
		if len(inFlight) == 0 && x.Now().Sub(waits) > passes {
			begin = nil
		}
		for _, c := range begin {
			soak := time.Duration(0)
			if len(x.result.Renewed) == 0 {
				soak = x.req.Soak
			}
			inFlight[c.Clone.Instance.Name] = c
			go func() { over <- ended{c, x.turn(ctx, c, soak)} }()
		}
		pause := roundsFor
		if len(inFlight) == 0 {
			x.releaseReboots(ctx)
			switch {
			case stop != nil:
				return stop
			case len(todo) == 0, x.result.Waiting != "" && todo[0].Why != Unfinished:
				return x.stranded()
			case x.Now().Sub(waits) > passes:
				return x.needsPerson(errors.New("no node could be begun for "+passes.String()+": "+waiting), todo)
			}
			x.say("waits: " + waiting)
			pause = time.Minute
		}
		select {
		case e := <-over:
			delete(inFlight, e.Clone.Instance.Name)
			if waiting = x.took(e); waiting == "" {
				waits = x.Now()
			}
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stranded is the end of a rollout that leaves out a node which an earlier one keeps cordoned.
func (x *rollout) stranded() error {
	for _, c := range x.last.clones {
		i := slices.IndexFunc(x.result.Left, func(l LeftOut) bool { return c.Node != nil && l.Node == c.Node.Name })
		if i >= 0 && c.Node.Annotations[fleet.AnnotationRollout] != "" {
			return x.needsPerson(errors.New("node "+c.Node.Name+", which stays cordoned, "+x.result.Left[i].Why), nil)
		}
	}
	return nil
}

// round reads the pool, and returns what is to be done, and why nothing more is begun.
func (x *rollout) round(ctx context.Context) (todo []candidate, stop, err error) {
	s, d, err := x.read(ctx, x.req.Pool)
	if err != nil {
		return nil, nil, err
	}
	first := x.model == fleet.ImageReference{}
	if first {
		err = x.preflight(ctx, s, &d)
	}
	if err = cmp.Or(err, workflow.NewRefused(d)); first && err != nil {
		return nil, nil, err
	}
	for _, note := range s.notes {
		x.Note("%s", note)
	}
	x.mu.Lock()
	x.last = s
	x.mu.Unlock()
	if first {
		x.model, x.image = s.pool.Model.Image, s.image
		x.result.Pool, x.result.Image = s.pool.ID, fleet.ResourceID(s.image.Text())
		if err = x.baseline(ctx, s); err != nil {
			return nil, nil, err
		}
	}
	todo, left := s.candidates(x.SelfNode)
	for _, l := range left {
		if !slices.Contains(x.result.Left, l) {
			x.result.Left = append(slices.DeleteFunc(x.result.Left, func(o LeftOut) bool { return o.Node == l.Node }), l)
		}
	}
	todo = slices.DeleteFunc(todo, func(c candidate) bool {
		return slices.ContainsFunc(x.result.Left, func(l LeftOut) bool { return l.Node == c.id() })
	})
	switch {
	case len(x.failed) > 0:
		stop = x.failure(todo)
	case !s.image.Same(x.image):
		x.result.Why = "the model was changed: it names " + nameOf(s.image) + " in place of " + nameOf(x.image)
		stop = &workflow.Outcome{Exit: workflow.ExitInterrupted, Step: Step, Err: errors.New(x.result.Why),
			Ended: "no more nodes were begun; ortet rollout " + s.pool.Name + " goes on with what the model names then"}
	case err != nil: // a mode, an owner or a quarantine that the pool has got since
		x.result.Why = err.Error()
		stop = x.needsPerson(err, todo)
	}
	return todo, stop, nil
}

// failure is the end of a rollout by the first node that failed.
func (x *rollout) failure(todo []candidate) error {
	x.result.Failed, x.result.Why = x.failed[0].Node, x.failed[0].Why
	todo = slices.DeleteFunc(slices.Clone(todo), func(c candidate) bool {
		return slices.ContainsFunc(x.failed, func(l LeftOut) bool { return l.Node == c.id() })
	})
	out := x.needsPerson(errors.New("node "+x.result.Failed+" could not be brought to "+nameOf(x.image)+": "+x.result.Why), todo)
	for i, l := range x.failed {
		if slices.ContainsFunc(x.last.clones, func(c prove.Clone) bool {
			return c.Node != nil && c.Node.Name == l.Node && c.Node.Unschedulable
		}) {
			out.Left = append(out.Left, "node "+l.Node+" stays cordoned"+workflow.SkipIf(i > 0, " ("+l.Why+")")+": ortet nodes "+l.Node+
				" shows how its machine boots; mend it, or delete its instance, then run ortet rollout "+x.req.Pool.Name()+" again")
		}
	}
	return out
}

func (x *rollout) needsPerson(err error, todo []candidate) *workflow.Outcome {
	return &workflow.Outcome{Exit: workflow.ExitNeedsPerson, Step: Step, Err: err,
		Ended: fmt.Sprintf("%s renewed, %d not begun", fleet.Count(len(x.result.Renewed), "node"), len(todo))}
}

// baseline is the pool's nodes that no rollout has begun with.
func (x *rollout) baseline(ctx context.Context, s state) error {
	var o prove.Observation
	for _, c := range s.clones {
		if c.Node == nil || c.Node.Annotations[fleet.AnnotationRollout] == "" {
			o.Others = append(o.Others, c)
		}
	}
	err := clones.Pods(ctx, x.Cluster, o.Others, clones.MaxSiblings, nil)
	o.Now, o.AzureNow = x.Cluster.Now(), x.Cloud.Now()
	x.base = prove.NewBaseline(o, s.version.Tags)
	return err
}

// choose returns the nodes that may be begun now, and what the first of the others waits for. A node that
// is out of service already takes nothing of the budget.
func (x *rollout) choose(ctx context.Context, todo []candidate, inFlight map[string]candidate) (
	begin []candidate, waiting string, err error) {
	limit, err := budget(x.req.MaxUnavailable, len(x.last.clones))
	if err != nil {
		return nil, "", err
	}
	out := map[string]bool{} // Nodes that are out of service
	for _, c := range x.last.clones {
		if c.Node != nil && (!c.Node.Ready || c.Node.Unschedulable) {
			out[c.Node.Name] = true
		}
	}
	parallel := limit
	if len(x.result.Renewed) == 0 {
		parallel = 1
	}
	for _, c := range inFlight {
		out[c.Planned.Node] = true
	}
	x.result.Waiting = ""
	later := func(why string) { waiting = cmp.Or(waiting, why) }
	for _, c := range todo {
		if len(inFlight)+len(begin) >= parallel {
			break
		}
		_, open := x.req.Window.Open(x.Now())
		switch {
		case c.Why != Unfinished && !open:
			later("window")
			x.result.Waiting = fleet.Count(len(todo), "node") + " to be renewed when the window opens, at " +
				x.req.Window.Next(x.Now()).Format(time.RFC3339)
			continue
		case !out[c.Planned.Node] && len(out) >= limit:
			names := slices.Sorted(maps.Keys(out))
			later(fmt.Sprintf("%d of %d nodes may be out of service, and %s are", limit, len(x.last.clones),
				plan.UpTo(plan.MaxNamed, names, len(names))))
			continue
		case c.Clone.Node.Annotations[fleet.AnnotationKuredReboot] != "":
			later("kured is about to reboot " + c.id())
			continue
		}
		known, err := x.Cluster.HoldReboots(ctx, x.holder(), kuredFor)
		if fleet.Is(err, fleet.KindHeld) {
			later(err.Error())
			break
		} else if err != nil {
			return nil, "", err
		}
		x.kured = x.kured || known
		begin, out[c.Planned.Node] = append(begin, c), true
	}
	if x.kured && len(begin) == 0 && len(inFlight) > 0 {
		_, _ = x.Cluster.HoldReboots(ctx, x.holder(), kuredFor) // renewed; what fails is tried again
	}
	return begin, waiting, nil
}

func (x *rollout) holder() string { return x.Holder + "/" + Step }

// releaseReboots releases kured's lock; it expires by itself.
func (x *rollout) releaseReboots(ctx context.Context) {
	if !x.kured {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidies)
	defer cancel()
	if err := x.Cluster.ReleaseReboots(ctx, x.holder()); err != nil {
		x.Log.Warn("cannot release kured's lock", "error", err)
		return
	}
	x.kured = false
}

// took notes how a node's turn ended. waits says why its node could not be begun, as the next round may.
func (x *rollout) took(e ended) (waits string) {
	node, why := e.id(), "renewed"
	var end *turnError
	switch as := errors.As(e.err, &end); {
	case e.err == nil:
		x.result.Renewed = append(x.result.Renewed, node)
	case as && end.again && !end.begun:
		x.say("waits: " + end.why)
		return end.why
	case errors.Is(e.err, context.Canceled), as && end.again:
		return "" // the next command, or round, goes on from what there is
	case as:
		x.result.Left = append(x.result.Left, LeftOut{node, end.why})
		why = "left as it is: " + end.why
	default:
		why = e.err.Error()
		x.failed = append(x.failed, LeftOut{node, why})
	}
	x.event(workflow.Event{Kind: workflow.EventNote, Message: node + ": " + why})
	return ""
}

// isPassing reports an error that a later try may not meet.
func isPassing(err error) bool {
	return fleet.Is(err, fleet.KindTransient, fleet.KindThrottled, fleet.KindTimedOut, fleet.KindStale)
}

// passing calls f again while its error is one that passes, for an hour at most.
func (x *rollout) passing(ctx context.Context, f func() error) error {
	for begun := x.Now(); ; {
		err := f()
		if !isPassing(err) || ctx.Err() != nil || x.Now().Sub(begun) > passes {
			return cmp.Or(context.Cause(ctx), err)
		}
		x.say("waits: " + err.Error())
		if err := azure.Sleep(ctx, max(interval, azure.RetryAfter(err))); err != nil {
			return err
		}
	}
}

// say reports progress, when that changes.
func (x *rollout) say(text string) {
	x.mu.Lock()
	again := text == x.said
	x.said = text
	x.mu.Unlock()
	if !again {
		x.event(workflow.Event{Kind: workflow.EventProgress, Message: strings.TrimSpace(text)})
	}
}

func (x *rollout) event(e workflow.Event) {
	if e.At, e.Step, e.Percent = x.Now(), Step, -1; x.Report != nil {
		x.Report(e)
	}
}
