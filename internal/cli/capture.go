package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/prove"
	"github.com/ortet/ortet/internal/image/watch"
	"github.com/ortet/ortet/internal/wire"
)

type captureFlags struct {
	request    capture.Request
	extensions string
	keep       []string
	tune       []string
	dryRun     bool
	abandon    bool
	image      string
	pullSecret string
	lease      leaseDuration
	watch      watch.Request // after the capture; For 0 is none
	test       string        // file of --canary-test
	testIn     string        // the namespace that it names

	poolSelection
	policySet   *pflag.FlagSet // flags that go with pools only
	prepareTime *pflag.Flag    // whether it is given
	maxParallel int
	fresh       bool
	patch       bool
	prepare     plan.Preparation
}

func newCapture(o *options) *cobra.Command {
	f := &captureFlags{}
	cmd := &cobra.Command{
		Use:   "capture NODE | --pool POOL | --all | --abandon NODE|POOL",
		Short: "Capture a node as the image of its pool's new nodes",
		Long: `capture makes an image version of a node's OS disk and points the node's scale set
at it. Running instances are not changed. It:

  1. drains and stops the node (not with --online), and takes a snapshot of its
     OS disk
  2. starts the node, and returns it to service
  3. removes the node's identity from a copy of the disk, on another node
  4. builds an image version from the copy
  5. points the scale set's model at that version

An interrupted capture returns the node to service first; the same command resumes
it, and --abandon undoes and ends it. A second capture of a pool on the same day does nothing, unless --again is given.

With --pool or --all, rules choose the node (ortet donors shows them), and a pool is
captured only if a new image is due: it has no version, its nodes were patched since
the newest (--patch-annotation), or the newest is too old (--max-image-age). Pools are
captured side by side; the exit code is the gravest of all pools (4, 1, 5, 3, 0).
With --fresh no node is chosen: one is added, captured and deleted again.`,
		Example: `  ortet capture k8s-pool1-12345678-vmss000000 --dry-run \
    --image=reg.example/ortet:1
  ortet capture k8s-pool1-12345678-vmss000000 \
    --image=reg.example/ortet:1
  ortet capture --all --image=reg.example/ortet:1 --max-image-age 14`,
		Args: f.checkSelection,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.output == nameForm && f.dryRun {
				return usagef("-o name: not with --dry-run, which makes no version; want table, json or yaml")
			}
			if f.abandon {
				return f.runAbandon(cmd, o, args[0])
			}
			if err := cmp.Or(f.checkTune(cmd.Flags()), f.readTest(o.namespace)); err != nil {
				return err
			}
			if len(args) == 0 {
				if !cmd.Flags().Changed("canary") && !f.request.PublishOnly {
					f.request.Canary, f.request.CanaryIfPossible = plan.DefaultCanary, true
				}
				f.request.TakeUnjudged = !f.request.Again
				return f.runPools(cmd.Context(), o)
			}
			return f.run(cmd, o, args[0])
		},
	}
	o.takesForms(cmd, nameForm)
	r, flags := &f.request, cmd.Flags()
	flags.BoolVar(&f.dryRun, "dry-run", false, "show the plan and all blockers; change nothing")
	flags.BoolVar(&f.abandon, "abandon", false, "end the interrupted capture of a node or POOL: undo what it did, and begin no other")
	flags.BoolVar(&r.Again, "again", false, "build another version even if today's exists; an open capture with other options is undone first")
	flags.BoolVar(&r.Deallocate, "deallocate", false, "deallocate the node instead of powering it off")
	flags.BoolVar(&r.Online, "online", false, "copy the disk while the node stays in service")
	durationVar(flags, &r.GracePeriod, "grace-period", 300*time.Second, "time limit for each pod to exit; the drain as a whole has three times that")
	flags.BoolVar(&r.ForceDrain, "force", false, "delete pods that are left at the time limit, or have no controller")
	flags.IntVar(&r.History, "history", 3, "`NUMBER` of versions to keep, at least 2")
	flags.Int32Var(&r.Replicas, "replicas", 0, "`NUMBER` of replicas of the version, 1 to 100 (default 0: one for 50 of the pool's capacity, 3 to 50)")
	flags.BoolVar(&r.Shallow, "shallow", false, "build a version without copies, for tests")
	flags.StringVar(&r.Bootstrap, "bootstrap", plan.BootstrapKeep, "`MODE` in which new nodes join: keep (by customData) or baked")
	flags.BoolVar(&r.AcceptPoolCredentials, "accept-pool-credentials", false, "allow credentials that the pool shares")
	flags.StringArrayVar(&r.AcceptSecrets, "accept-secret", nil, "`PATH` of a secret to allow, or FOLDER/; repeatable")
	flags.BoolVar(&r.RemoveSecrets, "remove-secrets", false, "delete other secrets from the copied disk")
	flags.BoolVar(&r.ScanImages, "scan-images", false, "search container images for all kinds of secrets")
	flags.StringSliceVar(&f.tune, "tune", nil, "`NAMES` of what to add to the image so that clones are Ready sooner: recommended, "+
		strings.Join(wire.Tunings(), ", ")+"; needs a canary (default 1)")
	flags.StringVar(&f.extensions, "extensions", "default", "`SET` of extensions to delete: default, all or none")
	flags.StringArrayVar(&f.keep, "keep-extension", nil, "`NAME` of an extension to keep, * as wildcard; repeatable")
	flags.Int64Var(&r.NewNodes, "grow", 0, "`NUMBER` of nodes to add at the end")
	flags.Int64Var(&r.Canary, "canary", 0, "`NUMBER` of clones that have to come up before the model is updated, 0 to 10 (default with --pool and --all: 2)")
	durationVar(flags, &r.CanarySoak, "canary-soak", 2*time.Minute,
		"time for which clones, and the node of --fresh, have to stay Ready, with their DaemonSets; at most 30m")
	flags.StringVar(&f.test, "canary-test", "", "`FILE` with a Job whose pod has to end with exit code 0 on each clone")
	flags.BoolVar(&r.PublishOnly, "publish-only", false, "end after the image version; leave the scale set as it is")
	flags.StringVar(&r.Workbench, "workbench", "", "`NODE` to prepare the disk on (default: a suitable one of the pool)")
	flags.BoolVar(&r.OtherPools, "other-pools", false, "prepare the disk on a node of another pool where that is needed: its root decides what the image is")
	flags.BoolVar(&r.AllowRolling, "allow-rolling", false, "continue if the upgrade policy is Rolling")
	flags.BoolVar(&r.ExcludeFromLatest, "exclude-from-latest", false, "keep the version out of automatic OS upgrades")
	flags.BoolVar(&r.AllowOwned, "allow-owned", false, "continue if Cluster API owns the model")
	flags.StringVar(&f.image, "image", o.process.Image, imageHelp(o.process.Image))
	flags.StringVar(&f.pullSecret, "image-pull-secret", "", "`NAME` of the pull secret for --image")
	durationVar(flags, &f.watch.For, "watch", 0, "time for which the first nodes of the new version are watched; if they fail, it is taken back (ortet watch --help); 0 is not at all")
	flags.IntVar(&f.watch.Nodes, "watch-nodes", watch.DefaultNodes, "`NUMBER` of nodes that have to come up")
	badNodesFlag(flags, &f.watch)
	flags.StringArrayVar(&r.RestoreLearned, "restore-learned", nil, "`NAME` of what the watch may restore as a donor's disk showed it: customData, or an extension; repeatable")
	f.freshFlags(flags)
	leaseFlag(flags, &f.lease)
	f.policySet = f.policyFlags()
	f.policySet.IntVar(&f.maxParallel, "max-parallel", 4, "maximum `NUMBER` of pools at a time")
	flags.AddFlagSet(f.policySet)
	flags.StringArrayVar(&f.pools, "pool", nil, "`POOL` by name or ARM id, whose best node is captured if a new image is due; repeatable")
	flags.BoolVar(&f.all, "all", false, "capture each pool of the named resource groups for which a new image is due")
	f.groups = []string{}
	flags.StringArrayVar(&f.groups, "resource-group", f.groups, "ARM `ID` of a resource group in which --all and --pool NAME find pools, beside that of azure.json or AZURE_RESOURCE_GROUP; repeatable")
	return cmd
}

