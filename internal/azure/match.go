package azure

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
)

const azureScheme = "azure://"

// A uuid is a machine's id, in the byte order in which it is written.
type uuid [16]byte

// parseUUID reads one; zeros or ones alone, which firmware without an id reports, are none.
func parseUUID(text string) (u uuid, ok bool) {
	const digits = 2 * len(u)
	plain := strings.ReplaceAll(text, "-", "")
	if len(plain) != digits || strings.Trim(plain, "0") == "" || strings.Trim(plain, "fF") == "" {
		return uuid{}, false
	}
	_, err := hex.Decode(u[:], []byte(plain))
	return u, err == nil
}

// swapped has the first three groups' bytes the other way around: SMBIOS before 2.6 wrote
// them so, and what reads them may take one for the other.
func (u uuid) swapped() uuid {
	slices.Reverse(u[:4])
	slices.Reverse(u[4:6])
	slices.Reverse(u[6:8])
	return u
}

// is reports whether a text is this id, in either byte order.
func (u uuid) is(text string) bool {
	other, ok := parseUUID(text)
	return ok && (other == u || other == u.swapped())
}

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
	id, ok := parseUUID(n.SystemUUID)
	if !ok {
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
		if id.is(m.VMID) {
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
	if !strings.EqualFold(m.HostName, n.Name) {
		return refuse("%s has its systemUUID as vmId, but the host name %q: a node is matched only where its name is the host name",
			m.ID, m.HostName)
	}
	for _, other := range p.Nodes {
		machine, err := fleet.ParseMachine(other.ProviderID)
		if other.Name != n.Name && (id.is(other.SystemUUID) || err == nil && machine.Equal(m.ID)) {
			return refuse("node %s claims to be %s too: delete the one that is stale, or find out which of them lies", other.Name, m.ID)
		}
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
