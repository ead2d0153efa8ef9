package beside

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/ortet/ortet/test/azclient"
)

const (
	// scanEvery is cluster-autoscaler's --scan-interval of ten seconds, much slower
	// than azsim's operations become by speed, and quicker than a capture's steps.
	scanEvery = 100 * time.Millisecond
	// minimum is the node group's size below which nothing is deleted.
	minimum = 2
)

// An autoscaler scales a pool in by the rules of cluster-autoscaler, of which a node
// is long unneeded as soon as it is empty: it deletes each node without a pod that
// would have to move, in the order of their names, unless the Node's annotation
// forbids it. Like cluster-autoscaler it leaves an instance's protection to Azure.
type autoscaler struct {
	cluster cluster
	azure   *azclient.Cloud
	active  bool
	asked   []string // nodes whose deletion it asked for
}

type deletion = *runtime.Poller[armcompute.VirtualMachineScaleSetsClientDeleteInstancesResponse]

// run scans until stop is closed, and ends the scan that it is in; it deletes once a
// node is cordoned.
func (a *autoscaler) run(ctx context.Context, stop <-chan struct{}) error {
	tick := time.NewTicker(scanEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return nil
		case <-tick.C:
		}
		if err := a.scan(ctx); err != nil {
			return err
		}
	}
}

func (a *autoscaler) scan(ctx context.Context) error {
	members, err := a.azure.GetVirtualMachineScaleSetVMClient().ListVMInstanceView(ctx, a.azure.Group, pool)
	if err != nil {
		return err
	}
	nodes, err := a.cluster.nodes(ctx)
	if err != nil {
		return err
	}
	busy, err := a.busy(ctx)
	if err != nil {
		return err
	}
	there := map[string]bool{} // by instance id
	for _, vm := range members {
		if *vm.Properties.ProvisioningState != "Deleting" {
			there[*vm.InstanceID] = true
		}
	}
	for _, n := range nodes {
		a.active = a.active || n.Spec.Unschedulable
	}
	var deletions []deletion
	for _, n := range nodes {
		id := path.Base(n.Spec.ProviderID)
		if !a.active || len(there) <= minimum || !there[id] || busy[n.Metadata.Name] || n.Metadata.Annotations[scaleDownDisabled] == "true" {
			continue
		}
		a.asked = append(a.asked, n.Metadata.Name)
		d, err := a.azure.Sets.BeginDeleteInstances(ctx, a.azure.Group, pool, armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{InstanceIDs: []*string{to.Ptr(id)}},
			&armcompute.VirtualMachineScaleSetsClientBeginDeleteInstancesOptions{ForceDeletion: to.Ptr(false)})
		if err != nil {
			return err
		}
		deletions = append(deletions, d)
		delete(there, id)
	}
	for _, d := range deletions {
		// A later scan asks again for one that a newer write to the scale set pre-empts.
		var refused *azcore.ResponseError
		if _, err := d.PollUntilDone(ctx, nil); err != nil && (!errors.As(err, &refused) || refused.ErrorCode != "OperationPreempted") {
			return err
		}
	}
	return nil
}

// busy gives the nodes with a pod that scale-down would have to move.
func (a *autoscaler) busy(ctx context.Context) (map[string]bool, error) {
	var list struct{ Items []pod }
	if err := a.cluster.get(ctx, "/api/v1/pods", &list); err != nil {
		return nil, err
	}
	busy := map[string]bool{}
	for _, p := range list.Items {
		_, stays := p.Metadata.Annotations["kubernetes.io/config.mirror"]
		for _, owner := range p.Metadata.OwnerReferences {
			stays = stays || owner.Kind == "DaemonSet"
		}
		if !stays && p.Status.Phase != "Succeeded" && p.Status.Phase != "Failed" {
			busy[p.Spec.NodeName] = true
		}
	}
	return busy, nil
}
