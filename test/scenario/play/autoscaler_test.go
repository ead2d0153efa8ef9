package play

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/test/scenario"
)

// An autoscaler deletes every empty node that is not protected from it, down to a
// number, by the requests of cluster-autoscaler's Azure provider: it lists sets and
// instances, and deletes instances by their ids. What Azure protects from scale-in
// it deletes all the same, as Azure does.
type autoscaler struct {
	w         *world
	sets      *armcompute.VirtualMachineScaleSetsClient
	instances *armcompute.VirtualMachineScaleSetVMsClient
	minimum   int64
	active    bool
	deleted   []string        // nodes
	benches   map[string]bool // nodes that something of the capture's was changed on
}

// empty gives the Nodes without a pod that holds one up, in a random order.
func (a *autoscaler) empty() []string {
	busy := map[string]bool{}
	a.w.kube.Each("pods", func(o runtime.Object) bool {
		p, isPod := o.(*corev1.Pod)
		if isPod && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed && !slices.ContainsFunc(p.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Kind == "DaemonSet" }) {
			busy[p.Spec.NodeName] = true
		}
		return true
	})
	var out []string
	a.w.kube.Each("nodes", func(o runtime.Object) bool {
		n, isNode := o.(*corev1.Node)
		if isNode && !busy[n.Name] && n.Annotations[fleet.AnnotationScaleDownDisabled] != "true" {
			out = append(out, n.Name)
		}
		return true
	})
	slices.SortFunc(out, func(x, y string) int {
		return int(a.w.hash("autoscaler", x)%1000) - int(a.w.hash("autoscaler", y)%1000)
	})
	return out
}

// scan is one turn: where it is active, at most one node is deleted.
func (a *autoscaler) scan(ctx context.Context) error {
	donor := a.w.node(0)
	var set *armcompute.VirtualMachineScaleSet
	for p := a.sets.NewListPager(azsim.DefaultResourceGroup, nil); p.More(); {
		page, err := p.NextPage(ctx)
		if err != nil {
			return err
		}
		set = page.Value[0]
	}
	expand := "instanceView"
	instances := map[string]*armcompute.VirtualMachineScaleSetVM{}
	for p := a.instances.NewListPager(azsim.DefaultResourceGroup, poolName, &armcompute.VirtualMachineScaleSetVMsClientListOptions{Expand: &expand}); p.More(); {
		page, err := p.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, vm := range page.Value {
			node := strings.ToLower(*vm.Properties.OSProfile.ComputerName)
			instances[node] = vm
			if node != donor && (*vm.Properties.ProvisioningState == "Updating" || len(vm.Properties.StorageProfile.DataDisks) > 0) {
				a.benches[node] = true
			}
		}
	}
	if n := a.w.kube.Node(donor); n != nil && n.Spec.Unschedulable {
		a.active = true
	}
	if !a.active || *set.SKU.Capacity <= a.minimum {
		return nil
	}
	for _, node := range a.empty() {
		vm := instances[node]
		if vm == nil || *vm.Properties.ProvisioningState == "Deleting" {
			continue
		}
		a.w.theirs(node)
		a.w.gone(fleet.ResourceID(*vm.ID))
		a.deleted = append(a.deleted, node)
		p, err := a.sets.BeginDeleteInstances(ctx, azsim.DefaultResourceGroup, poolName, armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{InstanceIDs: []*string{vm.InstanceID}}, nil)
		if err != nil {
			return err
		}
		_, err = p.PollUntilDone(ctx, nil)
		return err
	}
	return nil
}

// run scans every ten seconds; it deletes from the time that the donor is cordoned,
// when the workbench is chosen.
func (a *autoscaler) run(ctx context.Context) error {
	tick := time.NewTicker(10*time.Second + a.w.between(0, time.Second, "autoscaler"))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := a.scan(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// besideAnAutoscaler plays a capture while an autoscaler is at work: it ends with 0
// at once, with its donor and the workbench that it took first.
func besideAnAutoscaler(t *testing.T, seed uint64) {
	s, err := scenario.Parse(fmt.Sprintf("# x\nseed %d\npool instances=4\ncapture\nexpect exit=0\n", seed))
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWorld(s)
	if err != nil {
		t.Fatal(err)
	}
	a := &autoscaler{w: w, minimum: 2, benches: map[string]bool{}}
	for _, err := range []error{
		func() (err error) {
			a.sets, err = armcompute.NewVirtualMachineScaleSetsClient(azsim.DefaultSubscription, w.azure.Credential(""), w.azure.ClientOptions())
			return err
		}(),
		func() (err error) {
			a.instances, err = armcompute.NewVirtualMachineScaleSetVMsClient(azsim.DefaultSubscription, w.azure.Credential(""), w.azure.ClientOptions())
			return err
		}(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(w.over)
	ended := make(chan error, 1)
	go func() { ended <- a.run(ctx) }()
	w.attend(0, s.Asks[0])
	stop()
	if err := <-ended; err != nil {
		t.Errorf("seed %d: the autoscaler: %v", seed, err)
	}
	left := w.nodeNames()
	donor := w.computerOf(w.node(0))
	running := donor != nil && donor.running
	w.finish()
	for _, v := range w.violations {
		t.Errorf("seed %d: %s", seed, v)
	}
	for _, p := range w.processes {
		if code := engine.ExitCode(p.err); code != engine.ExitDone {
			t.Errorf("seed %d: %s ends with exit %d: %v", seed, p.name, code, p.err)
		}
	}
	if len(w.processes) != 1 || !running || len(left) != 2 || len(a.deleted) != 2 {
		t.Errorf("seed %d: %d processes, the donor runs: %v, nodes left %q, deleted %q", seed, len(w.processes), running, left, a.deleted)
	}
	if len(a.benches) != 1 || slices.ContainsFunc(a.deleted, func(n string) bool { return a.benches[n] }) {
		t.Errorf("seed %d: the capture changed the nodes %v, and the autoscaler deleted %q", seed, a.benches, a.deleted)
	}
}

func TestCaptureBesideAnAutoscaler(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) { besideAnAutoscaler(t, seed+1) })
	}
}
