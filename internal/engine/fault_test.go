package engine

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/azsim"
)

// faultyActions are those of a capture that faults are put on: each change, and
// the reads that say whether it is done.
var faultyActions = []string{
	"Microsoft.Compute/galleries/write", "Microsoft.Compute/galleries/images/write", "Microsoft.Compute/galleries/images/versions/write",
	"Microsoft.Compute/galleries/images/versions/read", "Microsoft.Compute/snapshots/write", "Microsoft.Compute/snapshots/read",
	"Microsoft.Compute/snapshots/delete", "Microsoft.Compute/disks/write", "Microsoft.Compute/disks/read", "Microsoft.Compute/disks/delete",
	"Microsoft.Compute/virtualMachineScaleSets/write", "Microsoft.Compute/virtualMachineScaleSets/read",
	"Microsoft.Compute/virtualMachineScaleSets/extensions/delete", "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read",
	"Microsoft.Compute/virtualMachineScaleSets/virtualMachines/write", "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/powerOff/action",
	"Microsoft.Compute/virtualMachineScaleSets/virtualMachines/start/action",
	"Microsoft.Compute/virtualMachineScaleSets/virtualMachines/attachDetachDataDisks/action",
	"Microsoft.Compute/locations/*",
}

var faultyEffects = []azsim.Effect{
	azsim.EffectThrottle, azsim.EffectError, azsim.EffectDropBefore, azsim.EffectDropAfter, azsim.EffectHang, azsim.EffectNeverEnds,
	azsim.EffectFailAtEnd, azsim.EffectReportFailure, azsim.EffectReportSuccess, azsim.EffectIgnoreNull, azsim.EffectExpireToken,
}

// TestFaultsOnSimulatedAzure: whatever Azure does twice to one kind of request,
// the capture either succeeds or puts all back, and the same command succeeds
// once Azure has come to its senses.
func TestFaultsOnSimulatedAzure(t *testing.T) {
	every, n := 13, 0
	if os.Getenv("ORTET_TEST_ALL_FAULTS") != "" {
		every = 1
	}
	for _, action := range faultyActions {
		for _, effect := range faultyEffects {
			if n++; n%every != 0 {
				continue
			}
			name := string(effect) + " " + strings.TrimPrefix(action, "Microsoft.Compute/")
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					x := simulate(t)
					q := request()
					q.Node = x.node(t)
					if err := x.server.AddFault(azsim.Fault{Name: "f", Action: action, Effect: effect, Count: 2, Skip: 1}); err != nil {
						t.Fatal(err)
					}
					e, _, ctx := x.process(t, "first", 0)
					begun := time.Now()
					result, err := e.Capture(ctx, q)
					took := time.Since(begun)
					if err != nil {
						t.Logf("%s: after %s exit %d, %v", name, took, ExitCode(err), err)
						x.mu.Lock()
						x.catchUp()
						if d := x.nodes[q.Node]; (d.Unschedulable || len(d.Annotations) > 0 || !d.Ready) && ExitCode(err) != ExitNeedsPerson {
							t.Errorf("%s: exit %d leaves the donor %+v", name, ExitCode(err), d)
						}
						x.mu.Unlock()
						x.server.RemoveFault("f")
						e, _, ctx := x.process(t, "second", 0)
						result, err = e.Capture(ctx, q)
						if effect == azsim.EffectNeverEnds && ExitCode(err) == ExitNeedsPerson {
							return // it still does not end, and is named
						}
						if err != nil {
							t.Errorf("%s: the second time: %v", name, err)
							return
						}
					} else if took > 3*time.Hour {
						t.Errorf("%s: took %s", name, took)
					}
					x.check(t, q.Node, result.Version.Name())
				})
			})
		}
	}
}
