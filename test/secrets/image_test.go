package secrets

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/ortet/ortet/internal/node/generalize"
	"github.com/ortet/ortet/internal/wire"
)

// fate is what became of a plant.
type fate string

const (
	refused fate = "refused" // the disk was refused for it
	removed fate = "removed" // the file is not on the disk as it was
	shipped fate = "shipped"
)

// count is a line of a table.
type count struct{ planted, refused, removed, asClass int }

func (c count) found() int     { return c.refused + c.removed }
func (c count) share() float64 { return float64(c.found()) / float64(max(c.planted, 1)) }

// tally counts by kind and by class, and names what was shipped, or refused in another
// class than is wanted.
type tally struct {
	kinds   []string // in their order
	by      map[string]*count
	classes map[class]*count
	shipped []string
	amiss   []string
}

func newTally() *tally {
	return &tally{by: map[string]*count{}, classes: map[class]*count{identity: {}, pool: {}, other: {}}}
}

func (a *tally) add(p plant, f fate, asClass bool) {
	if a.by[p.kind] == nil {
		a.kinds, a.by[p.kind] = append(a.kinds, p.kind), &count{}
	}
	for _, c := range []*count{a.by[p.kind], a.classes[p.class]} {
		c.planted++
		switch f {
		case refused:
			c.refused++
		case removed:
			c.removed++
		case shipped:
		}
		if asClass {
			c.asClass++
		}
	}
	if f == refused && !asClass {
		a.amiss = append(a.amiss, fmt.Sprintf("%s: %s, %s: /%s", p.class, p.kind, p.wrap, p.path))
	}
	if f == shipped {
		a.shipped = append(a.shipped, fmt.Sprintf("%s: %s, %s: /%s", p.class, p.kind, p.wrap, p.path))
	}
}

func (a *tally) print(t *testing.T) {
	t.Helper()
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name string, c count) {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%.0f %%\n", name, c.planted, c.found(), c.refused, c.removed, c.planted-c.found(), c.asClass, 100*c.share())
	}
	fmt.Fprintln(w, "kind\tplanted\tfound\trefused\tremoved\tshipped\tof its class\tshare")
	for _, k := range a.kinds {
		row(k, *a.by[k])
	}
	for _, c := range []class{identity, pool, other} {
		row("all of class "+string(c), *a.classes[c])
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d\n%s\nshipped:\n%s\nof another class:\n%s", *seed, b.String(), strings.Join(a.shipped, "\n"), strings.Join(a.amiss, "\n"))
}

// measure plants, lets the agent work on the tree, and counts what became of the plants.
// The disk is refused for some; what becomes of the others shows once these are deleted,
// as a person would, and the agent has worked on the tree to its end.
func measure(t *testing.T, g *gen, n node, all []plant) *tally {
	t.Helper()
	sum := newTally()
	measureIn(t, plantIn(t, g, n, all), all, sum)
	return sum
}

// measureIn is measure on a tree that is there, into a tally that is being made.
func measureIn(t *testing.T, dir string, all []plant, sum *tally) {
	t.Helper()
	findings := found(generalized(t, dir, nil))
	refuses := func(f wire.SecretFinding) bool { return !f.Accepted }
	for at, hits := range findings {
		if slices.ContainsFunc(hits, refuses) {
			if err := os.RemoveAll(filepath.Join(dir, at)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if r := generalized(t, dir, nil); r.Outcome != wire.Generalized {
		t.Fatalf("outcome %s (%s) without what was found", r.Outcome, r.Message)
	}
	for _, p := range all {
		content, err := os.ReadFile(filepath.Join(dir, p.path))
		hits := findings[p.path]
		asClass := slices.ContainsFunc(hits, func(f wire.SecretFinding) bool { return f.Class == p.class.reported() })
		switch {
		case slices.ContainsFunc(hits, refuses):
			sum.add(p, refused, asClass)
		case os.IsNotExist(err), err == nil && !bytes.Equal(content, p.data):
			sum.add(p, removed, true)
		case err != nil:
			t.Fatal(err)
		default:
			sum.add(p, shipped, false)
		}
	}
}

// reported is the class as the agent's report names it.
func (c class) reported() wire.SecretClass {
	switch c {
	case identity:
		return wire.NodeIdentity
	case pool:
		return wire.PoolCredential
	case other:
		return wire.OtherSecret
	}
	return ""
}

// Nothing that is planted on a disk ships unnoticed, but for what the bounds allow.
func TestImage(t *testing.T) {
	g := newGen(t)
	n := g.node()
	all := slices.Concat(identities(g, n), poolCredentials(g), others(g), agents(g))
	sum := measure(t, g, n, all)
	sum.print(t)
	if got := len(all); got < 230 {
		t.Errorf("%d secrets planted, want 230", got)
	}
	if got := sum.classes[identity].planted; got < 75 {
		t.Errorf("%d secrets of the node's own planted, want 75", got)
	}
	wantShares(t, sum, imageBounds)
	wantDocumented(t, sum)
	if c := sum.classes[pool]; c.asClass != c.planted {
		t.Errorf("%d of %d credentials of the pool are reported as such", c.asClass, c.planted)
	}
}

// wantDocumented: the shares that the documentation gives are those that were measured,
// with the seed that they were measured with.
func wantDocumented(t *testing.T, sum *tally) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "generalize.md"))
	if err != nil {
		t.Fatal(err)
	}
	if *seed != defaultSeed {
		t.Logf("NOT COMPARED with docs/reference/generalize.md, which has the shares of seed %d", uint64(defaultSeed))
		return
	}
	row := func(name string, c count) {
		if want := fmt.Sprintf("| %s | %d | %d | %.0f %% |\n", name, c.planted, c.found(), 100*c.share()); !strings.Contains(string(text), want) {
			t.Errorf("docs/reference/generalize.md has no line %q", want)
		}
	}
	_, all, _ := strings.Cut(string(text), "Planted, and all found: ")
	all, _, _ = strings.Cut(all, "\n")
	for _, k := range sum.kinds {
		if c := *sum.by[k]; c.found() < c.planted {
			row(k, c)
		} else if want := fmt.Sprintf("%s (%d)", k, c.planted); !strings.Contains(all, want) {
			t.Errorf("docs/reference/generalize.md does not have %q among the kinds that are all found", want)
		}
	}
	for c, name := range map[class]string{identity: "**node identity**", pool: "**pool credential**", other: "**other secret**"} {
		row(name, *sum.classes[c])
	}
}

