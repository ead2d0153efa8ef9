package azsim

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ortet/ortet/azsim/deployments"
	"github.com/ortet/ortet/azsim/template"
)

const (
	deploymentName     = "Microsoft.Resources/deployments"
	deploymentStatuses = "operationStatuses"
)

// deploymentTypes lists deployments of resource groups with their operations.
// Source: the REST reference of Deployments and Deployment Operations.
func deploymentTypes() []*resourceType {
	versions := []string{"2019-05-01", "2019-08-01", "2019-10-01", "2020-06-01", "2020-08-01", "2020-10-01", "2021-01-01", "2021-04-01",
		"2022-09-01", "2023-07-01", "2024-03-01", "2024-07-01", "2024-11-01", "2025-03-01", "2025-04-01"}
	return []*resourceType{
		{
			name: deploymentName, versions: versions, operations: deploymentStatuses,
			get: getDeployment, put: putDeployment, list: listDeployments, remove: removeDeployment,
			render: func(_ *call, e *entry) any { return deploymentOf(e).Body() },
			drop:   func(s *Server, e *entry) { s.cancelDeployment(e) },
			actions: map[string]handler{
				"validate": validateDeployment, "whatif": whatIf, "cancel": cancelDeployment, "exporttemplate": exportTemplate,
			},
		},
		{name: deploymentName + "/operations", versions: versions, list: listDeploymentOperations, get: getDeploymentOperation},
		{name: deploymentName + "/" + deploymentStatuses, versions: versions, get: deploymentStatus},
	}
}

// ownKey marks, in a context, requests that the server sends to itself.
type ownKey struct{}

type own struct {
	principal *principal
	check     deployments.Check
}

// A deployer is how a deployment reaches the server: as the one who deploys.
type deployer struct {
	s         *Server
	principal *principal
}

