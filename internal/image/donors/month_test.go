package donors_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/donors"
)

const (
	days       = 31
	rebootKey  = "example.com/reboot"
	usualBoot  = 120 * time.Second
	scaleDown  = "ToBeDeletedByClusterAutoscaler"
	outOf      = 10 * time.Minute // a donor's time out of service
	kuredEvery = 10 * time.Minute
)

// played counts what happened, and how often an assertion had something to judge.
type played struct {
	nights, captures, failures, patches, reboots, added, removed int
	agedPools, patchedPools, secondRuns                          int
}

// world is virtual time: events in order.
type world struct {
	*testing.T
	*rand.Rand
	now    time.Time
	events []event
	played *played
}

type event struct {
	at time.Time
	do func()
}

func (w *world) after(d time.Duration, do func()) {
	at := w.now.Add(d)
	i, _ := slices.BinarySearchFunc(w.events, at, func(e event, t time.Time) int { return cmp.Or(e.at.Compare(t), -1) })
	w.events = slices.Insert(w.events, i, event{at, do})
}

// upTo is a random time of whole seconds.
func (w *world) upTo(d time.Duration) time.Duration {
	return time.Duration(w.Int64N(int64(d/time.Second))) * time.Second
}

// simulated is a pool of the month.
type simulated struct {
	*world
	id       fleet.ResourceID
	policy   donors.Policy
	min, max int // nodes, for the autoscaler
	nodes    []*donors.Member
	created  int // nodes ever
	newest   time.Time
	level    int // patches released
	image    int // patches in the newest version
	donors   map[string]bool
	captures int
}

func kernelOf(level int) string { return fmt.Sprintf("5.15.0-%d-azure", 990+level*7) }

func (s *simulated) add() {
	boot, verdict := usualBoot, "True"
	if s.IntN(10) == 0 {
		boot = 212 * time.Second
	}
	if s.IntN(30) == 0 {
		verdict = "False"
	}
	s.created++
	m := &donors.Member{Created: s.now, Node: fleet.Node{
		Name: fmt.Sprintf("%s%06d", s.id.Name(), s.created), Annotations: map[string]string{},
		Ready: true, ReadySince: s.now.Add(boot + 5*time.Second), Created: s.now.Add(boot),
		OSImage: "Ubuntu 22.04.4 LTS", Runtime: "containerd://1.7.12", Kernel: kernelOf(s.image),
		Conditions: []fleet.Condition{{Type: "ortet.io/BootSucceeded", Status: verdict, Reason: "UnitFailed"}},
	}}
	s.nodes = append(s.nodes, m)
	if s.image < s.level {
		s.installs(m)
	}
}

// installs has the node install the newest patch, and ask for a reboot.
func (s *simulated) installs(m *donors.Member) {
	s.after(time.Hour+s.upTo(5*time.Hour), func() { m.Node.Annotations[rebootKey] = "" })
}

func (s *simulated) down(m *donors.Member, d time.Duration, then func()) {
	m.Node.Ready, m.Node.Unschedulable = false, true
	s.after(d, func() {
		m.Node.Ready, m.Node.Unschedulable, m.Node.ReadySince = true, false, s.now
		then()
	})
}

func free(m *donors.Member) bool {
	return m.Node.Ready && m.Node.Annotations[fleet.AnnotationCapture] == "" && len(m.Node.Taints) == 0
}

// kured reboots one node at a time.
func (s *simulated) kured() {
	s.after(kuredEvery, s.kured)
	for _, m := range s.nodes {
		if _, ok := m.Node.Annotations[rebootKey]; !ok || !free(m) {
			continue
		}
		s.played.reboots++
		m.Node.Annotations[fleet.AnnotationKuredReboot] = s.now.Format(time.RFC3339)
		s.down(m, 3*time.Minute+s.upTo(5*time.Minute), func() {
			delete(m.Node.Annotations, rebootKey)
			delete(m.Node.Annotations, fleet.AnnotationKuredReboot)
			m.Node.Kernel = kernelOf(s.level)
			m.Node.Annotations[patched] = s.now.Format(time.RFC3339)
		})
		return
	}
}

