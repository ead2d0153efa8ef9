package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// refuseUnknown makes each command with subcommands below c refuse what is none of
// them. Cobra does so for the root only: below it prints the help and exits with 0.
func refuseUnknown(c *cobra.Command) {
	for _, sub := range c.Commands() {
		refuseUnknown(sub)
	}
	if !c.HasSubCommands() {
		return
	}
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknownCommand(c, args[0])
		}
		return nil
	}
	if !c.Runnable() {
		// Cobra checks arguments of commands that run only. The usage template leaves
		// out the line of the command alone.
		c.Annotations = map[string]string{"group": "true"}
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	}
}

// unknownCommand names the subcommands of c that are closest to name.
func unknownCommand(c *cobra.Command, name string) error {
	c.SuggestionsMinimumDistance = 2
	near := c.SuggestionsFor(name)
	for i := range near {
		near[i] = fmt.Sprintf("%q", near[i])
	}
	hint := ""
	if len(near) > 0 {
		hint = "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return usagef("unknown command %q for %q%s", name, c.CommandPath(), hint)
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
		Use:   "help [COMMAND]",
		Short: "Show the help of a command",
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
