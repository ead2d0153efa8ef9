package simulate

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/capture"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/rollback"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/internal/workflow/journal"
)

// A process is one ortet at work.
type process struct {
	w      *world
	name   string // p1, p2, …
	ask    Ask
	engine program
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed when the command returned
	dead   chan struct{} // closed when the process was killed
	began  time.Time

	mu          sync.Mutex
	killedAt    bool
	ended       bool
	interrupted bool
	asleep      time.Time // until when the laptop sleeps
	changes     int       // requests that changed Azure or the pool

	capture  engine.CaptureResult
	rollback engine.RollbackResult
	err      error
}

// programName chooses what is tested: "engine", or "capture" for internal/capture.
var programName = flag.String("program", "engine", "what is tested: engine or capture")

// A program is what a command calls.
type program interface {
	Capture(ctx context.Context, q engine.CaptureRequest) (engine.CaptureResult, error)
	Rollback(ctx context.Context, q engine.RollbackRequest) (engine.RollbackResult, error)
}

// captures makes internal/capture and internal/rollback a program: requests and results
// have the same fields.
type captures struct {
	*capture.Service
	rollbacks  *rollback.Service
	acceptLost bool
}

func (c captures) Capture(ctx context.Context, q engine.CaptureRequest) (result engine.CaptureResult, err error) {
	var request capture.Request
	convert(q, &request)
	done, err := c.Service.Capture(ctx, request)
	convert(done, &result)
	return result, err
}

func (c captures) Rollback(ctx context.Context, q engine.RollbackRequest) (result engine.RollbackResult, err error) {
	var request rollback.Request
	convert(q, &request)
	request.AcceptLostExtensions = c.acceptLost
	done, err := c.rollbacks.Rollback(ctx, request)
	convert(done, &result)
	return result, err
}

func convert(from, into any) {
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		panic(err)
	}
}

// leaseFor is longer than ortet's own 45 s: renewals would be most of the requests.
const leaseFor = 5 * time.Minute

type transporter interface {
	Do(*http.Request) (*http.Response, error)
}

func (w *world) newEngine(name string, to transporter, cluster http.RoundTripper, p *process) (*engine.Engine, error) {
	cloud, err := arm.New(arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: w.azure.Credential(ortetClient), Transport: to, Version: "test"})
	if err != nil {
		return nil, err
	}
	c, err := kube.New(kube.Config{REST: &rest.Config{Host: "http://kubesim.invalid", Transport: cluster, BearerToken: ortetUser},
		Namespace: namespace, Identity: name, Now: p.now, ReadRetries: -1})
	if err != nil {
		return nil, err
	}
	return engine.New(engine.Config{
		Cloud: azure.Retry(azure.Limit(cloud, azure.Limits{}), azure.RetryPolicy{}), Cluster: c, Logger: slog.New(slog.DiscardHandler),
		Reporter: engine.ReporterFunc(p.report), Now: p.now, Version: "test", Image: "ortet:test", Namespace: namespace,
		Holder: name, Liveness: p.liveness, LeaseFor: leaseFor,
	})
}

func (w *world) newCaptures(name string, to transporter, cluster http.RoundTripper, p *process) (program, error) {
	cloud, err := arm.New(arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: w.azure.Credential(ortetClient), Transport: to, Version: "test"})
	if err != nil {
		return nil, err
	}
	c, err := kube.New(kube.Config{REST: &rest.Config{Host: "http://kubesim.invalid", Transport: cluster, BearerToken: ortetUser},
		Namespace: namespace, Identity: name, Now: p.now})
	if err != nil {
		return nil, err
	}
	config := capture.Config{
		Cloud: azure.Retry(azure.Settled(azure.Limit(cloud, azure.Limits{})), azure.RetryPolicy{}), Cluster: mortal{c, p}, Journal: records{p}, Log: slog.New(slog.DiscardHandler),
		Report: func(e workflow.Event) { p.report(engine.Event{Step: e.Step, State: states[e.Kind]}) }, Now: p.now,
		Version: "test", Image: "ortet:test", Namespace: namespace, Holder: name, LockFor: leaseFor,
	}
	program := captures{acceptLost: p.ask.AcceptLost}
	config.Others = func(kind string) (workflow.Workflow, error) {
		if kind == rollback.Kind {
			return program.rollbacks.Workflow(), nil
		}
		return program.Service.Workflow(), nil
	}
	program.Service, program.rollbacks = capture.New(config), rollback.New(config)
	return program, nil
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

// records is the world's journal as a process sees it: once killed, it writes no more.
type records struct{ p *process }

func (r records) Load(ctx context.Context, pool string) (journal.Record, error) {
	return r.p.w.records.Load(ctx, pool)
}

func (r records) Save(ctx context.Context, rec journal.Record) (journal.Record, error) {
	if r.p.isDead() {
		<-ctx.Done()
	}
	return r.p.w.records.Save(ctx, rec)
}

var states = map[string]engine.State{workflow.EventBegun: engine.StepStarted, workflow.EventDone: engine.StepDone, workflow.EventFailed: engine.StepFailed,
	workflow.EventProgress: engine.StepProgress, workflow.EventNote: engine.StepProgress}

