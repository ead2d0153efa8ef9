package cli

import (
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/ortet/ortet/internal/operator/notify"
)

// operatorLease is the Lease by which operators elect their leader.
const operatorLease = "ortet-operator"

// operatorFlags are those of ortet operator.
type operatorFlags struct {
	capture         captureFlags // image, pull secret, other pools and lease duration of the runs
	groups          []string
	maxRuns         int
	lease           string
	metrics, health string
	notify          notify.Config
}

func newOperator(o *options) *cobra.Command {
	var f operatorFlags
	c := &cobra.Command{
		Use:   "operator",
		Short: "Run the operator that keeps pools as their ScaleSetPools say",
		Long: `operator runs in the cluster. For each ScaleSetPool it does what the spec asks, in
the scale set that the spec names:

  - captures a node when a new image is due, within a window
  - watches the first nodes of an image, and takes a bad image back
  - renews nodes of older images by a budget
  - deletes canaries that have expired

It reports in the status of the object. It starts the runs that ortet capture, watch
and rollout start, under the same Lease of the pool: what a Job or a person runs is
shown and not disturbed. Of several replicas one works. If its Lease is lost, it ends
its runs first: a donor that is out of service is returned.

A ScaleSetPool of a scale set in no --resource-group does nothing. Who may write
ScaleSetPools decides what the images of these scale sets are.`,
		Example: `  ortet operator --image=reg.example/ortet:1 \
    --resource-group=/subscriptions/ID/resourceGroups/GROUP`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return o.runOperator(cmd.Context(), f)
		},
	}
	p := c.Flags()
	p.StringArrayVar(&f.groups, "resource-group", nil, "ARM `ID` of a resource group whose scale sets may be changed; required, repeatable")
	p.StringVar(&f.capture.image, "image", o.process.Image, imageHelp(o.process.Image))
	p.StringVar(&f.capture.pullSecret, "image-pull-secret", "", "`NAME` of the pull secret for --image")
	p.BoolVar(&f.capture.request.OtherPools, "other-pools", false,
		"prepare disks on a node of another pool where that is needed: its root decides what the image is")
	p.IntVar(&f.maxRuns, "max-runs", 4,
		"maximum `NUMBER` of runs at a time; four times as many watches, which mostly wait, go on beside them")
	leaseFlag(p, &f.capture.lease)
	p.StringVar(&f.lease, "lease", operatorLease, "`NAME` of the Lease by which one of several replicas is chosen")
	p.StringVar(&f.metrics, "metrics-address", ":8080", "listen `ADDRESS` for metrics; 0 disables it")
	p.StringVar(&f.health, "health-address", ":8081", "listen `ADDRESS` for /healthz and /readyz; 0 disables it")
	p.StringVar(&f.notify.URL, "notify", "",
		"`URL` that is posted what happens to pools, as JSON; https, or http of a loopback address")
	p.StringVar(&f.notify.SecretFile, "notify-secret-file", "",
		"`FILE` with the key by which requests to --notify are signed, at least 16 bytes")
	c.AddCommand(newOperatorExport(o))
	return c
}

func (f *operatorFlags) check() error {
	if len(f.groups) == 0 {
		return usagef("--resource-group: name the resource groups whose scale sets may be changed, " +
			"each by its ARM id (az group show --query id)")
	}
	if _, err := groups(f.groups); err != nil {
		return err
	}
	if f.notify.URL == "" && f.notify.SecretFile != "" {
		return usagef("--notify-secret-file: only with --notify, whose requests it signs")
	}
	if f.notify.URL != "" {
		if err := f.notify.Check(); err != nil {
			return usagef("--notify: %w", err)
		}
	}
	switch {
	case f.maxRuns < 1 || f.maxRuns > 100:
		return usagef("--max-runs %d: want 1 to 100", f.maxRuns)
	case f.capture.image == "":
		return usagef("--image: name the container image of this version of ortet (make image builds it)")
	case len(validation.IsDNS1123Subdomain(f.lease)) > 0:
		return usagef("--lease %q: want the name of a Lease, such as %s", f.lease, operatorLease)
	}
	return checkImage("image", f.capture.image)
}
