package simulate

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ortet/ortet/api/v1alpha1"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/schedule"
	"github.com/ortet/ortet/test/kubesim"
)

const (
	lastPatch  = "example.com/last-patch"
	toBeGone   = "ToBeDeletedByClusterAutoscaler"
	monthNodes = 4 // of each pool
)

// A monthPool is one of a month's pools.
type monthPool struct {
	name    string
	set     fleet.ResourceID
	budget  string
	patches map[int]string // by day: what is wrong with images of what was patched then, "" for nothing

	captures, rollouts, renewed int
	requests                    int
	versions, bad               map[string]string // names, the bad ones with their gate
	longest                     time.Duration     // that a node was out of service by ortet
	on                          string
}

// A month is a world in which pools live for a month.
type month struct {
	*operating
	pools []*monthPool

	state sync.Mutex
	since map[string]time.Time // nodes that are out of service
	begun map[string]bool      // nodes that a rollout has begun
}

// attributed counts requests to Azure by the pool in their path.
type attributed struct {
	policy.Transporter
	m *month
}

var poolIn = regexp.MustCompile(`pool\d`)

func (a attributed) Do(r *http.Request) (*http.Response, error) {
	name := poolIn.FindString(strings.ToLower(r.URL.Path))
	a.m.state.Lock()
	for _, p := range a.m.pools {
		if p.name == name {
			p.requests++
		}
	}
	a.m.state.Unlock()
	return a.Transporter.Do(r)
}

// out reports whether a Node takes no pods.
func out(n *corev1.Node) bool {
	ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	return n.Spec.Unschedulable || !ready
}

// observed is what another looks at after each request of ortet: a rollout begins with a node only if
// with it no more nodes are out of service than may be. What went out in this minute it need not have seen.
func (m *month) observed(r kubesim.Request) {
	n := m.kube.Node(r.Name)
	if r.Resource != "nodes" || r.Verb != "patch" || n == nil {
		return
	}
	marked := n.Annotations[fleet.AnnotationRollout] != ""
	m.state.Lock()
	first := marked && !m.begun[n.Name]
	m.begun[n.Name] = marked
	wasOut := !m.since[n.Name].IsZero() && time.Since(m.since[n.Name]) > time.Minute
	m.state.Unlock()
	if !first || wasOut {
		return
	}
	for _, p := range m.pools {
		all := m.nodesOf(p.set)
		if !slices.Contains(all, n.Name) {
			continue
		}
		budget, err := schedule.ParseBudget(p.budget)
		if err != nil {
			m.broken(0, "%v", err)
		}
		others := slices.DeleteFunc(slices.Clone(all), func(name string) bool {
			m.state.Lock()
			defer m.state.Unlock()
			since := m.since[name]
			other := m.kube.Node(name)
			return name == n.Name || other == nil || !out(other) || !m.begun[name] && (since.IsZero() || time.Since(since) < time.Minute)
		})
		if limit := budget.Of(len(all)); len(others) >= limit {
			m.broken(26, "the budget of %s is exceeded: %s is begun, %d of %d nodes may be out of service, and %s are", p.name, n.Name, limit, len(all), strings.Join(others, ", "))
		}
	}
}

// minute is a scheduler and what a person sees: nodes that take pods get one.
func (m *month) minute() {
	var fit []string
	m.kube.Peek("nodes", func(o runtime.Object) bool {
		n := o.(*corev1.Node)
		m.state.Lock()
		defer m.state.Unlock()
		if !out(n) {
			if m.since[n.Name] = (time.Time{}); len(n.Spec.Taints) == 0 {
				fit = append(fit, n.Name)
			}
			return true
		}
		m.since[n.Name] = cmp.Or(m.since[n.Name], time.Now())
		for _, p := range m.pools {
			if ours := n.Annotations[fleet.AnnotationRollout] != "" || n.Annotations[fleet.AnnotationCapture] != ""; ours && strings.HasPrefix(n.Name, p.name) {
				p.longest = max(p.longest, time.Since(m.since[n.Name]))
			}
		}
		return true
	})
	for _, name := range fit {
		if len(m.evictable(name)) == 0 {
			m.putPod(name, "web", m.nextPod(), func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "StatefulSet" })
		}
	}
	for _, c := range m.badComputers() {
		for _, pod := range m.evictable(c.node()) {
			m.broken(27, "pod %s is on node %s of a bad image (%s)", pod.Name, c.node(), c.bad)
		}
	}
	for id, v := range m.versions() {
		for _, p := range m.pools {
			if strings.Contains(id, "-"+p.name+"-") {
				p.versions[path.Base(id)] = ""
				if why := tagsOf(v)[fleet.TagQuarantine]; why != "" {
					p.bad[path.Base(id)], _, _ = strings.Cut(why, ":")
				}
			}
		}
	}
}

