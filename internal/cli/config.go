package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/boots/survey"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/nodeconfig/file"
	"github.com/ortet/ortet/internal/nodeconfig/push"
	"github.com/ortet/ortet/internal/yamlfile"
)

// A pusher plans, pushes and shows the configuration of a pool's live nodes.
type pusher interface {
	Plan(ctx context.Context, pool fleet.ResourceID, c nodeconfig.Config) (*push.Plan, error)
	Push(ctx context.Context, pool fleet.ResourceID, o push.Request) (*push.Result, error)
	Status(ctx context.Context, pool fleet.ResourceID) (*push.Status, error)
	Rollback(ctx context.Context, pool fleet.ResourceID, to int64, o push.Request) (*push.Result, error)
}

// openRollouts connects with the cluster and Azure; tests replace it.
type openRollouts func(ctx context.Context, report func(line string)) (pusher, survey.Finder, error)

// configOptions are what every command of ortet config takes.
type configOptions struct {
	*options
	connect openRollouts
	groups  []string // in which a pool is found by its name too
}

func newConfig(o *options) *cobra.Command {
	c := &configOptions{options: o, connect: o.openRollout}
	if o.process.rollouts != nil {
		c.connect = o.process.rollouts
	}
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Change the configuration of a pool's live nodes",
		Long: `config changes files, units, sysctls, kubelet settings, registry mirrors and CA
certificates of a pool's running nodes, without a reimage, a reboot or a drain. The
configuration is one file, nodeconfig.yaml, and is the whole state: what a later push
omits goes back to what the node had. A node that is not healthy afterwards restores
what it had, and the push stops. Pools are Uniform scale sets: Flexible ones are refused.`,
	}
	cmd.AddCommand(newConfigKeygen(c), newConfigValidate(c), newConfigPlan(c), newConfigPush(c), newConfigStatus(c), newConfigRollback(c))
	return cmd
}

// caller is "user@host", for the history.
func caller() string {
	host, _ := os.Hostname()
	if u, err := user.Current(); err == nil {
		return u.Username + "@" + host
	}
	return "unknown@" + host
}

// openRollout connects with the cluster and Azure, and logs in.
func (o *options) openRollout(ctx context.Context, report func(line string)) (pusher, survey.Finder, error) {
	var none survey.Finder
	c, err := o.openCluster(ctx)
	if err != nil {
		return nil, none, err
	}
	config, err := o.kubernetes()
	if err != nil {
		return nil, none, err
	}
	config.QPS, config.Burst = 50, 100 // a wave annotates and reads many Nodes
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, none, fmt.Errorf("set up the Kubernetes client: %w", err)
	}
	resources, direct, who, err := logInBoth(ctx, o)
	if err != nil {
		return nil, none, err
	}
	cloud := o.decorate(direct)
	return push.New(push.Options{
		ARM: azure.LimitResources(resources, azure.Limits{}), Cloud: cloud, Kube: client, Namespace: o.namespace,
		Now: time.Now, By: caller(), Report: report, CheckKubelet: file.CheckKubelet,
	}), o.finder(c, &azure.Places{Reader: cloud}, bootsOf(direct), cloud, nil, groupOf(who)), nil
}

// poolCommand is a command whose argument is POOL.
func (c *configOptions) poolCommand(use, short, long string, run func(ctx context.Context, arg string) error) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := oneArgument("the pool: a scale set's name or ARM id")(cmd, args); err != nil {
				return err
			}
			return checkPool(args[0])
		},
		RunE: func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), args[0]) },
	}
	groupsFlag(cmd.Flags(), &c.groups)
	return cmd
}

// open connects, and finds the pool: to change it where a push is shown.
func (c *configOptions) open(ctx context.Context, arg string, show *progress) (pusher, fleet.ResourceID, error) {
	report := func(line string) {
		if show != nil {
			var b strings.Builder
			paragraph(&b, columnsOf(c.process.Err), time.Now().Format(time.TimeOnly)+"  ", strings.Repeat(" ", 10), line)
			show.Say(strings.TrimSuffix(b.String(), "\n"))
		}
	}
	p, find, err := c.connect(ctx, report)
	if err != nil {
		return nil, "", err
	}
	more, err := groups(c.groups)
	if err != nil {
		return nil, "", err
	}
	find.Groups = append(more, find.Groups...)
	to := find.ToRead
	if show != nil {
		to = find.ToChange
	}
	id, err := to(ctx, arg)
	return p, id, err
}

