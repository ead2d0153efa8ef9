// Package cli is the operator's command line: a file per command, which reads
// its flags into one request, calls the package that does it, and shows the answer. Results go
// to standard output, in the form that -o asks for; progress and messages go to
// standard error, so that a result can be piped.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/ortet/ortet/internal/azure/credential"
	"github.com/ortet/ortet/internal/workflow"
)

// ExitUsage is the exit code for a command line that cannot be read;
// package workflow has the others.
const ExitUsage = 2

// A Process is what the outside gives to a command.
type Process struct {
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string
	// Name is the file that was run. Kubectl's plugins are named kubectl-NAME.
	Name    string
	Version string
	// Image is the default of --image, by digest: that of the release that this program is
	// of. It is empty in programs that no release made.
	Image string
	// Credentials finds out who this is in Azure; nil is credential.Load.
	Credentials func(context.Context, credential.Config) (credential.Credentials, error)
	// Dial reaches machines; nil is the system's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Restore gives Ctrl-C and SIGTERM their usual effect, so that the next ends the process
	// at once, as it does anyway once ctx has ended. It may be nil.
	Restore func()
	// EndOnClosedPipe has the end of a reader of standard output or error end ctx, instead of
	// the process at once; commands that change something call it. It may be nil.
	EndOnClosedPipe func()

	// rollouts replaces how ortet config connects, in tests.
	rollouts openRollouts
	// pools replaces how ortet donors and ortet capture --pool connect, in tests.
	pools openPools
	// patience replaces defaultPatience, and pollEvery defaultPollEvery, in tests.
	patience, pollEvery time.Duration
	// expires is given what ends the command at --timeout, in tests, in place of a clock.
	expires func(end func())
	// completion replaces how long completion asks a cluster, in tests.
	completion time.Duration
}

// usageError is a mistake in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Run carries out one command line and gives the exit code.
func Run(ctx context.Context, args []string, process Process) int {
	out := &resultWriter{to: process.Out}
	process.Out = out
	if completesPlugin(process.Name) {
		args = append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		process.Err = io.Discard // it would be in the line that is typed
	}
	o := newOptions(process)
	root := o.root()
	root.SetArgs(args)
	command, err := root.ExecuteContextC(ctx)
	o.waits.Close()
	done := err == nil || out.err != nil && errors.Is(err, out.err) // only its result was not written
	if out.err != nil && !errors.Is(err, out.err) {
		err = errors.Join(err, fmt.Errorf("cannot write the result to standard output: %w", out.err))
	}
	if err == nil {
		return workflow.ExitDone
	}
	var usage usageError
	if errors.As(err, &usage) || isCobraUsage(err) {
		err = o.asCalled(err)
		fmt.Fprintf(process.Err, "ortet: %v\n%sSee '%s --help'.\n", err, o.environmentNote(err.Error()), command.CommandPath())
		return ExitUsage
	}
	var exit exitError
	if !errors.As(err, &exit) {
		err = timedOut(command, err)
	}
	if out := new(workflow.Outcome); !errors.As(err, &exit) && !errors.As(err, &out) && ctx.Err() != nil && !done {
		err = asInterrupted(errors.Join(err, ctx.Err()))
	}
	if errors.As(err, &exit) {
		return int(exit)
	}
	// These may fail before they have a result.
	name := command.Name()
	early := slices.Contains([]string{"capture", "rollback", "rollout"}, name)
	if f := command.Flag("output"); early && f.Value.String() != "table" && !out.begun {
		o.output = f.Value.String()
		err = o.printFailure(nil, nil, err)
	}
	writeError(process.Err, o.asCalled(err))
	fmt.Fprint(process.Err, o.environmentNote(err.Error()))
	return workflow.ExitCode(err)
}

// A resultWriter is where results go. It keeps the first failure to write one, which
// tables do not report.
type resultWriter struct {
	to    io.Writer
	begun bool // something was written
	err   error
}

