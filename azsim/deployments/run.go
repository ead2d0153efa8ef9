package deployments

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/ortet/ortet/azsim/template"
)

// The states of deployments and of their operations.
const (
	stateAccepted  = "Accepted" // until Run
	stateRunning   = "Running"
	stateSucceeded = "Succeeded"
	stateFailed    = "Failed"
	stateCanceled  = "Canceled"
)

// A Deployment is a plan that runs or has run. Its methods may be called at once.
type Deployment struct {
	*Plan
	correlation string
	now         func() time.Time
	started     time.Time

	mu         sync.Mutex
	ended      time.Time // zero while it runs
	state      string
	canceled   bool
	failure    *Error
	outputs    map[string]any
	operations []*operation // in the order of their beginning
}

// An operation is what a deployment does on one resource; that without a resource
// evaluates the outputs.
type operation struct {
	id         string
	resource   *template.Resource
	start, end time.Time
	state      string
	status     int // of HTTP
	failure    *Error
}

// New makes a deployment that Run runs. correlation is its correlation id; now is
// the clock of what it reports.
func New(p *Plan, correlation string, now func() time.Time) *Deployment {
	return &Deployment{Plan: p, correlation: correlation, now: now, started: now(), state: stateAccepted}
}

// Run puts the resources, each after those that it depends on, and evaluates the
// outputs. After a failure, and after the end of ctx, no resource begins; those that
// have begun go on. Finish then says how the deployment ended.
func (d *Deployment) Run(ctx context.Context, caller Caller) error {
	d.mu.Lock()
	d.state = stateRunning
	d.mu.Unlock()
	w := world{ctx, caller, d.Plan}
	type ending struct {
		id  string
		err *Error
	}
	ended := make(chan ending)
	waiting := slices.Clone(d.expanded.Resources)
	open := map[string]bool{} // what has not succeeded, by id
	for _, r := range waiting {
		open[strings.ToLower(r.ID)] = true
	}
	var failures []*Error
	for running := 0; ; {
		waiting = slices.DeleteFunc(waiting, func(r *template.Resource) bool {
			blocked := slices.ContainsFunc(r.DependsOn, func(id string) bool { return open[strings.ToLower(id)] })
			if blocked || failures != nil || ctx.Err() != nil {
				return false
			}
			op := d.begin(r)
			running++
			go func() {
				status, err := d.put(w, r)
				d.end(op, status, err)
				ended <- ending{strings.ToLower(r.ID), err}
			}()
			return true
		})
		if running == 0 {
			break
		}
		e := <-ended
		running--
		if e.err == nil {
			delete(open, e.id)
		} else {
			failures = append(failures, e.err)
		}
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case failures != nil:
		return d.failed(failures...)
	}
	op := d.begin(nil)
	outputs, err := d.expanded.Outputs(w)
	if err != nil {
		e := &Error{
			Status: http.StatusBadRequest, Code: "DeploymentOutputEvaluationFailed", Details: []*Error{asError(err)},
			Message: "Unable to evaluate template outputs. Please see error details and deployment operations.",
		}
		d.end(op, e.Status, e)
		return d.failed(e)
	}
	d.mu.Lock()
	d.outputs = outputs
	d.mu.Unlock()
	d.end(op, http.StatusOK, nil)
	return nil
}

func (d *Deployment) failed(details ...*Error) error {
	return &Error{
		Status: http.StatusConflict, Code: "DeploymentFailed", Target: d.ID, Details: details,
		Message: "At least one resource deployment operation failed. Please list deployment operations for details. Please see https://aka.ms/arm-deployment-operations for usage details.",
	}
}

// begin adds an operation.
func (d *Deployment) begin(r *template.Resource) *operation {
	key := d.correlation
	if r != nil {
		key += strings.ToLower(r.ID)
	}
	sum := sha256.Sum256([]byte(key))
	op := &operation{id: strings.ToUpper(hex.EncodeToString(sum[:8])), resource: r, start: d.now(), state: stateRunning}
	d.mu.Lock()
	d.operations = append(d.operations, op)
	d.mu.Unlock()
	return op
}

func (d *Deployment) end(op *operation, status int, err *Error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	op.end, op.status, op.failure, op.state = d.now(), status, err, stateSucceeded
	if err != nil {
		op.state = stateFailed
		if d.canceled {
			op.state = stateCanceled
		}
	}
}

// put makes a resource and waits until it is there.
func (d *Deployment) put(w world, r *template.Resource) (int, *Error) {
	body, err := r.Body(w)
	if err != nil {
		e := asError(err)
		return e.Status, e
	}
	data, err := json.Marshal(body)
	if err != nil {
		return http.StatusBadRequest, asError(err)
	}
	path := r.ID + "?api-version=" + r.APIVersion
	out, err := w.do(Request{Method: http.MethodPut, Path: path, Body: data})
	if err != nil {
		return http.StatusInternalServerError, asError(err)
	}
	if e := out.refusal(); e != nil {
		e.Target = cmp.Or(e.Target, r.ID)
		return out.Status, e
	}
	state, e := follow(w, out, path)
	if state == stateSucceeded {
		if out.Status == http.StatusAccepted {
			return http.StatusOK, nil
		}
		return out.Status, nil
	}
	fail := &Error{
		Status: http.StatusConflict, Code: "ResourceDeploymentFailure", Target: r.ID,
		Message: fmt.Sprintf("The resource write operation failed to complete successfully, because it reached terminal provisioning state '%s'.", state),
	}
	if e != nil {
		fail.Details = []*Error{e}
	}
	return fail.Status, fail
}

