package azsim

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"
)

// The states of an operation and of a resource's provisioningState.
const (
	stateInProgress = "InProgress"
	stateSucceeded  = "Succeeded"
	stateFailed     = "Failed"
	stateCanceled   = "Canceled"
	stateCreating   = "Creating"
	stateUpdating   = "Updating"
	stateDeleting   = "Deleting"
)

// slowness is what EffectSlow adds to an operation.
const slowness = 10 * time.Minute

// work is what a long-running operation does.
type work struct {
	// span is how long it takes in all; run's own time is part of it.
	span time.Duration
	// delay passes before run; it is part of span.
	delay time.Duration
	// run has the effect on the substrate. It is called without the lock, and
	// may be nil. Its error fails the operation.
	run func(ctx context.Context) error
	// yields ends run's context where the operation is preempted; else run goes on
	// to its end first.
	yields bool
	// verify is a last look, under the lock, before done; its refusal fails the
	// operation. May be nil.
	verify func() *armError
	// done has the effect on the resources: it is called once, under the lock,
	// with nil or with what the operation failed of.
	done func(failure *armError)
	// output gives the body of the final answer of Location, under the lock;
	// nil answers 200 without a body for a POST and 204 for a DELETE.
	output func() any
}

// An operation is one long-running operation.
type operation struct {
	id       string
	name     string // the action: "Microsoft.Compute/disks/write"
	method   string
	location string
	segment  string // "operations"
	ns       string
	version  string
	target   resourceID
	start    time.Time
	end      time.Time // zero while it runs
	status   string
	failure  *armError
	output   func() any
	hung     bool // a fault keeps it from its end
	ctx      context.Context
	stop     context.CancelCauseFunc // with an *armError, to preempt
	ended    chan struct{}           // closed at the end
	// superseded is true once a newer operation has taken the resource over, whose
	// state is no longer this one's to set.
	superseded bool
}

func (o *operation) running() bool { return o.end.IsZero() }

// begin starts work on behalf of the call. Where on is not nil, the entry is
// taken until the work ends, and an operation that runs on it is preempted. The
// caller holds the lock.
func (c *call) begin(on *entry, w work) *operation {
	s := c.s
	op := &operation{
		id: s.newUUID("operation", c.action+" "+c.id.key()), name: c.action, method: c.r.Method, ns: c.id.namespace, version: c.version,
		location: s.locationOf(on), segment: "operations", target: c.id,
		start: c.now, status: stateInProgress, output: w.output, ended: make(chan struct{}),
	}
	op.ctx, op.stop = context.WithCancelCause(s.ctx)
	if c.rt != nil && c.rt.operations != "" {
		op.segment = c.rt.operations
	}
	op.ns = cmp.Or(op.ns, "Microsoft.Resources")
	s.operations[op.id] = op
	if on != nil {
		s.supersede(on.op)
		on.op = op
	}
	effect := c.opFault
	op.hung = effect.is(EffectNeverEnds)
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		s.perform(op, on, w, effect)
	}()
	return op
}

// perform waits out and carries out an operation.
func (s *Server) perform(op *operation, on *entry, w work, fault *Fault) {
	defer op.stop(nil)
	var failure *armError
	if fault.is(EffectSlow) {
		w.span += slowness
	}
	deadline := op.start.Add(w.span)
	ctx := s.ctx
	if w.yields {
		ctx = op.ctx
	}
	switch {
	case fault.is(EffectNeverEnds):
		failure = s.wait(op, -1)
	case fault.is(EffectFailAtEnd):
		if failure = s.wait(op, max(0, time.Until(deadline))); failure == nil {
			failure = fault.failure()
		}
	default:
		if failure = s.wait(op, w.delay); failure == nil && w.run != nil {
			err := w.run(ctx)
			if failure = op.preempted(); failure == nil && err != nil {
				failure = asARM(err)
			}
		}
		if failure == nil {
			failure = s.wait(op, max(0, time.Until(deadline)))
		}
	}
	if s.ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if on != nil && on.op == op {
		on.op = nil
	}
	if failure == nil && op.superseded {
		failure = op.preempted()
	}
	if failure == nil && w.verify != nil {
		failure = w.verify()
	}
	if w.done != nil {
		w.done(failure)
	}
	if failure == nil && fault.is(EffectReportFailure) {
		failure = fault.failure()
	}
	op.end = time.Now()
	op.failure = failure
	switch failure {
	case nil:
		op.status = stateSucceeded
	case op.preempted():
		op.status = stateCanceled
	default:
		op.status = stateFailed
	}
	close(op.ended)
}

// wait lets d pass (for ever if negative), or less if the operation is
// preempted, whose error it then returns, or the server closes.
func (s *Server) wait(op *operation, d time.Duration) *armError {
	var tick <-chan time.Time
	if d >= 0 {
		if d == 0 {
			return op.preempted()
		}
		t := time.NewTimer(d)
		defer t.Stop()
		tick = t.C
	}
	select {
	case <-tick:
	case <-op.ctx.Done():
	}
	return op.preempted()
}

