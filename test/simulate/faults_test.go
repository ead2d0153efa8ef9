package simulate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/azsim"
)

// A fault is what a request may meet: with azure set only one to Azure, with kube set
// only one to the API server.
type fault struct {
	name  string
	azure azsim.Fault
	kube  int  // status of the API server
	after bool // the request has its effect
	lasts bool // for 30 s
	fits  func(r request) bool
}

func anyRequest(request) bool { return true }

func isWrite(r request) bool { return r.write() }

// begins reports whether Azure answers the request with an operation.
func begins(r request) bool { return r.write() && r.side() == "azure" }

var faults = []fault{
	{name: "throttled", azure: azsim.Fault{Effect: azsim.EffectThrottle, RetryAfterSeconds: 20}, kube: http.StatusTooManyRequests, fits: anyRequest},
	{name: "conflict", azure: azsim.Fault{Effect: azsim.EffectError, Status: http.StatusConflict, Code: "Conflict"}, kube: http.StatusConflict,
		fits: func(r request) bool {
			return r.write() && (r.side() == "azure" || strings.Contains(r.name, " PATCH ") || strings.Contains(r.name, " PUT "))
		}},
	{name: "changed meanwhile", azure: azsim.Fault{Effect: azsim.EffectError, Status: http.StatusPreconditionFailed, Code: "PreconditionFailed"},
		fits: func(r request) bool { return r.ifMatch }},
	{name: "server error", azure: azsim.Fault{Effect: azsim.EffectError, Status: http.StatusInternalServerError}, kube: http.StatusInternalServerError, fits: anyRequest},
	{name: "server error after the effect", azure: azsim.Fault{Effect: azsim.EffectReportFailure}, kube: http.StatusInternalServerError, after: true, fits: isWrite},
	{name: "lost answer", azure: azsim.Fault{Effect: azsim.EffectDropAfter}, after: true, fits: anyRequest},
	{name: "proxy page", kube: http.StatusBadGateway, fits: anyRequest},
	{name: "away for 20 minutes", fits: anyRequest},
	{name: "operation fails", azure: azsim.Fault{Effect: azsim.EffectFailAtEnd}, fits: begins},
	{name: "operation preempted", azure: azsim.Fault{Effect: azsim.EffectNeverEnds}, fits: begins},
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

var errReset = errors.New("connection reset by peer")

// azureFault serves a request to Azure with what it meets.
func azureFault(e *Event, r *http.Request, serve func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	f := faultOf(e)
	if f.name == "proxy page" {
		return answer(r, http.StatusBadGateway, "text/html", []byte("<html><h1>502 Bad Gateway</h1></html>"), 0), closeBody(r)
	}
	if f.azure.Effect != "" {
		r = r.WithContext(azsim.WithFault(r.Context(), f.azure))
	}
	return serve(r)
}

// kubeFault serves a request to the API server with what it meets.
func kubeFault(e *Event, r *http.Request, serve func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	f := faultOf(e)
	if f.name == "" {
		return serve(r)
	}
	if f.after {
		got, err := serve(r)
		if err != nil {
			return nil, err
		}
		if err := got.Body.Close(); err != nil {
			return nil, err
		}
	} else if err := closeBody(r); err != nil {
		return nil, err
	}
	switch f.kube {
	case 0:
		return nil, errReset
	case http.StatusBadGateway:
		return answer(r, f.kube, "text/html", []byte("<html><h1>502 Bad Gateway</h1></html>"), 0), nil
	}
	status := metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(f.kube), Message: "simulated"}
	retryAfter := 0
	switch f.kube {
	case http.StatusTooManyRequests:
		status.Reason, retryAfter = metav1.StatusReasonTooManyRequests, 20
		status.Details = &metav1.StatusDetails{RetryAfterSeconds: 20}
	case http.StatusConflict:
		status.Reason = metav1.StatusReasonConflict
	default:
		status.Reason = metav1.StatusReasonInternalError
	}
	body, err := json.Marshal(status)
	return answer(r, f.kube, "application/json", body, retryAfter), err
}

func closeBody(r *http.Request) error {
	if r.Body == nil {
		return nil
	}
	return r.Body.Close()
}

func answer(r *http.Request, status int, contentType string, body []byte, retryAfter int) *http.Response {
	h := http.Header{"Content-Type": {contentType}}
	if retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(retryAfter))
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}
}

// goesAway makes a side refuse connections for 20 minutes.
func (w *world) goesAway(side string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down[side] = time.Now().Add(20 * time.Minute)
	w.lastEvent = w.down[side]
}