func (f *captureFlags) freshFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&f.fresh, "fresh", false,
		"with --pool or --all: capture a node that is added for it, without workloads, and removed at the end")
	flags.BoolVar(&f.patch, "patch", false,
		"with --fresh: update the packages of that node, and restart it where needed, before its disk is copied")
	flags.StringVar(&f.prepare.Image, "prepare", "",
		"container `IMAGE` to run on the node of --fresh before, as root with its root at /host; exit code 10 is a restart")
	flags.StringArrayVar(&f.prepare.Command, "prepare-command", nil,
		"`WORD` of the command of --prepare, in place of the image's own; repeatable")
	durationVar(flags, &f.prepare.Timeout, "prepare-timeout", plan.DefaultPrepare, "time limit for --prepare and --patch, 1m to 1h")
	f.prepareTime = flags.Lookup("prepare-timeout")
}

// imageHelp describes --image for a program of a release, which knows its image, and for
// any other.
func imageHelp(release string) string {
	text := "container `IMAGE` of this version of ortet"
	if release == "" {
		text += "; required (make image builds it)"
	}
	return text
}

func (f *captureFlags) complete(node string) error {
	r := &f.request
	r.Node = node
	if err := cmp.Or(checkImage("image", f.image), f.checkPrepare()); err != nil {
		return err
	}
	var err error
	if r.Tune, err = wire.ParseTunings(f.tune); err != nil {
		return usagef("--tune: %v", err)
	}
	switch {
	case r.History < 2:
		return usagef("--history %d: at least 2 versions are kept, the new one and the one before it", r.History)
	case r.Online && r.Deallocate:
		return usagef("--online leaves the node in service, and --deallocate stops it: leave out one of them")
	case r.Replicas < 0 || r.Replicas > 100:
		return usagef("--replicas %d: want 1 to 100, or 0 for one for 50 of the pool's capacity", r.Replicas)
	case r.GracePeriod < 0 || r.GracePeriod > 24*time.Hour:
		return usagef("--grace-period %s: want 0s to 24h", durationText(r.GracePeriod))
	case r.Canary < 0 || r.Canary > fleet.MaxCanary:
		return usagef("--canary %d: want 0 to %d", r.Canary, fleet.MaxCanary)
	case r.CanaryTest != "" && r.Canary == 0 && len(r.Tune) == 0:
		return usagef("--canary-test: only with --canary, whose clones run the test")
	case r.CanarySoak < 0 || r.CanarySoak > plan.MaxSoak:
		return usagef("--canary-soak %s: want at most %s", durationText(r.CanarySoak), durationText(plan.MaxSoak))
	case r.NewNodes < 0 || r.NewNodes > 1000:
		return usagef("--grow %d: want 0 to 1000; a scale set has at most 1,000 instances", r.NewNodes)
	case r.Bootstrap != plan.BootstrapKeep && r.Bootstrap != plan.BootstrapBaked:
		return usagef("--bootstrap %s: want %s or %s", r.Bootstrap, plan.BootstrapKeep, plan.BootstrapBaked)
	case len(r.AcceptSecrets) > wire.MaxAcceptedSecrets:
		return usagef("--accept-secret: %d paths; give at most %d, a folder that ends in / stands for all below it", len(r.AcceptSecrets), wire.MaxAcceptedSecrets)
	}
	if err := wire.CheckTunings(r.Tune, r.Bootstrap == plan.BootstrapBaked); err != nil {
		return usagef("--tune %v", err)
	}
	if r.PublishOnly {
		if err := f.checkPublishOnly(); err != nil {
			return err
		}
	}
	if f.watch.For == 0 && len(r.RestoreLearned) > 0 {
		return usagef("--restore-learned: only with --watch, whose rollback restores it")
	}
	if f.watch.For != 0 {
		if err := checkWatch("watch", "watch-nodes", f.watch); err != nil {
			return err
		}
	}
	for _, at := range r.AcceptSecrets {
		if err := wire.CheckAcceptedSecret(at); err != nil {
			return usagef("--accept-secret %v", err)
		}
	}
	switch f.extensions {
	case "default":
		r.Extensions = plan.ExtensionRule{Keep: f.keep}
	case "none":
		r.Extensions = plan.ExtensionRule{None: true}
	case "all":
		r.Extensions = plan.ExtensionRule{All: true, Keep: f.keep}
	default:
		return usagef("--extensions %s: want default, all or none", f.extensions)
	}
	if err := r.Extensions.Check(); err != nil {
		return usageError{err}
	}
	return nil
}

