package cli

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/boots/survey"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/nodeconfig/push"
	"github.com/ortet/ortet/internal/workflow"
)

// fakePusher answers what it is given, and keeps what it was asked.
type fakePusher struct {
	result *push.Result
	err    error
	status push.Status
	plan   push.Plan
	pool   fleet.ResourceID
	pushed []push.Request
	to     []int64
	report func(string)
}

func (f *fakePusher) Plan(_ context.Context, pool fleet.ResourceID, _ nodeconfig.Config) (*push.Plan, error) {
	f.pool = pool
	return &f.plan, f.err
}

func (f *fakePusher) Push(_ context.Context, pool fleet.ResourceID, o push.Request) (*push.Result, error) {
	f.pool, f.pushed = pool, append(f.pushed, o)
	f.report("Put userData of instance 0")
	return f.result, f.err
}

func (f *fakePusher) Status(_ context.Context, pool fleet.ResourceID) (*push.Status, error) {
	f.pool = pool
	return &f.status, f.err
}

func (f *fakePusher) Rollback(ctx context.Context, pool fleet.ResourceID, to int64, o push.Request) (*push.Result, error) {
	f.to = append(f.to, to)
	return f.Push(ctx, pool, o)
}

// runConfig carries out ortet config on f, with a cluster that has pool1.
func runConfig(t *testing.T, f *fakePusher, in string, args ...string) (code int, out, err string) {
	t.Helper()
	var stdout, stderr strings.Builder
	code = Run(t.Context(), append([]string{"config"}, args...), Process{
		In: strings.NewReader(in), Out: &stdout, Err: &stderr, Getenv: func(string) string { return "" },
		rollouts: func(_ context.Context, report func(string)) (pusher, survey.Finder, error) {
			f.report = report
			return f, survey.Finder{Nodes: providerNodes("azure://" + string(pool1) + "/virtualMachines/0"), Places: &azure.Places{}}, nil
		},
	})
	return code, stdout.String(), stderr.String()
}

// stoppedPusher is interrupted in each push.
type stoppedPusher struct {
	*fakePusher
	stop context.CancelFunc
}

func (p stoppedPusher) Push(ctx context.Context, pool fleet.ResourceID, o push.Request) (*push.Result, error) {
	p.stop()
	return p.fakePusher.Push(ctx, pool, o)
}

// What is left after Ctrl-C is named without the words of a context.
func TestInterruptedOutcomeIsShownAlone(t *testing.T) {
	key, _ := aKey(t)
	f := &fakePusher{result: &push.Result{Pool: pool1}, err: &workflow.Outcome{Exit: workflow.ExitNeedsPerson, Step: "waves", Left: []string{"node b has generation 6"}, Err: errors.New("a failed")}}
	ctx, stop := context.WithCancel(t.Context())
	var out, said strings.Builder
	code := Run(ctx, []string{"config", "push", string(pool1), "-f", aConfig(t), "--key", key}, Process{
		In: strings.NewReader(""), Out: &out, Err: &said, Getenv: func(string) string { return "" },
		rollouts: func(_ context.Context, report func(string)) (pusher, survey.Finder, error) {
			f.report = report
			return stoppedPusher{f, stop}, survey.Finder{Nodes: providerNodes("azure://" + string(pool1) + "/virtualMachines/0"), Places: &azure.Places{}}, nil
		},
	})
	if code != workflow.ExitNeedsPerson || !strings.HasSuffix(said.String(), "node b has generation 6\n") {
		t.Errorf("exit code %d\n%s\n%s", code, out.String(), said.String())
	}
}

// aKey is a new key's file, and its public key.
func aKey(t *testing.T) (file string, public nodeconfig.PublicKey) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "ortet-config.key")
	code, out, err := run(t, "config", "keygen", "--out", file, "-o", "json")
	var k publicKey
	if code != 0 || json.Unmarshal([]byte(out), &k) != nil {
		t.Fatalf("keygen: %d\n%s%s", code, out, err)
	}
	return file, k.PublicKey
}

const configHead = "apiVersion: ortet.io/v1alpha1\nkind: NodeConfig\nspec: "