func (o *resultWriter) Write(p []byte) (int, error) {
	n, err := o.to.Write(p)
	o.begun = true
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// isCobraUsage tells cobra's own complaints, which have no type.
func isCobraUsage(err error) bool {
	for _, start := range []string{"unknown command", "unknown flag", "unknown shorthand", "flag needs an argument", "required flag", "accepts ", "requires at least", "if any flags in the group"} {
		if strings.HasPrefix(err.Error(), start) {
			return true
		}
	}
	return false
}

// An exitError is the exit code of a command that has reported why.
type exitError int

func (e exitError) Error() string {
	return fmt.Sprintf("the command ended with exit code %d", int(e))
}

// options are what every command takes.
type options struct {
	process     Process
	azureConfig string
	kubeconfig  string
	context     string
	namespace   string
	output      string
	logLevel    string
	timeout     time.Duration
	log         *slog.Logger
	waits       *waitLog

	fromEnvironment []*pflag.Flag // set by readEnvironment
}

// Command returns the root of the command line, with all commands and flags: for what
// describes them, such as man pages. Run carries it out.
func Command(process Process) *cobra.Command { return newOptions(process).root() }

func (o *options) root() *cobra.Command {
	process := o.process
	root := &cobra.Command{
		Use:   "ortet",
		Short: "Capture a healthy node as the image of its pool's new nodes",
		Long: `ortet captures the OS disk of a healthy node as an image version, and points the
node's scale set at it, so that new nodes boot from it. The node itself returns to
service unchanged. ortet also shows why nodes did not come up, and where the time of
their boots went; and it changes the configuration of live nodes (ortet config).`,
		Version:       process.Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			if err := o.complete(); err != nil {
				return err
			}
			return o.limit(c)
		},
	}
	root.SetIn(process.In)
	root.SetOut(process.Out)
	root.SetErr(process.Err)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return usageError{unknownFlag(c, flagError(err))} })
	root.SetUsageFunc(writeUsage)
	f := root.PersistentFlags()
	f.StringVar(&o.azureConfig, "azure-config", "", "azure.json `FILE` (default: searched for)")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `FILE` (default: searched for)")
	f.StringVar(&o.context, "context", "", "`NAME` of a context (default: the current one)")
	f.StringVar(&o.namespace, "namespace", "ortet-system", "`NAME` of Ortet's namespace")
	f.StringVarP(&o.output, "output", "o", "table", "output `FORMAT`: table, json or yaml")
	f.StringVar(&o.logLevel, "log-level", "WARNING", "lowest `LEVEL` logged, DEBUG to CRITICAL")
	durationVar(f, &o.timeout, "timeout", 0, "time limit of the command; 0 is none")
	root.AddCommand(newCapture(o), newDonors(o), newStatus(o), newVersions(o), newRollback(o), newRollout(o), newWatch(o),
		newNodes(o), newExplain(o), newBoot(o), newController(o), newOperator(o), newAdmission(o), newCluster(o), newConfig(o), newVersion(o))
	root.SetHelpCommand(newHelp())
	root.InitDefaultCompletionCmd()
	explainCompletion(root)
	addExamples(root)
	groupCommands(root)
	refuseUnknown(root)
	o.setByEnvironment(root)
	o.completeValues(root)
	o.nameAsCalled(root)
	fitHelp(root)
	return root
}

// fitHelp breaks what commands say of themselves as wide as everything else is;
// lines that are set in are left as they are.
func fitHelp(c *cobra.Command) {
	var b, text strings.Builder
	flush := func() {
		if text.Len() > 0 {
			paragraph(&b, resultWidth, "", "", text.String())
		}
		text.Reset()
	}
	for l := range strings.Lines(c.Long) {
		if strings.TrimSpace(l) != "" && !strings.HasPrefix(l, " ") {
			text.WriteString(l)
			continue
		}
		flush()
		b.WriteString(l)
	}
	flush()
	c.Long = strings.TrimRight(b.String(), "\n")
	for _, sub := range c.Commands() {
		fitHelp(sub)
	}
}

// flagError puts what is wanted in place of the words of Go's parsers.
func flagError(err error) error {
	var (
		invalid *pflag.InvalidValueError
		number  *strconv.NumError
		want    = "true or false"
	)
	if !errors.As(err, &invalid) {
		return err
	}
	switch {
	case !errors.As(err, &number) || errors.Is(err, strconv.ErrRange):
		return err
	case invalid.GetFlag().Value.Type() != "bool":
		want = "a whole number"
	}
	return fmt.Errorf("invalid argument %q for \"--%s\" flag: want %s", invalid.GetValue(), invalid.GetFlag().Name, want)
}

func (o *options) complete() error {
	switch o.output {
	case "table", "json", "yaml":
	default:
		return usagef("-o %s: want table, json or yaml", o.output)
	}
	if wrong := validation.IsDNS1123Label(o.namespace); len(wrong) > 0 {
		return usagef("--namespace %q: %s", o.namespace, wrong[0])
	}
	level, warning, err := parseLevel(o.logLevel)
	if err != nil {
		return usageError{err}
	}
	o.log = slog.New(slog.NewTextHandler(o.process.Err, &slog.HandlerOptions{Level: level}))
	if warning != "" {
		o.log.Warn(warning)
	}
	return nil
}

// levelCritical is above all that Ortet logs but what ends it.
const levelCritical = slog.LevelError + 4

// parseLevel reads kamino's level names. Its documentation shows VERBOSE in an
// example, though it never was one.
func parseLevel(s string) (level slog.Level, warning string, err error) {
	switch strings.ToUpper(s) {
	case "DEBUG":
		return slog.LevelDebug, "", nil
	case "VERBOSE":
		return slog.LevelDebug, "log level VERBOSE is not one of the levels; taken as DEBUG", nil
	case "INFO":
		return slog.LevelInfo, "", nil
	case "WARNING", "WARN":
		return slog.LevelWarn, "", nil
	case "ERROR":
		return slog.LevelError, "", nil
	case "CRITICAL":
		return levelCritical, "", nil
	}
	return 0, "", fmt.Errorf("--log-level %s: want DEBUG, INFO, WARNING, ERROR or CRITICAL", s)
}

// oneNode is oneArgument of a command that takes a node, which may have kubectl's prefix, node/NAME.
func oneNode(what string) cobra.PositionalArgs {
	one := oneArgument(what)
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			kind, name, _ := strings.Cut(args[0], "/")
			if slices.Contains([]string{"node", "nodes", "no"}, kind) {
				args[0] = name // RunE gets the same slice
			}
		}
		return one(cmd, args)
	}
}

// oneArgument is cobra.ExactArgs(1) in words that help.
func oneArgument(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return usagef("name %s", what)
		case len(args) > 1:
			return usagef("%s takes one argument, not %q", cmd.Name(), args)
		case strings.TrimSpace(args[0]) == "":
			return usagef("%s is empty", what)
		}
		return nil
	}
}
