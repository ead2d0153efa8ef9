package cli

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/workflow"
)

// run carries out a command line without an environment.
func run(t *testing.T, args ...string) (code int, out, err string) {
	t.Helper()
	t.Setenv("KUBECONFIG", "") // client-go reads these by itself
	t.Setenv("HOME", t.TempDir())
	var stdout, stderr strings.Builder
	code = Run(t.Context(), args, Process{
		In: strings.NewReader(""), Out: &stdout, Err: &stderr, Getenv: func(string) string { return "" }, Version: "v0-test",
	})
	return code, stdout.String(), stderr.String()
}

// A node is named as kubectl names it.
func TestAbandonTakesNodes(t *testing.T) {
	f, c := &captureFlags{abandon: true}, &cobra.Command{Use: "capture"}
	for given, want := range map[string]string{"node/n": "n", "n": "n", string(pool1): string(pool1)} {
		args := []string{given}
		if err := f.checkSelection(c, args); err != nil || args[0] != want {
			t.Errorf("%s: %v, %v", given, args, err)
		}
	}
}

// Programs read the result of an abandonment as that of a capture.
func TestAbandonTakesOutput(t *testing.T) {
	for _, args := range [][]string{{"-o", "json"}, {"-o", "json", "--dry-run"}} {
		code, out, err := run(t, append([]string{"capture", "--abandon", "n", "--kubeconfig", "nosuch"}, args...)...)
		if code != workflow.ExitRefused || !strings.Contains(out, `"exit": 3`) {
			t.Errorf("%v: exit code %d, %s%s", args, code, out, err)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"capture", "name the node to capture"},
		{"cluster backup --delete=", "name of the backup is empty"},
		{"cluster backup a --delete=", "give one of NAME, --list and --delete"},
		{"status --resource-group /subscriptions/s/resourceGroups/g", "no POOL is given: name one"},
		{"versions --resource-group /subscriptions/s/resourceGroups/g", "no POOL is given: name one"},
		{"capture a b", `takes one argument, not ["a" "b"]`},
		{"capture n --history 1", "--history 1: at least 2 versions are kept"},
		{"capture n --history x", "invalid argument"},
		{"capture n --image REGISTRY/ortet:TAG", `--image "REGISTRY/ortet:TAG": want a container image, such as reg.example/org/ortet:1`},
		{"capture n --publish-only --grow 1", "it does not go with --grow: its new nodes would come from the model's image"},
		{"capture n --publish-only --bootstrap baked", "it does not go with --bootstrap baked"},
		{"capture n --publish-only --keep-extension x", "it does not go with --extensions and --keep-extension"},
		{"capture --all --publish-only --history 5", "it does not go with --history: no version is deleted"},
		{"capture n --publish-only --watch 1h", "it does not go with --watch"},
		{"capture --abandon", "a node of the pool, or the scale set's name or ARM id"},
		{"capture --abandon --pool p", "a node of the pool, or the scale set's name or ARM id"},
		{"capture --abandon n --again", "--again: not with --abandon, which begins no capture"},
		{"capture --abandon n --grow 1", "--grow: not with --abandon"},
		{"capture --abandon n -o name", "-o name: not with --abandon"},
		{"capture n --fresh", "--fresh: only with --pool or --all"},
		{"capture --fresh", "--fresh: only with --pool or --all"},
		{"capture n --pool p --fresh", "so no NODE is given"},
		{"capture --pool p --fresh --online", "--fresh: not with --online"},
		{"capture --pool p --fresh --min-ready 1h", "--min-ready: not with --fresh; no node of the pool is chosen"},
		{"capture --abandon p --fresh", "--fresh: not with --abandon"},
		{"capture n --patch --image a", "--patch, --prepare: only with --fresh"},
		{"capture --pool p --prepare b --image a", "--patch, --prepare: only with --fresh"},
		{"capture --pool p --fresh --patch --prepare b --image a", "--patch and --prepare: give one"},
		{"capture --pool p --fresh --prepare-command sh --image a", "--prepare-command: only with --prepare"},
		{"capture --pool p --fresh --patch --prepare-command sh --image a", "--prepare-command: not with --patch"},
		{"capture --pool p --fresh --prepare B --image a", "--prepare \"B\": want a container image"},
		{"capture --pool p --fresh --prepare-timeout 20m --image a", "--prepare-timeout: only with --prepare or --patch"},
		{"capture n --prepare-timeout 30m --image a", "--prepare-timeout: only with --prepare or --patch"},
		{"capture --pool p --fresh --patch --prepare-timeout 2h --image a", "--prepare-timeout 2h: want 1m to 1h"},
		{"capture --abandon /subscriptions/x", "is neither the name of a scale set nor its ARM id"},
		{"capture n --replicas -1", "--replicas -1: want 1 to 100"},
		{"capture n --replicas 101", "--replicas 101: want 1 to 100"},
		{"capture n --grace-period 25h", "--grace-period 1d1h: want 0s to 24h"},
		{"capture n --grace-period -1s", "--grace-period -1s: want 0s to 24h"},
		{"capture n --grace-period 300", `"300" for "--grace-period" flag: want a duration such as 30s, 5m or 2d`},
		{"capture n --grow=abc", `"abc" for "--grow" flag: want a whole number`},
		{"capture n --dry-run=perhaps", `"perhaps" for "--dry-run" flag: want true or false`},
		{"capture n --namespace Bad_NS", `--namespace "Bad_NS": a lowercase RFC 1123 label must consist of`},
		{"boot stats p --namespace=", `--namespace "": a lowercase RFC 1123 label`},
		{"capture n --lease-duration 4s", `"4s" for "--lease-duration" flag: want a duration from 5s to 1h`},
		{"capture --all --lease-duration 61m", `"61m" for "--lease-duration" flag: want a duration from 5s to 1h`},
		{"rollback n --lease-duration 45", `"45" for "--lease-duration" flag: want a duration from 5s to 1h`},
		{"capture n --grow -1", "--grow -1: want 0 to 1000"},
		{"capture n --bootstrap yes", "--bootstrap yes: want keep or baked"},
		{"capture n --extensions some", "--extensions some: want default, all or none"},
		{"capture n --keep-extension [", "syntax error in pattern"},
		{"capture n --tune fast", `--tune: unknown tuning "fast": want recommended, or any of kubelet-early, runtime-early, ssh-host-key`},
		{"capture n --tune recommended --canary 0", "--tune: clones have to prove what it changes; leave out --canary 0, or give 1 or more"},
		{"capture --all --tune ssh-host-key,x", `unknown tuning "x"`},
		{"capture n --tune recommended,kubelet-early", "--tune kubelet-early: only with --bootstrap baked"},
		{"capture n --tune kubelet-early --bootstrap baked", "--tune kubelet-early: only with runtime-early, or containerd starts too late for it; give both"},
		{"capture n --tune=", "--tune: no names; want recommended, or any of kubelet-early, runtime-early, ssh-host-key; leave it out for none"},
		{"capture n --accept-secret etc/a", `--accept-secret "etc/a": want the absolute path`},
		{"capture n --accept-secret /", `--accept-secret "/": want the absolute path`},
		{"capture n -o xml", "-o xml: want table, json, yaml or name"},
		{"rollback n -o xml", "-o xml: want table, json or yaml"},
		{"capture n --log-level LOUD", "--log-level LOUD: want DEBUG, INFO, WARNING, ERROR or CRITICAL"},
		{"capture n --nonsense", "unknown flag: --nonsense\n"},
		{"capture n --dry-rum", `unknown flag: --dry-rum; did you mean "--dry-run"?`},
		{"capture n --publish", `unknown flag: --publish; did you mean "--publish-only"?`},
		{"nodes --failled -o json", `unknown flag: --failled; did you mean "--failed"?`},
		{"status --kube-config f", `unknown flag: --kube-config; did you mean "--kubeconfig"?`},
		{"capture", "with --pool POOL, or all pools with --all"},
		{"capture n --pool p", "give NODE n, or --pool or --all, not both"},
		{"capture n --all", "give NODE n, or --pool or --all, not both"},
		{"capture --all --pool p", "name pools or give --all, not both"},
		{"capture --all --again", "--again: only with NODE"},
		{"capture --pool p --again", "--again: only with NODE"},
		{"capture --pool p --pool q --workbench n", "--workbench: only with NODE or with one --pool"},
		{"capture --all --workbench n", "--workbench: only with NODE or with one --pool"},
		{"capture n --min-ready 5m --max-parallel 2", "--max-parallel, --min-ready: only with --pool or --all"},
		{"capture --all --max-parallel 0", "--max-parallel 0: want 1 or more"},
		{"capture --all --history 1", "--history 1: at least 2 versions are kept"},
		{"capture --pool a/b", `"a/b" is neither the name of a scale set nor its ARM id`},
		{"capture --pool=", `"" is neither the name of a scale set nor its ARM id`},
		{"capture --all --min-ready 5x", `"5x" for "--min-ready" flag: want seconds (90), or a duration such as 30s, 5m or 2d`},
		{"capture --all --min-ready 1.5d", `"1.5d" for "--min-ready" flag: want seconds (90), or a duration such as 30s, 5m or 2d`},
		{"capture --all --watch 2e", `"2e" for "--watch" flag: want a duration such as 30s, 5m or 2d`},
		{"capture --all --min-ready -5m", "want seconds (90)"},
		{"capture --all --skip-rule patch", `cannot switch off rule "patch": it always applies`},
		{"controller --lift-after 30s", "--lift-after 30s: want 1m to 24h"},
		{"donors a/b", `"a/b" is neither the name of a scale set nor its ARM id`},
		{"donors p --all", "name pools or give --all, not both"},
		{"donors --skip-rule luck", `cannot switch off rule "luck": it does not exist`},
		{"donors --min-candidates -1", "candidates -1"},
		{"capture --all --min-candidates 0", "--min-candidates 0: want 1 or more"},
		{"status pool_1/x", `"pool_1/x" is neither the name of a scale set nor its ARM id`},
		{"rollback", "name a node of the pool, or the scale set's name or ARM id"},
		{"rollback n --to=", "--to is empty: want previous, original, or the name of a version"},
		{"rollback n --to", "flag needs an argument"},
		{"rollout", "name a node of the pool, or the scale set's name or ARM id"},
		{"rollout /subscriptions/x", "is neither the name of a scale set nor its ARM id"},
		{"rollout p --max-unavailable 0", `--max-unavailable "0" nodes would never allow anything: want 1 to 1000 nodes, or 1% to 100%`},
		{"rollout p --max-unavailable 0%", `--max-unavailable "0%" nodes would never allow anything`},
		{"rollout p --max-unavailable=-1", `--max-unavailable "-1": want 1 to 1000 nodes`},
		{"rollout p --max-unavailable 101%", `--max-unavailable "101%": want 1 to 1000 nodes, or 1% to 100%`},
		{"rollout p --window @every --window-duration 5h", `--window: the schedule "@every" cannot be read`},
		{"rollout p --window @daily", "--window: a schedule without a duration"},
		{"rollout p --window-duration 5h", "--window: a duration without a schedule"},
		{"rollout p --time-zone Europe/Berlin", "--window: a time zone without a schedule"},
		{"rollout p --window @daily --window-duration 2d", `--window: the schedule "@daily" comes 24h after the time before, and the window is open for 48h`},
		{"rollout p --window @daily --window-duration 5h --time-zone Mars", `unknown time zone "Mars"`},
		{"rollout p --window-duration 300", `"300" for "--window-duration" flag: want a duration such as 30s, 5m or 2d`},
		{"rollout p --soak 31m", "--soak 31m: want 0s to 30m"},
		{"rollout p --drain-timeout 0", "--drain-timeout 0s: want 10s to 1d"},
		{"rollout p -o name", "-o name: want table, json or yaml"},
		{"prune", `unknown command "prune" for "ortet"`},
		{"captur n", `unknown command "captur" for "ortet"; did you mean "capture"?`},
		{"boot shwo", `unknown command "shwo" for "ortet boot"; did you mean "show"?`},
		{"boot sta", `unknown command "sta" for "ortet boot"; did you mean "stats"?`},
		{"boot shwo -o json", `unknown command "shwo" for "ortet boot"`},
		{"admission revok n", `unknown command "revok" for "ortet admission"; did you mean "revoke"?`},
		{"completion bsh", `unknown command "bsh" for "ortet completion"; did you mean "bash" or "fish" or "zsh"?`},
		{"help boot shwo", `unknown command "shwo" for "ortet boot"; did you mean "show"?`},
		{"help captur", `unknown command "captur" for "ortet"; did you mean "capture"?`},
		{"version 1", `version takes no arguments, not ["1"]`},
	} {
		code, out, err := run(t, strings.Fields(c.args)...)
		if code != ExitUsage || out != "" || !strings.Contains(err, c.says) || !strings.Contains(err, "See 'ortet") || !strings.HasSuffix(err, " --help'.\n") {
			t.Errorf("ortet %s: code %d, want %d with %q\nout: %s\nerr: %s", c.args, code, ExitUsage, c.says, out, err)
		}
	}
	if code, _, err := run(t, "cluster", "restore", ""); code != ExitUsage || !strings.Contains(err, "name of the backup is empty") {
		t.Errorf("restore of an empty name: code %d, %s", code, err)
	}
	if code, _, err := run(t, "capture", " "); code != ExitUsage || !strings.Contains(err, "is empty") {
		t.Errorf("an empty node: code %d, %s", code, err)
	}
}

