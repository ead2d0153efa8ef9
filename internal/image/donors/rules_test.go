package donors_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/donors"
)

const patched = "example.com/patched"

var now = time.Date(2026, 11, 26, 0, 42, 0, 0, time.UTC)

// aPool has n good nodes n0, n1, … alike in everything; n0 is Ready the longest, and its
// newest version is six days old.
func aPool(n int) donors.Pool {
	p := donors.Pool{ID: "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/pool1",
		Newest: time.Date(2026, 11, 20, 1, 0, 0, 0, time.UTC), NewestName: "2026.11.20"}
	for i := range n {
		made := now.Add(-time.Hour * time.Duration(100-i))
		p.Members = append(p.Members, donors.Member{Created: made, Node: fleet.Node{
			Name: fmt.Sprintf("n%d", i), Ready: true, ReadySince: made.Add(3 * time.Minute), Created: made.Add(100 * time.Second),
			Annotations: map[string]string{patched: "2026-11-25T12:00:00Z"},
			OSImage:     "Ubuntu 22.04.4 LTS", Kernel: "5.15.0-1057-azure", Runtime: "containerd://1.7.12",
			Conditions: []fleet.Condition{{Type: "ortet.io/BootSucceeded", Status: "True"}, {Type: "MemoryPressure", Status: "False"},
				{Type: "NetworkReady", Status: "True"}, {Type: "ConfigurationApplied", Status: "True"}},
		}})
	}
	return p
}

func policy() donors.Policy {
	return donors.Policy{PatchAnnotation: patched, RebootAnnotation: "example.com/reboot", MinReady: time.Hour}
}

func condition(m *donors.Member, c fleet.Condition) {
	m.Node.Conditions = slices.DeleteFunc(slices.Clone(m.Node.Conditions), func(x fleet.Condition) bool { return x.Type == c.Type })
	m.Node.Conditions = append(m.Node.Conditions, c)
}

// row is one reason: what is changed of the first of so many nodes, or of the pool and the policy.
type row struct {
	name   string
	nodes  int // 0 means 4
	change func(m *donors.Member, pool *donors.Pool, p *donors.Policy)
	// The rule that disqualifies n0 and a part of its reason; or the rule that is
	// unknown, and a part of why.
	rule, reason, unknown string
}

type (
	member = *donors.Member
	pool   = *donors.Pool
	pol    = *donors.Policy
)

