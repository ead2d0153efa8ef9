package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/azure/credential"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
)

// clusterOptions are what every command of ortet cluster takes.
type clusterOptions struct {
	*options
	file         string
	subscription string
}

func newCluster(o *options) *cobra.Command {
	c := &clusterOptions{options: o}
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Make and run a k3s cluster on Azure from one file",
		Long: `cluster makes a k3s cluster on Azure from one file, cluster.yaml: a server, scale sets
of agents, and storage that outlives both. Azure does the work in two deployments. The
same command again repairs, and goes on after an interruption.`,
	}
	f := cmd.PersistentFlags()
	f.StringVarP(&c.file, "file", "f", "cluster.yaml", "`FILE` that describes the cluster")
	f.StringVar(&c.subscription, "subscription", "", "`ID` of the Azure subscription (default: $AZURE_SUBSCRIPTION_ID, that of the credentials)")
	cmd.AddCommand(newClusterUp(c), newClusterPlan(c), newClusterStatus(c), newClusterEndpoints(c), newClusterDown(c),
		newClusterInit(c), newClusterKeys(c), newClusterValidate(c), newClusterArtifacts(c),
		newClusterAgents(c), newClusterSSH(c), newClusterProxy(c), newClusterLogs(c), newClusterKubeconfig(c), newClusterBackup(c), newClusterRestore(c))
	cmd.AddCommand(newClusterPools(c)...)
	return cmd
}

// clusterCommand is a command that wants an argument for each word in capitals of use.
func clusterCommand(use, short, long string, run func(ctx context.Context, args []string) error) *cobra.Command {
	names := strings.Join(strings.Fields(use)[1:], " ")
	cmd := &cobra.Command{Use: use, Short: short, Long: long, RunE: func(cmd *cobra.Command, args []string) error {
		return run(cmd.Context(), args)
	}}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if names == "" {
			return noArguments(cmd, args)
		}
		if len(args) != len(strings.Fields(names)) {
			return usagef("want %s: %s %s", strings.ReplaceAll(names, " ", " and "), cmd.CommandPath(), names)
		}
		return nil
	}
	return cmd
}

// read reads cluster.yaml.
func (c *clusterOptions) read() (cluster *k3s.Cluster, err error) {
	defer func() { err = refuseFile(c.file, err) }()
	data, err := os.ReadFile(c.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot read cluster file: %w; make one with ortet cluster init, or name one with -f", err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read cluster file: %w; name another with -f", err)
	}
	return k3s.Parse(c.file, data)
}

// keyFile is the file of the SSH public key.
func (c *clusterOptions) keyFile(cluster *k3s.Cluster) string {
	if name := cluster.Spec.Access.SSHKey; !filepath.IsAbs(name) {
		return filepath.Join(filepath.Dir(c.file), name)
	}
	return cluster.Spec.Access.SSHKey
}

// A site is the cluster of the file, and where it is in Azure.
type site struct {
	cluster      *k3s.Cluster
	publicKey    string   // for commands that deploy
	ownAddresses []string // the same
	arm          *arm.Resources
	cloud        azure.Cloud
	subscription string
	group        fleet.ResourceID // compute
}

// connect reads the file, finds the credentials, logs in and finds the subscription. For
// commands that deploy it reads what the templates need besides: the SSH key and the own
// addresses.
func (c *clusterOptions) connect(ctx context.Context, own *ownAddresses) (s *site, err error) {
	s = new(site)
	if err := own.check(); err != nil {
		return nil, err
	}
	if s.cluster, err = c.read(); err != nil {
		return nil, err
	}
	if own != nil {
		if s.publicKey, err = readPublicKey(c.keyFile(s.cluster)); err != nil {
			return nil, err
		}
		if s.ownAddresses, err = own.resolve(ctx); err != nil {
			return nil, err
		}
	}
	var who credential.Credentials
	var cloud *arm.Cloud
	if s.arm, cloud, who, err = logInBoth(ctx, c.options); err != nil {
		return nil, err
	}
	s.cloud = c.decorate(cloud)
	s.subscription = cmp.Or(c.subscription, c.process.Getenv("AZURE_SUBSCRIPTION_ID"), who.Subscription)
	if s.subscription == "" {
		return nil, fmt.Errorf("cannot find the Azure subscription: credentials of %s do not name one; give --subscription ID or set AZURE_SUBSCRIPTION_ID", who.Source)
	}
	s.group = fleet.ResourceID("/subscriptions/" + s.subscription + "/resourceGroups/" + s.cluster.Spec.Groups.Compute)
	return s, nil
}

func (c *clusterOptions) manager(ctx context.Context, report func(workflow.Event), own *ownAddresses) (*lifecycle.Manager, error) {
	s, err := c.connect(ctx, own)
	if err != nil {
		return nil, err
	}
	m := s.manager(report)
	m.Agents = drains{c}
	return m, nil
}

func (s *site) manager(report func(workflow.Event)) *lifecycle.Manager {
	return lifecycle.New(lifecycle.Config{
		ARM: s.arm, Cloud: s.cloud, Subscription: s.subscription, Cluster: s.cluster, Render: recipe.Render, Report: report,
		SSHPublicKey: s.publicKey, OwnAddresses: s.ownAddresses, Dial: dial,
	})
}

// dial connects to a port, and closes the connection. With a host key, it has to be the SSH
// server that has that key.
func dial(ctx context.Context, address, hostKey string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	defer func() { _ = c.Close() }() // nothing of use was written
	if hostKey == "" {
		return nil
	}
	want, _, _, _, err := ssh.ParseAuthorizedKey([]byte(hostKey))
	if err != nil {
		return fmt.Errorf("the server's published host key: %w", err)
	}
	same := false
	_, _, _, err = ssh.NewClientConn(c, address, &ssh.ClientConfig{
		HostKeyAlgorithms: []string{want.Type()},
		HostKeyCallback: func(_ string, _ net.Addr, got ssh.PublicKey) error {
			same = bytes.Equal(got.Marshal(), want.Marshal())
			return errors.New("the host key is not the one that the server published") // also ends a handshake with the server
		},
	})
	if same {
		return nil
	}
	return err
}

// goesOn says at Ctrl-C what becomes of the work; a second one ends at once.
func (c *clusterOptions) goesOn(ctx context.Context, show *progress) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		show.Say("Interrupted. Azure goes on with what it has accepted.")
	})
}

// confirm asks for a name, unless --yes gave it.
func (c *clusterOptions) confirm(what, name, yes, consequence string) error {
	if yes == "" {
		paragraph(c.process.Err, columnsOf(c.process.Err), "", "", consequence)
		fmt.Fprintf(c.process.Err, "Type the name of the %s, %s, to go on: ", what, name)
		_, _ = fmt.Fscanln(c.process.In, &yes) // no answer is not the name
	}
	if yes != name {
		return refuse("NotConfirmed", what+" "+name, fmt.Sprintf("%q is not its name", yes), "type "+name+", or give --yes "+name)
	}
	return nil
}
