package cli

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// environmentVariable is the name of the variable that sets a flag.
func environmentVariable(flag string) string {
	return "ORTET_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// readsEnvironment reports whether flags of c are read from the environment. The servers
// take none: a Service's variables in their pod could set a flag (Service ortet-callback
// gives ORTET_CALLBACK_PORT), and a pod's arguments are what a person reads.
func readsEnvironment(c *cobra.Command) bool {
	return !isCommandGroup(c) && !slices.Contains([]string{"controller", "admission", "operator"}, commandPath(c))
}

// consents are flags that delete, replace or overwrite what a command otherwise leaves, or
// that change whose documents nodes accept.
var consents = []string{"accept-key", "allow-rolling", "bad-nodes", "delete", "force", "prune", "replace-user-data", "reset-generation", "restore-learned", "state", "storage", "without-learned", "yes"}

// hasVariable reports whether a flag of c has a variable. Consent is for one command line:
// in an environment it would outlive the command that it was meant for. A command that runs
// until it is stopped refuses --timeout.
func hasVariable(c *cobra.Command, flag string) bool {
	if slices.Contains(consents, flag) || flag == "all" && commandPath(c) == "cluster down" {
		return false
	}
	if flag == "timeout" && timeoutClassOf(c) == runsOn {
		return false
	}
	return !slices.Contains([]string{"help", "version"}, flag)
}

// readEnvironment sets the flags that the command line leaves out and that have a
// variable. From then on they count as given.
func (o *options) readEnvironment(c *cobra.Command) (err error) {
	if !readsEnvironment(c) {
		return nil
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		name := environmentVariable(f.Name)
		value := o.process.Getenv(name)
		if err != nil || f.Changed || value == "" || !hasVariable(c, f.Name) {
			return
		}
		if wrong := c.Flags().Set(f.Name, value); wrong != nil {
			err = usagef("%s=%q: %s", name, value, wantedValue(wrong))
			return
		}
		o.fromEnvironment = append(o.fromEnvironment, f)
	})
	return err
}

// setByEnvironment has each command below c read the environment before its arguments
// are checked, which depends on flags.
func (o *options) setByEnvironment(c *cobra.Command) {
	for _, sub := range c.Commands() {
		o.setByEnvironment(sub)
	}
	check := c.Args
	c.Args = func(c *cobra.Command, args []string) error {
		if err := o.readEnvironment(c); err != nil || check == nil {
			return err
		}
		return check(c, args)
	}
}

// environmentNote names the variables of the flags that a message is about.
func (o *options) environmentNote(message string) string {
	var notes []string
	for _, f := range o.fromEnvironment {
		is := regexp.MustCompile(`(^|[^\w-])--` + f.Name + `($|[^\w-])`).MatchString(message)
		if is || f.Shorthand != "" && strings.HasPrefix(message, "-"+f.Shorthand+" ") {
			notes = append(notes, "--"+f.Name+" is set by "+environmentVariable(f.Name)+" in the environment.\n")
		}
	}
	return strings.Join(notes, "")
}

// wantedValue is what a flag wants instead of the value that err refuses.
func wantedValue(err error) string {
	var invalid *pflag.InvalidValueError
	if !errors.As(flagError(err), &invalid) {
		_, want, _ := strings.Cut(flagError(err).Error(), "\" flag: ")
		return want
	}
	return invalid.Unwrap().Error()
}
