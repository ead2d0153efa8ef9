//go:build e2e

package play_test

import (
	"flag"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ortet/ortet/test/scenario"
	"github.com/ortet/ortet/test/scenario/play"
)

var everywhere = flag.Bool("everywhere", false, "let TestEverywhere play every case, not only as many as fit in a minute")

// sent is a line of a trace that reports a request.
var sent = regexp.MustCompile(`p\d+ (azure|kube) "((\w+) [^"]*)" (\d+): `)

// requests gives those of a trace, each as what an event is bound to, but for
// renewals of a Lease and the many polls.
func requests(trace string) (all []scenario.Event) {
	for _, m := range sent.FindAllStringSubmatch(trace, -1) {
		n, err := strconv.Atoi(m[4])
		poll := m[3] == "GET" && n > 3
		if err != nil || poll || strings.Contains(m[2], "/leases/") || strings.Contains(m[2], "selfsubjectaccessreviews") {
			continue
		}
		all = append(all, scenario.Event{Side: m[1], Request: m[2], Count: n})
	}
	return all
}

func isRead(at scenario.Event) bool { return strings.HasPrefix(at.Request, "GET ") }

// A story is played with something else at each of its requests.
type story struct {
	name, text string
	// others gives what happens besides at one of the requests, given all from it on;
	// each of them is a case.
	others func(from []scenario.Event) [][]scenario.Event
	same   bool // however it goes, the pool is the same in the end
	every  int  // of so many cases, one is played
}

const (
	allThereIs = "seed 1\npool instances=4 versions=3 machines kured\ndonor pods=1 budgeted=1\ncapture history=2 newnodes=1\n"
	// The build of the version fails, so that all is undone.
	allUndone  = allThereIs + `at azure "PUT galleries/SIG_azsim/images/kamino-pool1-prototype/versions/2000.01.01" 1 failAtEnd` + "\n"
	backAndOut = "seed 1\npool instances=4 versions=3 customdata kured\ncapture\nrollback\nrollback to=1999.12.30\ncapture again\n"
)

func stories() []story {
	return []story{
		{"capture", allThereIs, each(deaths), true, 1},
		{"undone capture", allUndone, each(deaths), false, 3},
		{"rollbacks", backAndOut, each(deaths), true, 2},
		{"capture that dies twice", allThereIs, twice, true, 60},
		{"faults that come twice", allThereIs, repeated, false, 20},
		{"capture among others", allThereIs, each(deeds), false, 20},
	}
}

// each has one thing happen at a request, as whats gives them.
func each(whats func(scenario.Event) []scenario.Event) func([]scenario.Event) [][]scenario.Event {
	return func(from []scenario.Event) (all [][]scenario.Event) {
		for _, e := range whats(from[0]) {
			all = append(all, []scenario.Event{e})
		}
		return all
	}
}

// deaths are the ways in which a process or an answer is lost at a request.
func deaths(at scenario.Event) (all []scenario.Event) {
	whats := []scenario.What{scenario.KillBefore, scenario.KillAfter, scenario.Interrupt, scenario.DropAfter}
	if isRead(at) {
		whats = whats[1:2]
	}
	for _, what := range whats {
		at.What = what
		all = append(all, at)
	}
	return all
}

// twice has the process die at a change, and the one that goes on at a later request.
func twice(from []scenario.Event) (all [][]scenario.Event) {
	first := from[0]
	if isRead(first) {
		return nil
	}
	first.What = scenario.KillAfter
	for _, second := range from[1:] {
		if !isRead(second) {
			second.What = scenario.KillAfter
			all = append(all, []scenario.Event{first, second})
		}
	}
	return all
}

