package k3s_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/hack/controlplane/k3s"
)

// load merges files, by name beneath a folder, and a command line.
func load(t *testing.T, command string, files map[string]string, args ...string) (k3s.Config, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return k3s.LoadConfig(command, append([]string{"--config", filepath.Join(dir, "config.yaml")}, args...))
}

func TestConfigurationIsMergedAsK3sDocumentsIt(t *testing.T) {
	c, err := load(t, "agent", map[string]string{
		"config.yaml":                    "server: https://first:6443\nnode-label: [a=1]\nkubelet-arg: [v=2, max-pods=20]\n",
		"config.yaml.d/20-second.yaml":   "server: https://second:6443\nnode-label+: [b=2]\n",
		"config.yaml.d/50-ortet.yaml":    "token-file: /run/ortet/token\nnode-label+:\n- c=3\nkubelet-arg: [provider-id=x]\n",
		"config.yaml.d/50-ortet.yaml.no": "server: https://never:6443\n",
	}, "--node-name", "fromline", "--node-taint", "a=b:NoSchedule", "--node-taint=c=d:NoSchedule", "--debug")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"server": {"https://second:6443"}, "token-file": {"/run/ortet/token"}, "node-name": {"fromline"},
		"node-label": {"a=1", "b=2", "c=3"}, "kubelet-arg": {"provider-id=x"},
		"node-taint": {"a=b:NoSchedule", "c=d:NoSchedule"}, "debug": {"true"},
	}
	delete(c, "config")
	if !maps.EqualFunc(c, want, slices.Equal) {
		t.Errorf("merged\n%v, want\n%v", c, want)
	}
}

func TestCommandLineReplacesListsOfFiles(t *testing.T) {
	c, err := load(t, "server", map[string]string{"config.yaml": "tls-san: [a, b]\nwrite-kubeconfig-mode: \"0644\"\n"}, "--tls-san=c")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.List("tls-san"); got != "c" {
		t.Errorf("tls-san is %s", got)
	}
	if got := c.One("write-kubeconfig-mode"); got != "0644" {
		t.Errorf("write-kubeconfig-mode is %s", got)
	}
}

func TestUnknownFlags(t *testing.T) {
	for name, c := range map[string]struct {
		command, file string
		args          []string
		want          string
	}{
		"in an agent's file":            {"agent", "tls-san: [x]\n", nil, "flag provided but not defined: -tls-san"},
		"in a server's file is skipped": {"server", "nonsense: 1\n", nil, ""},
		"on a server's command line":    {"server", "", []string{"--nonsense=1"}, "unknown flag: --nonsense"},
		"without its value":             {"agent", "", []string{"--server"}, "flag needs an argument: --server"},
		"no YAML":                       {"agent", "server: [", nil, "failed to parse config file"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, c.command, map[string]string{"config.yaml": c.file}, c.args...)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestParseToken(t *testing.T) {
	pin := "K10" + strings.Repeat("ab", 32)
	for text, want := range map[string][3]string{
		pin + "::server:secret":           {"server", "secret", ""},
		pin + "::abcdef.0123456789abcdef": {"", "", "abcdef.0123456789abcdef"},
	} {
		hash, by, err := k3s.ParseToken(text)
		if got := [3]string{by.Username, by.Password, by.BearerToken}; err != nil || "K10"+hash != pin || got != want {
			t.Errorf("%s: %s %v, %v", text, hash, got, err)
		}
	}
	for _, text := range []string{"", pin, pin + "::", "secret", strings.TrimPrefix(pin, "K10") + "::server:x"} {
		if hash, _, err := k3s.ParseToken(text); err == nil {
			t.Errorf("%q pins %s", text, hash)
		}
	}
}
