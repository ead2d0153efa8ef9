package azure

import (
	"context"
	"fmt"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
)

const azureScheme = "azure://"

// nameIt is what to do where the candidates are not those of the Node.
const nameIt = "name its resource group by azure.json or AZURE_RESOURCE_GROUP"

// match finds the member that a Node without Azure's provider id is.
func (p *Places) match(ctx context.Context, n fleet.Node) (fleet.Place, error) {
	refuse := func(format string, args ...any) (fleet.Place, error) {
		why := fmt.Sprintf("its provider id %q is not Azure's", n.ProviderID)
		if n.ProviderID == "" {
			why = "it has no provider id"
		}
		return fleet.Place{}, &fleet.Error{Op: "find the instance", Resource: "node " + n.Name, Kind: fleet.KindInvalid,
			Err: fmt.Errorf("%s, and "+format, append([]any{why}, args...)...)}
	}
	if !fleet.IsUUID(n.SystemUUID) {
		if n.SystemUUID == "" {
			return refuse("its kubelet reports no systemUUID to find its machine by")
		}
		return refuse("its kubelet reports the systemUUID %q, which is no machine's", n.SystemUUID)
	}
	if err := p.list(ctx); err != nil {
		return fleet.Place{}, fmt.Errorf("find the instance of node %s: %w", n.Name, err)
	}
	var found []fleet.Instance
	named := ""
	for _, m := range p.members {
		if n.Claim().Claims(m.Computer()) {
			found = append(found, m)
		} else if strings.EqualFold(m.HostName, n.Name) {
			named = fmt.Sprintf("; %s has its host name and the vmId %s", m.ID, m.VMID)
		}
	}
	switch {
	case len(p.sets) == 0:
		return refuse("there is no scale set to look for it in: %s", nameIt)
	case len(found) == 0:
		return refuse("its systemUUID %s is the vmId of no member of %s%s: %s", n.SystemUUID, p.setNames(), named, nameIt)
	case len(found) > 1:
		return refuse("its systemUUID %s is the vmId of %s and of %s", n.SystemUUID, found[0].ID, found[1].ID)
	}
	m := found[0]
	if err := n.Claim().Is(m.Computer()); err != nil {
		return refuse("%s has its systemUUID as vmId, but the host name %q: a node is matched only where its name is the host name",
			m.ID, m.HostName)
	}
	return fleet.Place{Instance: m.ID, Pool: m.Pool}, nil
}

// list reads the members of the candidates, once.
func (p *Places) list(ctx context.Context) error {
	if p.sets != nil || p.listErr != nil {
		return p.listErr
	}
	err := p.read(ctx)
	if refusedForGood(err) {
		p.listErr = err
	}
	return err
}

func (p *Places) read(ctx context.Context) error {
	sets, err := p.Sets(ctx)
	if err != nil {
		return err
	}
	var members []fleet.Instance
	for _, set := range sets {
		list, err := p.Reader.Instances(ctx, set)
		if err != nil && !fleet.Is(err, fleet.KindNotFound) { // else it was deleted since
			return err
		}
		for _, m := range list {
			m.Pool = set
			members = append(members, m)
		}
	}
	p.sets, p.members = append([]fleet.ResourceID{}, sets...), members
	return nil
}

func (p *Places) setNames() string {
	var names []string
	for _, set := range p.sets {
		names = append(names, set.Name())
	}
	return strings.Join(names, ", ")
}