var rows = []row{
	{name: "cordoned", change: func(m member, _ pool, _ pol) { m.Node.Unschedulable = true }, rule: "schedulable", reason: "cordoned"},
	{name: "control plane", change: func(m member, _ pool, _ pol) { m.Node.ControlPlane = true }, rule: "control-plane", reason: "control plane node"},
	{name: "the job's own node", change: func(_ member, _ pool, p pol) { p.Self = "n0" }, rule: "self", reason: "this process runs on it"},
	{name: "pending reboot", change: func(m member, _ pool, _ pol) { m.Node.Annotations["example.com/reboot"] = "" }, rule: "reboot", reason: "example.com/reboot"},
	{name: "kured reboots it", change: func(m member, _ pool, p pol) {
		p.RebootAnnotation = ""
		m.Node.Annotations[fleet.AnnotationKuredReboot] = "2026-11-25"
	}, rule: "reboot", reason: fleet.AnnotationKuredReboot},
	{name: "patched on the version's day", change: func(m member, _ pool, _ pol) { m.Node.Annotations[patched] = "2026-11-20T23:59:00Z" },
		rule: "patch", reason: "last patch 2026-11-20 is not after version 2026.11.20"},
	{name: "version of another name", change: func(m member, p pool, _ pol) {
		m.Node.Annotations[patched] = "2026-11-19"
		p.NewestName = "1.0.7"
	}, rule: "patch", reason: "is not after version 1.0.7 (2026-11-20)"},
	{name: "the next day elsewhere, the version's in UTC", change: func(m member, _ pool, _ pol) { m.Node.Annotations[patched] = "2026-11-21T01:00:00+02:00" },
		rule: "patch", reason: "last patch 2026-11-20"},
	{name: "patched tomorrow", change: func(m member, _ pool, _ pol) { m.Node.Annotations[patched] = "2026-11-27" }, rule: "patch", reason: "last patch 2026-11-27 is in the future"},
	{name: "patched tomorrow, no version", change: func(m member, p pool, _ pol) {
		m.Node.Annotations[patched] = "2026-11-27"
		p.Newest, p.NewestName = time.Time{}, ""
	}, rule: "patch", reason: "in the future"},
	{name: "no patch annotation", change: func(m member, _ pool, _ pol) { delete(m.Node.Annotations, patched) }, rule: "patch", reason: "patch annotation " + patched + " is missing"},
	{name: "patch annotation without a date", change: func(m member, _ pool, _ pol) { m.Node.Annotations[patched] = "last Tuesday" }, rule: "patch", reason: "has no date: \"last Tuesday\""},
	{name: "patch annotation with an impossible date", change: func(m member, _ pool, _ pol) { m.Node.Annotations[patched] = "2026-13-32" }, rule: "patch", reason: "has no date"},
	{name: "not Ready", change: func(m member, _ pool, _ pol) { m.Node.Ready, m.Node.NotReadyWhy = false, "KubeletNotReady" }, rule: "ready", reason: "not Ready: KubeletNotReady"},
	{name: "stopped", change: func(m member, _ pool, _ pol) { m.Node.Ready, m.Power = false, fleet.PowerDeallocated }, rule: "ready", reason: "its instance is deallocated"},
	{name: "not Ready for long enough", change: func(m member, _ pool, _ pol) { m.Node.ReadySince = now.Add(-12 * time.Minute) }, rule: "ready", reason: "Ready for 12m, 1h is needed"},
	{name: "donor of a capture", change: func(m member, _ pool, _ pol) { m.Node.Annotations[fleet.AnnotationCapture] = "c1" }, rule: "in-use", reason: "in use by a capture (annotation ortet.io/capture)"},
	{name: "workbench of a capture", change: func(m member, _ pool, _ pol) {
		m.Node.Annotations[fleet.AnnotationWorkbench] = "/subscriptions/s/x/pool2"
	}, rule: "in-use", reason: "ortet.io/workbench"},
	{name: "ignored by name", change: func(_ member, _ pool, p pol) { p.IgnoreNodes = []string{"n9", "n0"} }, rule: "ignored", reason: "its name is ignored"},
	{name: "ignored by annotation", change: func(m member, _ pool, p pol) {
		m.Node.Annotations["example.com/keep"] = "false"
		p.IgnoreAnnotations = []string{"example.com/keep"}
	}, rule: "ignored", reason: "example.com/keep"},
	{name: "its boot failed", change: func(m member, _ pool, _ pol) {
		condition(m, fleet.Condition{Type: "ortet.io/BootSucceeded", Status: "False", Reason: "UnitFailed"})
	}, rule: "verdict", reason: "UnitFailed"},
	{name: "its boot is not judged yet", change: func(m member, _ pool, _ pol) {
		condition(m, fleet.Condition{Type: "ortet.io/BootSucceeded", Status: "Unknown", Reason: "Booting"})
	}, rule: "verdict", unknown: "not judged yet: Booting"},
	{name: "no controller", change: func(m member, _ pool, _ pol) { m.Node.Conditions = nil }, rule: "verdict", unknown: "no ortet controller"},
	{name: "a taint of its own", change: func(m member, _ pool, _ pol) {
		m.Node.Taints = []fleet.Taint{{Key: "DeletionCandidateOfClusterAutoscaler", Value: "1", Effect: "PreferNoSchedule"}}
	}, rule: "taints", reason: "taint DeletionCandidateOfClusterAutoscaler=1:PreferNoSchedule, which 0 of 3 siblings have"},
	{name: "a taint of few", nodes: 6, change: func(_ member, p pool, _ pol) {
		for i := range 3 {
			p.Members[i].Node.Taints = []fleet.Taint{{Key: "gpu", Effect: "NoSchedule"}}
		}
	}, rule: "taints", reason: "taint gpu:NoSchedule, which 2 of 5 siblings have"},
	{name: "no siblings for taints", nodes: 1, rule: "taints", unknown: "no other node"},
	{name: "pressure, as everywhere", change: func(_ member, p pool, _ pol) {
		for i := range p.Members {
			condition(&p.Members[i], fleet.Condition{Type: "DiskPressure", Status: "True", Reason: "KubeletHasDiskPressure"})
		}
	}, rule: "conditions", reason: "DiskPressure: KubeletHasDiskPressure"},
	{name: "configuration refused", change: func(m member, _ pool, _ pol) {
		condition(m, fleet.Condition{Type: "ConfigurationApplied", Status: "False", Reason: "Refused"})
	}, rule: "conditions", reason: "configuration is not applied: Refused"},
	{name: "a condition of its own", change: func(m member, _ pool, _ pol) {
		condition(m, fleet.Condition{Type: "KernelDeadlock", Status: "Unknown"})
	}, rule: "conditions", reason: "condition KernelDeadlock, which 0 of 3 siblings have"},
	{name: "no siblings for conditions", nodes: 1, rule: "conditions", unknown: "no other node"},
	{name: "an older kernel", change: func(m member, _ pool, _ pol) { m.Node.Kernel = "5.15.0-999-azure" }, rule: "kernel", reason: "5.15.0-999-azure; most nodes have 5.15.0-1057-azure"},
	{name: "kernel not reported", change: func(m member, _ pool, _ pol) { m.Node.Kernel = "" }, rule: "kernel", unknown: "does not report it"},
	{name: "as many with a newer kernel", change: func(_ member, p pool, _ pol) {
		p.Members[2].Node.Kernel, p.Members[3].Node.Kernel = "6.5.0-1010-azure", "6.5.0-1010-azure"
	}, rule: "kernel", reason: "most nodes have 6.5.0-1010-azure"},
	{name: "an older OS image", change: func(m member, _ pool, _ pol) { m.Node.OSImage = "Ubuntu 22.04.3 LTS" }, rule: "os-image", reason: "Ubuntu 22.04.3 LTS; most nodes have Ubuntu 22.04.4 LTS"},
	{name: "another OS", change: func(m member, _ pool, _ pol) { m.Node.OSImage = "Microsoft Azure Linux 3.0" }, rule: "os-image", reason: "Azure Linux 3.0; most"},
	{name: "OS image not reported", change: func(m member, _ pool, _ pol) { m.Node.OSImage = "" }, rule: "os-image", unknown: "does not report it"},
	{name: "an older runtime", change: func(m member, _ pool, _ pol) { m.Node.Runtime = "containerd://1.7.2" }, rule: "runtime", reason: "containerd://1.7.2; most nodes have containerd://1.7.12"},
	{name: "another runtime", change: func(m member, _ pool, _ pol) { m.Node.Runtime = "cri-o://1.29.1" }, rule: "runtime", reason: "cri-o://1.29.1"},
	{name: "runtime not reported", change: func(m member, _ pool, _ pol) { m.Node.Runtime = "" }, rule: "runtime", unknown: "does not report it"},
	{name: "the slowest of ten", nodes: 10, change: func(m member, _ pool, _ pol) { m.Node.Created = m.Created.Add(212 * time.Second) },
		rule: "boot-time", reason: "its boot took 212s; 9 of 10 nodes took at most 100s"},
	{name: "instance's age not known", change: func(m member, _ pool, _ pol) { m.Created = time.Time{} }, rule: "boot-time", unknown: "not known"},
	{name: "reimaged a day later", change: func(m member, _ pool, _ pol) { m.Node.Created = m.Created.Add(25 * time.Hour) }, rule: "boot-time", unknown: "not known"},
}

