package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

// A target is the cluster's server as SSH reaches it.
type target struct {
	*site
	address string // public
	fqdn    string // "" without any
	known   string // file of its host key
	key     string // private key's file
}

// serverCommand is a command that works on the server. What ends with Ctrl-C ends well.
func (c *clusterOptions) serverCommand(use, short, long string, run func(context.Context, *target, []string) error) *cobra.Command {
	return clusterCommand(use, short, long, func(ctx context.Context, args []string) error {
		dir, err := os.MkdirTemp("", "ortet-ssh-")
		if err != nil {
			return fmt.Errorf("cannot make a folder for known_hosts: %w", err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		t := &target{known: filepath.Join(dir, "known_hosts")}
		if t.site, err = c.connect(ctx, nil); err != nil {
			return err
		}
		t.key = strings.TrimSuffix(c.keyFile(t.cluster), ".pub")
		if err := t.find(ctx); err != nil {
			return err
		}
		return run(ctx, t, args)
	})
}

// find reads the server's address and host key from Azure. The key is the one that the
// server wrote with its managed identity, so nothing is trusted on first use.
func (t *target) find(ctx context.Context) error {
	var vm struct {
		Tags map[string]string `json:"tags"`
	}
	err := t.arm.Get(ctx, t.group.In("virtualMachines", recipe.ServerName), "2024-07-01", &vm)
	if fleet.Is(err, fleet.KindNotFound) {
		return fmt.Errorf("cannot reach cluster %s: it has no server; make it with ortet cluster up", t.cluster.Metadata.Name)
	}
	if err != nil {
		return err
	}
	hostKey := vm.Tags[recipe.TagSSHHostKey]
	if hostKey == "" {
		return fmt.Errorf("cannot reach cluster %s: its server has not published its SSH host key yet; its boot is at %q, see ortet cluster status", t.cluster.Metadata.Name, vm.Tags[recipe.TagBoot])
	}
	all, err := t.manager(nil).Endpoints(ctx)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("cannot reach cluster %s: its server has no open public address; set spec.access.ssh, then run ortet cluster up", t.cluster.Metadata.Name)
	}
	t.address, t.fqdn = all[0].Address, all[0].FQDN
	if _, _, _, rest, err := ssh.ParseAuthorizedKey([]byte(hostKey)); err != nil || len(bytes.TrimSpace(rest)) > 0 {
		return fmt.Errorf("cannot reach cluster %s: tag %s of its server is not one SSH host key: %q", t.cluster.Metadata.Name, recipe.TagSSHHostKey, hostKey)
	}
	if err := os.WriteFile(t.known, []byte("server "+hostKey+"\n"), 0o600); err != nil {
		return fmt.Errorf("cannot write known_hosts: %w", err)
	}
	return nil
}

// ssh is the command that runs remote on the server; an empty one is a shell there.
func (t *target) ssh(ctx context.Context, options []string, remote ...string) *exec.Cmd {
	access := t.cluster.Spec.Access
	args := append([]string{
		"-p", strconv.Itoa(access.SSHPort), "-i", t.key,
		"-o", "UserKnownHostsFile=" + t.known, "-o", "StrictHostKeyChecking=yes", "-o", "HostKeyAlias=server", "-o", "LogLevel=ERROR",
		"-o", "ConnectTimeout=15", // a rule of access.ssh that leaves this computer out drops packets
		"-o", "ForwardAgent=no", "-o", "ForwardX11=no", // a "Host *" of the operator's may lend both to any server
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

// untilStopped is interactive for what runs until Ctrl-C.
func (c *clusterOptions) untilStopped(ctx context.Context, cmd *exec.Cmd) error {
	if err := c.interactive(cmd); ctx.Err() == nil {
		return err
	}
	return nil
}

func newClusterSSH(c *clusterOptions) *cobra.Command {
	cmd := c.serverCommand("ssh", "Open a shell on the server, or run a command there", `ssh runs ssh to the server with the cluster's key. It accepts only the host
key that the server published through Azure.`, func(ctx context.Context, t *target, args []string) error {
		err := c.interactive(t.ssh(ctx, nil, args...))
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			return exitError(exit.ExitCode())
		}
		return err
	})
	cmd.Use, cmd.Args = "ssh [COMMAND...]", cobra.ArbitraryArgs
	cmd.Flags().SetInterspersed(false) // the command's own flags are not ours
	return cmd
}

func newClusterProxy(c *clusterOptions) *cobra.Command {
	forwards := []string{"9080:localhost:80", "9081:localhost:81", "9443:localhost:443", "8080:localhost:8080", "4040:localhost:4040", "5000:localhost:5000", "6443:localhost:6443"}
	cmd := c.serverCommand("proxy", "Forward local ports to the server until Ctrl-C", `proxy forwards ports of this computer to the server by SSH, until it is ended: 9080 and
9443 to ingress (80, 443), 9081 to 81, 8080, 4040, 5000 to the private registry, and 6443
to the API server.`, func(ctx context.Context, t *target, _ []string) error {
		options := []string{"-N", "-o", "ExitOnForwardFailure=yes", "-o", "ServerAliveInterval=30"}
		for _, f := range forwards {
			options = append(options, "-L", "localhost:"+f)
			local, remote, _ := strings.Cut(f, ":")
			fmt.Fprintf(c.process.Err, "localhost:%s -> %s\n", local, remote)
		}
		return c.untilStopped(ctx, t.ssh(ctx, options))
	})
	cmd.Flags().StringArrayVarP(&forwards, "forward", "L", forwards, "`PORT:HOST:HOSTPORT` to forward instead; repeatable")
	cmd.Flags().Lookup("forward").DefValue = "[]" // the help has them above
	return cmd
}

func newClusterLogs(c *clusterOptions) *cobra.Command {
	var follow bool
	lines := 100
	cmd := c.serverCommand("logs", "Show the server's logs: its boot, k3s, and admission", `logs shows what the server wrote about its boot, k3s and the admission of agents: the
units ortet-boot, k3s and ortet-admission.`, func(ctx context.Context, t *target, _ []string) error {
		remote := []string{"sudo", "journalctl", "--no-pager", "--lines", strconv.Itoa(lines), "-u", "ortet-boot", "-u", "k3s", "-u", "ortet-admission"}
		shown := *c // what a server sends is text here, and no command for the terminal
		o := *c.options
		o.process.Out, o.process.Err = &plainWriter{to: o.process.Out}, &plainWriter{to: o.process.Err}
		shown.options = &o
		if !follow {
			return shown.interactive(t.ssh(ctx, nil, remote...))
		}
		return shown.untilStopped(ctx, t.ssh(ctx, nil, append(remote, "--follow")...))
	})
	cmd.Flags().BoolVar(&follow, "follow", false, "go on until Ctrl-C")
	cmd.Flags().IntVar(&lines, "lines", lines, "`NUMBER` of lines to show first")
	return cmd
}