func aConfig(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nodeconfig.yaml")
	if err := os.WriteFile(file, []byte(configHead+`{sysctls: {net.core.somaxconn: "4096"}, files: [{path: /etc/motd, content: hello}, {path: /etc/issue, content: x}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestConfigUsage(t *testing.T) {
	key, _ := aKey(t)
	file := aConfig(t)
	third := strings.Repeat(" --accept-key ed25519:"+strings.Repeat("A", 42)+"E=", 1) + " --accept-key ed25519:" + strings.Repeat("B", 42) + "E="
	for _, c := range []struct{ args, says string }{
		{"keygen x", `keygen takes no arguments, not ["x"]`},
		{"keygen --out a --public b", "--out and --public exclude each other"},
		{"validate", "name the configuration's file"},
		{"plan", "name the pool: a scale set's name or ARM id"},
		{"plan pool1", "name the configuration with -f FILE"},
		{"plan a b -f " + file, "takes one argument"},
		{"plan /subscriptions/s -f " + file, "neither the name of a scale set nor its ARM id"},
		{"push pool1", "name the configuration with -f FILE"},
		{"push pool1 -f " + file + " --max-unavailable 0", "--max-unavailable 0: want 1 to 9999, or 1% to 100%"},
		{"push pool1 -f " + file + " --max-unavailable 101%", "--max-unavailable 101%"},
		{"push pool1 -f " + file + " --timeout 0s", "--timeout 0s: want 1s to 1h"},
		{"push pool1 -f " + file + " --accept-key ssh-ed25519", "--accept-key: read public key"},
		{"push pool1 -f " + file + " --key " + key + third, "nodes accept 2 keys at once"},
		{"status", "name the pool"},
		{"status a/b", "neither the name"},
		{"rollback pool1 --to -1", "--to -1: want a generation, 1 or more"},
		{"rollback pool1 --to x", "invalid argument"},
		{"psh pool1", `unknown command "psh" for "ortet config"; did you mean "push"?`},
	} {
		code, out, err := runConfig(t, &fakePusher{}, "", strings.Fields(c.args)...)
		if code != ExitUsage || out != "" || !strings.Contains(err, c.says) {
			t.Errorf("ortet config %s: code %d, want %d with %q\nout: %s\nerr: %s", c.args, code, ExitUsage, c.says, out, err)
		}
	}
	if code, out, _ := run(t, "config"); code != 0 || !strings.Contains(out, "Available Commands:") {
		t.Errorf("ortet config: %d %s", code, out)
	}
}

func TestKeygen(t *testing.T) {
	file, public := aKey(t)
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	before, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(before), "-----BEGIN PRIVATE KEY-----\n") {
		t.Fatalf("%v:\n%s", err, before)
	}
	code, _, said := run(t, "config", "keygen", "--out", file)
	after, _ := os.ReadFile(file)
	if code != workflow.ExitRefused || !strings.Contains(said, "file exists and is not overwritten") || string(after) != string(before) {
		t.Errorf("over an existing key: %d %s", code, said)
	}
	code, out, said := run(t, "config", "keygen", "--public", file)
	if code != 0 || !strings.Contains(out, "Public key: "+string(public)+"\n") || strings.Contains(out, "Wrote") {
		t.Fatalf("%d %s%s", code, out, said)
	}
	// What it prints for customData is what the file on the node has to be.
	_, cloudConfig, _ := strings.Cut(out, "#cloud-config\n")
	var c struct {
		WriteFiles []struct{ Path, Permissions, Content string } `json:"write_files"`
	}
	if err := yaml.UnmarshalStrict([]byte(cloudConfig), &c); err != nil || len(c.WriteFiles) != 1 {
		t.Fatalf("%v\n%s", err, cloudConfig)
	}
	var settings struct{ Keys []nodeconfig.PublicKey }
	w := c.WriteFiles[0]
	if err := json.Unmarshal([]byte(w.Content), &settings); err != nil || w.Path != "/etc/ortet/config.json" || w.Permissions != "0644" || !slices.Equal(settings.Keys, []nodeconfig.PublicKey{public}) {
		t.Errorf("%v: %+v", err, w)
	}
}

func TestKeysThatAreRefused(t *testing.T) {
	dir := t.TempDir()
	weak, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(weak)
	if err != nil {
		t.Fatal(err)
	}
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	spki, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	for name, c := range map[string]struct{ text, says string }{
		"encrypted": {block("ENCRYPTED PRIVATE KEY", []byte{1}), `PEM is "ENCRYPTED PRIVATE KEY"; want an ed25519 key in PKCS#8 PEM without a passphrase`},
		"rsa":       {block("PRIVATE KEY", pkcs8), "key is *rsa.PrivateKey; want"},
		"pkcs1":     {block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(weak)), `PEM is "RSA PRIVATE KEY"; want`},
		"public":    {block("PUBLIC KEY", spki), `PEM is "PUBLIC KEY"; want`},
		"ssh":       {block("OPENSSH PRIVATE KEY", []byte("openssh-key-v1")), `PEM is "OPENSSH PRIVATE KEY"; want`},
		"text":      {"ed25519:AAAA", "file is not PEM; want"},
		"broken":    {block("PRIVATE KEY", []byte{1}), "want an ed25519 key"},
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, said := run(t, "config", "keygen", "--public", file)
		if said = strings.Join(strings.Fields(said), " "); code != workflow.ExitRefused || !strings.Contains(said, c.says) {
			t.Errorf("%s: %d %s", name, code, said)
		}
	}
	file, _ := aKey(t)
	for _, mode := range []os.FileMode{0o640, 0o604, 0o660} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		f := &fakePusher{}
		code, _, said := runConfig(t, f, "", "push", "pool1", "-f", aConfig(t), "--key", file)
		if code != workflow.ExitRefused || !strings.Contains(strings.Join(strings.Fields(said), " "), "run chmod 600 "+file) || len(f.pushed) > 0 {
			t.Errorf("mode %o: %d %s", mode, code, said)
		}
	}
	if code, _, said := runConfig(t, &fakePusher{}, "", "push", "pool1", "-f", aConfig(t), "--key", file+"x"); code != workflow.ExitRefused || !strings.Contains(said, "ortet config keygen") {
		t.Errorf("no key: %d %s", code, said)
	}
}