func wantShares(t *testing.T, sum *tally, bounds map[class]float64) {
	t.Helper()
	for _, c := range []class{identity, pool, other} {
		if got := sum.classes[c].share(); got < bounds[c] {
			t.Errorf("class %s: %.3f found, want %.3f", c, got, bounds[c])
		}
	}
}

// Accepting what a pool shares does not let what is the node's own through.
func TestAcceptingDoesNotCoverIdentity(t *testing.T) {
	g := newGen(t)
	n := g.node()
	all := identities(g, n)
	dir := plantIn(t, g, n, slices.Concat(all, poolCredentials(g)))
	r := generalized(t, dir, func(o *generalize.Options) { o.AcceptPoolCredentials = true })
	if r.Outcome != wire.SecretsFound {
		t.Errorf("outcome %s with the node's own keys on the disk", r.Outcome)
	}
	for _, f := range r.Findings {
		if f.Class == wire.NodeIdentity && f.Accepted {
			t.Errorf("%s (%s) is the node's own and was accepted", f.Path, f.Rule)
		}
	}
}

// The tree without plants is clean: what is found on it otherwise is found for the plants.
func TestUnplantedTreeIsClean(t *testing.T) {
	g := newGen(t)
	r := generalized(t, plantIn(t, g, g.node(), nil), nil)
	if len(r.Findings) != 0 {
		t.Errorf("findings on the tree without plants: %+v", r.Findings)
	}
}

// canary is a file with a secret that has to be found on each tree, so that no tree
// is clean since nothing was searched.
const canary = "srv/canary.pem"

// Files that look like secrets and hold none do not stop a capture.
func TestNearMisses(t *testing.T) {
	g := newGen(t)
	n := g.node()
	all := nearMisses(g, n)
	if len(all) < 60 {
		t.Errorf("%d files, want 60", len(all))
	}
	dir := plantIn(t, g, n, all)
	write(t, dir, canary, g.ecPEM(g.ec()))
	findings := found(generalized(t, dir, nil))
	if len(findings[canary]) == 0 {
		t.Errorf("/%s was not found: was the tree searched?", canary)
	}
	var alarms []string
	for _, p := range all {
		for _, f := range findings[p.path] {
			alarms = append(alarms, fmt.Sprintf("/%s (%s): %s %s", p.path, p.wrap, f.Rule, f.Detail))
			break
		}
	}
	t.Logf("%d of %d files raised a false alarm:\n%s", len(alarms), len(all), strings.Join(alarms, "\n"))
	if len(alarms) > nearMissBound {
		t.Errorf("%d false alarms, want %d at most", len(alarms), nearMissBound)
	}
}

// The same seed gives the same strings and keys, so that a figure can be repeated.
func TestSeedRepeats(t *testing.T) {
	var made [2][]plant
	for i := range made {
		t.Run("", func(t *testing.T) {
			g := newGen(t)
			made[i] = slices.Concat(identities(g, g.node()), poolCredentials(g), others(g), agents(g))
		})
	}
	for i, p := range made[0] {
		if q := made[1][i]; p.path != q.path || !bytes.Equal(p.data, q.data) {
			t.Errorf("/%s differs between two runs of seed %d", p.path, *seed)
		}
	}
}
