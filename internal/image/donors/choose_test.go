package donors_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/donors"
)

func annotate(p pool, dates ...string) {
	for i := range p.Members {
		delete(p.Members[i].Node.Annotations, patched)
		if i < len(dates) && dates[i] != "" {
			p.Members[i].Node.Annotations[patched] = dates[i]
		}
	}
}

func made(p pool, name string) {
	p.Newest, p.NewestName = time.Time{}, name
	if name != "" {
		p.Newest, _ = time.Parse("2006.01.02", name)
	}
}

// TestWhenDue has four nodes; n0 is Ready the longest.
func TestWhenDue(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(p pool, o pol)
		donor   string // "" where not due
		because string
	}{
		{"all patched", func(pool, pol) {}, "n0", "patched 2026-11-25, after version 2026.11.20"},
		{"the longest Ready of those patched", func(p pool, _ pol) { annotate(p, "", "2026-11-20", "2026-11-21", "2026-11-25") }, "n2", "patched 2026-11-21, after"},
		{"patched today", func(p pool, _ pol) { annotate(p, "2026-11-26T00:10:00Z") }, "n0", "patched 2026-11-26"},
		{"a date within a text", func(p pool, _ pol) { annotate(p, "unattended-upgrades: 2026-11-22 04:12") }, "n0", "patched 2026-11-22"},
		{"patched on the version's day", func(p pool, _ pol) { annotate(p, "2026-11-20T23:00:00Z") }, "",
			"0 of 4 nodes qualify, 1 is needed; disqualified by patch: 4"},
		{"patched, no version", func(p pool, _ pol) { made(p, "") }, "n0", "patched 2026-11-25, no version yet"},
		{"not patched, no version", func(p pool, _ pol) { annotate(p); made(p, "") }, "", "0 of 4 nodes qualify, 1 is needed; disqualified by patch: 4"},
		{"not patched, no version, a maximum age", func(p pool, o pol) { annotate(p); made(p, ""); o.MaxImageAge = 7 }, "n0", "no version yet"},
		{"patched in the future, no version", func(p pool, _ pol) {
			annotate(p, "2026-11-27", "2027-01-01", "2026-12-01", "2026-11-28")
			made(p, "")
		}, "", "disqualified by patch: 4"},
		{"not patched, as old as allowed", func(p pool, o pol) { annotate(p); made(p, "2026.11.19"); o.MaxImageAge = 7 }, "", "disqualified by patch: 4"},
		{"not patched, older than allowed", func(p pool, o pol) { annotate(p); made(p, "2026.11.18"); o.MaxImageAge = 7 }, "n0",
			"version 2026.11.18 is 8 days old, more than 7"},
		{"one patched, older than allowed", func(p pool, o pol) {
			annotate(p, "", "2026-11-24")
			made(p, "2026.11.18")
			o.MaxImageAge = 7
		}, "n1", "patched 2026-11-24"},
		{"too few patched", func(p pool, o pol) { annotate(p, "2026-11-25", "2026-11-25"); o.MinCandidates = 3 }, "",
			"2 of 4 nodes qualify, 3 are needed; disqualified by patch: 2"},
		{"too few patched, older than allowed", func(p pool, o pol) {
			annotate(p, "", "2026-11-25")
			made(p, "2026.11.18")
			o.MinCandidates, o.MaxImageAge = 2, 7
		}, "n0", "8 days old"},
		{"too few, older than allowed", func(p pool, o pol) {
			annotate(p)
			made(p, "2026.11.18")
			o.MaxImageAge, o.MinCandidates = 7, 4
			p.Members[0].Node.Unschedulable = true
		}, "", "3 of 4 nodes qualify, 4 are needed; disqualified by schedulable: 1"},
		{"no annotation named", func(_ pool, o pol) { o.PatchAnnotation = "" }, "", "version 2026.11.20 is there, and no maximum image age is set"},
		{"no annotation named, a maximum age", func(_ pool, o pol) { o.PatchAnnotation, o.MaxImageAge = "", 6 }, "", "version 2026.11.20 is 6 days old, not more than 6"},
		{"no annotation named, older than allowed", func(_ pool, o pol) { o.PatchAnnotation, o.MaxImageAge = "", 5 }, "n0", "version 2026.11.20 is 6 days old, more than 5"},
		{"no annotation named, no version", func(p pool, o pol) { o.PatchAnnotation = ""; made(p, "") }, "n0", "no version yet"},
		{"no annotation named, no version, none qualifies", func(p pool, o pol) { o.PatchAnnotation = ""; made(p, ""); o.MinReady = 1000 * time.Hour }, "",
			"0 of 4 nodes qualify, 1 is needed; disqualified by ready: 4"},
		{"no nodes", func(p pool, o pol) { o.PatchAnnotation = ""; made(p, ""); p.Members = nil }, "", "0 of 0 nodes qualify, 1 is needed"},
		{"a newer kernel, OS image and runtime", func(p pool, _ pol) {
			n := &p.Members[0].Node
			n.Kernel, n.OSImage, n.Runtime = "5.15.0-1060-azure", "Ubuntu 22.04.10 LTS", "containerd://2.0.0"
		}, "n0", "patched"},
		{"a slow boot in a small pool", func(p pool, _ pol) { p.Members[0].Node.Created = p.Members[0].Created.Add(20 * time.Minute) }, "n0", "patched"},
		{"a taint of half of the siblings", func(p pool, _ pol) {
			p.Members = slices.Concat(p.Members, aPool(5).Members[4:])
			for i := range 3 {
				p.Members[i].Node.Taints = []fleet.Taint{{Key: "gpu", Effect: "NoSchedule"}}
			}
		}, "n0", "patched"},
		{"alone", func(p pool, _ pol) { p.Members = p.Members[:1] }, "n0", "patched"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, o := aPool(4), policy()
			c.change(&p, &o)
			got := donors.Choose(p, o, now)
			if got.Donor != c.donor || got.Due != (c.donor != "") || !strings.Contains(got.Because, c.because) || got.Pool != p.ID {
				t.Errorf("due %v, donor %q, because %q; want donor %q, because %q", got.Due, got.Donor, got.Because, c.donor, c.because)
			}
			slices.Reverse(p.Members)
			if again := donors.Choose(p, o, now); !reflect.DeepEqual(got, again) {
				t.Errorf("with the nodes in another order:\n%+v, want\n%+v", again, got)
			}
		})
	}
}

