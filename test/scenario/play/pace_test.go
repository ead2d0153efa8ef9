package play_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/test/scenario"
)

// TestPace plays captures in which nothing goes wrong, one after the other, and
// prints what one costs: its world made, its donor drained, stopped, copied and
// started, the copy generalised, the version built, the model changed. Time is
// that of the processor, so that others on the machine count little.
func TestPace(t *testing.T) {
	if *pace == 0 {
		t.Skip("no pace is measured: say -pace=100")
	}
	captures, traces := 0, make([]string, 0, *pace)
	used := cpuTime()
	for i := range *pace {
		s := scenario.Default()
		s.Seed = i
		r := played(t, s)
		for _, v := range r.Violations {
			t.Error(v)
		}
		captures += r.Stats.Captures
		traces = append(traces, r.Trace)
	}
	used = cpuTime() - used
	if captures != int(*pace) {
		t.Fatalf("%d captures of %d were done", captures, *pace)
	}
	requests := map[string]int{}
	for _, trace := range traces {
		for _, sent := range sentRequest.FindAllStringSubmatch(trace, -1) {
			requests[requestKind(sent[1], sent[2])]++
		}
	}
	each := func(prefix string) (n float64) {
		for kind, count := range requests {
			if strings.HasPrefix(kind, prefix) {
				n += float64(count)
			}
		}
		return n / float64(captures)
	}
	fmt.Printf("simulated-captures %.1f a second of CPU\n", float64(captures)/used.Seconds())
	fmt.Printf("requests-per-capture %.0f: %.0f to Azure, %.0f to Kubernetes\n", each(""), each(scenario.Azure), each(scenario.Kube))
	for _, kind := range slices.SortedFunc(maps.Keys(requests), func(a, b string) int { return requests[b] - requests[a] }) {
		fmt.Printf("  %5.1f %s\n", each(kind), kind)
	}
}

// sentRequest is a request in a trace: its side and its name.
var sentRequest = regexp.MustCompile(`(?m)^ *\S+ \S+ (azure|kube) "([^"]*)" \d+: `)

// requestKind says what a request is for.
func requestKind(side, name string) string {
	method, path, _ := strings.Cut(name, " ")
	has := func(part string) bool { return strings.Contains(path, part) }
	kind := "the donor, its pods, other nodes, Events"
	switch {
	case side == scenario.Azure && method != "GET":
		kind = "changes begun"
	case has("operation of "):
		kind = "operations asked after"
	case side == scenario.Azure && (path == "skus" || path == "permissions" || path == "virtualMachines" || path == "virtualMachineScaleSets" || strings.HasSuffix(path, "/virtualMachines")):
		kind = "lists"
	case has("/virtualMachines/"):
		kind = "instances"
	case has("virtualMachineScaleSets/"):
		kind = "the scale set"
	case has("galleries/"):
		kind = "gallery, definition, versions"
	case side == scenario.Azure:
		kind = "disks and snapshots"
	case has("/secrets"):
		kind = "the journal"
	case has("/leases/"), has("/leases") && method == "POST":
		kind = "the Lease"
	case has("selfsubjectaccessreviews"):
		kind = "what RBAC allows"
	case strings.HasPrefix(path, "ortet-system/pods"):
		kind = "Ortet's pods and their logs"
	}
	return side + ": " + kind
}