// checkImage refuses what is no name of a container image; "" is none, which preflight judges.
func checkImage(flag, image string) error {
	if _, err := name.ParseReference(image); image != "" && err != nil {
		return usagef("--%s %q: want a container image, such as reg.example/org/ortet:1 (names are in lower case)", flag, image)
	}
	return nil
}

// checkTune refuses --tune without a name, and beside --canary 0.
func (f *captureFlags) checkTune(flags *pflag.FlagSet) error {
	switch tunes := flags.Changed("tune"); {
	case tunes && len(f.tune) == 0:
		return usagef("--tune: no names; want %s, or any of %s; leave it out for none",
			wire.TuneRecommended, strings.Join(wire.Tunings(), ", "))
	case tunes && flags.Changed("canary") && f.request.Canary == 0:
		return usagef("--tune: clones have to prove what it changes; leave out --canary 0, or give 1 or more")
	}
	return nil
}

// checkPublishOnly refuses what only a change of the model gives a meaning.
func (f *captureFlags) checkPublishOnly() error {
	r, defaults := f.request, capture.Request{}.WithDefaults()
	for _, flag := range []struct {
		given     bool
		name, why string
	}{
		{r.NewNodes != 0, "grow", "its new nodes would come from the model's image"},
		{r.Bakes(), "bootstrap baked", "it changes the model's customData; machines of the version get theirs from what makes them"},
		{f.extensions != "default" || len(f.keep) > 0, "extensions and --keep-extension", "the model keeps all"},
		{r.History != defaults.History, "history", "no version is deleted"},
		{f.watch.For != 0, "watch", "nodes of the version come when another tool makes them"},
	} {
		if flag.given {
			return usagef("--publish-only leaves the scale set as it is, so it does not go with --%s: %s", flag.name, flag.why)
		}
	}
	return nil
}

