package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/internal/boots/assess"
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
func poolNamed(ctx context.Context, nodes []assess.NodeView, places auto.Places, arg string) (fleet.ResourceID, error) {
	pools, names := map[fleet.Key]fleet.ResourceID{}, map[string]bool{}
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
			pools[fleet.KeyOf(pool)] = pool
		}
	}
	found := slices.Sorted(maps.Values(pools))
	switch {
	case len(found) > 0:
		return oneOf(arg, found)
	case len(names) == 0:
		return "", refuse(poolNotFound, "scale set "+arg, "no Node of this cluster is an instance of a scale set", "give its ARM id (az vmss list)")
	}
	return "", refuse(poolNotFound, "scale set "+arg, "the Nodes of this cluster are instances of "+strings.Join(slices.Sorted(maps.Keys(names)), ", "), "give one of these, or an ARM id")
}

// groupsWith returns the resource groups that are looked at where no pool is named: those of the
// flags, of Nodes, and of the credentials.
func (v *surveyor) groupsWith(nodes []assess.NodeView) []fleet.ResourceID {
	groups := slices.Clone(v.groups)
	for i := range nodes {
		if id, ok := assess.InstanceOf(nodes[i].ProviderID); ok {
			groups = append(groups, id.Group())
		}
	}
	if v.look.group != "" {
		groups = append(groups, v.look.group)
	}
	return groups
}

// distinct returns the ids in order, each once.
func distinct(ids []fleet.ResourceID) []fleet.ResourceID {
	sorted := slices.SortedFunc(slices.Values(ids), func(a, b fleet.ResourceID) int { return cmp.Compare(fleet.KeyOf(a), fleet.KeyOf(b)) })
	return slices.CompactFunc(sorted, fleet.ResourceID.Equal)
}

// pool is options.pool, also for the name of a scale set of which no instance became a Node.
func (v *surveyor) pool(ctx context.Context, arg string) (fleet.ResourceID, error) {
	id, err := v.o.pool(ctx, v.client, v.look.places(v.lookErr), arg)
	var refused *workflow.Refused
	if v.lookErr != nil || !errors.As(err, &refused) || refused.Problems[0].Code != poolNotFound {
		return id, err
	}
	nodes, listErr := listNodes(ctx, v.client)
	if listErr != nil {
		return "", listErr
	}
	var found []fleet.ResourceID
	var unread []error
	for _, group := range distinct(v.groupsWith(nodes)) {
		pools, listErr := v.look.boots.Pools(ctx, group)
		if err := fleet.IgnoreNotFound(listErr); err != nil {
			unread = append(unread, err)
		}
		for _, p := range pools {
			if strings.EqualFold(p.ID.Name(), arg) {
				found = append(found, p.ID)
			}
		}
	}
	switch {
	case len(found) > 0:
		return oneOf(arg, found)
	case len(unread) > 0: // it may exist
		return "", fmt.Errorf("find scale set %s: %s, and Azure did not list all scale sets: %w", arg, refused.Problems[0].What, errors.Join(unread...))
	}
	return "", err
}

// oneOf returns the only scale set of that name.
func oneOf(arg string, found []fleet.ResourceID) (fleet.ResourceID, error) {
	if len(found) == 1 {
		return found[0], nil
	}
	text := make([]string, len(found))
	for i, id := range found {
		text[i] = string(id)
	}
	return "", refuse("PoolAmbiguous", "scale set "+arg, fmt.Sprintf("%d have that name: %s", len(found), strings.Join(text, ", ")), "give the ARM id of one")
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
	case slices.ContainsFunc(nodes, func(n assess.NodeView) bool { return n.Name == arg }):
		return arg, "", nil
	}
	pool, err = poolNamed(ctx, nodes, places, arg)
	var refused *workflow.Refused
	if errors.As(err, &refused) && refused.Problems[0].Code == poolNotFound {
		return arg, "", nil
	}
	return "", pool, err
}
