package simulate

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ortet/ortet/azsim"
)

// A fault is what a request may meet: with azure set only one to Azure, with kube set
// only one to the API server.
type fault struct {
	name  string
	azure azsim.Fault
	kube  *apierrors.StatusError
	after bool // the request has its effect
	lasts bool // for 30 s
	fatal bool // a capture may end with exit 1 because of it
	fits  func(r request) bool
}

func anyRequest(request) bool { return true }

// begins reports whether Azure answers the request with an operation.
func begins(r request) bool { return r.write() && r.side() == "azure" }

var faults = []fault{
	{name: "throttled", azure: azsim.Fault{Effect: azsim.EffectThrottle, RetryAfterSeconds: 20}, kube: apierrors.NewTooManyRequests("simulated", 20), fits: anyRequest},
	{name: "conflict", azure: azsim.Fault{Effect: azsim.EffectError, Status: http.StatusConflict, Code: "Conflict"}, kube: apierrors.NewConflict(schema.GroupResource{}, "simulated", errReset),
		fits: func(r request) bool {
			return r.write() && (r.side() == "azure" || strings.Contains(r.name, " PATCH ") || strings.Contains(r.name, " PUT "))
		}},
	{name: "precondition failed", azure: azsim.Fault{Effect: azsim.EffectError, Status: http.StatusPreconditionFailed, Code: "PreconditionFailed"},
		fits: func(r request) bool { return r.ifMatch }},
	{name: "server error", azure: azsim.Fault{Effect: azsim.EffectError, Status: http.StatusInternalServerError}, kube: apierrors.NewInternalError(errReset), fits: anyRequest},
	{name: "server error after the effect", azure: azsim.Fault{Effect: azsim.EffectReportFailure}, kube: apierrors.NewInternalError(errReset), after: true, fits: request.write},
	{name: "lost answer", azure: azsim.Fault{Effect: azsim.EffectDropAfter}, after: true, fits: anyRequest},
	{name: proxyPage, fits: anyRequest},
	{name: "away for 20 minutes", fatal: true, fits: anyRequest},
	{name: "refused", fatal: true, azure: azsim.Fault{Effect: azsim.EffectError, Status: http.StatusForbidden, Code: "AuthorizationFailed"}, fits: begins},
	{name: "forbidden", fatal: true, kube: apierrors.NewForbidden(schema.GroupResource{}, "simulated", errReset), fits: func(request) bool { return false }}, // of tests that name it
	{name: "operation fails", fatal: true, azure: azsim.Fault{Effect: azsim.EffectFailAtEnd}, fits: begins},
	{name: "operation preempted", fatal: true, azure: azsim.Fault{Effect: azsim.EffectNeverEnds}, fits: begins},
	{name: "slow", azure: azsim.Fault{Effect: azsim.EffectSlow}, fits: begins},
	{name: "not found yet", lasts: true, azure: azsim.Fault{Effect: azsim.EffectError, Status: http.StatusNotFound, Code: "ResourceNotFound"},
		fits: func(r request) bool { return r.fresh }},
	{name: "deletion without effect", azure: azsim.Fault{Effect: azsim.EffectReportSuccess},
		fits: func(r request) bool {
			return strings.Contains(r.name, "azure DELETE ") && strings.Contains(r.name, "/extensions/")
		}},
	{name: "list still has it", lasts: true, azure: azsim.Fault{Effect: azsim.EffectStale},
		fits: func(r request) bool { return r.unlisted }},
}

func faultOf(e *Event) fault {
	for _, f := range faults {
		if e != nil && f.name == e.What {
			return f
		}
	}
	return fault{}
}

const proxyPage = "proxy page"

var errReset = errors.New("connection reset by peer")

// azureFault serves a request to Azure with what it meets.
func azureFault(e *Event, r *http.Request, serve func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	f := faultOf(e)
	if f.name == proxyPage {
		return answer(r, http.StatusBadGateway, "text/html", []byte("<html><h1>502 Bad Gateway</h1></html>"))
	}
	if f.azure.Effect != "" {
		r = r.WithContext(azsim.WithFault(r.Context(), f.azure))
	}
	return serve(r)
}

// kubeFault serves a request to the API server with what it meets.
func kubeFault(e *Event, r *http.Request, serve func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	f := faultOf(e)
	if f.after {
		got, err := serve(r)
		if err != nil {
			return nil, err
		}
		if err := got.Body.Close(); err != nil {
			return nil, err
		}
	}
	switch {
	case f.name == "":
		return serve(r)
	case f.name == proxyPage:
		return azureFault(e, r, serve)
	case f.kube == nil:
		return nil, errReset
	}
	status := f.kube.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	body, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	return answer(r, int(status.Code), "application/json", body)
}

// answer is what a server answers, and closes the request's body.
func answer(r *http.Request, status int, contentType string, body []byte) (*http.Response, error) {
	recorded := httptest.NewRecorder()
	recorded.Header().Set("Content-Type", contentType)
	if status == http.StatusTooManyRequests {
		recorded.Header().Set("Retry-After", "20")
	}
	recorded.WriteHeader(status)
	_, _ = recorded.Write(body) // never fails
	got := recorded.Result()
	got.Request = r
	if r.Body == nil {
		return got, nil
	}
	return got, r.Body.Close()
}
