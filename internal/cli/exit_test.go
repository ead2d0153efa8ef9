package cli

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/boots/survey"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/donors"
	"github.com/ortet/ortet/internal/nodeconfig/push"
	"github.com/ortet/ortet/internal/workflow"
)

// aCluster serves an API server that has one Node, a of pool1, others by their provider
// ids, b and so on, or by "NAME SYSTEM-UUID PROVIDER-ID", and nothing else; its kubeconfig is that of
// context demo.
func aCluster(t *testing.T, trusted bool, others ...string) (kubeconfig string) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		node := map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "a", "uid": "1"}, "spec": map[string]any{"providerID": "azure://" + string(pool1) + "/virtualMachines/0"},
			"status": map[string]any{"nodeInfo": map[string]any{"systemUUID": "01111111-2222-4333-8444-555555555555"}, "conditions": []any{map[string]string{"type": "Ready", "status": "True"}}}}
		nodes := []any{node}
		for i, id := range others {
			name, uuid := string(rune('b'+i)), ""
			if f := strings.Fields(id); len(f) == 3 {
				name, uuid, id = f[0], f[1], f[2]
			}
			nodes = append(nodes, map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{"providerID": id}, "status": map[string]any{"nodeInfo": map[string]any{"systemUUID": uuid}}})
		}
		var body any
		switch path := r.URL.Path; {
		case path == "/version":
			body = map[string]string{"major": "1", "minor": "35", "gitVersion": "v1.35.0"}
		case path == "/api/v1/nodes":
			body = map[string]any{"apiVersion": "v1", "kind": "NodeList", "items": nodes}
		case path == "/api/v1/nodes/a":
			body = node
		case strings.HasSuffix(path, "/configmaps"):
			body = map[string]any{"apiVersion": "v1", "kind": "ConfigMapList", "items": []any{}}
		case strings.HasSuffix(path, "/selfsubjectaccessreviews"):
			body = map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "status": map[string]any{"allowed": true}}
		default:
			w.WriteHeader(http.StatusNotFound)
			body = map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": "not found"}
		}
		_ = json.NewEncoder(w).Encode(body)
	}))
	t.Cleanup(server.Close)
	return kubeconfigOf(t, server, trusted)
}

// kubeconfigOf is that of context demo, with a server and, if it is trusted, its name.
func kubeconfigOf(t *testing.T, server *httptest.Server, trusted bool) string {
	t.Helper()
	cluster := map[string]any{"server": server.URL, "certificate-authority-data": base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))}
	if !trusted {
		cluster["tls-server-name"] = "not-in-the-certificate.test"
	}
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Config", "current-context": "demo",
		"contexts": []any{map[string]any{"name": "demo", "context": map[string]any{"cluster": "c", "user": "u"}}},
		"users":    []any{map[string]any{"name": "u", "user": map[string]any{"token": "t"}}}, "clusters": []any{map[string]any{"name": "c", "cluster": cluster}}})
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

const (
	failed      = workflow.ExitFailed
	refused     = workflow.ExitRefused
	needsPerson = workflow.ExitNeedsPerson
	interrupted = workflow.ExitInterrupted
)

// An exitCase is a row of the table: what commands end with in one situation.
type exitCase struct {
	situation string
	code      int
	azure     int // HTTP status of what Azure has not
	nowhere   bool
	canceled  bool
	says      string
	commands  []string
}