func (f *captureFlags) run(cmd *cobra.Command, o *options, node string) error {
	if err := f.complete(node); err != nil {
		return err
	}
	ctx := cmd.Context()
	show := o.newProgress()
	defer show.Close()
	s, err := o.connect(ctx, show, f.work(o))
	if err != nil {
		return err
	}
	if f.dryRun {
		p, err := s.Plan(ctx, f.request)
		if err != nil {
			return err
		}
		show.Close()
		return o.printPlan(p)
	}
	stop := o.explainInterrupt(ctx, show)
	result, err := s.captureAndWatch(ctx, f.request, f.watch)
	stop()
	show.Close()
	if err != nil {
		if o.forPerson() {
			writeTestLines(o.process.Err, result.Canary)
		}
		return o.printFailure(result, result.notes(), err)
	}
	if o.output == nameForm {
		writeCaptureLists(o.process.Err, result.Result)
	}
	return o.printNames(result, []string{string(result.Version)}, func(w io.Writer) {
		writeCapture(w, result.Result)
		if result.Watch != nil {
			writeWatch(w, *result.Watch)
		}
	})
}

func (f *captureFlags) work(o *options) work {
	needs := kube.Everything(o.namespace)
	needs.Force, needs.Test = f.request.ForceDrain, f.testIn
	return work{image: f.image, pullSecret: f.pullSecret, rules: kube.Rules(needs), lease: f.lease, watch: f.watch}
}

