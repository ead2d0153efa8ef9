package donors

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// The types of conditions that ortet itself sets on Nodes.
const (
	conditionVerdict       = "ortet.io/BootSucceeded" // the controller's
	conditionConfiguration = "ConfigurationApplied"   // the agent's
)

// A check gives why a node does not qualify, or why that cannot be judged; both are ""
// where it qualifies.
type check func(s *statistics, m *Member) (reason, unknown string)

type row struct {
	Rule
	check check
}

func table() []row {
	return []row{
		{Rule{"schedulable", "not cordoned", false}, schedulable},
		{Rule{"control-plane", "no control plane node", false}, controlPlane},
		{Rule{"self", "not the node that this process runs on", false}, self},
		{Rule{"reboot", "no reboot is pending", false}, reboot},
		{Rule{"patch", "patched on a later day than the newest version was made", false}, patch},
		{Rule{"ready", "Ready, and long enough", false}, ready},
		{Rule{"in-use", "not the donor or workbench of a capture", false}, inUse},
		{Rule{"ignored", "not ignored by its name or an annotation", true}, ignored},
		{Rule{"verdict", "its boot succeeded", true}, verdict},
		{Rule{"taints", "no taint that most nodes of the pool lack", true}, taints},
		{Rule{"conditions", "no pressure, and no condition that most nodes of the pool lack", true}, conditions},
		{Rule{"kernel", "the kernel of most nodes of the pool, or a newer one", true}, kernel},
		{Rule{"os-image", "the OS image of most nodes of the pool, or a newer one", true}, osImage},
		{Rule{"runtime", "the container runtime of most nodes of the pool, or a newer one", true}, runtime},
		{Rule{"boot-time", "booted as fast as 90% of the pool's nodes", true}, bootTime},
	}
}

// Rules are the rules, in the order in which reasons are given.
func Rules() []Rule {
	var rules []Rule
	for _, r := range table() {
		rules = append(rules, r.Rule)
	}
	return rules
}

// Check reports the first value of the policy that makes no sense.
func (p Policy) Check() error {
	switch {
	case p.MinReady < 0:
		return fmt.Errorf("minimum ready time %s is negative; give 0 or more", p.MinReady)
	case p.MinCandidates < 0:
		return fmt.Errorf("minimum number of candidates %d is negative; give 1 or more", p.MinCandidates)
	case p.MaxImageAge < 0:
		return fmt.Errorf("maximum image age %d is negative; give days, or 0 for none", p.MaxImageAge)
	}
	rules := Rules()
	for _, name := range p.Off {
		i := slices.IndexFunc(rules, func(r Rule) bool { return r.Name == name })
		if i >= 0 && rules[i].Ours {
			continue
		}
		why := "it does not exist"
		if i >= 0 {
			why = "it always applies"
		}
		var ours []string
		for _, r := range rules {
			if r.Ours {
				ours = append(ours, r.Name)
			}
		}
		return fmt.Errorf("cannot switch off rule %q: %s; rules that can be switched off: %s", name, why, strings.Join(ours, ", "))
	}
	return nil
}

func schedulable(_ *statistics, m *Member) (string, string) {
	return when(m.Node.Unschedulable, "cordoned")
}

func controlPlane(_ *statistics, m *Member) (string, string) {
	return when(m.Node.ControlPlane, "control plane node")
}

func self(s *statistics, m *Member) (string, string) {
	return when(s.policy.Self != "" && m.Node.Name == s.policy.Self, "this process runs on it")
}

func reboot(s *statistics, m *Member) (string, string) {
	for _, key := range []string{s.policy.RebootAnnotation, fleet.AnnotationKuredReboot} {
		if _, ok := m.Node.Annotations[key]; ok && key != "" {
			return "annotation " + key + ": a reboot is pending", ""
		}
	}
	return "", ""
}

