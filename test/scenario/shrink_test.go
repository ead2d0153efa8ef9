package scenario

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// storm lists many happenings, of which two are marked.
func storm(t *testing.T, first, second int) Scenario {
	var b strings.Builder
	b.WriteString("# kept\nseed 7\npool instances=200 zones=3 versions=4 old=2 extensions=monitor,billing,cse kured\n" +
		"donor pods=6 blocked slow=3m disk=secrets\ncapture again force history=3\nwait 48h\nrollback to=previous unknown\ncapture node=7 bake rival=3\n")
	for i := range MaxEvents {
		what := "error 503 ServiceUnavailable"
		switch i {
		case first:
			what = "nodeNotReady bench 1800"
		case second:
			what = "clock -3600"
		}
		fmt.Fprintf(&b, "at azure \"PUT disks/d\" %d %s\n", i+1, what)
	}
	return parse(t, b.String())
}

func has(s Scenario, count int) bool {
	return slices.ContainsFunc(s.Events, func(e Event) bool { return e.Count == count+1 })
}

// It fails where two happenings are both there, wherever they are.
func TestShrinkFindsTwo(t *testing.T) {
	for _, c := range [][2]int{{0, 1}, {0, 199}, {99, 100}, {17, 140}, {198, 199}} {
		s := storm(t, c[0], c[1])
		before, calls, seen := s.clone(), 0, map[string]bool{}
		got := Shrink(s, func(s Scenario) bool {
			calls++
			text := s.String()
			if seen[text] {
				t.Fatalf("played twice:\n%s", text)
			}
			seen[text] = true
			if !reflect.DeepEqual(parse(t, text), s) {
				t.Fatalf("a scenario is tried that its text does not tell:\n%s", text)
			}
			failing := has(s, c[0]) && has(s, c[1])
			// Whoever plays it may spoil what is theirs.
			for i := range s.Events {
				s.Events[i].Args = nil
			}
			return failing
		})
		want := fmt.Sprintf("# kept\nseed 7\ncapture\nat azure \"PUT disks/d\" %d nodeNotReady bench 1\nat azure \"PUT disks/d\" %d clock 1\n", c[0]+1, c[1]+1)
		if got.String() != want {
			t.Errorf("%v is shrunk to\n%s\nwant\n%s", c, got, want)
		}
		if calls > 150 {
			t.Errorf("%v took %d calls", c, calls)
		}
		if !reflect.DeepEqual(s, before) {
			t.Error("the scenario that was given is changed")
		}
	}
}

// What is needed stays, as near to the default as it may be.
func TestShrinkKeepsWhatIsNeeded(t *testing.T) {
	got := Shrink(storm(t, 3, 4), func(s Scenario) bool {
		clock := slices.ContainsFunc(s.Events, func(e Event) bool {
			if e.What != Clock {
				return false
			}
			n, err := strconv.Atoi(e.Args[0])
			return err == nil && n <= -90
		})
		return clock && s.Pool.Instances >= 42 && slices.Contains(s.Pool.Extensions, "billing") && slices.Contains(s.Pool.Extensions, "cse") &&
			s.Donor.Blocked && slices.ContainsFunc(s.Asks, func(a Ask) bool { return a.Verb == Rollback }) && s.Asks[len(s.Asks)-1].Node >= 2
	})
	const want = `# kept
seed 7
pool instances=42 extensions=billing,cse
donor blocked
rollback
capture node=2
at azure "PUT disks/d" 5 clock -90
`
	if got.String() != want {
		t.Errorf("shrunk to\n%s\nwant\n%s", got, want)
	}
}

// A happening may be needed only while a setting is there.
func TestShrinkBeginsAgain(t *testing.T) {
	got := Shrink(storm(t, 3, 4), func(s Scenario) bool {
		return has(s, 3) && (has(s, 9) || !s.Pool.Kured)
	})
	if len(got.Events) != 1 || got.Pool.Kured {
		t.Errorf("shrunk to\n%s", got)
	}
}

// None of those that are left can go alone.
func TestShrinkIsOneMinimal(t *testing.T) {
	got := Shrink(storm(t, 3, 4), func(s Scenario) bool { return len(s.Events) >= 9 })
	if len(got.Events) != 9 {
		t.Errorf("%d happenings are left, want 9", len(got.Events))
	}
}

// Arguments that would make two happenings the same stay different.
func TestShrinkKeepsHappeningsApart(t *testing.T) {
	s := parse(t, "capture\nat kube \"PUT x\" 1 nodeNotReady donor 50\nat kube \"PUT x\" 1 nodeNotReady donor 60\nat kube \"PUT x\" 1 scaleOut 3\nat kube \"PUT x\" 1 scaleOut 2\n")
	got := Shrink(s, func(s Scenario) bool { return len(s.Events) == 4 })
	if !reflect.DeepEqual(parse(t, got.String()), got) {
		t.Errorf("shrunk to\n%s", got)
	}
}

func TestShrinkLeavesWhatDoesNotFail(t *testing.T) {
	s, calls := storm(t, 3, 4), 0
	got := Shrink(s, func(Scenario) bool { calls++; return false })
	if !reflect.DeepEqual(got, s) || calls != 1 {
		t.Errorf("%d calls, and\n%s", calls, got)
	}
}

func TestShrinkIsBounded(t *testing.T) {
	// Happenings can go only one by one, at the two ends in turn, so halving is
	// in vain and each pass finds two.
	still := func(s Scenario) bool {
		gone := MaxEvents - len(s.Events)
		for i, e := range s.Events {
			if e.Count != i+1+gone/2 {
				return false
			}
		}
		return len(s.Events) > 0
	}
	calls := 0
	got := Shrink(storm(t, 3, 4), func(s Scenario) bool { calls++; return still(s) })
	if calls != ShrinkCalls {
		t.Errorf("%d calls, want %d", calls, ShrinkCalls)
	}
	if n := len(got.Events); n >= MaxEvents || !still(got) {
		t.Errorf("shrunk to %d happenings, which do not fail", n)
	}
}

// Expectations stay with the ask that they are about.
func TestShrinkMovesExpectations(t *testing.T) {
	s := parse(t, "capture\nwait 1h\ncapture node=1\nrollback\nexpect ask=0 exit=0\nexpect ask=2 exit=3 says=Held\nexpect ask=3 exit=1\n")
	got := Shrink(s, func(s Scenario) bool {
		return slices.ContainsFunc(s.Asks, func(a Ask) bool { return a.Node == 1 })
	})
	if want := "seed 0\ncapture node=1\nexpect exit=3 says=Held\n"; got.String() != want {
		t.Errorf("shrunk to\n%s\nwant\n%s", got, want)
	}
}

// Whatever a generated scenario came to shrinks to one that fails, and whose
// text tells it.
func TestShrinkOfGenerated(t *testing.T) {
	requests := requestsOfACapture()
	shrunk := 0
	for seed := range uint64(300) {
		s := Generate(seed)
		s.Events = play(s, requests)
		s.Chance = Chance{}
		fails := func(s Scenario) bool {
			return slices.ContainsFunc(s.Events, func(e Event) bool { return e.What == KillAfter || e.What == Error })
		}
		if !fails(s) {
			continue
		}
		shrunk++
		got := Shrink(s, fails)
		if len(got.Events) != 1 || !fails(got) || !reflect.DeepEqual(parse(t, got.String()), got) {
			t.Errorf("seed %d is shrunk to\n%s", seed, got)
		}
	}
	if shrunk < 50 {
		t.Errorf("only %d of the scenarios failed", shrunk)
	}
}