func TestValidate(t *testing.T) {
	file := aConfig(t)
	code, out, _ := runConfig(t, &fakePusher{}, "", "validate", file)
	// The path of the file decides where lines are broken.
	if code != 0 || !strings.Contains(strings.Join(strings.Fields(out), " "), " is valid: 2 files, 1 sysctl. Digest: sha256:") || !strings.Contains(out, " of 65536 bytes\n") {
		t.Errorf("%d\n%s", code, out)
	}
	code, out, _ = runConfig(t, &fakePusher{}, configHead+`{sysctls: {net.core.somaxconn: "1"}}`, "validate", "-", "-o", "json")
	var s configSize
	if err := json.Unmarshal([]byte(out), &s); code != 0 || err != nil || !s.Valid || s.Holds["sysctls"] != 1 || s.UserData == 0 || s.Limit != 65536 {
		t.Errorf("%d %v\n%s", code, err, out)
	}
	code, out, said := runConfig(t, &fakePusher{}, configHead+"{files: [{path: a, content: x}],\nsysctls: 1}", "validate", "-")
	if code != workflow.ExitRefused || out != "" || !strings.Contains(said, "\n  - standard input:3: spec.files[0].path: ") || !strings.Contains(said, "\n  - standard input:4: spec.sysctls: ") {
		t.Errorf("%d %s\n%s", code, out, said)
	}
	code, out, _ = runConfig(t, &fakePusher{}, configHead+"{files: [{path: a, content: x}],\nsysctls: 1}", "validate", "-", "-o", "json")
	var f failure
	if err := json.Unmarshal([]byte(out), &f); code != workflow.ExitRefused || err != nil || f.Exit != workflow.ExitRefused || len(f.Problems) != 2 || !strings.Contains(f.Error, "input:4: spec.sysctls") {
		t.Errorf("%d %v\n%s", code, err, out)
	}
	random := make([]byte, 64<<10)
	_, _ = rand.Read(random)
	text := configHead + "{files: [{path: /a, content: " + base64.StdEncoding.EncodeToString(random) + "}]}"
	if code, out, said := runConfig(t, &fakePusher{}, text, "validate", "-"); code != workflow.ExitRefused || out != "" || !strings.Contains(said, "too large for userData") {
		t.Errorf("%d %s\n%s", code, out, said)
	}
	if code, _, said := runConfig(t, &fakePusher{}, "", "validate", file+"x"); code != workflow.ExitRefused || !strings.Contains(said, "no such file") {
		t.Errorf("%d %s", code, said)
	}
}

func TestPushIsGivenItsFlags(t *testing.T) {
	key, public := aKey(t)
	_, next := aKey(t)
	f := &fakePusher{result: &push.Result{Pool: pool1, Generation: 7, Nodes: []push.Node{{Name: "a", Ready: true, Generation: 7, State: "Applied"}}, Took: time.Minute}}
	code, out, said := runConfig(t, f, "", "push", strings.ToUpper(pool1.Name()), "-f", aConfig(t), "--key", key, "--canary", "b", "--max-unavailable", "25%",
		"--timeout", "90s", "--retry", "--replace-user-data", "--accept-key", string(next), "--skip-node", "c", "--skip-node", "d", "--reset-generation")
	if code != 0 || len(f.pushed) != 1 || !f.pool.Equal(pool1) || !strings.Contains(out, "generation 7 is on 1 of 1 node after 1m00s.") {
		t.Fatalf("%d %s\n%s\n%s", code, f.pool, out, said)
	}
	if !strings.HasSuffix(strings.TrimSpace(said), "  Put userData of instance 0") {
		t.Errorf("progress: %q", said)
	}
	o := f.pushed[0]
	keys := []nodeconfig.PublicKey{public, next}
	slices.Sort(keys)
	if o.Config.Sysctls["net.core.somaxconn"] != "4096" || o.Canary != "b" || o.MaxUnavailable != "25%" || o.Timeout != 90*time.Second || !o.Retry || !o.ReplaceUserData || !o.ResetGeneration || !slices.Equal(o.SkipNodes, []string{"c", "d"}) ||
		!slices.Equal(o.Keys, keys) || nodeconfig.PublicKeyOf(o.Key.Public().(ed25519.PublicKey)) != public {
		t.Errorf("%+v", o)
	}
	if code, _, said := runConfig(t, f, "", "push", "pool1", "-f", aConfig(t), "--key", key); code != workflow.ExitRefused || !strings.Contains(said, pool1.Name()) {
		t.Errorf("a pool that is not there: %d %s", code, said)
	}
	// Without --accept-key nodes keep the keys that they accept.
	if code, _, said := runConfig(t, f, "", "push", string(pool1), "-f", aConfig(t), "--key", key); code != 0 || f.pushed[1].Keys != nil || f.pushed[1].MaxUnavailable != "1" {
		t.Errorf("%d %s", code, said)
	}
}