// start begins a process.
func (w *world) start(ask Ask) (*process, error) {
	p := &process{w: w, ask: ask, done: make(chan struct{}), dead: make(chan struct{}), began: time.Now()}
	p.ctx, p.cancel = context.WithCancel(w.ctx)
	w.mu.Lock()
	w.processes = append(w.processes, p)
	p.name = fmt.Sprintf("p%d", len(w.processes))
	w.mu.Unlock()
	var err error
	if *programName == "capture" {
		p.engine, err = w.newCaptures(p.name, azureWire{p}, kubeWire{p}, p)
	} else {
		p.engine, err = w.newEngine(p.name, azureWire{p}, kubeWire{p}, p)
	}
	if err != nil {
		return nil, err
	}
	w.trace("%s begins: %s", p.name, ask.Do)
	go func() {
		defer close(p.done)
		if ask.Do == "rollback" {
			p.rollback, p.err = p.engine.Rollback(p.ctx, engine.RollbackRequest{Pool: w.pool, To: ask.To, AllowRolling: ask.Rolling})
		} else {
			q := engine.CaptureRequest{Node: nodeName(ask.Node), Again: ask.Again, Deallocate: ask.Deallocate, ForceDrain: ask.Force,
				History: ask.History, AcceptPoolCredentials: ask.Accept, NewNodes: ask.Grow, AllowRolling: ask.Rolling,
				Extensions: prototype.ExtensionRule{None: ask.KeepExtensions}}
			if ask.Baked {
				q.Bootstrap = engine.BootstrapBaked
			}
			p.capture, p.err = p.engine.Capture(p.ctx, q)
		}
		p.mu.Lock()
		p.ended = true
		p.mu.Unlock()
		if !p.isDead() {
			text, _, _ := strings.Cut(fmt.Sprint(p.err), "\n")
			w.trace("%s ends: %d %s", p.name, p.code(), text)
		}
	}()
	return p, nil
}

func (p *process) code() int {
	if *programName == "capture" {
		return workflow.ExitCode(p.err)
	}
	return engine.ExitCode(p.err)
}

// now is the process's clock. What it computes while its machine sleeps it computes,
// in truth, when the machine wakes.
func (p *process) now() time.Time {
	now := time.Now()
	if p == nil {
		return now
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asleep.After(now) {
		return p.asleep
	}
	return now
}

// report draws steps apart that begin or end at the same instant, so that a story plays
// the same at every run.
func (p *process) report(e engine.Event) {
	if e.State != engine.StepProgress && p != nil {
		_ = sleep(p.w.ctx, p.w.between(time.Microsecond, time.Millisecond, p.name, e.Step, e.State, time.Since(p.w.begin)))
	}
}

// liveness is what a machine knows of the processes that ran on it.
func (p *process) liveness(holder string) engine.Liveness {
	if p == nil || p.ask.elsewhere {
		return engine.Unknown
	}
	w := p.w
	name, _, _ := strings.Cut(holder, "/")
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, other := range w.processes {
		if other.name == name {
			other.mu.Lock()
			defer other.mu.Unlock()
			if other.killedAt || other.ended {
				return engine.Dead
			}
			return engine.Alive
		}
	}
	return engine.Unknown
}

// killed ends the process in the middle of a request.
func (p *process) killed(ctx context.Context) error {
	p.die()
	<-ctx.Done()
	return context.Cause(ctx)
}

func (p *process) die() {
	p.mu.Lock()
	already := p.killedAt
	p.killedAt = true
	p.mu.Unlock()
	if !already {
		p.w.trace("%s is killed", p.name)
		close(p.dead)
		p.cancel()
	}
}

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killedAt
}

// interrupt is Ctrl-C.
func (p *process) interrupt() {
	p.mu.Lock()
	p.interrupted = true
	p.mu.Unlock()
	p.cancel()
}

func (p *process) suspend(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asleep = time.Now().Add(d)
}

// awake waits until the process's machine is awake.
func (p *process) awake() {
	for {
		p.mu.Lock()
		left := time.Until(p.asleep)
		p.mu.Unlock()
		if left <= 0 || p.isDead() {
			return
		}
		_ = sleep(p.w.ctx, left)
	}
}

// journal gives what ortet status reports of the pool's newest capture or rollback.
func (w *world) journal() *engine.CaptureStatus {
	if *programName == "capture" {
		r, err := w.records.Load(w.ctx, string(w.pool))
		if err != nil {
			return nil
		}
		status := &engine.CaptureStatus{Name: r.Name}
		if r.Ended != nil {
			status.Ended = &engine.Ending{Exit: r.Ended.Exit}
		}
		return status
	}
	e, err := w.newEngine("status", w.azure.Transport(), w.kube, nil)
	if err == nil {
		var all []engine.PoolStatus
		if all, err = e.Status(w.ctx, []fleet.ResourceID{w.pool}); err == nil {
			return all[0].Capture
		}
	}
	w.broken(0, "cannot read the pool's status: %v", err)
	return nil
}
