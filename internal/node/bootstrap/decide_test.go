package bootstrap

import (
	"testing"
	"time"

	"github.com/ortet/ortet/internal/boots/verdict"
)

var began = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time {
	return began.Add(time.Duration(seconds * float64(time.Second)))
}

func capiRules() rules {
	return rules{deadline: at(1200), sentinel: true, node: NodeNo, settle: 10 * time.Second, grace: 120 * time.Second}
}

func unit(name, active, sub string, restarts int) unitSeen {
	return unitSeen{Unit: verdict.Unit{Name: name, Active: active, Sub: sub, Restarts: restarts}}
}

func done() *verdict.CloudInit { return &verdict.CloudInit{Done: true} }

// Each row is one look, at once after the wait began.
func TestDecideAtOneLook(t *testing.T) {
	for _, c := range []struct {
		name       string
		rules      func(*rules)
		seen       seen
		over, came bool
	}{
		{"nothing yet", nil, seen{}, false, false},
		{"a sentinel", nil, seen{sentinel: true}, true, true},
		{"cloud-init runs", nil, seen{cloudInit: &verdict.CloudInit{}}, false, false},
		{"a result without the sentinel", nil, seen{cloudInit: done()}, true, false},
		{"a result and the sentinel", nil, seen{cloudInit: done(), sentinel: true}, true, true},
		{"a result, and the commands ran in an earlier boot", nil, seen{cloudInit: done(), otherSign: "earlier"}, true, true},
		{"cloud-final died", nil, seen{cloudInit: &verdict.CloudInit{}, cloudInitDied: "cloud-final.service"}, true, false},
		{"cloud-final failed after its result and the sentinel", nil, seen{cloudInit: done(), sentinel: true, cloudInitDied: "cloud-final.service"}, true, true},
		{"the sentinel, and cloud-init goes on", nil, seen{cloudInit: &verdict.CloudInit{}, sentinel: true}, false, false},
		{"the sentinel, and cloud-init is enabled", nil, seen{cloudInitRuns: true, sentinel: true}, false, false},
		{"the sentinel, and cloud-final failed before its result", nil, seen{cloudInitRuns: true, sentinel: true, cloudInitDied: "cloud-final.service"}, true, true},
		{"AKS's provisioning under way", nil, seen{cloudInit: done(), provisionRuns: true, otherSign: "AKS"}, false, false},
		{"AKS's provisioning failed", nil, seen{provisionRuns: true, provision: &verdict.Provision{ExitCode: "50"}}, true, false},
		{"AKS's provisioning succeeded", nil, seen{provisionRuns: true, provision: &verdict.Provision{ExitCode: "0"}}, true, true},
		{"no sentinel expected, cloud-init not begun", func(r *rules) { r.sentinel = false }, seen{cloudInitRuns: true}, false, false},
		{"no sentinel expected, cloud-init done", func(r *rules) { r.sentinel = false }, seen{cloudInitRuns: true, cloudInit: done()}, true, true},
		{"nothing expected at all", func(r *rules) { r.sentinel = false }, seen{}, true, true},
		{"a unit not active yet", func(r *rules) { r.units = []string{"a.service"} }, seen{sentinel: true, units: map[string]unitSeen{"a.service": unit("a.service", "activating", "start", 0)}}, false, false},
		{"a unit that nobody knows", func(r *rules) { r.units = []string{"a.service"} }, seen{sentinel: true}, false, false},
		{"a unit active", func(r *rules) { r.units = []string{"a.service"} }, seen{sentinel: true, units: map[string]unitSeen{"a.service": unit("a.service", "active", "running", 7)}}, true, true},
		{"a unit failed", func(r *rules) { r.units = []string{"a.service"} }, seen{sentinel: true, units: map[string]unitSeen{"a.service": unit("a.service", "failed", "failed", 0)}}, true, false},
		{"a unit failed, and the boot goes on", func(r *rules) { r.units = []string{"a.service"} }, seen{units: map[string]unitSeen{"a.service": unit("a.service", "failed", "failed", 0)}}, false, false},
		{"a kubelet that was not asked yet", nil, seen{sentinel: true, kubelet: kubeletSeen{wanted: true}}, false, false},
		{"a kubelet that is up for long", nil, seen{sentinel: true, kubelet: kubeletSeen{wanted: true, healthy: true, asked: began, unit: unitSeen{Unit: verdict.Unit{Name: "kubelet.service", Active: "active"}, since: at(-30)}}}, true, true},
		{"a kubelet whose unit failed", nil, seen{sentinel: true, kubelet: kubeletSeen{wanted: true, unit: unit("kubelet.service", "failed", "failed", 0)}}, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := capiRules()
			if c.rules != nil {
				c.rules(&r)
			}
			_, d := decide(r, state{}, c.seen, began)
			if d.over != c.over || d.came != c.came || d.deadline {
				t.Errorf("over %v, came up %v (%s), want %v, %v", d.over, d.came, d.why, c.over, c.came)
			}
			r.deadline = began
			// What came up is not held against it then that cloud-init goes on.
			inTime := c.over || c.seen.sentinel && c.seen.cloudInitGoesOn()
			if _, d := decide(r, state{}, c.seen, began); !d.over || d.deadline == inTime {
				t.Errorf("at the deadline: over %v, for the time %v", d.over, d.deadline)
			}
		})
	}
}

