package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/internal/boots/controller"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/auto"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/workflow"
)

// Codes of what preflight calls the same.
const (
	poolNotFound = "PoolNotFound"
	nodeNotFound = "NodeNotFound"
)

// refuseGone refuses scale sets that were named by their ARM ids, and that Azure does not
// have; nil for none.
func refuseGone(pools ...fleet.ResourceID) error {
	if len(pools) == 0 {
		return nil
	}
	r := &workflow.Refused{}
	for _, id := range pools {
		r.Problems = append(r.Problems, fleet.Problem{Code: poolNotFound, On: string(id), What: "there is no such scale set", WayOut: "check the id and the credentials' subscription (az vmss list)"})
	}
	return r
}

// checkPool refuses what can be neither a scale set's name nor its ARM id.
func checkPool(arg string) error {
	id := fleet.ResourceID(strings.TrimRight(arg, "/"))
	name, is := id.Segment("virtualMachineScaleSets"), strings.HasPrefix(arg, "/")
	if is && (!fleet.ValidName(name) || !id.Equal(id.In("virtualMachineScaleSets", name))) || !is && !fleet.ValidName(arg) {
		return usagef("%q is neither the name of a scale set nor its ARM id (/subscriptions/…/virtualMachineScaleSets/NAME)", arg)
	}
	return nil
}

// pool finds a scale set by its ARM id, or by its name among those that the cluster's
// Nodes are instances of. Letter case does not count.
func (o *options) pool(ctx context.Context, client kubernetes.Interface, places auto.Places, arg string) (fleet.ResourceID, error) {
	if err := checkPool(arg); err != nil {
		return "", err
	}
	if strings.HasPrefix(arg, "/") {
		return fleet.ResourceID(strings.TrimRight(arg, "/")), nil
	}
	nodes, err := listNodes(ctx, client)
	if err != nil {
		return "", err
	}
	return poolNamed(ctx, nodes, places, arg)
}

// poolNamed is pool for a name.
func poolNamed(ctx context.Context, nodes []controller.NodeView, places auto.Places, arg string) (fleet.ResourceID, error) {
	pools, names := map[controller.Key]fleet.ResourceID{}, map[string]bool{}
	for i := range nodes {
		place, err := places.Of(ctx, fleet.Node{Name: nodes[i].Name, ProviderID: nodes[i].ProviderID})
		if capture.Unplaced(err) {
			continue // a machine of its own, or of another cloud
		}
		if err != nil {
			return "", err
		}
		pool := place.Pool
		names[pool.Name()] = true
		if strings.EqualFold(pool.Name(), arg) {
			pools[controller.KeyOf(pool)] = pool
		}
	}
	found := slices.Sorted(maps.Values(pools))
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		text := make([]string, len(found))
		for i, id := range found {
			text[i] = string(id)
		}
		return "", refuse("PoolAmbiguous", "scale set "+arg, fmt.Sprintf("%d have that name: %s", len(found), strings.Join(text, ", ")), "give the ARM id of one")
	case len(names) == 0:
		return "", refuse(poolNotFound, "scale set "+arg, "no Node of this cluster is an instance of a scale set", "give its ARM id (az vmss list)")
	}
	return "", refuse(poolNotFound, "scale set "+arg, "the Nodes of this cluster are instances of "+strings.Join(slices.Sorted(maps.Keys(names)), ", "), "give one of these, or an ARM id")
}

// nodeOrPool returns the node or the scale set that an argument names. A Node goes before
// a scale set of the same name; what is neither is taken for a node, which is not found.
func (o *options) nodeOrPool(ctx context.Context, client kubernetes.Interface, places auto.Places, arg string) (node string, pool fleet.ResourceID, err error) {
	if strings.HasPrefix(arg, "/") {
		pool, err = o.pool(ctx, client, places, arg)
		return "", pool, err
	}
	nodes, err := listNodes(ctx, client)
	switch {
	case apierrors.IsForbidden(err): // then it can only be a node
		return arg, "", nil
	case err != nil:
		return "", "", err
	case slices.ContainsFunc(nodes, func(n controller.NodeView) bool { return n.Name == arg }):
		return arg, "", nil
	}
	pool, err = poolNamed(ctx, nodes, places, arg)
	var refused *workflow.Refused
	if errors.As(err, &refused) && refused.Problems[0].Code == poolNotFound {
		return arg, "", nil
	}
	return "", pool, err
}
