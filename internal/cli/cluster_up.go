package cli

import (
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/elastic/lifecycle"
	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/internal/plan"
)

func newClusterUp(c *clusterOptions) *cobra.Command {
	var (
		options lifecycle.UpOptions
		own     []string
		dryRun  bool
		yes     string
	)
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Make the cluster what cluster.yaml says, or repair it",
		Long: `up makes the cluster that cluster.yaml describes: the storage group, then the compute
group, then it waits until the server admits agents. What exists is changed to what the
file says, and what is missing is made again. Three things stay as they are:

  - the server, once it was made (ortet cluster plan says when its recipe changed)
  - the number of agents in a pool, unless the file's count changed since
  - pools that boot from an image of ortet capture

Interrupted, Azure goes on with what it has accepted; the same command follows it.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkAddresses(own); err != nil {
				return err
			}
			if dryRun {
				return c.plan(cmd.Context(), own)
			}
			show := newProgress(c.process.Err, c.process.Getenv)
			defer show.Close()
			m, err := c.manager(cmd.Context(), show, own)
			if err != nil {
				return err
			}
			if options.Prune {
				if err := c.confirm(m.Cluster.Metadata.Name, yes, "Pools that are not in "+c.file+" will be deleted with their agents."); err != nil {
					return err
				}
			}
			defer c.goesOn(cmd.Context(), show)()
			r, err := m.Up(cmd.Context(), options)
			show.Close()
			return c.printUp(r, err)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&own, "own-address", nil, "`ADDRESS` or range that \"own\" in cluster.yaml stands for; may be given several times")
	f.BoolVar(&options.NoWait, "no-wait", false, "end when Azure has accepted the compute deployment")
	f.BoolVar(&options.Prune, "prune", false, "delete pools that are not in cluster.yaml; asks for the cluster's name")
	f.StringVar(&yes, "yes", "", "`NAME` of the cluster, instead of being asked for it")
	f.BoolVar(&dryRun, "dry-run", false, "show what would change, as ortet cluster plan does")
	return cmd
}

func checkAddresses(own []string) error {
	for _, a := range own {
		if _, err := netip.ParseAddr(a); err == nil {
			continue
		}
		if _, err := netip.ParsePrefix(a); err != nil {
			return usagef("--own-address %q: want an address or a range such as 203.0.113.7/32", a)
		}
	}
	return nil
}

// printUp shows how up ended, and how to go on.
func (c *clusterOptions) printUp(r *lifecycle.Result, err error) error {
	if err == nil {
		return c.print(r, func(w io.Writer) { writeUp(w, r, c.file) })
	}
	if c.output == "table" && r != nil {
		writeFailures(c.process.Err, r.Failures)
	}
	var notes []string
	if r != nil {
		notes = r.Notes
	}
	return c.printFailure(r, notes, err)
}

func writeUp(w io.Writer, r *lifecycle.Result, file string) {
	list(w, "Note", r.Notes)
	flag := ""
	if file != "cluster.yaml" {
		flag = " -f " + file
	}
	if !r.Ready {
		say(w, "Azure makes cluster %s. To follow it: ortet cluster status --watch%s", r.Cluster, flag)
		return
	}
	say(w, "Cluster %s is ready.", r.Cluster)
	fmt.Fprintf(w, "  ortet cluster kubeconfig%s   to reach it with kubectl\n", flag)
	fmt.Fprintf(w, "  ortet cluster agents%s       to see its agents join\n", flag)
}

// writeFailures shows what Azure could not make: its sentences are long, so each has
// lines of its own.
func writeFailures(w io.Writer, failures []lifecycle.Failure) {
	if len(failures) == 0 {
		return
	}
	rows := [][]string{{"RESOURCE", "GROUP", "CODE"}}
	for _, f := range failures {
		rows = append(rows, []string{f.Resource, f.Group, dash(f.Code)})
	}
	fit(rows, resultWidth, []shrink{{1, 12}, {0, 16}, {2, 20}})
	wide := widths(rows)
	writeColumns(w, rows[:1], wide)
	for i, f := range failures {
		writeColumns(w, rows[i+1:i+2], wide)
		if f.Message != "" {
			paragraph(w, resultWidth, "  ", "  ", f.Message)
		}
	}
}

// confirm asks for the cluster's name, unless --yes gave it.
func (c *clusterOptions) confirm(name, yes, what string) error {
	if yes == "" {
		paragraph(c.process.Err, columnsOf(c.process.Err), "", "", what)
		fmt.Fprintf(c.process.Err, "Type the cluster's name, %s, to go on: ", name)
		if _, err := fmt.Fscanln(c.process.In, &yes); err != nil && !errors.Is(err, io.EOF) && err.Error() != "unexpected newline" {
			return fmt.Errorf("cannot read the answer: %w", err)
		}
	}
	if yes != name {
		return &engine.Refused{Problems: []plan.Problem{{Code: "NotConfirmed", On: "cluster " + name, What: fmt.Sprintf("%q is not its name", yes), WayOut: "type " + name + ", or give --yes " + name}}}
	}
	return nil
}
