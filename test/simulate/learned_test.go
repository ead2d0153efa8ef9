package simulate

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// clean is a pool with a node that lies about what Azure gave it.
func clean(bad string) Pool {
	return Pool{Instances: 3, Extensions: []string{"cse"}, Settings: "sealed", Forged: true, Bad: bad, Daemons: 1}
}

// What one node's disk shows runs on nodes of an image that never was on it only if a person says so.
func TestHoleDonorsCommandInCleanImage(t *testing.T) {
	for _, s := range []Story{
		{Name: "rollback that names nothing", Pool: clean(""), Asks: []Ask{{Do: "capture", Node: 1}, {Do: "rollback", To: "original", Alone: true, Exit: 3}},
			Cannot: "LearnedFromDonor"},
		{Name: "donor that lies after another that does not", Pool: clean(""), Asks: []Ask{{Do: "capture"}, {Do: "rollback", To: "original"},
			{Do: "wait", For: day}, {Do: "capture", Node: 1}, {Do: "rollback", To: "original"}}},
		{Name: "rollback of a baked version", Pool: with(func(p *Pool) { p.Forged = true }), Asks: []Ask{{Do: "capture", Node: 1}, {Do: "wait", For: day},
			{Do: "capture", Baked: true}, {Do: "rollback", To: "2000.01.01", Alone: true, Exit: 3}}, Cannot: "LearnedFromDonor"},
		{Name: "watch of the first version", Pool: clean("no join"), Asks: []Ask{{Do: "capture", Node: 1, Grow: 2}, {Do: "watch", Alone: true, Once: true, Exit: 4}},
			Cannot: "ortet rollback pool1 --to original --restore-learned vmssCSE"},
		{Name: "watch that goes to an older version", Pool: with(func(p *Pool) { p.Daemons, p.Bad = 1, "no join" }),
			Asks: []Ask{{Do: "capture", Grow: 2}, {Do: "watch", Alone: true}}},
	} {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			s.Seed = 7
			r := play(t, s)
			if len(r.violations) > 0 || strings.Contains(strings.Join(r.trace, "\n"), donorsCommand) {
				t.Error(explain(s, r))
			}
		})
	}
}

// A capture names its donor where the donor's disk shows something else than the first one's, and
// only then.
func TestDonorThatDisagreesIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Seed: 7, Pool: clean("")})
		defer w.close()
		for i, c := range []struct {
			ask   Ask
			named int // values
		}{
			{Ask{Do: "capture"}, 0}, {Ask{Do: "rollback", To: "original"}, 0},
			{Ask{Do: "capture", Node: 1, Again: true}, 2}, // customData and an extension's settings
			{Ask{Do: "capture", Node: 1, Again: true}, 0}, // the model names a prototype: nothing is compared
			{Ask{Do: "rollback", To: "original"}, 0}, {Ask{Do: "capture", Again: true}, 0},
		} {
			w.pursue(0, c.ask)
			p := w.processes[i]
			if got := strings.Count(strings.Join(p.capture.Notes, "\n"), "is not what an earlier donor's disk showed"); got != c.named || p.code() != 0 {
				t.Errorf("%d: exit %d, %q, want %d named; %v", i, p.code(), p.capture.Notes, c.named, w.violations)
			}
			time.Sleep(day)
		}
	})
}

// Who may write tags neither takes a version back nor cordons its nodes.
func TestHoleTagTakesVersionBack(t *testing.T) {
	for version, pool := range map[string]Pool{
		"2000.01.01": with(func(p *Pool) { p.Daemons = 1 }),
		"1999.12.18": with(func(p *Pool) { p.Daemons, p.Old = 1, 1 }),
	} {
		s := Story{Name: "forged tags of " + version, Seed: 7, Pool: pool,
			Asks: []Ask{{Do: "capture", Grow: 2}, {Do: "wait", For: time.Hour}, {Do: "forge", To: version}, {Do: "watch"}}}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			if r := play(t, s); len(r.violations) > 0 || !strings.Contains(strings.Join(r.trace, "\n"), "p2 ends: 0 <nil>") {
				t.Error(explain(s, r))
			}
		})
	}
}
