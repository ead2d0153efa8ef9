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

	"github.com/ortet/ortet/internal/elastic/recipe"
	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/internal/fleet"
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

// deepest gives the error that says most: the first of the details, if any.
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
	state    string // "Failed", "Canceled"
	made     bool   // some of its resources were made
	failures []Failure
}

func (e *deploymentError) Error() string {
	if strings.EqualFold(e.state, "Canceled") {
		return "deployment was canceled"
	}
	return fmt.Sprintf("deployment failed for %d resource(s)", len(e.failures))
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
	c.report(engine.StepStarted, "")
	return c
}

func (c *clock) report(s engine.State, message string) {
	now := c.m.Now()
	c.ended = s == engine.StepDone || s == engine.StepFailed
	c.m.Reporter.Report(engine.Event{At: now, Step: c.step, Title: c.title, State: s, Message: message, Percent: -1, Elapsed: now.Sub(c.began)})
}

func (c *clock) end(err error) {
	if err != nil {
		c.report(engine.StepFailed, err.Error())
		return
	}
	c.report(engine.StepDone, "")
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
// already, it follows that one first.
func (m *Manager) deploy(ctx context.Context, role string, d recipe.Deployment, wait bool) (err error) {
	c := m.begin(role, "Deploy the "+role+" group")
	defer func() { c.end(err) }()
	for {
		var accepted resource
		err := m.settled(ctx, func() error {
			o, err := m.ARM.Send(ctx, "deploy", http.MethodPut, m.deploymentID(role), resourcesVersion, deploymentBody(d))
			if err != nil {
				return err
			}
			return json.Unmarshal(o.Answer(), &accepted)
		})
		switch {
		case err == nil && wait:
			return m.follow(ctx, role, accepted.Properties.CorrelationID, c)
		case codeOf(err) != "DeploymentActive":
			return err
		}
		c.report(engine.StepProgress, "another deployment is running; following it")
		var failed *deploymentError
		if err := m.follow(ctx, role, "", c); err != nil && !errors.As(err, &failed) {
			return err
		}
		if err := pause(ctx, m.Poll); err != nil {
			return err
		}
	}
}

// follow watches a deployment until it ends. correlation names the run; "" takes the
// one that ARM shows.
func (m *Manager) follow(ctx context.Context, role, correlation string, overall *clock) error {
	clocks := map[string]*clock{}
	var last string
	for stale := 0; ; {
		d, err := m.get(ctx, m.deploymentID(role), resourcesVersion)
		switch {
		case err != nil:
			return err
		case stale < 10 && (d == nil || correlation != "" && d.Properties.CorrelationID != correlation):
			stale++ // the run before, for some seconds
		case d == nil:
			return fmt.Errorf("cannot follow the deployment of group %s: deployment was deleted", m.group(role).Name())
		default:
			steps, err := m.list(ctx, m.group(role)+fleet.ResourceID("/deployments/"+recipe.DeploymentName+"/operations"), resourcesVersion)
			if err != nil {
				return err
			}
			// Without a target is the evaluation of outputs.
			steps = slices.DeleteFunc(steps, func(s resource) bool { return s.Properties.Target.Type == "" })
			done := m.showSteps(steps, clocks, m.group(role).Name())
			if now := fmt.Sprintf("%s, %d of %d resources done", strings.ToLower(d.Properties.ProvisioningState), done, len(clocks)); now != last {
				last = now
				overall.report(engine.StepProgress, now)
			}
			switch {
			case d.is("Succeeded"):
				return nil
			case d.is("Failed"), d.is("Canceled"):
				return m.deploymentFailed(role, d, steps)
			}
		}
		if err := pause(ctx, m.Poll); err != nil {
			return err
		}
	}
}

// showSteps reports what changed since the last poll.
func (m *Manager) showSteps(steps []resource, clocks map[string]*clock, group string) (done int) {
	for _, s := range steps {
		c := clocks[s.OperationID]
		if c == nil {
			c = m.begin(s.target(), s.Properties.Target.Type)
			clocks[s.OperationID] = c
		}
		switch {
		case c.ended:
		case s.is("Succeeded"):
			c.end(nil)
		case s.is("Failed"), s.is("Canceled"):
			f := s.failure(group)
			c.report(engine.StepFailed, f.Code+": "+f.Message)
		}
		if c.ended {
			done++
		}
	}
	return done
}

func (m *Manager) deploymentFailed(role string, d *resource, steps []resource) error {
	e := &deploymentError{state: d.Properties.ProvisioningState}
	for _, s := range steps {
		e.made = e.made || s.is("Succeeded")
		if s.is("Failed") {
			e.failures = append(e.failures, s.failure(m.group(role).Name()))
		}
	}
	if len(e.failures) == 0 && d.Properties.Error != nil {
		code, message := d.Properties.Error.deepest()
		e.failures = []Failure{{m.group(role).Name(), "deployment " + recipe.DeploymentName, code, message}}
	}
	slices.SortStableFunc(e.failures, func(a, b Failure) int { return strings.Compare(a.Resource, b.Resource) })
	return e
}
