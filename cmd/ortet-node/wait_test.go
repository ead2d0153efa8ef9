package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

// nodeRoot is a node's root with files; a name that ends with a slash is a
// folder.
func nodeRoot(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestWaitExitCodes(t *testing.T) {
	const (
		sentinel = "run/cluster-api/bootstrap-success.complete"
		result   = "run/cloud-init/result.json"
	)
	for _, c := range []struct {
		name  string
		files map[string]string
		args  []string
		code  int
		says  string
	}{
		{"came up", map[string]string{sentinel: ""}, nil, exitOK, "Succeeded"},
		{"with ignored errors", map[string]string{sentinel: "", result: `{"v1":{"errors":[]}}`, "run/cloud-init/status.json": `{"v1":{"modules-config":{"errors":["('ntp', OSError('x'))"],"start":1,"finished":2}}}`}, nil, exitOK, "Degraded"},
		{"failed", map[string]string{"run/cluster-api/placeholder": "", result: `{"v1":{"errors":[]}}`}, nil, exitFailed, "Failed"},
		{"failed with a code", map[string]string{"var/log/azure/aks/provision.json": `{"ExitCode":"51"}`}, nil, 51, "Failed"},
		{"the deadline", nil, []string{"--deadline", "10ms"}, exitDeadline, "TimedOut"},
		{"as JSON", map[string]string{sentinel: ""}, []string{"-o", "json"}, exitOK, `"outcome":"Succeeded"`},
		{"nothing expected", nil, []string{"--sentinel", "none"}, exitOK, "Succeeded"},
		{"help", nil, []string{"--help"}, exitOK, ""},
		{"an unknown flag", nil, []string{"--no"}, exitUsage, ""},
		{"no deadline", nil, []string{"--deadline", "0s"}, exitUsage, ""},
		{"a bad kubelet", nil, []string{"--kubelet", "perhaps"}, exitUsage, ""},
		{"a bad output", nil, []string{"-o", "yaml"}, exitUsage, ""},
		{"a bad unit", nil, []string{"--unit", "a b"}, exitUsage, ""},
		{"a report without TLS", nil, []string{"--report-url", "http://example.com/"}, exitUsage, ""},
		{"an argument too many", nil, []string{"x"}, exitUsage, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			args := append([]string{"wait", "--root", nodeRoot(t, c.files), "--kubelet", "no", "--console", "", "--deadline", "1m"}, c.args...)
			if code := run(t.Context(), args, stdio{out: &out, err: &errOut}); code != c.code {
				t.Errorf("exit %d, want %d: %s%s", code, c.code, out.String(), errOut.String())
			}
			if !strings.Contains(out.String(), c.says) {
				t.Errorf("printed %q, want %q in it", out.String(), c.says)
			}
			// What CustomScript and Run Command report of it, as deploy/ has it cut.
			if v, ok := wire.FindVerdict(out.Bytes()[:min(out.Len(), 3800)]); c.says != "" && !slices.Contains(c.args, "json") && (!ok || string(v.Outcome) != c.says) {
				t.Errorf("its output does not carry the verdict: %q", out.String())
			}
		})
	}
}

// All that is wrong is told at once, with where to read on, and the help fits a
// terminal.
func TestUsage(t *testing.T) {
	for line, want := range map[string]string{
		"wait foo --node maybe -o yaml --deadline 5 bar": `ortet-node wait: unexpected argument "foo"
invalid value "5" for flag -deadline: want a time such as 90s or 20m
unexpected argument "bar"
--node "maybe": want ready, registered or no
-o "yaml": want text or json
See 'ortet-node wait --help'.
`,
		"wait --no":              "ortet-node wait: flag provided but not defined: -no\nSee 'ortet-node wait --help'.\n",
		"wait --deadline":        "ortet-node wait: flag needs an argument: -deadline\nSee 'ortet-node wait --help'.\n",
		"extension":              "ortet-node extension: command \"\": want install, enable, update, disable or uninstall\nSee 'ortet-node extension --help'.\n",
		"extension enable x --y": "ortet-node extension: unexpected argument \"x\"\nflag provided but not defined: -y\nSee 'ortet-node extension --help'.\n",
		"frobnicate":             "ortet-node: unknown command \"frobnicate\": want wait, report, events, extension, config, join, leave, generalize, patch or version\nSee 'ortet-node --help'.\n",
	} {
		var out, errOut bytes.Buffer
		if code := run(t.Context(), strings.Fields(line), stdio{out: &out, err: &errOut}); code != exitUsage || out.Len() > 0 || errOut.String() != want {
			t.Errorf("%s: exit %d, %s%s", line, code, out.String(), errOut.String())
		}
	}
	for _, line := range []string{"help", "--help", "wait -h", "wait x --help", "extension -h", "generalize --help", "join --help", "leave --help", "events --help", "report --help"} {
		var out, errOut bytes.Buffer
		if code := run(t.Context(), strings.Fields(line), stdio{out: &out, err: &errOut}); code != exitOK || errOut.Len() > 0 == (out.Len() > 0) {
			t.Errorf("%s: exit %d, %s", line, code, errOut.String())
		}
		if strings.Contains(out.String(), ") (default") {
			t.Errorf("%s: two defaults of one flag:\n%s", line, out.String())
		}
		for row := range strings.Lines(out.String() + errOut.String()) {
			if n := len(strings.TrimSuffix(row, "\n")); n > textWidth {
				t.Errorf("%s: a line of %d columns: %s", line, n, row)
			}
		}
		if strings.HasPrefix(line, "wait") {
			for _, part := range []string{"\n  --deadline TIME ", "(default 20m0s)", "\n  -o text|json ", "\n  --again "} {
				if !strings.Contains(out.String(), part) {
					t.Errorf("%s: %q is not in\n%s", line, part, out.String())
				}
			}
		}
	}
}