// exitTable has the commands that can meet a situation. FILE is a valid nodeconfig.yaml, KEY a
// key, CLUSTER a valid cluster.yaml, BAD a file that is not valid, and NONE one that is missing.
// POOLID is the ARM id of a scale set that Azure does not have.
var exitTable = []exitCase{
	{situation: "no such pool, by name", code: refused, azure: 404, says: "nosuch", commands: []string{
		"donors nosuch", "status nosuch", "capture --pool nosuch", "config plan nosuch -f FILE", "config push nosuch -f FILE --key KEY", "config status nosuch", "config rollback nosuch --key KEY",
		"boot stats nosuch", "boot diff nosuch nosuch", "rollback nosuch", "rollout nosuch", "rollout nosuch --dry-run", "watch nosuch",
		"cluster scale nosuch 1 -f CLUSTER", "cluster resize nosuch s -f CLUSTER", "cluster stop nosuch -f CLUSTER", "cluster start nosuch -f CLUSTER", "cluster reimage nosuch -f CLUSTER", "cluster chaos nosuch --yes nosuch -f CLUSTER"}},
	{situation: "no such pool, by id", code: refused, azure: 404, commands: []string{
		"donors POOLID", "status POOLID", "versions POOLID", "nodes --pool POOLID", "config plan POOLID -f FILE", "config push POOLID -f FILE --key KEY", "config status POOLID", "config rollback POOLID --key KEY", "rollback POOLID", "rollout POOLID", "rollout POOLID --dry-run", "watch POOLID", "capture --pool POOLID"}},
	{situation: "no such node", code: refused, azure: 404, says: "nosuch", commands: []string{
		"capture nosuch", "capture nosuch --dry-run", "rollback nosuch --dry-run", "nodes nosuch", "boot show nosuch", "cluster replace nosuch -f CLUSTER"}},
	{situation: "file not valid", code: refused, azure: 404, says: "BAD", commands: []string{
		"config validate BAD", "config plan pool1 -f BAD", "config push pool1 -f BAD --key KEY", "config push pool1 -f FILE --key BAD", "config rollback pool1 --key BAD", "config keygen --public BAD", "boot analyze BAD",
		"cluster validate -f BAD", "cluster up -f BAD", "cluster plan -f BAD", "cluster status -f BAD", "cluster endpoints -f BAD", "cluster down -f BAD", "cluster keys -f BAD", "cluster agents -f BAD",
		"cluster ssh -f BAD", "cluster proxy -f BAD", "cluster logs -f BAD", "cluster kubeconfig -f BAD", "cluster scale p 1 -f BAD", "cluster replace n -f BAD"}},
	{situation: "no such file", code: refused, azure: 404, says: "no such file", commands: []string{
		"config validate NONE", "config plan pool1 -f NONE", "config push pool1 -f NONE", "config push pool1 -f FILE --key NONE", "config keygen --public NONE", "boot analyze NONE", "explain NONE", "explain FILE NONE",
		"cluster validate -f NONE", "cluster up -f NONE", "cluster plan -f NONE", "cluster status -f NONE", "cluster down -f NONE", "cluster kubeconfig -f NONE", "cluster logs -f NONE", "cluster scale p 1 -f NONE"}},
	{situation: "kubeconfig or azure.json not valid", code: refused, azure: 404, commands: []string{
		"status --kubeconfig BAD", "nodes --kubeconfig NONE", "capture a --kubeconfig BAD", "config status pool1 --kubeconfig NONE", "boot show a --kubeconfig BAD",
		"status --azure-config BADJSON", "nodes --azure-config NONE", "nodes --failed --azure-config BADJSON", "cluster status -f CLUSTER --azure-config NONE"}},
	{situation: "Azure denies it", code: failed, azure: 403, says: "AuthorizationFailed", commands: []string{
		"nodes", "nodes a", "status POOLID", "versions POOLID", "rollout POOLID", "watch POOLID", "config status POOLID", "config plan POOLID -f FILE", "config push POOLID -f FILE --key KEY", "cluster plan -f CLUSTER", "cluster status -f CLUSTER", "cluster endpoints -f CLUSTER", "cluster down -f CLUSTER",
		"cluster ssh -f CLUSTER", "cluster logs -f CLUSTER", "cluster kubeconfig -f CLUSTER", "cluster scale agents 1 -f CLUSTER", "cluster replace n -f CLUSTER"}},
	{situation: "Azure denies it, before a change", code: refused, azure: 403, commands: []string{"capture a", "capture a --dry-run", "rollback a", "rollback POOLID --dry-run"}},
	{situation: "API server not reached", code: failed, azure: 404, nowhere: true, says: "x509", commands: []string{
		"capture a", "capture --all", "donors", "status", "versions", "rollback a", "rollout a", "watch a", "nodes", "nodes --failed", "boot show a", "boot stats p", "boot diff a b", "config plan pool1 -f FILE", "config push pool1 -f FILE --key KEY", "config status pool1",
		"config rollback pool1 --key KEY", "cluster agents -f CLUSTER", "cluster scale p 1 -f CLUSTER", "cluster replace n -f CLUSTER"}},
	{situation: "interrupted", code: interrupted, azure: 404, canceled: true, says: "interrupted", commands: []string{
		"capture a", "donors", "status", "rollback a", "rollout POOLID", "watch POOLID", "nodes", "nodes --failed", "boot show a", "boot stats p", "config plan pool1 -f FILE", "config push pool1 -f FILE --key KEY", "config status pool1",
		"cluster plan -f CLUSTER", "cluster down -f CLUSTER", "cluster agents -f CLUSTER", "cluster scale p 1 -f CLUSTER", "cluster kubeconfig -f CLUSTER"}},
	{situation: "nothing to do", code: workflow.ExitDone, azure: 404, commands: []string{
		"nodes --failed", "version", "explain FILE", "config validate FILE", "config keygen --public KEY", "cluster validate -f CLUSTER", "cluster down -f CLUSTER", "cluster status -f CLUSTER"}},
}