func patch(s *statistics, m *Member) (string, string) {
	key := s.policy.PatchAnnotation
	if key == "" {
		return "", ""
	}
	text, ok := m.Node.Annotations[key]
	date, valid := dateIn(text)
	switch day := date.Format(time.DateOnly); {
	case !ok:
		return "patch annotation " + key + " is missing", ""
	case !valid:
		return fmt.Sprintf("patch annotation %s has no date: %.40q", key, text), ""
	case date.After(dayOf(s.now)):
		return "last patch " + day + " is in the future", ""
	case !s.pool.Newest.IsZero() && !date.After(dayOf(s.pool.Newest)):
		return "last patch " + day + " is not after " + s.pool.version(), ""
	}
	return "", ""
}

func ready(s *statistics, m *Member) (string, string) {
	if !m.Node.Ready {
		why := m.Node.NotReadyWhy
		if why != "" {
			why = ": " + why
		}
		return "not Ready" + why, ""
	}
	d := s.readyFor(m)
	return when(d < s.policy.MinReady, "Ready for "+short(d)+", "+short(s.policy.MinReady)+" is needed")
}

func inUse(_ *statistics, m *Member) (string, string) {
	if name, ok := m.Node.Annotations[fleet.AnnotationCapture]; ok {
		return "donor of capture " + name, ""
	}
	if pool, ok := m.Node.Annotations[fleet.AnnotationWorkbench]; ok {
		return "workbench of a capture of " + fleet.ResourceID(pool).Name(), ""
	}
	return "", ""
}

func ignored(s *statistics, m *Member) (string, string) {
	if slices.Contains(s.policy.IgnoreNodes, m.Node.Name) {
		return "its name is ignored", ""
	}
	for _, key := range s.policy.IgnoreAnnotations {
		if _, ok := m.Node.Annotations[key]; ok {
			return "annotation " + key + " is ignored", ""
		}
	}
	return "", ""
}

func verdict(_ *statistics, m *Member) (string, string) {
	for _, c := range m.Node.Conditions {
		switch {
		case c.Type != conditionVerdict:
		case c.Status == "True":
			return "", ""
		case c.Status == "False":
			return "its boot did not succeed: " + c.Reason, ""
		default:
			return "", "its boot is not judged yet: " + c.Reason
		}
	}
	return "", "no ortet controller judges boots"
}

func taints(s *statistics, m *Member) (string, string) {
	var odd []string
	for t := range taintsOf(m) {
		if reason := s.rare(t, s.taints[t]); reason != "" {
			odd = append(odd, reason)
		}
	}
	return s.compared("taint ", odd)
}

func conditions(s *statistics, m *Member) (string, string) {
	var odd []string
	for _, c := range m.Node.Conditions {
		switch {
		case c.Type == conditionConfiguration && c.Status == "False":
			return "configuration is not applied: " + c.Reason, ""
		case pressure(c.Type) && c.Status == "True":
			return c.Type + ": " + c.Reason, ""
		}
	}
	for t := range conditionsOf(m) {
		if reason := s.rare(t, s.conditions[t]); reason != "" {
			odd = append(odd, reason)
		}
	}
	return s.compared("condition ", odd)
}

func kernel(s *statistics, m *Member) (string, string) {
	return asMost(m.Node.Kernel, s.kernel)
}

func osImage(s *statistics, m *Member) (string, string) {
	return asMost(m.Node.OSImage, s.osImage)
}

func runtime(s *statistics, m *Member) (string, string) {
	return asMost(m.Node.Runtime, s.runtime)
}

func bootTime(s *statistics, m *Member) (string, string) {
	d := bootOf(m)
	if d == 0 {
		return "", "when its instance was made, or its Node first registered, is not known"
	}
	return when(d > s.p90, fmt.Sprintf("its boot took %s; %d of %d nodes took at most %s", short(d), rank90(s.boots), s.boots, short(s.p90)))
}

func when(bad bool, reason string) (string, string) {
	if bad {
		return reason, ""
	}
	return "", ""
}
