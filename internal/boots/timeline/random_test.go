package timeline

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

// randomReport makes a report that is valid, and otherwise as bad as reports get:
// cycles, times that contradict each other, clocks that are set, parts of what is
// not there.
func randomReport(rnd *rand.Rand) (wire.BootReport, Cloud) {
	const epoch = wire.Micros(1700000000 * 1e6)
	within := func(most wire.Micros) wire.Micros { return wire.Micros(rnd.Int63n(int64(most) + 1)) }
	// Times are of a few values, so that many are equal.
	coarse := []wire.Micros{1, 1000, 100000, 1000000}[rnd.Intn(4)]
	moment := func() wire.Micros {
		if rnd.Intn(12) == 0 {
			return 0
		}
		return within(60*second/coarse) * coarse
	}
	r := wire.BootReport{Version: wire.BootReportVersion, Node: "node"}
	s := &r.System
	switch rnd.Intn(4) {
	case 0:
		s.Relative = true
	case 1:
		s.Firmware, s.Loader, s.InitRD, s.Userspace = moment(), moment(), moment(), moment()
		s.SecurityStart, s.SecurityFinish, s.GeneratorsStart, s.GeneratorsFinish = moment(), moment(), moment(), moment()
		s.UnitsLoadStart, s.UnitsLoadFinish = moment(), moment()
	case 2:
		s.InitRD, s.Userspace = 500000, 1500000
		s.GeneratorsStart, s.GeneratorsFinish, s.UnitsLoadStart, s.UnitsLoadFinish = 1600000, 1700000, 1700000, 1800000
	}
	if rnd.Intn(2) == 0 {
		s.Finish = moment()
	}
	if rnd.Intn(10) == 0 {
		s.SoftReboot = moment()
	}
	kinds := []string{"service", "target", "socket", "timer", "device", "mount", "slice"}
	n := rnd.Intn(40)
	names := []string{"cloud-init-local.service", "cloud-init.service", "cloud-config.service", "cloud-final.service", "walinuxagent.service", "kubelet.service",
		"network-online.target", "containerd.service", "never.service"}
	for i := range n {
		names = append(names, fmt.Sprintf("u%d.%s", i, kinds[rnd.Intn(len(kinds))]))
	}
	for _, name := range names[:len(names)-1] {
		if rnd.Intn(3) == 0 {
			continue
		}
		u := wire.BootUnit{Name: name, Activating: moment(), Activated: moment(), Deactivated: moment(), Grain: []wire.Micros{0, 0, 1000, second}[rnd.Intn(4)]}
		if rnd.Intn(3) > 0 {
			u.Activated = u.Activating + within(3*second)
		}
		for range rnd.Intn(8) {
			u.After = append(u.After, names[rnd.Intn(len(names))])
		}
		if rnd.Intn(6) == 0 {
			u.TriggeredBy = []string{names[rnd.Intn(len(names))]}
		}
		if rnd.Intn(10) == 0 {
			u.Restarts = 3
		}
		r.Units = append(r.Units, u)
	}
	at := wire.Micros(0)
	offset := epoch
	for range rnd.Intn(10) {
		at += within(8 * second)
		if rnd.Intn(4) == 0 {
			offset += within(100*second) - 50*second
		}
		r.Clocks = append(r.Clocks, wire.ClockReading{Monotonic: at, Wall: at + offset})
	}
	sources := []string{"cloud-init", "waagent", "cse", "aks", "aks-provision", "kubelet", "containerd", "systemd"}
	parts := []string{"init-local", "init-local/search-Azure", "init-network", "modules-config", "modules-config/config-runcmd", "modules-final",
		"modules-final/config-scripts_user", "azure-ds/wait-for-media-disconnect-connect", "register", "ready", "startup", "startup/pre-kubelet", "startup/registration", "cse", "pps-type", "reported-ready", "pull/x", "enable", "dpkg lock", "chain-root", "imds"}
	for range rnd.Intn(40) {
		sp := wire.BootSpan{Source: sources[rnd.Intn(len(sources))], Name: parts[rnd.Intn(len(parts))], Clock: wire.ClockMonotonic, Start: moment(),
			Open: rnd.Intn(10) == 0, Grain: []wire.Micros{0, 1000, second}[rnd.Intn(3)]}
		sp.End = sp.Start + within(5*second)
		if rnd.Intn(2) == 0 {
			sp.Clock = []wire.ClockKind{wire.ClockWall, wire.ClockCloud, wire.ClockCluster}[rnd.Intn(3)]
			sp.Start, sp.End = sp.Start+epoch, sp.End+epoch
		}
		if rnd.Intn(3) == 0 {
			sp.Parent = parts[rnd.Intn(len(parts))]
		}
		if rnd.Intn(3) == 0 {
			sp.Unit = names[rnd.Intn(len(names))]
		}
		r.Spans = append(r.Spans, sp)
	}
	var c Cloud
	cloud := func() time.Time {
		if rnd.Intn(2) == 0 {
			return time.Time{}
		}
		return time.UnixMicro(int64(epoch - 20*second + within(100*second))).UTC()
	}
	if rnd.Intn(2) == 0 {
		c = Cloud{Requested: cloud(), Created: cloud(), Provisioned: cloud(), NodeCreated: cloud().Truncate(time.Second), NodeReady: cloud().Truncate(time.Second), FirstPod: cloud()}
	}
	return r, c
}