func TestHole13ExitCodes(t *testing.T) {
	dir := t.TempDir()
	key, _ := aKey(t)
	bad := filepath.Join(dir, "BAD")
	if err := os.WriteFile(bad, []byte("kind: Nothing\nspec: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	badJSON := filepath.Join(dir, "azure.json")
	if err := os.WriteFile(badJSON, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	offline(t, dir, "init", "--name", "demo", "--location", "westeurope", "--pool", "agents=2")
	offline(t, dir, "keys")
	names := strings.NewReplacer("FILE", aConfig(t), "KEY", key, "CLUSTER", filepath.Join(dir, "cluster.yaml"), "BADJSON", badJSON, "BAD", bad, "NONE", filepath.Join(dir, "none"), "POOLID", string(pool1)+"-no")
	reached, nowhere := aCluster(t, true), aCluster(t, false)
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", dir)
	carryOut := func(c exitCase, line string) (int, string) {
		env := fakeAzure(t, func(path string) (int, any) {
			if c.azure == http.StatusNotFound && strings.HasSuffix(path, "/virtualMachineScaleSets") {
				return http.StatusOK, map[string]any{"value": []any{}}
			}
			return c.azure, nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if c.canceled {
			cancel()
		}
		kubeconfig := reached
		if c.nowhere {
			kubeconfig = nowhere
		}
		var out, said strings.Builder
		args := strings.Fields(names.Replace(line))
		if !strings.Contains(line, "--kubeconfig") {
			args = append(args, "--kubeconfig", kubeconfig)
		}
		code := Run(ctx, args, Process{In: strings.NewReader(""), Out: &out, Err: &said, Getenv: func(name string) string { return env[name] }})
		return code, said.String()
	}
	met := map[string]bool{}
	for _, c := range exitTable {
		for _, line := range c.commands {
			code, said := carryOut(c, line)
			t.Logf("%d  %-32s  ortet %s", code, c.situation, line)
			if code != c.code || !strings.Contains(said, c.says) {
				t.Errorf("%s: ortet %s ends with %d, want %d with %q:\n%s", c.situation, line, code, c.code, c.says, said)
			}
			met[strings.Join(strings.Fields(line)[:1], " ")] = true
		}
	}
	for _, line := range leaves(Command(Process{}), "") {
		code, _ := carryOut(exitCase{}, line+" --nonsense")
		t.Logf("%d  %-32s  ortet %s --nonsense", code, "wrong flag", line)
		if code != ExitUsage {
			t.Errorf("ortet %s --nonsense ends with %d", line, code)
		}
		if first := strings.Fields(line)[0]; !met[first] && !slices.Contains([]string{"admission", "controller", "operator", "completion", "help"}, first) {
			t.Errorf("the table of exit codes has no ortet %s", line)
		}
	}
	o := &options{output: "table", process: Process{Out: &strings.Builder{}, Err: &strings.Builder{}}}
	for what, s := range map[string]survey.Survey{"failures found": {Stories: stories(), Now: noon}, "failures found, and not all read": {Stories: stories(), Unread: []string{"403"}, Now: noon}} {
		err := o.printNodes(s, true)
		t.Logf("%d  %-32s  ortet nodes --failed", err, what)
		if !errors.Is(err, exitError(needsPerson)) {
			t.Errorf("%s: ortet nodes --failed ends with %v", what, err)
		}
	}
	alone := survey.Survey{Stories: []survey.Story{{Assessment: assess.Assessment{Node: "a"}}}, Unread: []string{"Azure was not asked"}, Now: noon}
	if err := o.printNodes(alone, true); workflow.ExitCode(err) != failed || errors.As(err, new(exitError)) {
		t.Errorf("a Node of which nothing is known, since Azure was not asked: ortet nodes --failed ends with %v", err)
	}
	if err := o.printNodes(survey.Survey{Stories: stories(), Now: noon}, false); err != nil {
		t.Errorf("a list of nodes ends with %v", err)
	}
}

// A Node may report any scale set: one that does not exist is named, and the rest is shown.
func TestHoleNodeOfADeletedScaleSet(t *testing.T) {
	pool2 := string(pool1.Parent()) + "/virtualMachineScaleSets/pool2"
	env := fakeAzure(t, func(path string) (int, any) {
		switch path {
		case pool2:
			return http.StatusOK, map[string]any{"id": pool2, "name": "pool2", "location": "westeurope", "sku": map[string]any{"name": "Standard_D2s_v5", "capacity": 0}, "properties": map[string]any{}}
		case pool2 + "/virtualMachines":
			return http.StatusOK, map[string]any{"value": []any{}}
		}
		return http.StatusNotFound, nil
	})
	kubeconfig := aCluster(t, true, "azure://"+pool2+"/virtualMachines/0")
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	for _, command := range []string{"status", "versions"} {
		var out, said strings.Builder
		code := Run(t.Context(), []string{command, "--kubeconfig", kubeconfig}, Process{In: strings.NewReader(""), Out: &out, Err: &said, Getenv: func(name string) string { return env[name] }})
		if code != workflow.ExitDone || !strings.HasPrefix(out.String(), "pool2") || !strings.Contains(said.String(), "node a reports scale set") || strings.Contains(said.String(), "node b") {
			t.Errorf("ortet %s: code %d\n%s%s", command, code, out.String(), said.String())
		}
	}
}

// A CI job names its kubeconfig by the environment.
func TestHole13KubeconfigOfTheEnvironment(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(bad, []byte("clusters: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{bad, bad + "-missing"} {
		t.Setenv("KUBECONFIG", file)
		var said strings.Builder
		code := Run(t.Context(), []string{"nodes"}, Process{In: strings.NewReader(""), Out: &strings.Builder{}, Err: &said, Getenv: os.Getenv})
		if code != refused || !strings.Contains(said.String(), file) {
			t.Errorf("KUBECONFIG=%s: code %d, want %d: %s", file, code, refused, said.String())
		}
	}
}

// The examples of a capture are not refused for want of an image.
func TestHole07ExamplesOfACapture(t *testing.T) {
	example := newCapture(&options{}).Example
	for _, line := range strings.Split(strings.ReplaceAll(example, "\\\n", ""), "\n") {
		if !strings.Contains(line, "--image") {
			t.Errorf("example without an image: %s", line)
		}
	}
}

// leaves are the commands that can be run.
func leaves(c *cobra.Command, before string) (out []string) {
	for _, sub := range c.Commands() {
		line := strings.TrimSpace(before + " " + sub.Name())
		if sub.HasSubCommands() {
			out = append(out, leaves(sub, line)...)
		} else if sub.Name() != "help" {
			out = append(out, line)
		}
	}
	return out
}

// Every duration that -o json has is text, or is named with its unit.
func TestHole13DurationsInJSON(t *testing.T) {
	for name, c := range map[string]struct {
		v    any
		want map[string]string
	}{
		"config plan": {push.Plan{Expected: 90 * time.Second}, map[string]string{"expected": "1m30s"}},
		"config push": {failure{Result: &push.Result{Took: 90 * time.Second}}, map[string]string{"took": "1m30s"}},
		"donors":      {donors.Choice{Candidates: []donors.Candidate{{Ready: fleet.Duration(time.Hour), Boot: fleet.Duration(90 * time.Second)}}}, map[string]string{"ready": "1h0m0s", "boot": "1m30s"}},
	} {
		text, err := json.Marshal(c.v)
		if err != nil {
			t.Fatal(err)
		}
		for key, want := range c.want {
			if !strings.Contains(string(text), fmt.Sprintf("%q:%q", key, want)) {
				t.Errorf("%s: %s is not %q: %s", name, key, want, text)
			}
		}
	}
}
