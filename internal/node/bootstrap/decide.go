package bootstrap

import (
	"maps"
	"time"

	"github.com/ortet/ortet/internal/boots/verdict"
)

// crashLoop is how many times the kubelet, or a unit that is asked for, may be
// restarted by systemd after the boot's end until that is called a loop: one
// start may fail because the runtime was not up yet, and be well the next time.
const crashLoop = 3

// While it matters kubelet and API server are asked every second for the first
// minute after the boot's end, when most nodes get ready, and then less often.
const (
	askEvery = time.Second
	eagerFor = time.Minute
	askLater = 5 * time.Second
)

// rules are what decide goes by.
type rules struct {
	deadline time.Time
	sentinel bool // one is expected
	units    []string
	node     Node
	settle   time.Duration
	grace    time.Duration
	again    bool // the boot was judged before: the caller claims that the node works now
}

// seen is one observation of the node.
type seen struct {
	sentinel bool // the file is there
	// otherSign is a sign of this boot's end other than a sentinel: AKS's provision.json,
	// or a cloud-init that ran its commands in an earlier boot.
	otherSign string
	// assumed means that this boot's end has no sign: the node only has to work in its
	// cluster, and lateness is no failure.
	assumed   bool
	cloudInit *verdict.CloudInit
	// cloudInitRuns means that cloud-init is enabled in this boot.
	cloudInitRuns bool
	// cloudInitDied is the unit that ended cloud-init before its result.
	cloudInitDied string
	provision     *verdict.Provision
	provisionRuns bool // AKS's provisioning is on this node
	// provisionComes means that the Azure agent has yet to begin it.
	provisionComes bool
	units          map[string]unitSeen
	kubelet        kubeletSeen
	node           nodeSeen
}

// cloudInitGoesOn reports that cloud-init has more to do: the commands after those that
// join, which may break what came up.
func (s *seen) cloudInitGoesOn() bool {
	if s.cloudInit != nil && s.cloudInit.Done || s.cloudInitDied != "" {
		return false
	}
	return s.cloudInitRuns || s.cloudInit != nil
}

// unitSeen is a unit's state in systemd.
type unitSeen struct {
	verdict.Unit
	since time.Time // when it became active, zero where that is not known
	ended time.Time // when a Windows service was seen to have ended, zero where not
}

// crashes is how often systemd has restarted it, or is about to.
func (u unitSeen) crashes() int {
	if u.Sub == "auto-restart" {
		return u.Restarts + 1
	}
	return u.Restarts
}

// kubeletSeen is the kubelet's state by its port and its unit.
type kubeletSeen struct {
	wanted  bool
	unit    unitSeen // the one that runs it; without a name where there is none
	asked   time.Time
	healthy bool // so it was when it was asked
	last    string
}

// nodeSeen is what the API server said of the node last.
type nodeSeen struct {
	membership
	asked time.Time // zero is never
}

// state is decide's memory between observations.
type state struct {
	finished     time.Time      // when the boot's end was first seen
	assumed      bool           // no sign of it was seen
	failed       string         // why it failed, where it is judged again
	crashesThen  map[string]int // of units, when they were first seen since
	healthySince time.Time
	everHealthy  bool
	// settledSince is since when the kubelet has been healthy for long enough.
	settledSince time.Time
	// downSince is since when it was not, after it had settled, or never had.
	downSince  time.Time
	registered bool // the API server had the node
}

// decision is what decide comes to.
type decision struct {
	over     bool
	deadline bool   // it is over because time is up
	came     bool   // it came up
	why      string // for the log
	// next is when to observe again if nothing happens; zero is at the deadline.
	next       time.Time
	inCluster  bool // by the API server
	askKubelet bool
	askNode    bool
	loops      bool // the kubelet crash-loops: not healthy, whatever /healthz reports
	// unregistered means that the API server does not have the node. unsure means that it
	// gave us no answer: the kubelet's log counts then.
	unregistered, unsure bool
}

// decide decides whether it is known how the boot ended. It is pure; the table that it
// implements is in the package's documentation.
func decide(r rules, st state, s seen, now time.Time) (state, decision) {
	sign, failed := end(&r, &s)
	switch {
	case failed != "" && !r.again:
		return st, decision{over: true, why: failed}
	case failed != "":
		sign = "it works in its cluster"
	case sign == "" && st.assumed:
		st = state{} // it goes on after all
	case sign == "" && !st.finished.IsZero():
		// The sentinel was taken away again; that it was there is enough.
		sign = "it was seen before"
	}
	if sign == "" {
		return st, untilDeadline(&r, now)
	}
	if st.finished.IsZero() {
		st.finished = now
	}
	st.assumed, st.failed = s.assumed, failed
	patience := st.finished.Add(r.grace)
	if s.assumed {
		r.grace = max(r.grace, r.deadline.Sub(st.finished)+time.Second) // the deadline comes before
	}
	d := decideEnd(&r, &st, &s, sign, patience, now)
	if failed != "" && d.over && !(d.came && d.inCluster) {
		d = decision{over: true, why: failed}
	}
	return st, d
}

// decideEnd decides whether what came after the boot's end, by this sign, lets it count as
// a success. Until patience ends more may come.
func decideEnd(r *rules, st *state, s *seen, sign string, patience, now time.Time) decision {
	st.crashesThen = firstCrashes(st.crashesThen, s.units)
	for _, name := range r.units {
		if u, ok := s.units[name]; ok && (u.Active == "failed" || u.crashes()-st.crashesThen[name] >= crashLoop) {
			return decision{over: true, why: name + " failed"}
		}
	}
	d := decideKubelet(r, st, s, now)
	if d.over && !d.came && !d.unsure {
		return d
	}
	for _, name := range r.units {
		if s.units[name].Active != "active" {
			d.over, d.came = false, false
		}
	}
	if d.over && (s.cloudInitGoesOn() || s.provisionComes) && now.Before(patience) && now.Before(r.deadline) {
		return decision{next: patience}
	}
	if d.over {
		if d.came {
			d.why = sign
		}
		return d
	}
	if wait := untilDeadline(r, now); wait.over {
		return wait
	}
	return d
}

