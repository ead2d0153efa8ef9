package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// refuseUnknown makes each command with subcommands below c refuse what is none of
// them. Cobra does so for the root only: below it prints the help and exits with 0.
func refuseUnknown(c *cobra.Command) {
	for _, sub := range c.Commands() {
		refuseUnknown(sub)
	}
	if !c.HasSubCommands() || c.Annotations[takesArguments] != "" {
		return
	}
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknownCommand(c, args[0])
		}
		return nil
	}
	if !c.Runnable() {
		// Cobra checks arguments of commands that run only. The usage leaves out the line
		// of the command alone.
		if c.Annotations == nil {
			c.Annotations = map[string]string{}
		}
		c.Annotations[commandGroup] = "true"
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	}
}

// takesArguments annotates a command with subcommands that takes arguments besides.
const takesArguments = "arguments"

// commandGroup annotates a command that only has subcommands.
const commandGroup = "group"

func isCommandGroup(c *cobra.Command) bool { return c.Annotations[commandGroup] != "" }

// unknownCommand names the subcommands of c that are closest to name.
func unknownCommand(c *cobra.Command, name string) error {
	c.SuggestionsMinimumDistance = 2
	return usagef("unknown command %q for %q%s", name, c.CommandPath(), didYouMean("", c.SuggestionsFor(name)))
}

// unknownFlag adds the flags of c that are closest to the unknown flag of err.
func unknownFlag(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	name := unknown.GetSpecifiedName()
	// Cobra measures the distance of commands.
	flags := &cobra.Command{SuggestionsMinimumDistance: min(2, len(name)/3)}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			flags.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	near := flags.SuggestionsFor(name)
	return fmt.Errorf("%w%s", err, didYouMean("--", near[:min(3, len(near))]))
}

// didYouMean is what was meant instead, "" if that is not known.
func didYouMean(before string, near []string) string {
	quoted := make([]string, len(near))
	for i := range near {
		quoted[i] = fmt.Sprintf("%q", before+near[i])
	}
	if len(near) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(quoted, " or ") + "?"
}

// noArguments is cobra.NoArgs, which calls an argument an unknown command.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no arguments, not %q", c.Name(), args)
	}
	return nil
}

// newHelp is cobra's help command, but an unknown command is an error.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Show the help of a command",
		Example: `  ortet help boot show`,
		ValidArgsFunction: func(c *cobra.Command, args []string, toComplete string) (names []string, _ cobra.ShellCompDirective) {
			if found, _, err := c.Root().Find(args); err == nil {
				for _, sub := range found.Commands() {
					if sub.IsAvailableCommand() && strings.HasPrefix(sub.Name(), toComplete) {
						names = append(names, sub.Name())
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			found, rest, err := c.Root().Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return unknownCommand(found, rest[0])
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
	}
}