func TestPushThatFails(t *testing.T) {
	key, _ := aKey(t)
	args := []string{"push", string(pool1), "-f", aConfig(t), "--key", key}
	result := &push.Result{Pool: pool1, Generation: 7, Took: time.Minute,
		Nodes: []push.Node{{Name: "a", Ready: true, Generation: 6, Wanted: 7, State: "Failed", Reason: "Unhealthy", Message: "kubelet.service exited"}},
		Left:  []push.Node{{Name: "b", Ready: true, Generation: 6, State: "Applied"}}}
	f := &fakePusher{result: result, err: errors.New("canary a failed: Unhealthy; correct the configuration and push again")}
	code, out, said := runConfig(t, f, "", args...)
	if code != workflow.ExitFailed || !strings.Contains(out, "generation 7 is on 0 of 2 nodes") || !strings.Contains(out, "\n  kubelet.service exited\n") || !strings.Contains(said, "ortet: canary a failed") {
		t.Errorf("%d\n%s\n%s", code, out, said)
	}
	code, out, _ = runConfig(t, f, "", append(args, "-o", "json")...)
	var got struct {
		Result struct{ Nodes, Left []push.Node }
		Exit   int
		Error  string
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != workflow.ExitFailed || got.Exit != 1 || got.Result.Nodes[0].Reason != "Unhealthy" || len(got.Result.Left) != 1 {
		t.Errorf("%d %v\n%s", code, err, out)
	}
	f = &fakePusher{result: result, err: &workflow.Outcome{Exit: workflow.ExitInterrupted, Step: "waves", Left: []string{"1 of 2 nodes have generation 7"}, Err: context.Canceled}}
	if code, out, said := runConfig(t, f, "", args...); code != workflow.ExitInterrupted || !strings.Contains(out, "k8s-pool1") || !strings.Contains(said, "run the same command to resume") {
		t.Errorf("%d\n%s\n%s", code, out, said)
	}
	f = &fakePusher{result: &push.Result{Pool: pool1, Nodes: result.Nodes}, err: &workflow.Refused{Problems: []fleet.Problem{{Code: "UserDataForeign", On: string(pool1), What: "has userData that is not Ortet's", WayOut: "give --replace-user-data"}}}}
	code, out, said = runConfig(t, f, "", args...)
	if code != workflow.ExitRefused || out != "" || !strings.Contains(said, "-> give --replace-user-data") {
		t.Errorf("%d\n%s\n%s", code, out, said)
	}
}

func TestConfigRollback(t *testing.T) {
	key, _ := aKey(t)
	f := &fakePusher{result: &push.Result{Pool: pool1, Generation: 8, ContentOf: 6}}
	code, out, said := runConfig(t, f, "", "rollback", string(pool1), "--key", key, "-o", "json")
	if code != 0 || !strings.Contains(out, `"contentOf": 6`) || !strings.Contains(out, `"generation": 8`) {
		t.Errorf("%d\n%s\n%s", code, out, said)
	}
	f.err = errors.New("the history has no generation 3")
	code, _, said = runConfig(t, f, "", "rollback", string(pool1), "--key", key, "--to", "3", "--max-unavailable", "2")
	if code != workflow.ExitFailed || !strings.Contains(said, "no generation 3") || !slices.Equal(f.to, []int64{0, 3}) || f.pushed[1].MaxUnavailable != "2" {
		t.Errorf("%d %v\n%s", code, f.to, said)
	}
}

// Every flag of ortet config is on its page.
func TestConfigFlagsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/how-to/config.md")
	if err != nil {
		t.Fatal(err)
	}
	group, _, err := Command(Process{}).Find([]string{"config"})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, c := range group.Commands() {
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			n++
			if !strings.Contains(string(page), "--"+f.Name) {
				t.Errorf("docs/how-to/config.md lacks --%s of %s", f.Name, c.CommandPath())
			}
		})
	}
	if n < 15 {
		t.Errorf("only %d flags were seen", n)
	}
}
