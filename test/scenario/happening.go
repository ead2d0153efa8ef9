package scenario

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A happening says what a What is: which requests it fits, which arguments it
// takes. Parsing, chance, shrinking and the documentation go by it.
type happening struct {
	what    What
	kind    kind
	sides   []string // empty: both
	methods []string // empty: all
	args    []arg
	does    string // for people
}

type kind int

const (
	fault kind = iota
	death
	world
)

// An arg is one argument of a happening. check gives it as it is printed.
type arg struct {
	name    string
	allowed string
	check   func(string) (string, error)
	simpler func(string) []string
}

// Whom a change is done to.
const (
	donor = "donor"
	bench = "bench"
	other = "other"
)

func amount(name string, low, high int) arg {
	return arg{
		name: name, allowed: fmt.Sprintf("%d to %d", low, high),
		check: func(v string) (string, error) {
			n, err := whole(v, low, high)
			return strconv.Itoa(n), err
		},
		simpler: func(v string) []string {
			n, err := strconv.Atoi(v)
			if err != nil {
				return nil
			}
			simplest := min(max(1, low), high)
			if n == simplest {
				return nil
			}
			return append([]string{strconv.Itoa(simplest)}, between(simplest, n)...)
		},
	}
}

func who() arg {
	all := []string{donor, bench, other}
	return arg{
		name: "WHO", allowed: strings.Join(all, ", "),
		check: func(v string) (string, error) {
			if !slices.Contains(all, v) {
				return "", fmt.Errorf("want one of %s", strings.Join(all, ", "))
			}
			return v, nil
		},
	}
}

// setting of the pool that others change.
func poolSetting() arg {
	a := arg{name: "WHAT", allowed: "image, tags"}
	a.check = func(v string) (string, error) {
		if v != "image" && v != "tags" {
			return "", fmt.Errorf("want one of %s", a.allowed)
		}
		return v, nil
	}
	return a
}

// code is ARM's error code, or the reason of Kubernetes' Status.
func code() arg {
	const allowed = "an error code or reason, as Conflict"
	return arg{
		name: "CODE", allowed: allowed,
		check: func(v string) (string, error) {
			letter := func(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }
			if v == "" || len(v) > 80 || strings.ContainsFunc(v, func(r rune) bool { return !letter(r) && (r < '0' || r > '9') }) {
				return "", fmt.Errorf("want %s", allowed)
			}
			return v, nil
		},
		simpler: func(v string) []string {
			if v == "InternalServerError" {
				return nil
			}
			return []string{"InternalServerError"}
		},
	}
}

func statusArg() arg {
	a := amount("STATUS", 400, 599)
	a.simpler = func(v string) []string {
		if v == "500" {
			return nil
		}
		return []string{"500"}
	}
	return a
}

const (
	day     = int(24 * time.Hour / time.Second)
	hour    = int(time.Hour / time.Second)
	minute  = int(time.Minute / time.Second)
	seconds = "SECONDS"
)

func clockArg() arg {
	a := amount(seconds, -day, day)
	check := a.check
	a.allowed += ", not 0"
	a.check = func(v string) (string, error) {
		v, err := check(v)
		if err == nil && v == "0" {
			err = fmt.Errorf("want %s", a.allowed)
		}
		return v, err
	}
	return a
}

