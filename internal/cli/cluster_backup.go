package cli

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/k3s/lifecycle"
)

func newClusterBackup(c *clusterOptions) *cobra.Command {
	var (
		list   bool
		remove string
	)
	cmd := clusterCommand("backup", "Back up the state disk, or list and delete backups", `backup makes a snapshot of the cluster's state disk: its objects, certificates, tokens
and local volumes. The server goes on running. A backup lies in the storage group and
stays until it is deleted; of those that up and replace server make, three stay, and all
while the server is not ready.

Without NAME it is named after the time, and where cluster.yaml has spec.backup, it goes
into that group: down deletes none of it. It is copied to spec.backup.region, and once it
is complete, backups over spec.backup.keep are deleted. Interrupted, the same command
completes it.`, nil)
	cmd.Use = "backup [NAME]"
	cmd.Args = cobra.MaximumNArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		deletes := cmd.Flags().Changed("delete")
		if list && deletes || len(args) > 0 && (list || deletes) {
			return usagef("give one of NAME, --list and --delete")
		}
		if deletes && remove == "" || len(args) > 0 && args[0] == "" { // as of a variable that is not set
			return usagef("name of the backup is empty")
		}
		show := c.newProgress()
		defer show.Close()
		m, err := c.manager(ctx, show.Report, nil)
		if err != nil {
			return err
		}
		switch {
		case list:
			all, err := m.Backups(ctx)
			if err != nil {
				return err
			}
			var names []string
			for _, b := range all {
				names = append(names, b.Name)
			}
			return c.printNames(all, names, func(w io.Writer) { writeBackups(w, all, time.Now()) })
		case deletes:
			if err := m.DeleteBackup(ctx, remove); err != nil {
				return c.printFailure(nil, nil, err)
			}
			return c.printNames(map[string]string{"deleted": remove}, []string{remove}, func(w io.Writer) { say(w, "Deleted: backup %s.", remove) })
		}
		name := ""
		if len(args) > 0 {
			name = args[0]
		}
		if name == "" && m.Cluster.Spec.Backup != nil {
			b, err := m.BackupToGroup(ctx)
			show.Close()
			if err != nil {
				return c.printFailure(nil, nil, err)
			}
			return c.printNames(b, []string{b.Name}, func(w io.Writer) {
				say(w, "Backup %s of %d GiB is made in group %s.", b.Name, b.SizeGB, m.Cluster.Spec.Backup.Group)
				if b.Copy != "" {
					say(w, "Copied to %s: %s.", b.Region, b.Copy.Name())
				}
				if len(b.Deleted) > 0 {
					say(w, "Deleted: %s.", strings.Join(b.Deleted, ", "))
				}
			})
		}
		b, err := m.Backup(ctx, name, "")
		show.Close()
		if err != nil {
			return c.printFailure(nil, nil, err)
		}
		return c.printNames(b, []string{b.Name}, func(w io.Writer) { say(w, "Backup %s of %d GiB is made.", b.Name, b.SizeGB) })
	}
	c.takesForms(cmd, nameForm)
	cmd.Flags().BoolVar(&list, "list", false, "list the backups")
	cmd.Flags().StringVar(&remove, "delete", "", "delete backup `NAME`")
	return cmd
}

func newClusterRestore(c *clusterOptions) *cobra.Command {
	var (
		own ownAddresses
		yes string
	)
	cmd := clusterCommand("restore FROM", "Make the state disk again of a backup, and the server on it", `restore brings the cluster's state back to a backup: objects, certificates, tokens and
local volumes. FROM is a name in the storage group or in spec.backup.group, or an ARM id
of a backup. One of another cluster makes a new cluster, which has no state yet. What is there now is backed up before. The server's VM is deleted, the
disk is made again of the backup, and then it does what up does. After an upgrade that
failed, write the backup's k3s into cluster.yaml first. It asks for the cluster's name.

Agents go on meanwhile. Those that joined after the backup have no Ready Node then:
ortet cluster reimage POOL has them join again. Interrupted, the same command goes on,
and so does up.`, nil)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if args[0] == "" { // as of a variable that is not set
			return usagef("name of the backup is empty")
		}
		return c.deploy(cmd.Context(), own, func(ctx context.Context, m *lifecycle.Manager) (*lifecycle.Result, error) {
			if err := m.CheckRestore(ctx, args[0]); err != nil {
				return nil, err
			}
			name := m.Cluster.Metadata.Name
			if err := c.confirm("cluster", name, yes, "Backup "+args[0]+" will replace the state of cluster "+name+": objects, certificates and local volumes."); err != nil {
				return nil, err
			}
			return m.Restore(ctx, args[0])
		})
	}
	own.add(cmd)
	cmd.Flags().StringVar(&yes, "yes", "", "`NAME` of the cluster, instead of being asked for it")
	return cmd
}

func writeBackups(w io.Writer, all []lifecycle.Backup, now time.Time) {
	if len(all) == 0 {
		say(w, "The cluster has no backups.")
		return
	}
	rows := [][]string{{"BACKUP", "AGE", "K3S", "GIB", "STATE", "WHY"}}
	for _, b := range all {
		rows = append(rows, cells(b.Name, age(b.Created, now), b.K3s, b.SizeGB, b.State, b.Why))
	}
	writeTable(w, rows, shrink{5, 6}) // names are whole, since restore and --delete take them
}
