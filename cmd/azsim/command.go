package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/buildinfo"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// A usageError is a mistake in the command line or in a file that it names.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// version is set when it is linked.
var version string

// run is the program but for the process around it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:           "azsim",
		Short:         "A simulated Azure: Resource Manager, log-in, scale sets, disks, galleries",
		Version:       buildinfo.Version(version),
		SilenceUsage:  true,
		SilenceErrors: true,
		// Its group of commands takes unknown ones for no mistake.
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetUsageTemplate(strings.NewReplacer(".LocalFlags.FlagUsages", ".LocalFlags.FlagUsagesWrapped 80").Replace(root.UsageTemplate()))
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(serveCommand(stdout, stderr))
	ran := false
	root.PersistentPreRun = func(*cobra.Command, []string) { ran = true }
	err := root.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &usage) || !ran:
		fmt.Fprintf(stderr, "azsim: %v\nRun 'azsim serve --help' for usage.\n", err)
		return exitUsage
	}
	fmt.Fprintf(stderr, "azsim: %v\n", err)
	return exitFailed
}

// newLogger logs to w, at the level that the flag names.
func newLogger(w io.Writer, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usageError{fmt.Errorf("--log-level %q: want debug, info, warn or error", level)}
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l})), nil
}