// patch is what patches nodes, by day, and kured, which reboots one after the other.
func (m *month) patch(p *monthPool) {
	for _, name := range m.nodesOf(p.set) {
		m.change(name, func(n *corev1.Node) { n.Annotations[lastPatch] = time.Now().UTC().Format(time.RFC3339) })
	}
	for _, name := range m.nodesOf(p.set) {
		m.reboot(name)
	}
}

// reboot is kured: it waits for its lock, and returns the node to service.
func (m *month) reboot(name string) {
	locked := func(change func(a map[string]string)) {
		m.kube.Change("daemonsets", "kube-system", "kured", func(o runtime.Object) {
			d := o.(*appsv1.DaemonSet)
			if d.Annotations = maps.Clone(d.Annotations); d.Annotations == nil {
				d.Annotations = map[string]string{}
			}
			change(d.Annotations)
		})
	}
	own := fmt.Sprintf(`{"nodeID":%q,"metadata":{"unschedulable":false},"created":%q,"TTL":0}`, name, time.Now().UTC().Format(time.RFC3339Nano))
	for has := false; !has; {
		locked(func(a map[string]string) {
			if has = a[kuredLock] == ""; has {
				a[kuredLock] = own
			}
		})
		if !has && sleep(m.ctx, time.Minute) != nil {
			return
		}
	}
	defer locked(func(a map[string]string) { delete(a, kuredLock) })
	n, c := m.kube.Node(name), m.computerOf(name)
	if n == nil || c == nil || out(n) || len(n.Spec.Taints) > 0 || n.Annotations[fleet.AnnotationWorkbench] != "" {
		return
	}
	m.serve(name, false, "kured")
	for _, pod := range m.evictable(name) {
		m.kube.Remove("pods", pod.Namespace, pod.Name)
	}
	life := m.lifeOf(c)
	if err := m.request(http.MethodPost, fleet.ResourceID(c.ResourceID)+"/restart", computeAPI, nil); err != nil {
		m.broken(0, "kured cannot reboot: %v", err)
	}
	for end := time.Now().Add(time.Hour); time.Now().Before(end) && (m.lifeOf(c) < life+2 || !m.isReady(c)); {
		if sleep(m.ctx, 10*time.Second) != nil {
			return
		}
	}
	m.serve(name, true, "kured")
}

// serve cordons or uncordons a node for others.
func (m *month) serve(name string, in bool, who string) {
	m.change(name, func(n *corev1.Node) {
		if n.Spec.Unschedulable = !in; who == "kured" && in {
			delete(n.Annotations, fleet.AnnotationKuredReboot)
		} else if who == "kured" {
			n.Annotations[fleet.AnnotationKuredReboot] = "true"
		}
	})
}

func (m *month) change(name string, change func(n *corev1.Node)) {
	m.kube.Change("nodes", "", name, func(o runtime.Object) {
		n := o.(*corev1.Node)
		if n.Annotations = maps.Clone(n.Annotations); n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		change(n)
	})
}

