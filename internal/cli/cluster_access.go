package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/ortet/ortet/internal/elastic"
	"github.com/ortet/ortet/internal/elastic/recipe"
	"github.com/ortet/ortet/internal/fleet"
)

// A target is the cluster's server as SSH reaches it.
type target struct {
	cluster *elastic.Cluster
	address string // public
	fqdn    string // "" without any
	hostKey string // "ssh-ed25519 AAAA…", as the server published it through Azure
	key     string // private key's file
	dir     string // for known_hosts
}

// target reads the server's address and host key from Azure. The key is the one that
// the server wrote with its managed identity, so nothing is trusted on first use.
func (c *clusterOptions) target(ctx context.Context) (*target, func(), error) {
	cluster, err := c.read()
	if err != nil {
		return nil, nil, err
	}
	resources, subscription, err := c.azure(ctx)
	if err != nil {
		return nil, nil, err
	}
	group := fleet.ResourceID("/subscriptions/" + subscription + "/resourceGroups/" + cluster.Spec.Groups.Compute)
	t := &target{cluster: cluster, key: strings.TrimSuffix(c.keyFile(cluster), ".pub")}
	var vm struct {
		Tags map[string]string `json:"tags"`
	}
	err = resources.Get(ctx, group.In("virtualMachines", recipe.ServerName), "2024-07-01", &vm)
	if fleet.Is(err, fleet.KindNotFound) {
		return nil, nil, fmt.Errorf("cannot reach cluster %s: it has no server; make it with ortet cluster up", cluster.Metadata.Name)
	}
	if err != nil {
		return nil, nil, err
	}
	if t.hostKey = vm.Tags[recipe.TagSSHHostKey]; t.hostKey == "" {
		return nil, nil, fmt.Errorf("cannot reach cluster %s: its server has not published its SSH host key yet; its boot is at %q, see ortet cluster status", cluster.Metadata.Name, vm.Tags[recipe.TagBoot])
	}
	var ip struct {
		Properties struct {
			IPAddress   string `json:"ipAddress"`
			DNSSettings struct {
				FQDN string `json:"fqdn"`
			} `json:"dnsSettings"`
		} `json:"properties"`
	}
	if err := resources.Get(ctx, group+"/providers/Microsoft.Network/publicIPAddresses/"+recipe.ServerName, "2024-05-01", &ip); err != nil {
		return nil, nil, err
	}
	t.address, t.fqdn = ip.Properties.IPAddress, ip.Properties.DNSSettings.FQDN
	if t.dir, err = os.MkdirTemp("", "ortet-ssh-"); err != nil {
		return nil, nil, fmt.Errorf("make a folder for known_hosts: %w", err)
	}
	done := func() { _ = os.RemoveAll(t.dir) }
	if err := os.WriteFile(t.knownHosts(), []byte(t.alias()+" "+t.hostKey+"\n"), 0o600); err != nil {
		done()
		return nil, nil, fmt.Errorf("write known_hosts: %w", err)
	}
	return t, done, nil
}

func (t *target) knownHosts() string { return filepath.Join(t.dir, "known_hosts") }
func (t *target) alias() string      { return "ortet-" + t.cluster.Metadata.Name }

// ssh is the command that runs remote on the server; an empty one is a shell there.
func (t *target) ssh(ctx context.Context, options []string, remote ...string) *exec.Cmd {
	access := t.cluster.Spec.Access
	args := append([]string{
		"-p", strconv.Itoa(access.SSHPort), "-i", t.key,
		"-o", "UserKnownHostsFile=" + t.knownHosts(), "-o", "StrictHostKeyChecking=yes", "-o", "HostKeyAlias=" + t.alias(), "-o", "LogLevel=ERROR",
	}, options...)
	args = append(args, access.User+"@"+t.address)
	// #nosec G204 -- the operator's own cluster.yaml, and an address from Azure
	return exec.CommandContext(ctx, "ssh", append(args, remote...)...)
}

// interactive runs ssh with the terminal.
func (c *clusterOptions) interactive(cmd *exec.Cmd) error {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.process.In, c.process.Out, c.process.Err
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == 255:
		return errors.New("ssh could not connect; see its message above, and ortet cluster endpoints for who may reach the server")
	case err != nil && !errors.As(err, &exit):
		return fmt.Errorf("run ssh: %w; install the OpenSSH client", err)
	}
	return err
}

func newClusterSSH(c *clusterOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "ssh [COMMAND...]",
		Short: "Open a shell on the server, or run a command there",
		Long: `ssh runs ssh to the server with the cluster's key. The host key is the one that the
server published through Azure, so a wrong server is refused.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, done, err := c.target(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			return c.interactive(t.ssh(cmd.Context(), nil, args...))
		},
	}
}

// proxyForwards are those that people use: ingress, the registry, the API server.
func proxyForwards() []string {
	return []string{"9080:localhost:80", "9443:localhost:443", "8080:localhost:8080", "5000:localhost:5000", "6443:localhost:6443"}
}

func newClusterProxy(c *clusterOptions) *cobra.Command {
	var forwards []string
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Forward local ports to the server until Ctrl-C",
		Long: `proxy forwards ports of this computer to the server by SSH, until it is ended: 9080 and
9443 to ingress (80, 443), 8080, 5000 to the private registry, and 6443 to the API
server.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, done, err := c.target(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			if len(forwards) == 0 {
				forwards = proxyForwards()
			}
			options := []string{"-N", "-o", "ExitOnForwardFailure=yes", "-o", "ServerAliveInterval=30"}
			for _, f := range forwards {
				options = append(options, "-L", "localhost:"+f)
				local, remote, _ := strings.Cut(f, ":")
				fmt.Fprintf(c.process.Err, "localhost:%s -> %s\n", local, remote)
			}
			err = c.interactive(t.ssh(cmd.Context(), options))
			if cmd.Context().Err() != nil {
				return nil // that is how it ends
			}
			return err
		},
	}
	cmd.Flags().StringArrayVarP(&forwards, "forward", "L", nil, "`PORT:HOST:HOSTPORT` to forward instead; repeatable")
	return cmd
}

