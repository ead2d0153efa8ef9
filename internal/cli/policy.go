package cli

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/internal/auto"
	"github.com/ortet/ortet/internal/controller"
	"github.com/ortet/ortet/internal/donors"
	"github.com/ortet/ortet/internal/fleet"
)

// poolSelection is the pools of a command, and the rules for their donors.
type poolSelection struct {
	pools  []string // names or ARM ids
	all    bool
	policy donors.Policy
}

// policyFlags are the rules' flags, the same for each command.
func (s *poolSelection) policyFlags() *pflag.FlagSet {
	p, f := &s.policy, pflag.NewFlagSet("policy", pflag.ContinueOnError)
	p.MinReady = time.Hour
	f.StringVar(&p.PatchAnnotation, "patch-annotation", "", "`NAME` of the node annotation with the time of the last patch: an image is due once nodes were patched after the newest version")
	f.StringVar(&p.RebootAnnotation, "reboot-annotation", "", "`NAME` of the annotation on nodes with a pending reboot, in addition to kured's")
	f.Var((*timeSpan)(&p.MinReady), "min-ready", "minimum `DURATION` since a donor became Ready: 90 (seconds), 5m, 1h30m, 2d")
	f.IntVar(&p.MinCandidates, "min-candidates", 1, "minimum `NUMBER` of nodes that qualify")
	f.IntVar(&p.MaxImageAge, "max-image-age", 0, "maximum age of the newest version in `DAYS`, after which a new image is due without patches; 0 is no limit")
	f.StringArrayVar(&p.IgnoreNodes, "ignore-node", nil, "`NAME` of a node that is never a donor; repeatable")
	f.StringArrayVar(&p.IgnoreAnnotations, "ignore-annotation", nil, "`NAME` of an annotation on nodes that are never donors; repeatable")
	f.StringArrayVar(&p.Off, "skip-rule", nil, "name of a `RULE` to switch off (ortet donors --help lists them); repeatable")
	return f
}

// check checks the selection and its policy.
func (s *poolSelection) check(o *options) error {
	if s.all && len(s.pools) > 0 {
		return usagef("name pools or give --all, not both")
	}
	for _, arg := range s.pools {
		if err := checkPool(arg); err != nil {
			return err
		}
	}
	s.policy.Self = o.process.Getenv("NODE_NAME")
	if err := s.policy.Check(); err != nil {
		return usageError{err}
	}
	return nil
}

// find gives the ARM ids of the pools, each once.
func (s *poolSelection) find(ctx context.Context, o *options, a autoMode, client kubernetes.Interface) ([]fleet.ResourceID, error) {
	if s.all {
		return a.Pools(ctx)
	}
	var pools []fleet.ResourceID
	seen := map[controller.Key]bool{}
	for _, arg := range s.pools {
		id, err := o.pool(ctx, client, arg)
		if err != nil {
			return nil, err
		}
		if !seen[controller.KeyOf(id)] {
			pools = append(pools, id)
		}
		seen[controller.KeyOf(id)] = true
	}
	return pools, nil
}

// autoMode is what auto.Auto does.
type autoMode interface {
	Pools(ctx context.Context) ([]fleet.ResourceID, error)
	Looks(ctx context.Context, pools []fleet.ResourceID, all bool) ([]auto.Look, error)
	Run(ctx context.Context, pools []fleet.ResourceID, all, dryRun bool) []auto.Result
}

// openAuto connects; tests replace it. What the engine of a pool reports goes to the
// pool's show, which may be nil.
type openAuto func(ctx context.Context, w work, config auto.Config, show func(fleet.ResourceID) *progress) (autoMode, kubernetes.Interface, error)

func (o *options) openAuto(ctx context.Context, w work, config auto.Config, show func(fleet.ResourceID) *progress) (autoMode, kubernetes.Interface, error) {
	if o.process.auto != nil {
		return o.process.auto(ctx, w, config, show)
	}
	c, err := o.open(ctx, w)
	if err != nil {
		return nil, nil, err
	}
	if _, err := c.engine(nil); err != nil {
		return nil, nil, err
	}
	config.Nodes = c.config.Cluster
	config.Doors = func(pool fleet.ResourceID) auto.Doors {
		e, _ := c.engine(show(pool)) // its configuration was accepted above
		return e
	}
	a, err := auto.New(config)
	return a, c.client, err
}

// poolNames gives short names: scale sets of one name have their resource group's before it.
func poolNames(pools []fleet.ResourceID) func(fleet.ResourceID) string {
	seen := map[string]int{}
	for _, id := range pools {
		seen[strings.ToLower(id.Name())]++
	}
	return func(id fleet.ResourceID) string {
		if seen[strings.ToLower(id.Name())] > 1 {
			return id.Group().Name() + "/" + id.Name()
		}
		return id.Name()
	}
}

// A timeSpan is a flag's duration: Go's, days, or a number of seconds.
type timeSpan time.Duration

func (s *timeSpan) Type() string { return "duration" }

func (s *timeSpan) String() string {
	text := time.Duration(*s).String()
	for _, zero := range []string{"0s", "0m"} {
		if cut := strings.TrimSuffix(text, zero); cut != "" && !strings.ContainsAny(cut[len(cut)-1:], "0123456789.") {
			text = cut
		}
	}
	return text
}

func (s *timeSpan) Set(text string) error {
	d, err := time.ParseDuration(text)
	number, unit := text, time.Second
	if days, is := strings.CutSuffix(text, "d"); is {
		number, unit = days, 24*time.Hour
	}
	if n, e := strconv.ParseUint(number, 10, 32); e == nil {
		d, err = min(time.Duration(n), time.Duration(1<<63-1)/unit)*unit, nil
	}
	if err != nil || d < 0 {
		return errors.New("want seconds (90), or a duration with the units s, m, h or d (5m, 1h30m, 2d)")
	}
	*s = timeSpan(d)
	return nil
}