// scale is an autoscaler.
func (m *month) scale(p *monthPool, to int) {
	capacity := int(m.modelOf(p.set).capacity)
	if capacity < to {
		body := object{"sku": object{"name": m.size(), "tier": "Standard", "capacity": to}}
		_ = m.request(http.MethodPatch, p.set, computeAPI, body) // or at the next hour
		return
	}
	for _, name := range m.nodesOf(p.set) {
		n, c := m.kube.Node(name), m.computerOf(name)
		if capacity <= to || n == nil || c == nil || out(n) || n.Annotations[fleet.AnnotationScaleDownDisabled] == "true" {
			continue
		}
		m.change(name, func(n *corev1.Node) {
			n.Spec.Taints = append(slices.Clone(n.Spec.Taints), corev1.Taint{Key: toBeGone, Value: strconv.FormatInt(time.Now().Unix(), 10), Effect: corev1.TaintEffectNoSchedule})
		})
		for _, pod := range m.evictable(name) {
			m.kube.Remove("pods", pod.Namespace, pod.Name)
		}
		_ = sleep(m.ctx, 20*time.Second)
		m.deleteInstances(p.set, path.Base(c.ID))
		capacity--
	}
}

// live is what happens around the pools at an hour of a day.
func (m *month) live(day, hour int) {
	for _, p := range m.pools {
		switch _, patched := p.patches[day]; {
		case hour == 20 && patched:
			go m.patch(p)
		case hour == 3, hour == 11:
			go m.scale(p, monthNodes+1+hour/11)
		case hour == 13, hour == 19:
			go m.scale(p, monthNodes+1-hour/19)
		case hour == 12 && day%4 == 1: // amid a rollout
			go m.reboot(m.nodesOf(p.set)[0])
		case hour == 8 && day%5 == 2: // before a rollout
			if all := slices.DeleteFunc(m.nodesOf(p.set), func(name string) bool { return out(m.kube.Node(name)) }); len(all) > 2 {
				p.on = all[len(all)-1]
				m.serve(p.on, false, "a person")
			}
		case hour == 14 && p.on != "":
			m.serve(p.on, true, "a person")
			p.on = ""
		}
	}
}

// spec is a pool's object.
func (m *month) spec(p *monthPool) v1alpha1.ScaleSetPool {
	o := m.operating.spec(func(s *v1alpha1.ScaleSetPoolSpec) {
		budget := intstr.Parse(p.budget)
		s.ScaleSet = string(p.set)
		s.Capture.Schedule, s.Capture.Window.Duration, s.Capture.MaxImageAge.Duration = "0 2 * * *", 4*time.Hour, 7*day
		s.Donors.PatchAnnotation, s.Donors.MinReady.Duration = lastPatch, time.Hour
		s.Canary.Clones, s.Canary.Soak.Duration, s.Canary.Required = 2, 2*time.Minute, true
		s.Watch.Duration.Duration = 2 * time.Hour
		s.Rollout = v1alpha1.RolloutSpec{Mode: v1alpha1.RolloutProven, MaxUnavailable: budget, Soak: metav1.Duration{Duration: 2 * time.Minute},
			Windows: []v1alpha1.RolloutWindow{{Schedule: "0 9 * * *", Duration: metav1.Duration{Duration: 9 * time.Hour}}}}
	})
	o.Name = p.name
	return o
}

// TestMonth has two pools live for a month of virtual time: patches, five bad images, an autoscaler,
// kured, persons who cordon, and operators of which another leads each week.
func TestMonth(t *testing.T) {
	withOperator(t, Pool{Instances: monthNodes, Neighbour: monthNodes, Mixed: true, Kured: true, Daemons: 1}, func(w *operating) {
		m := &month{operating: w, since: map[string]time.Time{}, begun: map[string]bool{}, pools: []*monthPool{
			{name: poolName, set: w.pool, budget: "1", patches: map[int]string{1: "", 5: "no join", 8: "", 11: "daemon", 15: "", 18: "restarts", 21: "", 26: ""}},
			{name: w.otherPool.Name(), set: w.otherPool, budget: "50%", patches: map[int]string{2: "", 6: "not ready", 9: "", 13: "verdict", 16: "", 20: "", 27: ""}},
		}}
		from := time.Now().Truncate(day)
		w.badness = func(d *disk) (kind string) {
			for _, p := range m.pools {
				if !strings.HasPrefix(d.of, p.name) {
					continue
				}
				last := 0
				for patched := range p.patches {
					if at := from.Add(time.Duration(patched-1)*day + 20*time.Hour); patched > last && at.Before(d.at) {
						last = patched
					}
				}
				kind = p.patches[last]
			}
			return kind
		}
		w.reads.Transporter, w.tick = attributed{w.reads.Transporter, m}, 10*time.Second
		before := w.kube.OnRequest
		w.kube.OnRequest = func(r kubesim.Request) { before(r); m.observed(r) }
		for _, p := range m.pools {
			p.versions, p.bad = map[string]string{}, map[string]string{}
			w.objects.put(m.spec(p))
		}
		end := w.beginLead()
		for at := from; at.Before(from.Add(30 * day)); at = at.Add(time.Minute) {
			if _ = sleep(w.ctx, time.Until(at)); at.Minute() == 30 {
				m.live(int(at.Sub(from)/day)+1, at.Hour())
			}
			if at.Hour() == 10 && at.Minute() == 3 && int(at.Sub(from)/day)%7 == 6 {
				end()
				end = w.beginLead()
			}
			m.minute()
		}
		end()
		m.judge()
	})
}