func (d deployer) Do(ctx context.Context, r deployments.Request) (*deployments.Response, error) {
	ctx = context.WithValue(ctx, faultKey{}, (*Fault)(nil)) // that of the request that deploys
	ctx = context.WithValue(ctx, ownKey{}, own{d.principal, r.Check})
	u, err := url.Parse(r.Path)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, cmp.Or(d.s.Base, InProcess)+u.RequestURI(), bytes.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	resp, err := d.s.Transport().Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	out := &deployments.Response{Status: resp.StatusCode, Header: resp.Header, Pause: d.pause(resp.Header)}
	if len(data) > 0 {
		if out.Body, err = decodeJSON(data); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// pause is what Retry-After advises, next to nothing where operations take no time.
func (d deployer) pause(h http.Header) time.Duration {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if d.s.instant {
		return time.Millisecond
	}
	if ms, err := strconv.Atoi(h.Get("Retry-After-Ms")); err == nil {
		return time.Duration(ms) * time.Millisecond
	}
	if n, err := strconv.Atoi(h.Get("Retry-After")); err == nil {
		return time.Duration(n) * time.Second
	}
	return d.s.scaled(10 * time.Second)
}

func (c *call) deployer() deployer { return deployer{c.s, c.principal} }

// deploymentRefusal puts an error of a deployment on the wire.
func deploymentRefusal(err error) error {
	var e *deployments.Error
	if !errors.As(err, &e) {
		return err
	}
	out := &armError{status: cmp.Or(e.Status, http.StatusBadRequest), code: e.Code, message: e.Message, target: e.Target}
	for _, d := range e.Details {
		out.details = append(out.details, asARM(deploymentRefusal(d)))
	}
	return out
}

// deploymentError is the reverse.
func deploymentError(e *armError) *deployments.Error {
	if e == nil {
		return nil
	}
	out := &deployments.Error{Status: e.status, Code: e.code, Message: e.message, Target: e.target}
	for _, d := range e.details {
		out.Details = append(out.Details, deploymentError(d))
	}
	return out
}

// plan reads the deployment in the request's body.
func (c *call) plan() (*deployments.Plan, error) {
	if c.id.group == "" {
		return nil, badRequest("NotSimulated", "azsim has deployments of resource groups only; deploy to a resource group.")
	}
	_, g, err := c.group()
	if err != nil {
		return nil, err
	}
	p, err := deployments.NewPlan(c.body, c.id.String(), template.Scope{
		Subscription: c.s.Subscription, Tenant: c.s.Tenant, Group: g.Name, Location: g.Location, Tags: g.Tags,
		Deployment: c.id.name(), Environment: c.cloud(), Now: c.now, Provider: c.s.providerTypes,
	})
	if err != nil {
		return nil, deploymentRefusal(err)
	}
	return p, nil
}

func validateDeployment(c *call) (*reply, error) {
	p, err := c.plan()
	if err != nil {
		return nil, err
	}
	correlation := c.s.newUUID("validation", c.id.key())
	return &reply{later: func(ctx context.Context) (*reply, error) {
		if err := p.Validate(ctx, c.deployer()); err != nil {
			return nil, deploymentRefusal(err)
		}
		return ok(p.Validated(correlation)), nil
	}}, nil
}

func whatIf(c *call) (*reply, error) {
	p, err := c.plan()
	if err != nil {
		return nil, err
	}
	var result map[string]any
	op := c.begin(nil, work{span: c.duration("deployment.whatif"),
		run: func(ctx context.Context) error {
			var err error
			result, err = p.WhatIf(ctx, c.deployer())
			return deploymentRefusal(err)
		},
		output: func() any { return result }})
	op.segment = "operations"
	r := &reply{status: http.StatusAccepted}
	r.header().Set("Location", op.url(c.base(), true))
	setRetryAfter(r.header(), c.s.pause(op, false))
	return r, nil
}

func putDeployment(c *call) (*reply, error) {
	p, err := c.plan()
	if err != nil {
		return nil, err
	}
	if err := c.inactive(); err != nil {
		return nil, err
	}
	return &reply{later: func(ctx context.Context) (*reply, error) {
		if err := p.Validate(ctx, c.deployer()); err != nil {
			return nil, deploymentRefusal(err)
		}
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		return c.deploy(p)
	}}, nil
}

// inactive refuses a deployment while the one of that name runs.
func (c *call) inactive() error {
	e := c.s.find(c.id)
	if e == nil || !e.underWay() {
		return nil
	}
	return refuse(http.StatusConflict, "DeploymentActive",
		"Unable to edit or replace deployment '%s': previous deployment from '%s' is still active. Wait for its end or cancel it. Please see https://aka.ms/arm-deploy for usage details.",
		e.id.name(), deploymentOf(e).Started().UTC().Format("1/2/2006 3:04:05 PM"))
}

// deploy begins a deployment. The caller holds the lock.
func (c *call) deploy(p *deployments.Plan) (*reply, error) {
	s := c.s
	if s.entries[groupKey(c.id)] == nil {
		return nil, groupNotFound(c.id.group)
	}
	if err := c.inactive(); err != nil {
		return nil, err
	}
	d := deployments.New(p, s.newUUID("deployment", c.id.key()), time.Now)
	e, status := s.find(c.id), http.StatusOK
	if e == nil {
		e, status = s.insert(c.id, c.rt, d, c.now), http.StatusCreated
	}
	e.body = d
	body := d.Body()
	op := c.begin(e, work{
		yields: true,
		run:    func(ctx context.Context) error { return deploymentRefusal(d.Run(ctx, c.deployer())) },
		done:   func(failure *armError) { d.Finish(deploymentError(failure)) },
	})
	return &reply{status: status, body: body, op: op}, nil
}

func deploymentOf(e *entry) *deployments.Deployment {
	d, _ := e.body.(*deployments.Deployment)
	return d
}

// needDeployment finds the deployment that the path names.
func (c *call) needDeployment() (*entry, *deployments.Deployment, error) {
	id := c.id
	if len(id.names) > 1 {
		id = id.parent()
	}
	e := c.s.find(id)
	if e == nil {
		return nil, nil, refuse(http.StatusNotFound, "DeploymentNotFound", "Deployment '%s' could not be found.", id.name())
	}
	return e, deploymentOf(e), nil
}

func getDeployment(c *call) (*reply, error) {
	e, d, err := c.needDeployment()
	if c.r.Method == http.MethodHead {
		return existence(e), nil
	}
	if err != nil {
		return nil, err
	}
	return ok(d.Body()), nil
}

func listDeployments(c *call) (*reply, error) {
	want := filterValue(c.query("$filter"), "provisioningState")
	list := slices.DeleteFunc(c.s.ofType(deploymentName, c.id.subscription, c.id.group), func(e *entry) bool {
		return c.id.group == "" || want != "" && !strings.EqualFold(want, deploymentOf(e).State())
	})
	return c.page(list), nil
}

func removeDeployment(c *call) (*reply, error) {
	if err := c.inactive(); err != nil {
		return nil, err
	}
	e := c.s.find(c.id)
	if e == nil {
		return &reply{status: http.StatusNoContent}, nil
	}
	op := c.begin(e, work{span: c.duration("deployment.delete"), done: func(failure *armError) {
		if failure == nil {
			c.s.delete(e)
		}
	}})
	op.segment = groupResults
	return accepted(op), nil
}

func cancelDeployment(c *call) (*reply, error) {
	e, d, err := c.needDeployment()
	if err != nil {
		return nil, err
	}
	if !c.s.cancelDeployment(e) {
		return nil, refuse(http.StatusConflict, "DeploymentCannotBeCancelled", "The deployment '%s' cannot be cancelled because its provisioning state is '%s'.", d.Name, d.State())
	}
	return &reply{status: http.StatusNoContent}, nil
}

// cancelDeployment lets a deployment begin nothing more, and says whether it ran.
// The caller holds the lock.
func (s *Server) cancelDeployment(e *entry) bool {
	d := deploymentOf(e)
	if !d.Cancel() {
		return false
	}
	s.preempt(e.op, refuse(http.StatusConflict, "DeploymentCanceled", "The deployment '%s' was canceled.", d.Name))
	return true
}

func exportTemplate(c *call) (*reply, error) {
	_, d, err := c.needDeployment()
	if err != nil {
		return nil, err
	}
	return ok(map[string]any{"template": d.Template()}), nil
}

func listDeploymentOperations(c *call) (*reply, error) {
	_, d, err := c.needDeployment()
	if err != nil {
		return nil, err
	}
	return c.pageOf(d.Operations()), nil
}

func getDeploymentOperation(c *call) (*reply, error) {
	_, d, err := c.needDeployment()
	if err != nil {
		return nil, err
	}
	for _, op := range d.Operations() {
		if m, isMap := op.(map[string]any); isMap && m["operationId"] == strings.ToUpper(c.id.name()) {
			return ok(m), nil
		}
	}
	return nil, refuse(http.StatusNotFound, "DeploymentOperationNotFound", "Deployment operation '%s' could not be found.", c.id.name())
}

func deploymentStatus(c *call) (*reply, error) {
	op := c.s.operations[strings.ToLower(c.id.name())]
	if op == nil || op.target.key() != c.id.parent().key() {
		return nil, refuse(http.StatusNotFound, "DeploymentOperationStatusNotFound", "The status of operation '%s' could not be found.", c.id.name())
	}
	if err := c.verbatim(op); err != nil {
		return nil, err
	}
	body := map[string]any{"status": op.status}
	r := ok(body)
	switch {
	case op.running():
		body["status"] = "Running"
		setRetryAfter(r.header(), c.s.pause(op, true))
	case op.failure != nil:
		body["error"] = op.failure
	}
	return r, nil
}
