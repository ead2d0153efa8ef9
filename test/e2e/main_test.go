//go:build e2e

package e2e

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/ortet/ortet/test/controlplane"
)

// atOnce is how many of these tests run beside each other: they wait for the
// world most of their time, so more than there are processors. One waits for minutes
// of the operators' clocks.
const atOnce = "5"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", atOnce); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(controlplane.Main(m))
}

// TestOrtet is one test, so that everything in it shares one world; run a part
// of it by its path: go test -tags e2e ./test/e2e -run TestOrtet/story.
func TestOrtet(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: -short, and this starts a control plane")
	}
	awaitDay(t)
	w := newWorld(t, []poolSpec{
		{short: "kept", capacity: 2},
		{short: "rolled", capacity: 6},
		{short: "story", capacity: 2},
		{short: "chain", capacity: 2},
		{short: "storm", capacity: 2},
		{short: "other", capacity: 3},
		{short: "terminal", capacity: 2},
		{short: "ctrlc", capacity: 2},
		{short: "first", capacity: 2},
		{short: "boots", capacity: 2},
		{short: "judges", capacity: 2},
		{short: "copies", capacity: 2},
		{short: "wrong", capacity: 2, denied: []string{"Microsoft.Compute/snapshots/write"}, change: automatic},
	})
	// The longest first, since they run some at a time.
	for _, c := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"operator", keptByOperator},
		{"rollout", rolledOut},
		{"terminal", onTerminal},
		{"tutorial", tutorial},
		{"story", story},
		{"fresh", freshKilled},
		{"killed", killedAfterEachStep},
		{"anywhere", killedAnywhere},
		{"interrupt", interrupted},
		{"elsewhere", killedElsewhere},
		{"refused", refused},
		{"first", readmeCommands},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, w)
		})
	}
}

// awaitDay lets midnight pass, by which versions are named: these tests make
// several captures "on the same day".
func awaitDay(t *testing.T) {
	t.Helper()
	const enough = 15 * time.Minute
	now := time.Now().UTC()
	midnight := now.Truncate(24 * time.Hour).Add(24 * time.Hour)
	if left := midnight.Sub(now); left < enough {
		t.Logf("it is %s before midnight UTC: waiting for the new day", left.Round(time.Second))
		time.Sleep(left)
	}
}
