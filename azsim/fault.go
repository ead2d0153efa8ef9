package azsim

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// An Effect is what a fault does to a request.
type Effect string

// The effects of faults.
const (
	EffectThrottle      Effect = "throttle"      // 429 with Retry-After, nothing done
	EffectError         Effect = "error"         // Status and Code, nothing done
	EffectDropBefore    Effect = "dropBefore"    // the connection breaks, nothing done
	EffectDropAfter     Effect = "dropAfter"     // done, and the connection breaks
	EffectHang          Effect = "hang"          // no answer until the client gives up, nothing done
	EffectNeverEnds     Effect = "neverEnds"     // its operation stays InProgress
	EffectFailAtEnd     Effect = "failAtEnd"     // its operation fails at its end, without effect on the substrate
	EffectSlow          Effect = "slow"          // its operation takes ten minutes more
	EffectReportFailure Effect = "reportFailure" // done, and said to have failed
	EffectReportSuccess Effect = "reportSuccess" // not done, and said to have succeeded
	EffectIgnoreNull    Effect = "ignoreNull"    // a PATCH's null keeps the value
	EffectExpireToken   Effect = "expireToken"   // 401 ExpiredAuthenticationToken
	EffectStale         Effect = "stale"         // a GET answers as the same GET was answered before
	EffectConflict      Effect = "conflict"      // a write to a scale set on which an operation runs is refused with 409
)

var effects = []Effect{EffectThrottle, EffectError, EffectDropBefore, EffectDropAfter, EffectHang, EffectNeverEnds,
	EffectFailAtEnd, EffectSlow, EffectReportFailure, EffectReportSuccess, EffectIgnoreNull, EffectExpireToken, EffectStale, EffectConflict}

// A Fault is a rule: requests that match meet its effect. Of several that match,
// the first is met. Fields that are empty match everything.
type Fault struct {
	Name   string `json:"name"`             // "" is given one
	Method string `json:"method,omitempty"` // "PUT"
	Path   string `json:"path,omitempty"`   // regular expression on the path, in any letter case
	Action string `json:"action,omitempty"` // as in a role: "Microsoft.Compute/disks/*"

	Skip        int     `json:"skip,omitempty"`        // lets the first matches pass
	Count       int     `json:"count,omitempty"`       // meets so many, then no more; 0: no end
	Probability float64 `json:"probability,omitempty"` // of each match; 0 means 1

	Effect            Effect `json:"effect"`
	Status            int    `json:"status,omitempty"`  // of error; 0 means 500
	Code              string `json:"code,omitempty"`    // of the error
	Message           string `json:"message,omitempty"` // of the error
	RetryAfterSeconds int    `json:"retryAfterSeconds,omitempty"`

	// Matched and Met count; they are answers, not settings.
	Matched int `json:"matched"`
	Met     int `json:"met"`

	path *regexp.Regexp
}

// compile checks a fault.
func (f *Fault) compile() error {
	if !slices.Contains(effects, f.Effect) {
		return fmt.Errorf("fault %q: effect %q: want one of %v", f.Name, f.Effect, effects)
	}
	if f.Probability < 0 || f.Probability > 1 {
		return fmt.Errorf("fault %q: probability %v: want 0 to 1", f.Name, f.Probability)
	}
	if f.Status != 0 && (f.Status < 400 || f.Status > 599) {
		return fmt.Errorf("fault %q: status %d: want 400 to 599", f.Name, f.Status)
	}
	if f.Skip < 0 || f.Count < 0 || f.RetryAfterSeconds < 0 {
		return fmt.Errorf("fault %q: skip, count and retryAfterSeconds cannot be negative", f.Name)
	}
	if f.Path != "" {
		re, err := regexp.Compile("(?i)" + f.Path)
		if err != nil {
			return fmt.Errorf("fault %q: path: %w", f.Name, err)
		}
		f.path = re
	}
	return nil
}

type faultKey struct{}

// WithFault makes the requests that come with the context meet this fault and no
// other, whatever faults the server has: for a test that decides itself what
// happens at which request, through a Transport, which keeps a request's context.
// Of f only the effect with its details (Status, Code, Message,
// RetryAfterSeconds) and the name count; "" is named after the effect. A fault
// that AddFault refuses is answered with 500 InvalidFault. EffectStale needs
// Server.KeepAnswers. What a request cannot meet (EffectIgnoreNull but for a
// PATCH, EffectStale but for a GET) does nothing.
func WithFault(ctx context.Context, f Fault) context.Context {
	f.Name = cmp.Or(f.Name, string(f.Effect))
	return context.WithValue(ctx, faultKey{}, &f)
}

// is says whether f is a fault of that effect; a nil f is none.
func (f *Fault) is(e Effect) bool { return f != nil && f.Effect == e }

// failure is the error that the fault puts on the wire.
func (f *Fault) failure() *armError {
	e := &armError{status: f.Status, code: f.Code, message: f.Message, retryAfter: time.Duration(f.RetryAfterSeconds) * time.Second}
	def := func(status int, code, message string) {
		e.status = cmp.Or(e.status, status)
		e.code = cmp.Or(e.code, code)
		e.message = cmp.Or(e.message, message)
	}
	if f.Effect == EffectThrottle {
		def(http.StatusTooManyRequests, "TooManyRequests", "The request is being throttled as the limit has been reached for operation type. Please retry later.")
		e.retryAfter = cmp.Or(e.retryAfter, 10*time.Second)
	}
	def(http.StatusInternalServerError, "InternalServerError", "The server encountered an internal error. Please retry the request.")
	return e
}

// AddFault switches a fault on, after those that are on. It may be called at any
// time.
func (s *Server) AddFault(f Fault) error {
	s.init()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addFault(f)
}