func TestOrderOfCandidates(t *testing.T) {
	p := aPool(5)
	p.Members[0].Node.Unschedulable = true
	p.Members[0].Node.Ready = false
	p.Members[3].Node.ReadySince = p.Members[1].Node.ReadySince.Add(-time.Hour)
	delete(p.Members[4].Node.Annotations, patched)
	var names []string
	choice := donors.Choose(p, policy(), now)
	for _, c := range choice.Candidates {
		names = append(names, c.Node)
	}
	if want := []string{"n3", "n1", "n2", "n0", "n4"}; !slices.Equal(names, want) {
		t.Errorf("candidates %v, want %v", names, want)
	}
	var rules []string
	for _, r := range choice.Candidates[3].Reasons {
		rules = append(rules, r.Rule)
	}
	if want := []string{"schedulable", "ready"}; !slices.Equal(rules, want) {
		t.Errorf("reasons of n0 are %v, want %v", rules, want)
	}
	first := choice.Candidates[0]
	if first.Patched != "2026-11-25" || time.Duration(first.Boot) != 100*time.Second || time.Duration(first.Ready) != 99*time.Hour+57*time.Minute {
		t.Errorf("first candidate is %+v", first)
	}
}

func TestPolicyThatMakesNoSense(t *testing.T) {
	for _, c := range []struct {
		policy donors.Policy
		want   string // "" where it is fine
	}{
		{donors.Policy{}, ""},
		{donors.Policy{Off: []string{"boot-time", "ignored"}}, ""},
		{donors.Policy{Off: []string{"kernel", "reboots"}}, `cannot switch off rule "reboots": it does not exist; give one of ignored, verdict, taints, conditions, kernel, os-image, runtime, boot-time`},
		{donors.Policy{Off: []string{"patch"}}, `cannot switch off rule "patch": it always applies`},
		{donors.Policy{MinReady: -time.Second}, "cannot use minimum ready time -1s"},
		{donors.Policy{MinCandidates: -1}, "minimum candidates -1"},
		{donors.Policy{MaxImageAge: -1}, "maximum image age -1"},
	} {
		err := c.policy.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.policy, err, c.want)
		}
	}
}

// A donor that is raised needs no node that qualifies: any that was patched makes an image due.
func TestWhenDueForARaisedDonor(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(p pool, o pol)
		due     bool
		because string
	}{
		{"one patched, cordoned", func(p pool, _ pol) { annotate(p, "", "2026-11-24"); p.Members[1].Node.Unschedulable = true }, true, "patched 2026-11-24, after version 2026.11.20"},
		{"the newest patch is named", func(p pool, _ pol) { annotate(p, "2026-11-24", "2026-11-25", "2026-11-21") }, true, "patched 2026-11-25"},
		{"patched on the version's day", func(p pool, _ pol) { annotate(p, "2026-11-20T23:00:00Z") }, false, "no maximum image age is set"},
		{"patched in the future", func(p pool, _ pol) { annotate(p, "2026-11-27") }, false, "no maximum image age is set"},
		{"older than allowed", func(p pool, o pol) { annotate(p); made(p, "2026.11.18"); o.MaxImageAge = 7 }, true, "8 days old, more than 7"},
		{"no nodes and no version", func(p pool, _ pol) { made(p, ""); p.Members = nil }, true, "no version yet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, o := aPool(4), policy()
			c.change(&p, &o)
			got := donors.Due(p, o, now)
			if got.Due != c.due || !strings.Contains(got.Because, c.because) || got.Pool != p.ID || got.Donor != "" {
				t.Errorf("due %v, because %q; want %v, because %q", got.Due, got.Because, c.due, c.because)
			}
		})
	}
}