// preempted is why the operation was preempted, nil if it was not.
func (o *operation) preempted() *armError {
	var why *armError
	errors.As(context.Cause(o.ctx), &why)
	return why
}

// preempt ends a running operation as Canceled. The caller holds the lock.
func (s *Server) preempt(op *operation, why *armError) {
	if op == nil || !op.running() || op.preempted() != nil {
		return
	}
	op.stop(why)
}

// supersede preempts an operation in favour of a newer one on the same resource.
// The caller holds the lock.
func (s *Server) supersede(op *operation) {
	if op != nil && op.running() {
		s.preempt(op, preempted())
		op.superseded = true
	}
}

// A task is work on one instance, which goes on where the operation that began it
// is preempted.
type task struct {
	ended chan struct{}
	err   error
}

// spawn begins a task; done is called under the lock at its end. The caller holds
// the lock.
func (s *Server) spawn(do func() error, done func(err error)) *task {
	t := &task{ended: make(chan struct{})}
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		t.err = do()
		s.locked(func() { done(t.err) })
		close(t.ended)
	}()
	return t
}

// wait waits for the end of a task, or of ctx.
func (t *task) wait(ctx context.Context) error {
	select {
	case <-t.ended:
		return t.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// EndHung ends every operation that a fault keeps from its end, as Canceled:
// what comes of one in the long run. It may be called at any time.
func (s *Server) EndHung() {
	s.init()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, op := range s.operations {
		if op.hung {
			s.preempt(op, refuse(http.StatusConflict, "OperationPreempted", "The operation '%s' did not come to an end and was canceled.", op.id))
		}
	}
}

// groupResults is where the deletion of a group is asked about, in the subscription; it
// has no Azure-AsyncOperation.
const groupResults = "operationresults"

// asyncOperations is where storage accounts have their operations; they have no
// Azure-AsyncOperation either.
const asyncOperations = "asyncoperations"

// announce adds the headers by which a client follows the operation.
func (o *operation) announce(s *Server, base string, h http.Header) {
	if o.segment != groupResults && o.segment != asyncOperations {
		h.Set("Azure-AsyncOperation", o.url(base, false))
	}
	if o.method != http.MethodPut && o.method != http.MethodPatch || o.segment == diskOperations || o.segment == asyncOperations {
		h.Set("Location", o.url(base, true))
	}
	setRetryAfter(h, s.pause(o, false))
}

// showOperation answers a question after an operation.
func (c *call) showOperation(id string) (*reply, error) {
	op := c.s.operations[strings.ToLower(id)]
	if op == nil || !strings.EqualFold(op.target.subscription, c.id.subscription) {
		return nil, refuse(http.StatusNotFound, "NotFound", "The entity was not found in this Azure location: operation '%s'.", id)
	}
	if err := c.verbatim(op); err != nil {
		return nil, err
	}
	if strings.EqualFold(op.ns, "Microsoft.Compute") && op.segment == "operations" {
		if err := c.spend(operationBudget, op.target); err != nil {
			return nil, err
		}
	}
	if c.query("monitor") == "true" || op.segment == groupResults {
		return c.monitorOperation(op)
	}
	body := map[string]any{
		"name":      op.id,
		"startTime": op.start.UTC().Format(time.RFC3339Nano),
		"status":    op.status,
	}
	r := ok(body)
	if op.running() {
		setRetryAfter(r.header(), c.s.pause(op, true))
		return r, nil
	}
	body["endTime"] = op.end.UTC().Format(time.RFC3339Nano)
	if op.failure != nil {
		body["error"] = op.failure
	} else if op.output != nil {
		body["properties"] = map[string]any{"output": op.output()}
	}
	return r, nil
}

// monitorOperation answers at the operation's Location: 202 while it runs, then
// what the request itself would have answered.
func (c *call) monitorOperation(op *operation) (*reply, error) {
	if op.running() {
		r := &reply{status: http.StatusAccepted}
		op.announce(c.s, c.base(), r.header())
		setRetryAfter(r.header(), c.s.pause(op, true))
		r.header().Set("Location", op.url(c.base(), true))
		return r, nil
	}
	if op.failure != nil {
		e := *op.failure
		if e.status < 400 || op.status == stateCanceled {
			e.status = http.StatusConflict
		}
		return nil, &e
	}
	if op.output != nil {
		return ok(op.output()), nil
	}
	if op.method == http.MethodDelete {
		return &reply{status: http.StatusNoContent}, nil
	}
	if op.method == http.MethodPut || op.method == http.MethodPatch {
		if e := c.s.find(op.target); e != nil {
			return ok(c.render(e)), nil
		}
	}
	return &reply{status: http.StatusOK}, nil
}
