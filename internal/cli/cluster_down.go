package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
)

func newClusterDown(c *clusterOptions) *cobra.Command {
	var (
		all, storage, state bool
		yes                 string
	)
	cmd := clusterCommand("down", "Delete the cluster's machines, or its storage too", `down deletes the compute group and waits. Storage stays, and with it the state disk:
ortet cluster up brings the cluster back with its objects, certificates and data. With
--state the disk goes too, and the next up makes another cluster. It asks for the
cluster's name, and refuses groups that it did not make or in which others have
resources.`, func(ctx context.Context, _ []string) error {
		roles := []string{lifecycle.RoleCompute}
		switch {
		case all && (storage || state), storage && state:
			return usagef("--all deletes everything, and --storage the state disk too; give one of --all, --storage and --state")
		case all:
			roles = append(roles, lifecycle.RoleStorage)
		case storage:
			roles = []string{lifecycle.RoleStorage}
		case state:
			roles = append(roles, lifecycle.RoleState)
		}
		show := c.newProgress()
		defer show.Close()
		m, err := c.manager(ctx, show.Report, nil)
		if err != nil {
			return err
		}
		n, err := m.Check(ctx, roles)
		if err != nil {
			return err
		}
		what := fmt.Sprintf("This deletes %s of cluster %s", fleet.Count(n, "resource"), m.Cluster.Metadata.Name)
		if all || storage {
			what += ", and all data on its storage"
		}
		if state {
			what += ", and its state disk: objects, certificates and local volumes"
		}
		if n > 0 {
			if err := c.confirm("cluster", m.Cluster.Metadata.Name, yes, what+"."); err != nil {
				return err
			}
		}
		defer c.goesOn(ctx, show)()
		r, err := m.Down(ctx, roles)
		show.Close()
		if err != nil {
			return c.printFailure(r, nil, err)
		}
		return c.print(r, func(w io.Writer) {
			if len(r.Deleted) > 0 {
				say(w, "Deleted: %s.", strings.Join(r.Deleted, ", "))
			}
			if len(r.Missing) > 0 {
				say(w, "Did not exist: %s.", strings.Join(r.Missing, ", "))
			}
			list(w, "Kept", r.Kept)
			if !all && !storage && len(r.Deleted) > 0 {
				next := "ortet cluster up makes the cluster again."
				if state {
					next = "ortet cluster up makes a new cluster; ortet cluster restore NAME makes that of a backup."
				}
				say(w, "Storage stays; ortet cluster down --storage deletes it. %s", next)
			}
		})
	})
	f := cmd.Flags()
	f.BoolVar(&storage, "storage", false, "delete the storage group instead, with all data; compute must be deleted before")
	f.BoolVar(&state, "state", false, "delete the state disk too; its backups stay")
	f.BoolVar(&all, "all", false, "delete the compute group, then the storage group with all data")
	f.StringVar(&yes, "yes", "", "`NAME` of the cluster, instead of being asked for it")
	return cmd
}
