package generalize

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/wire"
)

const (
	// maxPerRule bounds how many findings of one rule are remembered; more are counted.
	maxPerRule = 1000
	// maxMentions bounds the report's list of harmless mentions.
	maxMentions = 50
)

// tally counts findings by what becomes of them.
type tally struct{ fatal, passed int }

func (s *scanner) find(at, rule string, class wire.SecretClass, detail string) {
	if s.o.Inspect && (rule == ruleUnreadable || rule == ruleUnscanned) {
		return // files come and go while a node runs
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := findingKey{at, rule}
	if _, ok := s.findings[k]; ok {
		return
	}
	if s.perRule[rule]++; s.perRule[rule] > maxPerRule {
		if s.accepts(class, at) {
			s.over.passed++
		} else {
			s.over.fatal++
		}
		return
	}
	s.findings[k] = wire.SecretFinding{Path: printable("/"+at, 1024), Class: class, Rule: rule, Detail: printable(detail, 256)}
}

func (s *scanner) accepts(class wire.SecretClass, at string) bool {
	switch class {
	case wire.PoolCredential:
		return s.o.AcceptPoolCredentials
	case wire.OtherSecret:
		return wire.AcceptsSecret(s.o.AcceptSecrets, "/"+at)
	default:
		return false
	}
}

// judge says of each finding whether it is accepted, goes, or fails the scan; writes
// that into the report, and sets its outcome.
func (s *scanner) judge(t *tree.Tree, r *wire.GeneralizeReport) error {
	s.dropDoubles()
	r.Emptied = s.emptied
	for k, f := range s.findings {
		f.Accepted = s.accepts(f.Class, k.path)
		s.findings[k] = f
	}
	if s.o.RemoveSecrets {
		if err := s.planRemovals(t, r.Joins); err != nil {
			return err
		}
	}
	fatal := s.over.fatal
	all := make([]wire.SecretFinding, 0, len(s.findings))
	for _, f := range s.findings {
		if fails(f) {
			fatal++
		}
		all = append(all, f)
	}
	r.Findings = someOfEach(all, s.o.Limits.Findings)
	r.More = len(all) - len(r.Findings) + s.over.fatal + s.over.passed
	for _, store := range s.stores {
		if store.Bytes > 0 {
			r.Stores = append(r.Stores, *store)
		}
	}
	slices.SortFunc(r.Stores, func(a, b wire.ImageStore) int { return strings.Compare(a.Path, b.Path) })
	r.Stores = r.Stores[:min(len(r.Stores), maxListed)]
	for m := range s.mentions {
		r.Mentions = append(r.Mentions, m)
	}
	slices.Sort(r.Mentions)
	r.Mentions = r.Mentions[:min(len(r.Mentions), maxMentions)]
	r.Outcome, r.SecretsRemoved = wire.Generalized, len(s.removals)
	if fatal > 0 {
		r.Outcome, r.SecretsRemoved = wire.SecretsFound, 0
		r.Message = printable(message(all, fatal), maxMessage)
	}
	return nil
}

// dropDoubles takes out what another finding of the same file says better: a key that
// is known to be the donor's is no private key of unknown kind as well.
func (s *scanner) dropDoubles() {
	for k := range s.findings {
		switch k.rule {
		case ruleKubeletKey, ruleServingKey, ruleSSHHostKey, ruleAgentKey, ruleAgentIdentity, ruleNodeKubecfg:
			delete(s.findings, findingKey{k.path, rulePrivateKey})
			delete(s.findings, findingKey{k.path, ruleSSHKey})
		}
	}
}

func fails(f wire.SecretFinding) bool { return !f.Accepted && !f.Removed }

// someOfEach returns at most so many findings, in the order of byWeight, and of each rule
// as many as of any other as long as it has them: no kind hides another.
func someOfEach(all []wire.SecretFinding, most int) []wire.SecretFinding {
	slices.SortFunc(all, byWeight)
	if len(all) <= most {
		return all
	}
	seen := map[string]int{}
	rounds := map[int][]wire.SecretFinding{}
	for _, f := range all {
		n := seen[f.Rule]
		seen[f.Rule]++
		rounds[n] = append(rounds[n], f)
	}
	var some []wire.SecretFinding
	for n := 0; len(some) < most; n++ {
		some = append(some, rounds[n][:min(len(rounds[n]), most-len(some))]...)
	}
	slices.SortFunc(some, byWeight)
	return some
}

func message(all []wire.SecretFinding, fatal int) string {
	failing := slices.DeleteFunc(slices.Clone(all), func(f wire.SecretFinding) bool { return !fails(f) })
	classes := map[wire.SecretClass]bool{}
	for _, f := range failing {
		classes[f.Class] = true
	}
	const most = 10
	var named []string
	for _, f := range someOfEach(failing, most) {
		named = append(named, fmt.Sprintf("%s (%s)", f.Path, f.Rule))
	}
	m := fmt.Sprintf("the disk holds %d secrets that may not ship: %s", fatal, strings.Join(named, ", "))
	if fatal > len(named) {
		m += fmt.Sprintf(" and %d more", fatal-len(named))
	}
	if classes[wire.PoolCredential] {
		m += "; credentials of the whole pool that clones need to join can be let pass with --accept-pool-credentials"
	}
	if classes[wire.OtherSecret] {
		m += "; other secrets can be let pass by path with --accept-secret, or deleted from the copy with --remove-secrets"
	}
	return m
}

// byWeight orders findings by whether they fail the scan, then by class, then by where
// they are.
func byWeight(a, b wire.SecretFinding) int {
	if fails(a) != fails(b) {
		if fails(a) {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(classWeight(a.Class), classWeight(b.Class)), strings.Compare(a.Path+"\x00"+a.Rule, b.Path+"\x00"+b.Rule))
}

func classWeight(c wire.SecretClass) int {
	return slices.Index([]wire.SecretClass{wire.NodeIdentity, wire.PoolCredential, wire.OtherSecret}, c)
}