// What is wrong with the surroundings is no mistake in the command line.
func TestNoClusterIsNoUsageError(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "kubeconfig")
	code, _, err := run(t, "status", "--kubeconfig", missing)
	if code != workflow.ExitRefused || !strings.Contains(err, missing) || !strings.Contains(err, "--kubeconfig") {
		t.Errorf("code %d, want %d and what to do: %s", code, workflow.ExitRefused, err)
	}
	for text, want := range map[string]string{"root:x:0:0": "it holds no YAML or JSON object", "kind: Config": "it names no cluster", "a: [": "yaml: "} {
		if err := os.WriteFile(missing, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, _, err := run(t, "status", "--kubeconfig", missing); code != workflow.ExitRefused || !strings.Contains(err, want) || strings.Contains(err, "struct") {
			t.Errorf("a kubeconfig with %q: code %d, %s", text, code, err)
		}
	}
	code, _, err = run(t, "status")
	if code != workflow.ExitFailed || !strings.Contains(err, "find the Kubernetes API server") {
		t.Errorf("code %d, want %d: %s", code, workflow.ExitFailed, err)
	}
}

func TestHelpAndVersion(t *testing.T) {
	code, out, err := run(t, "--version")
	if code != 0 || !strings.Contains(out, "v0-test") || err != "" {
		t.Errorf("--version: %d %q %q", code, out, err)
	}
	code, out, err = run(t, "version")
	if code != 0 || !strings.Contains(out, "Version:   v0-test\n") || !strings.Contains(out, runtime.Version()) || err != "" {
		t.Errorf("version: %d %q %q", code, out, err)
	}
	for _, form := range []string{"json", "yaml"} {
		code, out, _ := run(t, "version", "-o", form)
		var b build
		if err := yaml.Unmarshal([]byte(out), &b); code != 0 || err != nil || b.Version != "v0-test" || b.OS != runtime.GOOS || b.Arch != runtime.GOARCH {
			t.Errorf("version -o %s: %d %v\n%s", form, code, err, out)
		}
	}
	if code, out, _ := run(t, "help", "boot", "show"); code != 0 || !strings.Contains(out, "ortet boot show NODE") {
		t.Errorf("help boot show: %d %s", code, out)
	}
	for group, heading := range map[string]string{"": "Images:", "boot": "Available Commands:"} {
		code, out, err := run(t, strings.Fields(group)...)
		if code != 0 || !strings.Contains(out, heading) || strings.Contains(out, strings.TrimSpace("ortet "+group)+" [flags]") || err != "" {
			t.Errorf("ortet %s: %d %q %s", group, code, err, out)
		}
	}
	for _, command := range []string{"capture", "status", "rollback"} {
		if code, out, _ := run(t, command, "--help"); code != 0 || !strings.Contains(out, "ortet "+command) {
			t.Errorf("%s --help: code %d\n%s", command, code, out)
		}
	}
}