func newClusterLogs(c *clusterOptions) *cobra.Command {
	var follow bool
	lines := 100
	cmd := &cobra.Command{
		Use:   "logs",
		Short: "Show the server's logs: its boot, k3s, and admission",
		Long: `logs shows what the server wrote about its boot, k3s and the admission of agents: the
units ortet-boot, k3s and ortet-admission.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, done, err := c.target(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			remote := []string{"sudo", "journalctl", "--no-pager", "--lines", strconv.Itoa(lines), "-u", "ortet-boot", "-u", "k3s", "-u", "ortet-admission"}
			if follow {
				remote = append(remote, "--follow")
			}
			err = c.interactive(t.ssh(cmd.Context(), nil, remote...))
			if follow && cmd.Context().Err() != nil {
				return nil
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&follow, "follow", false, "go on until Ctrl-C")
	cmd.Flags().IntVar(&lines, "lines", lines, "`NUMBER` of lines to show first")
	return cmd
}

func newClusterKubeconfig(c *clusterOptions) *cobra.Command {
	var toStdout bool
	name := ""
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Get the cluster's kubeconfig and merge it into yours",
		Long: `kubeconfig fetches the administrator's kubeconfig from the server by SSH and merges it
into the file of --kubeconfig, $KUBECONFIG or ~/.kube/config, as a context named after
the cluster, which becomes the current one. After ortet cluster down and up run it
again: the cluster has a new certificate authority then.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, done, err := c.target(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			get := t.ssh(cmd.Context(), nil, "sudo", "cat", "/etc/rancher/k3s/k3s.yaml")
			var out bytes.Buffer
			get.Stdout, get.Stderr = &out, c.process.Err
			if err := get.Run(); err != nil {
				return fmt.Errorf("read /etc/rancher/k3s/k3s.yaml on the server by ssh: %w; ortet cluster logs shows whether k3s runs", err)
			}
			if name == "" {
				name = t.cluster.Metadata.Name
			}
			config, err := t.kubeconfig(out.Bytes(), name)
			if err != nil {
				return err
			}
			if toStdout {
				text, err := clientcmd.Write(*config)
				if err != nil {
					return fmt.Errorf("write the kubeconfig: %w", err)
				}
				_, err = c.process.Out.Write(text)
				return err
			}
			file, err := c.mergeKubeconfig(config, name)
			if err != nil {
				return err
			}
			return c.print(map[string]any{"file": file, "context": name, "server": config.Clusters[name].Server}, func(w io.Writer) {
				say(w, "Context %s is the current one in %s.", name, file)
			})
		},
	}
	cmd.Flags().BoolVar(&toStdout, "print", false, "print it instead of merging it")
	cmd.Flags().StringVar(&name, "name", "", "`NAME` of the context (default: the cluster's name)")
	return cmd
}

// kubeconfig makes of the server's own kubeconfig one that works from here.
func (t *target) kubeconfig(text []byte, name string) (*clientcmdapi.Config, error) {
	theirs, err := clientcmd.Load(text)
	if err != nil {
		return nil, fmt.Errorf("read the server's kubeconfig: %w", err)
	}
	current := theirs.Contexts[theirs.CurrentContext]
	if current == nil || theirs.Clusters[current.Cluster] == nil || theirs.AuthInfos[current.AuthInfo] == nil {
		return nil, errors.New("read the server's kubeconfig: it has no current context")
	}
	out := clientcmdapi.NewConfig()
	cluster := theirs.Clusters[current.Cluster]
	cluster.Server = "https://" + t.address + ":6443"
	cluster.TLSServerName = t.fqdn
	out.Clusters[name], out.AuthInfos[name] = cluster, theirs.AuthInfos[current.AuthInfo]
	context := clientcmdapi.NewContext()
	context.Cluster, context.AuthInfo = name, name
	out.Contexts[name], out.CurrentContext = context, name
	return out, nil
}

// mergeKubeconfig puts the entries into the kubeconfig that kubectl would change. A
// context of that name that leads to another cluster is left alone.
func (c *clusterOptions) mergeKubeconfig(config *clientcmdapi.Config, name string) (string, error) {
	paths := clientcmd.NewDefaultPathOptions()
	paths.LoadingRules.ExplicitPath = c.kubeconfig
	if files := filepath.SplitList(c.process.Getenv(clientcmd.RecommendedConfigPathEnvVar)); c.kubeconfig == "" && len(files) > 0 {
		paths.GlobalFile = files[0]
		paths.LoadingRules.Precedence = files
	}
	mine, err := paths.GetStartingConfig()
	if err != nil {
		return "", fmt.Errorf("read your kubeconfig: %w", err)
	}
	if old := mine.Clusters[name]; old != nil && old.TLSServerName != config.Clusters[name].TLSServerName {
		return "", fmt.Errorf("cannot add context %s to your kubeconfig: cluster %s in it is another (%s); give --name", name, name, old.Server)
	}
	mine.Clusters[name], mine.AuthInfos[name], mine.Contexts[name] = config.Clusters[name], config.AuthInfos[name], config.Contexts[name]
	mine.CurrentContext = name
	if err := clientcmd.ModifyConfig(paths, *mine, true); err != nil {
		return "", fmt.Errorf("write your kubeconfig: %w", err)
	}
	return paths.GetDefaultFilename(), nil
}
