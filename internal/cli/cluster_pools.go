package cli

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/elastic"
	"github.com/ortet/ortet/internal/elastic/agents"
	"github.com/ortet/ortet/internal/engine"
)

// poolFlags are those of the commands that change pools.
type poolFlags struct {
	drain, ready time.Duration
	force        bool
}

func (f *poolFlags) add(cmd *cobra.Command) {
	p := cmd.Flags()
	p.DurationVar(&f.drain, "drain-timeout", f.drain, "time limit to drain one node")
	p.DurationVar(&f.ready, "ready-timeout", 15*time.Minute, "time limit for a machine's Node to be Ready")
	p.BoolVar(&f.force, "force", false, "delete what is left of a node's pods when --drain-timeout has passed")
}

// A poolCommand is a command that changes a pool or an agent.
type poolCommand struct {
	use, short, long string
	// do changes; args are the command line's.
	do    func(ctx context.Context, control *agents.Control, cluster *elastic.Cluster, args []string) error
	flags func(*cobra.Command)
	drain time.Duration // default of --drain-timeout; 0 is five minutes
	// ask gives what a person has to agree to by the pool's name; nil asks nothing.
	ask func(args []string) string
}

func (c *clusterOptions) poolCommand(p poolCommand) *cobra.Command {
	var f poolFlags
	var yes string
	cmd := &cobra.Command{Use: p.use, Short: p.short, Long: p.long, Args: exactly(p.use), RunE: func(cmd *cobra.Command, args []string) error {
		if p.ask != nil {
			if err := c.confirm(args[0], yes, p.ask(args)); err != nil {
				return err
			}
		}
		control, cluster, err := c.control(cmd.Context(), f)
		if err != nil {
			return err
		}
		err = p.do(cmd.Context(), control, cluster, args)
		if err != nil && cmd.Context().Err() != nil {
			return &engine.Interrupted{Step: cmd.Name(), Donor: "Azure goes on with what it has accepted, and cordoned nodes stay cordoned", Err: context.Cause(cmd.Context())}
		}
		if err != nil {
			return err
		}
		return c.print(map[string]any{"command": cmd.Name(), "arguments": args}, func(w io.Writer) { say(w, "Done.") })
	}}
	f.drain = 5 * time.Minute
	if p.drain > 0 {
		f.drain = p.drain
	}
	f.add(cmd)
	if p.ask != nil {
		cmd.Flags().StringVar(&yes, "yes", "", "`NAME` of the pool, instead of being asked for it")
	}
	if p.flags != nil {
		p.flags(cmd)
	}
	return cmd
}

// control connects the cluster's pools with Azure and its API server.
func (c *clusterOptions) control(ctx context.Context, f poolFlags) (*agents.Control, *elastic.Cluster, error) {
	cluster, group, o, err := c.site(ctx)
	if err != nil {
		return nil, nil, err
	}
	resources, _, err := c.azure(ctx)
	if err != nil {
		return nil, nil, err
	}
	config, err := o.kubernetes()
	if err != nil {
		return nil, nil, err
	}
	if err := o.reach(ctx, config); err != nil {
		return nil, nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("set up the Kubernetes client: %w", err)
	}
	k, err := kube.New(kube.Config{REST: config, Namespace: c.namespace, Logger: c.log, Identity: engine.LocalHolder()})
	if err != nil {
		return nil, nil, err
	}
	return &agents.Control{
		ARM: resources, Nodes: clusterNodes{Cluster: k, client: client}, Group: group,
		DrainTimeout: f.drain, ReadyTimeout: f.ready, Force: f.force, Now: time.Now,
		Report: func(machine, what string) {
			fmt.Fprintf(c.process.Err, "%s  %s: %s\n", time.Now().Format(time.TimeOnly), machine, what)
		},
	}, cluster, nil
}

