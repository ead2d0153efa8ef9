package cli

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ortet/ortet/internal/nodeconfig/push"
)

// typed completes a command line, whose last word may be empty: the values without their
// descriptions, and the directive.
func typed(t *testing.T, process Process, args ...string) (values []string, directive string) {
	t.Helper()
	var out, said strings.Builder
	if process.Getenv == nil {
		process.Getenv = func(string) string { return "" }
	}
	process.In, process.Out, process.Err = strings.NewReader(""), &out, &said
	if code := Run(t.Context(), append([]string{cobra.ShellCompNoDescRequestCmd}, args...), process); code != 0 || said.Len() > 0 {
		t.Errorf("%q: code %d, and on standard error: %s", args, code, said.String())
	}
	values = strings.Split(strings.TrimSpace(out.String()), "\n")
	last := len(values) - 1
	return values[:last], values[last]
}

const (
	noFiles = ":4"
	files   = ":0"
)

// serveKubeconfig serves an API server of GET paths, "/api/v1/nodes" for one, and returns
// its kubeconfig, which has the contexts demo and other.
func serveKubeconfig(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	context := map[string]any{"cluster": "c", "user": "u"}
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Config", "current-context": "demo",
		"contexts": []any{map[string]any{"name": "demo", "context": context}, map[string]any{"name": "other", "context": map[string]any{"cluster": "gone", "user": "u"}}},
		"users":    []any{map[string]any{"name": "u", "user": map[string]any{"token": "t"}}},
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": server.URL, "certificate-authority-data": ca}}, map[string]any{"name": "gone", "cluster": map[string]any{"server": "https://127.0.0.1:1"}}}})
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", "") // client-go reads these by itself
	t.Setenv("HOME", t.TempDir())
	return file
}

func listOf(kind string, items ...any) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": kind, "items": items}
}

func named(name string) map[string]any {
	return map[string]any{"metadata": map[string]any{"name": name}}
}

// A cluster with the nodes a and b of pool1, one of a machine of its own, and a name that
// no shell should get.
func completionCluster(t *testing.T) string {
	node := func(name, id string) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{"providerID": "azure://" + id}}
	}
	answers := map[string]any{
		"/api/v1/nodes": listOf("NodeList", node("a", string(pool1)+"/virtualMachines/0"), node("b", string(pool1)+"/virtualMachines/1"),
			node("cp", "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/cp"), node("x$(reboot)", "")),
		"/api/v1/namespaces": listOf("NamespaceList", named("default"), named("ortet-system")),
		"/api/v1/namespaces/ortet-system/configmaps/" + push.HistoryName(pool1): map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
			"data": map[string]string{"a": `{"generation": 9}`, "b": `{"generation": 10}`, "c": `{`}},
	}
	return serveKubeconfig(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body, has := answers[r.URL.Path]
		if !has {
			w.WriteHeader(http.StatusNotFound)
			body = map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
		}
		_ = json.NewEncoder(w).Encode(body)
	})
}

func TestCompletionKnowsValues(t *testing.T) {
	kubeconfig := completionCluster(t)
	pool := pool1.Name()
	dir := t.TempDir()
	azure := fakeAzure(t, func(path string) (int, any) {
		if strings.HasSuffix(path, "/images") {
			return http.StatusOK, map[string]any{"value": []any{map[string]any{"id": path + "/kamino-" + pool + "-prototype", "location": "eastus"}}}
		}
		if !strings.HasSuffix(path, "/versions") {
			return http.StatusOK, map[string]any{"value": []any{}}
		}
		version := func(name, published string) any {
			return map[string]any{"id": path + "/" + name, "name": name, "location": "eastus", "properties": map[string]any{"provisioningState": "Succeeded", "publishingProfile": map[string]any{"publishedDate": published}}}
		}
		return http.StatusOK, map[string]any{"value": []any{version("2026.11.9", "2026-11-09T00:00:00Z"), version("2026.11.20", "2026-11-20T00:00:00Z")}}
	})
	clusterFile := filepath.Join(dir, "cluster.yaml")
	offline(t, dir, "init", "--name", "demo", "--location", "westeurope", "--pool", "agents=2", "--pool", "spot=1")
	t.Setenv("KUBECONFIG", "")
	for _, c := range []struct{ line, want string }{
		{"capture _", "a b cp"},
		{"capture b_", "b"},
		{"capture a _", ""},
		{"capture --pool p _", ""},
		{"capture --pool _", pool},
		{"capture a --bootstrap _", "keep baked"},
		{"capture a --bootstrap=b_", "baked"},
		{"capture a --extensions _", "default all none"},
		{"capture a --bad-nodes _", "cordon delete leave"},
		{"capture a --workbench _", "a b cp"},
		{"capture --all --skip-rule k_", "kernel"},
		{"capture a --history _", ""},
		{"status _", pool},
		{"status " + pool + " _", ""},
		{"rollback _", "a b cp " + pool},
		{"rollback a --to _", "previous original 2026.11.20 2026.11.9"},
		{"rollback " + pool + " --to 2026.11.2_", "2026.11.20"},
		{"rollback --to _", "previous original"},
		{"nodes _", "a b cp"},
		{"boot stats " + pool + "@_", pool + "@latest " + pool + "@previous"},
		{"config rollback " + pool + " --to _", "10 9"},
		{"config push " + pool + " --canary _", "a b cp"},
		{"controller --pool _", string(pool1)},
		{"status -o _", "table json yaml"},
		{"boot show a -o _", "table json yaml html svg"},
		{"status --log-level W_", "WARNING"},
		{"status --namespace _", "default ortet-system"},
		{"status --context _", "demo other"},
		{"--context other capture _", ""}, // a cluster that does not answer
		{"cluster scale -f " + clusterFile + " _", "agents spot"},
		{"cluster scale _", ""},
		{"version _", ""},
		{"completion _", "bash fish powershell zsh"},
		{"help boot _", "analyze diff show stats"},
	} {
		args := append([]string{"--kubeconfig", kubeconfig}, strings.Fields(strings.TrimSuffix(c.line, "_"))...)
		if strings.HasSuffix(c.line, " _") {
			args = append(args, "")
		}
		values, directive := typed(t, Process{Getenv: func(name string) string { return azure[name] }}, args...)
		for i := range values {
			values[i] = strings.TrimPrefix(values[i], "--bootstrap=")
		}
		// What a release adds to -o may follow.
		if got := strings.Join(values, " "); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" || !strings.Contains(c.line, "-o") && got != c.want || directive != noFiles {
			t.Errorf("ortet %s: %q %s, want %q and no files", c.line, got, directive, c.want)
		}
	}
	// The environment names the cluster as for any command, and a wrong variable is quiet.
	for value, want := range map[string]string{kubeconfig: "a b cp", kubeconfig + "-none": ""} {
		values, _ := typed(t, Process{Getenv: func(name string) string { return map[string]string{"ORTET_KUBECONFIG": value}[name] }}, "capture", "")
		if got := strings.Join(values, " "); got != want {
			t.Errorf("ORTET_KUBECONFIG=%s: %q, want %q", value, got, want)
		}
	}
	if values, directive := typed(t, Process{Getenv: func(name string) string { return map[string]string{"ORTET_HISTORY": "x"}[name] }}, "--kubeconfig", kubeconfig, "capture", ""); len(values) > 0 || directive != noFiles {
		t.Errorf("ORTET_HISTORY=x: %q %s", values, directive)
	}
}

