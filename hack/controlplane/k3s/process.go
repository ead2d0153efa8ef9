package k3s

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/sirupsen/logrus"
	"k8s.io/component-base/version"
)

// containerdSocket is where k3s's containerd listens.
const containerdSocket = "/run/k3s/containerd/containerd.sock"

// Run is the k3s command; args begin with its name.
func Run(args []string) int {
	command := ""
	if len(args) > 1 {
		command, args = args[1], args[2:]
	}
	var err error
	switch command {
	case "server", "agent":
		err = run(command, args)
	case "kubectl":
		var self string
		if self, err = os.Executable(); err != nil {
			break
		}
		err = become(self, append([]string{"kubectl"}, args...), "KUBECONFIG=/etc/rancher/k3s/k3s.yaml")
	case "ctr":
		err = become("/usr/bin/ctr", append([]string{"ctr"}, args...), "CONTAINERD_ADDRESS="+containerdSocket, "CONTAINERD_NAMESPACE=k8s.io")
	case "--version", "-v":
		fmt.Printf("k3s version %s+k3s1 (lab)\ngo version %s\n", version.Get().GitVersion, runtime.Version())
	default:
		fmt.Fprintln(os.Stderr, "k3s: want server, agent, kubectl, ctr or --version")
		return 64
	}
	if err != nil {
		logrus.Fatal(err)
	}
	return 0
}

// become replaces the process. Defaults are for variables that are not set.
func become(path string, args []string, defaults ...string) error {
	environ := os.Environ()
	for _, d := range defaults {
		name, _, _ := strings.Cut(d, "=")
		if _, ok := os.LookupEnv(name); !ok {
			environ = append(environ, d)
		}
	}
	return syscall.Exec(path, args, environ)
}

func run(command string, args []string) error {
	c, err := LoadConfig(command, args, os.Getenv)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("k3s %s must run as root", command)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// The kernel ends a child with the thread that started it.
	runtime.LockOSThread()
	logrus.Infof("Starting k3s %s+k3s1 (lab)", version.Get().GitVersion)
	p := &processes{ended: make(chan error, 16)}
	defer p.stop()
	if command == "server" {
		err = runServer(ctx, c, p)
	} else {
		err = runAgent(ctx, c, p)
	}
	if err == nil {
		select {
		case err = <-p.ended:
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		return nil // asked to end: whatever failed, failed of that
	}
	return err
}

// processes are this one's children, and what runs in it: the first that ends ends all.
type processes struct {
	ended    chan error
	children []*child
}

type child struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// start runs a program; a name without a slash is a component of this binary. Its
// output goes to the log file, or to this one's where that is "".
func (p *processes) start(program, log string, args ...string) error {
	cmd := exec.Command(program, args...)
	if !strings.Contains(program, "/") {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		cmd.Path, cmd.Err = self, nil
	}
	// A component would report itself ready in the place of k3s.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "NOTIFY_SOCKET=") })
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if log != "" {
		if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
			return err
		}
		f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
		if err != nil {
			return err
		}
		defer f.Close()
		cmd.Stdout, cmd.Stderr = f, f
	}
	logrus.Infof("Running %s %s", filepath.Base(program), strings.Join(args, " "))
	if err := cmd.Start(); err != nil {
		return err
	}
	c := &child{cmd: cmd, done: make(chan struct{})}
	p.children = append(p.children, c)
	go func() {
		err := cmd.Wait()
		close(c.done)
		p.ended <- fmt.Errorf("%s exited: %w", filepath.Base(program), errors.Join(err, errors.New(cmd.ProcessState.String())))
	}()
	return nil
}

// startComponent starts a component of this binary by its file of flags.
func (p *processes) startComponent(name string, data any, words []string) error {
	flags, err := componentFlags(name, data, words)
	if err != nil {
		return err
	}
	return p.start(name, "", flags...)
}

// stop ends the children, the last first.
func (p *processes) stop() {
	for _, c := range slices.Backward(p.children) {
		_ = c.cmd.Process.Signal(syscall.SIGTERM) // fails where it has ended
		select {
		case <-c.done:
		case <-time.After(5 * time.Second):
			_ = c.cmd.Process.Kill()
		}
	}
}

// await tries until it works, a child ends, or ctx does.
func (p *processes) await(ctx context.Context, what string, pause time.Duration, try func(context.Context) error) error {
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		logrus.Infof("Waiting %s: %v", what, err)
		select {
		case err := <-p.ended:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// command runs a program to its end.
func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// notifyReady reports to systemd that the unit has started.
func notifyReady() {
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		logrus.Warnf("Unable to notify systemd: %v", err)
	}
}
