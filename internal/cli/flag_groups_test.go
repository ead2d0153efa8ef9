package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Commands with many flags have them in groups, each flag in one.
func TestFlagsAreInGroups(t *testing.T) {
	root := Command(Process{})
	grouped := 0
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		var own, listed []string
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" && f.Name != "output" {
				own = append(own, f.Name)
			}
		})
		for _, g := range flagGroups(commandPath(c)) {
			listed = append(listed, g.flags...)
		}
		slices.Sort(listed)
		switch {
		case len(listed) > 0:
			grouped++
			for i, name := range listed {
				if i > 0 && listed[i-1] == name {
					t.Errorf("%s --%s is in two groups", c.CommandPath(), name)
				}
			}
			for _, name := range own {
				if !slices.Contains(listed, name) {
					t.Errorf("%s --%s is in no group of flag_groups.go", c.CommandPath(), name)
				}
			}
			if _, out, _ := run(t, append(strings.Fields(commandPath(c)), "--help")...); strings.Contains(out, otherFlags) || strings.Count(out, "\n      --image ") > 1 {
				t.Errorf("%s --help:\n%s", c.CommandPath(), out)
			}
		case len(own) > 12:
			t.Errorf("%s has %d flags in no groups", c.CommandPath(), len(own))
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
	if grouped < 5 {
		t.Errorf("%d commands have groups", grouped)
	}
	_, help, _ := run(t, "capture", "--help")
	at := 0
	for _, want := range []string{"\nFlags:\n      --image", "\n      --dry-run", "\nDrain and stop:\n", "\n      --grace-period", "\nScale set's model:\n", "\nProof:\n", "\nGlobal Flags:\n"} {
		i := strings.Index(help[at:], want)
		if i < 0 {
			t.Fatalf("%q is not in its place:\n%s", want, help)
		}
		at += i
	}
}

func TestCommandsAreInGroups(t *testing.T) {
	code, out, _ := run(t, "--help")
	for _, c := range Command(Process{}).Commands() {
		if code != 0 || c.GroupID == "" || strings.Count(out, "\n  "+c.Name()+" ") != 1 {
			t.Errorf("ortet --help has %s not once in a group:\n%s", c.Name(), out)
		}
	}
}

// Each command that runs has an example, which is a command line that it takes.
func TestExamples(t *testing.T) {
	n := 0
	for _, line := range append(leaves(Command(Process{}), ""), "admission", "help") {
		root := Command(Process{Getenv: func(string) string { return "" }})
		root.InitDefaultHelpCmd()
		c, _, err := root.Find(strings.Fields(line))
		if err != nil || !c.HasExample() {
			t.Errorf("ortet %s has no example (%v)", line, err)
			continue
		}
		for _, example := range strings.Split(strings.ReplaceAll(c.Example, "\\\n", ""), "\n") {
			n++
			example, _, _ = strings.Cut(example, " | ")
			example = strings.Trim(strings.ReplaceAll(example, "source <(", ""), ` )`)
			args := strings.Fields(strings.ReplaceAll(example, `"`, ""))
			root := Command(Process{Getenv: func(string) string { return "" }})
			root.InitDefaultHelpCmd()
			found, rest, err := root.Find(args[1:])
			if args[0] == "ortet" && err == nil {
				found.InitDefaultHelpFlag()
				if err = found.ParseFlags(rest); err == nil {
					err = found.ValidateArgs(found.Flags().Args())
				}
			}
			if args[0] != "ortet" || err != nil || commandPath(found) != line {
				t.Errorf("example of ortet %s: %s: %v", line, example, err)
			}
		}
	}
	if n < 60 {
		t.Errorf("%d examples", n)
	}
}

func TestKubectlPlugin(t *testing.T) {
	plugin := func(name string, args ...string) (int, string, string) {
		var out, said strings.Builder
		code := Run(t.Context(), args, Process{In: strings.NewReader(""), Out: &out, Err: &said, Getenv: func(string) string { return "" }, Name: name})
		return code, out.String(), said.String()
	}
	for _, name := range []string{"/usr/bin/kubectl-ortet", "kubectl-ortet", `C:\krew\Kubectl-Ortet.EXE`} {
		_, out, _ := plugin(name, "capture", "--help")
		for _, want := range []string{"\n  kubectl ortet capture NODE", "\n  kubectl ortet capture k8s", "(kubectl ortet donors shows them)"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s does not say %q:\n%s", name, want, out)
			}
		}
		if code, _, said := plugin(name, "capture", "a", "b"); code != ExitUsage || !strings.Contains(said, "See 'kubectl ortet capture --help'.") {
			t.Errorf("%s: code %d: %s", name, code, said)
		}
	}
	if _, _, said := plugin("kubectl-ortet", "cluster", "up", "-f", "/nonexistent"); !strings.Contains(said, "kubectl ortet cluster init") {
		t.Errorf("a hint names another program: %s", said)
	}
	for _, name := range []string{"", "ortet", "/usr/bin/ortet-1.0", "kubectl-other"} {
		if _, out, _ := plugin(name, "capture", "--help"); strings.Contains(out, "kubectl ortet") {
			t.Errorf("%q is taken for a plugin:\n%s", name, out)
		}
	}
	if code, out, said := plugin("/bin/kubectl_complete-ortet", "boot", "sh"); code != 0 || !strings.HasPrefix(out, "show\t") || said != "" {
		t.Errorf("completion of kubectl: code %d: %q %q", code, out, said)
	}
	var fits func(c *cobra.Command)
	fits = func(c *cobra.Command) {
		_, out, _ := plugin("kubectl-ortet", append(strings.Fields(commandPath(c)), "--help")...)
		for l := range strings.Lines(out) {
			if n := len([]rune(strings.TrimSuffix(l, "\n"))); n > resultWidth {
				t.Errorf("kubectl ortet %s --help: %d columns: %s", commandPath(c), n, l)
			}
		}
		for _, sub := range c.Commands() {
			fits(sub)
		}
	}
	fits(Command(Process{}))
}
