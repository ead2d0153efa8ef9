package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/elastic/lifecycle"
)

// watchInterval is the interval between two observations of status --watch.
const watchInterval = 10 * time.Second

func newClusterStatus(c *clusterOptions) *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what exists of the cluster in Azure",
		Long: `status shows the cluster's groups, their deployments, the server and how far it has
booted, the pools, the storage and the endpoints.

Lists of what Azure offers come from the Azure CLI:

  az vm image list --location LOCATION --publisher Debian --all -o table
  az account list-locations -o table
  az vm list-skus --location LOCATION --resource-type virtualMachines -o table`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := c.reader(cmd.Context(), nil)
			if err != nil {
				return err
			}
			for {
				s, err := m.Status(cmd.Context())
				if err != nil {
					return err
				}
				if watch && columnsOf(c.process.Out) > 0 {
					fmt.Fprint(c.process.Out, "\x1b[H\x1b[2J")
				}
				if err := c.print(s, func(w io.Writer) { writeClusterStatus(w, s, time.Now()) }); err != nil || !watch {
					return err
				}
				if err := sleep(cmd.Context(), watchInterval); err != nil {
					return nil //nolint:nilerr // Ctrl-C is how watching ends
				}
				if c.output == "table" {
					fmt.Fprintln(c.process.Out)
				}
			}
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "show it again every 10s, until Ctrl-C")
	return cmd
}

func newClusterEndpoints(c *clusterOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "endpoints",
		Short: "Show the server's addresses and open ports",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := c.reader(cmd.Context(), nil)
			if err != nil {
				return err
			}
			all, err := m.Endpoints(cmd.Context())
			if err != nil {
				return err
			}
			if len(all) == 0 && c.output == "table" {
				return errors.New("cannot find the server's public address: cluster is down; ortet cluster up makes it")
			}
			return c.print(all, func(w io.Writer) { writeEndpoints(w, all) })
		},
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func writeClusterStatus(w io.Writer, s *lifecycle.Status, now time.Time) {
	say(w, "Cluster %s in %s, subscription %s", s.Cluster, s.Location, s.Subscription)
	fmt.Fprintln(w)
	rows := [][]string{{"GROUP", "STATE", "RESOURCES", "DEPLOYMENT", "AGE"}}
	for _, g := range s.Groups {
		state := "missing"
		if g.Exists {
			state = dash(g.State)
		}
		at := "-"
		if g.DeployedAt != nil {
			at = age(*g.DeployedAt, now)
		}
		rows = append(rows, []string{g.Name, state, fmt.Sprint(g.Resources), dash(g.Deployment), at})
	}
	fit(rows, resultWidth, []shrink{{0, 20}})
	writeRows(w, rows)
	for _, g := range s.Groups {
		if g.Error != "" {
			paragraph(w, resultWidth, "", "  ", g.Name+": "+g.Error)
		}
	}
	if v := s.Server; v != nil {
		fmt.Fprintln(w)
		rows := [][]string{{"SERVER", "STATE", "POWER", "READY", "RECIPE"}, {v.Size, dash(v.State), v.Power, yes(v.Ready), map[bool]string{true: "current", false: "another"}[v.SameRecipe]}}
		writeRows(w, rows)
		if v.Boot != "" {
			paragraph(w, resultWidth, "boot: ", "  ", v.Boot)
		}
	}
	if len(s.Pools) > 0 {
		fmt.Fprintln(w)
		rows := [][]string{{"POOL", "SIZE", "PRIORITY", "WANTED", "INSTANCES", "RUNNING", "STATE"}}
		for _, p := range s.Pools {
			rows = append(rows, []string{p.Name, p.Size, p.Priority, fmt.Sprint(p.Wanted), fmt.Sprint(p.Instances), fmt.Sprint(p.Running), dash(p.State)})
		}
		fit(rows, resultWidth, []shrink{{1, 16}})
		writeRows(w, rows)
	}
	if a := s.Storage; a != nil {
		fmt.Fprintln(w)
		say(w, "Storage account %s (%s): shares %s", a.Account, a.State, dash(strings.Join(a.Shares, ", ")))
	}
	if len(s.Endpoints) > 0 {
		fmt.Fprintln(w)
		writeEndpoints(w, s.Endpoints)
	}
	if len(s.Notes) > 0 {
		fmt.Fprintln(w)
		list(w, "Note", s.Notes)
	}
}

func writeEndpoints(w io.Writer, all []lifecycle.Endpoint) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(w, "Address: %s\n", dash(all[0].Address))
	if all[0].FQDN != "" {
		fmt.Fprintf(w, "FQDN:    %s\n", all[0].FQDN)
	}
	rows := [][]string{{"NAME", "PORT", "OPEN TO"}}
	for _, e := range all {
		rows = append(rows, []string{e.Name, fmt.Sprint(e.Port), strings.Join(e.Open, ", ")})
	}
	fit(rows, resultWidth, []shrink{{2, 30}})
	writeRows(w, rows)
}
