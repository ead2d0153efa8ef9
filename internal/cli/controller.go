package cli

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/boots/controller"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/auto"
)

// controllerFlags are those of ortet controller.
type controllerFlags struct {
	pools, groups   []string
	interval        time.Duration
	reads           int
	deadline        time.Duration
	keep            time.Duration
	most            int
	perVersion      int
	mostBoots       int
	keepBoots       time.Duration
	firstPod        bool
	liftTaint       bool
	liftAfter       time.Duration
	metrics, health string
	elect           bool
}

func newController(o *options) *cobra.Command {
	var f controllerFlags
	c := &cobra.Command{
		Use:   "controller",
		Short: "Run the controller that reports why nodes fail to come up",
		Long: `controller runs in the cluster. It watches the instances of the scale sets that
the cluster's nodes belong to, and reports for each whether it came up, and if not,
why:

  - in the condition ortet.io/BootSucceeded of Nodes and of Cluster API Machines
  - in Events and metrics
  - in ConfigMaps, which remain after the machine is deleted

It also stores the boot reports of nodes for ortet boot. It changes nothing in
Azure. With --lift-taint it removes the taint with which kubelets may keep
workloads off a node until then:

  ` + fleet.TaintUnproven + `:NoSchedule`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return o.runController(cmd.Context(), f)
		},
	}
	p := c.Flags()
	p.StringArrayVar(&f.pools, "pool", nil, "ARM `ID` of a scale set to watch instead of all; repeatable")
	p.StringArrayVar(&f.groups, "resource-group", nil, "ARM `ID` of a resource group whose scale sets are watched too; repeatable")
	durationVar(p, &f.interval, "interval", controller.DefaultInterval, "interval between lists of a pool that is changing")
	p.IntVar(&f.reads, "arm-reads", controller.DefaultReads, "limit of read requests to Azure Resource Manager per minute")
	durationVar(p, &f.deadline, "boot-deadline", assess.DefaultBootDeadline, "time limit from an instance's creation until its Node is Ready")
	durationVar(p, &f.keep, "keep", controller.DefaultKeep, "retention of evidence of failed boots")
	p.IntVar(&f.most, "max-evidence", controller.DefaultMaxEvidence, "limit of failed boots with stored evidence; the oldest is deleted first, existing machines before deleted ones")
	p.IntVar(&f.perVersion, "boots-per-version", controller.DefaultBootsPerVersion, "limit of stored boot reports per pool and image version; the newest are kept")
	p.IntVar(&f.mostBoots, "max-boots", controller.DefaultMaxBoots, "limit of stored boot reports in total")
	durationVar(p, &f.keepBoots, "keep-boots", controller.DefaultKeepBoots, "retention of boot reports; twelve times as long for a pool's last two image versions")
	p.BoolVar(&f.firstPod, "first-pod", true, "find out when the first pod ran on a booted node")
	p.BoolVar(&f.liftTaint, "lift-taint", false, "remove the startup taint ortet-unproven from Nodes that came up")
	durationVar(p, &f.liftAfter, "lift-after", controller.DefaultLiftAfter,
		"time after which a Ready Node without a verdict loses that taint, too")
	p.StringVar(&f.metrics, "metrics-address", ":8080", "listen `ADDRESS` for metrics; 0 disables it")
	p.StringVar(&f.health, "health-address", ":8081", "listen `ADDRESS` for /healthz and /readyz; 0 disables it")
	p.BoolVar(&f.elect, "leader-elect", true, "run only while holding the Lease "+controller.LeaseName)
	return c
}

func (f controllerFlags) check() error {
	if _, err := scaleSets(f.pools); err != nil {
		return err
	}
	if _, err := groups(f.groups); err != nil {
		return err
	}
	switch {
	case f.interval < time.Second || f.interval > time.Hour:
		return usagef("--interval %s: want 1s to 1h", durationText(f.interval))
	case f.reads < 5 || f.reads > 6000:
		return usagef("--arm-reads %d: want 5 to 6000", f.reads)
	case f.deadline < time.Minute || f.deadline > 24*time.Hour:
		return usagef("--boot-deadline %s: want 1m to 24h", durationText(f.deadline))
	case f.keep < time.Minute:
		return usagef("--keep %s: want 1m at least", durationText(f.keep))
	case f.most < 1 || f.most > 10000:
		return usagef("--max-evidence %d: want 1 to 10000", f.most)
	case f.perVersion < 1 || f.perVersion > 1000:
		return usagef("--boots-per-version %d: want 1 to 1000", f.perVersion)
	case f.mostBoots < 1 || f.mostBoots > 10000:
		return usagef("--max-boots %d: want 1 to 10000", f.mostBoots)
	case f.keepBoots < time.Minute:
		return usagef("--keep-boots %s: want 1m at least", durationText(f.keepBoots))
	case f.liftAfter < time.Minute || f.liftAfter > 24*time.Hour:
		return usagef("--lift-after %s: want 1m to 24h", durationText(f.liftAfter))
	}
	return nil
}