// firstCrashes adds the units that are seen for the first time since the boot's
// end: how often they had crashed until then does not count.
func firstCrashes(then map[string]int, units map[string]unitSeen) map[string]int {
	then = maps.Clone(then)
	for name, u := range units {
		if _, ok := then[name]; !ok {
			if then == nil {
				then = map[string]int{}
			}
			then[name] = u.crashes()
		}
	}
	return then
}

func untilDeadline(r *rules, now time.Time) decision {
	if now.Before(r.deadline) {
		return decision{}
	}
	return decision{over: true, deadline: true, why: "time is up"}
}

// end returns the sign by which the boot is over, or why it failed.
func end(r *rules, s *seen) (sign, failed string) {
	if s.provision != nil && s.provision.ExitCode != "0" {
		return "", "provision.json says that it failed"
	}
	if s.sentinel {
		return "the sentinel is there", ""
	}
	if s.provision != nil {
		return "provision.json says that it succeeded", ""
	}
	done := s.cloudInit != nil && s.cloudInit.Done
	if !done && s.cloudInitDied != "" {
		return "", s.cloudInitDied + " ended before cloud-init's result"
	}
	if r.sentinel && s.otherSign == "" {
		if done {
			return "", "cloud-init is done, and there is no sentinel"
		}
		return "", ""
	}
	switch {
	case s.provisionRuns:
		return "", ""
	case done:
		return "cloud-init is done", ""
	case s.cloudInitRuns || s.cloudInit != nil:
		return "", ""
	}
	// Only the units and the kubelet are left as signs.
	return "nothing else is to be waited for", ""
}

// decideKubelet decides whether the kubelet lets the boot count as a success, after its
// end.
func decideKubelet(r *rules, st *state, s *seen, now time.Time) decision {
	k := &s.kubelet
	if !k.wanted {
		return decision{over: true, came: true}
	}
	if name := k.unit.Name; name != "" {
		if k.unit.Active == "failed" {
			return decision{over: true, loops: true, why: name + " failed"}
		}
		if k.unit.crashes()-st.crashesThen[name] >= crashLoop {
			return decision{over: true, loops: true, why: name + " crash-loops"}
		}
	}
	d := decision{next: later(st, k.asked, now), askKubelet: due(st, k.asked, now)}
	// An answer from before the end is no evidence of its result.
	answered := !k.asked.IsZero() && !k.asked.Before(st.finished)
	down := k.unit.Name != "" && k.unit.Active != "active" && k.unit.Active != "reloading"
	if !answered || !k.healthy || down {
		if st.downSince.IsZero() {
			st.downSince = st.finished
			if !st.settledSince.IsZero() {
				st.downSince = now
			}
		}
		st.healthySince, st.settledSince = time.Time{}, time.Time{}
		if answered && now.Sub(st.downSince) >= r.grace {
			return decision{over: true, why: "the kubelet did not become healthy in time"}
		}
		// Both are asked at once the first time: most often both are well.
		d.askNode = r.node != NodeNo && s.node.asked.IsZero()
		return d
	}
	st.everHealthy = true
	if st.healthySince.IsZero() {
		st.healthySince = k.asked
	}
	since := st.healthySince
	if !k.unit.since.IsZero() && k.unit.since.Before(since) {
		since = k.unit.since // it has been up since then without a restart
	}
	if settled := since.Add(r.settle); now.Before(settled) {
		if settled.Before(d.next) {
			d.next = settled
		}
		return d
	}
	st.downSince = time.Time{}
	if st.settledSince.IsZero() {
		st.settledSince = now
	}
	return decideNode(r, st, &s.node, d, now)
}

// decideNode decides whether the cluster lets the boot count as a success, once the kubelet
// has settled. d is the decision by the kubelet alone.
func decideNode(r *rules, st *state, n *nodeSeen, d decision, now time.Time) decision {
	answered := !n.asked.IsZero() && !n.asked.Before(st.finished)
	if r.node == NodeNo || answered && n.cannot {
		return decision{over: true, came: true}
	}
	st.registered = st.registered || answered && n.registered
	switch {
	case st.registered && (r.node == NodeRegistered || answered && n.ready):
		return decision{over: true, came: true, inCluster: true}
	case answered && !st.registered && now.Sub(st.settledSince) >= r.grace:
		return decision{over: true, why: "the API server does not tell of the node", unregistered: true, unsure: !n.answered && !n.unsigned}
	}
	d.askNode = due(st, n.asked, now)
	if next := later(st, n.asked, now); next.Before(d.next) {
		d.next = next
	}
	return d
}

// due reports whether a question that was answered at asked is to be asked again.
func due(st *state, asked, now time.Time) bool {
	return asked.Before(st.finished) || now.Sub(asked) >= every(st, now)
}

// later is when he is to be asked next, or his answer to be looked for.
func later(st *state, asked, now time.Time) time.Time {
	if due(st, asked, now) {
		return now.Add(every(st, now))
	}
	return asked.Add(every(st, now))
}

func every(st *state, now time.Time) time.Duration {
	if now.Sub(st.finished) < eagerFor {
		return askEvery
	}
	return askLater
}
