package verdict

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/ortet/ortet/internal/wire"
)

// classes are what a verdict can be, of a case of which the true reason is known.
var classes = [...]string{"right", "vague", "silent", "baseless", "wrong"}

// classOf says what a verdict is: vague is true, and farther from the cause than what is
// known; silent gives no reason; baseless gives one where nothing failed, or nothing
// says why; wrong names another cause.
func classOf(want, got string) string {
	w, _ := Lookup(want)
	g, _ := Lookup(got)
	switch {
	case got == want:
		return "right"
	case want == wire.ReasonUnknown:
		return "baseless"
	case got == wire.ReasonUnknown:
		return "silent"
	case g.Confidence() == Unsure, g.rank < w.rank && g.rank <= rankPhase:
		return "vague"
	}
	return "wrong"
}

// nearer are fixtures that as a text alone, without what systemd, cloud-init and the
// agent saw, say another true thing: the reason that is to be given for it.
var nearer = map[string]string{
	"KubeletCrashLoop-while-the-api-is-away": "APIServerRefused", // that the kubelet ends is systemd's to know
	"SentinelMissing-another-unit-failed":    "NetworkNotOnline", // so is that the boot went on without
}

// TestCorpus counts, over all fixtures and lines, what the verdict on them is: on what
// the node knew, and on the same as a person pastes it, without a word on where it is
// from. None may be wrong.
func TestCorpus(t *testing.T) {
	type key struct{ of, class string }
	count := map[key]int{}
	note := func(of, name, want, got string) {
		class := classOf(want, got)
		count[key{of, class}]++
		if class == "wrong" || class == "baseless" {
			t.Errorf("%s, %s: %s is %s, not %s", of, name, got, class, want)
		}
	}
	for name, f := range fixtures(t) {
		want, _, _ := strings.Cut(name, "-")
		got := Judge(f)
		if got.Outcome == wire.Succeeded {
			got.Reason = string(wire.Succeeded)
		}
		note("fixtures, as given", name, want, got.Reason)
		if len(f.Logs) == 0 {
			continue
		}
		var pasted []string
		for _, l := range f.Logs {
			pasted = append(pasted, l.Lines...)
		}
		switch {
		case nearer[name] != "":
			want = nearer[name]
		case want == string(wire.Succeeded), got.Outcome == wire.Degraded:
			want = wire.ReasonUnknown
		}
		note("fixtures, pasted", name, want, judgeText([]Log{{Lines: pasted}}).Reason)
	}
	for _, r := range rows(t) {
		want := strings.Replace(r.reason, "-", wire.ReasonUnknown, 1)
		for i, l := range r.logs() {
			of := fmt.Sprintf("lines of %s", strings.Fields(r.program)[0])
			if i > 0 {
				l.Source = ""
				of = "lines, pasted with a head"
			}
			got := r.judged(l)
			note(of, r.where, want, strings.Replace(got, "-", wire.ReasonUnknown, 1))
		}
		if !r.joined && !strings.HasPrefix(r.program, "other ") { // without a head nobody knows them
			note("lines, pasted bare", r.where, want, judgeText([]Log{{Lines: strings.Split(r.line, "␤")}}).Reason)
		}
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "\t"+strings.Join(classes[:], "\t"))
	ofs := map[string]bool{}
	for k := range count {
		ofs[k.of] = true
	}
	for _, of := range slices.SortedFunc(maps.Keys(ofs), cmp.Compare) {
		fmt.Fprint(w, of)
		for _, c := range classes {
			fmt.Fprintf(w, "\t%d", count[key{of, c}])
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	t.Log("\n" + b.String())
}
