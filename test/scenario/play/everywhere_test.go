package play_test

import (
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

// sent is a line of a trace that tells of a request.
var sent = regexp.MustCompile(`p\d+ (azure|kube) "((\w+) [^"]*)" (\d+): `)

// requests gives those of a trace, each as what an event is bound to, but for
// renewals of a Lease and the many looks at what goes on.
func requests(trace string) (all []scenario.Event) {
	for _, m := range sent.FindAllStringSubmatch(trace, -1) {
		n, err := strconv.Atoi(m[4])
		look := m[3] == "GET" && n > 3
		if err != nil || look || strings.Contains(m[2], "/leases/") || strings.Contains(m[2], "selfsubjectaccessreviews") {
			continue
		}
		all = append(all, scenario.Event{Side: m[1], Request: m[2], Count: n})
	}
	return all
}

// TestEverywhere lets a capture that does all there is to do die, be interrupted
// and lose its answer at each of its requests, one at a time: the pool has to be
// the same in the end.
func TestEverywhere(t *testing.T) {
	s, err := scenario.Parse("seed 1\npool instances=4 versions=3 machines kured\ndonor pods=1 budgeted=1\ncapture history=2 newnodes=1\n")
	if err != nil {
		t.Fatal(err)
	}
	plain := played(t, s)
	var all []scenario.Scenario
	for _, at := range requests(plain.Trace) {
		whats := []scenario.What{scenario.KillBefore, scenario.KillAfter, scenario.Interrupt, scenario.DropAfter}
		if strings.HasPrefix(at.Request, "GET ") {
			whats = whats[1:2]
		}
		for _, what := range whats {
			at.What = what
			one := s
			one.Events = []scenario.Event{at}
			all = append(all, one)
		}
	}
	if testing.Short() {
		all = slices.DeleteFunc(all, func(s scenario.Scenario) bool { return s.Events[0].What != scenario.KillAfter })
	}
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
					judge(t, one, played(t, one), pool(plain))
				}
			})
		}
	})
	t.Logf("%d captures were played", len(all))
}

func judge(t *testing.T, s scenario.Scenario, r play.Result, want string) {
	t.Helper()
	if len(r.Violations) > 0 || len(r.Missed) > 0 || pool(r) != want {
		t.Errorf("%s\n%s\n%d missed\n%s\nwant:\n%s", s, strings.Join(r.Violations, "\n"), len(r.Missed), r.Told, want)
	}
}

// pool is how the pool is in the end.
func pool(r play.Result) string {
	_, end, _ := strings.Cut(r.Told, "in the end\n")
	return end
}
