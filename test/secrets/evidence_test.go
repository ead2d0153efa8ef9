package secrets

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/ortet/ortet/internal/boots/verdict"
)

// group is lines of a log, in their order, with secrets in them.
type group struct {
	kind    string
	text    string
	secrets []string
}

type groups []group

func (a *groups) add(kind, text string, secrets ...string) {
	*a = append(*a, group{kind, text, secrets})
}

// left is a part of a secret that is long enough to be of use, and that is still
// in the text; "" where there is none.
func left(text, secret string) string {
	size := min(len(secret), max(6, len(secret)/2), 20)
	for i := 0; i+size <= len(secret); i++ {
		if part := secret[i : i+size]; strings.Contains(text, part) {
			return part
		}
	}
	return ""
}

func published(text string) string {
	return strings.Join(verdict.Redact(strings.Split(strings.TrimSuffix(text, "\n"), "\n")), "\n")
}

// Nothing of use of a secret is in what is published, but for what the bounds allow.
func TestEvidence(t *testing.T) {
	all := evidence(newGen(t))
	if len(all) < 120 {
		t.Errorf("%d groups, want 120", len(all))
	}
	if share := hidden(t, all); share < evidenceBound {
		t.Errorf("%.3f of the groups hidden, want %.3f", share, evidenceBound)
	}
}

// hidden prints a table by kind and gives the share of the groups with nothing left.
func hidden(t *testing.T, all []group) float64 {
	t.Helper()
	type row struct{ planted, found int }
	var kinds, leaks []string
	by, sum := map[string]*row{}, 0
	for _, group := range all {
		if by[group.kind] == nil {
			kinds, by[group.kind] = append(kinds, group.kind), &row{}
		}
		by[group.kind].planted++
		shown := published(group.text)
		at := slices.IndexFunc(group.secrets, func(s string) bool { return left(shown, s) != "" })
		for _, s := range group.secrets {
			if left(group.text, s) == "" {
				t.Fatalf("%s: the secret %q is not in %q", group.kind, s, group.text)
			}
		}
		if at < 0 {
			by[group.kind].found++
			sum++
			continue
		}
		leaks = append(leaks, fmt.Sprintf("%s: %q of %q is left in\n    %s", group.kind, left(shown, group.secrets[at]), group.secrets[at], strings.ReplaceAll(shown, "\n", "\n    ")))
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "kind\tplanted\tfound\tshare")
	for _, k := range kinds {
		fmt.Fprintf(w, "%s\t%d\t%d\t%.0f %%\n", k, by[k].planted, by[k].found, 100*float64(by[k].found)/float64(by[k].planted))
	}
	share := float64(sum) / float64(max(len(all), 1))
	fmt.Fprintf(w, "all\t%d\t%d\t%.0f %%\n", len(all), sum, 100*share)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d\n%s\nleft:\n%s", *seed, b.String(), strings.Join(leaks, "\n"))
	return share
}

// line is one of which the words of keep have to stay readable.
type line struct {
	text string
	keep []string
}

// What explains a failure is still there after secrets were hidden.
func TestReadable(t *testing.T) {
	all := readable(newGen(t))
	if len(all) < 80 {
		t.Errorf("%d lines, want 80", len(all))
	}
	var lost []string
	for _, l := range all {
		shown := published(l.text)
		if slices.ContainsFunc(l.keep, func(s string) bool {
			if !strings.Contains(l.text, s) {
				t.Fatalf("%q is not in %q", s, l.text)
			}
			return !strings.Contains(shown, s)
		}) {
			lost = append(lost, fmt.Sprintf("%s\n  is shown as\n%s\n  without some of %q", l.text, shown, l.keep))
		}
	}
	share := float64(len(all)-len(lost)) / float64(len(all))
	t.Logf("%d of %d lines stayed readable (%.0f %%); not so:\n%s", len(all)-len(lost), len(all), 100*share, strings.Join(lost, "\n"))
	if share < readableBound {
		t.Errorf("%.3f of the lines stayed readable, want %.3f", share, readableBound)
	}
}
