package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
)

// A Failure is a resource that a deployment could not make.
type Failure struct {
	Group    string `json:"group"`
	Resource string `json:"resource"` // "vm server"
	Code     string `json:"code"`     // Azure's, "SkuNotAvailable"
	Message  string `json:"message"`  // Azure's
}

type armError struct {
	Code    string     `json:"code"`
	Message string     `json:"message"`
	Details []armError `json:"details"`
}

// deepest returns the error that says most: the first of the details, if any.
func (e *armError) deepest() (code, message string) {
	for len(e.Details) > 0 {
		e = &e.Details[0]
	}
	return e.Code, e.Message
}

// target is what an operation of a deployment works on, "vm server".
func (r *resource) target() string {
	return kindName(r.Properties.Target.Type) + " " + shownName(r.Properties.Target.Name)
}

func (r *resource) failure(group string) Failure {
	f := Failure{Group: group, Resource: r.target(), Code: r.Properties.ProvisioningState}
	var body struct {
		Error *armError `json:"error"`
	}
	if json.Unmarshal(r.Properties.StatusMessage, &body) == nil && body.Error != nil {
		f.Code, f.Message = body.Error.deepest()
	} else {
		_ = json.Unmarshal(r.Properties.StatusMessage, &f.Message) // a text, or nothing
	}
	return f
}

// A deploymentError is a deployment that ended, but not with success.
type deploymentError struct {
	what     string
	failures []Failure
	canceled bool // others wanted its end
}

func (e *deploymentError) Error() string { return e.what }

// oldGrants reports whether Azure refused another principal in a role assignment: the former
// identity's was left, as where a person deleted the group.
func (e *deploymentError) oldGrants() bool {
	return slices.ContainsFunc(e.failures, func(f Failure) bool { return f.Code == "RoleAssignmentUpdateNotPermitted" })
}

// beingDeleted is the end of a deployment to a cluster whose group of a role is being deleted.
func (m *Manager) beingDeleted(role string) error {
	return &deploymentError{what: "group " + m.group(role).Name() + " is being deleted, by ortet cluster down or by hand", canceled: true}
}

// A clock is a step of the display and the time that it has taken.
type clock struct {
	m           *Manager
	step, title string
	began       time.Time
	ended       bool
}

func (m *Manager) begin(step, title string) *clock {
	c := &clock{m: m, step: step, title: title, began: m.Now()}
	c.report(workflow.EventBegun, "")
	return c
}

func (c *clock) report(kind, message string) {
	now := c.m.Now()
	c.ended = kind == workflow.EventDone || kind == workflow.EventFailed
	c.m.Report(workflow.Event{At: now, Kind: kind, Step: c.step, Title: c.title, Message: message, Percent: -1, Elapsed: now.Sub(c.began)})
}

func (c *clock) end(err error) {
	if err != nil {
		c.report(workflow.EventFailed, workflow.FailureText(err))
		return
	}
	c.report(workflow.EventDone, "")
}

func deploymentBody(d recipe.Deployment) map[string]any {
	parameters := map[string]any{}
	for name, value := range d.Parameters {
		parameters[name] = map[string]any{"value": value}
	}
	return map[string]any{"properties": map[string]any{"mode": "Incremental", "template": d.Template, "parameters": parameters}}
}

func (m *Manager) deploymentID(role string) fleet.ResourceID {
	return m.in(role, "Microsoft.Resources/deployments", recipe.DeploymentName)
}

