package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

func newAdmissionRevoke(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke NODE",
		Short: "Revoke a machine's admission and delete its Node",
		Long: `revoke withdraws the admission of one machine, for example after its kubelet's key
was stolen:

  - its name is no longer admitted, and its certificates are not renewed
  - its token and certificate requests are deleted
  - its Node is deleted, which ends the kubelet's read access
  - it cannot join again until its instance is deleted, although Azure
    still signs documents for it

Kubernetes cannot revoke certificates: until it expires, the stolen certificate
still authenticates, but cannot register a Node. To bring the machine back, delete
its instance and create a new one: its disk still holds what was stolen.`,
		Args: oneNode("the Node of the machine to revoke"),
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
