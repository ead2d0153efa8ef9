package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/boots/survey"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/agents"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
)

const drainTimeout = 5 * time.Minute // default limit to drain one node

// A poolChange is what a command that changes a pool or an agent is given.
type poolChange struct {
	*agents.Control
	cluster *k3s.Cluster
}

func newClusterPools(c *clusterOptions) []*cobra.Command {
	each := func(do func(*agents.Control, context.Context, string) error) func(context.Context, poolChange, []string) error {
		return func(ctx context.Context, p poolChange, args []string) error { return do(p.Control, ctx, args[0]) }
	}
	parallel, outdated := 1, false
	reimage := c.poolCommand("reimage POOL", "Give a pool's agents a new OS disk, one by one", `reimage renews the OS disks of a pool's agents with the pool's image: each is drained
and powered off, its Node is deleted, and after the reimage its new Node is awaited. An
agent behind the pool's model is upgraded to it. It stops at the first that does not
come up; the same command goes on. --outdated leaves out agents that have the model,
and names those of which that is not known.`, "", func(ctx context.Context, p poolChange, args []string) error {
		if parallel < 1 {
			return usagef("--parallel %d: want 1 or more", parallel)
		}
		return p.Reimage(ctx, args[0], parallel, outdated)
	})
	reimage.Flags().IntVar(&parallel, "parallel", 1, "`NUMBER` of agents that are reimaged at a time")
	reimage.Flags().BoolVar(&outdated, "outdated", false, "reimage only agents behind the pool's model")
	replace := c.poolCommand("replace NODE|server", "Delete an agent and let its pool make another, or the server", `replace drains an agent and deletes it; its pool makes another in its place, which is
awaited until its Node is Ready.

replace server deletes the server's VM, after a backup, and makes it again on the same
state disk: for another image or OS disk. Agents, their pods and your kubeconfig
stay as they are; the API is away meanwhile.`, "", each((*agents.Control).Replace))
	var own ownAddresses
	own.add(replace)
	agent := replace.RunE
	replace.RunE = func(cmd *cobra.Command, args []string) error {
		if args[0] != recipe.ServerName {
			return agent(cmd, args)
		}
		return c.deploy(cmd.Context(), own, func(ctx context.Context, m *lifecycle.Manager) (*lifecycle.Result, error) {
			return m.ReplaceServer(ctx, lifecycle.UpOptions{})
		})
	}
	stop := c.poolCommand("stop POOL", "Deallocate the cluster, or a drained pool", `stop deallocates all agents and then the server. It drains none of them, since no
machine is left for their pods. Disks, addresses and the gateway stay, and are billed.

stop POOL drains the agents of a pool as far as --drain-timeout allows, and deallocates
them. Their OS disks stay, and are billed.`, "", each((*agents.Control).Stop))
	orCluster(stop, c.stop)
	start := c.poolCommand("start POOL", "Start a stopped cluster, or a pool's stopped agents", `start starts the server, waits until it is ready, and starts the pools that stop without
POOL stopped. Nothing else of the cluster changes: that is what up is for.

start POOL starts the agents of a pool and waits until their Nodes are Ready.`, "", each((*agents.Control).Start))
	own.add(start)
	orCluster(start, func(ctx context.Context) error {
		return c.deploy(ctx, own, func(ctx context.Context, m *lifecycle.Manager) (*lifecycle.Result, error) { return m.Start(ctx) })
	})
	return []*cobra.Command{
		c.poolCommand("scale POOL N", "Change how many agents a pool has", `scale changes the number of agents of a pool. New ones are awaited until their Nodes
are Ready. For fewer, agents without a Ready Node go first, then by the pool's scale-in
policy; each is drained before it is deleted. ortet cluster up keeps that number.`, "", func(ctx context.Context, p poolChange, args []string) error {
			n, err := strconv.Atoi(args[1])
			if err != nil || n < 0 || n > 1000 {
				return usagef("number of agents %q: want 0 to 1000", args[1])
			}
			for _, pool := range p.cluster.Spec.Pools {
				if pool.Name == args[0] && pool.Max != nil {
					who := "Azure"
					if pool.ScaleBy == k3s.Pods {
						who = "cluster-autoscaler"
					}
					return refuse("Autoscaled", "pool "+pool.Name, fmt.Sprintf("%s scales it between %d and %d", who, *pool.Min, *pool.Max), "change min and max in cluster.yaml")
				}
			}
			return p.Scale(ctx, args[0], int64(n))
		}),
		c.poolCommand("resize POOL SIZE", "Give a pool's agents another VM size, one by one", `resize changes the VM size of a pool. Its agents follow one by one: each is drained,
restarted with the new size, and awaited until it is Ready. ortet cluster up keeps that
size until the file's changes.`, "", func(ctx context.Context, p poolChange, args []string) error {
			return p.Resize(ctx, args[0], args[1])
		}),
		stop, start,
		reimage,
		c.poolCommand("chaos POOL", "Restart a pool's agents in random order, without a drain", `chaos restarts the agents of a pool one after the other, in random order and without
a drain, to show what that does to what runs there. It asks first.`, "All agents of pool %s will be restarted in random order, without a drain.", func(ctx context.Context, p poolChange, args []string) error {
			return p.Chaos(ctx, args[0], rand.Shuffle)
		}),
		replace,
	}
}