// deploy has Azure make what the template says, and follows. If another deployment runs
// already, it follows that one first, and ends with it if it is canceled. Role assignments of
// former identities are deleted once. check is asked before each attempt.
func (m *Manager) deploy(ctx context.Context, role string, d recipe.Deployment, wait bool, check func() error) (err error) {
	c := m.begin(role, "Deploy the "+role+" group")
	defer func() { c.end(err) }()
	cleaned := false
	return m.poll(ctx, func() (bool, error) {
		var accepted resource
		var failed *deploymentError
		if err := check(); err != nil {
			return false, err
		}
		err := m.settled(ctx, func() error {
			o, err := m.ARM.Send(ctx, "deploy group "+m.group(role).Name(), http.MethodPut, m.deploymentID(role), resourcesVersion, deploymentBody(d))
			if err != nil {
				return err
			}
			return json.Unmarshal(o.Answer(), &accepted)
		})
		switch {
		case err == nil && wait:
			err = m.follow(ctx, role, accepted.Properties.CorrelationID, c)
			if cleaned || !errors.As(err, &failed) || !failed.oldGrants() {
				return true, err
			}
			cleaned = true
			c.report(workflow.EventProgress, "deleting role assignments of former identities")
			return false, m.deleteAssignments(ctx, role)
		case codeOf(err) == "ResourceGroupBeingDeleted":
			return true, m.beingDeleted(role)
		case codeOf(err) != "DeploymentActive":
			return true, err
		}
		c.report(workflow.EventProgress, "another deployment is running; following it")
		if err = m.follow(ctx, role, "", c); errors.As(err, &failed) && !failed.canceled {
			return false, nil
		}
		return false, err
	})
}

// follow watches a deployment until it ends. correlation names the run; "" takes the
// one that ARM shows.
func (m *Manager) follow(ctx context.Context, role, correlation string, overall *clock) error {
	clocks, group, last, stale, seen := map[string]*clock{}, m.group(role), "", 0, false
	return m.poll(ctx, func() (bool, error) {
		d, err := m.get(ctx, m.deploymentID(role), resourcesVersion)
		switch {
		case err != nil:
			return false, err
		case seen && d != nil && d.Properties.CorrelationID != correlation:
			correlation, seen = "", false // ours ended, and another up began the next
		case stale < 10 && (d == nil || correlation != "" && d.Properties.CorrelationID != correlation):
			stale++ // the run before, for some seconds
			return false, nil
		case d == nil:
			return false, fmt.Errorf("cannot follow the deployment of group %s: deployment was deleted; run ortet cluster up again", group.Name())
		}
		seen = correlation != ""
		steps, err := m.list(ctx, group+fleet.ResourceID("/deployments/"+recipe.DeploymentName+"/operations"), resourcesVersion)
		if err != nil {
			return false, err
		}
		done, failures := m.showSteps(steps, clocks, group.Name())
		if now := fmt.Sprintf("%s, %d of %d resources done", strings.ToLower(d.Properties.ProvisioningState), done, len(clocks)); now != last {
			last = now
			overall.report(workflow.EventProgress, now)
		}
		if d.Properties.Error != nil && len(failures) == 0 {
			code, message := d.Properties.Error.deepest()
			failures = []Failure{{group.Name(), "deployment " + recipe.DeploymentName, code, message}}
		}
		switch {
		case d.is("Canceled"):
			return true, &deploymentError{"deployment was canceled, by ortet cluster down or by hand", failures, true}
		case d.is("Failed"):
			return true, &deploymentError{fmt.Sprintf("deployment failed for %d resource(s)", len(failures)), failures, false}
		}
		return d.is("Succeeded"), nil
	})
}

// showSteps reports what changed since the last poll.
func (m *Manager) showSteps(steps []resource, clocks map[string]*clock, group string) (done int, failures []Failure) {
	for _, s := range steps {
		if s.Properties.Target.Type == "" {
			continue // the evaluation of outputs
		}
		c := clocks[s.OperationID]
		if c == nil {
			c = m.begin(s.target(), s.Properties.Target.Type)
			clocks[s.OperationID] = c
		}
		f := s.failure(group)
		if s.is("Failed") {
			failures = append(failures, f)
		}
		switch {
		case c.ended:
		case s.is("Succeeded"):
			c.end(nil)
		case s.is("Failed"), s.is("Canceled"):
			c.report(workflow.EventFailed, f.Code+": "+f.Message)
		}
		if c.ended {
			done++
		}
	}
	slices.SortStableFunc(failures, func(a, b Failure) int { return strings.Compare(a.Resource, b.Resource) })
	return done, failures
}
