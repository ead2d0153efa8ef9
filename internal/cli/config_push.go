package cli

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/nodeconfig/push"
)

// pushFlags are those of push and rollback.
type pushFlags struct {
	options push.Request
	key     string
	accept  []string
}

func (f *pushFlags) add(cmd *cobra.Command) {
	p := cmd.Flags()
	p.StringVar(&f.key, "key", defaultConfigKey, "`FILE` with the private key that signs, as ortet config keygen makes it")
	p.StringVar(&f.options.Canary, "canary", "", "`NODE` that is changed first (default: a Ready node of the pool)")
	p.StringVar(&f.options.MaxUnavailable, "max-unavailable", "1", "`NUMBER` or percentage of nodes that are changed at a time after the canary")
	durationVar(p, &f.options.Timeout, "timeout", 5*time.Minute, "time limit for one node's answer")
	p.BoolVar(&f.options.Retry, "retry", false, "try a configuration again that failed on nodes, as a new generation")
	p.BoolVar(&f.options.ReplaceUserData, "replace-user-data", false, "overwrite userData that is not Ortet's")
	p.StringArrayVar(&f.accept, "accept-key", nil, "`PUBLIC-KEY` that nodes accept from then on beside the signing key, instead of their present ones, and whose documents count; repeatable, for rotation")
	p.StringArrayVar(&f.options.SkipNodes, "skip-node", nil, "`NODE` that is left as it is, with its instance; repeatable")
	p.BoolVar(&f.options.ResetGeneration, "reset-generation", false, fmt.Sprintf("way back from generations above %d, which a push refuses: they do not count, and nodes that have one accept this push", int64(nodeconfig.MaxGeneration)))
	p.Int64Var(&f.options.AfterGeneration, "after-generation", 0, fmt.Sprintf("`GENERATION` that nodes know and whose document was lost; the push takes a higher one (0 to %d)", push.MaxAfterGeneration))
}

var reMaxUnavailable = regexp.MustCompile(`^([1-9][0-9]{0,3}|([1-9][0-9]?|100)%)$`)

// complete checks the flags and reads the key.
func (f *pushFlags) complete() (o push.Request, err error) {
	o = f.options
	if !reMaxUnavailable.MatchString(o.MaxUnavailable) {
		return o, usagef("--max-unavailable %s: want 1 to 9999, or 1%% to 100%%", o.MaxUnavailable)
	}
	if o.Timeout < time.Second || o.Timeout > time.Hour {
		return o, usagef("--timeout %s: want 1s to 1h", durationText(o.Timeout))
	}
	if o.AfterGeneration < 0 || o.AfterGeneration > push.MaxAfterGeneration {
		return o, usagef("--after-generation %d: want 0 to %d", o.AfterGeneration, push.MaxAfterGeneration)
	}
	for _, text := range f.accept {
		if _, err := nodeconfig.PublicKey(text).Parse(); err != nil {
			return o, usagef("--accept-key: %w; ortet config keygen --public FILE prints one", err)
		}
		o.Keys = append(o.Keys, nodeconfig.PublicKey(text))
	}
	if o.Key, err = readSigningKey(f.key); err != nil || len(o.Keys) == 0 {
		return o, err
	}
	o.Keys = append(o.Keys, nodeconfig.PublicKeyOf(o.Key.Public().(ed25519.PublicKey)))
	slices.Sort(o.Keys)
	if o.Keys = slices.Compact(o.Keys); len(o.Keys) > nodeconfig.MaxKeys {
		return o, usagef("--accept-key: nodes accept %d keys at once, and one of them is the signing key", nodeconfig.MaxKeys)
	}
	return o, nil
}

func newConfigPush(c *configOptions) *cobra.Command {
	var (
		flags pushFlags
		file  string
	)
	cmd := c.poolCommand("push POOL -f FILE", "Bring a configuration to a pool's nodes, in waves", `push signs the configuration and brings it to one node, the canary. When the canary is
healthy with it, the scale set's model follows, so that new machines have it too, and
then the other nodes in waves. push stops at the first node that fails; that node
restores what it had. The same command again resumes it.

It changes userData of the scale set and its instances. userData that is not Ortet's
is left alone, unless --replace-user-data is given.`, func(ctx context.Context, arg string) error {
		config, err := c.read(file)
		if err != nil {
			return c.printFailure(nil, nil, err)
		}
		o, err := flags.complete()
		if err != nil {
			return err
		}
		o.Config = config
		return c.push(ctx, arg, func(p pusher, pool fleet.ResourceID) (*push.Result, error) { return p.Push(ctx, pool, o) })
	})
	cmd.Example = `  ortet config push pool1 -f nodeconfig.yaml
  ortet config push pool1 -f nodeconfig.yaml --max-unavailable 25%`
	fileFlag(cmd, &file)
	flags.add(cmd)
	return cmd
}