// orCluster has a command of a pool do something else without one.
func orCluster(cmd *cobra.Command, do func(context.Context) error) {
	cmd.Use = cmd.Name() + " [POOL]"
	cmd.Args = cobra.MaximumNArgs(1)
	pool := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return pool(cmd, args)
		}
		return do(cmd.Context())
	}
}

// stop stops the whole cluster.
func (c *clusterOptions) stop(ctx context.Context) error {
	show := c.newProgress()
	defer show.Close()
	m, err := c.manager(ctx, show.Report, nil)
	if err != nil {
		return err
	}
	defer c.goesOn(ctx, show)()
	r, err := m.Stop(ctx)
	show.Close()
	if err != nil {
		return c.printFailure(r, nil, err)
	}
	return c.print(r, func(w io.Writer) {
		if len(r.Stopped) == 0 {
			say(w, "No machine of cluster %s was running.", r.Cluster)
			return
		}
		say(w, "Stopped: %s. ortet cluster start starts it.", strings.Join(r.Stopped, ", "))
	})
}

// poolCommand is a command that changes a pool or an agent, after a person has agreed to
// its consequence; "" asks nothing.
func (c *clusterOptions) poolCommand(use, short, long, consequence string, change func(context.Context, poolChange, []string) error) *cobra.Command {
	var (
		with agents.Control // the flags' fields
		yes  string
		cmd  *cobra.Command
	)
	cmd = clusterCommand(use, short, long, func(ctx context.Context, args []string) error {
		if consequence != "" {
			if err := c.confirm("pool", args[0], yes, fmt.Sprintf(consequence, args[0])); err != nil {
				return err
			}
		}
		p, err := c.control(ctx, with)
		if err != nil {
			return err
		}
		if err = p.named(ctx, cmd.Name(), args[0]); err == nil {
			err = change(ctx, p, args)
		}
		if err != nil && ctx.Err() != nil {
			return &workflow.Outcome{Exit: workflow.ExitInterrupted, Step: cmd.Name(), Left: []string{"Azure goes on with what it has accepted, and cordoned nodes stay cordoned"}, Err: context.Cause(ctx)}
		}
		var refused *fleet.Error
		if errors.As(err, &refused) && refused.Code == agents.CodeAutoscaled {
			return refuse(refused.Code, refused.Resource, refused.Err.Error(), refused.Remedy)
		}
		if err != nil {
			return err
		}
		return c.print(map[string]any{"command": cmd.Name(), "arguments": args}, func(w io.Writer) { say(w, "Done.") })
	})
	drain := drainTimeout
	if cmd.Name() == "stop" {
		drain = time.Minute // where the whole pool goes, budgets that it alone can keep would be waited for
	}
	f := cmd.Flags()
	durationVar(f, &with.DrainTimeout, "drain-timeout", drain, "time limit to drain one node")
	durationVar(f, &with.ReadyTimeout, "ready-timeout", 15*time.Minute, "time limit for a machine's Node to be Ready")
	f.BoolVar(&with.Force, "force", false, "delete what is left of a node's pods when --drain-timeout has passed")
	if consequence != "" {
		f.StringVar(&yes, "yes", "", "`NAME` of the pool, instead of being asked for it")
	}
	return cmd
}

// named refuses a pool or an agent that does not exist.
func (p poolChange) named(ctx context.Context, command, name string) (err error) {
	if command == "replace" {
		_, _, err = p.Find(ctx, name)
	} else {
		_, err = p.Pool(ctx, name)
	}
	switch {
	case !fleet.Is(err, fleet.KindNotFound):
		return err
	case command == "replace":
		return refuse(survey.NodeNotFound, "agent "+name, "cluster "+p.cluster.Metadata.Name+" has no such agent", "ortet cluster agents shows those that it has")
	}
	names := make([]string, 0, len(p.cluster.Spec.Pools))
	for _, pool := range p.cluster.Spec.Pools {
		names = append(names, pool.Name)
	}
	return refuse(survey.PoolNotFound, "pool "+name, "Azure has no such pool; cluster.yaml names "+strings.Join(names, ", "), "ortet cluster status shows the pools that exist")
}

// control connects the cluster's pools with Azure and its API server.
func (c *clusterOptions) control(ctx context.Context, control agents.Control) (p poolChange, err error) {
	in, o, err := c.kubernetesSite(ctx)
	if err != nil {
		return p, err
	}
	k, err := o.openCluster(ctx)
	if err != nil {
		return p, err
	}
	control.ARM, control.Cloud, control.Nodes, control.Group, control.Now = in.arm, in.cloud, k, in.group, time.Now
	control.Report = func(machine, what string) {
		fmt.Fprintf(c.process.Err, "%s  %s: %s\n", time.Now().Format(time.TimeOnly), machine, what)
	}
	return poolChange{&control, in.cluster}, nil
}

// drains lowers pools for up, as ortet cluster scale does.
type drains struct{ *clusterOptions }

// Reach implements lifecycle.Agents.
func (d drains) Reach(ctx context.Context) error {
	_, err := d.control(ctx, agents.Control{})
	return err
}

// Lower implements lifecycle.Agents.
func (d drains) Lower(ctx context.Context, pool string, n int64, report func(string)) error {
	p, err := d.control(ctx, agents.Control{DrainTimeout: drainTimeout, ReadyTimeout: 15 * time.Minute})
	if err != nil {
		return err
	}
	p.Report = func(machine, what string) { report(machine + ": " + what) }
	return p.Lower(ctx, pool, n)
}
