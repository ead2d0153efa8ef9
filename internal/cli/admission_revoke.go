package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

func newAdmissionRevoke(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke NODE",
		Short: "Take a machine's admission back, with its Node",
		Long: `revoke undoes the admission of one machine, as when its kubelet's key was stolen.
Its name is admitted no more, its token and its certificate requests are deleted, and
so is its Node, with which the API server ends what the kubelet may read. No
certificate of it is renewed, or taken by the admission server, again. The machine
itself cannot join again until its instance is deleted, although Azure still signs
documents for it.

Kubernetes revokes no certificate: until it ends, its holder is authenticated still,
but can register no Node. A machine that is to come back is deleted and made anew; its
disk alone keeps what was stolen.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.revokeAdmission(cmd.Context(), args[0]) },
	}
}

// revokeAdmission revokes a node, whichever instance it is.
func (o *options) revokeAdmission(ctx context.Context, node string) error {
	c, err := o.admissionRecords(ctx, admissionFlags{})
	if err != nil {
		return err
	}
	if err := c.Revoke(ctx, node); err != nil {
		return err
	}
	_, err = fmt.Fprintf(o.process.Out, "revoked the admission of %s\n", node)
	return err
}