func newClusterPools(c *clusterOptions) []*cobra.Command {
	parallel := 1
	return []*cobra.Command{
		c.poolCommand(poolCommand{
			use: "scale POOL N", short: "Change how many agents a pool has",
			long: `scale changes the number of agents of a pool. New ones are awaited until their Nodes
are Ready. For fewer, agents without a Ready Node go first, then by the pool's scale-in
policy; each is drained before it is deleted. ortet cluster up keeps that number.`,
			do: func(ctx context.Context, control *agents.Control, cluster *elastic.Cluster, args []string) error {
				n, err := strconv.Atoi(args[1])
				if err != nil || n < 0 || n > 1000 {
					return usagef("number of agents %q: want 0 to 1000", args[1])
				}
				for _, p := range cluster.Spec.Pools {
					if p.Name == args[0] && p.Max != nil {
						return usagef("cannot scale pool %s: Azure scales it between %d and %d; change min and max in cluster.yaml", p.Name, deref(p.Min), *p.Max)
					}
				}
				return control.Scale(ctx, args[0], n)
			},
		}),
		c.poolCommand(poolCommand{
			use: "resize POOL SIZE", short: "Give a pool's agents another VM size, one by one",
			long: `resize changes the VM size of a pool. Its agents follow one by one: each is drained,
restarted with the new size, and awaited until it is Ready.`,
			do: func(ctx context.Context, control *agents.Control, _ *elastic.Cluster, args []string) error {
				return control.Resize(ctx, args[0], args[1])
			},
		}),
		c.poolCommand(poolCommand{
			// Where the whole pool goes, budgets that it alone can keep would be waited for.
			use: "stop POOL", drain: time.Minute, short: "Drain and deallocate a pool's agents, so that they cost nothing",
			long: `stop drains the agents of a pool as far as --drain-timeout allows, and deallocates
them. Their OS disks stay, and are billed.`,
			do: func(ctx context.Context, control *agents.Control, _ *elastic.Cluster, args []string) error {
				return control.Stop(ctx, args[0])
			},
		}),
		c.poolCommand(poolCommand{
			use: "start POOL", short: "Start a pool's stopped agents",
			long: `start starts the agents of a pool and waits until their Nodes are Ready.`,
			do: func(ctx context.Context, control *agents.Control, _ *elastic.Cluster, args []string) error {
				return control.Start(ctx, args[0])
			},
		}),
		c.poolCommand(poolCommand{
			use: "reimage POOL", short: "Give a pool's agents a new OS disk, one by one",
			long: `reimage renews the OS disks of a pool's agents: each is drained and powered off, its
Node is deleted, and after the reimage its new Node is awaited. It stops at the first
that does not come up; the same command goes on.`,
			flags: func(cmd *cobra.Command) {
				cmd.Flags().IntVar(&parallel, "parallel", 1, "`NUMBER` of agents that are reimaged at a time")
			},
			do: func(ctx context.Context, control *agents.Control, _ *elastic.Cluster, args []string) error {
				if parallel < 1 {
					return usagef("--parallel %d: want 1 or more", parallel)
				}
				return control.Reimage(ctx, args[0], parallel)
			},
		}),
		c.poolCommand(poolCommand{
			use: "chaos POOL", short: "Restart a pool's agents in random order, without a drain",
			long: `chaos restarts the agents of a pool one after the other, in random order and without
a drain, to show what that does to what runs there. It asks first.`,
			ask: func(args []string) string {
				return "All agents of pool " + args[0] + " will be restarted in random order, without a drain."
			},
			do: func(ctx context.Context, control *agents.Control, _ *elastic.Cluster, args []string) error {
				return control.Chaos(ctx, args[0], rand.Shuffle)
			},
		}),
		c.poolCommand(poolCommand{
			use: "replace NODE", short: "Delete an agent and let its pool make another",
			long: `replace drains an agent and deletes it; its pool makes another in its place, which is
awaited until its Node is Ready.`,
			do: func(ctx context.Context, control *agents.Control, _ *elastic.Cluster, args []string) error {
				return control.Replace(ctx, args[0])
			},
		}),
	}
}

// exactly wants an argument for each word in capitals of a command's use.
func exactly(use string) cobra.PositionalArgs {
	names := strings.Fields(use)[1:]
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return usagef("want %s: %s", strings.Join(names, " and "), cmd.CommandPath()+" "+strings.Join(names, " "))
		}
		return nil
	}
}

func deref(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}
