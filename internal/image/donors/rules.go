package donors

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// conditionConfiguration is the type of the agent's condition on Nodes.
const conditionConfiguration = "ConfigurationApplied"

type row struct {
	Rule
	// check gives why a node does not qualify, or why that is unknown; both are ""
	// where it qualifies.
	check func(s *statistics, m *Member) (reason, unknown string)
}

func table() []row {
	return []row{
		{Rule{"schedulable", "not cordoned", false},
			func(_ *statistics, m *Member) (string, string) { return when(m.Node.Unschedulable, "cordoned") }},
		{Rule{"control-plane", "no control plane node", false}, func(_ *statistics, m *Member) (string, string) {
			return when(m.Node.ControlPlane, "control plane node")
		}},
		{Rule{"self", "not the node that this process runs on", false}, func(s *statistics, m *Member) (string, string) {
			return when(s.policy.Self != "" && m.Node.Name == s.policy.Self, "this process runs on it")
		}},
		{Rule{"reboot", "no reboot is pending", false}, func(s *statistics, m *Member) (string, string) {
			key := annotated(m, s.policy.RebootAnnotation, fleet.AnnotationKuredReboot)
			return when(key != "", "annotation "+key+": a reboot is pending")
		}},
		{Rule{"patch", "patched on a later day than the newest version was made", false}, patch},
		{Rule{"ready", "Ready, and long enough", false}, ready},
		{Rule{"in-use", "not the donor or workbench of a capture", false}, func(_ *statistics, m *Member) (string, string) {
			key := annotated(m, fleet.AnnotationCapture, fleet.AnnotationWorkbench)
			return when(key != "", "in use by a capture (annotation "+key+")")
		}},
		{Rule{"ignored", "not ignored by its name or an annotation", true}, func(s *statistics, m *Member) (string, string) {
			if slices.Contains(s.policy.IgnoreNodes, m.Node.Name) {
				return "its name is ignored", ""
			}
			key := annotated(m, s.policy.IgnoreAnnotations...)
			return when(key != "", "annotation "+key+" is ignored")
		}},
		{Rule{"verdict", "its boot succeeded", true}, verdict},
		{Rule{"taints", "no taint that most nodes of the pool lack", true},
			func(s *statistics, m *Member) (string, string) { return s.siblings("taint", s.taints, taintsOf(m)) }},
		{Rule{"conditions", "no pressure, and no condition that most nodes of the pool lack", true}, conditions},
		{Rule{"kernel", "the kernel of most nodes of the pool, or a newer one", true},
			func(s *statistics, m *Member) (string, string) { return asMost(m.Node.Kernel, s.kernel) }},
		{Rule{"os-image", "the OS image of most nodes of the pool, or a newer one", true},
			func(s *statistics, m *Member) (string, string) { return asMost(m.Node.OSImage, s.osImage) }},
		{Rule{"runtime", "the container runtime of most nodes of the pool, or a newer one", true},
			func(s *statistics, m *Member) (string, string) { return asMost(m.Node.Runtime, s.runtime) }},
		{Rule{"boot-time", "booted as fast as 90% of the pool's nodes", true}, func(s *statistics, m *Member) (string, string) {
			d := bootOf(m)
			if d == 0 {
				return "", "when its instance was made, or its Node first registered, is not known"
			}
			return when(d > s.p90, fmt.Sprintf("its boot took %s; %d of %d nodes took at most %s", short(d), s.rank, s.boots, short(s.p90)))
		}},
	}
}

// Rules are the rules, in the order in which reasons are given.
func Rules() []Rule { return fleet.Each(table(), func(r row) Rule { return r.Rule }) }

// Check reports the first value of the policy that makes no sense.
func (p Policy) Check() error {
	switch {
	case p.MinReady < 0:
		return fmt.Errorf("cannot use minimum ready time %s: it is negative; give 0 or more", p.MinReady)
	case p.MinCandidates < 0:
		return fmt.Errorf("cannot use minimum candidates %d: it is negative; give 1 or more", p.MinCandidates)
	case p.MaxImageAge < 0:
		return fmt.Errorf("cannot use maximum image age %d: it is negative; give 0 or more days", p.MaxImageAge)
	}
	why, ours := map[string]string{}, []string{}
	for _, r := range Rules() {
		if why[r.Name] = "it always applies"; r.Ours {
			why[r.Name] = ""
			ours = append(ours, r.Name)
		}
	}
	for _, name := range p.Off {
		if reason, known := why[name]; !known || reason != "" {
			return fmt.Errorf("cannot switch off rule %q: %s; give one of %s", name, cmp.Or(reason, "it does not exist"), strings.Join(ours, ", "))
		}
	}
	return nil
}

func when(bad bool, reason string) (string, string) {
	if bad {
		return reason, ""
	}
	return "", ""
}

// annotated is the first of the keys that the node is annotated with; "" where it is not.
func annotated(m *Member, keys ...string) string {
	for _, key := range keys {
		if _, ok := m.Node.Annotations[key]; ok {
			return key
		}
	}
	return ""
}

func patch(s *statistics, m *Member) (reason, unknown string) {
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

func ready(s *statistics, m *Member) (reason, unknown string) {
	switch m.Power {
	case fleet.PowerStopped, fleet.PowerStopping, fleet.PowerDeallocated, fleet.PowerDeallocating:
		return "its instance is " + string(m.Power), ""
	}
	if !m.Node.Ready {
		return strings.TrimSuffix("not Ready: "+m.Node.NotReadyWhy, ": "), ""
	}
	d := s.now.Sub(m.Node.ReadySince)
	return when(d < s.policy.MinReady, "Ready for "+short(d)+", "+short(s.policy.MinReady)+" is needed")
}

func verdict(_ *statistics, m *Member) (reason, unknown string) {
	for _, c := range m.Node.Conditions {
		switch {
		case c.Type != fleet.ConditionBootSucceeded:
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

func conditions(s *statistics, m *Member) (reason, unknown string) {
	for _, c := range m.Node.Conditions {
		switch {
		case c.Type == conditionConfiguration && c.Status == "False":
			return "configuration is not applied: " + c.Reason, ""
		case pressure(c.Type) && c.Status == "True":
			return c.Type + ": " + c.Reason, ""
		}
	}
	return s.siblings("condition", s.conditions, conditionsOf(m))
}
