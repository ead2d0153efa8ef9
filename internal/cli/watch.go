package cli

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/watch"
	"github.com/ortet/ortet/internal/workflow"
)

func newWatch(o *options) *cobra.Command {
	var (
		request watch.Request
		lease   leaseDuration
		named   []string
	)
	cmd := &cobra.Command{
		Use:   "watch NODE|POOL",
		Short: "Watch a pool's first new nodes, and take back a bad image",
		Long: `watch looks at the nodes that were made from the image version that a pool's model
names. If enough of them come up, the version is tagged as proven. If two fail, or
the only one, the version is quarantined, the model goes back to the version before
it (as with ortet rollback), and the bad nodes are cordoned.

A pool is named by one of its nodes, or by the scale set's name or ARM id.

The same command continues an interrupted watch: its begin, time limit and number of
nodes are in a tag of the version. A watch adds no nodes: unless the pool is scaled,
the version stays unproven.`,
		Example: `  ortet watch k8s-pool1-12345678-vmss
  ortet watch k8s-pool1-12345678-vmss --for 2h --bad-nodes delete`,
		Args: ofPool,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkWatch("for", "nodes", request); err != nil {
				return err
			}
			return o.watch(cmd.Context(), args[0], named, request, lease)
		},
	}
	f := cmd.Flags()
	durationVar(f, &request.For, "for", watch.DefaultFor, "time limit of the watch; a watch in progress keeps its own")
	f.IntVar(&request.Nodes, "nodes", watch.DefaultNodes, "`NUMBER` of nodes that have to come up")
	badNodesFlag(f, &request)
	leaseFlag(f, &lease)
	groupsFlag(f, &named)
	f.BoolVar(&request.AllowRolling, "allow-rolling", false, "take back although the scale set's upgrade policy is Rolling; Azure then replaces running instances")
	f.BoolVar(&request.AllowOwned, "allow-owned", false, "take back although Cluster API owns the scale set's model and may revert it")
	return cmd
}

func badNodesFlag(f *pflag.FlagSet, q *watch.Request) {
	f.StringVar(&q.BadNodes, "bad-nodes", watch.Cordon, "what becomes of its nodes when a version is taken back: cordon, delete or leave")
}

// checkWatch checks a request, whose flags for time and nodes have these names.
func checkWatch(within, nodes string, q watch.Request) error {
	switch {
	case q.For < watch.MinFor || q.For > watch.MaxFor:
		return usagef("--%s %s: want %s to %s", within, durationText(q.For), durationText(watch.MinFor), durationText(watch.MaxFor))
	case q.Nodes < 1 || q.Nodes > watch.MaxNodes:
		return usagef("--%s %d: want 1 to %d", nodes, q.Nodes, watch.MaxNodes)
	case !slices.Contains([]string{watch.Cordon, watch.Delete, watch.Leave}, q.BadNodes):
		return usagef("--bad-nodes %s: want cordon, delete or leave", q.BadNodes)
	}
	return nil
}

func (o *options) watch(ctx context.Context, of string, named []string, q watch.Request, lease leaseDuration) error {
	show := o.newProgress()
	defer show.Close()
	c, err := o.open(ctx, work{pools: []string{of}, rules: watchRules(o.namespace, q.BadNodes == watch.Delete), lease: lease})
	if err != nil {
		return err
	}
	if q.Pool, err = c.poolToChange(ctx, o, of, named); err != nil {
		return err
	}
	result, err := c.services(show).Watch(ctx, q)
	show.Close()
	if err != nil {
		return o.printFailure(result, result.Notes, err)
	}
	return o.print(result, func(w io.Writer) { writeWatch(w, result) })
}

// watchRules are those of a rollback, and what it takes to see nodes and to cordon or drain them.
func watchRules(namespace string, drains bool) []kube.Rule {
	all := slices.Concat(rollbackRules(namespace), slices.DeleteFunc(kube.Rules(kube.Needs{Namespace: namespace}), func(r kube.Rule) bool {
		sees := r.Namespace == "" && (r.Resource == "nodes" || r.Resource == "pods") || r.Resource == "events"
		evicts := r.Resource == "pods/eviction" || r.Resource == "daemonsets" || r.Resource == "poddisruptionbudgets"
		return !sees && !(drains && evicts)
	}))
	return all
}

func writeWatch(w io.Writer, r watch.Result) {
	version := r.Version.Name()
	switch r.Outcome {
	case watch.Proven:
		say(w, "%s is proven: %s.", version, r.Why)
	case watch.StoodDown:
		say(w, "Nothing was taken back: %s.", r.Why)
	case watch.Unproven:
		say(w, "%s is not proven: %s.", version, r.Why)
	}
	list(w, "Note", r.Notes)
}

// captured is a capture with the watch of what went live; nil without one.
type captured struct {
	capture.Result
	Watch *watch.Result `json:"watch,omitempty"`
}

func (c captured) notes() []string {
	if c.Watch == nil {
		return c.Notes
	}
	return slices.Concat(c.Notes, c.Watch.Notes)
}

// captureAndWatch captures, and watches what went live if w says for how long.
func (s services) captureAndWatch(ctx context.Context, q capture.Request, w watch.Request, checks ...func(context.Context) error) (captured, error) {
	result, err := s.Capture(ctx, q, checks...)
	if err != nil || w.For == 0 {
		return captured{Result: result}, err
	}
	w.Pool, w.Version, w.AllowRolling, w.AllowOwned, w.RestoreLearned = result.Pool, result.Version, q.AllowRolling, q.AllowOwned, q.RestoreLearned
	watched, err := s.Watch(ctx, w)
	return captured{result, &watched}, unwatched(result, err)
}

// unwatched has the refusal of a watch say that the capture before it changed the model.
func unwatched(r capture.Result, err error) error {
	var refused *workflow.Refused
	if r.NothingToDo || !errors.As(err, &refused) {
		return err
	}
	out := &workflow.Outcome{Exit: workflow.ExitNeedsPerson, Err: errors.New("its watch is refused"),
		Ended: "the model names " + r.Version.Name() + ", and its nodes are not watched; mend this, then run ortet watch " + r.Pool.Name()}
	for _, p := range refused.Problems {
		out.Left = append(out.Left, p.String())
	}
	return out
}

// watching is services whose captures are watched.
type watching struct {
	services
	request watch.Request
}

// Capture implements auto.Service.
func (s watching) Capture(ctx context.Context, q capture.Request, checks ...func(context.Context) error) (capture.Result, error) {
	result, err := s.captureAndWatch(ctx, q, s.request, checks...)
	return result.Result, err
}
