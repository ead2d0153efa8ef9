//go:build e2e

package e2e

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/azsim"
)

// rolledOut brings six nodes to another image: one does not come back, and is named; once it is mended
// the same command, killed once, brings the rest.
func rolledOut(t *testing.T, w *world) {
	p := w.pool(t, "rolled", 6)
	before := map[string]kept{}
	for _, n := range p.nodes {
		before[n] = p.node(t, n)
	}
	rollout := []string{"rollout", string(p.id()), "--soak=1s", "--lease-duration=5s"}
	const a, b = "24.04.202601150", "24.04.202602010" // azsim has the first as latest

	// From A to B and back: Azure says that no instance has the model, and each has its image.
	for _, version := range []string{a, b, a} {
		p.setVersion(t, version)
	}
	for name, vm := range p.instances(t) {
		if *vm.Properties.LatestModelApplied {
			t.Errorf("Azure says that %s has the latest model", name)
		}
	}
	mark := p.mark(t)
	p.ortet(t, nil, rollout...).exits(t, exitDone).says(t, "Nothing to do")
	if writes := p.writes(t, mark); len(writes) > 0 {
		t.Errorf("a rollout of nothing wrote: %v", writes)
	}

	p.setVersion(t, b)
	p.ortet(t, nil, append(slices.Clone(rollout), "--dry-run")...).exits(t, exitDone).says(t, "6 nodes are to be renewed").fits(t)
	p.control(t, http.MethodPost, "faults", azsim.Fault{Name: "rolled", Method: http.MethodPost, Path: p.name + "/manualupgrade", Skip: 2, Count: 1,
		Effect: azsim.EffectFailAtEnd, Status: http.StatusConflict, Code: "OSProvisioningTimedOut", Message: "OS Provisioning did not finish in the allotted time."}, nil)
	failed := p.nodes[2]
	p.ortet(t, nil, rollout...).exits(t, exitNeedsPerson).says(t, "node "+failed, "OSProvisioningTimedOut", "stays cordoned", "2 nodes renewed, 3 not begun")
	for i, n := range p.nodes {
		if now := p.node(t, n); now.spec.Unschedulable != (n == failed) || p.made(t, n) != (map[bool]string{true: b, false: a}[i < 2]) {
			t.Errorf("node %s of %s: %+v", n, p.made(t, n), now)
		}
	}

	again := append(slices.Clone(rollout), "--max-unavailable=2")
	p.ortet(t, func(l line) os.Signal {
		if strings.Contains(l.text, failed+": wait until it is back") {
			return syscall.SIGKILL
		}
		return nil
	}, again...).exits(t, exitKilled)
	p.ortet(t, nil, again...).exits(t, exitDone).says(t, "4 nodes of "+p.name)
	for _, n := range p.nodes {
		p.whole(t, n, before[n])
		if got := p.made(t, n); got != b {
			t.Errorf("node %s was made from %s", n, got)
		}
	}
	p.clean(t)
	p.ortet(t, nil, rollout...).exits(t, exitDone).says(t, "Nothing to do")
}

// setVersion has the model name a version of its Marketplace image.
func (p *pool) setVersion(t *testing.T, version string) {
	t.Helper()
	image := p.image(t)
	image.Version, image.ExactVersion = &version, nil
	poller, err := p.clients(t).NewVirtualMachineScaleSetsClient().BeginUpdate(t.Context(), p.group(), p.name, armcompute.VirtualMachineScaleSetUpdate{
		Properties: &armcompute.VirtualMachineScaleSetUpdateProperties{VirtualMachineProfile: &armcompute.VirtualMachineScaleSetUpdateVMProfile{
			StorageProfile: &armcompute.VirtualMachineScaleSetUpdateStorageProfile{ImageReference: image},
		}},
	}, nil)
	must(t, err)
	_, err = poller.PollUntilDone(t.Context(), nil)
	must(t, err)
}

// made is the version that a node's instance was made from.
func (p *pool) made(t *testing.T, node string) string {
	t.Helper()
	return str(p.instances(t)[node].Properties.StorageProfile.ImageReference.ExactVersion)
}