// scaleSets reads ARM ids of scale sets.
func scaleSets(list []string) ([]fleet.ResourceID, error) {
	var out []fleet.ResourceID
	for _, s := range list {
		id := fleet.ResourceID(s)
		if !strings.HasPrefix(s, "/subscriptions/") || id.Segment("virtualMachineScaleSets") == "" || id.Name() != id.Segment("virtualMachineScaleSets") {
			return nil, usagef("--pool %q is not the ARM id of a scale set (/subscriptions/…); a name is not enough here: its Nodes may not exist yet", s)
		}
		out = append(out, id)
	}
	return out, nil
}

// groups reads ARM ids of resource groups.
func groups(list []string) ([]fleet.ResourceID, error) {
	var out []fleet.ResourceID
	for _, s := range list {
		id := fleet.ResourceID(strings.TrimRight(s, "/"))
		if !id.Equal(id.Group()) || !fleet.ValidName(id.Segment("subscriptions")) || !fleet.ValidName(id.Name()) {
			return nil, usagef("--resource-group %q is not the ARM id of a resource group (/subscriptions/…/resourceGroups/…)", s)
		}
		out = append(out, id)
	}
	return out, nil
}

func (o *options) runController(ctx context.Context, f controllerFlags) error {
	config, err := o.kubernetes()
	if err != nil {
		return err
	}
	budget := controller.NewBudget(f.reads, time.Now)
	look, err := o.connectBoots(ctx, budget)
	if err != nil {
		return err
	}
	pools, err := scaleSets(f.pools)
	if err != nil {
		return err
	}
	also, err := groups(f.groups)
	if err != nil {
		return err
	}
	if look.group != "" && len(pools) == 0 {
		also = append(also, look.group)
	}
	return controller.Run(ctx, controller.Config{
		REST: config, Namespace: o.namespace, Identity: localHolder(), Boots: look.boots, Budget: budget, Metered: look.metered,
		Pools: pools, Groups: also, Interval: f.interval, Deadlines: assess.Deadlines{Boot: f.deadline}, Keep: f.keep, MaxEvidence: f.most,
		BootsPerVersion: f.perVersion, MaxBoots: f.mostBoots, KeepBoots: f.keepBoots, FirstPods: f.firstPod,
		LiftTaint: f.liftTaint, LiftAfter: f.liftAfter,
		Metrics: f.metrics, Health: f.health, Elect: f.elect, Log: o.log,
	})
}

// lookout is a way to look at instances.
type lookout struct {
	boots   azure.Boots
	metered bool             // the budget counts what is sent
	group   fleet.ResourceID // that the credentials' file names; "" where none does
	// machines lists a resource group's virtual machines, as azure.Reader does; nil without Azure.
	machines func(context.Context, fleet.ResourceID) (map[fleet.ResourceID]fleet.ResourceID, error)
}

// places finds the scale sets of one list of Nodes. Without Azure, which failed with
// unasked, those of Uniform scale sets alone.
func (l lookout) places(unasked error) auto.Places {
	return &azure.Places{Reader: machinesReader{nil, l, unasked}}
}

// A machinesReader is an azure.Reader that lists machines.
type machinesReader struct {
	azure.Reader
	look    lookout
	unasked error
}

func (r machinesReader) Machines(ctx context.Context, group fleet.ResourceID) (map[fleet.ResourceID]fleet.ResourceID, error) {
	if r.unasked != nil {
		return nil, r.unasked
	}
	return r.look.machines(ctx, group)
}

// connectBoots logs in to Azure to look at boots. The budget counts the requests
// where it is not nil.
func (o *options) connectBoots(ctx context.Context, budget *controller.Budget) (lookout, error) {
	var l lookout
	c, who, err := logIn(ctx, o, func(a arm.Options) (*arm.Cloud, error) {
		if budget != nil {
			a.Transport, l.metered = meter(budget, a)
		}
		return arm.New(a)
	})
	if err != nil {
		return lookout{}, err
	}
	l.group, l.machines = groupOf(who), o.decorate(c).Machines
	l.boots = bootsOf(c)
	return l, nil
}

// meter makes the budget count what the credentials' transport sends to Azure
// Resource Manager, as far as the transport is one of package http.
func meter(budget *controller.Budget, a arm.Options) (policy.Transporter, bool) {
	base, ok := a.Transport.(*http.Client)
	if !ok && a.Transport != nil {
		return a.Transport, false
	}
	if base == nil {
		base = &http.Client{}
	}
	metered := *base
	next := base.Transport
	if next == nil {
		next = http.DefaultTransport
	}
	endpoint, err := url.Parse(a.Cloud.Services[cloud.ResourceManager].Endpoint)
	if err != nil || endpoint.Host == "" {
		return a.Transport, false
	}
	metered.Transport = budget.Meter(next, endpoint.Host)
	return &metered, true
}
