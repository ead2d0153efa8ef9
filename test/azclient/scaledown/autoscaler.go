package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/ortet/ortet/test/azclient"
)

// An autoscaler scales a pool in by the rules of cluster-autoscaler, of which a node
// is long unneeded as soon as it is empty: it deletes each node without a pod that
// would have to move, in the order of their names, unless the Node's annotation
// forbids it. Like cluster-autoscaler it leaves an instance's protection to Azure.
type autoscaler struct {
	cluster azclient.Cluster
	azure   *azclient.Cloud
	pool    string
	minimum int
	out     io.Writer // takes a line for each deletion, when it is begun
	active  bool
}

type deletion = *runtime.Poller[armcompute.VirtualMachineScaleSetsClientDeleteInstancesResponse]

// run scans until stop is closed, and ends the scan that it is in.
func (a *autoscaler) run(ctx context.Context, stop <-chan struct{}, every time.Duration) error {
	tick := time.NewTicker(every)
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

// scan deletes once a node is cordoned, and waits until its deletions have ended.
func (a *autoscaler) scan(ctx context.Context) error {
	members, err := a.azure.Members(ctx, a.pool)
	if err != nil {
		return err
	}
	nodes, err := a.cluster.Nodes(ctx)
	if err != nil {
		return err
	}
	pods, err := a.cluster.Pods(ctx)
	if err != nil {
		return err
	}
	there := map[string]*string{} // instance ids, by provider id
	for _, vm := range members {
		if vm.State != "Deleting" {
			there[strings.ToLower("azure://"+vm.ID)] = &vm.InstanceID
		}
	}
	for _, n := range nodes {
		a.active = a.active || n.Spec.Unschedulable
	}
	blocked := busy(pods)
	var deletions []deletion
	for _, n := range nodes {
		provider := strings.ToLower(n.Spec.ProviderID)
		id := there[provider]
		if !a.active || len(there) <= a.minimum || id == nil || blocked[n.Metadata.Name] || n.Metadata.Annotations[azclient.ScaleDownDisabled] == "true" {
			continue
		}
		if _, err := fmt.Fprintf(a.out, "delete %s\n", n.Metadata.Name); err != nil {
			return err
		}
		d, err := a.azure.Sets.BeginDeleteInstances(ctx, a.azure.Group, a.pool, armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{InstanceIDs: []*string{id}},
			&armcompute.VirtualMachineScaleSetsClientBeginDeleteInstancesOptions{ForceDeletion: to.Ptr(false)})
		if err != nil {
			return err
		}
		deletions = append(deletions, d)
		delete(there, provider)
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

// busy returns the nodes with a pod that scale-down would have to move.
func busy(pods []azclient.Pod) map[string]bool {
	busy := map[string]bool{}
	for _, p := range pods {
		_, stays := p.Metadata.Annotations["kubernetes.io/config.mirror"]
		for _, owner := range p.Metadata.OwnerReferences {
			stays = stays || owner.Kind == "DaemonSet"
		}
		if !stays && p.Status.Phase != "Succeeded" && p.Status.Phase != "Failed" {
			busy[p.Spec.NodeName] = true
		}
	}
	return busy
}
