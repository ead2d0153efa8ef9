package cli

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// runWith carries out a command line in an environment, and without a cluster.
func runWith(t *testing.T, env map[string]string, args ...string) (code int, out, said string) {
	t.Helper()
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	var stdout, stderr strings.Builder
	code = Run(t.Context(), args, Process{In: strings.NewReader(""), Out: &stdout, Err: &stderr, Getenv: func(name string) string { return env[name] }})
	return code, stdout.String(), stderr.String()
}

func TestEnvironmentSetsFlags(t *testing.T) {
	for _, c := range []struct {
		env, args string
		code      int
		says      string // "!" before what is not to be said
	}{
		// the command line, then the environment, then the default
		{"ORTET_OUTPUT=json", "version", 0, `"version"`},
		{"ORTET_OUTPUT=json", "version -o table", 0, "Version:"},
		{"ORTET_OUTPUT=", "version", 0, "Version:"},
		{"ORTET_OUTPUT=json", "--help", 0, "Images:"},
		{"ORTET_KUBECONFIG=/nonexistent", "status", refused, "--kubeconfig is set by ORTET_KUBECONFIG in the environment."},
		{"ORTET_KUBECONFIG=/nonexistent", "status --kubeconfig /elsewhere", refused, "!ORTET_KUBECONFIG"},
		// a bad value names the variable
		{"ORTET_GRACE_PERIOD=300", "capture n", ExitUsage, `ORTET_GRACE_PERIOD="300": want a duration such as `},
		{"ORTET_DRY_RUN=perhaps", "capture n", ExitUsage, `ORTET_DRY_RUN="perhaps": want true or false`},
		{"ORTET_GROW=abc", "capture n", ExitUsage, `ORTET_GROW="abc": want a whole number`},
		{"ORTET_LEASE_DURATION=4s", "capture n", ExitUsage, `ORTET_LEASE_DURATION="4s": want a duration from 5s to 1h`},
		{"ORTET_MIN_READY=5x", "capture --all", ExitUsage, `ORTET_MIN_READY="5x": want `},
		{"ORTET_HISTORY=1", "capture n", ExitUsage, "--history is set by ORTET_HISTORY"},
		{"ORTET_HISTORY=1", "capture n --history 1", ExitUsage, "!ORTET_HISTORY"},
		{"ORTET_OUTPUT=xml", "version", ExitUsage, "--output is set by ORTET_OUTPUT"},
		{"ORTET_OUTPUT=html", "nodes", ExitUsage, "--output is set by ORTET_OUTPUT"},
		{"ORTET_NAMESPACE=Bad_NS", "status", ExitUsage, "--namespace is set by ORTET_NAMESPACE"},
		{"ORTET_LOG_LEVEL=LOUD", "status", ExitUsage, "--log-level is set by ORTET_LOG_LEVEL"},
		// they count as given
		{"ORTET_POOL=p", "capture n", ExitUsage, "--pool is set by ORTET_POOL"},
		{"ORTET_ALL=true", "capture n", ExitUsage, "--all is set by ORTET_ALL"},
		{"ORTET_ALL=false", "capture n", failed, "Kubernetes API server"},
		{"ORTET_MIN_READY=5m", "capture n", ExitUsage, "--min-ready is set by ORTET_MIN_READY"},
		{"ORTET_PUBLISH_ONLY=1", "capture n --grow 1", ExitUsage, "--publish-only is set by ORTET_PUBLISH_ONLY"},
		{"ORTET_POOL=p,q", "capture", ExitUsage, `"p,q" is neither the name of a scale set`}, // one value
		{"ORTET_POOL=p", "capture", failed, "Kubernetes API server"},
		// not for other commands, nor for servers, nor for a mistake in the help
		{"ORTET_HISTORY=x", "status", failed, "!ORTET_HISTORY"},
		{"ORTET_CALLBACK_PORT=tcp://10.0.0.1:443", "admission --tls-san a --pool p", ExitUsage, "!ORTET_CALLBACK_PORT"},
		{"ORTET_POOL=p", "admission --tls-san a", ExitUsage, `pool`},
		{"ORTET_LIFT_AFTER=1s", "controller", failed, "!ORTET_LIFT_AFTER"},
		{"ORTET_TIMEOUT=x", "cluster ssh", refused, "!ORTET_TIMEOUT"},
		{"ORTET_TIMEOUT=x", "status", ExitUsage, `ORTET_TIMEOUT="x": want a duration`},
		{"ORTET_HISTORY=x", "capture --help", 0, "ORTET_LOG_LEVEL sets --log-level"},
		{"ORTET_HELP=true", "version", 0, "Version:"},
		{"ORTET_VERSION=true", "status", failed, "Kubernetes API server"},
	} {
		name, value, _ := strings.Cut(c.env, "=")
		code, out, said := runWith(t, map[string]string{name: value}, strings.Fields(c.args)...)
		text, not := strings.CutPrefix(c.says, "!")
		if code != c.code || strings.Contains(out+said, text) == not {
			t.Errorf("%s ortet %s: code %d, want %d and %q\n%s%s", c.env, c.args, code, c.code, c.says, out, said)
		}
	}
}

