package simulate

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/image/watch"
	"github.com/ortet/ortet/internal/workflow"
)

// A version whose machines do not report in time is taken back, also where resilient creation deletes
// each before a node's limit and makes another of a new name.
func TestWatchOfResilientCreation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := badPool("", func(p *Pool) { p.Kind, p.SlowBoot = "resilient creation", 6*time.Minute })
		w := newWorld(Story{Seed: 7, Pool: slow, Asks: []Ask{{Do: "capture"}, {Do: "watch"}}})
		defer w.finish()
		w.scaleOut(1) // by which a node's limit is ten minutes
		time.Sleep(10 * time.Minute)
		w.pursue(0, w.story.Asks[0])
		if err := w.azure.AddFault(azsim.Fault{Action: "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/provision",
			Effect: azsim.EffectError, Status: 409, Code: "OSProvisioningTimedOut", Message: "OS Provisioning did not finish in the allotted time."}); err != nil {
			t.Fatal(err)
		}
		p := w.beginCommand(t, Ask{Do: "watch"})
		time.Sleep(time.Minute)
		w.scaleOut(1)
		w.await(p)
		p.ends(t, workflow.ExitFailed, watch.TakenBack, "as resilient creation does")
		for _, f := range p.watch.Nodes {
			if strings.Contains(f.Why, "resilient creation") {
				t.Log(f.Why)
			}
		}
	})
}
