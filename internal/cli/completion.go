package cli

import (
	"context"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// completionTime is how long completion waits for the cluster and Azure: longer, and a
// person takes the shell for hung.
const completionTime = 2 * time.Second

// A completionLine is the command line that is being typed.
type completionLine struct {
	*options   // of the line, and silent
	c          *cobra.Command
	args       []string // before the word that is typed
	toComplete string
}

// A completionSource finds values, and no values where it cannot. It may return late.
type completionSource func(ctx context.Context, l *completionLine) []string

// safeValue is what may come from a cluster into a shell's line.
var safeValue = regexp.MustCompile(`^[A-Za-z0-9/][A-Za-z0-9._@:/+-]*$`)

// completeValues has each command below root complete its arguments and the values of its
// flags. Files are completed only where a file is taken.
func (o *options) completeValues(root *cobra.Command) {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		path := commandPath(c)
		if a, has := completedArguments()[path]; has && c.ValidArgsFunction == nil {
			c.ValidArgsFunction = o.completeArguments(a)
		}
		c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			if values := flagCompletion(path, f); values != nil {
				_ = c.RegisterFlagCompletionFunc(f.Name, values(o)) // fails for flags that c lacks
			}
		})
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
}

// flagCompletion is how the value of a flag is completed; nil for not at all.
func flagCompletion(path string, f *pflag.Flag) func(*options) cobra.CompletionFunc {
	flags := completedFlags()
	sources, has := flags[path+" --"+f.Name]
	if !has {
		sources = flags["--"+f.Name]
	}
	what, usage := pflag.UnquoteUsage(f)
	switch {
	case sources != nil:
	case f.Name == "output":
		sources = []completionSource{fixedValues(namedForms(usage)...)}
	case what == "FILE":
		return func(*options) cobra.CompletionFunc {
			return cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
		}
	default:
		return nil
	}
	return func(o *options) cobra.CompletionFunc {
		return func(c *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			return o.valuesOf(c, args, toComplete, sources...), cobra.ShellCompDirectiveNoFileComp
		}
	}
}

// namedForms are the forms that the usage of -o lists after its colon.
func namedForms(usage string) []string {
	_, list, _ := strings.Cut(usage, ": ")
	return strings.FieldsFunc(strings.ReplaceAll(list, " or ", ", "), func(r rune) bool { return r == ',' || r == ' ' })
}

func (o *options) completeArguments(a argumentCompletion) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		switch {
		case a.limit > 0 && len(args) >= a.limit:
			return nil, cobra.ShellCompDirectiveNoFileComp
		case a.files != cobra.ShellCompDirectiveNoFileComp:
			return nil, a.files
		}
		values := o.valuesOf(c, args, toComplete, a.from...)
		return slices.DeleteFunc(values, func(v string) bool { return slices.Contains(args, v) }), cobra.ShellCompDirectiveNoFileComp
	}
}

// valuesOf returns what sources have found in time, each value once and in their order.
func (o *options) valuesOf(c *cobra.Command, args []string, toComplete string, sources ...completionSource) []string {
	if o.readEnvironment(c) != nil {
		return nil // the command itself says why
	}
	quiet := *o
	quiet.process.Err = io.Discard
	quiet.log = slog.New(slog.DiscardHandler)
	limit := completionTime
	if o.process.completion > 0 {
		limit = o.process.completion
	}
	ctx, cancel := context.WithTimeout(c.Context(), limit)
	defer cancel()
	line := &completionLine{&quiet, c, args, toComplete}
	var out []string
	for _, source := range sources {
		// A kubeconfig's program or the Azure CLI may hang whatever the context says.
		found := make(chan []string, 1)
		go func() { found <- source(ctx, line) }()
		select {
		case <-ctx.Done():
			return out
		case values := <-found:
			for _, v := range values {
				if strings.HasPrefix(v, toComplete) && safeValue.MatchString(v) && !slices.Contains(out, v) {
					out = append(out, v)
				}
			}
		}
	}
	return out
}

// explainCompletion says how completion is set up, for kubectl too.
func explainCompletion(root *cobra.Command) {
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Short = "Write the completion script for a shell"
			c.Long = completionHelp
		}
	}
}

const completionHelp = `completion writes a script for your shell. With it Tab completes commands, flags and
their values: nodes, pools, image versions, contexts. Values come from the cluster of
--kubeconfig and --context on the line, within 2 seconds; otherwise there are none.

  bash        needs the package bash-completion; in ~/.bashrc:
              source <(ortet completion bash)
  zsh         in ~/.zshrc, after compinit:
              source <(ortet completion zsh)
  fish        ortet completion fish > ~/.config/fish/completions/ortet.fish
  powershell  in $PROFILE:
              ortet completion powershell | Out-String | Invoke-Expression

As kubectl ortet it is completed by kubectl's own script, through a second name of
this program in PATH:

  ln -s "$(command -v kubectl-ortet)" ~/bin/kubectl_complete-ortet`
