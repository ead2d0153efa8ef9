package play

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/test/scenario"
)

var tokenOptions = policy.TokenRequestOptions{Scopes: []string{azsim.InProcess + "//.default"}}

// A process is one ortet at work.
type process struct {
	w      *world
	name   string // "p1", "p2", …
	ask    scenario.Ask
	engine *engine.Engine
	ctx    context.Context
	cancel context.CancelFunc

	done chan struct{} // closed when the engine returned
	dead chan struct{} // closed when it died

	mu            sync.Mutex
	cut           bool
	cutAt         time.Time
	ended         bool
	interrupted   bool
	failed        bool // a step did
	interruptedAt time.Time
	skew          time.Duration
	asleep        time.Time // until when it is suspended
	wokeAt        string    // the request whose answer it got when it went on
	jumped        bool      // its clock, ever
	robbed        time.Time // until when it may believe that it holds the pool, which another took from it
	looked        looked
	forbidden     bool     // it lacked a right
	changes       int      // requests that changed something
	toRefuse      []string // codes of what it has to be refused for, where judgeRefusal is set
	judgeRefusal  bool

	// Once done.
	capture  engine.CaptureResult
	rollback engine.RollbackResult
	err      error
	began    time.Time
	returned time.Time
}

// leaseFor is longer than ortet's own 45 s: renewals are most of what a process
// sends while Azure works.
const leaseFor = 5 * time.Minute

// start begins a process. What it does goes on until it ends or dies.
func (w *world) start(ask scenario.Ask) (*process, error) {
	ctx, cancel := context.WithCancel(w.over)
	p := &process{w: w, ask: ask, ctx: ctx, cancel: cancel, done: make(chan struct{}), dead: make(chan struct{}), began: time.Now()}
	w.mu.Lock()
	w.processes = append(w.processes, p)
	p.name = fmt.Sprintf("p%d", len(w.processes))
	w.stats.Processes++
	w.mu.Unlock()
	cloud, err := arm.New(arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: w.azure.Credential(ortetClient), Transport: azureWire{p}, Version: "test"})
	if err != nil {
		return nil, err
	}
	c, err := kube.New(kube.Config{
		REST:      &rest.Config{Host: "http://kubesim.invalid", Transport: kubeWire{p}, BearerToken: ortetUser},
		Namespace: namespace, Identity: p.name, Now: p.now, ReadRetries: -1,
	})
	if err != nil {
		return nil, err
	}
	p.engine, err = engine.New(engine.Config{
		Cloud: azure.Retry(azure.Limit(cloud, azure.Limits{}), azure.RetryPolicy{}), Cluster: c,
		Logger: slog.New(slog.DiscardHandler), Reporter: engine.ReporterFunc(p.report), Now: p.now, Version: "test",
		Image: "ortet:test", Namespace: namespace, Holder: p.name, Liveness: p.liveness, LeaseFor: leaseFor,
	})
	if err != nil {
		return nil, err
	}
	w.expectRefusal(p)
	w.write("%s begins: %s", p.name, ask.Verb)
	go p.run()
	return p, nil
}

func (p *process) run() {
	defer close(p.done)
	switch p.ask.Verb {
	case scenario.Capture:
		p.capture, p.err = p.engine.Capture(p.ctx, p.request())
	case scenario.Rollback:
		q := engine.RollbackRequest{Pool: p.w.pool, To: p.ask.To, AllowRolling: p.ask.Rolling}
		p.rollback, p.err = p.engine.Rollback(p.ctx, q)
	}
	p.mu.Lock()
	p.ended, p.returned = true, time.Now()
	cut := p.cut
	p.mu.Unlock()
	if !cut {
		p.w.write("%s ends: %d %s", p.name, engine.ExitCode(p.err), firstLine(p.err))
	}
}

func firstLine(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	// Problems are found by parallel reads, in no order.
	if refused := new(engine.Refused); errors.As(err, &refused) {
		return fmt.Sprintf("refused for %d reasons", len(refused.Problems))
	}
	text, _, _ = strings.Cut(text, "\n")
	return text
}

func (p *process) request() engine.CaptureRequest {
	a := p.ask
	q := engine.CaptureRequest{
		Node: p.w.nodeOf(a.Node), Again: a.Again, Deallocate: a.Deallocate, ForceDrain: a.Force, History: a.History,
		AcceptPoolCredentials: a.Accept, NewNodes: int64(a.NewNodes), AllowRolling: a.Rolling,
		AcceptSecrets: p.w.acceptedPaths(a), RemoveSecrets: a.RemoveSecrets,
	}
	if a.Bake {
		q.Bootstrap = engine.BootstrapBaked
	}
	return q
}

// now is the process's own clock. What computes while the process is suspended does so,
// in truth, when it goes on.
func (p *process) now() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.asleep.After(now) {
		now = p.asleep
	}
	return now.Add(p.skew)
}

// suspend has the process send nothing, and get no answer, for so long.
func (p *process) suspend(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asleep = time.Now().Add(d)
}

func (p *process) wasSuspended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.asleep.IsZero()
}

// wakes waits until the process is not suspended, or dead, and reports whether it was.
func (p *process) wakes() (slept bool) {
	for ; ; slept = true {
		p.mu.Lock()
		left := time.Until(p.asleep)
		p.mu.Unlock()
		if left <= 0 {
			return slept
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-p.dead:
			timer.Stop()
			return true
		}
	}
}

// report is where steps that begin or end together are drawn apart: see the
// package's documentation.
func (p *process) report(e engine.Event) {
	if e.State == engine.StepProgress {
		return
	}
	if e.State == engine.StepFailed {
		p.mu.Lock()
		p.failed = true
		p.mu.Unlock()
	}
	_ = nap(p.w.over, p.w.between(time.Microsecond, time.Millisecond, p.name, e.Step, e.State, time.Since(p.w.begin))) // ended is as good as waited
}

// liveness is what this machine knows of another process.
func (p *process) liveness(holder string) engine.Liveness {
	if p.ask.Unknown {
		return engine.Unknown
	}
	name, _, _ := strings.Cut(holder, "/")
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	for _, other := range p.w.processes {
		if other.name != name {
			continue
		}
		other.mu.Lock()
		defer other.mu.Unlock()
		if other.cut || other.ended {
			return engine.Dead
		}
		return engine.Alive
	}
	return engine.Unknown
}

// die ends the process: nothing that it does has any effect from now on.
func (p *process) die() {
	p.mu.Lock()
	already := p.cut
	p.cut, p.cutAt = true, time.Now()
	p.mu.Unlock()
	if already {
		return
	}
	close(p.dead)
	p.cancel()
}

func (p *process) isCut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cut
}

// interrupt is Ctrl-C. A second one ends the process at once.
func (p *process) interrupt() {
	p.mu.Lock()
	again := p.interrupted
	if !again {
		p.interrupted, p.interruptedAt = true, time.Now()
	}
	p.mu.Unlock()
	if again {
		p.w.write("%s dies", p.name)
		p.die()
		return
	}
	p.cancel()
}

// undoes reports whether it undoes its changes, or gives up, after a failure or an
// interruption.
func (p *process) undoes() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.interrupted || p.failed
}

func (p *process) wasInterrupted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.interrupted
}
