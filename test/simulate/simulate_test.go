package simulate

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var verbose = flag.Bool("full", false, "print the whole trace of a story that breaks an invariant")
var pace = flag.Int("pace", 0, "measure so many captures")

func TestMain(m *testing.M) {
	// Worlds come and go: collecting less often saves a quarter of the time.
	debug.SetGCPercent(800)
	flag.Parse()
	if flag.Lookup("test.memprofile").Value.String() == "" {
		runtime.MemProfileRate = 0
	}
	os.Exit(m.Run())
}

// plain has the results of stories that TestStories played, whose requests seeds draw from.
var plain sync.Map

func plainly(t *testing.T, s Story) result {
	t.Helper()
	key := fmt.Sprintf("%#v", s)
	if r, ok := plain.Load(key); ok {
		return r.(result)
	}
	r := play(t, s)
	plain.Store(key, r)
	return r
}

func TestStories(t *testing.T) {
	for _, s := range onBoth() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			r := play(t, s)
			plain.Store(fmt.Sprintf("%#v", s), r)
			if len(r.violations)+len(r.missed) > 0 {
				t.Errorf("%d events missed\n%s", len(r.missed), explain(s, r))
			} else if *verbose {
				t.Log(explain(s, r))
			}
		})
	}
}

// A crash in a play is a violation of that play, wherever it is; others go on. A donor that is gone
// has no twin.
func TestOutcomeCrashIsAViolation(t *testing.T) {
	crash := func(s Story, what string) {
		t.Helper()
		r := play(t, s)
		if text := strings.Join(r.violations, "\n"); !strings.Contains(text, what+" crashes: ") || !strings.Contains(text, "_test.go:") {
			t.Error(explain(s, r))
		}
	}
	s := Story{Seed: 1, Pool: usual, Asks: aCapture, Happen: at(powerOff, 1, crashes)}
	crash(s, "a request of p1")
	s.Happen[0].For = time.Minute
	crash(s, "a timer")
	s.Happen, s.Asks = nil, []Ask{{Do: crashes}}
	crash(s, "the story")
	i := slices.IndexFunc(stories, func(s Story) bool { return s.Name == "provider ids of k3s, killed, and a twin of the donor" })
	for _, what := range []string{"twin of the donor", "donor's name given to another machine"} {
		s := stories[i]
		s.Seed, s.Cannot, s.Asks, s.Happen = 0xb0000, "", aCapture, append(at(powerOff, 1, "kill after"),
			Event{At: start, What: "instance deleted", Target: "donor"}, Event{At: start, What: what})
		if r := play(t, s); strings.Contains(strings.Join(r.violations, "\n"), "crashes") {
			t.Error(explain(s, r))
		}
	}
}

// Where Azure refuses to stop the donor, its node is uncordoned at once: a refusal is final.
func TestHole10RefusedStopUncordonsAtOnce(t *testing.T) {
	s := Story{Seed: 65, Pool: usual, Asks: []Ask{{Do: "capture", Once: true}}, Happen: at(powerOff, 1, "refused"), Single: powerOff}
	r := play(t, s)
	if len(r.violations)+len(r.missed) > 0 {
		t.Fatal(explain(s, r))
	}
	at := func(line string) (seconds float64) {
		i := slices.IndexFunc(r.trace, func(l string) bool { return strings.Contains(l, line) })
		if _, err := fmt.Sscan(r.trace[max(i, 0)], &seconds); i < 0 || err != nil {
			t.Fatalf("no %s: %v", line, explain(s, r))
		}
		return seconds
	}
	// The first two changes of the Node protect and cordon it.
	if took := at("kube PATCH nodes/pool1000000 3: 200") - at(powerOff+" 1: 403"); took > 1 {
		t.Errorf("the node was uncordoned %.1f s after the refusal", took)
	}
}

// A donor that was stopped when its capture was killed is started again, also where another
// Node claims to be its machine by then.
func TestTwinStrandsNoDonor(t *testing.T) {
	i := slices.IndexFunc(stories, func(s Story) bool { return strings.HasSuffix(s.Name, "killed, and a twin of the donor") })
	all := []Story{stories[i], onFlexible(stories[i])}
	for _, s := range all { // also where Azure gives up its stop: the machine runs on, in the boot of before
		s.Happen = append(slices.Clone(s.Happen), Event{At: s.Happen[0].At, N: 1, What: "operation preempted"})
		all = append(all, s)
	}
	for _, s := range all {
		r := play(t, s)
		if len(r.violations) > 0 || !slices.ContainsFunc(r.requests, func(r request) bool { return strings.HasSuffix(r.name, "/start") }) {
			t.Errorf("the donor is not started: %s", explain(s, r))
		}
	}
}

// TestSame plays a story with a crash and a neighbour three times: all that happens is the same.
func TestSame(t *testing.T) {
	uniform := stories[0]
	uniform.Happen = append(at(putSnapshot, 1, "kill after"), at(patchModel, 1, "autoscaler adds a node")...)
	for _, s := range []Story{uniform, onFlexible(uniform)} {
		first := play(t, s).trace
		for range 2 {
			again := play(t, s).trace
			if !slices.Equal(again, first) {
				t.Fatalf("the traces differ:\n%s\n\n%s", strings.Join(first, "\n"), strings.Join(again, "\n"))
			}
		}
	}
}

// TestPace measures captures in which nothing goes wrong: their number in a second of CPU, and
// their requests, as the command bench does, which reads them.
func TestPace(t *testing.T) {
	if *pace == 0 {
		t.Skip("-pace is not given")
	}
	sides := map[string]int{}
	before := cpu(t)
	for i := range *pace {
		r := play(t, Story{Seed: uint64(i), Pool: Pool{Instances: 3, Extensions: []string{"cse"}, Pods: 2}, Asks: []Ask{{Do: "capture"}}})
		if len(r.violations) > 0 {
			t.Fatal(r.violations)
		}
		for _, sent := range r.requests {
			sides[sent.side()]++
		}
	}
	azure, kube := sides["azure"] / *pace, sides["kube"] / *pace
	fmt.Printf("simulated-captures/pace\t%.1f\tcaptures/s\t>=10\t-\n"+
		"simulated-captures/requests\t%d\t\t-\t-\nsimulated-captures/azure-requests\t%d\t\t-\t-\nsimulated-captures/kubernetes-requests\t%d\t\t-\t-\n",
		float64(*pace)/(cpu(t)-before).Seconds(), azure+kube, azure, kube)
}

// cpu is the time that this process has computed.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