// visitFlags visits the flags of all commands.
func visitFlags(c *cobra.Command, visit func(c *cobra.Command, f *pflag.Flag)) {
	c.LocalFlags().VisitAll(func(f *pflag.Flag) { visit(c, f) })
	for _, sub := range c.Commands() {
		visitFlags(sub, visit)
	}
}

// Kubernetes gives the containers of a pod variables of each Service: those of a Service
// whose name begins with ortet have our prefix.
func TestServiceLinksSetNoFlag(t *testing.T) {
	link := regexp.MustCompile(`(_|^)(SERVICE_HOST|SERVICE_PORT|PORT)(_|$)`)
	n := 0
	visitFlags(Command(Process{}), func(c *cobra.Command, f *pflag.Flag) {
		n++
		if readsEnvironment(c) && hasVariable(c, f.Name) && link.MatchString(environmentVariable(f.Name)) {
			t.Errorf("%s --%s: a Service can set %s", c.CommandPath(), f.Name, environmentVariable(f.Name))
		}
	})
	if n < 100 {
		t.Errorf("only %d flags were seen", n)
	}
}

// Consent that an environment has given once would be given for all that comes later.
func TestConsentIsNotReadFromTheEnvironment(t *testing.T) {
	root := Command(Process{})
	for _, line := range []string{"cluster down --yes", "cluster restore --yes", "cluster chaos --yes", "cluster up --yes", "cluster up --prune", "cluster down --all", "cluster down --state", "cluster down --storage", "cluster backup --delete", "config push --accept-key", "config rollback --accept-key"} {
		path, flag, _ := strings.Cut(line, " --")
		c, _, err := root.Find(strings.Fields(path))
		if err != nil || c.Flags().Lookup(flag) == nil {
			t.Errorf("there is no %s: %v", line, err)
			continue
		}
		o := &options{process: Process{Getenv: func(name string) string {
			return map[string]string{environmentVariable(flag): map[bool]string{true: "true", false: "demo"}[c.Flag(flag).Value.Type() == "bool"]}[name]
		}}}
		if err := o.readEnvironment(c); err != nil || c.Flag(flag).Changed {
			t.Errorf("%s is set by the environment (%v)", line, err)
		}
	}
}

// A variable that counts is refused where its value is wrong; one that is consent is not read.
func TestHoleConsentByEnvironment(t *testing.T) {
	for line, flags := range map[string]string{
		"watch p": "bad-nodes allow-rolling", "capture n --watch 5m": "bad-nodes allow-rolling force", "rollback p": "allow-rolling",
		"config push p -f none": "reset-generation replace-user-data", "config rollback p": "reset-generation replace-user-data",
		"cluster reimage p": "force", "cluster resize p s": "force", "cluster scale p 1": "force", "cluster stop p": "force", "cluster start p": "force", "cluster replace n": "force", "cluster chaos p": "force",
	} {
		for _, flag := range strings.Fields(flags) {
			name := environmentVariable(flag)
			if code, _, said := runWith(t, map[string]string{name: "perhaps"}, strings.Fields(line)...); code == ExitUsage || strings.Contains(said, name) {
				t.Errorf("ortet %s reads %s: code %d, %s", line, name, code, said)
			}
			if code, _, said := runWith(t, nil, append(strings.Fields(line), "--"+flag+"=perhaps")...); code != ExitUsage || !strings.Contains(said, flag) {
				t.Errorf("ortet %s --%s=perhaps: code %d, %s", line, flag, code, said)
			}
		}
	}
	deletes := regexp.MustCompile(`(?i)\b(delete|overwrite|replaces)\b`)
	noConsent := []string{"extensions", "remove-secrets"} // of the copied disk, and of a model's list with its default
	visitFlags(Command(Process{}), func(c *cobra.Command, f *pflag.Flag) {
		if readsEnvironment(c) && hasVariable(c, f.Name) && deletes.MatchString(f.Usage) && !slices.Contains(noConsent, f.Name) {
			t.Errorf("%s --%s has a variable: %s", c.CommandPath(), f.Name, f.Usage)
		}
	})
}

// Required flags count as given where a variable sets them, and repeatable ones take it as
// one value.
func TestEnvironmentSatisfiesRequiredFlags(t *testing.T) {
	var names []string
	var wait time.Duration
	c := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error { return nil }}
	c.Flags().StringArrayVar(&names, "name", nil, "")
	c.Flags().DurationVar(&wait, "wait", 0, "")
	if err := c.MarkFlagRequired("name"); err != nil {
		t.Fatal(err)
	}
	c.MarkFlagsRequiredTogether("name", "wait")
	env := map[string]string{"ORTET_NAME": "a,b", "ORTET_WAIT": "5s"}
	o := &options{process: Process{Getenv: func(name string) string { return env[name] }}}
	o.setByEnvironment(c)
	c.SetArgs([]string{})
	if err := c.Execute(); err != nil || len(names) != 1 || names[0] != "a,b" || wait != 5*time.Second {
		t.Errorf("%v: %q, %s", err, names, wait)
	}
}
