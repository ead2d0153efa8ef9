package play

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/test/scenario"
	"github.com/ortet/ortet/test/scenario/fault"
)

// latencies of a request. They are short beside all else that takes time, and
// apart from each other by far more than a nanosecond.
const (
	leastLatency = time.Millisecond
	mostLatency  = 40 * time.Millisecond
)

// underWay marks a request that was about to be sent when its process was suspended: no
// fence can call it back.
type underWay struct{}

// send takes one request of a process over the wire.
func (p *process) send(side, name string, r *http.Request, serve func(r *http.Request, fault *scenario.Event) (*http.Response, error)) (*http.Response, error) {
	w, ctx := p.w, r.Context()
	p.mu.Lock()
	woke := p.wokeAt
	p.wokeAt = ""
	p.mu.Unlock()
	_, read, _ := strings.Cut(woke, " ")
	if _, path, _ := strings.Cut(name, " "); woke != "" && path == read { // one call of the client reads, and writes
		r = r.WithContext(context.WithValue(ctx, underWay{}, true))
	}
	if p.wakes() {
		r = r.WithContext(context.WithValue(ctx, underWay{}, true))
		// Its deadline would have begun when the process went on, as its sending does.
		if err := nap(w.over, w.between(leastLatency, mostLatency, p.name, side, name, "wakes")); err != nil {
			return nil, err
		}
	}
	w.judgeWaits(p, side, r) // before it is on its way: an answer may come meanwhile
	// By the time at which it is sent: a count would be changed by requests that
	// are given up in the instant in which a process dies.
	if err := nap(ctx, w.between(leastLatency, mostLatency, p.name, side, name, time.Since(w.begin))); err != nil {
		return nil, err
	}
	if p.isCut() {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	n := w.number(side, name)
	w.watchLimits(side, r)
	var fault *scenario.Event
	killed := false
	for _, e := range w.happens(p, side, name, n, r.Method == http.MethodGet) {
		switch e.What {
		case scenario.KillBefore:
			w.write("%s %q %d: %s dies", side, name, n, p.name)
			p.die()
			<-ctx.Done()
			return nil, context.Cause(ctx)
		case scenario.KillAfter:
			killed = true
		case scenario.Interrupt:
			// A moment after the request arrives: in its instant the answer would
			// race with what the interruption cancels.
			w.after(w.between(time.Microsecond, time.Millisecond, "interrupt", side, name, n), p.interrupt)
		default:
			if !w.others(e, p) {
				fault = &e
				continue
			}
			// What they began gets under way before the request does, at every run.
			if err := nap(ctx, w.between(time.Microsecond, time.Millisecond, "others", side, name, n)); err != nil {
				return nil, err
			}
		}
	}
	answer, err := w.refused(side, name)
	if answer == nil && err == nil && fault == nil {
		answer = w.forbidden(p, side, name)
	}
	if answer == nil && err == nil {
		answer, err = serve(r, fault)
	}
	if answer != nil {
		w.throttled(p, side, r, answer)
	}
	w.write("%s %s %q %d: %s%s", p.name, side, name, n, said(answer, err), met(fault))
	if side == scenario.Azure && r.Method != http.MethodGet {
		w.checkModel()
	}
	if killed {
		w.write("%s dies", p.name)
		p.die()
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if p.wakes() {
		p.mu.Lock()
		p.wokeAt = name
		p.mu.Unlock()
	}
	return answer, err
}

func met(e *scenario.Event) string {
	if e == nil {
		return ""
	}
	return " [" + strings.Join(append([]string{string(e.What)}, e.Args...), " ") + "]"
}

func said(answer *http.Response, err error) string {
	if err != nil {
		return "no answer"
	}
	return strconv.Itoa(answer.StatusCode)
}

// nap waits, or gives the context's cause.
func nap(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// number counts a request that arrives, from 1.
func (w *world) number(side, name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[side+" "+name]++
	if side == scenario.Azure {
		w.stats.Azure++
	} else {
		w.stats.Kube++
	}
	return w.counts[side+" "+name]
}

// happens asks the scenario.
func (w *world) happens(p *process, side, name string, n int, get bool) []scenario.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.calm:
		return nil
	case p.undoes() || w.recorded.Ended == nil && w.recorded.Facts.Undoing != "":
		return w.chooser.AtUndo(side, name, n, get)
	}
	return w.chooser.At(side, name, n, get)
}

// refused answers for a side that is down.
func (w *world) refused(side, name string) (*http.Response, error) {
	w.mu.Lock()
	o, down := w.down[side]
	if down && !time.Now().Before(o.until) {
		delete(w.down, side)
		down = false
	}
	w.mu.Unlock()
	switch {
	case !down:
		return nil, nil
	case o.status == 0:
		return nil, &url.Error{Op: "dial", URL: name, Err: errors.New("connection refused")}
	case o.status == http.StatusUnauthorized:
		return armAnswer(o.status, "ExpiredAuthenticationToken", 0), nil
	}
	return armAnswer(o.status, "ServiceUnavailable", 0), nil
}

// argument is the n-th of an event, as a number.
func argument(e scenario.Event, n int) int {
	if n >= len(e.Args) {
		return 0
	}
	v, _ := strconv.Atoi(e.Args[n]) // checked when the scenario was read
	return v
}

// azureWire is the way of a process to Azure: policy.Transporter.
type azureWire struct{ p *process }

// Do implements policy.Transporter.
func (a azureWire) Do(r *http.Request) (*http.Response, error) {
	w := a.p.w
	name := w.azureName(r)
	return a.p.send(scenario.Azure, name, r, func(r *http.Request, fault *scenario.Event) (*http.Response, error) {
		w.judgeRequest(a.p, r)
		if fault != nil && fault.What == scenario.ProxyBefore {
			return proxied(*fault, r)
		}
		ctx := r.Context()
		if fault != nil && fault.What != scenario.ProxyAfter {
			f := azsim.Fault{Name: string(fault.What), Effect: azsim.Effect(fault.What), Skip: 0}
			switch fault.What {
			case scenario.Throttle, scenario.ThrottleDate:
				f.Effect = azsim.EffectThrottle
				f.RetryAfterSeconds = max(1, argument(*fault, 0))
			case scenario.Error:
				f.Status = argument(*fault, 0)
				if len(fault.Args) > 1 {
					f.Code = fault.Args[1]
				}
			}
			ctx = azsim.WithFault(ctx, f)
		}
		answer, err := w.azure.Transport().Do(r.WithContext(ctx))
		w.looks(a.p, r, fault)
		if err != nil {
			return nil, err
		}
		w.remembers(name, answer)
		switch {
		case fault != nil && fault.What == scenario.ProxyAfter:
			_ = answer.Body.Close() // nobody reads it
			return proxied(*fault, r)
		case fault != nil && fault.What == scenario.ThrottleDate:
			now := time.Now().Truncate(time.Second)
			answer.Header.Set("Date", now.UTC().Format(http.TimeFormat))
			answer.Header.Set("Retry-After", now.UTC().Add(time.Duration(argument(*fault, 0))*time.Second).Format(http.TimeFormat))
		}
		return w.respelled(name, answer)
	})
}

// proxied is what a proxy answers to a request that did not reach Azure, or whose answer
// did not come back.
func proxied(e scenario.Event, r *http.Request) (*http.Response, error) {
	answer := fault.Proxy(e)
	answer.Request = r
	if r.Body == nil {
		return answer, nil
	}
	return answer, r.Body.Close()
}

// remembers keeps which request an operation belongs to.
func (w *world) remembers(name string, answer *http.Response) {
	link := answer.Header.Get("Azure-AsyncOperation")
	if link == "" || strings.HasPrefix(name, "GET operation") {
		return
	}
	u, err := url.Parse(link)
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.operations[path.Base(u.Path)] = name
}

// azureName is a request's name: its method, and its path without what is the
// same everywhere.
func (w *world) azureName(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	last := parts[len(parts)-1]
	for i := len(parts) - 1; i >= 0; i-- {
		if strings.EqualFold(parts[i], "providers") && i+2 < len(parts) {
			parts = parts[i+2:]
			break
		}
	}
	if parts[0] == "locations" && len(parts) == 4 {
		w.mu.Lock()
		defer w.mu.Unlock()
		return r.Method + " operation of " + w.operations[last]
	}
	return r.Method + " " + strings.Join(w.sentAs(parts), "/")
}

// kubeWire is the way of a process to Kubernetes: http.RoundTripper.
type kubeWire struct{ p *process }

// RoundTrip implements http.RoundTripper.
func (k kubeWire) RoundTrip(r *http.Request) (*http.Response, error) {
	w := k.p.w
	return k.p.send(scenario.Kube, fault.Name(r), r, func(r *http.Request, met *scenario.Event) (*http.Response, error) {
		if r.Method == http.MethodGet {
			return w.faults.Serve(met, r, w.kube.RoundTrip)
		}
		return w.faults.Serve(met, r, func(r *http.Request) (*http.Response, error) { return k.p.judgedChange(r, w.kube.RoundTrip) })
	})
}

// CancelRequest is what an http.Client with a timeout calls; the request's context
// has ended by then.
func (k kubeWire) CancelRequest(*http.Request) {}

func armAnswer(status int, code string, retryAfter int) *http.Response {
	return answer(status, fmt.Appendf(nil, `{"error":{"code":%q,"message":"as the scenario has it"}}`, code), retryAfter)
}

func answer(status int, body []byte, retryAfter int) *http.Response {
	h := http.Header{"Content-Type": {"application/json"}}
	if retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(retryAfter))
	}
	return &http.Response{
		Status: strconv.Itoa(status) + " " + http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}
