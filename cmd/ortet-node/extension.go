package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/node/extension"
)

const extensionHelp = `Usage: ortet-node extension install|enable|update|disable|uninstall [FLAGS]

Commands of the Azure VM extension, which the Azure agent runs in the handler's
folder. enable returns at once; a process in the background writes the verdict
of wait into the extension's status.

Exit codes: 0 done; 64 wrong settings or usage; 1 failed.

Flags:
`

// extensionFlags is the command line and what the agent puts in the environment.
type extensionFlags struct {
	extension.Options
	name, sequence, updatingFrom string
	unrecorded                   bool
}

func runExtension(ctx context.Context, args []string, std stdio) int {
	// What the agent says of a call. Source: WALinuxAgent, ExtCommandEnvVariable.
	f := extensionFlags{
		name:         os.Getenv("ConfigExtensionName"),
		sequence:     os.Getenv("ConfigSequenceNumber"),
		updatingFrom: os.Getenv("AZURE_GUEST_AGENT_UPDATING_FROM_VERSION"),
	}
	fs := flagsOf("extension")
	fs.StringVar(&f.Dir, "dir", "", "handler's folder `DIR` (default the folder of this program)")
	fs.StringVar(&f.Root, "root", "", "`DIR` used as the node's root; for tests")
	fs.StringVar(&f.sequence, "sequence", f.sequence, "sequence `NUMBER` of the configuration (default from the agent's environment, else the newest)")
	fs.StringVar(&f.name, "name", f.name, "`NAME` of the extension instance, if there are several")
	fs.BoolVar(&f.unrecorded, "unrecorded", false, "for the background process of enable, on a full disk")
	verb := ""
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		verb, args = args[0], args[1:]
	}
	if code, ok := parse(fs, extensionHelp, args, std, func() error {
		switch verb {
		case "install", "enable", "update", "disable", "uninstall", "wait":
			return nil
		}
		return fmt.Errorf("command %q: want install, enable, update, disable or uninstall", verb)
	}); !ok {
		return code
	}
	err := f.run(ctx, verb)
	if err == nil {
		_, _ = fmt.Fprintf(std.out, "ortet-node extension %s: done\n", verb)
		return exitOK
	}
	_, _ = fmt.Fprintf(std.err, "ortet-node extension %s: %v\n", verb, err)
	if wrong := (*extension.UsageError)(nil); errors.As(err, &wrong) {
		return exitUsage
	}
	return exitFailed
}

// run carries out one command of the agent's; what it says goes to the handler's
// log.
func (f *extensionFlags) run(ctx context.Context, verb string) (err error) {
	if f.Program, err = os.Executable(); err != nil {
		return fmt.Errorf("finding our own program: %w", err)
	}
	if f.Dir == "" {
		if f.Dir, err = extension.FindFolder(f.Program); err != nil {
			return err
		}
	}
	if info, err := os.Stat("/run/systemd/system"); runtime.GOOS == "linux" && err == nil && info.IsDir() {
		// Missing is as good as not there.
		f.SystemdRun, _ = exec.LookPath("systemd-run")
	}
	f.Now, f.Wait, f.ExitCode = time.Now, bootstrap.Wait, waitExit
	h, err := extension.Open(f.Options)
	if err != nil {
		return err
	}
	if file, err := h.OpenLog(); err == nil {
		defer func() { _ = file.Close() }() // what it says is said elsewhere too
		h.UseLogger(slog.New(slog.NewTextHandler(file, nil)).With("command", verb, "pid", os.Getpid()))
	}
	switch verb {
	case "install":
		return h.Install()
	case "enable":
		return h.Enable(ctx, f.name, f.sequence)
	case "update":
		return h.Update(f.updatingFrom)
	case "disable":
		return h.Disable(ctx, f.name)
	case "uninstall":
		return h.Uninstall(ctx)
	}
	return h.Wait(ctx, f.name, f.sequence, f.unrecorded)
}
