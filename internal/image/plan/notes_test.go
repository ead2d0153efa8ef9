package plan

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/fleet"
)

// What speaks against today's version and refuses nothing is a note, which names the way to another.
func TestNotesOfTodaysVersion(t *testing.T) {
	online := "version 2026.11.21 was captured while its donor stayed in service; give --again to make one of a donor that is stopped"
	another := "version 2026.11.21 was built from pool1000009; give --again to make one from pool1000000"
	for name, c := range map[string]struct {
		state  string
		change func(v *fleet.ImageVersion, q *Request)
		notes  []string
		start  ResumePoint
	}{
		"of this node":               {Succeeded, func(v *fleet.ImageVersion, _ *Request) { v.Tags[fleet.TagBuiltFrom] = "POOL1000000" }, nil, AtVersion},
		"of another node":            {Succeeded, func(v *fleet.ImageVersion, _ *Request) { v.Tags[fleet.TagBuiltFrom] = "pool1000009" }, []string{another}, AtVersion},
		"of a node in service":       {Succeeded, func(v *fleet.ImageVersion, _ *Request) { v.Tags[fleet.TagOnline] = "1" }, []string{online}, AtVersion},
		"the same, and it is wanted": {Succeeded, func(v *fleet.ImageVersion, q *Request) { v.Tags[fleet.TagOnline], q.Online = "1", true }, nil, AtVersion},
		"that failed":                {Failed, func(*fleet.ImageVersion, *Request) {}, []string{"today's version 2026.11.21 is Failed: it is built again"}, AtDonor},
		"that is being deleted":      {Deleting, func(*fleet.ImageVersion, *Request) {}, []string{"today's version 2026.11.21 is Deleting: it is built again"}, AtDonor},
	} {
		o, q, v := good(), options(), ver("2026.11.21", 0, c.state)
		v.Tags[fleet.TagBuiltFrom] = "pool1000000"
		c.change(&v, &q)
		o.Versions = []fleet.ImageVersion{v}
		got := Resume(o, NamesOf(pool, "2026.11.21"), q, noon, "own")
		if !slices.Equal(got.Notes, c.notes) || len(got.Problems) > 0 || got.From != c.start {
			t.Errorf("%s: starts at %d, %q, %v", name, got.From, got.Notes, got.Problems)
		}
	}
}

// An error that says what to do is not said to do something else, nor twice.
func TestWayOutOfAnError(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"its own remedy": {&fleet.Error{Op: "get disk", Kind: fleet.KindBlocked, Err: errors.New("it is locked"), Remedy: "remove the lock"}, "remove the lock"},
		"denied":         {&fleet.Error{Op: "get disk", Kind: fleet.KindDenied, Err: errors.New("403")}, "grant these credentials the right to read it"},
	} {
		var p Problems
		p.Unreadable("the disk", c.err)
		if len(p) != 1 || p[0].WayOut != c.want || strings.Count(p[0].String(), c.want) != 1 || !strings.Contains(p[0].What, "get disk") {
			t.Errorf("%s: %q", name, p)
		}
	}
	var p Problems
	if p.Unreadable("the disk", &fleet.Error{Kind: fleet.KindNotFound}); len(p) > 0 {
		t.Errorf("what does not exist is a problem: %q", p)
	}
}