func TestVersionNamesTheCommit(t *testing.T) {
	var b build
	b.readSettings([]debug.BuildSetting{{Key: "GOOS", Value: "linux"}, {Key: "vcs.revision", Value: "1e39f42"}, {Key: "vcs.modified", Value: "true"}})
	var out strings.Builder
	b.table(&out)
	if !strings.Contains(out.String(), "Commit:    1e39f42 (with uncommitted changes)\n") {
		t.Error(out.String())
	}
}

func TestHelpFitsATerminal(t *testing.T) {
	var commands func(c *cobra.Command)
	commands = func(c *cobra.Command) {
		args := strings.Fields(c.CommandPath())[1:]
		code, out, _ := run(t, append(args, "--help")...)
		if code != 0 || !strings.Contains(out, "Usage:") {
			t.Errorf("%s --help: code %d\n%s", c.CommandPath(), code, out)
		}
		for l := range strings.Lines(out) {
			if n := len([]rune(strings.TrimSuffix(l, "\n"))); n > resultWidth {
				t.Errorf("%s --help: %d columns: %s", c.CommandPath(), n, l)
			}
		}
		for _, sub := range c.Commands() {
			commands(sub)
		}
	}
	commands(Command(Process{}))
}

func TestLevels(t *testing.T) {
	for name, want := range map[string]slog.Level{
		"DEBUG": slog.LevelDebug, "debug": slog.LevelDebug, "VERBOSE": slog.LevelDebug, "INFO": slog.LevelInfo,
		"WARNING": slog.LevelWarn, "warn": slog.LevelWarn, "ERROR": slog.LevelError, "CRITICAL": levelCritical,
	} {
		got, warning, err := parseLevel(name)
		if err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", name, got, err, want)
		}
		if (warning != "") != (name == "VERBOSE") {
			t.Errorf("%s: warning %q", name, warning)
		}
	}
	if _, _, err := parseLevel(""); err == nil {
		t.Error("an empty level is taken")
	}
	_, _, stderr := run(t, "status", "--log-level", "VERBOSE", "--kubeconfig", "/nonexistent")
	if !strings.Contains(stderr, "level=WARN") || !strings.Contains(stderr, "VERBOSE") || !strings.Contains(stderr, "DEBUG") {
		t.Errorf("VERBOSE is taken without a warning:\n%s", stderr)
	}
}

