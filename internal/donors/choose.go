package donors

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Choose judges the nodes of a pool by a policy that Check accepts, and decides whether
// a new image is due.
func Choose(pool Pool, policy Policy, now time.Time) Choice {
	s := newStatistics(pool, policy, now)
	candidates := s.judge()
	need := max(policy.MinCandidates, 1)
	due, because := s.old()
	if policy.PatchAnnotation != "" {
		switch {
		case qualified(candidates) >= need:
			due, because = true, "patched "+candidates[0].Patched+", no version yet"
			if !pool.Newest.IsZero() {
				because = "patched " + candidates[0].Patched + ", after " + pool.version()
			}
		case due && policy.MaxImageAge > 0:
			s.policy.Off = append(slices.Clone(policy.Off), "patch")
			candidates = s.judge()
		default:
			due = true // as soon as enough qualify
		}
	}
	choice := Choice{Pool: pool.ID, Due: due, Because: because, Candidates: candidates}
	if n := qualified(candidates); due && n < need {
		choice.Due, choice.Because = false, tooFew(candidates, n, need)
	}
	if choice.Due {
		choice.Donor = candidates[0].Node
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
		return true, fmt.Sprintf("%s is %s old, more than %d", version, count(days, "day"), limit)
	}
	return false, fmt.Sprintf("%s is %s old, not more than %d", version, count(days, "day"), limit)
}

func (s *statistics) judge() []Candidate {
	rules := slices.DeleteFunc(table(), func(r row) bool { return slices.Contains(s.policy.Off, r.Name) })
	candidates := make([]Candidate, len(s.pool.Members))
	for i := range s.pool.Members {
		m := &s.pool.Members[i]
		c := Candidate{Node: m.Node.Name, Ready: s.readyFor(m), Boot: bootOf(m)}
		if date, ok := dateIn(m.Node.Annotations[s.policy.PatchAnnotation]); ok {
			c.Patched = date.Format(time.DateOnly)
		}
		for _, r := range rules {
			reason, unknown := r.check(s, m)
			if reason != "" {
				c.Reasons = append(c.Reasons, Reason{r.Name, reason})
			}
			if unknown != "" {
				c.Unknown = append(c.Unknown, r.Name+": "+unknown)
			}
		}
		c.Eligible = len(c.Reasons) == 0
		candidates[i] = c
	}
	slices.SortFunc(candidates, func(a, b Candidate) int {
		switch {
		case a.Eligible && b.Eligible:
			return cmp.Or(cmp.Compare(b.Ready, a.Ready), cmp.Compare(a.Node, b.Node))
		case a.Eligible:
			return -1
		case b.Eligible:
			return 1
		}
		return cmp.Compare(a.Node, b.Node)
	})
	return candidates
}

func qualified(candidates []Candidate) int {
	n := slices.IndexFunc(candidates, func(c Candidate) bool { return !c.Eligible })
	if n < 0 {
		return len(candidates)
	}
	return n
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
	verb := "are"
	if need == 1 {
		verb = "is"
	}
	text := fmt.Sprintf("%d of %s qualify, %d %s needed", n, count(len(candidates), "node"), need, verb)
	for i, r := range rules[:min(len(rules), 3)] {
		text += []string{"; disqualified by ", ", ", ", "}[i] + fmt.Sprintf("%s: %d", r, nodes[r])
	}
	return text
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