// read reads nodeconfig.yaml; "-" is standard input.
func (c *configOptions) read(name string) (nodeconfig.Config, error) {
	if name == "" {
		return nodeconfig.Config{}, usagef("name the configuration with -f FILE")
	}
	var data []byte
	var err error
	if name == "-" {
		name = "standard input"
		data, err = io.ReadAll(c.process.In)
	} else {
		data, err = os.ReadFile(name)
	}
	if err != nil {
		return nodeconfig.Config{}, refuseFile(name, fmt.Errorf("cannot read configuration: %w", err))
	}
	config, err := file.Parse(name, data)
	return config, refuseFile(name, err)
}

func fileFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVarP(file, "file", "f", "", "`FILE` with the configuration, nodeconfig.yaml; - is standard input")
}

// A configSize is what validate reports of a valid file.
type configSize struct {
	File     string         `json:"file"`
	Valid    bool           `json:"valid"`
	Digest   string         `json:"digest"`
	Holds    map[string]int `json:"holds"`    // entries of each member of spec
	UserData int            `json:"userData"` // bytes, as base64; with a shorter pool's name a few less
	Limit    int            `json:"limit"`    // of UserData
}

func newConfigValidate(c *configOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE",
		Short: "Check nodeconfig.yaml without asking Azure or the cluster",
		Long: `validate checks the file, and shows its digest and how much of userData it takes. It
reports all problems, each with its line and field. - is standard input.`,
		Args: oneArgument("the configuration's file, or - for standard input"),
		RunE: func(_ *cobra.Command, args []string) error {
			config, err := c.read(args[0])
			if err != nil {
				return c.printFailure(invalidOf(args[0], err), nil, err)
			}
			size, err := measure(args[0], config)
			if err := refuseFile(args[0], err); err != nil {
				return c.printFailure(nil, nil, err)
			}
			return c.print(size, func(w io.Writer) { writeValid(w, size, config) })
		},
	}
}

// An invalidFile is what validate reports of a file that is not valid.
type invalidFile struct {
	File     string             `json:"file"`
	Valid    bool               `json:"valid"`
	Problems []yamlfile.Problem `json:"problems"`
}

func invalidOf(name string, err error) any {
	if invalid := (*yamlfile.InvalidError)(nil); errors.As(err, &invalid) {
		return invalidFile{File: name, Problems: invalid.Problems}
	}
	return nil
}

func measure(name string, config nodeconfig.Config) (configSize, error) {
	s := configSize{File: name, Valid: true, Limit: nodeconfig.MaxUserData, Holds: map[string]int{}}
	for _, k := range kinds(config) {
		s.Holds[k.member] = k.n
	}
	var err error
	if s.Digest, err = config.Digest(); err == nil {
		s.UserData, err = file.Size(config)
	}
	return s, err
}

type kind struct {
	name, member string // member is of spec
	n            int
}

func kinds(c nodeconfig.Config) []kind {
	return []kind{{"file", "files", len(c.Files)}, {"unit", "units", len(c.Units)}, {"sysctl", "sysctls", len(c.Sysctls)}, {"kubelet field", "kubelet", len(c.Kubelet)},
		{"registry mirror", "registryMirrors", len(c.RegistryMirrors)}, {"CA certificate", "caCertificates", len(c.CACertificates)}}
}

func writeValid(w io.Writer, s configSize, config nodeconfig.Config) {
	var holds []string
	for _, k := range kinds(config) {
		if k.n > 0 {
			holds = append(holds, fleet.Count(k.n, k.name))
		}
	}
	say(w, "%s is valid: %s.", s.File, first(strings.Join(holds, ", "), "it is empty, and gives nodes back what they had"))
	fmt.Fprintf(w, "Digest:   %s\n", s.Digest)
	fmt.Fprintf(w, "userData: about %d of %d bytes\n", s.UserData, s.Limit)
}