func TestExtensionFlags(t *testing.T) {
	for _, c := range []struct {
		extensions string
		keep       []string
		goes       map[string]bool // by name; type CustomScript where the name is vmssCSE
	}{
		{"default", nil, map[string]bool{"vmssCSE": true, "monitor": false}},
		{"default", []string{"vmss*"}, map[string]bool{"vmssCSE": false, "monitor": false}},
		{"all", nil, map[string]bool{"vmssCSE": true, "monitor": true}},
		{"all", []string{"*MON*"}, map[string]bool{"vmssCSE": true, "monitor": false}},
		{"none", nil, map[string]bool{"vmssCSE": false, "monitor": false}},
	} {
		f := captureFlags{extensions: c.extensions, keep: c.keep, image: "i", prepareTime: new(pflag.Flag),
			request: capture.Request{History: 3, Bootstrap: plan.BootstrapKeep}}
		if err := f.complete("n"); err != nil {
			t.Fatal(err)
		}
		for name, want := range c.goes {
			if got := goes(f.request.Extensions, name); got != want {
				t.Errorf("--extensions %s --keep-extension %v: %s goes is %v, want %v", c.extensions, c.keep, name, got, want)
			}
		}
	}
}

// Whoever registers an unpublished name would have their image run as root.
func TestHole07CaptureHasNoDefaultImage(t *testing.T) {
	capture, _, err := Command(Process{}).Find([]string{"capture"})
	if err != nil {
		t.Fatal(err)
	}
	if f := capture.Flags().Lookup("image"); f.DefValue != "" || !strings.Contains(f.Usage, "make image") {
		t.Errorf("--image is %q by default: %s", f.DefValue, f.Usage)
	}
}

