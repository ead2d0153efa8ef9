package scenario

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const seeds = 20_000

// Whatever is generated is a valid text, and each setting is tried.
func TestGeneratedScenariosParse(t *testing.T) {
	seen := map[string]int{}
	sizes := map[string]int{}
	for seed := range uint64(seeds) {
		s := Generate(seed)
		text := s.String()
		again, err := Parse(text)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, text)
		}
		if !reflect.DeepEqual(s, again) {
			t.Fatalf("seed %d: generated\n%+v\nparsed\n%+v", seed, s, again)
		}
		for _, line := range strings.Split(text, "\n") {
			first, rest, _ := strings.Cut(line, " ")
			seen[first]++
			for _, w := range strings.Fields(rest) {
				key, value, _ := strings.Cut(w, "=")
				seen[first+" "+key]++
				if key == "extensions" || key == "disk" {
					seen[first+" "+key+" "+value]++
				}
			}
		}
		switch n := s.Pool.Instances; {
		case n <= 8:
			sizes["small"]++
		case n <= 40:
			sizes["middle"]++
		default:
			sizes["large"]++
		}
		for _, a := range s.Asks {
			if a.Node >= n(s) || a.Rival >= n(s) {
				t.Errorf("seed %d: instance %d or %d of %d is asked for", seed, a.Node, a.Rival, n(s))
			}
		}
	}
	var all []string
	add := func(line string, keys string) {
		for _, k := range strings.Split(keys, ", ") {
			all = append(all, line+" "+k)
		}
	}
	add("pool", keys(poolSettings()))
	add("donor", keys(donorSettings()))
	add("capture", keys(captureSettings()))
	add("rollback", keys(rollbackSettings()))
	add("chance", keys(chanceSettings()))
	add("wait", "24h")
	add("donor disk", "secrets, nojoin, preserve, lost")
	add("pool extensions", "none, billing,cse")
	for _, k := range all {
		if seen[k] < seeds/2000 {
			t.Errorf("%s occurs %d times in %d seeds", k, seen[k], seeds)
		}
	}
	for size, percent := range map[string][2]int{"small": {85, 93}, "middle": {8, 12}, "large": {0, 2}} {
		if n := sizes[size] * 100 / seeds; n < percent[0] || n > percent[1] {
			t.Errorf("%d %% of the pools are %s, want %v", n, size, percent)
		}
	}
	if t.Failed() {
		for _, k := range slices.Sorted(maps.Keys(seen)) {
			t.Logf("%6d %s", seen[k], k)
		}
	}
}

func n(s Scenario) int { return s.Pool.Instances }

// A seed that was told to somebody else has to give the same there, on every
// platform: if this fails, seeds have moved, and the changelog says so.
func TestSeedsStay(t *testing.T) {
	const want = `seed 12
pool instances=7 versions=2 benches=cordoned
donor pods=0 mirrors=1
capture history=2 newnodes=3
capture again history=2 newnodes=3
chance rate=181249 death=60416 aimed=1 undoing=1 most=8
at azure "POST virtualMachineScaleSets/pool1/virtualMachines/0/powerOff" 1 killAfter
at azure "PUT snapshots/s" 1 reportSuccess
at azure "PUT disks/d" 1 interrupt
at azure "GET operation of PUT galleries/g/images/i/versions/v" 5 dropBefore
at azure "PATCH virtualMachineScaleSets/pool1" 1 failAtEnd
at azure "GET operation of DELETE virtualMachineScaleSets/pool1/extensions/cse" 4 killAfter
at azure "GET operation of DELETE snapshots/s" 4 killAfter
at kube "GET nodes/pool1000000" 2 error 500 InternalError
at kube "GET ortet-system/secrets/journal" 9 expireToken
at kube "PUT ortet-system/secrets/journal" 6 conflict
`
	s := Generate(12)
	s.Events = play(s, requestsOfACapture())
	if got := s.String(); got != want {
		t.Errorf("seed 12 gives\n%s\nwant\n%s", got, want)
	}
}

// aCapture gives names of requests as a capture sends them, about as many.
func aCapture(call func(side, request string, count int, get bool)) {
	for _, r := range []string{
		"PUT virtualMachineScaleSets/pool1/virtualMachines/0", "POST virtualMachineScaleSets/pool1/virtualMachines/0/powerOff",
		"POST virtualMachineScaleSets/pool1/virtualMachines/0/start", "PUT snapshots/s", "PUT disks/d", "PUT galleries/g/images/i/versions/v",
		"PATCH virtualMachineScaleSets/pool1", "DELETE virtualMachineScaleSets/pool1/extensions/cse", "DELETE snapshots/s", "DELETE disks/d",
	} {
		call(Azure, r, 1, false)
		for i := range 6 {
			call(Azure, "GET operation of "+r, i+1, true)
		}
	}
	for i := range 10 {
		for _, r := range []string{"GET virtualMachineScaleSets/pool1", "GET virtualMachineScaleSets/pool1/virtualMachines/0", "GET snapshots/s"} {
			call(Azure, r, i+1, true)
		}
		for _, r := range []string{"GET nodes/pool1000000", "GET ortet-system/secrets/journal", "GET ortet-system/pods/p"} {
			call(Kube, r, i+1, true)
		}
	}
	for i := range 20 {
		call(Kube, "PUT ortet-system/secrets/journal", i+1, false)
		call(Kube, "PATCH nodes/pool1000000", i+1, false)
		call(Kube, "PUT ortet-system/leases/pool1", i+1, false)
	}
	for i := range 5 {
		call(Kube, fmt.Sprintf("POST default/pods/web-%d/eviction", i), 1, false)
	}
}

// Every What comes by chance, fits its request, and is mostly as often as the
// bound says.
func TestChanceIsWide(t *testing.T) {
	const played = seeds / 4
	seen := map[What]int{}
	reached, bounded, requests := 0, 0, 0
	early := 0
	for seed := range uint64(played) {
		s := Generate(seed)
		c := NewChooser(s)
		at := 0
		aCapture(func(side, request string, count int, get bool) {
			at++
			for range c.At(side, request, count, get) {
				if at < 100 {
					early++
				}
			}
		})
		requests = at
		happened := c.Happened()
		if s.Chance.Most > 0 {
			bounded++
			if len(happened) >= s.Chance.Most {
				reached++
			}
		}
		if most := s.Chance.Most + 2*aimMost*min(s.Chance.Aimed, 1) + min(s.Chance.Undoing, 1) + min(s.Chance.Deaths, 1)*mostDeaths*5 + len(s.Events); len(happened) > most { // aimed at a change, and at the read after it
			t.Fatalf("seed %d: %d happenings, at most %d", seed, len(happened), most)
		}
		for _, e := range happened {
			seen[e.What]++
		}
		if seed%20 == 0 {
			s.Events, s.Chance = happened, Chance{}
			if again := parse(t, s.String()); len(happened) > 0 && !reflect.DeepEqual(s, again) {
				t.Fatalf("seed %d: what happened does not print and parse to the same:\n%s", seed, s)
			}
		}
	}
	sum := 0
	for _, h := range happenings() {
		if seen[h.what] < played/250 {
			t.Errorf("%s happens %d times in %d seeds", h.what, seen[h.what], played)
		}
		sum += seen[h.what]
	}
	if reached*100/bounded < 50 {
		t.Errorf("%d of %d reach their bound", reached, bounded)
	}
	t.Logf("%d requests, %d happenings, %d %% within the first 100, %d of %d at their bound: %v", requests, sum, early*100/sum, reached, bounded, seen)
}
