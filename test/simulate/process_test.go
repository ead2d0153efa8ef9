package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/clones"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/prove"
	"github.com/ortet/ortet/internal/image/renew"
	"github.com/ortet/ortet/internal/image/rollback"
	"github.com/ortet/ortet/internal/image/watch"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/test/conditional"
)

// A process is one ortet at work.
type process struct {
	w      *world
	name   string // p1, p2, …
	ask    Ask
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed when the command returned
	dead   chan struct{} // closed when the process was killed
	began  time.Time

	killed      atomic.Bool
	interrupted atomic.Bool
	failed      atomic.Bool  // a step failed before it was interrupted
	asleep      atomic.Int64 // Unix time in ns until when the laptop sleeps
	changes     atomic.Int64 // requests that changed Azure or the pool

	beginning // of a rollback or a watch

	unaware   bool         // of that it marked its donor, or ended that: who finds it so does not know whether an Event said it
	read, old time.Time    // last read of the scale set; and, if that was answered with an earlier answer, when
	writes    []modelWrite // of the image
	cordoned  []string     // nodes
	deleted   []string     // versions, by lower-case id

	capture  capture.Result
	rollback rollback.Result
	watch    watch.Result
	renew    renew.Result
	turns    turns // of a rollout
	err      error
}

// leaseFor is longer than ortet's own 45 s: renewals would be most of the requests.
const leaseFor = 5 * time.Minute

// config returns what a process works with; p is nil for a process that only reads.
func (w *world) config(name string, to policy.Transporter, c http.RoundTripper, p *process) (capture.Config, error) {
	cloud, err := arm.New(arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: w.azure.Credential(ortetClient), Transport: to, Version: "test"})
	if err != nil {
		return capture.Config{}, err
	}
	api, err := kube.New(kube.Config{REST: &rest.Config{Host: "http://kubesim.invalid", Transport: c, BearerToken: ortetUser},
		Namespace: namespace, Identity: name, Now: p.now})
	if err != nil {
		return capture.Config{}, err
	}
	config := capture.Config{
		Cloud: azure.Retry(azure.Settled(azure.Limit(cloud, azure.Limits{})), azure.RetryPolicy{}), Cluster: api, Journal: api.Journals(),
		Log: slog.New(slog.DiscardHandler), Report: p.report, Now: p.now, Version: "test", Image: "ortet:test", Namespace: namespace, Holder: name, LockFor: leaseFor,
		Accesses: func(fleet.ResourceID) []cluster.Access { return nil }, Boot: w.bootOf,
	}
	config.UserData = func(ctx context.Context, n fleet.Node) time.Duration {
		return clones.UserData(ctx, n, config.Cloud, api)
	}
	if w.bootOf == nil {
		config.Boot = func(ctx context.Context, n fleet.Node) prove.Boot {
			return clones.Boot(ctx, n, config.Cloud, cloud, api)
		}
	}
	config.Cluster = capture.Identify(mortal{api, p}, config.Cloud, setsOf(cloud), p.now)
	if w.story.Pool.Image == "none" {
		config.Image = ""
	}
	if p != nil && (len(w.processes) < 2 || !w.story.leavesOpen()) {
		config.Cloud = &entitled{Cloud: conditional.Cloud(config.Cloud, func(verb string) {
			w.broken(23, "%s: %s without an ETag", name, verb)
		}), p: p, actions: map[string]bool{}}
	}
	config.Others = func(kind string) (workflow.Workflow, error) {
		if kind == rollback.Kind {
			return rollback.New(config).Workflow(), nil
		}
		return capture.New(config).Workflow(), nil
	}
	return config, nil
}

// entitled sees to it that a process asks for the right to each of its changes before it makes one.
type entitled struct {
	azure.Cloud
	p       *process
	mu      sync.Mutex
	actions map[string]bool
}

func (a *entitled) Denied(ctx context.Context, scope fleet.ResourceID, actions []string) ([]string, error) {
	a.mu.Lock()
	for _, action := range actions {
		a.actions[action] = true
	}
	a.mu.Unlock()
	return a.Cloud.Denied(ctx, scope, actions)
}

func (a *entitled) Begin(ctx context.Context, change fleet.Change) (fleet.Token, error) {
	a.mu.Lock()
	for _, action := range azure.Actions(change.Verb()) {
		of := azure.OfFlexible([]string{action})
		tags := change.Verb() == fleet.TagDefinition{}.Verb() // whose refusal is a note
		undoes := len(a.actions) == 0                         // what an earlier command left, before its own preflight
		if !a.actions[action] && !slices.ContainsFunc(of, func(o string) bool { return a.actions[o] }) && !tags && !undoes {
			a.p.w.broken(24, "%s: %s, and preflight did not ask for %s", a.p.name, change.Verb(), action)
		}
	}
	a.mu.Unlock()
	return a.Cloud.Begin(ctx, change)
}

