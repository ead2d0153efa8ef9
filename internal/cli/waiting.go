package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// defaultPatience is how long a service may be silent until a line names it.
const defaultPatience = 3 * time.Second

// A waitLog names, once for each service, what a command has waited for without an answer.
// It watches the requests of HTTP clients; its methods are safe for concurrent use.
type waitLog struct {
	patience time.Duration
	say      func(text string)

	mu       sync.Mutex
	services map[string]*silentService
	closed   bool
}

// A silentService has not answered since a request began while it has a timer.
type silentService struct {
	pending int
	timer   *time.Timer
	why     string // the last try failed
	said    bool
}

func newWaitLog(patience time.Duration, say func(string)) *waitLog {
	if patience <= 0 {
		patience = defaultPatience
	}
	return &waitLog{patience: patience, say: say, services: map[string]*silentService{}}
}

// through shows later lines by say, such as that of a progress display.
func (w *waitLog) through(say func(string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.say = say
}

// Close ends it: nothing is said any more.
func (w *waitLog) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, s := range w.services {
		s.answered()
	}
}

// silent returns the services that are waited for, each with why if known.
func (w *waitLog) silent() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(w.services)) {
		if s := w.services[name]; s.timer != nil {
			if s.why != "" {
				name += " (" + s.why + ")"
			}
			names = append(names, name)
		}
	}
	return strings.Join(names, " and ")
}

// tell says that a service is waited for, unless that was said.
func (w *waitLog) tell(name, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sayOnce(name, w.service(name), why)
}

func (w *waitLog) service(name string) *silentService {
	s := w.services[name]
	if s == nil {
		s = &silentService{}
		w.services[name] = s
	}
	return s
}

func (w *waitLog) sayOnce(name string, s *silentService, why string) {
	if s.said || w.closed {
		return
	}
	s.said = true
	text := "Waiting for " + name + ": no answer yet"
	if why != "" {
		text += " (" + why + ")"
	}
	w.say(plain(text))
}

func (s *silentService) answered() {
	if s.timer != nil {
		s.timer.Stop()
	}
	s.timer, s.why = nil, ""
}

func (w *waitLog) watch(name string, s *silentService) {
	var timer *time.Timer
	timer = time.AfterFunc(w.patience, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if s.timer == timer { // else it has answered meanwhile
			w.sayOnce(name, s, s.why)
		}
	})
	s.timer = timer
}

func (w *waitLog) begin(name string) *silentService {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.service(name)
	s.pending++
	if s.timer == nil && !w.closed {
		w.watch(name, s)
	}
	return s
}

// end notes how a request ended: why there was no answer, "" for an answer. One that the
// command itself gave up says nothing of the service.
func (w *waitLog) end(name string, s *silentService, why string, gaveUp bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.pending--
	switch {
	case !gaveUp && why != "":
		s.why = why
	case !gaveUp || s.pending == 0:
		s.answered()
		if s.pending > 0 && !w.closed {
			w.watch(name, s)
		}
	}
}

// roundTripper watches the requests that go through next, each for the service that
// nameOf gives; "" is not watched.
func (w *waitLog) roundTripper(next http.RoundTripper, nameOf func(*http.Request) string) http.RoundTripper {
	return roundTripperFunc(func(r *http.Request) (*http.Response, error) {
		name := nameOf(r)
		if name == "" {
			return next.RoundTrip(r)
		}
		s := w.begin(name)
		resp, err := next.RoundTrip(r)
		w.end(name, s, noAnswer(resp, err), err != nil && errors.Is(r.Context().Err(), context.Canceled))
		return resp, err
	})
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// noAnswer is why a request has to be repeated to get an answer; "" if it need not.
func noAnswer(resp *http.Response, err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case err != nil:
		return err.Error()
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
	default:
		return ""
	}
	why := fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	if after := resp.Header.Get("Retry-After"); after != "" {
		why += ", Retry-After " + after
	}
	return why
}

// azureService names what of Azure a request goes to, by its path: Azure Stack Hub may have
// all on one host.
func azureService(r *http.Request) string {
	base, path := r.URL.Scheme+"://"+r.URL.Host, strings.ToLower(r.URL.Path)
	switch {
	case r.URL.Hostname() == "169.254.169.254":
		return "Azure's instance metadata service " + base
	case strings.HasPrefix(path, "/subscriptions/"), strings.HasPrefix(path, "/providers/"), path == "/metadata/endpoints":
		return "Azure Resource Manager " + base
	case strings.HasSuffix(path, "/token"), strings.HasSuffix(path, "/openid-configuration"), strings.HasPrefix(path, "/common/discovery/"):
		return "Azure's log-in service " + base
	}
	return "Azure " + base
}

// apiServer names the API server at host for requests that it answers at once: not for
// watches and logs that are followed.
func apiServer(host string) func(*http.Request) string {
	name := apiServerName(host)
	return func(r *http.Request) string {
		if q := r.URL.Query(); isTrue(q, "watch") || isTrue(q, "follow") {
			return ""
		}
		return name
	}
}

func apiServerName(host string) string { return "the Kubernetes API server " + host }

func isTrue(q url.Values, key string) bool {
	v := q.Get(key)
	return v == "true" || v == "1"
}

func newOptions(process Process) *options {
	o := &options{process: process}
	o.waits = newWaitLog(process.patience, func(text string) {
		paragraph(process.Err, columnsOf(process.Err), "", "  ", text)
	})
	return o
}