// Without a cluster, and with a silent cluster, there are no values and no words.
func TestCompletionIsQuietWithoutACluster(t *testing.T) {
	ended := make(chan struct{})
	hung := serveKubeconfig(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-ended:
		}
	})
	defer close(ended)
	for _, line := range []string{"capture", "status", "rollback a --to", "nodes", "boot show", "status --namespace", "config rollback p --to"} {
		args := append(strings.Fields(line), "")
		want := map[bool]string{true: "previous original", false: ""}[strings.HasSuffix(line, "rollback a --to") && strings.HasPrefix(line, "rollback")]
		for _, kubeconfig := range []string{hung, filepath.Join(t.TempDir(), "none")} {
			values, directive := typed(t, Process{completion: 50 * time.Millisecond}, append([]string{"--kubeconfig", kubeconfig}, args...)...)
			if got := strings.Join(values, " "); got != want || directive != noFiles {
				t.Errorf("ortet %s with %s: %q %s", line, kubeconfig, got, directive)
			}
		}
		if values, directive := typed(t, Process{}, args...); strings.Join(values, " ") != want || directive != noFiles {
			t.Errorf("ortet %s without a kubeconfig: %q %s", line, values, directive)
		}
	}
	if completionTime != 2*time.Second {
		t.Errorf("completion waits for %s", completionTime)
	}
}

// Each command that takes an argument says how it is completed, and files are completed
// for files alone.
func TestCompletionOfFiles(t *testing.T) {
	root := Command(Process{Getenv: func(string) string { return "" }})
	for _, line := range leaves(root, "") {
		c, _, err := root.Find(strings.Fields(line))
		if err != nil {
			t.Fatal(err)
		}
		takes := strings.Contains(strings.TrimSuffix(c.UseLine(), " [flags]"), line+" ")
		if _, has := completedArguments()[line]; has != takes && !strings.HasPrefix(line, "completion") {
			t.Errorf("%s: has arguments: %t, are completed: %t", c.UseLine(), takes, has)
		}
		_, directive := typed(t, Process{completion: time.Nanosecond}, append(strings.Fields(line), "")...)
		want := noFiles
		switch {
		case strings.Contains(c.Use, "FILE..."), c.Use == "validate FILE", c.Use == "export VALUES|-":
			want = files
		case strings.Contains(c.Use, "DIR"):
			want = ":16"
		}
		if directive != want {
			t.Errorf("ortet %s completes with %s, want %s", line, directive, want)
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.NoOptDefVal != "" {
				return
			}
			want := noFiles
			if what, _ := pflag.UnquoteUsage(f); what == "FILE" {
				want = files
			}
			if _, directive := typed(t, Process{completion: time.Nanosecond}, append(strings.Fields(line), "--"+f.Name, "")...); directive != want {
				t.Errorf("ortet %s --%s completes with %s, want %s", line, f.Name, directive, want)
			}
		})
	}
	for name := range completedFlags() {
		path, flag, _ := strings.Cut(name, "--")
		c, _, err := root.Find(strings.Fields(path))
		if err != nil || path != "" && c.Flags().Lookup(flag) == nil {
			t.Errorf("%s is completed, and does not exist", name)
		}
	}
	if has := slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == "completion" && c.IsAvailableCommand() }); !has {
		t.Error("ortet --help does not show completion")
	}
}
