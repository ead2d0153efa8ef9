package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/test/scenario"
)

// ErrDropped is what a request ends with whose connection broke. client-go does
// not take it for a reset connection, after which it would send a read again by
// itself and hide the fault.
var ErrDropped = errors.New("connection reset by peer")

// Faults carries out faults at requests to one API server. Its zero value is
// ready; it may be used by several goroutines.
type Faults struct {
	mu       sync.Mutex
	answered map[string]answered // by URL: what a GET was answered last
}

type answered struct {
	status int
	header http.Header
	body   []byte
}

// Serve has the request served with what it meets: nil is nothing. A fault that
// is none of Kubernetes' is an error. Whatever it meets, the request's body is
// closed.
func (f *Faults) Serve(e *scenario.Event, r *http.Request, serve func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	if e == nil {
		return f.served(r, serve)
	}
	switch e.What {
	case scenario.DropAfter, scenario.ReportFailure, scenario.ProxyAfter:
		response, err := f.served(r, serve)
		if err != nil {
			return nil, err
		}
		if err := response.Body.Close(); err != nil {
			return nil, err
		}
		if e.What == scenario.ProxyAfter {
			return Proxy(*e), nil
		}
		if e.What == scenario.ReportFailure {
			return Answer(http.StatusInternalServerError, metav1.StatusReasonInternalError, 0), nil
		}
		return nil, ErrDropped
	case scenario.Stale:
		if old := f.before(r); old != nil {
			return old, closed(r)
		}
		return f.served(r, serve)
	}
	if err := closed(r); err != nil {
		return nil, err
	}
	switch e.What {
	case scenario.Throttle:
		return Answer(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, max(1, number(*e))), nil
	case scenario.Error:
		status := number(*e)
		reason := usual(status)
		if len(e.Args) > 1 {
			reason = metav1.StatusReason(e.Args[1])
		}
		return Answer(status, reason, 0), nil
	case scenario.ProxyBefore:
		return Proxy(*e), nil
	case scenario.Conflict:
		return Answer(http.StatusConflict, metav1.StatusReasonConflict, 0), nil
	case scenario.ExpireToken:
		return Answer(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, 0), nil
	case scenario.Hang:
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	case scenario.DropBefore:
		return nil, ErrDropped
	}
	return nil, fmt.Errorf("%s is no fault of Kubernetes'", e.What)
}

// served is a request that meets nothing; what a GET is answered is kept.
func (f *Faults) served(r *http.Request, serve func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	response, err := serve(r)
	if err != nil || r.Method != http.MethodGet || response.StatusCode != http.StatusOK || r.URL.Query().Get("watch") != "" {
		return response, err
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if err := response.Body.Close(); err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answered == nil {
		f.answered = map[string]answered{}
	}
	f.answered[r.URL.RequestURI()] = answered{response.StatusCode, response.Header.Clone(), body}
	return response, nil
}

// before is what the same GET was answered last, or nil.
func (f *Faults) before(r *http.Request) *http.Response {
	f.mu.Lock()
	defer f.mu.Unlock()
	a, there := f.answered[r.URL.RequestURI()]
	if r.Method != http.MethodGet || !there {
		return nil
	}
	return response(a.status, a.header.Clone(), a.body)
}

func closed(r *http.Request) error {
	if r.Body == nil {
		return nil
	}
	return r.Body.Close()
}

// number is the first argument; the scenario was checked when it was read.
func number(e scenario.Event) int {
	if len(e.Args) == 0 {
		return 0
	}
	v, _ := strconv.Atoi(e.Args[0])
	return v
}

// usual is the reason that goes with a status.
func usual(status int) metav1.StatusReason {
	switch status {
	case http.StatusBadRequest:
		return metav1.StatusReasonBadRequest
	case http.StatusUnauthorized:
		return metav1.StatusReasonUnauthorized
	case http.StatusForbidden:
		return metav1.StatusReasonForbidden
	case http.StatusNotFound:
		return metav1.StatusReasonNotFound
	case http.StatusConflict:
		return metav1.StatusReasonConflict
	case http.StatusTooManyRequests:
		return metav1.StatusReasonTooManyRequests
	case http.StatusInternalServerError:
		return metav1.StatusReasonInternalError
	case http.StatusServiceUnavailable:
		return metav1.StatusReasonServiceUnavailable
	case http.StatusGatewayTimeout:
		return metav1.StatusReasonTimeout
	}
	return metav1.StatusReasonUnknown
}

// Answer is an API server's answer that something failed. retryAfter is in
// seconds; 0 leaves it out.
func Answer(status int, reason metav1.StatusReason, retryAfter int) *http.Response {
	s := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(status), Reason: reason, Message: "as the scenario has it",
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if retryAfter > 0 {
		s.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(retryAfter)}
		header.Set("Retry-After", strconv.Itoa(retryAfter))
	}
	body, _ := json.Marshal(s) // of strings and numbers
	return response(status, header, body)
}

// Proxy is what a proxy answers in the place of an API server or of Azure.
func Proxy(e scenario.Event) *http.Response {
	status, body := number(e), e.Args[1]
	header := http.Header{"Content-Type": {"text/html"}, "Via": {"1.1 proxy"}}
	switch body {
	case "html":
		return response(status, header, fmt.Appendf(nil, "<html>\n<head><title>%d %s</title></head>\n<body><center><h1>%[2]s</h1></center></body>\n</html>\n", status, http.StatusText(status)))
	case "cut":
		header.Set("Content-Type", "application/json; charset=utf-8")
		return response(status, header, []byte(`{"kind":"Status","id":"/subscriptions/5ca1ab1e-0000`))
	}
	return response(status, http.Header{"Via": header["Via"]}, nil)
}

func response(status int, header http.Header, body []byte) *http.Response {
	return &http.Response{
		Status: strconv.Itoa(status) + " " + http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}
