package cli

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/internal/plan"
	"github.com/ortet/ortet/internal/wire"
)

type captureFlags struct {
	request    engine.CaptureRequest
	extensions string
	keep       []string
	dryRun     bool
	image      string
	pullSecret string
}

func newCapture(o *options) *cobra.Command {
	f := &captureFlags{}
	cmd := &cobra.Command{
		Use:   "capture NODE",
		Short: "Capture a node and make its pool's new nodes like it",
		Long: `capture drains and stops the node, takes a snapshot of its disk, starts it
again and gives it back; prepares a copy of the disk on another node, builds an
image version from it, and points the scale set's model at that version.
Running instances are not changed.

It can be interrupted at any time: the node is given back, and the same command
goes on from there. A second capture of the pool on the same day has nothing to
do, unless --again is given.`,
		Example: `  ortet capture k8s-pool1-12345678-vmss000000 --dry-run
  ortet capture k8s-pool1-12345678-vmss000000
  ortet capture k8s-pool1-12345678-vmss000000 --bootstrap=baked \
    --accept-pool-credentials`,
		Args: oneArgument("the node to capture, as in 'kubectl get nodes'"),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, o, args[0]) },
	}
	r, flags := &f.request, cmd.Flags()
	flags.BoolVar(&f.dryRun, "dry-run", false, "show the plan, step by step, and change nothing but for a pod that inspects the node")
	flags.BoolVar(&r.Again, "again", false, "make a further version although today's exists")
	flags.BoolVar(&r.Deallocate, "deallocate", false, "deallocate the node instead of powering it off: slower, and its capacity may be gone")
	flags.DurationVar(&r.GracePeriod, "grace-period", 300*time.Second, "time for each pod to exit; the whole drain has three times that")
	flags.BoolVar(&r.ForceDrain, "force", false, "delete pods that are left when the drain's time is over, and those that nothing would create again")
	flags.IntVar(&r.History, "history", 3, "image versions to keep, at least 2; what is in use is always kept")
	flags.Int32Var(&r.Replicas, "replicas", 3, "replicas of the image version")
	flags.BoolVar(&r.Shallow, "shallow", false, "make the version without copies, for development and test")
	flags.StringVar(&r.Bootstrap, "bootstrap", engine.BootstrapKeep, "keep: new nodes run the model's customData as before; baked: what they need is on the image, and customData becomes a no-op")
	flags.BoolVar(&r.AcceptPoolCredentials, "accept-pool-credentials", false, "let the pool's shared credentials be on the image")
	flags.StringArrayVar(&r.AcceptSecrets, "accept-secret", nil, "file with another secret that may be on the image, or folder that ends in /; may be repeated")
	flags.BoolVar(&r.RemoveSecrets, "remove-secrets", false, "delete files with other secrets from the copy of the disk, where the node does not need them to boot")
	flags.BoolVar(&r.ScanImages, "scan-images", false, "search container image layers for all kinds of secrets, not for the node's own only")
	flags.StringVar(&f.extensions, "extensions", "default", "extensions of the model to delete: default (CustomScript and CAPZ's bootstrapping), all, or none")
	flags.StringArrayVar(&f.keep, "keep-extension", nil, "extension that stays, * as a wildcard; may be repeated")
	flags.Int64Var(&r.NewNodes, "grow", 0, "add this many nodes when the model is updated")
	flags.StringVar(&r.Workbench, "workbench", "", "node to prepare the copied disk on (default: one that fits)")
	flags.BoolVar(&r.AllowRolling, "allow-rolling", false, "go on although the scale set is in Rolling mode and Azure will replace its instances")
	flags.BoolVar(&r.ExcludeFromLatest, "exclude-from-latest", false, "go on although the scale set has automatic OS upgrades, with a version that these leave alone")
	flags.BoolVar(&r.AllowOwned, "allow-owned", false, "go on although Cluster API owns the scale set's model")
	flags.StringVar(&f.image, "image", defaultImage, "container image with ortet-node, for the pod that prepares the disk")
	flags.StringVar(&f.pullSecret, "image-pull-secret", "", "pull secret for it, in --namespace")
	return cmd
}

