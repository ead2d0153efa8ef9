package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/workflow"
)

// offline runs a command of ortet cluster on the cluster.yaml of dir.
func offline(t *testing.T, dir string, args ...string) (out string) {
	t.Helper()
	code, out, err := run(t, append([]string{"cluster", "-f", filepath.Join(dir, "cluster.yaml")}, args...)...)
	if code != 0 {
		t.Fatalf("%v: exit code %d: %s", args, code, err)
	}
	return out
}

// From nothing to a file that is ready for up, without Azure.
func TestClusterOffline(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	offline(t, dir, "init", "--name", "demo", "--location", "westeurope", "--pool", "agents=2", "--pool", "big=0:Standard_D8s_v5")
	if code, _, err := run(t, "cluster", "-f", in("cluster.yaml"), "init", "--name", "other", "--location", "westeurope"); code != workflow.ExitRefused || !strings.Contains(err, "exists") {
		t.Errorf("init over a file: exit code %d: %s", code, err)
	}
	if out := offline(t, dir, "validate"); !strings.Contains(strings.Join(strings.Fields(out), " "), "cluster demo in westeurope, 1 server, 2 pools") || !strings.Contains(out, "k3s, ortet, ortetNode") {
		t.Errorf("validate: %s", out)
	}
	offline(t, dir, "keys")
	if s, err := os.Stat(in("demo")); err != nil || s.Mode().Perm() != 0o600 {
		t.Errorf("private key: %v %v", s, err)
	}
	if code, _, err := run(t, "cluster", "-f", in("cluster.yaml"), "keys"); code != workflow.ExitRefused || !strings.Contains(err, "exists") {
		t.Errorf("keys again: exit code %d: %s", code, err)
	}
	for _, name := range []string{"k3s-amd64", "ortet", "ortet-node", "app.yaml"} {
		if err := os.WriteFile(in(name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := offline(t, dir, "artifacts", in("www"), "--k3s", in("k3s-amd64"), "--ortet", in("ortet"), "--manifest", in("app.yaml"), "--url", "file:///srv/artifacts/")
	sum := sha256.Sum256([]byte("k3s-amd64"))
	if !strings.Contains(out, "file:///srv/artifacts/k3s\n") || !strings.Contains(out, hex.EncodeToString(sum[:])) {
		t.Errorf("block:\n%s", out)
	}
	sum = sha256.Sum256([]byte("app.yaml"))
	if want := "  manifests:\n  - name: app\n    url: file:///srv/artifacts/app.yaml\n    sha256: \"" + hex.EncodeToString(sum[:]) + "\"\n"; !strings.HasSuffix(out, want) {
		t.Errorf("block:\n%s\nwant at its end\n%s", out, want)
	}
	if data, err := os.ReadFile(in("www/ortet-node")); err != nil || string(data) != "ortet-node" {
		t.Errorf("copy: %q %v", data, err)
	}
}

func TestClusterMissingFile(t *testing.T) {
	for _, command := range []string{"validate", "up", "plan", "status", "endpoints", "down", "keys"} {
		code, _, err := run(t, "cluster", command, "-f", filepath.Join(t.TempDir(), "none.yaml"))
		if code != workflow.ExitRefused || !strings.Contains(err, "ortet cluster init") {
			t.Errorf("%s: exit code %d: %s", command, code, err)
		}
	}
}

func TestClusterUsage(t *testing.T) {
	for _, args := range []string{"init", "init --name a --location b --pool x", "up --own-address x", "down --all --storage", "artifacts d", "artifacts d --k3s k --url ftp://x", "export d"} {
		if code, _, err := run(t, append([]string{"cluster"}, strings.Fields(args)...)...); code != ExitUsage {
			t.Errorf("%s: exit code %d: %s", args, code, err)
		}
	}
}

// Azure's names and sentences are long; tables are not.
func TestClusterTablesFit(t *testing.T) {
	long := strings.Repeat("long", 20)
	var b strings.Builder
	writeClusterPlan(&b, &lifecycle.Plan{Changes: []lifecycle.Change{{Change: "Modify", Group: "g", Type: "Microsoft.Compute/virtualMachineScaleSets", Name: long, What: []string{"sku.capacity"}}}, Counts: map[string]int{"Modify": 1},
		Billed: []lifecycle.Charge{{What: "Standard_" + long + ", Spot", Number: 1000, When: lifecycle.BilledUp}, {What: "OS disk, StandardSSD_LRS, 4095 GB", Number: 1000, When: lifecycle.BilledStopped}}})
	writeClusterStatus(&b, &lifecycle.Status{Cluster: "demo", Location: "westeurope", Groups: []lifecycle.GroupStatus{{Name: long, Exists: true, State: "Succeeded", Deployment: "Succeeded"}},
		Pools: []lifecycle.PoolStatus{{Name: "agents", Size: "Standard_" + long, Priority: "Regular", Wanted: 100, Instances: 100, Running: 100, State: "Succeeded"}}}, time.Now())
	writeFailures(&b, []lifecycle.Failure{{Group: long, Resource: "scale set agents", Code: "SkuNotAvailable", Message: strings.Repeat("word ", 40)}})
	for l := range strings.Lines(b.String()) {
		if n := len([]rune(strings.TrimRight(l, "\n"))); n > resultWidth {
			t.Errorf("%d columns: %s", n, l)
		}
	}
	if !strings.Contains(b.String(), "sku.capacity") || !strings.Contains(b.String(), "1 to modify") || !strings.Contains(b.String(), "1000    up, stopped\n") || !strings.Contains(b.String(), "az vm list-skus -l westeurope ") {
		t.Error(b.String())
	}
}

// What a service answers with as the caller's address, and what is refused.
func TestOwnAddressFromService(t *testing.T) {
	answer, status := "", http.StatusOK
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status == http.StatusFound {
			http.Redirect(w, r, "http://192.0.2.1/", status)
			return
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(answer))
	}))
	defer server.Close()
	for _, test := range []struct {
		answer string
		status int
		want   string
	}{
		{"203.0.113.7\n", 200, "203.0.113.7"},
		{`{"ip": "2001:db8::7", "country": "PT"}`, 200, "2001:db8::7"},
		{"203.0.113.7", 500, ""},
		{"203.0.113.0/24", 200, ""},
		{"<html>", 200, ""},
		{strings.Repeat(" ", 5<<10) + "203.0.113.7", 200, ""},
		{"", http.StatusFound, ""},
	} {
		answer, status = test.answer, test.status
		got, err := askAddress(t.Context(), server.Client().Transport, server.URL)
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%d %.20q: %q, %v", test.status, test.answer, got, err)
		}
	}
	for _, from := range []string{"http://example.org", "example.org", "https://"} {
		if code, _, err := run(t, "cluster", "plan", "--own-address-from", from); code != ExitUsage || !strings.Contains(err, "want https://") {
			t.Errorf("%s: exit code %d: %s", from, code, err)
		}
	}
}
