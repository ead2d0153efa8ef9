package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/k3s/lifecycle"
)

// watchInterval is the interval between two observations of status --watch.
const watchInterval = 10 * time.Second

// azureLists are the Azure CLI's commands for what Azure offers in a location.
func azureLists(location string) string {
	return fmt.Sprintf(`  az vm image list -l %[1]s --publisher Debian --all -o table
  az account list-locations -o table
  az vm list-skus -l %[1]s -r virtualMachines -o table`, location)
}

func newClusterStatus(c *clusterOptions) *cobra.Command {
	var watch bool
	cmd := clusterCommand("status", "Show what exists of the cluster in Azure", `status shows the cluster's groups, their deployments, the server and how far it has
booted, the pools, the storage, the endpoints and what is billed of it all: while it is
up, also while its machines are stopped, or always.

Lists of what Azure offers come from the Azure CLI:

`+azureLists("LOCATION"), func(ctx context.Context, _ []string) error {
		m, err := c.manager(ctx, nil, nil)
		if err != nil {
			return err
		}
		tick := time.NewTicker(watchInterval)
		defer tick.Stop()
		for {
			s, err := m.Status(ctx)
			if watch && ctx.Err() != nil {
				return nil // Ctrl-C is how watching ends
			}
			if err != nil {
				return err
			}
			if watch && columnsOf(c.process.Out) > 0 {
				fmt.Fprint(c.process.Out, "\x1b[H\x1b[2J")
			}
			if err := c.print(s, func(w io.Writer) { writeClusterStatus(w, s, time.Now()) }); err != nil || !watch {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			if c.output == "table" {
				fmt.Fprintln(c.process.Out)
			}
		}
	})
	cmd.Flags().BoolVar(&watch, "watch", false, "show it again every 10s, until Ctrl-C")
	return cmd
}

func newClusterEndpoints(c *clusterOptions) *cobra.Command {
	return clusterCommand("endpoints", "Show the server's addresses and open ports", "", func(ctx context.Context, _ []string) error {
		m, err := c.manager(ctx, nil, nil)
		if err != nil {
			return err
		}
		all, err := m.Endpoints(ctx)
		if err != nil {
			return err
		}
		if len(all) == 0 && c.output == "table" {
			return errors.New("cannot find the server's public address: cluster is down; ortet cluster up makes it")
		}
		return c.print(all, func(w io.Writer) { writeEndpoints(w, all) })
	})
}

func writeClusterStatus(w io.Writer, s *lifecycle.Status, now time.Time) {
	say(w, "Cluster %s in %s, subscription %s", s.Cluster, s.Location, s.Subscription)
	fmt.Fprintln(w)
	rows, failed := [][]string{{"GROUP", "STATE", "RESOURCES", "DEPLOYMENT", "AGE"}}, []string{}
	for _, g := range s.Groups {
		state, at := "missing", "-"
		if g.Exists {
			state = g.State
		}
		if g.DeployedAt != nil {
			at = age(*g.DeployedAt, now)
		}
		rows = append(rows, cells(g.Name, state, g.Resources, g.Deployment, at))
		if g.Error != "" {
			failed = append(failed, g.Name+": "+g.Error)
		}
	}
	writeTable(w, rows, shrink{0, 20})
	for _, f := range failed {
		paragraph(w, resultWidth, "", "  ", f)
	}
	if v := s.Server; v != nil {
		fmt.Fprintln(w)
		same := map[bool]string{true: "current", false: "others"}
		writeTable(w, [][]string{{"SERVER", "STATE", "POWER", "READY", "K3S", "SETTINGS", "RECIPE"},
			cells(v.Size, v.State, v.Power, yes(v.Ready), v.K3s, same[v.SameSettings], same[v.SameRecipe])}, shrink{4, 12}, shrink{0, 16})
		if v.Boot != "" {
			paragraph(w, resultWidth, "boot: ", "  ", v.Boot)
		}
		if v.CertificatesEnd != nil {
			fmt.Fprintf(w, "certificates end: %s\n", v.CertificatesEnd.Format(time.DateOnly))
		}
		if t := v.Tailnet; t != nil {
			expiry := "never"
			if t.KeyExpiry != nil {
				expiry = t.KeyExpiry.Format(time.DateOnly)
			}
			text := fmt.Sprintf("%s, name %s, address %s, key ends: %s", t.State, first(t.Name, t.Hostname), dash(t.Address), expiry)
			if label, _, _ := strings.Cut(t.Name, "."); label != "" && label != t.Hostname {
				text += "; another machine of the tailnet has the name " + t.Hostname
			}
			paragraph(w, resultWidth, "tailnet: ", "  ", text)
		}
		if v.Datastore != "" {
			paragraph(w, resultWidth, "datastore: ", "  ", v.Datastore)
		}
	}
	if len(s.Pools) > 0 {
		fmt.Fprintln(w)
		rows := [][]string{{"POOL", "SIZE", "PRIORITY", "WANTED", "INSTANCES", "RUNNING", "BEHIND", "STATE"}}
		for _, p := range s.Pools {
			state := p.State
			if p.Stopped {
				state = "stopped" // by ortet cluster stop
			}
			rows = append(rows, cells(p.Name, p.Size, p.Priority, p.Wanted, p.Instances, p.Running, p.Behind, state))
		}
		writeTable(w, rows, shrink{1, 12})
	}
	if a := s.Storage; a != nil {
		fmt.Fprintln(w)
		say(w, "Storage account %s (%s): shares %s", a.Account, a.State, dash(strings.Join(a.Shares, ", ")))
	}
	if s.LastBackup != nil {
		fmt.Fprintf(w, "Last backup: %s old\n", age(*s.LastBackup, now))
	}
	if len(s.Endpoints) > 0 {
		fmt.Fprintln(w)
		writeEndpoints(w, s.Endpoints)
	}
	fmt.Fprintln(w)
	writeBilled(w, s.Billed)
	if len(s.Notes) > 0 {
		list(w, "Note", s.Notes)
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "Images, locations and sizes that Azure offers:\n%s\n", azureLists(s.Location))
}

// writeBilled writes what is billed, and when.
func writeBilled(w io.Writer, all []lifecycle.Charge) {
	if len(all) == 0 {
		return
	}
	rows := [][]string{{"BILLED", "NUMBER", "WHEN"}}
	for _, c := range all {
		rows = append(rows, cells(c.What, c.Number, c.When))
	}
	writeTable(w, rows, shrink{0, 24})
	fmt.Fprintln(w)
}

func writeEndpoints(w io.Writer, all []lifecycle.Endpoint) {
	rows := [][]string{{"NAME", "PORT", "OPEN TO"}}
	for i, e := range all {
		if i == 0 {
			fmt.Fprintf(w, "Address: %s\n", dash(e.Address))
			if e.FQDN != "" {
				fmt.Fprintf(w, "FQDN:    %s\n", e.FQDN)
			}
		}
		rows = append(rows, cells(e.Name, e.Port, strings.Join(e.Open, ", ")))
	}
	writeTable(w, rows, shrink{2, 30})
}
