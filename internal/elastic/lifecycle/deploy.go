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

// A deploymentState is a deployment as ARM shows it.
type deploymentState struct {
	Properties struct {
		ProvisioningState string    `json:"provisioningState"`
		CorrelationID     string    `json:"correlationId"`
		Timestamp         time.Time `json:"timestamp"`
		Error             *armError `json:"error"`
	} `json:"properties"`
}

type armError struct {
	Code    string     `json:"code"`
	Message string     `json:"message"`
	Details []armError `json:"details"`
}

// deepest gives the error that says most: the first of the details, where there are any.
func (e *armError) deepest() (code, message string) {
	for len(e.Details) > 0 {
		e = &e.Details[0]
	}
	return e.Code, e.Message
}

// A step of a deployment is the work on one resource.
type deploymentStep struct {
	ID         string `json:"operationId"`
	Properties struct {
		ProvisioningOperation string          `json:"provisioningOperation"`
		ProvisioningState     string          `json:"provisioningState"`
		StatusMessage         json.RawMessage `json:"statusMessage"` // an object, or a text
		TargetResource        struct {
			Type string `json:"resourceType"`
			Name string `json:"resourceName"`
		} `json:"targetResource"`
	} `json:"properties"`
}

func (s deploymentStep) resource() string {
	return kindName(s.Properties.TargetResource.Type) + " " + shownName(s.Properties.TargetResource.Name)
}

func (s deploymentStep) failure(group string) Failure {
	f := Failure{Group: group, Resource: s.resource(), Code: s.Properties.ProvisioningState}
	var body struct {
		Error *armError `json:"error"`
	}
	var plain string
	switch {
	case json.Unmarshal(s.Properties.StatusMessage, &body) == nil && body.Error != nil:
		f.Code, f.Message = body.Error.deepest()
	case json.Unmarshal(s.Properties.StatusMessage, &plain) == nil:
		f.Message = plain
	}
	return f
}

// errDeployment is a deployment that ended, but not with success.
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

// clock is the time that a step of the display has taken.
type clock struct {
	m     *Manager
	step  string
	title string
	begin time.Time
}

func (m *Manager) begin(step, title string) *clock {
	c := &clock{m, step, title, m.Now()}
	c.report(engine.StepStarted, "")
	return c
}

func (c *clock) report(s engine.State, message string) {
	now := c.m.Now()
	c.m.Reporter.Report(engine.Event{At: now, Step: c.step, Title: c.title, State: s, Message: message, Percent: -1, Elapsed: now.Sub(c.begin)})
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

// deploy has Azure make what the template says, and follows. Where another deployment
// runs already, it follows that one first.
func (m *Manager) deploy(ctx context.Context, role string, d recipe.Deployment, wait bool) (err error) {
	c := m.begin(role, "Deploy the "+role+" group")
	defer func() { c.end(err) }()
	for {
		var accepted deploymentState
		err := m.settled(ctx, func() error {
			o, err := m.ARM.Send(ctx, "deploy", http.MethodPut, m.deploymentID(role), resourcesVersion, deploymentBody(d))
			if err != nil {
				return err
			}
			return json.Unmarshal(o.Answer(), &accepted)
		})
		if err == nil && !wait {
			return nil
		}
		if err == nil {
			return m.follow(ctx, role, accepted.Properties.CorrelationID, c)
		}
		if codeOf(err) != "DeploymentActive" {
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
	clocks, ended := map[string]*clock{}, map[string]bool{}
	var last string
	for stale := 0; ; {
		var d deploymentState
		err := m.ARM.Get(ctx, m.deploymentID(role), resourcesVersion, &d)
		if err == nil && correlation != "" && d.Properties.CorrelationID != correlation && stale < 10 {
			err = &fleet.Error{Kind: fleet.KindNotFound} // the run before, for some seconds
		}
		if fleet.Is(err, fleet.KindNotFound) && stale < 10 {
			stale++
			if err := pause(ctx, m.Poll); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		steps, err := list[deploymentStep](ctx, m, m.group(role)+fleet.ResourceID("/deployments/"+recipe.DeploymentName+"/operations"), resourcesVersion)
		if err != nil {
			return err
		}
		done := m.showSteps(steps, clocks, ended, m.group(role).Name())
		if now := fmt.Sprintf("%s, %d of %d resources done", strings.ToLower(d.Properties.ProvisioningState), done, len(clocks)); now != last {
			last = now
			overall.report(engine.StepProgress, now)
		}
		switch state := d.Properties.ProvisioningState; {
		case strings.EqualFold(state, "Succeeded"):
			return nil
		case strings.EqualFold(state, "Failed"), strings.EqualFold(state, "Canceled"):
			return m.deploymentFailed(role, d, steps)
		}
		if err := pause(ctx, m.Poll); err != nil {
			return err
		}
	}
}

// showSteps reports what changed since the last poll.
func (m *Manager) showSteps(steps []deploymentStep, clocks map[string]*clock, ended map[string]bool, group string) (done int) {
	for _, s := range steps {
		if s.Properties.TargetResource.Type == "" {
			continue // evaluation of outputs
		}
		name := s.resource()
		c := clocks[s.ID]
		if c == nil {
			c = &clock{m, name, s.Properties.TargetResource.Type, m.Now()}
			clocks[s.ID] = c
			c.report(engine.StepStarted, "")
		}
		state := s.Properties.ProvisioningState
		switch {
		case ended[s.ID]:
		case strings.EqualFold(state, "Succeeded"):
			ended[s.ID] = true
			c.report(engine.StepDone, "")
		case strings.EqualFold(state, "Failed"), strings.EqualFold(state, "Canceled"):
			ended[s.ID] = true
			f := s.failure(group)
			c.report(engine.StepFailed, f.Code+": "+f.Message)
		}
		if ended[s.ID] {
			done++
		}
	}
	return done
}

func (m *Manager) deploymentFailed(role string, d deploymentState, steps []deploymentStep) error {
	e := &deploymentError{state: d.Properties.ProvisioningState}
	for _, s := range steps {
		switch {
		case s.Properties.TargetResource.Type == "":
		case strings.EqualFold(s.Properties.ProvisioningState, "Failed"):
			e.failures = append(e.failures, s.failure(m.group(role).Name()))
		case strings.EqualFold(s.Properties.ProvisioningState, "Succeeded"):
			e.made = true
		}
	}
	if len(e.failures) == 0 && d.Properties.Error != nil {
		code, message := d.Properties.Error.deepest()
		e.failures = []Failure{{m.group(role).Name(), "deployment " + recipe.DeploymentName, code, message}}
	}
	slices.SortStableFunc(e.failures, func(a, b Failure) int { return strings.Compare(a.Resource, b.Resource) })
	return e
}