func TestWaitAgain(t *testing.T) {
	root := nodeRoot(t, map[string]string{"run/cluster-api/placeholder": "", "run/cloud-init/result.json": `{"v1":{"errors":[]}}`, "proc/sys/kernel/random/boot_id": "11111111-2222-3333-4444-555555555555\n"})
	verdict := func(args ...string) wire.Verdict {
		t.Helper()
		var out, errOut bytes.Buffer
		run(t.Context(), append([]string{"wait", "--root", root, "--kubelet", "no", "--console", "", "--deadline", "1m"}, args...), stdio{out: &out, err: &errOut})
		v, ok := wire.FindVerdict(out.Bytes())
		if !ok {
			t.Fatalf("%s%s", out.String(), errOut.String())
		}
		return v
	}
	first := verdict()
	if v := verdict(); first.Outcome != wire.Failed || !v.At.Equal(first.At) {
		t.Errorf("%s, then %s", first.Outcome, v.Outcome)
	}
	if v := verdict("--again"); v.At.Equal(first.At) || v.Outcome != wire.Failed {
		t.Errorf("%s of %s", v.Outcome, v.At)
	}
}

func TestWaitExitOfAVerdict(t *testing.T) {
	code := func(n int) *int { return &n }
	for _, c := range []struct {
		v    wire.Verdict
		want int
	}{
		{wire.Verdict{Outcome: wire.Failed}, 1},
		{wire.Verdict{Outcome: wire.Failed, ExitCode: code(2)}, 2},
		{wire.Verdict{Outcome: wire.Failed, ExitCode: code(0)}, 1},
		{wire.Verdict{Outcome: wire.Failed, ExitCode: code(256)}, 1},
		{wire.Verdict{Outcome: wire.Failed, ExitCode: code(-1)}, 1},
		{wire.Verdict{Outcome: wire.TimedOut, ExitCode: code(7)}, 124},
		{wire.Verdict{Outcome: wire.Degraded, ExitCode: code(7)}, 0},
	} {
		if got := waitExit(c.v); got != c.want {
			t.Errorf("%s, %v: %d, want %d", c.v.Outcome, c.v.ExitCode, got, c.want)
		}
	}
}

func TestVerdictForAPerson(t *testing.T) {
	two := 2
	v := wire.Verdict{
		Outcome: wire.Failed, Reason: "KubeadmPreflight", Owner: wire.OwnerUser, Retryable: true, At: time.Now(),
		Message: "kubeadm's preflight refused the node: " + strings.Repeat("many words that go on ", 10), Remedy: "Remove /etc/kubernetes/kubelet.conf before kubeadm joins.",
		Stage: "modules-final", Module: "runcmd", Phase: "preflight", ExitCode: &two,
		Evidence: []wire.Excerpt{{Source: "/var/log/cloud-init-output.log", Lines: []string{strings.Repeat("x", 120)}, Cut: true}},
	}
	text := verdictText(v)
	for _, want := range []string{
		"outcome  Failed\n", "reason   KubeadmPreflight\n", "owner    user, concluded; trying again may help\n",
		"where    stage modules-final, module runcmd, phase preflight, exit code 2\n",
		"do       Remove", "/var/log/cloud-init-output.log (the end of it)\n  xxx",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	for line := range strings.Lines(text) {
		if n := len(strings.TrimSuffix(line, "\n")); n > textWidth {
			t.Errorf("a line of %d columns: %s", n, line)
		}
	}
}
