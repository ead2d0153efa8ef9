package scenario

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A Chooser says what happens at requests: what the scenario lists, and what its
// chance comes to. It is for one playing; At is to be called once for each
// request, in the order in which they are sent. It may be called by several
// goroutines.
type Chooser struct {
	spot       bool // instances may be evicted
	seed       uint64
	chance     Chance
	all        []Event
	listed     map[requestKey][]Event
	happenings []happening

	mu       sync.Mutex
	ask      int // under way, from 0
	happened []Event
	met      map[requestKey]bool // of those listed
	byChance int
	aimed    int             // changes that were aimed at
	after    map[string]bool // paths whose next read is aimed at
	provoked bool            // a failure or an interruption, so that there is something to undo
	undoing  int             // that happened while changes were undone
	kinds    map[string]bool // of changes that were asked for, where there is a phase
	phased   int             // requests in the phase

	// Of byDeaths.
	ofKind     map[string]int  // changes so far, also of those that are aimed at
	died       int             // processes that died or were suspended
	afterDeath []Event         // at the next request
	staleNext  map[string]bool // paths whose next read is stale
	loseNext   bool            // the answer to the next change
}

// requestKey says which request it is.
type requestKey struct {
	side, request string
	count         int
}

func keyOf(e Event) requestKey { return requestKey{e.Side, e.Request, e.Count} }

// NewChooser gives one for a playing of s.
func NewChooser(s Scenario) *Chooser {
	c := &Chooser{
		spot: strings.HasPrefix(s.Pool.Kind, "spot"), seed: s.Seed, chance: s.Chance, all: slices.Clone(s.Events), listed: map[requestKey][]Event{},
		happenings: happenings(), met: map[requestKey]bool{}, after: map[string]bool{},
		ofKind: map[string]int{}, staleNext: map[string]bool{}, kinds: map[string]bool{},
	}
	for _, e := range s.Events {
		c.listed[keyOf(e)] = append(c.listed[keyOf(e)], e)
	}
	return c
}

// At gives what happens at the count-th request of that name: what is listed, in
// the order of the list, or else at most one thing by chance. get is true where
// the request changes nothing.
//
// Chance goes by the seed, the side, the name and the count alone, so what
// happens at a request does not depend on the requests before it, but for the
// bound Chance.Most, for reads after a change that was aimed at, and for what undoes
// changes. No happening comes by chance once 200 have happened, so that what happened
// can be printed.
func (c *Chooser) At(side, request string, count int, get bool) []Event {
	return c.at(side, request, count, get, false)
}

// AtUndo is At for a request of a process that undoes its changes, after a failure or
// an interruption.
func (c *Chooser) AtUndo(side, request string, count int, get bool) []Event {
	return c.at(side, request, count, get, true)
}

func (c *Chooser) at(side, request string, count int, get, undoes bool) []Event {
	key := requestKey{side, request, count}
	out := slices.Clone(c.listed[key])
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(out) > 0 {
		c.met[key] = true
	}
	if c.ask < c.chance.After {
		c.happened = append(c.happened, out...)
		return out
	}
	phase := c.inPhase(side, request, get)
	if len(out) == 0 && c.chance.Undoing > 0 && (phase || undoes) && len(c.happened) < MaxEvents {
		if e, ok := c.whileUndoing(side, request, count, get, undoes); ok {
			out = append(out, e)
		}
	}
	if len(out) == 0 && c.chance.Deaths > 0 && len(c.happened) < MaxEvents-1 {
		out = append(out, c.byDeaths(side, request, count, get)...)
	}
	if len(out) == 0 && phase && (c.chance.Most == 0 || c.byChance < c.chance.Most) && len(c.happened) < MaxEvents {
		if e, ok := c.byFate(side, request, count, get); ok {
			out = append(out, e)
			c.byChance++
		}
	}
	if len(out) == 0 && c.chance.Aimed > 0 && len(c.happened) < MaxEvents {
		if e, ok := c.byAim(side, request, count, get); ok {
			out = append(out, e)
		}
	}
	c.happened = append(c.happened, out...)
	return out
}

// Ask says which ask is under way, from 0.
func (c *Chooser) Ask(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ask = i
}