// Capture's page names each flag of its help, by the help's groups.
func TestFlagsAreDocumented(t *testing.T) {
	const path, begin, end = "../../docs/reference/capture.md", "<!-- flags -->\n", "<!-- end -->"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, help, _ := run(t, "capture", "--help")
	_, flags, headed := strings.Cut(help, "\nFlags:\n")
	flags, _, ends := strings.Cut(flags, "\nGlobal Flags:\n")
	before, rest, found := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !headed || !ends || !found || !closed {
		t.Fatalf("%s has no %q with %q after it, or this help has no flags:\n%s", path, begin, end, help)
	}
	table := "| group of the help | flags |\n|---|---|\n"
	for group := range strings.SplitSeq("Flags:\n"+flags, "\n\n") {
		name, lines, _ := strings.Cut(group, ":\n")
		var names []string
		for _, line := range regexp.MustCompile(`(?m)^ {6}(--[a-z-]+)`).FindAllStringSubmatch(lines, -1) {
			names = append(names, "`"+line[1]+"`")
		}
		table += "| " + name + " | " + strings.Join(names, ", ") + " |\n"
	}
	switch want := before + begin + table + end + after; {
	case want == string(text):
	case !*update:
		t.Errorf("%s does not have the flags of ortet capture --help: go test ./internal/cli -run TestFlagsAreDocumented -update", path)
	default:
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestInterruptIsExplained(t *testing.T) {
	var out, restored strings.Builder
	said := make(chan struct{})
	o := &options{process: Process{Restore: func() { restored.WriteString("restored") }}}
	show := newProgress(&notifying{&out, said}, func(string) string { return "" })
	ctx, cancel := context.WithCancel(t.Context())
	stop := o.explainInterrupt(ctx, show)
	cancel()
	<-said
	stop()
	show.Close()
	if restored.String() != "restored" {
		t.Error("the signals were not given back: a second Ctrl-C would not end it")
	}
	for _, want := range []string{"returns to service first", "Ctrl-C again", "command again"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, out.String())
		}
	}
	for l := range strings.Lines(out.String()) {
		if len(l) > 80 {
			t.Errorf("%d columns: %s", len(l)-1, l)
		}
	}
}

// notifying is a writer that tells of its first write.
type notifying struct {
	to   *strings.Builder
	said chan struct{}
}

func (n *notifying) Write(p []byte) (int, error) {
	defer func() {
		if n.said != nil {
			close(n.said)
			n.said = nil
		}
	}()
	return n.to.Write(p)
}