// readTest reads the file of --canary-test. The request has its text, as its record does, so that
// a resumed capture runs the same test.
func (f *captureFlags) readTest(namespace string) error {
	if f.test == "" {
		return nil
	}
	file, err := os.Open(f.test)
	if err != nil {
		return refuseFile(f.test, err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, cluster.MaxTestFile+1))
	if err != nil {
		return refuseFile(f.test, err)
	}
	job, err := kube.ParseTest(string(text), namespace)
	if err == nil {
		f.request.CanaryTest, f.testIn = string(text), job.Namespace
	}
	return refuseFile(f.test, err)
}

func writeTestLines(w io.Writer, findings []prove.Finding) {
	for _, f := range findings {
		list(w, "Last lines of the test on "+f.Clone, f.Lines)
	}
}

func writeCapture(w io.Writer, r capture.Result) {
	version := r.Version.Name()
	switch {
	case r.Published != nil:
		writePublished(w, r)
	case r.NothingToDo:
		say(w, "Nothing to do: %s is there and the model of %s uses it; --again builds another one today.", version, r.Pool.Name())
	case r.Resumed:
		say(w, "The interrupted capture is finished: new nodes of %s come from %s.", r.Pool.Name(), version)
	default:
		say(w, "New nodes of %s come from %s.", r.Pool.Name(), version)
	}
	list(w, "New nodes", newNodesOf(r))
	if r.BuiltFrom != "" && r.BuiltFrom != r.Donor {
		again := ""
		if !r.NothingToDo {
			again = " Use --again to build another one today."
		}
		say(w, "It was made from %s, not from %s.%s", r.BuiltFrom, r.Donor, again)
	}
	writeCaptureLists(w, r)
	if d := r.Timing.End.Sub(r.Timing.Begin); !r.NothingToDo && d > 0 {
		say(w, "It took %s.", duration(d))
	}
}

func newNodesOf(r capture.Result) (all []string) {
	for _, n := range r.NewNodes {
		is := "Ready"
		if !n.Ready {
			is = "not Ready when it was added: " + n.Why
		}
		all = append(all, cmp.Or(n.Node, n.Instance)+": "+is)
	}
	return all
}

func writePublished(w io.Writer, r capture.Result) {
	p, what, latest := r.Published, "Published %s of %s. ", ""
	if r.NothingToDo {
		what = "Nothing to do: %s of %s is published already; --again builds another one today. "
	}
	if p.ExcludeFromLatest {
		latest = " It is excluded from the definition's latest: name the version."
	}
	say(w, what+"The scale set %s is as it was.%s", p.Version, p.Definition, r.Pool.Name(), latest)
	fmt.Fprintln(w, r.Version)
}

// preparedLines is the title of what a preparation printed last.
const preparedLines = "Last lines of the preparation"

func writeCaptureLists(w io.Writer, r capture.Result) {
	list(w, preparedLines, r.Prepared)
	list(w, "Deleted, beyond the history", r.Pruned)
	list(w, "Kept beyond the history", r.Kept)
	list(w, "Lost (could not be saved)", r.Irreversible)
	list(w, "The pool's credentials on the image", r.PoolCredentials)
	list(w, "Other secrets on the image", r.AcceptedSecrets)
	list(w, "Files with secrets, removed from the image", r.RemovedSecrets)
	list(w, "Note", r.Notes)
}