func (r row) choose(off ...string) donors.Candidate {
	p, policy := aPool(max(r.nodes, 4)), policy()
	if r.nodes == 1 {
		p = aPool(1)
	}
	if r.change != nil {
		r.change(&p.Members[0], &p, &policy)
	}
	policy.Off = off
	for _, c := range donors.Choose(p, policy, now).Candidates {
		if c.Node == "n0" {
			return c
		}
	}
	return donors.Candidate{}
}

func TestEachReason(t *testing.T) {
	disqualifies, unknown := map[string]bool{}, map[string]bool{}
	ours := map[string]bool{}
	for _, r := range donors.Rules() {
		ours[r.Name] = r.Ours
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			c := r.choose()
			if r.unknown != "" {
				unknown[r.rule] = true
				if !c.Eligible || !has(c.Unknown, r.rule, r.unknown) {
					t.Errorf("want an eligible node with %s unknown (%s), got %+v", r.rule, r.unknown, c)
				}
			} else {
				disqualifies[r.rule] = true
				if c.Eligible || len(c.Reasons) != 1 || c.Reasons[0].Rule != r.rule || !strings.Contains(c.Reasons[0].Text, r.reason) {
					t.Errorf("want only %s: …%s…, got %+v", r.rule, r.reason, c)
				}
			}
			if !ours[r.rule] {
				return
			}
			if c := r.choose(r.rule); !c.Eligible || has(c.Unknown, r.rule, "") {
				t.Errorf("with %s off, got %+v", r.rule, c)
			}
		})
	}
	for _, r := range donors.Rules() {
		if !disqualifies[r.Name] {
			t.Errorf("no row has rule %s disqualify a node", r.Name)
		}
		if r.Ours && r.Name != "ignored" && !unknown[r.Name] {
			t.Errorf("no row has rule %s unknown", r.Name)
		}
	}
}

func has(reasons []donors.Reason, rule, part string) bool {
	return slices.ContainsFunc(reasons, func(r donors.Reason) bool { return r.Rule == rule && strings.Contains(r.Text, part) })
}

func TestAPointReleaseIsNewer(t *testing.T) {
	for most, newer := range map[string]string{
		"Ubuntu 24.04 LTS":                 "Ubuntu 24.04.1 LTS",
		"4.18.0-553.el8_10.x86_64":         "4.18.0-553.5.1.el8_10.x86_64",
		"5.14.0-427.el9.x86_64":            "5.14.0-427.13.1.el9_4.x86_64",
		"5.15.0-999-azure":                 "5.15.0-1057-azure",
		"containerd://1.7.9":               "containerd://1.7.12",
		"Red Hat Enterprise Linux 8 (Oo)":  "Red Hat Enterprise Linux 8.10 (Oo)",
		"containerd://1.7.12-1":            "containerd://1.7.12-1.1",
		"Flatcar Container Linux 3975.2.1": "Flatcar Container Linux 3975.2.1-2",
	} {
		p := aPool(4)
		set := func(i int, v string) { p.Members[i].Node.OSImage = v }
		for i := range p.Members {
			set(i, most)
		}
		set(0, newer)
		if c := donors.Choose(p, policy(), now); c.Donor != "n0" {
			t.Errorf("%q among %q: donor %s, %+v", newer, most, c.Donor, c.Candidates[3].Reasons)
		}
		for i := range p.Members {
			set(i, newer)
		}
		set(0, most)
		if c := donors.Choose(p, policy(), now); c.Donor == "n0" {
			t.Errorf("%q is a donor among %q", most, newer)
		}
	}
}
