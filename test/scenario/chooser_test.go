package scenario

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

type asked struct {
	side, request string
	count         int
	get           bool
}

func requestsOfACapture() []asked {
	var all []asked
	aCapture(func(side, request string, count int, get bool) { all = append(all, asked{side, request, count, get}) })
	return all
}

func play(s Scenario, requests []asked) []Event {
	c := NewChooser(s)
	for _, r := range requests {
		c.At(r.side, r.request, r.count, r.get)
	}
	return c.Happened()
}

// What a scenario's chance came to, listed, plays the same.
func TestWhatHappenedPlaysTheSame(t *testing.T) {
	requests := requestsOfACapture()
	for seed := range uint64(500) {
		s := Generate(seed)
		// Listed and by chance, together.
		s.Events = []Event{{Azure, "PUT snapshots/s", 1, ReportSuccess, nil}, {Azure, "PUT snapshots/s", 1, DeleteGallery, nil}, {Kube, "PUT never", 1, Hang, nil}}
		happened := play(s, requests)
		if i := slices.IndexFunc(happened, func(e Event) bool { return e.String() == s.Events[0].String() }); i < 0 || happened[i+1].What != DeleteGallery {
			t.Fatalf("seed %d: what is listed does not happen in its order: %v", seed, happened)
		}
		s.Events, s.Chance = happened, Chance{}
		if again := play(s, requests); !reflect.DeepEqual(again, happened) {
			t.Fatalf("seed %d: first %v, then %v", seed, happened, again)
		}
	}
}

// Without a bound, what happens at a request does not depend on the others.
func TestChanceDoesNotDependOnOrder(t *testing.T) {
	requests := requestsOfACapture()
	s := Default()
	s.Chance = Chance{Rate: 200_000, Death: 50_000, World: 50_000}
	for seed := range uint64(50) {
		s.Seed = seed
		first := play(s, requests)
		if len(first) < 5 {
			t.Errorf("seed %d: only %v", seed, first)
		}
		shuffled := slices.Clone(requests)
		r := rand.New(rand.NewPCG(seed, 1))
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		then := play(s, shuffled)
		for _, all := range [][]Event{first, then} {
			slices.SortFunc(all, func(a, b Event) int {
				if a.String() < b.String() {
					return -1
				}
				return 1
			})
		}
		if !reflect.DeepEqual(first, then) {
			t.Fatalf("seed %d: in one order %v, in another %v", seed, first, then)
		}
	}
}

func TestWithoutChanceOnlyTheListHappens(t *testing.T) {
	s := parse(t, "capture\nat kube \"PUT x\" 2 conflict\n")
	if got := play(s, append(requestsOfACapture(), asked{Kube, "PUT x", 1, false}, asked{Azure, "PUT x", 2, false}, asked{Kube, "PUT x", 2, false})); !reflect.DeepEqual(got, s.Events) {
		t.Errorf("got %v", got)
	}
}

func TestWhatIsMissedIsTold(t *testing.T) {
	s := parse(t, "capture\nat kube \"PUT x\" 2 conflict\nat kube \"PUT y\" 1 hang\nat azure \"PUT x\" 1 hang\n")
	c := NewChooser(s)
	c.At(Kube, "PUT x", 1, false)
	c.At(Kube, "PUT y", 1, false)
	if got, want := c.Missed(), []Event{s.Events[0], s.Events[2]}; !reflect.DeepEqual(got, want) {
		t.Errorf("missed %v, want %v", got, want)
	}
}

func TestNoMoreHappensThanCanBePrinted(t *testing.T) {
	s := Default()
	s.Chance = Chance{Rate: million}
	c := NewChooser(s)
	for i := range 1000 {
		c.At(Azure, "PUT disks/d", i+1, false)
	}
	if n := len(c.Happened()); n != MaxEvents {
		t.Errorf("%d happenings, want %d", n, MaxEvents)
	}
}
