package donors

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// Choose judges the nodes of a pool by a policy that Check accepts, and decides whether
// a new image is due.
func Choose(pool Pool, policy Policy, now time.Time) Choice {
	s := newStatistics(pool, policy, now)
	candidates, n := s.judge(policy.Off...)
	need := max(policy.MinCandidates, 1)
	due, because := s.old()
	switch {
	case policy.PatchAnnotation == "":
	case n >= need:
		due, because = true, "patched "+candidates[0].Patched+", no version yet"
		if !pool.Newest.IsZero() {
			because = "patched " + candidates[0].Patched + ", after " + pool.version()
		}
	case due && policy.MaxImageAge > 0:
		candidates, n = s.judge(append([]string{"patch"}, policy.Off...)...)
	default:
		due = true // as soon as enough qualify
	}
	choice := Choice{Pool: pool.ID, Due: due, Because: because, Candidates: candidates}
	switch {
	case due && n < need:
		choice.Due, choice.Because = false, tooFew(candidates, n, need)
	case due:
		choice.Donor = candidates[0].Node
	}
	return choice
}

// Due is Choose for a donor that is raised: no node has to qualify, and any that was patched counts.
func Due(pool Pool, policy Policy, now time.Time) Choice {
	s := newStatistics(pool, policy, now)
	choice := Choice{Pool: pool.ID, Candidates: []Candidate{}}
	choice.Due, choice.Because = s.old()
	newest := dayOf(pool.Newest)
	for _, m := range pool.Members {
		date, ok := dateIn(m.Node.Annotations[policy.PatchAnnotation])
		if ok && !pool.Newest.IsZero() && date.After(newest) && !date.After(dayOf(now)) {
			newest, choice.Due, choice.Because = date, true, "patched "+date.Format(time.DateOnly)+", after "+pool.version()
		}
	}
	return choice
}

// old reports whether the policy wants a new image whatever was patched, and why.
func (s *statistics) old() (old bool, because string) {
	if s.pool.Newest.IsZero() {
		return true, "no version yet"
	}
	version, limit := s.pool.version(), s.policy.MaxImageAge
	days := int(dayOf(s.now).Sub(dayOf(s.pool.Newest)) / (24 * time.Hour))
	switch {
	case limit == 0:
		return false, version + " is there, and no maximum image age is set"
	case days > limit:
		return true, fmt.Sprintf("%s is %s old, more than %d", version, fleet.Count(days, "day"), limit)
	}
	return false, fmt.Sprintf("%s is %s old, not more than %d", version, fleet.Count(days, "day"), limit)
}

// judge returns the candidates in their order, and how many are eligible.
func (s *statistics) judge(off ...string) (candidates []Candidate, eligible int) {
	rules := slices.DeleteFunc(table(), func(r row) bool { return slices.Contains(off, r.Name) })
	candidates = []Candidate{}
	for i := range s.pool.Members {
		m := &s.pool.Members[i]
		c := Candidate{Node: m.Node.Name, Boot: fleet.Duration(bootOf(m))}
		if m.Node.Ready {
			c.Ready = fleet.Duration(s.now.Sub(m.Node.ReadySince))
		}
		if date, ok := dateIn(m.Node.Annotations[s.policy.PatchAnnotation]); ok {
			c.Patched = date.Format(time.DateOnly)
		}
		for _, r := range rules {
			reason, unknown := r.check(s, m)
			if reason != "" {
				c.Reasons = append(c.Reasons, Reason{r.Name, reason})
			}
			if unknown != "" {
				c.Unknown = append(c.Unknown, Reason{r.Name, unknown})
			}
		}
		if c.Eligible = len(c.Reasons) == 0; c.Eligible {
			eligible++
		}
		candidates = append(candidates, c)
	}
	rank := func(c Candidate) fleet.Duration { return map[bool]fleet.Duration{true: c.Ready, false: -1}[c.Eligible] }
	slices.SortFunc(candidates, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(rank(b), rank(a)), cmp.Compare(a.Node, b.Node))
	})
	return candidates, eligible
}

// tooFew names the rules that disqualify the most nodes, at most three.
func tooFew(candidates []Candidate, n, need int) string {
	nodes := map[string]int{}
	for _, c := range candidates {
		for _, r := range c.Reasons {
			nodes[r.Rule]++
		}
	}
	rules := slices.SortedFunc(maps.Keys(nodes), func(a, b string) int {
		return cmp.Or(cmp.Compare(nodes[b], nodes[a]), cmp.Compare(a, b))
	})
	are := map[bool]string{true: "is", false: "are"}[need == 1]
	text := fmt.Sprintf("%d of %d nodes qualify, %d %s needed", n, len(candidates), need, are)
	for i, r := range rules[:min(len(rules), 3)] {
		text += []string{"; disqualified by ", ", ", ", "}[i] + fmt.Sprintf("%s: %d", r, nodes[r])
	}
	return text
}
