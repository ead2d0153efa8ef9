package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/azure/credential"
	"github.com/ortet/ortet/internal/elastic"
	"github.com/ortet/ortet/internal/elastic/lifecycle"
	"github.com/ortet/ortet/internal/elastic/recipe"
	"github.com/ortet/ortet/internal/fleet"
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
		newClusterInit(c), newClusterKeys(c), newClusterValidate(c), newClusterArtifacts(c), newClusterExport(c))
	cmd.AddCommand(newClusterAgents(c), newClusterSSH(c), newClusterProxy(c), newClusterLogs(c), newClusterKubeconfig(c))
	cmd.AddCommand(newClusterPools(c)...)
	return cmd
}

// read reads cluster.yaml.
func (c *clusterOptions) read() (*elastic.Cluster, error) {
	data, err := os.ReadFile(c.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot read %s: no such file; make one with ortet cluster init, or name one with -f", c.file)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read cluster file: %w", err)
	}
	return elastic.Parse(c.file, data)
}

// keyFile is the file of the SSH public key.
func (c *clusterOptions) keyFile(cluster *elastic.Cluster) string {
	name := cluster.Spec.Access.SSHKey
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(c.file), name)
}

func (c *clusterOptions) publicKey(cluster *elastic.Cluster) (string, error) {
	data, err := os.ReadFile(c.keyFile(cluster))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("cannot read SSH public key %s: no such file; make a key pair with ortet cluster keys, or set spec.access.sshKey", c.keyFile(cluster))
	}
	if err != nil {
		return "", fmt.Errorf("cannot read SSH public key: %w", err)
	}
	return authorizedKey(data)
}

// azure finds the credentials, logs in and finds the subscription.
func (c *clusterOptions) azure(ctx context.Context) (*arm.Resources, string, error) {
	who, err := credential.Load(ctx, credential.Config{File: c.azureConfig, Getenv: c.process.Getenv})
	if err != nil {
		return nil, "", err
	}
	c.log.Info("credentials found", "source", who.Source)
	resources, err := arm.NewResources(arm.Options{Cloud: who.Cloud, Credential: who.TokenCredential, Transport: who.Transport, Version: c.process.Version})
	if err != nil {
		return nil, "", err
	}
	if err := resources.LogIn(ctx); fleet.Is(err, fleet.KindUnauthenticated) {
		return nil, "", fmt.Errorf("credentials of %s: %w", who.Source, err)
	}
	subscription := first(c.subscription, first(c.process.Getenv("AZURE_SUBSCRIPTION_ID"), who.Subscription))
	if subscription == "" {
		return nil, "", fmt.Errorf("cannot find the Azure subscription: credentials of %s do not name one; give --subscription ID or set AZURE_SUBSCRIPTION_ID", who.Source)
	}
	return resources, subscription, nil
}

// manager connects the cluster of the file with Azure, for what deploys: the SSH key and
// own addresses are in the templates.
func (c *clusterOptions) manager(ctx context.Context, show *progress, own []string) (*lifecycle.Manager, error) {
	cluster, err := c.read()
	if err != nil {
		return nil, err
	}
	key, err := c.publicKey(cluster)
	if err != nil {
		return nil, err
	}
	return c.connectManager(ctx, show, cluster, key, own)
}

// reader connects the cluster of the file with Azure, for what deploys nothing.
func (c *clusterOptions) reader(ctx context.Context, show *progress) (*lifecycle.Manager, error) {
	cluster, err := c.read()
	if err != nil {
		return nil, err
	}
	return c.connectManager(ctx, show, cluster, "", nil)
}

func (c *clusterOptions) connectManager(ctx context.Context, show *progress, cluster *elastic.Cluster, key string, own []string) (*lifecycle.Manager, error) {
	resources, subscription, err := c.azure(ctx)
	if err != nil {
		return nil, err
	}
	config := lifecycle.Config{ARM: resources, Subscription: subscription, Cluster: cluster, Render: recipe.Render, SSHPublicKey: key, OwnAddresses: own}
	if show != nil {
		config.Reporter = show
	}
	return lifecycle.New(config), nil
}

// goesOn says at Ctrl-C what becomes of the work; a second one ends at once.
func (c *clusterOptions) goesOn(ctx context.Context, show *progress) (stop func()) {
	ended := make(chan struct{})
	go func() {
		select {
		case <-ended:
		case <-ctx.Done():
			if c.process.Restore != nil {
				c.process.Restore()
			}
			show.Say("Interrupted. Azure goes on with what it has accepted.")
		}
	}()
	return func() { close(ended) }
}