// happenings lists all that can happen. error may leave out its code.
func happenings() []happening {
	azure, kube := []string{Azure}, []string{Kube}
	changes := []string{"PUT", "PATCH", "POST", "DELETE"}
	return []happening{
		{what: Throttle, args: []arg{amount(seconds, 0, hour)}, does: "429 with that Retry-After, nothing done"},
		{what: Error, args: []arg{statusArg(), code()}, does: "that status and ARM's code or Kubernetes' reason, nothing done; without CODE what is usual for the status"},
		{what: DropBefore, does: "the connection breaks, nothing done"},
		{what: DropAfter, does: "done, and the connection breaks"},
		{what: Hang, does: "nothing done, and no answer until the client gives up"},
		{what: ReportFailure, does: "done, and answered with 500"},
		{what: Stale, methods: []string{"GET"}, does: "the answer is what the same GET was answered before"},
		{what: NeverEnds, sides: azure, methods: changes, does: "its operation stays InProgress"},
		{what: FailAtEnd, sides: azure, methods: changes, does: "its operation fails at its end, without effect"},
		{what: ReportSuccess, sides: azure, methods: changes, does: "not done, and said to have succeeded"},
		{what: IgnoreNull, sides: azure, methods: []string{"PATCH"}, does: "the PATCH's null keeps the value"},
		{what: ExpireToken, does: "401, as where the token has expired"},
		{what: ThrottleDate, sides: azure, args: []arg{amount(seconds, 1, hour)}, does: "429 with a Retry-After that is a date, nothing done"},
		{what: ProxyBefore, args: proxyArgs(), does: "a proxy answers, nothing done: with an HTML page, without a body, or with one that ends early; there is no code in it"},
		{what: ProxyAfter, args: proxyArgs(), does: "done, and a proxy answers as above"},
		{what: Conflict, sides: kube, methods: []string{"PUT", "PATCH"}, does: "409, as where others wrote meanwhile"},

		{what: KillBefore, kind: death, does: "the process dies, and the request is not sent"},
		{what: KillAfter, kind: death, does: "the process dies, and the request has its effect"},
		{what: Interrupt, kind: death, does: "the operator presses Ctrl-C; a second one ends the process at once"},

		{what: Suspend, kind: world, args: []arg{amount(seconds, 1, day)}, does: "the process is suspended once the request is sent: it gets no answer, and sends nothing, for so long"},
		{what: RivalComes, kind: world, does: "another process asks the same"},
		{what: ScaleOut, kind: world, args: []arg{amount("N", 1, 100)}, does: "the pool grows by that many"},
		{what: ScaleIn, kind: world, args: []arg{amount(seconds, 1, day)}, does: "for so long, an autoscaler deletes every empty node that nothing protects, down to two"},
		{what: DeleteInstance, kind: world, args: []arg{who()}, does: "the instance is deleted"},
		{what: StopInstance, kind: world, args: []arg{who()}, does: "the instance is powered off"},
		{what: Evict, kind: world, args: []arg{who()}, does: "Azure evicts the instance 30 s later, where it is Spot: it is deallocated, or deleted"},
		{what: StartInstance, kind: world, args: []arg{who()}, does: "the instance is started, where it is stopped"},
		{what: RestartInstance, kind: world, args: []arg{who()}, does: "the instance is restarted, where it runs"},
		{what: DeleteSnapshot, kind: world, does: "the operator deletes the donor's snapshot"},
		{what: DeleteCopy, kind: world, does: "… the snapshot of the generalised copy"},
		{what: DeleteDisk, kind: world, does: "… the temporary disk, where it is free"},
		{what: DeleteVersion, kind: world, does: "… today's version, or the newest"},
		{what: DeleteGallery, kind: world, does: "… the gallery with all that is in it, as far as Azure lets them"},
		{what: ChangeModel, kind: world, args: []arg{poolSetting()}, does: "others set the pool's image to another, or its tags"},
		{what: NodeNotReady, kind: world, args: []arg{who(), amount(seconds, 1, day)}, does: "the node is NotReady for so long"},
		{what: NodeGone, kind: world, args: []arg{who()}, does: "the Node object is deleted; its kubelet makes it anew after a minute"},
		{what: Cordon, kind: world, args: []arg{who()}, does: "somebody else cordons it"},
		{what: Uncordon, kind: world, args: []arg{who()}, does: "somebody else uncordons it"},
		{what: Clock, kind: world, args: []arg{clockArg()}, does: "the process's clock jumps, forward or back"},
		{what: KubeOutage, kind: world, args: []arg{amount(seconds, 1, day)}, does: "the API server refuses connections for so long"},
		{what: AzureOutage, kind: world, args: []arg{amount(seconds, 1, day)}, does: "ARM answers 503 for so long"},
		{what: Deny, kind: world, args: []arg{amount(seconds, 1, day)}, does: "the right to do what the request does lacks for so long, also for others of its kind: 403"},
		{what: ExpireLogin, kind: world, args: []arg{amount(seconds, 1, day)}, does: "ARM answers 401 for so long"},
	}
}

// named finds what a word says.
func named(all []happening, w What) (happening, bool) {
	i := slices.IndexFunc(all, func(h happening) bool { return h.what == w })
	if i < 0 {
		return happening{}, false
	}
	return all[i], true
}

// fits says why a happening cannot be at a request, or nil.
func (h happening) fits(side, request string) error {
	if len(h.sides) > 0 && !slices.Contains(h.sides, side) {
		return fmt.Errorf("%s happens in %s only", h.what, strings.Join(h.sides, ", "))
	}
	if m := method(request); len(h.methods) > 0 && !slices.Contains(h.methods, m) {
		return fmt.Errorf("%s does not happen at a %s: want %s", h.what, m, strings.Join(h.methods, ", "))
	}
	return nil
}

// checked gives the arguments as they are printed.
func (h happening) checked(args []string) ([]string, error) {
	least := len(h.args)
	if h.what == Error {
		least = 1
	}
	if len(args) < least || len(args) > len(h.args) {
		return nil, fmt.Errorf("%s takes %s, not %q", h.what, h.usage(), strings.Join(args, " "))
	}
	var out []string
	for i, v := range args {
		c, err := h.args[i].check(v)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %s %q: %w", h.what, h.usage(), h.args[i].name, v, err)
		}
		out = append(out, c)
	}
	return out, nil
}

// usage names the arguments.
func (h happening) usage() string {
	if len(h.args) == 0 {
		return "no arguments"
	}
	var names []string
	for _, a := range h.args {
		names = append(names, a.name)
	}
	if h.what == Error {
		names[1] = "[" + names[1] + "]"
	}
	return strings.Join(names, " ")
}

// proxyArgs are the status and the body of a proxy's answer.
func proxyArgs() []arg {
	bodies := []string{"html", "empty", "cut"}
	status, failed := statusArg(), statusArg().check
	status.allowed = "200, " + status.allowed
	status.check = func(v string) (string, error) {
		if v == "200" {
			return v, nil
		}
		return failed(v)
	}
	body := arg{name: "BODY", allowed: strings.Join(bodies, ", "), check: func(v string) (string, error) {
		if !slices.Contains(bodies, v) {
			return "", fmt.Errorf("want one of %s", strings.Join(bodies, ", "))
		}
		return v, nil
	}}
	return []arg{status, body}
}

func methods() []string { return []string{"GET", "HEAD", "PUT", "PATCH", "POST", "DELETE"} }

// method is the first word of a request's name.
func method(request string) string {
	m, _, _ := strings.Cut(request, " ")
	return m
}

// checkRequest says why a name cannot be one of a request, or nil.
func checkRequest(request string) error {
	m, rest, ok := strings.Cut(request, " ")
	printable := !strings.ContainsFunc(request, func(r rune) bool { return r < ' ' || r > '~' })
	if !ok || !slices.Contains(methods(), m) || strings.TrimSpace(rest) != rest || rest == "" || !printable || len(request) > maxRequest {
		return fmt.Errorf("request %q: want a method (%s), a blank and a name, at most %d bytes of ASCII", request, strings.Join(methods(), ", "), maxRequest)
	}
	return nil
}
