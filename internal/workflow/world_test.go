package workflow_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/journal/journaltest"
	"github.com/ortet/ortet/internal/workflow"
)

const (
	pool     = fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/pool1")
	instance = pool + "/virtualMachines/3"
	snapshot = fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/snapshots/s1")
	version  = fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/galleries/g/images/i/versions/1.0.0")
)

// A world is the cloud and the cluster that all processes share.
type world struct {
	mu    sync.Mutex
	is    map[string]bool // "stopped", "snapshot", "version", "model", "grown", "protected"
	ops   map[fleet.Token]*operation
	log   []string
	takes time.Duration
	// fault, if set, decides about a call: "begin stop instance", "poll stop instance".
	fault func(call string, n int) string
	calls map[string]int

	records   journaltest.Memory
	holder    string
	renewed   time.Time
	ttl       time.Duration
	away      bool // the API server does not answer
	refused   bool // the API server refuses the credentials
	deniedEnd bool // no save that ends a record is allowed
	denied    int  // save from which on the API server allows nothing; 1: nor the lock, 0: never
	lose      int  // the save whose answer is lost
	saves     int
	busy      string // an invariant was broken
}

type operation struct {
	change fleet.Change
	ends   time.Time
	effect bool
	err    error
}

func newWorld() *world {
	return &world{is: map[string]bool{}, ops: map[fleet.Token]*operation{}, calls: map[string]int{}, takes: 30 * time.Second}
}

// set applies a change.
func (w *world) set(c fleet.Change) {
	switch c.(type) {
	case fleet.StopInstance:
		w.is["stopped"] = true
	case fleet.StartInstance:
		w.is["stopped"] = false
	case fleet.CreateSnapshot:
		w.is["snapshot"] = w.is["stopped"]
	case fleet.DeleteSnapshot:
		w.is["snapshot"] = false
	case fleet.CreateVersion:
		w.is["version"] = true
	case fleet.PatchModel:
		w.is["model"] = true
	case fleet.SetCapacity:
		w.is["grown"] = true
	}
	if w.is["stopped"] && !w.is["protected"] {
		w.busy = "stopped and not protected"
	}
}

func (w *world) settle() {
	for _, o := range w.ops {
		if o.effect && !time.Now().Before(o.ends) {
			o.effect = false
			w.set(o.change)
		}
	}
}

// begins counts the changes that were begun; the caller has the lock.
func (w *world) begins() (n int) {
	for call, c := range w.calls {
		if strings.HasPrefix(call, "begin ") {
			n += c
		}
	}
	return n
}

func (w *world) look(what string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settle()
	return w.is[what]
}

// A process is one run's side of the world. Once it is dead, nothing that it does counts.
type process struct {
	*world
	name   string
	dead   bool
	killAt int  // the save at which it dies; 0: never
	after  bool // after the save, not before
	writes int
}

func failure(kind fleet.Kind, text string) error {
	return &fleet.Error{Op: "test", Kind: kind, Err: errors.New(text)}
}

func (p *process) call(name string) (string, error) {
	p.settle()
	if p.dead {
		return "", failure(fleet.KindTransient, "dead")
	}
	p.calls[name]++
	p.log = append(p.log, name)
	if p.fault == nil {
		return "", nil
	}
	return p.fault(name, p.calls[name]), nil
}

// Begin understands the faults "refused", "lost", "lost and done", "no effect", "failed",
// "failed and done", "preempted", "invalid", and refusals: "denied", "proxy" (without a
// code), "proxy and done", "locked", "unsupported", "rejected".
func (p *process) Begin(_ context.Context, c fleet.Change) (fleet.Token, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fault, err := p.call("begin " + c.Verb())
	if err != nil {
		return "", err
	}
	switch fault {
	case "denied":
		return "", &fleet.Error{Op: "test", Kind: fleet.KindDenied, Code: "AuthorizationFailed", Err: errors.New("no")}
	case "proxy and done":
		p.set(c)
		return "", failure(fleet.KindDenied, "403")
	case "proxy":
		return "", failure(fleet.KindDenied, "403")
	case "locked":
		return "", &fleet.Error{Op: "test", Kind: fleet.KindBlocked, Code: "ScopeLocked", Err: errors.New("no")}
	case "unsupported":
		return "", &fleet.Error{Op: "test", Kind: fleet.KindUnsupported, Code: "NotSupported", Err: errors.New("no")}
	case "rejected":
		return "", &fleet.Error{Op: "test", Kind: fleet.KindInvalid, Code: "InvalidParameter", Err: errors.New("no")}
	}
	for token, o := range p.ops {
		if o.change.Verb() == c.Verb() && time.Now().Before(o.ends) {
			return token, nil // joins
		}
		if o.change.Target() == c.Target() && time.Now().Before(o.ends) {
			return "", failure(fleet.KindConflict, "under way: "+o.change.Verb())
		}
	}
	o := &operation{change: c, ends: time.Now().Add(p.takes), effect: true}
	switch fault {
	case "refused":
		return "", failure(fleet.KindTransient, "503")
	case "throttled":
		return "", &fleet.Error{Op: "test", Kind: fleet.KindThrottled, RetryAfter: 90 * time.Second}
	case "no effect":
		o.effect = false
	case "failed":
		o.effect, o.err = false, failure(fleet.KindUnknown, "internal")
	case "failed and done":
		o.err = failure(fleet.KindUnknown, "internal")
	case "preempted":
		o.effect, o.err = false, failure(fleet.KindConflict, "OperationPreempted")
	case "invalid":
		o.effect, o.err = false, failure(fleet.KindInvalid, "quota")
	}
	token := fleet.Token(fmt.Sprint("op", len(p.ops)))
	p.ops[token] = o
	if fault == "lost" {
		return "", failure(fleet.KindTransient, "connection reset")
	}
	return token, nil
}

