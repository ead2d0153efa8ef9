package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/renew"
	"github.com/ortet/ortet/internal/schedule"
	"github.com/ortet/ortet/internal/workflow"
)

type rolloutFlags struct {
	request        renew.Request
	dryRun         bool
	window, zone   string
	windowDuration time.Duration
	lease          leaseDuration
	named          []string
}

func newRollout(o *options) *cobra.Command {
	f := &rolloutFlags{}
	cmd := &cobra.Command{
		Use:   "rollout NODE|POOL",
		Short: "Bring a pool's existing nodes to the image of its model",
		Long: `rollout brings the nodes of a pool that were made from another image to the image
that the scale set's model names, in place and a few at a time: names, addresses and
capacity stay. For each node it

  1. cordons and drains it, as PodDisruptionBudgets allow
  2. has Azure upgrade the instance to the model, which replaces its OS disk
  3. waits until the node is Ready again and has passed the gates of a new image
  4. returns it to service

The first node has to hold its gates for --soak before the next one begins. The
rollout stops at the first node that fails, which stays cordoned.

A pool is named by one of its nodes, or by the scale set's name or ARM id.

With --window, nodes are begun only while the window is open. Outside of it the
command ends at once with exit code 0 and says when the window opens; what is under
way when it closes is finished. An interrupted rollout is continued by the same
command.`,
		Example: `  ortet rollout k8s-pool1-12345678-vmss --dry-run
  ortet rollout k8s-pool1-12345678-vmss --max-unavailable 10%
  ortet rollout k8s-pool1-12345678-vmss --window @weekly \
    --window-duration 5h --time-zone Europe/Berlin`,
		Args: ofPool,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.complete(); err != nil {
				return err
			}
			return f.run(cmd.Context(), o, args[0])
		},
	}
	q, flags := &f.request, cmd.Flags()
	flags.BoolVar(&f.dryRun, "dry-run", false, "show the order of the nodes, what each loses and gets, and all blockers; change nothing")
	flags.StringVar(&q.MaxUnavailable, "max-unavailable", renew.DefaultMaxUnavailable,
		"maximum `NUMBER` of the pool's nodes out of service at a time, or a share such as 10%; nodes that are down already count")
	durationVar(flags, &q.Soak, "soak", renew.DefaultSoak,
		"time for which the first node has to stay Ready, with its DaemonSets, before the next begins; at most 30m")
	durationVar(flags, &q.DrainTimeout, "drain-timeout", renew.DefaultDrainTimeout,
		"time limit of a node's drain; a node that is not drained by then returns to service, and is named")
	flags.StringVar(&f.window, "window", "", "`SCHEDULE` by which the window opens in which nodes are begun: "+
		"minute, hour, day of month, month and day of week, such as \"0 1 * * 6\" (default: always open)")
	durationVar(flags, &f.windowDuration, "window-duration", 0, "time for which the window stays open, 1m to 31d")
	flags.StringVar(&f.zone, "time-zone", "", "IANA `NAME` of the time zone of --window (default "+schedule.DefaultZone+")")
	leaseFlag(flags, &f.lease)
	groupsFlag(flags, &f.named)
	return cmd
}

// The bounds of --drain-timeout.
const minDrain, maxDrain = 10 * time.Second, 24 * time.Hour

func (f *rolloutFlags) complete() (err error) {
	q := &f.request
	if _, err := schedule.ParseBudget(q.MaxUnavailable); err != nil {
		return usagef("--max-unavailable %v", err)
	}
	if q.Window, err = schedule.Parse(f.window, f.windowDuration, f.zone); err != nil {
		return usagef("--window: %v", err)
	}
	switch {
	case q.Soak < 0 || q.Soak > plan.MaxSoak:
		return usagef("--soak %s: want 0s to %s", durationText(q.Soak), durationText(plan.MaxSoak))
	case q.DrainTimeout < minDrain || q.DrainTimeout > maxDrain:
		return usagef("--drain-timeout %s: want %s to %s", durationText(q.DrainTimeout), durationText(minDrain), durationText(maxDrain))
	}
	return nil
}