func (s *simulated) patch() {
	s.after(4*24*time.Hour+s.upTo(9*24*time.Hour), s.patch)
	s.played.patches++
	s.level++
	for _, m := range s.nodes {
		s.installs(m)
	}
}

func (s *simulated) autoscaler() {
	s.after(time.Hour+s.upTo(11*time.Hour), s.autoscaler)
	if n := len(s.nodes); n < s.max && (n == s.min || s.IntN(2) == 0) {
		s.played.added++
		s.add()
		return
	}
	m := s.nodes[s.IntN(len(s.nodes))]
	if len(s.nodes) == s.min || !free(m) {
		return
	}
	s.played.removed++
	m.Node.Taints = []fleet.Taint{{Key: scaleDown, Effect: "NoSchedule"}}
	s.after(10*time.Minute, func() {
		s.nodes = slices.DeleteFunc(s.nodes, func(x *donors.Member) bool { return x == m })
	})
}

func (s *simulated) snapshot() donors.Pool {
	p := donors.Pool{ID: s.id, Newest: s.newest}
	if !s.newest.IsZero() {
		p.NewestName = s.newest.Format("2006.01.02")
	}
	for _, m := range s.nodes {
		p.Members = append(p.Members, *m)
	}
	return p
}

// good are the days of the last patch of the nodes that no rule but patch can find
// anything against, the newest first; "" where a node has none.
func (s *simulated) good() (patches []string) {
	newest := 0
	kernels := map[string]int{}
	for level := range s.level + 1 {
		kernels[kernelOf(level)] = level
	}
	for _, m := range s.nodes {
		newest = max(newest, kernels[m.Node.Kernel])
	}
	for _, m := range s.nodes {
		n := m.Node
		_, rebooting := n.Annotations[rebootKey]
		if free(m) && !rebooting && s.now.Sub(n.ReadySince) >= s.policy.MinReady && n.Conditions[0].Status == "True" &&
			kernels[n.Kernel] == newest && n.Created.Sub(m.Created) == usualBoot {
			patches = append(patches, fmt.Sprintf("%.10s", n.Annotations[patched]))
		}
	}
	slices.SortFunc(patches, func(a, b string) int { return cmp.Compare(b, a) })
	return patches
}

func (s *simulated) day(t time.Time) string { return t.Format(time.DateOnly) }

// run is one run of the job for the pool; fails counts the captures that failed.
func (s *simulated) run(fails *int) (due bool) {
	choice := donors.Choose(s.snapshot(), s.policy, s.now)
	if !choice.Due {
		return false
	}
	i := slices.IndexFunc(s.nodes, func(m *donors.Member) bool { return m.Node.Name == choice.Donor })
	m := s.nodes[i]
	if key := s.day(s.now) + " " + choice.Donor; s.donors[key] {
		s.Errorf("%s: donor %s is out of service twice on one day", s.now, choice.Donor)
	} else {
		s.donors[key] = true
	}
	s.wanted(m, choice.Because)
	m.Node.Annotations[fleet.AnnotationCapture] = "capture"
	level := s.level
	if m.Node.Kernel != kernelOf(s.level) {
		level = s.image
	}
	s.down(m, outOf, func() { delete(m.Node.Annotations, fleet.AnnotationCapture) })
	if s.IntN(10) == 0 {
		*fails++
		s.played.failures++
		return true
	}
	s.captures++
	s.played.captures++
	s.after(outOf+s.upTo(8*time.Minute), func() { s.newest, s.image = s.now, level })
	return true
}

// wanted fails where the policy wanted no new image.
func (s *simulated) wanted(donor *donors.Member, because string) {
	last := donor.Node.Annotations[patched]
	switch age := s.policy.MaxImageAge; {
	case s.policy.PatchAnnotation == "" && s.newest.IsZero():
	case age > 0 && s.tooOld(s.now):
	case s.policy.PatchAnnotation != "" && last != "" && (s.newest.IsZero() || last[:10] > s.day(s.newest)):
	default:
		s.Errorf("%s: %s is captured for nothing: %s", s.now, s.id.Name(), because)
	}
}

