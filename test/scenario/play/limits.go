package play

import (
	"net/http"
	"strings"
	"time"

	"github.com/ortet/ortet/test/scenario"
)

// A bucket is what is left of a limit.
type bucket struct {
	level float64
	at    time.Time
}

// limits are those of Azure Resource Manager, of a subscription and principal
// (documentation of ARM request limits), and of Compute, of one scale set or
// instance (documentation of Compute throttling limits): so many at once,
// refilled by so many a second.
var limits = map[string][2]float64{
	"reads": {250, 25}, "writes": {200, 10}, "deletes": {200, 10},
	"read": {36, 12. / 60}, "update": {12, 4. / 60}, "delete or stop": {12, 4. / 60},
}

// watchLimits: no more requests than Azure's published limits allow.
func (w *world) watchLimits(side string, r *http.Request) {
	if side != scenario.Azure {
		return
	}
	all, one := "writes", "update"
	switch r.Method {
	case http.MethodGet:
		all, one = "reads", "read"
	case http.MethodDelete:
		all, one = "deletes", "delete or stop"
	}
	w.take(all, "")
	_, resource, of := strings.Cut(strings.ToLower(r.URL.Path), "/providers/microsoft.compute/virtualmachinescalesets/")
	if !of {
		return
	}
	parts := strings.Split(resource, "/")
	switch last := parts[len(parts)-1]; {
	case len(parts) == 2: // the list of instances has no limit of its own
		return
	case last == "poweroff", last == "deallocate":
		one = "delete or stop"
	case len(parts) > 1 && parts[1] == "extensions" && one == "delete or stop":
		one = "update"
	}
	name := parts[0]
	if len(parts) > 2 && parts[1] == "virtualmachines" {
		name += "/" + parts[2]
	}
	w.take(one, name)
}

func (w *world) take(kind, of string) {
	most, rate := limits[kind][0], limits[kind][1]
	w.mu.Lock()
	b := w.buckets[kind+of]
	now := time.Now()
	if b == nil {
		b = &bucket{level: most, at: now}
		w.buckets[kind+of] = b
	}
	b.level = min(most, b.level+rate*now.Sub(b.at).Seconds()) - 1
	b.at = now
	over := b.level < 0
	w.mu.Unlock()
	if over {
		w.broken("more requests to %s %s than Azure allows", kind, of)
	}
}

// throttled remembers for how long Azure wants a request not to come again.
func (w *world) throttled(p *process, side string, r *http.Request, answer *http.Response) {
	if side != scenario.Azure || answer.StatusCode != http.StatusTooManyRequests {
		return
	}
	wait, err := time.ParseDuration(answer.Header.Get("Retry-After") + "s")
	if at, dated := http.ParseTime(answer.Header.Get("Retry-After")); dated == nil {
		now, _ := http.ParseTime(answer.Header.Get("Date")) // both are there, or none
		wait, err = at.Sub(now), nil
	}
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits[waitsOf(p, r)] = time.Now().Add(wait)
}

// waitsOf is the same for a request that is sent again. The poll of another operation is
// another request, also where that began by the same.
func waitsOf(p *process, r *http.Request) string { return p.name + " " + r.Method + " " + r.URL.Path }

// judgeWaits: what Azure answered with 429 does not come again before it says.
func (w *world) judgeWaits(p *process, side string, r *http.Request) {
	if side != scenario.Azure {
		return
	}
	w.mu.Lock()
	early := time.Until(w.waits[waitsOf(p, r)])
	w.mu.Unlock()
	if early > 0 {
		w.broken("%s sends %q again %s before the time that Azure asked for", p.name, r.Method+" "+r.URL.Path, early.Round(time.Second))
	}
}