// Happened gives all that At gave so far, in that order: a scenario that lists
// them and has no chance plays the same.
func (c *Chooser) Happened() []Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.happened)
}

// Missed gives the listed happenings whose request did not come so far, in the
// order of the list: a kept scenario that misses some no longer tests what it
// was kept for.
func (c *Chooser) Missed() []Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	var missed []Event
	for _, e := range c.all {
		if !c.met[keyOf(e)] {
			missed = append(missed, e)
		}
	}
	return missed
}

// How likely chance is, by kinds of requests, of the likelihood at a change in
// Azure: most requests are reads, polls and renewals, and little hurts there,
// while a capture changes Azure some twenty times.
const (
	fullWeight    = 20
	kubeWeight    = 10
	readWeight    = 3
	renewalWeight = 1
)

// isReview reports whether a request asks what RBAC allows: a POST that changes nothing,
// of which preflight sends a score.
func isReview(request string) bool {
	return strings.HasPrefix(request, "POST selfsubjectaccessreviews")
}

func weightOf(side, request string, get bool) int {
	switch {
	case side == Kube && !get && strings.Contains(request, "/leases/"), isReview(request):
		return renewalWeight
	case get:
		return readWeight
	case side == Kube:
		return kubeWeight
	}
	return fullWeight
}

func (c *Chooser) byFate(side, request string, count int, get bool) (Event, bool) {
	if c.chance.Rate+c.chance.Death+c.chance.World == 0 || checkRequest(request) != nil {
		return Event{}, false
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%d\x00%s\x00%s\x00%d", c.seed, side, request, count)
	sum := hash.Sum(nil)
	d := roll(binary.BigEndian.Uint64(sum), binary.BigEndian.Uint64(sum[8:]))

	// The roll is stretched, not the rates shrunk, so that small rates stay exact.
	at := d.n(million) * fullWeight / weightOf(side, request, get)
	e := Event{Side: side, Request: request, Count: count}
	switch {
	case at < c.chance.Rate:
		e.What, e.Args = c.faultAt(d, side, request)
	case at < c.chance.Rate+c.chance.Death:
		e.What = pick(d, []weighted[What]{{4, KillBefore}, {4, KillAfter}, {2, Interrupt}})
	case at < c.chance.Rate+c.chance.Death+c.chance.World:
		e.What, e.Args = c.change(d)
	default:
		return Event{}, false
	}
	return e, true
}

// faultAt chooses a fault that fits the request.
func (c *Chooser) faultAt(d dice, side, request string) (What, []string) {
	m := method(request)
	var fitting []weighted[What]
	for _, w := range []weighted[What]{
		{3, Throttle}, {5, Error}, {2, DropBefore}, {4, DropAfter}, {1, Hang}, {3, ReportFailure}, {3, Stale}, {1, NeverEnds},
		{3, FailAtEnd}, {2, ReportSuccess}, {6, IgnoreNull}, {1, ExpireToken}, {2, Conflict},
	} {
		if h, ok := named(c.happenings, w.of); !ok || h.fits(side, request) != nil {
			continue
		}
		if m == "GET" && w.of == ReportFailure {
			continue // the same as an error
		}
		fitting = append(fitting, w)
	}
	what := pick(d, themeNamed(c.chance.Of).among(fitting))
	switch what {
	case Throttle:
		if side == Azure && d.percent(25) {
			what = ThrottleDate
		}
		return what, numbers(d.spread(1, 60))
	case Error:
		args := errorAt(d, side, m)
		if d.percent(30) && (side == Azure || args[0] != "404") {
			return proxied(d, ProxyBefore, args)
		}
		return what, args
	case ReportFailure:
		if d.percent(40) {
			return proxied(d, ProxyAfter, []string{pick(d, []weighted[string]{{2, "502"}, {2, "504"}, {1, "200"}})})
		}
	}
	return what, nil
}

// proxied is what a proxy makes of a failure: its own page, or an answer that it cut
// short. Of what Azure alone would say it says nothing.
func proxied(d dice, what What, args []string) (What, []string) {
	status := args[0]
	if !slices.Contains([]string{"200", "404", "429", "502", "503", "504"}, status) {
		status = pick(d, []weighted[string]{{3, "502"}, {1, "503"}, {1, "200"}})
	}
	body := pick(d, []weighted[string]{{3, "html"}, {2, "empty"}, {2, "cut"}})
	if status == "200" && body == "empty" {
		body = "html" // an empty 200 is success
	}
	return what, []string{status, body}
}

func numbers(all ...int) []string {
	var out []string
	for _, n := range all {
		out = append(out, strconv.Itoa(n))
	}
	return out
}

// errorAt chooses an error that such a request may meet.
func errorAt(d dice, side, m string) []string {
	type e = weighted[[]string]
	is := func(weight int, status, code string) e { return e{weight, []string{status, code}} }
	if side == Kube {
		all := []e{
			is(6, "500", "InternalError"), is(4, "503", "ServiceUnavailable"), is(4, "504", "Timeout"), is(3, "429", "TooManyRequests"),
			is(1, "403", "Forbidden"), is(1, "400", "BadRequest"),
		}
		if m == "GET" || m == "PATCH" || m == "DELETE" {
			all = append(all, is(1, "404", "NotFound"))
		}
		if m != "GET" {
			all = append(all, is(3, "409", "Conflict"))
		}
		return pick(d, all)
	}
	all := []e{
		is(8, "500", "InternalServerError"), is(3, "502", "BadGateway"), is(6, "503", "ServiceUnavailable"), is(3, "504", "GatewayTimeout"),
		is(3, "429", "TooManyRequests"), is(1, "403", "AuthorizationFailed"),
	}
	if m == "GET" {
		all = append(all, is(1, "404", "ResourceNotFound"))
	} else {
		all = append(all, is(5, "409", "Conflict"), is(5, "409", "OperationNotAllowed"), is(2, "412", "PreconditionFailed"), is(1, "400", "InvalidParameter"))
	}
	return pick(d, all)
}

// change chooses something that others do. What hurts comes more often.
func (c *Chooser) change(d dice) (What, []string) {
	of := themeNamed(c.chance.Of)
	what := pick(d, of.among([]weighted[What]{
		{4, ScaleOut}, {3, ScaleIn}, {8, DeleteInstance}, {4, StopInstance}, {4, StartInstance}, {4, RestartInstance}, {4, DeleteSnapshot}, {4, DeleteCopy}, {2, DeleteDisk},
		{5, DeleteVersion}, {3, DeleteGallery}, {4, ChangeModel}, {5, NodeNotReady}, {5, NodeGone}, {3, Cordon}, {3, Uncordon}, {4, Clock},
		{4, KubeOutage}, {4, AzureOutage}, {3, ExpireLogin}, {1, RivalComes},
	}))
	if of.mostly != "" && d.percent(80) || (what == AzureOutage || what == ExpireLogin) && d.percent(40) {
		what = cmp.Or(of.mostly, Deny)
	}
	whom := pick(d, []weighted[string]{{4, donor}, {4, bench}, {3, other}})
	if of.whom != "" && d.percent(90) {
		whom = of.whom
	}
	if c.spot && (what == DeleteInstance || what == StopInstance) && d.percent(60) {
		what = Evict
	}
	switch what {
	case ScaleOut:
		return what, numbers(d.in(1, 3))
	case DeleteInstance:
		// An autoscaler spares the donor, which is annotated; people may not.
		if of.whom != "" {
			return what, []string{whom}
		}
		return what, []string{pick(d, []weighted[string]{{1, donor}, {4, bench}, {4, other}})}
	case StartInstance:
		return what, []string{donor} // nobody else is stopped by us
	case StopInstance, Evict, RestartInstance, NodeGone, Cordon, Uncordon:
		return what, []string{whom}
	case ChangeModel:
		return what, []string{pick(d, []weighted[string]{{2, "image"}, {1, "tags"}})}
	case NodeNotReady:
		return what, append([]string{whom}, numbers(d.spread(10, 30*minute))...)
	case Clock:
		jump := d.spread(2, 2*hour)
		if d.percent(50) {
			jump = -jump
		}
		return what, numbers(jump)
	case ScaleIn, KubeOutage, AzureOutage:
		return what, numbers(d.spread(5, 40*minute))
	case Deny:
		return what, numbers(d.spread(minute, 6*hour))
	case ExpireLogin:
		return what, numbers(d.spread(5, 10*minute))
	}
	return what, nil
}
