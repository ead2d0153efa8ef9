package donors

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/ortet/ortet/internal/fleet"
)

// statistics are what the rules compare a node with: its pool, by the policy.
type statistics struct {
	pool                     Pool
	policy                   Policy
	now                      time.Time
	taints, conditions       map[string]int // how many nodes have each
	kernel, osImage, runtime string         // most nodes'
	boots, rank              int            // known boot times, and the rank of p90, from 1
	p90                      time.Duration  // by nearest rank
}

func newStatistics(pool Pool, policy Policy, now time.Time) *statistics {
	s := &statistics{pool: pool, policy: policy, now: now, taints: map[string]int{}, conditions: map[string]int{}}
	var boots []time.Duration
	for i := range pool.Members {
		m := &pool.Members[i]
		for _, t := range taintsOf(m) {
			s.taints[t]++
		}
		for _, t := range conditionsOf(m) {
			s.conditions[t]++
		}
		if d := bootOf(m); d != 0 {
			boots = append(boots, d)
		}
	}
	s.kernel = s.mostFrequent(func(n fleet.Node) string { return n.Kernel })
	s.osImage = s.mostFrequent(func(n fleet.Node) string { return n.OSImage })
	s.runtime = s.mostFrequent(func(n fleet.Node) string { return n.Runtime })
	if s.boots = len(boots); s.boots > 0 {
		slices.Sort(boots)
		s.rank = (9*s.boots + 9) / 10
		s.p90 = boots[s.rank-1]
	}
	return s
}

// siblings returns the reason against what a node has and most others do not; nodes is how
// many have each, with the node itself.
func (s *statistics) siblings(kind string, nodes map[string]int, has []string) (reason, unknown string) {
	others := len(s.pool.Members) - 1
	if others == 0 {
		return "", "no other node of the pool to compare with"
	}
	for _, what := range has {
		if n := nodes[what] - 1; 2*n < others {
			return fmt.Sprintf("%s %s, which %d of %d siblings have", kind, what, n, others), ""
		}
	}
	return "", ""
}

// taintsOf are the taints but those that the rules schedulable and ready stand for.
func taintsOf(m *Member) (taints []string) {
	for _, t := range m.Node.Taints {
		switch t.Key {
		case "node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable":
		default:
			taints = append(taints, strings.TrimSuffix(t.Key+"="+t.Value, "=")+":"+t.Effect)
		}
	}
	return taints
}

// conditionsOf are the types of conditions that are compared with the siblings': those
// that are not False. Pressure is not; it is Unknown only on a node that is not Ready.
func conditionsOf(m *Member) (types []string) {
	for _, c := range m.Node.Conditions {
		if c.Status != "False" && c.Type != conditionConfiguration && !pressure(c.Type) && !strings.HasPrefix(c.Type, "ortet.io/") {
			types = append(types, c.Type)
		}
	}
	return types
}

// pressure is of the conditions that the kubelet, or the network's controller, sets.
func pressure(condition string) bool {
	return slices.Contains([]string{"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"}, condition)
}

// bootOf is how long the instance's boot took; 0 where that is not known. More than an
// hour means that the Node was registered again, or the instance reimaged, later.
func bootOf(m *Member) time.Duration {
	d := m.Node.Created.Sub(m.Created)
	if m.Created.IsZero() || d < 0 || d > time.Hour {
		return 0
	}
	return d
}

func (s *statistics) mostFrequent(of func(fleet.Node) string) (most string) {
	count := map[string]int{}
	for _, m := range s.pool.Members {
		count[of(m.Node)]++
	}
	delete(count, "")
	for _, v := range slices.Sorted(maps.Keys(count)) {
		if d := cmp.Compare(count[v], count[most]); d > 0 || d == 0 && newer(v, most) {
			most = v
		}
	}
	return most
}

// dayOf is the day of a time in UTC.
func dayOf(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }

// dateIn is the day of a time in RFC 3339, in UTC, or else the first date in a text.
func dateIn(text string) (time.Time, bool) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return dayOf(t), true
	}
	for i := 0; i+len(time.DateOnly) <= len(text); i++ {
		if t, err := time.Parse(time.DateOnly, text[i:i+len(time.DateOnly)]); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// version names the newest version, with its date where the name does not have it.
func (p Pool) version() string {
	day := p.Newest.UTC().Format(time.DateOnly)
	text := "version " + p.NewestName
	if !strings.HasPrefix(p.NewestName, strings.ReplaceAll(day, "-", ".")) {
		text += " (" + day + ")"
	}
	if p.RolledBack {
		text += " (rolled back)"
	}
	return text
}

// short writes a duration for a reason: "212s", "12m", "1h30m", "3d04h".
func short(d time.Duration) string {
	switch {
	case d >= 24*time.Hour:
		return strings.TrimSuffix(fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour), "00h")
	case d >= time.Hour:
		return strings.TrimSuffix(fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute), "00m")
	case d >= 10*time.Minute:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

// asMost compares a node's version of something with most nodes'.
func asMost(have, most string) (reason, unknown string) {
	if have == "" {
		return "", "the Node does not report it"
	}
	return when(have != most && !newer(have, most), have+"; most nodes have "+most)
}

// newer reports whether a is a later version than b: the same words with higher numbers,
// or more of them, as "Ubuntu 24.04.1 LTS" and "Ubuntu 24.04 LTS". Other texts have no order.
func newer(a, b string) bool {
	noLetter := func(r rune) bool { return !unicode.IsLetter(r) }
	noDigit := func(r rune) bool { return !unicode.IsDigit(r) }
	if !slices.Equal(strings.FieldsFunc(a, noLetter), strings.FieldsFunc(b, noLetter)) {
		return false
	}
	return slices.CompareFunc(strings.FieldsFunc(a, unicode.IsLetter), strings.FieldsFunc(b, unicode.IsLetter), func(x, y string) int {
		return slices.CompareFunc(strings.FieldsFunc(x, noDigit), strings.FieldsFunc(y, noDigit), func(x, y string) int {
			x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
			return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y))
		})
	}) > 0
}