func newConfigRollback(c *configOptions) *cobra.Command {
	var (
		flags pushFlags
		to    int64
	)
	cmd := c.poolCommand("rollback POOL", "Push the content of an earlier generation again", `rollback pushes the content of an earlier generation under a new one: by default that
of the model where the newest push did not reach it, and else that of the generation
before the newest. It needs the key, as push does, and asks nothing. ortet config status
lists the generations that are kept.`, func(ctx context.Context, arg string) error {
		if to < 0 {
			return usagef("--to %d: want a generation, 1 or more", to)
		}
		o, err := flags.complete()
		if err != nil {
			return err
		}
		return c.push(ctx, arg, func(p pusher, pool fleet.ResourceID) (*push.Result, error) { return p.Rollback(ctx, pool, to, o) })
	})
	cmd.Flags().Int64Var(&to, "to", 0, "`GENERATION` whose content is pushed (default: the model's after a push that did not reach it, else the one before the newest)")
	flags.add(cmd)
	return cmd
}

// push connects, pushes and prints the result, also that of a failure.
func (c *configOptions) push(ctx context.Context, arg string, do func(p pusher, pool fleet.ResourceID) (*push.Result, error)) error {
	show := c.newProgress()
	defer show.Close()
	p, pool, err := c.open(ctx, arg, show)
	if err != nil {
		return c.printFailure(nil, nil, err)
	}
	r, err := do(p, pool)
	show.Close()
	if err == nil {
		return c.print(r, func(w io.Writer) { writePushed(w, r, time.Now()) })
	}
	// Without a generation nothing was changed.
	if c.output == "table" && r.Generation > 0 {
		writePushed(c.process.Out, r, time.Now())
	}
	return c.printFailure(r, nil, goneOr(err, pool))
}

// goneOr refuses the pool where err says that Azure does not have it.
func goneOr(err error, pool fleet.ResourceID) error {
	var e *fleet.Error
	if errors.As(err, &e) && e.Kind == fleet.KindNotFound && fleet.ResourceID(e.Resource).Equal(pool) {
		return refuseGone(pool)
	}
	return err
}

// writePushed shows nodes that were reached, then those that were left, which may be among
// the result's nodes, too.
func writePushed(w io.Writer, r *push.Result, now time.Time) {
	reached := slices.DeleteFunc(slices.Clone(r.Nodes), func(n push.Node) bool {
		return slices.ContainsFunc(r.Left, func(l push.Node) bool { return l.Instance == n.Instance && l.Name == n.Name })
	})
	has := 0
	for _, n := range reached {
		if n.Generation == r.Generation {
			has++
		}
	}
	say(w, "%s: generation %d is on %d of %s after %s.", r.Pool.Name(), r.Generation, has, fleet.Count(len(reached)+len(r.Left), "node"), duration(r.Took))
	fmt.Fprintln(w)
	writeConfigNodes(w, reached, r.Left, now)
}

func newConfigPlan(c *configOptions) *cobra.Command {
	var file string
	cmd := c.poolCommand("plan POOL -f FILE", "Show what a push would change and restart", `plan compares the configuration with the pool's present one, and shows what a push
would change and restart, the nodes and how long it takes. It changes nothing and needs
no key.`, func(ctx context.Context, arg string) error {
		config, err := c.read(file)
		if err != nil {
			return c.printFailure(nil, nil, err)
		}
		p, pool, err := c.open(ctx, arg, nil)
		if err != nil {
			return c.printFailure(nil, nil, err)
		}
		plan, err := p.Plan(ctx, pool, config)
		if err != nil {
			return c.printFailure(plan, nil, goneOr(err, pool))
		}
		return c.print(plan, func(w io.Writer) { writeConfigPlan(w, plan, time.Now()) })
	})
	fileFlag(cmd, &file)
	return cmd
}