// leavesOpen reports whether a command may find the open record of another, whose rights that one asked for.
func (s Story) leavesOpen() bool {
	return len(s.Happen) > 0 || slices.ContainsFunc(s.Asks, func(a Ask) bool { return a.Do == "wait" || a.Once })
}

// setsOf lists the scale sets of the world's resource group.
func setsOf(cloud *arm.Cloud) func(context.Context) ([]fleet.ResourceID, error) {
	return func(ctx context.Context) (sets []fleet.ResourceID, err error) {
		pools, err := cloud.Pools(ctx, fleet.ResourceID("/subscriptions/"+azsim.DefaultSubscription+"/resourceGroups/"+azsim.DefaultResourceGroup))
		for _, p := range pools {
			sets = append(sets, p.ID)
		}
		return sets, err
	}
}

// mortal ends the run of a killed process, whose requests wait for ever.
type mortal struct {
	cluster.Cluster
	p *process
}

func (m mortal) Hold(ctx context.Context, name, holder string, ttl time.Duration) (cluster.Holding, error) {
	if m.p.isDead() {
		return cluster.Holding{}, &fleet.Error{Op: "lock pool", Kind: fleet.KindHeld}
	}
	return m.Cluster.Hold(ctx, name, holder, ttl)
}

// start begins a process.
func (w *world) start(ask Ask) (*process, error) {
	p := &process{w: w, ask: ask, done: make(chan struct{}), dead: make(chan struct{}), began: time.Now()}
	p.ctx, p.cancel = context.WithCancel(w.ctx)
	if ask.Do != "capture" {
		p.beginning = w.beginningNow()
	}
	w.mu.Lock()
	w.processes = append(w.processes, p)
	p.name = fmt.Sprintf("p%d", len(w.processes))
	w.mu.Unlock()
	config, err := w.config(p.name, azureWire{p}, kubeWire{p}, p)
	if err != nil {
		return nil, err
	}
	w.trace("%s begins: %s", p.name, ask.Do)
	go func() {
		defer close(p.done)
		defer w.recovered(p.name)
		switch ask.Do {
		case "rollout":
			p.rollsOut(config)
		case "watch":
			q := watch.Request{Pool: w.pool, BadNodes: cmp.Or(ask.Bad, watch.Cordon), RestoreLearned: ask.restores()}
			if ask.To != "" {
				q.Version = w.names.Definition.Child("versions", ask.To)
			}
			p.watches(config, q)
		case "rollback":
			p.rollback, p.err = rollback.New(config).Rollback(p.ctx, rollback.Request{Pool: w.pool, To: ask.To, AllowRolling: ask.Rolling, AcceptLostExtensions: ask.AcceptLost,
				RestoreLearned: ask.restores()})
		default:
			q := capture.Request{Node: w.nodeName(ask.Node), Again: ask.Again, Deallocate: ask.Deallocate, Online: ask.Online, ForceDrain: ask.Force,
				History: ask.History, AcceptPoolCredentials: ask.Accept, NewNodes: ask.Grow, Canary: ask.Canary, CanarySoak: ask.Soak, CanaryIfPossible: ask.Auto, TakeUnjudged: ask.Auto, ExcludeFromLatest: ask.Excluded,
				AllowRolling: ask.Rolling, PublishOnly: ask.PublishOnly, OtherPools: w.story.Pool.Neighbour > 0 && w.story.Pool.Liar == "",
				Extensions: plan.ExtensionRule{None: ask.KeepExtensions}, Tune: ask.Tune}
			if ask.Fresh {
				q.Node, q.Fresh = "", w.pool
			}
			if ask.Prepare != "" {
				q.Prepare = preparationOf(ask.Prepare)
			}
			if ask.Test != "" {
				q.CanaryTest = testJob(ask.Test)
			}
			if ask.Baked {
				q.Bootstrap = plan.BootstrapBaked
			}
			if ask.Watch != "" {
				config.Next = watch.Request{For: watchFor[true], BadNodes: ask.Watch}.Changes()
			} else if slices.ContainsFunc(w.story.Asks, func(a Ask) bool { return a.Do == "watch" }) {
				config.Next = watch.Request{For: time.Minute}.Changes() // as with --watch
			}
			p.capture, p.err = capture.New(config).Capture(p.ctx, q)
			if p.err == nil && ask.Watch != "" && !p.isDead() {
				p.goesOn(config)
			}
		}
		if !p.isDead() {
			text, _, _ := strings.Cut(fmt.Sprint(p.err), "\n")
			w.trace("%s ends: %d %s", p.name, p.code(), text)
		}
	}()
	return p, nil
}