func (p *process) Poll(_ context.Context, token fleet.Token) (fleet.Progress, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.ops[token]
	if o == nil {
		return fleet.Progress{}, failure(fleet.KindNotFound, "no such operation")
	}
	switch fault, err := p.call("poll " + o.change.Verb()); {
	case err != nil:
		return fleet.Progress{}, err
	case fault == "refused":
		return fleet.Progress{}, failure(fleet.KindTransient, "503")
	case fault == "throttled":
		return fleet.Progress{}, failure(fleet.KindThrottled, "429")
	case fault == "forgotten":
		return fleet.Progress{}, failure(fleet.KindNotFound, "404")
	}
	if time.Now().Before(o.ends) {
		return fleet.Progress{Percent: -1, Wait: 10 * time.Second, Status: "InProgress"}, nil
	}
	return fleet.Progress{Done: true, Percent: 100}, o.err
}

func (p *process) Load(ctx context.Context, pool string) (journal.Record, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return journal.Record{Name: "x", Writer: "another"}, nil
	}
	if p.away {
		return journal.Record{}, failure(fleet.KindTransient, "API server away")
	}
	return p.records.Load(ctx, pool)
}

func (p *process) Save(ctx context.Context, r journal.Record) (journal.Record, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writes++
	if p.writes == p.killAt {
		p.log = append(p.log, "killed")
		if p.after {
			_, _ = p.records.Save(ctx, r)
		}
		p.dead = true
	}
	switch {
	case p.dead:
		return journal.Record{}, failure(fleet.KindConflict, "dead")
	case p.away:
		return journal.Record{}, failure(fleet.KindTransient, "API server away")
	}
	if p.denied > 0 && p.writes >= p.denied || p.deniedEnd && !r.Open() {
		return journal.Record{}, failure(fleet.KindDenied, "no right to update secrets")
	}
	p.saves++
	saved, err := p.records.Save(ctx, r)
	if p.saves == p.lose {
		return journal.Record{}, failure(fleet.KindTransient, "connection reset")
	}
	return saved, err
}

func (p *process) Hold(_ context.Context, _, holder string, ttl time.Duration) (cluster.Holding, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.dead:
		return cluster.Holding{}, failure(fleet.KindHeld, "dead")
	case p.away:
		return cluster.Holding{}, failure(fleet.KindTransient, "API server away")
	case p.denied == 1:
		return cluster.Holding{}, failure(fleet.KindDenied, "no right to create leases")
	case p.refused:
		return cluster.Holding{}, failure(fleet.KindUnauthenticated, "401")
	case p.holder != "" && p.holder != holder && time.Since(p.renewed) < p.ttl:
		return cluster.Holding{Holder: p.holder, Renewed: p.renewed, Until: p.renewed.Add(p.ttl)}, failure(fleet.KindHeld, "held by "+p.holder)
	}
	took := p.holder
	if took == holder {
		took = ""
	}
	p.holder, p.renewed, p.ttl = holder, time.Now(), ttl
	return cluster.Holding{Holder: holder, Renewed: p.renewed, TookFrom: took}, nil
}

func (p *process) Holding(context.Context, string) (cluster.Holding, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return cluster.Holding{Holder: p.holder, Renewed: p.renewed, Until: p.renewed.Add(p.ttl)}, p.holder != "", nil
}

func (p *process) Release(_ context.Context, _, holder string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holder == holder && !p.dead {
		p.holder = ""
	}
	return nil
}