// follow waits for the end of what a PUT began, and gives its state: by its
// Azure-AsyncOperation, else its Location, else the resource's provisioningState.
func follow(w world, out *Response, path string) (string, *Error) {
	where := []string{"properties", "provisioningState"}
	if at := out.Header.Get("Azure-AsyncOperation"); at != "" {
		path, where = at, []string{"status"}
		out.Body = map[string]any{"status": stateRunning}
	} else if at := out.Header.Get("Location"); at != "" && out.Status == http.StatusAccepted {
		path = at
	}
	for {
		state := text(out.Body, where...)
		switch {
		case state == stateSucceeded, state == "" && out.Status != http.StatusAccepted:
			return stateSucceeded, nil
		case state == stateFailed, state == stateCanceled:
			if member(out.Body, "error") != nil {
				return state, errorIn(out.Body, http.StatusConflict)
			}
			return state, nil
		}
		err := wait(w.ctx, out.Pause)
		if err == nil {
			out, err = w.do(Request{Method: http.MethodGet, Path: path})
		}
		if err != nil {
			return stateFailed, asError(err)
		}
		if e := out.refusal(); e != nil {
			return stateFailed, e
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Cancel notes that the deployment is to end as Canceled, and says whether it runs.
// The context of Run has to be ended too.
func (d *Deployment) Cancel() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.canceled = d.canceled || d.ended.IsZero()
	return d.ended.IsZero()
}

// Finish ends the deployment with what Run, or something else, failed of.
func (d *Deployment) Finish(failure *Error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended, d.failure, d.state = d.now(), failure, stateSucceeded
	switch {
	case d.canceled:
		d.state = stateCanceled
	case failure != nil:
		d.state = stateFailed
	}
}

// State is the provisioningState.
func (d *Deployment) State() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state
}

// Started is when the deployment began.
func (d *Deployment) Started() time.Time { return d.started }

// Body is what GET gives.
func (d *Deployment) Body() map[string]any {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.properties()
	p["provisioningState"], p["correlationId"] = d.state, d.correlation
	p["timestamp"], p["duration"] = d.times(d.started, d.ended)
	if d.failure != nil {
		p["error"] = d.failure
	}
	if d.state == stateSucceeded {
		made := slices.Clone(d.expanded.Resources)
		slices.SortFunc(made, func(a, b *template.Resource) int {
			return strings.Compare(strings.ToLower(a.ID), strings.ToLower(b.ID))
		})
		p["outputResources"] = ids(made)
		if d.template.Declares("outputs") {
			out := map[string]any{}
			for name, value := range d.outputs {
				out[camelCase(name)] = value
			}
			p["outputs"] = out
		}
	}
	return d.envelope(p)
}

// camelCase lowers the upper-case letters at a name's beginning, but not the last before a
// lower-case one, as .NET's serializer does: VMSS is vmss, NewNSG newNSG.
func camelCase(name string) string {
	letters := []rune(name)
	for i, c := range letters {
		if !unicode.IsUpper(c) || i > 0 && i+1 < len(letters) && !unicode.IsUpper(letters[i+1]) {
			break
		}
		letters[i] = unicode.ToLower(c)
	}
	return string(letters)
}

// times returns timestamp and duration of what began and ended then.
func (d *Deployment) times(start, end time.Time) (string, string) {
	if end.IsZero() {
		end = d.now()
	}
	passed := end.Sub(start)
	out := "PT"
	if hours := passed / time.Hour; hours > 0 {
		out += strconv.Itoa(int(hours)) + "H"
	}
	if minutes := passed / time.Minute; minutes > 0 {
		out += strconv.Itoa(int(minutes)%60) + "M"
	}
	return stamp(end), out + strconv.FormatFloat((passed%time.Minute).Seconds(), 'f', -1, 64) + "S"
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// Operations lists the deployment's operations, the newest first.
func (d *Deployment) Operations() []any {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]any, 0, len(d.operations))
	for _, op := range slices.Backward(d.operations) {
		p := map[string]any{"provisioningOperation": "EvaluateDeploymentOutput", "provisioningState": op.state, "trackingId": d.correlation}
		p["timestamp"], p["duration"] = d.times(op.start, op.end)
		if op.resource != nil {
			p["provisioningOperation"], p["targetResource"] = "Create", target(op.resource)
		}
		if op.status != 0 {
			p["statusCode"] = strings.ReplaceAll(http.StatusText(op.status), " ", "")
		}
		if op.failure != nil {
			p["statusMessage"] = map[string]any{"status": op.state, "error": op.failure}
		}
		out = append(out, map[string]any{"id": d.ID + "/operations/" + op.id, "operationId": op.id, "properties": p})
	}
	return out
}