func (s *Server) addFault(f Fault) error {
	f.Name = cmp.Or(f.Name, fmt.Sprintf("fault-%d", len(s.faults)+1))
	f.Matched, f.Met = 0, 0
	if err := f.compile(); err != nil {
		return err
	}
	s.faults = append(s.faults, &f)
	return nil
}

// RemoveFault switches the faults of that name off; "" all of them. It says how
// many there were.
func (s *Server) RemoveFault(name string) int {
	s.init()
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.faults)
	s.faults = slices.DeleteFunc(s.faults, func(f *Fault) bool { return name == "" || f.Name == name })
	return before - len(s.faults)
}

// FaultsNow lists the faults that are on, with their counts.
func (s *Server) FaultsNow() []Fault {
	s.init()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Fault, 0, len(s.faults))
	for _, f := range s.faults {
		out = append(out, *f)
	}
	return out
}

// meet finds the fault that the request meets: that of its context, else one of
// the server's. It runs under the lock.
func (c *call) meet() {
	if own, _ := c.r.Context().Value(faultKey{}).(*Fault); own != nil {
		if f := *own; f.compile() != nil || c.canMeet(&f) {
			c.meets(f)
		}
		return
	}
	path := c.r.URL.Path
	for _, f := range c.s.faults {
		if f.Method != "" && !strings.EqualFold(f.Method, c.r.Method) ||
			f.path != nil && !f.path.MatchString(path) ||
			f.Action != "" && !actionMatches(f.Action, c.action) || !c.canMeet(f) {
			continue
		}
		f.Matched++
		if f.Matched <= f.Skip || f.Count > 0 && f.Met >= f.Count {
			continue
		}
		if f.Probability > 0 && f.Probability < 1 && !c.s.meets(f, c.r.Method+" "+strings.ToLower(path)) {
			continue
		}
		f.Met++
		c.meets(*f)
		return
	}
}

// meets lets chance decide on the next of what key names.
func (s *Server) meets(f *Fault, key string) bool {
	r := s.draw("fault "+f.Name, key)
	return r.chance(f.Probability)
}

// canMeet says whether the effect means anything to the request.
func (c *call) canMeet(f *Fault) bool {
	switch f.Effect {
	case EffectIgnoreNull:
		return c.r.Method == http.MethodPatch
	case EffectStale:
		return c.r.Method == http.MethodGet
	case EffectConflict:
		return c.r.Method != http.MethodGet
	}
	return true
}

func (c *call) meets(f Fault) {
	c.fault = &f
	switch f.Effect {
	case EffectNeverEnds, EffectFailAtEnd, EffectSlow, EffectReportFailure:
		c.opFault = &f
	case EffectIgnoreNull:
		c.ignoreNull = true
	}
}

// before is what the request meets instead of being handled, or nil.
func (c *call) before() *reply {
	if c.fault == nil {
		return nil
	}
	if err := c.fault.compile(); err != nil { // of a context; the server's are checked when they are added
		return errorReply(refuse(http.StatusInternalServerError, "InvalidFault", "The request's context holds an invalid fault: %v.", err))
	}
	switch c.fault.Effect {
	case EffectThrottle, EffectError:
		return errorReply(c.fault.failure())
	case EffectDropBefore:
		return dropped()
	case EffectHang:
		select {
		case <-c.r.Context().Done():
		case <-c.s.ctx.Done():
		}
		return dropped()
	case EffectExpireToken:
		return errorReply(expiredToken(c.now))
	}
	return nil
}

// after is what becomes of the reply on its way out.
func (c *call) after(r *reply) *reply {
	if c.fault.is(EffectDropAfter) {
		return dropped()
	}
	if c.r.Method == http.MethodGet && (r.status == http.StatusOK || r.status == http.StatusNotFound) {
		r = c.remembered(r)
	}
	// An operation says so itself at its end.
	if c.fault.is(EffectReportFailure) && r.op == nil && r.status < 400 {
		return c.encoded(errorReply(c.fault.failure()))
	}
	return r
}

// remembered keeps the answer to a GET, once a fault could want it, and gives
// the kept one instead where the request meets that fault: also of a resource
// that has been made, or deleted, since. With nothing kept the answer is fresh.
func (c *call) remembered(fresh *reply) *reply {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := s.KeepAnswers || c.fault.is(EffectStale)
	for _, f := range s.faults {
		wanted = wanted || f.Effect == EffectStale
	}
	if !wanted {
		return fresh
	}
	if s.stale == nil {
		s.stale = map[string]*reply{}
	}
	key := strings.ToLower(c.r.URL.Path) + "?" + c.r.URL.RawQuery
	kept := s.stale[key]
	if c.fault.is(EffectStale) && kept != nil {
		return kept
	}
	s.stale[key] = fresh // neither is changed any more
	return fresh
}

// pretend answers as a success would be answered, and does nothing.
func (c *call) pretend() (*reply, error) {
	switch c.r.Method {
	case http.MethodGet, http.MethodHead:
		return c.run(c)
	case http.MethodDelete, http.MethodPost:
		return accepted(c.begin(nil, work{span: c.duration("pretend")})), nil
	}
	tree, err := c.tree()
	if err != nil {
		return nil, err
	}
	var body any = tree
	status := http.StatusCreated
	if e := c.s.find(c.id); e != nil {
		was, err := toTree(c.render(e))
		if err != nil {
			return nil, err
		}
		body, status = mergePatch(was, tree, false), http.StatusOK
	}
	if c.rt != nil && c.rt.operations == diskOperations { // as hooks.accepted has it
		status = http.StatusAccepted
	}
	body = mergePatch(body, map[string]any{"properties": map[string]any{"provisioningState": stateUpdating}}, false)
	return &reply{status: status, body: body, op: c.begin(nil, work{span: c.duration("pretend")})}, nil
}