func (p *process) runner(t *testing.T) *workflow.Runner {
	return &workflow.Runner{
		Cloud: p, Journal: p, Locks: p, LockFor: 45 * time.Second, Holder: p.name, Now: time.Now,
		Log: slog.New(slog.DiscardHandler),
		Report: func(e workflow.Event) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.log = append(p.log, strings.TrimSpace(fmt.Sprint("  ", e.Kind, " ", e.Step, " ", e.Message)))
		},
		Workflow: func(kind string) (workflow.Workflow, error) { return &small{p: p}, nil },
	}
}

// small is a workflow of six rows: a donor is protected, stopped, copied and started.
type small struct {
	p        *process
	kind     string
	problems []fleet.Problem
	left     []string
	again    int // how often version finds the snapshot lost
}

func (s *small) Kind() string { return "small" + s.kind }

// State says whose record it is, and whether what must not outlive the run is left out.
func (s *small) State(closed bool) any {
	return map[bool]string{true: "closed ", false: "open "}[closed] + s.Kind()
}

func (s *small) Restore(journal.Record) (workflow.Table, string, error) { return s.table(), "", nil }

func (s *small) Plan(context.Context, journal.Record) (workflow.Plan, error) {
	table := s.table()
	last := ""
	for _, id := range []string{"snapshot", "version", "model", "grown"} {
		if s.p.look(id) {
			last = id
		}
	}
	for i := 0; last != ""; i++ {
		table[i].Skip = "there"
		table[i].EffectMayExist = table[i].ID == "snapshot" && s.p.look("snapshot")
		if table[i].ID == last || table[i].ID == "grow" {
			break
		}
	}
	return workflow.Plan{Name: "run", Subject: "node", Request: 1, Table: table, Problems: s.problems, Left: s.left}, nil
}

// ensure is an act that makes a change true.
func (s *small) ensure(c fleet.Change, what string, want bool) workflow.Act {
	return func(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
		return p.Ensure(ctx, c, func(context.Context) (bool, error) { return s.p.look(what) == want, nil })
	}
}

func (s *small) version(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	if s.again--; s.again >= 0 {
		return workflow.Wait{}, workflow.Replan("the snapshot is lost")
	}
	return s.ensure(fleet.CreateVersion{ID: version}, "version", true)(ctx, p)
}

func (s *small) protect(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	if _, err := workflow.Before(ctx, p, func() (bool, error) { return s.p.look("protected"), nil }); err != nil {
		return workflow.Wait{}, err
	}
	return workflow.Wait{}, s.patch(true)
}

func (s *small) unprotect(_ context.Context, p *workflow.Pass) (workflow.Wait, error) {
	var before bool
	there, err := p.Saved(&before)
	if !there || err != nil {
		return workflow.Wait{}, err
	}
	return workflow.Wait{}, s.patch(before)
}

// patch writes to the API server.
func (s *small) patch(protected bool) error {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if s.p.away || s.p.dead {
		return failure(fleet.KindTransient, "API server away")
	}
	if s.p.holder != "" && !strings.HasPrefix(s.p.holder, s.p.name) {
		s.p.busy = "patched under another's lock"
	}
	s.p.is["protected"] = protected
	return nil
}

func (s *small) table() workflow.Table {
	return workflow.Table{
		{ID: "protect", Do: s.protect, Undo: &workflow.Undo{ID: "unprotect", When: []string{"snapshot"}, After: []string{"start"},
			Do: s.unprotect}},
		{ID: "stop", After: []string{"protect"}, Do: s.ensure(fleet.StopInstance{Instance: instance}, "stopped", true),
			Undo: &workflow.Undo{ID: "start", When: []string{"snapshot"}, Do: s.ensure(fleet.StartInstance{Instance: instance}, "stopped", false),
				Manual: func() string { return "start it by hand" }}},
		{ID: "snapshot", After: []string{"stop"}, Do: s.ensure(fleet.CreateSnapshot{ID: snapshot}, "snapshot", true),
			Undo: &workflow.Undo{ID: "delete-snapshot", When: []string{"version"}, Keep: journal.Done,
				Do: s.ensure(fleet.DeleteSnapshot{ID: snapshot}, "snapshot", false)}},
		{ID: "version", After: []string{"snapshot", "start", "unprotect"}, Do: s.version,
			Undo: &workflow.Undo{ID: "delete-version", Keep: journal.Running, Do: nothing}},
		{ID: "model", After: []string{"version"}, Commits: true, Every: time.Second, Do: s.ensure(fleet.PatchModel{Pool: pool}, "model", true)},
		{ID: "grow", After: []string{"model"}, Do: s.ensure(fleet.SetCapacity{Pool: pool}, "grown", true)},
	}
}
