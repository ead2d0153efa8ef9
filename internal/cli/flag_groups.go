package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A flagGroup is flags of a command under a heading of its help, in this order.
type flagGroup struct {
	heading string
	flags   []string
}

// flagGroups are those of commands with many flags, by path. What a person needs first is
// under "Flags", and a flag in none of them comes last.
func flagGroups(path string) []flagGroup {
	group := func(heading, flags string) flagGroup { return flagGroup{heading, strings.Fields(flags)} }
	push := []flagGroup{
		group("Flags", "file key to resource-group canary max-unavailable skip-node timeout retry"),
		group("Recovery and key rotation", "accept-key after-generation replace-user-data reset-generation"),
	}
	switch path {
	case "capture":
		return []flagGroup{
			group("Flags", "image dry-run pool all fresh resource-group online publish-only abandon"),
			group("Node of --fresh", "patch prepare prepare-command prepare-timeout"),
			group("Drain and stop", "deallocate force grace-period"),
			group("Image version", "again history replicas shallow exclude-from-latest tune"),
			group("Bootstrap and secrets", "bootstrap accept-pool-credentials accept-secret remove-secrets scan-images"),
			group("Scale set's model", "extensions keep-extension grow allow-owned allow-rolling"),
			group("Proof", "canary canary-soak canary-test watch watch-nodes bad-nodes restore-learned"),
			group("Choice of donors, with --pool or --all", "max-image-age patch-annotation reboot-annotation min-ready min-candidates ignore-node ignore-annotation skip-rule max-parallel"),
			group("Ortet's pods and Lease", "workbench other-pools image-pull-secret lease-duration"),
		}
	case "config push", "config rollback":
		return push
	case "controller":
		return []flagGroup{
			group("Flags", "pool resource-group boot-deadline lift-taint lift-after"),
			group("Reads", "interval arm-reads first-pod"),
			group("Stored evidence and boots", "keep max-evidence keep-boots max-boots boots-per-version"),
			group("Server", "health-address metrics-address leader-elect"),
		}
	case "operator":
		return []flagGroup{
			group("Flags", "resource-group image max-runs"),
			group("Ortet's pods and Leases", "image-pull-secret other-pools lease lease-duration"),
			group("Notifications", "notify notify-secret-file"),
			group("Server", "health-address metrics-address"),
		}
	case "admission":
		return []flagGroup{
			group("Flags", "pool tls-san listen api-server k3s-server ca print-ca-hash"),
			group("Proof of a machine", "attestation-domain attestation-roots attestation-intermediates callback-port callback-timeout token-ttl"),
			group("Departures", "reap-interval keep-capacity"),
			group("Limits", "rate rate-per-address max-in-flight max-connections"),
			group("Server", "audit-log health-address metrics-address leader-elect"),
		}
	}
	return nil
}

// commandGroups are those of the commands below the root, in the order of their help.
func commandGroups() []flagGroup {
	return []flagGroup{
		{"Images", []string{"capture", "donors", "operator", "rollback", "rollout", "status", "versions", "watch"}},
		{"New nodes", []string{"boot", "controller", "explain", "nodes"}},
		{"Live nodes", []string{"config"}},
		{"Joining", []string{"admission"}},
		{"Clusters", []string{"cluster"}},
		{"Other", []string{"completion", "help", "version"}},
	}
}

func groupCommands(root *cobra.Command) {
	for _, g := range commandGroups() {
		root.AddGroup(&cobra.Group{ID: g.heading, Title: g.heading + ":"})
		for _, name := range g.flags {
			switch name {
			case "help":
				root.SetHelpCommandGroupID(g.heading)
			case "completion":
				root.SetCompletionCommandGroupID(g.heading)
			}
			for _, c := range root.Commands() {
				if c.Name() == name {
					c.GroupID = g.heading
				}
			}
		}
	}
}

// commandPath is the path of c below the root.
func commandPath(c *cobra.Command) string {
	if !c.HasParent() {
		return ""
	}
	return strings.TrimSpace(commandPath(c.Parent()) + " " + c.Name())
}

// writeUsage is cobra's usage as wide as everything else is, with flags in groups. The
// flags that every command has come last.
func writeUsage(c *cobra.Command) error {
	w := c.OutOrStderr()
	fmt.Fprintln(w, "Usage:")
	if c.Runnable() && !isCommandGroup(c) {
		fmt.Fprintf(w, "  %s\n", c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "  %s [command]\n", c.CommandPath())
	}
	if c.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", c.Example)
	}
	if c.HasAvailableSubCommands() {
		groups := c.Groups()
		if len(groups) == 0 {
			groups = []*cobra.Group{{Title: "Available Commands:"}}
		}
		for _, g := range groups {
			fmt.Fprintf(w, "\n%s\n", g.Title)
			for _, sub := range c.Commands() {
				if sub.GroupID == g.ID && (sub.IsAvailableCommand() || sub.Name() == "help") {
					fmt.Fprintf(w, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
				}
			}
		}
	}
	own, shared := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	c.InheritedFlags().VisitAll(shared.AddFlag)
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if (f.Name == "help" || f.Name == "output") && c.HasParent() { // every command has one, of other forms
			shared.AddFlag(f)
			return
		}
		own.AddFlag(f)
	})
	for _, g := range groupedFlags(c, own) {
		writeFlags(w, g.heading, g.flags)
	}
	writeFlags(w, "Global Flags", shared)
	if readsEnvironment(c) {
		fmt.Fprintln(w, "\nA variable can set each flag: ORTET_LOG_LEVEL sets --log-level.")
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\nUse \"%s [command] --help\" for more about a command.\n", c.CommandPath())
	}
	return nil
}

// A headedFlags is a flagGroup with its flags.
type headedFlags struct {
	heading string
	flags   *pflag.FlagSet
}

// groupedFlags are the flags of c in the order of its help.
func groupedFlags(c *cobra.Command, own *pflag.FlagSet) (out []headedFlags) {
	others := headedFlags{"Flags", pflag.NewFlagSet("", pflag.ContinueOnError)}
	own.VisitAll(others.flags.AddFlag)
	placed := map[string]bool{}
	for _, g := range flagGroups(commandPath(c)) {
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		set.SortFlags = false
		for _, name := range g.flags {
			if f := own.Lookup(name); f != nil {
				set.AddFlag(f)
				placed[name] = true
			}
		}
		out = append(out, headedFlags{g.heading, set})
	}
	if len(out) > 0 {
		others = headedFlags{otherFlags, pflag.NewFlagSet("", pflag.ContinueOnError)}
		own.VisitAll(func(f *pflag.Flag) {
			if !placed[f.Name] {
				others.flags.AddFlag(f)
			}
		})
	}
	return append(out, others)
}

// otherFlags heads the flags of a command with groups that are in none.
const otherFlags = "Other flags"

func writeFlags(w io.Writer, heading string, flags *pflag.FlagSet) {
	if flags.HasAvailableFlags() {
		fmt.Fprintf(w, "\n%s:\n%s", heading, strings.TrimRight(flags.FlagUsagesWrapped(resultWidth), " \n")+"\n")
	}
}