// judge looks at what the month has come to, and prints it.
func (m *month) judge() {
	t := m.t
	m.locked(func() { // the world has others capture its second pool
		m.violations = slices.DeleteFunc(m.violations, func(v string) bool { return strings.HasPrefix(v, "invariant 12: a copy is attached") })
	})
	for _, event := range m.objects.events {
		for _, p := range m.pools {
			text, own := strings.CutPrefix(event, p.name+": ")
			n, rollout := 0, strings.HasPrefix(text, "rollout: ")
			if _, err := fmt.Sscanf(text, "rollout: %d nodes renewed", &n); err != nil {
				_, _ = fmt.Sscanf(text, "rollout: %d node renewed", &n)
			}
			if own && rollout && n > 0 {
				p.rollouts, p.renewed = p.rollouts+1, p.renewed+n
			}
			if own && strings.HasPrefix(text, "capture: ") {
				p.captures++
			}
		}
	}
	gates := map[string]string{"no join": "join", "not ready": "ready", "daemon": "daemonset", "verdict": "verdict", "restarts": "restarts"}
	var table strings.Builder
	lines := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(lines, "pool\tcaptures\tversions\tquarantined\trollouts\tnodes renewed\tlongest out of service\tAzure requests")
	for _, p := range m.pools {
		var bad, want []string
		for _, name := range slices.Sorted(maps.Keys(p.bad)) {
			bad = append(bad, name+" "+p.bad[name])
		}
		for _, day := range slices.Sorted(maps.Keys(p.patches)) {
			if kind := p.patches[day]; kind != "" {
				want = append(want, gates[kind])
			}
		}
		_, _ = fmt.Fprintf(lines, "%s\t%d\t%d\t%s\t%d\t%d\t%s\t%d\n", p.name, p.captures, len(p.versions), strings.Join(bad, ", "), p.rollouts, p.renewed, p.longest, p.requests)
		s := m.objects.get(p.name).Status
		if !is(v1alpha1.ConditionFresh, v1alpha1.ReasonFresh)(s) || !is(v1alpha1.ConditionProven, v1alpha1.ReasonProven)(s) || !is(v1alpha1.ConditionStalled, v1alpha1.ReasonGoing)(s) ||
			s.Nodes.Old > 0 || s.Nodes.Failed > 0 || s.Nodes.Current != int32(monthNodes) {
			t.Errorf("at the end %s is %+v", p.name, s)
		}
		var got []string
		for _, name := range slices.Sorted(maps.Keys(p.bad)) {
			got = append(got, p.bad[name])
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has quarantined %v, want %v", p.name, got, want)
		}
		for _, name := range m.nodesOf(p.set) {
			if n := m.kube.Node(name); out(n) || n.Annotations[fleet.AnnotationRollout]+n.Annotations[fleet.AnnotationCapture] != "" {
				t.Errorf("at the end node %s is out of service: %v", name, n.Annotations)
			}
		}
	}
	_ = lines.Flush()
	t.Logf("30 days\n%s", table.String())
}
