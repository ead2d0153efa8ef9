// Package deployments runs ARM deployments at resource group scope: it validates
// a template against ARM, compares it with what exists (what-if), and puts its
// resources in the order of their dependencies.
//
// It reaches ARM through a Caller alone, in the name of who deploys, so a resource
// of a template meets the checks of any other request. Time passes only in waits
// for resources.
package deployments

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/ortet/ortet/azsim/template"
)

// A Check says how far a PUT goes.
type Check int

// How far a PUT goes.
const (
	Perform     Check = iota
	CheckAccess       // up to type, API version, permission and registration
	CheckBody         // up to the store, the body's checks too
)

// A Request is a request to ARM.
type Request struct {
	Method string
	Path   string // with its query, or a whole URL
	Body   []byte // nil: none
	Check  Check
}

// A Response is an answer of ARM.
type Response struct {
	Status int
	Header http.Header
	Body   any           // decoded JSON; nil: none
	Pause  time.Duration // advised before the next request
}

// A Caller sends requests to ARM in the name of who deploys.
type Caller interface {
	Do(ctx context.Context, r Request) (*Response, error)
}

// An Error is ARM's error.
type Error struct {
	Status  int      `json:"-"` // of HTTP
	Code    string   `json:"code"`
	Message string   `json:"message"`
	Target  string   `json:"target,omitempty"`
	Details []*Error `json:"details,omitempty"`
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// asError makes an ARM error of any error.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	var t *template.Error
	if errors.As(err, &t) {
		return &Error{Status: http.StatusBadRequest, Code: t.Code, Message: t.Message}
	}
	return &Error{Status: http.StatusInternalServerError, Code: "DeploymentFailed", Message: err.Error()}
}

// refusal is the error that a response carries, nil if it carries none.
func (r *Response) refusal() *Error {
	if r.Status < http.StatusBadRequest {
		return nil
	}
	return errorIn(r.Body, r.Status)
}

// errorIn reads {"error": …} of a body.
func errorIn(body any, status int) *Error {
	var in struct{ Error *Error }
	if data, err := json.Marshal(body); err != nil || json.Unmarshal(data, &in) != nil || in.Error == nil {
		in.Error = &Error{Code: strings.ReplaceAll(http.StatusText(status), " ", ""), Message: "The request failed without an error in its answer."}
	}
	in.Error.Status = status
	return in.Error
}

// member walks a decoded JSON value; nil where the path ends early.
func member(v any, path ...string) any {
	for _, name := range path {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

func text(v any, path ...string) string {
	s, _ := member(v, path...).(string)
	return s
}

// A world answers reference() and the list functions through ARM.
type world struct {
	ctx    context.Context
	caller Caller
	plan   *Plan
}

// do sends a request; as ARM does, it waits and asks again where a provider
// throttles it.
func (w world) do(r Request) (*Response, error) {
	out, err := w.caller.Do(w.ctx, r)
	for tries := 0; err == nil && out.Status == http.StatusTooManyRequests && tries < 5; tries++ {
		if err = wait(w.ctx, out.Pause); err == nil {
			out, err = w.caller.Do(w.ctx, r)
		}
	}
	return out, err
}

func (w world) Reference(id, version string, full bool) (any, error) {
	if version == "" {
		r := w.plan.find(id)
		if r == nil {
			return nil, &template.Error{Code: "InvalidTemplate", Message: "The resource '" + id + "' is not defined in the template, so reference() needs an API version."}
		}
		version = r.APIVersion
	}
	body, err := w.ask(Request{Method: http.MethodGet, Path: id + "?api-version=" + version})
	if full || err != nil {
		return body, err
	}
	return member(body, "properties"), nil
}

// ask returns the body of an answer without an error.
func (w world) ask(r Request) (any, error) {
	out, err := w.do(r)
	if err != nil {
		return nil, err
	}
	if e := out.refusal(); e != nil {
		return nil, e
	}
	return out.Body, nil
}

func (w world) List(function, id, version string, body any) (any, error) {
	r := Request{Method: http.MethodPost, Path: id + "/" + function + "?api-version=" + version}
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		r.Body = data
	}
	return w.ask(r)
}
