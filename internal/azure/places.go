package azure

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
)

// PoolOfNode reads the machine that a Node is, for one request, and returns its scale set. KindInvalid
// says why the Node is no machine, is not the one that it names, or is in no scale set; KindNotFound
// that there is no such machine.
func PoolOfNode(ctx context.Context, r Reader, n fleet.Node) (fleet.ResourceID, error) {
	id, err := n.Instance()
	if err != nil {
		return "", err
	}
	i, err := r.Instance(ctx, id)
	if err == nil {
		err = n.Claim().Is(i.Computer())
	}
	if err == nil && i.Pool == "" {
		err = alone(i.ID)
	}
	return i.Pool, err
}

// PoolOf returns the scale set of a machine: of a Uniform set's instance without a
// request, of a virtual machine as Azure says. One of its own, in no scale set, is
// fleet.KindInvalid.
func PoolOf(ctx context.Context, r Reader, machine fleet.ResourceID) (fleet.ResourceID, error) {
	if pool := machine.UniformPool(); pool != "" {
		return pool, nil
	}
	i, err := r.Instance(ctx, machine)
	if err == nil && i.Pool == "" {
		err = alone(machine)
	}
	return i.Pool, err
}

func alone(machine fleet.ResourceID) error {
	return &fleet.Error{Op: "find the scale set of", Resource: string(machine), Kind: fleet.KindInvalid, Err: errors.New("a virtual machine of its own, in no scale set")}
}

// Places finds the machines of Nodes, and their scale sets. It asks Azure once for each
// resource group with virtual machines, however many Nodes there are, and keeps what it
// was answered: use it for one list of Nodes. It is not safe for concurrent use.
//
// What a Node says by Azure's provider id only finds the machine: whether the Node is it decides
// fleet.Claim, once the machine was read. A Node without one is a member of one of
// Sets if that one's vmId is the Node's systemUUID, no other member's is, and its host name is the
// Node's name.
type Places struct {
	Reader Reader
	Sets   func(context.Context) ([]fleet.ResourceID, error) // candidates; nil for none

	members  []fleet.Instance // of Sets
	sets     []fleet.ResourceID
	listErr  error            // of a list that Azure refuses
	machines map[string]group // by resource group, in lower case
}

// A group has a resource group's virtual machines with their scale sets, or why Azure refuses
// their list: each of a hundred Nodes would ask for it again.
type group struct {
	machines map[fleet.ResourceID]fleet.ResourceID
	err      error
}

// refusedForGood reports that asking again would be answered the same.
func refusedForGood(err error) bool {
	return fleet.Is(err, fleet.KindDenied) || fleet.Is(err, fleet.KindNotFound)
}

// Of returns where a Node runs. With the reason, fleet.KindInvalid is a Node that is no
// machine of a scale set, and fleet.KindNotFound one whose virtual machine is gone; all
// other errors are Azure's.
func (p *Places) Of(ctx context.Context, n fleet.Node) (fleet.Place, error) {
	id, err := fleet.ParseMachine(n.ProviderID)
	if err != nil && p.Sets != nil && !strings.HasPrefix(n.ProviderID, azureScheme) {
		return p.match(ctx, n)
	}
	if err != nil {
		return fleet.Place{}, err
	}
	if pool := id.UniformPool(); pool != "" {
		return fleet.Place{Instance: id, Pool: pool}, nil
	}
	name := strings.ToLower(string(id.Group()))
	known, asked := p.machines[name]
	if !asked {
		known.machines, known.err = p.Reader.Machines(ctx, id.Group())
		if p.machines == nil {
			p.machines = map[string]group{}
		}
		if known.err == nil || refusedForGood(known.err) {
			p.machines[name] = known
		}
	}
	if known.err != nil {
		return fleet.Place{}, fmt.Errorf("find the scale set of node %s: %w", n.Name, known.err)
	}
	pool, there := known.machines[fleet.ResourceID(strings.ToLower(string(id)))]
	switch {
	case !there:
		return fleet.Place{}, &fleet.Error{Op: "find the scale set of", Resource: string(id), Kind: fleet.KindNotFound, Err: errors.New("the virtual machine does not exist any more")}
	case pool == "":
		return fleet.Place{}, alone(id)
	}
	return fleet.Place{Instance: id, Pool: pool}, nil
}
