package k3s

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/component-base/version"
)

// Run is the k3s command but for kubectl; args begin with its name.
func Run(args []string) int {
	err := errors.New("k3s: want server, agent, kubectl or --version")
	switch command := slices.Concat(args, []string{""})[1]; command {
	case "server", "agent":
		err = run(command, args[2:])
	case "--version":
		_, err = fmt.Printf("k3s version %s+k3s1 (lab)\n", version.Get().GitVersion)
	}
	if err != nil {
		logrus.Fatal(err)
	}
	return 0
}

func run(command string, args []string) error {
	c, err := LoadConfig(command, args)
	if err != nil {
		return err
	}
	asked, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ctx, end := context.WithCancelCause(asked)
	// The kernel ends a child with the thread that started it.
	runtime.LockOSThread()
	logrus.Infof("Starting k3s %s+k3s1 (lab)", version.Get().GitVersion)
	p := &processes{end: end}
	if command == "server" {
		err = runServer(ctx, c, p)
	} else {
		err = runAgent(ctx, c, p, func(string) {})
	}
	if err == nil {
		<-ctx.Done()
		err = context.Cause(ctx)
	}
	end(err)
	p.children.Wait()
	if asked.Err() != nil {
		return nil // whatever failed, failed of that
	}
	return err
}

// processes are this one's children, and what runs in it: the first that ends ends all.
type processes struct {
	end      context.CancelCauseFunc
	children sync.WaitGroup
}

// component starts a component of this binary by its file of flags and an operator's.
func (p *processes) component(ctx context.Context, name string, data any, words []string) error {
	flags, err := componentFlags(name, data, words)
	if err != nil {
		return err
	}
	return p.start(ctx, "/proc/self/exe", append([]string{name}, flags...)...)
}

// start runs a program as a child; args begin with its name.
func (p *processes) start(ctx context.Context, path string, args ...string) error {
	cmd := exec.CommandContext(ctx, path)
	cmd.Args, cmd.Stdout, cmd.Stderr = args, os.Stdout, os.Stderr
	// A component would report itself ready in the place of k3s.
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	logrus.Infof("Running %s", strings.Join(args, " "))
	if err := cmd.Start(); err != nil {
		return err
	}
	p.children.Go(func() {
		p.end(fmt.Errorf("%s exited: %w", args[0], errors.Join(cmd.Wait(), errors.New(cmd.ProcessState.String()))))
	})
	return nil
}

// await tries until it works or ctx ends.
func await(ctx context.Context, what string, pause time.Duration, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		logrus.Infof("Waiting %s: %v", what, err)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
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
