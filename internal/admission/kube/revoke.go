package kube

import (
	"context"
	"errors"

	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/fleet"
)

// revokedPrefix marks keys of revoked machines in the ConfigMap of admitted names. A Node
// name cannot contain "_", so the policy admits no Node by such a key. Entries are sealed
// like names, and the reaper deletes them when Azure no longer has the machine.
const revokedPrefix = "revoked_"

func revokedKey(vmID string) string { return revokedPrefix + vmID }

// Revoke forgets a node, whichever instance it is, and bars its machine from joining again
// until Azure no longer has it: Azure still signs documents for it, so root on the machine
// could otherwise join again at once. A Node that was not admitted is only forgotten.
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

func revokedError(m fleet.Member) error {
	return &fleet.Error{Op: "admit", Resource: "node " + m.NodeName(), Kind: fleet.KindDenied, Err: admission.ErrRevoked,
		Remedy: "delete the instance " + string(m.Instance)}
}
