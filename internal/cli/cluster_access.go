package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

// tailnetFor is how long the server's address in the tailnet is tried before the public one.
const tailnetFor = 3 * time.Second

// A target is the cluster's server as SSH reaches it.
type target struct {
	*site
	address string // by which it is reached
	name    string // in the API server's certificate; "" without any
	known   string // file of its host key
	key     string // private key's file
}

// serverCommand is a command that works on the server. What ends with Ctrl-C ends well.
func (c *clusterOptions) serverCommand(use, short, long string, run func(context.Context, *target, []string) error) *cobra.Command {
	return clusterCommand(use, short, long, func(ctx context.Context, args []string) error {
		return c.onServer(ctx, func(t *target) error { return run(ctx, t, args) })
	})
}

// onServer finds the server, and does run with it.
func (c *clusterOptions) onServer(ctx context.Context, run func(*target) error) error {
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
	if err := t.find(ctx, c.process.Err); err != nil {
		return err
	}
	return run(t)
}

// find reads the server's addresses and host key from Azure. The key is the one that the
// server wrote with its managed identity, so nothing is trusted on first use. It says on
// stderr which of several addresses it takes.
func (t *target) find(ctx context.Context, stderr io.Writer) error {
	e, err := t.manager(nil).Entrance(ctx)
	if err != nil {
		return err
	}
	if e == nil {
		return fmt.Errorf("cannot reach cluster %s: it has no server; make it with ortet cluster up", t.cluster.Metadata.Name)
	}
	hostKey := e.HostKey
	if hostKey == "" {
		return fmt.Errorf("cannot reach cluster %s: its server has not published its SSH host key yet; "+
			"its boot is at %q, see ortet cluster status", t.cluster.Metadata.Name, e.Boot)
	}
	if len(e.Ways) == 0 {
		return fmt.Errorf("cannot reach cluster %s: its server has no address that is open; see ortet cluster status", t.cluster.Metadata.Name)
	}
	way := t.choose(ctx, e, stderr)
	t.address, t.name = way.Address, way.FQDN
	if tailnet := t.cluster.Spec.Access.Tailscale; tailnet != nil {
		t.name = tailnet.Hostname
	}
	if _, _, _, rest, err := ssh.ParseAuthorizedKey([]byte(hostKey)); err != nil || len(bytes.TrimSpace(rest)) > 0 {
		return fmt.Errorf("cannot reach cluster %s: tag %s of its server is not one SSH host key: %q", t.cluster.Metadata.Name, recipe.TagSSHHostKey, hostKey)
	}
	if err := os.WriteFile(t.known, []byte("server "+hostKey+"\n"), 0o600); err != nil {
		return fmt.Errorf("cannot write known_hosts: %w", err)
	}
	return nil
}

// choose returns the first address at which the server answers by its host key, or the last
// one, which ssh then tries.
func (t *target) choose(ctx context.Context, e *lifecycle.Entrance, stderr io.Writer) lifecycle.Way {
	last := e.Ways[len(e.Ways)-1]
	for _, way := range e.Ways {
		err := error(nil)
		if way != last {
			within, cancel := context.WithTimeout(ctx, tailnetFor)
			err = dial(within, net.JoinHostPort(way.Address, strconv.Itoa(t.cluster.Spec.Access.SSHPort)), e.HostKey)
			cancel()
		}
		if err == nil {
			if t.cluster.Spec.Access.Tailscale != nil {
				fmt.Fprintf(stderr, "Server by %s %s\n", way.Via, way.Address)
			}
			return way
		}
		fmt.Fprintf(stderr, "Server does not answer by %s %s: %v\n", way.Via, way.Address, err)
	}
	return last
}

// loginCommand has boot.py log the server in, with the environment that its units have.
const loginCommand = "sudo sh -c 'set -a; [ ! -e /etc/default/ortet-boot ] || . /etc/default/ortet-boot; " +
	"exec python3 /usr/local/lib/ortet/boot.py login'"

// logIn gives the key of a login to the tailnet to the server, which alone has it: it is in
// no argument and no file.
func (c *clusterOptions) logIn(ctx context.Context, key string) error {
	return c.onServer(ctx, func(t *target) error {
		var said bytes.Buffer
		login := t.ssh(ctx, nil, loginCommand)
		login.Stdin, login.Stderr = strings.NewReader(key+"\n"), &plainWriter{to: &said}
		if err := login.Run(); err != nil {
			return fmt.Errorf("log in to the tailnet by ssh: %w: %s", err, strings.ReplaceAll(strings.TrimSpace(said.String()), key, "(key)"))
		}
		return nil
	})
}

// readTailscaleKey reads the key of a login from a file, or for "-" from stdin.
func readTailscaleKey(name string, stdin io.Reader) (string, error) {
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return "", fmt.Errorf("cannot read the tailnet's key: %w; name its file with --tailscale-key", err)
		}
		defer func() { _ = file.Close() }() // only read
		stdin = file
	}
	text, err := io.ReadAll(io.LimitReader(stdin, 4<<10))
	if err != nil {
		return "", fmt.Errorf("cannot read the tailnet's key: %w", err)
	}
	if len(strings.Fields(string(text))) != 1 {
		return "", usagef("--tailscale-key %s: want one key, such as tskey-auth-…, and nothing else", name)
	}
	return strings.TrimSpace(string(text)), nil
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
