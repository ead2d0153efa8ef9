package kube

import (
	"context"
	"errors"

	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/fleet"
)

// revokedPrefix begins the keys of machines that were revoked, among the names: no Node's
// name has such a letter, so that the policy lets none in by them. They are sealed as
// names are, and go as names do: the reaper takes them once Azure has no such machine.
const revokedPrefix = "revoked_"

func revokedKey(vmID string) string { return revokedPrefix + vmID }

// Revoke forgets a node, whichever instance it is, and keeps its machine from being
// admitted again until Azure has it no more: Azure signs for it as before, and who is
// root on it would be back in a second. A Node that was not admitted is forgotten only.
func (c *Cluster) Revoke(ctx context.Context, node string) error {
	a, known, err := c.admission(ctx, node)
	if err != nil {
		return err
	}
	if known {
		m := fleet.Member{VMID: a.VMID, Pool: a.Pool, Instance: a.Instance}
		_, err = c.names.change(ctx, &nameChange{name: revokedKey(a.VMID), set: func(admitted) admitted { return admittedOf(m, c.now()) }})
	}
	return errors.Join(err, c.Forget(ctx, node, ""))
}

// revoked is the error of a machine that was.
func revoked(m fleet.Member) error {
	return &fleet.Error{Op: "admit", Resource: "node " + m.NodeName(), Kind: fleet.KindDenied, Err: admission.ErrRevoked,
		Remedy: "delete the instance " + string(m.Instance)}
}