func (s *simulated) tooOld(now time.Time) bool {
	return s.newest.IsZero() || s.day(s.newest) < s.day(now.AddDate(0, 0, -s.policy.MaxImageAge))
}

// night runs the job at 00:42 and once more, and judges the pool at 02:00.
func (s *simulated) night() {
	s.after(24*time.Hour, s.night)
	good, fails, captured := s.good(), 0, s.captures
	s.run(&fails)
	s.after(40*time.Minute+s.upTo(20*time.Minute), func() {
		done := s.captures > captured
		if due := s.run(&fails); due && done {
			s.Errorf("%s: %s is captured again the same night", s.now, s.id.Name())
		}
		if done {
			s.played.secondRuns++
		}
	})
	s.after(78*time.Minute, func() {
		if fails > 0 && s.captures == captured || len(good) < max(s.policy.MinCandidates, 1) {
			return
		}
		if s.policy.MaxImageAge > 0 {
			s.played.agedPools++
			if s.tooOld(s.now) {
				s.Errorf("%s: the image of %s is of %s, older than %d days", s.now, s.id.Name(), s.newest, s.policy.MaxImageAge)
			}
		}
		// The newest patch that enough nodes had.
		if patch := good[max(s.policy.MinCandidates, 1)-1]; s.policy.PatchAnnotation != "" && patch != "" {
			s.played.patchedPools++
			if s.newest.IsZero() || s.day(s.newest) < patch {
				s.Errorf("%s: the image of %s is of %s, older than the patch of %s", s.now, s.id.Name(), s.newest, patch)
			}
		}
	})
}

// TestMonth plays 31 nights of six pools: patches, reboots by kured, an autoscaler, and
// captures of which some fail.
func TestMonth(t *testing.T) {
	var played played
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { month(t, seed, &played) })
	}
	t.Logf("%+v", played)
	if played.agedPools < 1000 || played.patchedPools < 1000 || played.secondRuns < 200 || played.failures < 20 {
		t.Errorf("too little was judged: %+v", played)
	}
}

func month(t *testing.T, seed uint64, played *played) {
	start := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	w := &world{T: t, Rand: rand.New(rand.NewPCG(seed, 32)), played: played}
	var pools []*simulated
	for i, c := range []struct {
		min, max, candidates, age int
		ready                     time.Duration
		annotation                string
	}{
		{3, 5, 1, 0, time.Hour, patched},
		{6, 10, 2, 7, time.Hour, patched},
		{5, 8, 1, 3, 2 * time.Hour, ""},
		{3, 6, 1, 0, time.Hour, ""},
		{12, 20, 3, 14, 6 * time.Hour, patched},
		{30, 40, 5, 1, 24 * time.Hour, patched},
	} {
		s := &simulated{world: w, min: c.min, max: c.max, donors: map[string]bool{},
			id: fleet.ResourceID(fmt.Sprintf("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/pool%d", i+1)),
			policy: donors.Policy{PatchAnnotation: c.annotation, RebootAnnotation: rebootKey, MinReady: c.ready,
				MinCandidates: c.candidates, MaxImageAge: c.age}}
		for n := range (c.min + c.max) / 2 {
			w.now = start.Add(-time.Hour * time.Duration(30+n))
			s.add()
		}
		w.now = start
		w.after(w.upTo(6*24*time.Hour), s.patch)
		w.after(w.upTo(12*time.Hour), s.autoscaler)
		w.after(w.upTo(kuredEvery), s.kured)
		w.after(42*time.Minute, s.night)
		pools = append(pools, s)
	}
	played.nights += days
	for end := start.AddDate(0, 0, days); w.events[0].at.Before(end); {
		e := w.events[0]
		w.events = w.events[1:]
		w.now = e.at
		e.do()
	}
	if n := pools[3].captures; n != 1 {
		t.Errorf("the pool without patch annotation and age was captured %d times, want once", n)
	}
}