func (f *rolloutFlags) run(ctx context.Context, o *options, of string) error {
	show := o.newProgress()
	defer show.Close()
	c, err := o.open(ctx, work{pools: []string{of}, rules: kube.RolloutRules(o.namespace), lease: f.lease})
	if err != nil {
		return err
	}
	if f.request.Pool, err = c.poolToChange(ctx, o, of, f.named); err != nil {
		return err
	}
	if _, err := c.config.Cloud.Pool(ctx, f.request.Pool); fleet.Is(err, fleet.KindNotFound) {
		return refuseGone(f.request.Pool) // else it would get a Lease
	} else if err != nil {
		return err
	}
	s := renew.New(c.services(show).Config)
	if f.dryRun {
		p, err := s.Plan(ctx, f.request)
		if err != nil {
			return err
		}
		show.Close()
		p.Notes = slices.Concat(p.Notes, windowNotes(f.request.Window, c.config.Cluster.Now()))
		return o.printRolloutPlan(p)
	}
	result, err := s.Rollout(ctx, f.request)
	show.Close()
	if err != nil {
		return o.printFailure(result, rolloutNotes(result), err)
	}
	return o.print(result, func(w io.Writer) { writeRollout(w, result) })
}

// windowNotes says whether a window is open now.
func windowNotes(w schedule.Window, now time.Time) []string {
	until, open := w.Open(now)
	switch next := w.Next(now); {
	case until.IsZero() && open:
		return nil
	case open:
		return []string{fmt.Sprintf("the window %s is open until %s", w, until.Format(time.RFC3339))}
	case next.IsZero():
		return []string{fmt.Sprintf("the window %s is closed, and does not open within five years", w)}
	default:
		return []string{fmt.Sprintf("the window %s is closed until %s: no node is begun before", w, next.Format(time.RFC3339))}
	}
}

// printRolloutPlan shows a plan; one with problems ends as refused, with the plan's keys in JSON.
func (o *options) printRolloutPlan(p renew.Plan) error {
	if len(p.Problems) == 0 {
		return o.print(p, func(w io.Writer) { writeRolloutPlan(w, p) })
	}
	refused := &workflow.Refused{Problems: p.Problems}
	f := struct {
		renew.Plan
		Result any    `json:"result"`
		Exit   int    `json:"exit"`
		Error  string `json:"error"`
	}{Plan: p, Exit: workflow.ExitRefused, Error: refused.Error()}
	return cmp.Or(o.print(f, func(io.Writer) {}), error(refused))
}

func writeRolloutPlan(w io.Writer, p renew.Plan) {
	say(w, "Plan for the rollout of %s (pool %s). Dry run: nothing is changed.", p.Image.Name(), p.Pool.Name())
	if len(p.Nodes) == 0 {
		say(w, "Nothing to do: no node is to be renewed.")
	} else {
		say(w, "%s to be renewed in this order, with at most %s of the pool out of service at a time, whoever took them out.",
			are(len(p.Nodes), "node"), fleet.Count(p.MaxUnavailable, "node"))
		fmt.Fprintln(w)
		rows := [][]string{{"", "NODE", "WHY", "IMAGE"}}
		for i, n := range p.Nodes {
			rows = append(rows, cells(i+1, cmp.Or(n.Node, "no Node: "+n.Instance), n.Why, imageTitle(n.From)))
		}
		writeDetails(w, rows, func(i int) []string {
			return fleet.Each(p.Nodes[i].Disk, func(d string) string { return "goes with its disk: " + d })
		}, shrink{3, 12}, shrink{1, 20})
		fmt.Fprintln(w)
	}
	list(w, "Also changed on each node, which gets all of the model", p.Differs)
	writeLeftOut(w, p.LeftOut)
	list(w, "Note", p.Notes)
}

func writeRollout(w io.Writer, r renew.Result) {
	switch n := len(r.Renewed); {
	case n > 0:
		say(w, "%s of %s came to %s.", fleet.Count(n, "node"), r.Pool.Name(), r.Image.Name())
	case r.Waiting == "":
		say(w, "Nothing to do: no node of %s is to be renewed.", r.Pool.Name())
	}
	list(w, "Renewed", r.Renewed)
	if r.Waiting != "" {
		say(w, "Waiting: %s.", r.Waiting)
	}
	writeLeftOut(w, r.Left)
	list(w, "Note", r.Notes)
}

func writeLeftOut(w io.Writer, all []renew.LeftOut) {
	list(w, "Left out", fleet.Each(all, func(l renew.LeftOut) string { return l.Node + ": " + l.Why }))
}

// rolloutNotes are what a rollout that did not end well came to.
func rolloutNotes(r renew.Result) (notes []string) {
	if len(r.Renewed) > 0 {
		notes = append(notes, fleet.Count(len(r.Renewed), "node")+" came to "+r.Image.Name()+": "+strings.Join(r.Renewed, ", "))
	}
	for _, l := range r.Left {
		notes = append(notes, l.Node+" is left out: "+l.Why)
	}
	return slices.Concat(notes, r.Notes)
}

// are counts things that something is done to.
func are(n int, what string) string {
	if n == 1 {
		return "1 " + what + " is"
	}
	return fleet.Count(n, what) + " are"
}