// checkBoot holds what is true of every timeline.
func checkBoot(t *testing.T, r wire.BootReport, c Cloud) {
	t.Helper()
	b := analyse(&r, c)
	g := b.newGraph(b.endItem)
	if end := g.replay(change{started: -1}, nil); end != b.end {
		t.Fatalf("the replay with everything in its place ends at %d, the boot at %d", end, b.end)
	}
	got := Build(r, c)
	checkTiled(t, got)
	ids := map[string]bool{}
	for i, s := range got.Spans {
		if ids[s.ID] {
			t.Fatalf("%q is there twice", s.ID)
		}
		ids[s.ID] = true
		if s.End < s.Start {
			t.Fatalf("%q ends before it starts", s.ID)
		}
		if i > 0 && got.Spans[i-1].Start > s.Start {
			t.Fatalf("%q is out of order", s.ID)
		}
	}
	for _, s := range got.Spans {
		for _, id := range append([]string{}, s.After...) {
			if !ids[id] {
				t.Fatalf("%q comes after %q, which is not there", s.ID, id)
			}
		}
		if s.Parent != "" && !ids[s.Parent] {
			t.Fatalf("%q is a part of %q, which is not there", s.ID, s.Parent)
		}
	}
	for _, s := range got.Path {
		if (s.Wait == nil) != (s.Class != Waiting) || s.Wait == nil && !ids[s.Span] || s.Wait != nil && !ids[s.Wait.Before] || stageIndex(s.Stage) < 0 {
			t.Fatalf("a step is none: %+v", s)
		}
	}
	var sum wire.Micros
	for _, s := range Stages(got) {
		sum += s.OnPath
	}
	if sum != got.End-got.Origin {
		t.Fatalf("the stages add up to %d, the boot took %d", sum, got.End-got.Origin)
	}
	for _, a := range got.Advice {
		if a.Saves < 0 || a.Saves > got.End-got.Origin || a.Do == "" || a.What == "" {
			t.Fatalf("advice %+v of a boot of %d", a, got.End-got.Origin)
		}
		for _, id := range a.Spans {
			if !ids[id] {
				t.Fatalf("advice about %q, which is not there", id)
			}
		}
	}
	if _, err := json.Marshal(got); err != nil {
		t.Fatal(err)
	}
}

func TestRandomReports(t *testing.T) {
	for seed := range int64(3000) {
		rnd := rand.New(rand.NewSource(seed))
		r, c := randomReport(rnd)
		if err := r.Validate(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { checkBoot(t, r, c) })
		if t.Failed() {
			return
		}
	}
}

// The largest report that wire takes is analysed: a chain of all units with waits
// between them, and spans beside each other. With a square of their number
// anywhere, the test would run into its deadline.
func TestLargestReport(t *testing.T) {
	r := wire.BootReport{Version: wire.BootReportVersion, System: wire.SystemTimes{Userspace: second}}
	for i := range wire.MaxBootUnits {
		start := second + wire.Micros(i)*3000
		u := wire.BootUnit{Name: fmt.Sprintf("u%d.service", i), Activating: start, Activated: start + 1000}
		for k := max(0, i-8); k < i; k++ {
			u.After = append(u.After, r.Units[k].Name)
		}
		r.Units = append(r.Units, u)
	}
	for i := range wire.MaxBootSpans {
		start := second + wire.Micros(i)*1500
		s := wire.BootSpan{Source: []string{"cse", "aks", "containerd"}[i%3], Name: fmt.Sprintf("pull/%d", i/100), Clock: wire.ClockMonotonic, Start: start, End: start + 100*second}
		r.Spans = append(r.Spans, s)
	}
	r.System.Finish = r.Units[len(r.Units)-1].Activated
	got := Build(r, Cloud{})
	checkTiled(t, got)
	if len(got.Path) < wire.MaxBootUnits {
		t.Errorf("%d steps", len(got.Path))
	}
}

func FuzzBuild(f *testing.F) {
	for seed := range int64(8) {
		r, _ := randomReport(rand.New(rand.NewSource(seed)))
		text, err := json.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, int64(1700000000), int64(1700000040))
	}
	f.Fuzz(func(t *testing.T, text []byte, created, ready int64) {
		r, err := wire.ParseBootReport(text)
		if err != nil {
			return
		}
		var c Cloud
		if created > 0 {
			c.Created = time.Unix(created, 0)
		}
		if ready > 0 {
			c.NodeReady = time.Unix(ready, 0)
		}
		checkBoot(t, r, c)
	})
}
