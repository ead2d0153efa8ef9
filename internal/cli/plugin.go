package cli

import (
	"errors"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ortet/ortet/internal/workflow"
)

// Kubectl runs kubectl-ortet for "kubectl ortet", and asks kubectl_complete-ortet how its
// command line goes on.
const (
	pluginFile           = "kubectl-ortet"
	pluginCompletionFile = "kubectl_complete-ortet"
	pluginName           = "kubectl ortet"
)

// fileName is the name of a program's file, without folder and .exe.
func fileName(file string) string {
	name := strings.ToLower(file[strings.LastIndexAny(file, `/\`)+1:])
	return strings.TrimSuffix(name, ".exe")
}

func completesPlugin(file string) bool { return fileName(file) == pluginCompletionFile }

func (o *options) isPlugin() bool {
	return fileName(o.process.Name) == pluginFile || completesPlugin(o.process.Name)
}

// nameAsCalled has the help of all commands name the program as it was called.
func (o *options) nameAsCalled(root *cobra.Command) {
	if !o.isPlugin() {
		return
	}
	if root.Annotations == nil {
		root.Annotations = map[string]string{}
	}
	root.Annotations[cobra.CommandDisplayNameAnnotation] = pluginName
	var rename func(c *cobra.Command)
	rename = func(c *cobra.Command) {
		if commandPath(c) == "completion" {
			return // its scripts are those of ortet
		}
		c.Long, c.Example = o.commandsAsCalled(c.Long), o.commandsAsCalled(c.Example)
		c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) { f.Usage = o.commandsAsCalled(f.Usage) })
		for _, sub := range c.Commands() {
			rename(sub)
		}
	}
	for _, c := range root.Commands() {
		rename(c)
	}
}

// commandsAsCalled is a text in which commands are as they are typed.
func (o *options) commandsAsCalled(text string) string {
	if !o.isPlugin() {
		return text
	}
	var names []string
	for _, g := range commandGroups() {
		names = append(names, g.flags...)
	}
	command := regexp.MustCompile(`(^|[^-\w/.])ortet(\s(?:` + strings.Join(names, "|") + `)\b)`)
	return command.ReplaceAllString(text, "${1}"+pluginName+"${2}")
}

// asCalled is an error whose hints name the program as it was called.
func (o *options) asCalled(err error) error {
	if !o.isPlugin() {
		return err
	}
	var refused *workflow.Refused
	if !errors.As(err, &refused) {
		return renamedError{o.commandsAsCalled(err.Error()), err}
	}
	for i := range refused.Problems { // it is printed, and no more
		p := &refused.Problems[i]
		p.What, p.WayOut = o.commandsAsCalled(p.What), o.commandsAsCalled(p.WayOut)
	}
	return err
}

// A renamedError is an error with another text.
type renamedError struct {
	text string
	error
}

func (e renamedError) Error() string { return e.text }
func (e renamedError) Unwrap() error { return e.error }