// watchFor is how long a capture's nodes are watched.
var watchFor = map[bool]time.Duration{true: 30 * time.Minute}

func (p *process) watches(config capture.Config, q watch.Request) {
	q.For, q.Nodes = cmp.Or(p.ask.For, watchFor[true]), cmp.Or(p.ask.Need, watchNodes)
	s := watch.Service{Config: config, Rollback: rollback.New(config)}
	p.watch, p.err = s.Watch(p.ctx, q)
}

// watchNodes is how many nodes have to come up.
const watchNodes = 2

// goesOn has a capture that ended well be judged, and be a watch of what it made from then on.
func (p *process) goesOn(config capture.Config) {
	w, alone := p.w, false
	w.locked(func() { alone = len(w.rivals) == 0 })
	if alone {
		w.checkEnd(p)
	}
	w.countGrown(p)
	w.beginAsk()
	w.locked(func() {
		p.ask.Do, p.ask.Bad, p.beginning = "watch", p.ask.Watch, w.beginning
		p.writes, p.deleted, p.cordoned = nil, nil, nil
		w.asked = append(w.asked, len(w.requests))
	})
	w.trace("%s begins: watch", p.name)
	p.watches(config, watch.Request{Pool: w.pool, Version: p.capture.Version, BadNodes: p.ask.Watch, AllowRolling: p.ask.Rolling, RestoreLearned: p.ask.restores()})
	if refused := new(workflow.Refused); errors.As(p.err, &refused) { // the capture changed something
		out := &workflow.Outcome{Exit: workflow.ExitNeedsPerson, Err: errors.New("its watch is refused")}
		for _, x := range refused.Problems {
			out.Left = append(out.Left, x.String())
		}
		p.err = out
	}
}

func (p *process) code() int { return workflow.ExitCode(p.err) }

// now is the process's clock. What it computes while its machine sleeps it computes,
// in truth, when the machine wakes.
func (p *process) now() time.Time {
	now := time.Now()
	if p == nil {
		return now
	}
	if until := time.Unix(0, p.asleep.Load()); until.After(now) {
		now = until
	}
	return now.Add(p.ask.Ahead)
}

// report draws steps apart that begin or end at the same instant, so that a story plays
// the same at every run.
func (p *process) report(e workflow.Event) {
	if p != nil && e.Kind == workflow.EventNote && e.Message == "" {
		p.w.broken(0, "%s notes nothing at step %s", p.name, e.Step)
	}
	if p != nil && e.Kind == workflow.EventFailed && !p.interrupted.Load() {
		p.failed.Store(true)
	}
	if e.Kind != workflow.EventProgress && e.Kind != workflow.EventNote && p != nil {
		_ = sleep(p.w.ctx, p.w.between(time.Microsecond, time.Millisecond, p.name, e.Step, e.Kind, time.Since(p.w.begin)))
	}
}

// dies ends the process in the middle of a request.
func (p *process) dies(ctx context.Context) error {
	p.die()
	<-ctx.Done()
	return context.Cause(ctx)
}

func (p *process) die() {
	if !p.killed.Swap(true) {
		p.w.trace("%s is killed", p.name)
		p.w.locked(func() {
			if p.ask.Do == "watch" && len(p.writes) > 0 && p.w.unfinished == nil {
				p.w.unfinished = &p.beginning
			}
		})
		close(p.dead)
		p.cancel()
	}
}

func (p *process) isDead() bool { return p != nil && p.killed.Load() }

// interrupt is Ctrl-C.
func (p *process) interrupt() {
	p.interrupted.Store(true)
	p.cancel()
}

func (p *process) suspend(d time.Duration) { p.asleep.Store(time.Now().Add(d).UnixNano()) }

// awake waits until the process's machine is awake.
func (p *process) awake() {
	for left := p.sleeps(); left > 0 && !p.isDead(); left = p.sleeps() {
		_ = sleep(p.w.ctx, left)
	}
}

func (p *process) sleeps() time.Duration { return time.Until(time.Unix(0, p.asleep.Load())) }

// journal returns what ortet status reports of the pool's newest capture or rollback.
func (w *world) journal() *capture.RunStatus {
	config, err := w.config("status", w.azure.Transport(), w.kube, nil)
	if err == nil {
		var all []capture.PoolStatus
		if all, err = capture.New(config).Status(w.ctx, []fleet.ResourceID{w.pool}); err == nil {
			return all[0].Capture
		}
	}
	w.broken(0, "cannot read the pool's status: %v", err)
	return nil
}