func (f *captureFlags) complete(node string) error {
	r := &f.request
	r.Node = node
	switch {
	case r.History < 2:
		return usagef("--history %d: at least 2 versions are kept, the new one and the one before it", r.History)
	case r.Replicas < 1 || r.Replicas > 100:
		return usagef("--replicas %d: want 1 to 100", r.Replicas)
	case r.GracePeriod < 0 || r.GracePeriod > 24*time.Hour:
		return usagef("--grace-period %s: want 0s to 24h", r.GracePeriod)
	case r.NewNodes < 0 || r.NewNodes > 1000:
		return usagef("--grow %d: want 0 to 1000; a scale set has at most 1,000 instances", r.NewNodes)
	case r.Bootstrap != engine.BootstrapKeep && r.Bootstrap != engine.BootstrapBaked:
		return usagef("--bootstrap %s: want %s or %s", r.Bootstrap, engine.BootstrapKeep, engine.BootstrapBaked)
	case f.image == "":
		return usagef("--image is empty: name a container image that holds ortet-node")
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
		// A rule without patterns would be the default one; no name is empty.
		r.Extensions = plan.ExtensionRule{AllBut: append([]string{""}, f.keep...)}
	default:
		return usagef("--extensions %s: want default, all or none", f.extensions)
	}
	if err := r.Extensions.Check(); err != nil {
		return usageError{err}
	}
	return nil
}

func (f *captureFlags) run(cmd *cobra.Command, o *options, node string) error {
	if err := f.complete(node); err != nil {
		return err
	}
	ctx := cmd.Context()
	show := newProgress(o.process.Err, o.process.Getenv)
	defer show.Close()
	needs := kube.Everything(o.namespace)
	needs.Force = f.request.ForceDrain
	e, err := o.connect(ctx, show, work{image: f.image, pullSecret: f.pullSecret, needs: &needs})
	if err != nil {
		return err
	}
	if f.dryRun {
		p, err := e.Plan(ctx, f.request)
		if err != nil {
			return err
		}
		show.Close()
		return o.printPlan(p)
	}
	stop := o.explainInterrupt(ctx, show)
	defer stop()
	result, err := e.Capture(ctx, f.request)
	show.Close()
	if err != nil {
		return o.printFailure(result, result.Notes, err)
	}
	return o.print(result, func(w io.Writer) { writeCapture(w, result) })
}

func writeCapture(w io.Writer, r engine.CaptureResult) {
	version := r.Version.Name()
	switch {
	case r.NothingToDo:
		say(w, "Nothing to do: %s is there and the model of %s uses it.", version, r.Pool.Name())
	case r.Resumed:
		say(w, "The interrupted capture is finished: new nodes of %s come from %s.", r.Pool.Name(), version)
	default:
		say(w, "New nodes of %s come from %s.", r.Pool.Name(), version)
	}
	if r.BuiltFrom != "" && r.BuiltFrom != r.Donor {
		say(w, "It was made from %s, not from %s. Use --again to make another today.", r.BuiltFrom, r.Donor)
	}
	list(w, "Deleted, beyond the history", r.Pruned)
	list(w, "Kept beyond the history", r.Kept)
	list(w, "Lost (could not be saved)", r.Irreversible)
	list(w, "The pool's credentials on the image", r.PoolCredentials)
	list(w, "Other secrets on the image", r.AcceptedSecrets)
	list(w, "Files with secrets, removed from the image", r.RemovedSecrets)
	list(w, "Note", r.Notes)
	if d := r.Timing.End.Sub(r.Timing.Begin); !r.NothingToDo && d > 0 {
		say(w, "It took %s.", duration(d))
	}
}
