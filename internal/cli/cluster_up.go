package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/k3s/lifecycle"
)

func newClusterUp(c *clusterOptions) *cobra.Command {
	var (
		options lifecycle.UpOptions
		own     ownAddresses
		dryRun  bool
		yes     string
		key     string
		timeout time.Duration
	)
	cmd := clusterCommand("up", "Make the cluster what cluster.yaml says, or repair it", `up makes the cluster that cluster.yaml describes: the storage group, then the compute
group, then it waits until the server admits agents. What exists is changed to what the
file says, and what is missing is made again. A server that runs takes over k3s, settings
and size; its state is backed up before another k3s. Two things stay as they are:

  - the server's image and OS disk: ortet cluster replace server
  - number, size and image of a pool's agents as cluster scale, resize and
    ortet capture left them, each until the file's own changes

Where count is lowered, and with --prune, agents are drained before they are deleted, by
the cluster's kubeconfig. Evicted Spot agents are made again.

Interrupted, Azure goes on with what it has accepted; the same command follows it.`, func(ctx context.Context, _ []string) error {
		if dryRun {
			return c.plan(ctx, own)
		}
		if options.NoWait && options.Prune {
			return usagef("--no-wait and --prune: pools are deleted after their agents are drained; use one of them")
		}
		if key != "" {
			if options.NoWait {
				return usagef("--no-wait and --tailscale-key: the server takes the key when it is ready; use one of them")
			}
			secret, err := readTailscaleKey(key, c.process.In)
			if err != nil {
				return err
			}
			options.Login = func(ctx context.Context) error { return c.logIn(ctx, secret) }
		}
		return c.deploy(ctx, own, func(ctx context.Context, m *lifecycle.Manager) (*lifecycle.Result, error) {
			if options.Login != nil && m.Cluster.Spec.Access.Tailscale == nil {
				return nil, refuse("NoTailnet", c.file, "spec.access.tailscale is not set, so the server takes no key",
					"add it, or leave --tailscale-key out")
			}
			if options.Prune {
				if _, err := m.Check(ctx, nil); err != nil { // before it asks
					return nil, err
				}
				if err := c.confirm("cluster", m.Cluster.Metadata.Name, yes, "Pools that are not in "+c.file+" will be deleted with their agents."); err != nil {
					return nil, err
				}
			}
			m.Ready = timeout
			return m.Up(ctx, options)
		})
	})
	own.add(cmd)
	f := cmd.Flags()
	durationVar(f, &timeout, "timeout", 30*time.Minute, "time limit for the server to be ready")
	f.BoolVar(&options.NoWait, "no-wait", false, "end when Azure has accepted the compute deployment")
	f.BoolVar(&options.Prune, "prune", false, "delete pools that are not in cluster.yaml; asks for the cluster's name")
	f.StringVar(&yes, "yes", "", "`NAME` of the cluster, instead of being asked for it")
	f.StringVar(&key, "tailscale-key", "", "`FILE` with a key that logs the server in to its tailnet, or - for stdin; needed once")
	f.BoolVar(&dryRun, "dry-run", false, "show what would change, as ortet cluster plan does")
	return cmd
}

// deploy runs what makes or changes the cluster, and shows how it ended.
func (c *clusterOptions) deploy(ctx context.Context, own ownAddresses, do func(context.Context, *lifecycle.Manager) (*lifecycle.Result, error)) error {
	show := c.newProgress()
	defer show.Close()
	m, err := c.manager(ctx, show.Report, &own)
	if err != nil {
		return err
	}
	defer c.goesOn(ctx, show)()
	r, err := do(ctx, m)
	show.Close()
	if err == nil {
		return c.print(r, func(w io.Writer) { writeUp(w, r, c.file) })
	}
	if r == nil {
		return c.printFailure(nil, nil, err)
	}
	if c.output == "table" {
		writeFailures(c.process.Err, r.Failures)
	}
	return c.printFailure(r, r.Notes, err)
}

// writeUp shows how up ended, and how to go on.
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
	rows := [][]string{{"RESOURCE", "GROUP", "CODE"}}
	for _, f := range failures {
		rows = append(rows, cells(f.Resource, f.Group, f.Code))
	}
	if len(failures) > 0 {
		writeDetails(w, rows, func(i int) []string { return []string{failures[i].Message} }, shrink{1, 12}, shrink{0, 16}, shrink{2, 20})
	}
}

func newClusterPlan(c *clusterOptions) *cobra.Command {
	var own ownAddresses
	cmd := clusterCommand("plan", "Show what up would change", `plan names the fields of cluster.yaml of which the cluster has another value: before and
after, what the change reaches and when, and which command finishes it. Then it asks Azure
what up would change. It changes nothing. It names what up leaves as it is: a server that was made by another recipe, and sizes and images of pools that were
set since the file was applied. It lists what is billed of the cluster, without traffic:
while it is up, also while its machines are stopped, or always.`, func(ctx context.Context, _ []string) error {
		return c.plan(ctx, own)
	})
	own.add(cmd)
	return cmd
}

func (c *clusterOptions) plan(ctx context.Context, own ownAddresses) error {
	m, err := c.manager(ctx, nil, &own)
	if err != nil {
		return err
	}
	p, err := m.Plan(ctx)
	if err != nil {
		return err
	}
	return c.print(p, func(w io.Writer) { writeClusterPlan(w, p) })
}

func writeClusterPlan(w io.Writer, p *lifecycle.Plan) {
	for i, f := range p.Fields {
		if i == 0 {
			fmt.Fprintln(w, "FIELD OF cluster.yaml, AND WHAT ITS CHANGE REACHES")
		}
		paragraph(w, resultWidth, "", "    ", f.Line())
		for _, e := range f.Effects {
			paragraph(w, resultWidth, "  ", "    ", e.Line())
		}
	}
	if len(p.Fields) > 0 {
		fmt.Fprintln(w)
	}
	for rest := p.Changes; len(rest) > 0; {
		rows := [][]string{{"CHANGE", "TYPE", "NAME"}}
		group := rest
		for len(rest) > 0 && rest[0].Group == group[0].Group {
			rows = append(rows, cells(rest[0].Change, rest[0].Kind(), rest[0].Name))
			rest = rest[1:]
		}
		fmt.Fprintln(w, "group "+group[0].Group)
		writeDetails(w, rows, func(i int) []string { return group[i].What }, shrink{2, 20})
		fmt.Fprintln(w)
	}
	text := ""
	for _, kind := range []string{"Create", "Modify", "Deploy", "Delete", "Unsupported"} {
		if n := p.Counts[kind]; n > 0 {
			text += fmt.Sprintf("%d to %s, ", n, strings.ReplaceAll(strings.ToLower(kind), "unsupported", "judge (Azure cannot say)"))
		}
	}
	say(w, "%s%d unchanged.", text, p.Unchanged)
	fmt.Fprintln(w)
	writeBilled(w, p.Billed)
	list(w, "Note", p.Notes)
}