// repeated has a fault of Azure meet a request and the next of its name.
func repeated(from []scenario.Event) (all [][]scenario.Event) {
	at := from[0]
	if at.Side != scenario.Azure {
		return nil
	}
	faults := []scenario.Event{
		{What: scenario.Throttle, Args: []string{"30"}}, {What: scenario.Error, Args: []string{"500"}}, {What: scenario.Error, Args: []string{"409"}},
		{What: scenario.DropBefore}, {What: scenario.DropAfter}, {What: scenario.Hang}, {What: scenario.ReportFailure}, {What: scenario.ExpireToken},
	}
	if !isRead(at) {
		faults = append(faults, scenario.Event{What: scenario.NeverEnds}, scenario.Event{What: scenario.FailAtEnd}, scenario.Event{What: scenario.ReportSuccess})
	}
	if strings.HasPrefix(at.Request, "PATCH ") {
		faults = append(faults, scenario.Event{What: scenario.IgnoreNull})
	}
	for _, f := range faults {
		f.Side, f.Request, f.Count = at.Side, at.Request, at.Count
		next := f
		next.Count++
		all = append(all, []scenario.Event{f, next})
	}
	return all
}

// deeds are what others may do just before a change.
func deeds(at scenario.Event) (all []scenario.Event) {
	if isRead(at) {
		return nil
	}
	for _, deed := range []string{
		"deleteInstance donor", "deleteInstance bench", "stopInstance donor", "startInstance donor", "restartInstance bench",
		"deleteSnapshot", "deleteCopy", "deleteDisk", "deleteVersion", "deleteGallery", "changeModel image", "nodeGone donor", "nodeGone bench",
		"uncordon donor", "cordon bench", "kubeOutage 120", "kubeOutage 900", "azureOutage 900", "rival", "scaleOut 2", "clock 86400",
	} {
		words := strings.Fields(deed)
		at.What, at.Args = scenario.What(words[0]), words[1:]
		all = append(all, at)
	}
	return all
}

// TestEverywhere plays stories with something else at each of their requests, one case
// at a time: nothing that is promised is broken, and where it has to, the pool is the
// same in the end.
func TestEverywhere(t *testing.T) {
	for _, story := range stories() {
		t.Run(story.name, func(t *testing.T) {
			s, err := scenario.Parse(story.text)
			if err != nil {
				t.Fatal(err)
			}
			plain := played(t, s)
			if len(plain.Violations)+len(plain.Missed) > 0 {
				t.Fatalf("it breaks by itself: %v, %d missed", plain.Violations, len(plain.Missed))
			}
			var all []scenario.Scenario
			for from := requests(plain.Trace); len(from) > 0; from = from[1:] {
				for _, events := range story.others(from) {
					one := s
					one.Events = append(slices.Clone(s.Events), events...)
					all = append(all, one)
				}
			}
			if !*everywhere {
				all = sampled(all, story.every)
			}
			want := ""
			if story.same {
				want = pool(plain)
			}
			judgeAll(t, all, want)
		})
	}
}

// sampled gives one of so many.
func sampled(all []scenario.Scenario, every int) (some []scenario.Scenario) {
	for i := every / 2; i < len(all); i += every {
		some = append(some, all[i])
	}
	return some
}

// judgeAll plays scenarios on all cores.
func judgeAll(t *testing.T, all []scenario.Scenario, want string) {
	t.Helper()
	var (
		mu   sync.Mutex
		next int
	)
	t.Run("at", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				for {
					mu.Lock()
					if next == len(all) {
						mu.Unlock()
						return
					}
					one := all[next]
					next++
					mu.Unlock()
					judge(t, one, played(t, one), want)
				}
			})
		}
	})
	t.Logf("%d cases were played", len(all))
}

func judge(t *testing.T, s scenario.Scenario, r play.Result, want string) {
	t.Helper()
	switch {
	case len(r.Violations) > 0, want != "" && pool(r) != want, len(r.Missed) > 0 && len(s.Events) == 1:
		t.Errorf("%s\n%s\n%d missed\n%s\nwant:\n%s", s, strings.Join(r.Violations, "\n"), len(r.Missed), r.Told, want)
	}
}

// pool is how the pool is in the end.
func pool(r play.Result) string {
	_, end, _ := strings.Cut(r.Told, "in the end\n")
	return end
}