func TestDecideAfterCloudInit(t *testing.T) {
	r, going := capiRules(), seen{cloudInit: &verdict.CloudInit{}, sentinel: true}
	st, d := decide(r, state{}, going, at(1))
	if d.over || !d.next.Equal(at(121)) {
		t.Fatalf("while cloud-init goes on: over %v, the next look at %v", d.over, d.next)
	}
	if _, d := decide(r, st, going, at(121)); !d.over || !d.came {
		t.Errorf("commands that never end keep a node from having come up: %v", d.why)
	}
	broken := going
	broken.cloudInit, broken.kubelet = done(), kubeletSeen{wanted: true, unit: unit("kubelet.service", "failed", "failed", 3)}
	if _, d := decide(r, st, broken, at(9)); !d.over || d.came {
		t.Error("a command after the sentinel broke the kubelet, and the node counts as come up")
	}
}

// look is one row of a story: what is seen at a time.
type look struct {
	at       float64
	healthy  bool
	asked    float64 // when the kubelet answered; 0 for at
	active   string
	sub      string
	restarts int
}

// tell plays looks after the sentinel, and gives the last decision and its time.
func tell(t *testing.T, looks []look) (decision, float64) {
	t.Helper()
	var st state
	var d decision
	for _, l := range looks {
		k := kubeletSeen{wanted: true, healthy: l.healthy, asked: at(l.at), last: "connection refused"}
		if l.asked != 0 {
			k.asked = at(l.asked)
		}
		if l.active != "" {
			k.unit = unit("kubelet.service", l.active, l.sub, l.restarts)
		}
		s := seen{sentinel: true, kubelet: k, units: map[string]unitSeen{"kubelet.service": k.unit}}
		if st, d = decide(capiRules(), st, s, at(l.at)); d.over {
			return d, l.at
		}
	}
	return d, -1
}

func TestDecideOnTheKubelet(t *testing.T) {
	for _, c := range []struct {
		name  string
		looks []look
		when  float64 // -1: not over
		came  bool
	}{
		{"healthy all the time", []look{{at: 1, healthy: true}, {at: 5, healthy: true}, {at: 10.9, healthy: true}, {at: 11, healthy: true}}, 11, true},
		{"an answer from before the end does not count", []look{{at: 1, healthy: true, asked: 0.5}, {at: 10.6, healthy: true, asked: 0.5}}, -1, false},
		{"unhealthy in between", []look{{at: 1, healthy: true}, {at: 8, healthy: false}, {at: 9, healthy: true}, {at: 18, healthy: true}, {at: 19, healthy: true}}, 19, true},
		{"never healthy", []look{{at: 1}, {at: 60}, {at: 120}, {at: 121}}, 121, false},
		{"healthy late", []look{{at: 1}, {at: 100, healthy: true}, {at: 119, healthy: true}}, 119, true},
		{"one crash", []look{{at: 1, healthy: true, active: "active"}, {at: 3, active: "activating", sub: "auto-restart"}, {at: 14, healthy: true, active: "active", restarts: 1}, {at: 24, healthy: true, active: "active", restarts: 1}}, 24, true},
		{"a crash loop", []look{
			{at: 1, healthy: true, active: "active"}, {at: 3, active: "activating", sub: "auto-restart"}, {at: 13, active: "active", restarts: 1},
			{at: 14, active: "activating", sub: "auto-restart", restarts: 1}, {at: 24, active: "active", restarts: 2}, {at: 25, active: "activating", sub: "auto-restart", restarts: 2},
		}, 25, false},
		{"a crash loop that was there before the end", []look{{at: 1, active: "activating", sub: "auto-restart", restarts: 40}, {at: 5, healthy: true, active: "active", restarts: 41}, {at: 15, healthy: true, active: "active", restarts: 41}}, 15, true},
		{"an old answer of a kubelet that just crashed", []look{{at: 1, healthy: true, active: "active"}, {at: 11.5, healthy: true, asked: 11, active: "activating", sub: "auto-restart"}}, -1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, when := tell(t, c.looks)
			if when != c.when || d.came != c.came {
				t.Errorf("over at %v (came up %v, %s), want at %v, %v", when, d.came, d.why, c.when, c.came)
			}
		})
	}
}

// Units that systemd tells of only after the boot's end have their crashes
// counted from then on.
func TestUnitsThatAreSeenLate(t *testing.T) {
	k := kubeletSeen{wanted: true, asked: at(1)}
	st, _ := decide(capiRules(), state{}, seen{sentinel: true, kubelet: k}, at(1))
	k.unit = unit("kubelet.service", "activating", "auto-restart", 40)
	s := seen{sentinel: true, kubelet: k, units: map[string]unitSeen{"kubelet.service": k.unit}}
	st, d := decide(capiRules(), st, s, at(2))
	if d.over {
		t.Fatalf("%+v, for what was before", d)
	}
	s.kubelet.unit.Restarts = 43
	if _, d = decide(capiRules(), st, s, at(30)); !d.over || d.came {
		t.Errorf("%+v, want a crash loop", d)
	}
}

// While a boot goes on there is nothing to look for but notifications.
func TestNoWakeupsBeforeTheEnd(t *testing.T) {
	s := seen{cloudInit: &verdict.CloudInit{}, kubelet: kubeletSeen{wanted: true, unit: unit("kubelet.service", "active", "running", 0)}}
	if _, d := decide(capiRules(), state{}, s, at(5)); d.over || d.askKubelet || !d.next.IsZero() {
		t.Errorf("%+v, want to wait for nothing but the deadline", d)
	}
}

// A sentinel that is taken away again was there all the same.
func TestSentinelIsTakenAway(t *testing.T) {
	k := kubeletSeen{wanted: true, healthy: true, asked: at(1)}
	st, d := decide(capiRules(), state{}, seen{sentinel: true, kubelet: k}, at(1))
	if d.over {
		t.Fatal("over before the kubelet has settled")
	}
	if _, d = decide(capiRules(), st, seen{kubelet: k}, at(12)); !d.came {
		t.Errorf("%+v, want it to have come up", d)
	}
}
