package simulate

import (
	"cmp"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	corev1 "k8s.io/api/core/v1"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/workflow"
)

// TestBadImages captures, and adds a node whose image is bad. The capture waits for it, so a slow
// one is Ready.
func TestBadImages(t *testing.T) {
	for bad, want := range map[string]string{
		"": "Succeeded Ready pool1000004", "no boot": "Failed", "slow": "Succeeded Ready pool1000004", "no join": "Succeeded",
		"twin": "Succeeded Ready pool1000000", "daemon": "Succeeded Ready pool1000004 without agent-0",
	} {
		t.Run(cmp.Or(bad, "good"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(Story{Seed: 1, Pool: with(func(p *Pool) { p.Bad = bad })})
				defer w.close()
				w.pursue(0, Ask{Do: "capture", Grow: 1, Once: true})
				time.Sleep(5 * time.Minute)
				got := w.describe(w.instance(4))
				time.Sleep(time.Hour)
				if later := w.describe(w.instance(4)); later != got {
					got += ", later " + later
				}
				if got != want || len(w.violations) > 0 {
					t.Errorf("%s, want %s\n%s", got, want, strings.Join(append(w.violations, w.lines...), "\n"))
				}
			})
		})
	}
}

// describe returns an instance's state, and the machine id of its Node once it is Ready.
func (w *world) describe(id fleet.ResourceID) (is string) {
	c := w.find(func(c *computer) bool { return c.ID == low(id) })
	w.azure.View(func(v *azsim.View) {
		is = *v.Get(string(id)).(*armcompute.VirtualMachineScaleSetVM).Properties.ProvisioningState
	})
	n := w.kube.Node(c.node())
	if n == nil || !w.isReady(c) {
		return is
	}
	is += " Ready " + n.Status.NodeInfo.MachineID
	for _, p := range w.podsOn(n.Name) {
		if p.Status.Conditions[0].Status != corev1.ConditionTrue {
			is += " without " + p.Labels["app"]
		}
	}
	return is
}

// TestJudgeOfSets shows worlds to the judge that are as they must not be.
func TestJudgeOfSets(t *testing.T) {
	for name, c := range map[string]struct {
		plant func(w *world)
		want  string // "" for none
	}{
		"nothing":   {func(*world) {}, ""},
		"scale set": {func(w *world) { w.makeSet(w.pool+"-canary", 1, false, nil) }, "invariant 15: p1 ends with exit 3, and pool1-canary "},
		"pod": {func(w *world) {
			canary := w.pool + "-canary"
			w.makeSet(canary, 1, false, nil)
			time.Sleep(time.Hour)
			w.putPod(w.nodesOf(canary)[0], "web", 7, nil)
			w.azure.Instant(true)
			w.make(http.MethodDelete, canary, computeAPI, nil)
		}, "invariant 16: p1 ends with exit 3, and web-7 "},
		"quarantine": {func(w *world) {
			w.make(http.MethodPatch, fleet.ResourceID(w.modelNow().image), galleryAPI, object{"tags": object{fleet.TagQuarantine: "join: no Node"}})
			time.Sleep(time.Hour)
		}, "invariant 17: the model names "},
		"neighbour's model": {func(w *world) {
			w.make(http.MethodPatch, w.otherPool, computeAPI, object{"tags": object{"a": "b"}})
		}, "invariant 3: the scale set of another pool is "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(Story{Seed: 1, Pool: with(func(p *Pool) { p.Neighbour = 1 })})
				defer w.close()
				w.beginAsk()
				c.plant(w)
				w.checkEnd(&process{w: w, name: "p1", ask: Ask{Do: "rollback"}, err: &workflow.Refused{}})
				if all := strings.Join(w.violations, "\n"); c.want == "" && all != "" || !strings.HasPrefix(all, c.want) || len(w.violations) > 1 {
					t.Errorf("violations: %s, want %q", all, c.want)
				}
			})
		})
	}
}
