package cli

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/internal/boots/survey"
	"github.com/ortet/ortet/internal/workflow"
)

// fakeAzure logs in, and answers a request by its path: nil is 404.
func fakeAzure(t *testing.T, answer func(path string) (status int, body any)) map[string]string {
	t.Helper()
	var server *httptest.Server
	server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var body any
		status := http.StatusOK
		switch {
		case strings.HasSuffix(r.URL.Path, "/openid-configuration"):
			base := server.URL + "/tenant/"
			body = map[string]string{"issuer": base + "v2.0", "authorization_endpoint": base + "oauth2/v2.0/authorize", "token_endpoint": base + "oauth2/v2.0/token"}
		case strings.HasSuffix(r.URL.Path, "/token"):
			body = map[string]any{"access_token": "t", "token_type": "Bearer", "expires_in": 3600}
		default:
			if status, body = answer(r.URL.Path); body == nil {
				body = map[string]any{"error": map[string]string{"code": map[int]string{403: "AuthorizationFailed", 404: "ResourceNotFound"}[status], "message": "no"}}
			}
		}
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "cloud.json")
	text := fmt.Sprintf(`{"resourceManagerEndpoint": %q, "activeDirectoryEndpoint": %q}`, server.URL, server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"AZURE_ENVIRONMENT_FILEPATH": file, "AZURE_TENANT_ID": "tenant", "AZURE_CLIENT_ID": "client", "AZURE_CLIENT_SECRET": "s", "AZURE_SUBSCRIPTION_ID": "5ca1ab1e-0000-4000-8000-000000000002"}
}

// A laptop is an operator's with a cluster.yaml, whose server is the program that it has as
// ssh.
type laptop struct {
	dir, kubeconfig string
	env             map[string]string
}

func newLaptop(t *testing.T) *laptop {
	t.Helper()
	dir := t.TempDir()
	l := &laptop{dir: dir, kubeconfig: filepath.Join(dir, "kubeconfig")}
	offline(t, dir, "init", "--name", "demo", "--location", "westeurope", "--pool", "agents=2")
	l.env = fakeAzure(t, func(path string) (int, any) {
		switch {
		case strings.HasSuffix(path, "/virtualMachines/server"):
			return 200, map[string]any{"tags": map[string]string{"ortet.io_ssh-host-key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJqTjm7Jp0dT5zB0qQ2vH3H0m1f3Q6lq0mF0ZK0wqS5V"}}
		case strings.HasSuffix(path, "/publicIPAddresses/server"):
			return 200, map[string]any{"properties": map[string]any{"ipAddress": "203.0.113.7", "dnsSettings": map[string]string{"fqdn": "demo.westeurope.example"}}}
		}
		return 404, nil
	})
	file := filepath.Join(dir, "cluster.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := yaml.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	spec := v["spec"].(map[string]any)
	access, _ := spec["access"].(map[string]any)
	if access == nil {
		access = map[string]any{}
	}
	access["ssh"], access["api"] = []string{"198.51.100.0/24"}, []string{"198.51.100.0/24"}
	spec["access"] = access
	if text, err = yaml.Marshal(v); err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "ssh"), []byte("#!/bin/sh\nexec cat \""+filepath.Join(dir, "answer")+"\"\n"), 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// run carries out ortet cluster while the server answers ssh with answer.
func (l *laptop) run(t *testing.T, answer string, args ...string) (code int, out, err string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(l.dir, "answer"), []byte(answer), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", l.dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	var stdout, stderr strings.Builder
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	code = Run(ctx, append([]string{"cluster", "-f", filepath.Join(l.dir, "cluster.yaml"), "--kubeconfig", l.kubeconfig}, args...), Process{
		In: strings.NewReader(""), Out: &stdout, Err: &stderr, Getenv: func(name string) string { return l.env[name] },
	})
	return code, stdout.String(), stderr.String()
}

// k3sYAML is what k3s writes, with changes.
func k3sYAML(t *testing.T, change func(cluster, user, top map[string]any)) string {
	t.Helper()
	certificate, key := aPair(t)
	cluster := map[string]any{"certificate-authority-data": certificate, "server": "https://127.0.0.1:6443"}
	user := map[string]any{"client-certificate-data": certificate, "client-key-data": key}
	top := map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "default", "preferences": map[string]any{},
		"clusters": []any{map[string]any{"name": "default", "cluster": cluster}},
		"users":    []any{map[string]any{"name": "default", "user": user}},
		"contexts": []any{map[string]any{"name": "default", "context": map[string]any{"cluster": "default", "user": "default"}}},
	}
	if change != nil {
		change(cluster, user, top)
	}
	text, err := yaml.Marshal(top)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// aPair is a certificate and its key in PEM and base64.
func aPair(t *testing.T) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "system:admin"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return encode("CERTIFICATE", der), encode("EC PRIVATE KEY", text)
}

func TestHole02KubeconfigOfAHostileServer(t *testing.T) {
	l := newLaptop(t)
	ran := filepath.Join(l.dir, "ran")
	run := map[string]any{"apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": []any{ran}, "interactiveMode": "Never"}
	other, _ := aPair(t)
	for name, c := range map[string]struct {
		change func(cluster, user, top map[string]any)
		says   []string
	}{
		"exec":             {func(_, u, _ map[string]any) { u["exec"] = run }, []string{"users[0].user.exec"}},
		"exec of a plugin": {func(_, u, _ map[string]any) { u["auth-provider"] = map[string]any{"name": "gcp"} }, []string{"users[0].user.auth-provider"}},
		"tokenFile":        {func(_, u, _ map[string]any) { u["tokenFile"] = "/etc/shadow" }, []string{"users[0].user.tokenFile"}},
		"token, name, file": {func(_, u, _ map[string]any) {
			u["token"], u["as"], u["client-key"], u["username"] = "t", "x", "/k", "n"
		}, []string{"user.token", "user.as", "user.client-key", "user.username"}},
		"proxy-url": {func(c, _, _ map[string]any) { c["proxy-url"] = "http://203.0.113.9" }, []string{"clusters[0].cluster.proxy-url"}},
		"insecure":  {func(c, _, _ map[string]any) { c["insecure-skip-tls-verify"] = true }, []string{"clusters[0].cluster.insecure-skip-tls-verify"}},
		"several": {func(c, u, _ map[string]any) {
			c["tls-server-name"], c["certificate-authority"], c["disable-compression"], c["extensions"], u["exec"] = "x", "/etc/passwd", true, []any{}, run
		}, []string{"tls-server-name", "certificate-authority ", "disable-compression", "cluster.extensions", "user.exec"}},
		"top": {func(_, _, top map[string]any) {
			top["extensions"], top["preferences"] = []any{}, map[string]any{"colors": true}
		}, []string{"extensions", "preferences.colors"}},
		"second user": {func(_, u, top map[string]any) {
			top["users"] = append(top["users"].([]any), map[string]any{"name": "b", "user": u})
		}, []string{"users[1].name is not accepted"}},
		"namespace": {func(_, _, top map[string]any) {
			top["contexts"].([]any)[0].(map[string]any)["context"].(map[string]any)["namespace"] = "x"
		}, []string{"context.namespace"}},
		"many": {func(_, u, _ map[string]any) {
			for i := range 300 {
				u[fmt.Sprintf("x%03d", i)] = i
			}
		}, []string{"refused for 21 reasons", "users[0].user.x000", "it has more fields"}},
		"long":         {func(_, u, _ map[string]any) { u[strings.Repeat("x", 900)] = 1 }, []string{"users[0].user.xxx"}},
		"another form": {func(_, _, top map[string]any) { top["users"] = 1 }, []string{"users is not accepted", "client-key-data is not base64"}},
		"control":      {func(_, u, _ map[string]any) { u["\x1b[2Jexec"] = "x" }, []string{`\x1b[2Jexec`}},
		"other's key":  {func(_, u, _ map[string]any) { u["client-certificate-data"] = other }, []string{"are no pair"}},
		"no PEM": {func(c, _, _ map[string]any) {
			c["certificate-authority-data"] = base64.StdEncoding.EncodeToString([]byte("x"))
		}, []string{"certificate-authority-data is not accepted"}},
		"without a key": {func(_, u, _ map[string]any) { delete(u, "client-key-data") }, []string{"client-key-data is not base64"}},
		"too long":      {func(_, u, _ map[string]any) { u["x"] = strings.Repeat("x", 1<<20) }, []string{"it is longer than 64 KiB"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, said := l.run(t, k3sYAML(t, c.change), "kubeconfig")
			said = strings.Join(strings.Fields(said), " ")
			if code != workflow.ExitRefused || out != "" {
				t.Errorf("code %d, want %d, and nothing printed: %s%s", code, workflow.ExitRefused, out, said)
			}
			for _, want := range c.says {
				if !strings.Contains(said, want) {
					t.Errorf("the refusal does not name %q: %s", want, said)
				}
			}
			for _, file := range []string{l.kubeconfig, ran} {
				if _, err := os.Stat(file); !os.IsNotExist(err) {
					t.Errorf("%s is there: %v", file, err)
				}
			}
			t.Log(said)
		})
	}
	if code, out, said := l.run(t, k3sYAML(t, func(_, u, _ map[string]any) { u["exec"] = run }), "kubeconfig", "--print"); code != workflow.ExitRefused || out != "" {
		t.Errorf("--print: code %d\n%s%s", code, out, said)
	}
}

func TestHole02KubeconfigIsMerged(t *testing.T) {
	l := newLaptop(t)
	if err := os.WriteFile(l.kubeconfig, []byte("apiVersion: v1\nkind: Config\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 { // again, after ortet cluster down and up
		answer := k3sYAML(t, func(c, _, _ map[string]any) { c["server"] = "https://203.0.113.9:443" })
		if code, out, said := l.run(t, answer, "kubeconfig"); code != 0 {
			t.Fatalf("code %d\n%s%s", code, out, said)
		}
	}
	if s, err := os.Stat(l.kubeconfig); err != nil || s.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", s.Mode(), err)
	}
	mine, err := clientcmd.LoadFromFile(l.kubeconfig)
	if err != nil || mine.CurrentContext != "demo" || mine.Clusters["demo"].Server != "https://203.0.113.7:6443" || mine.Clusters["demo"].TLSServerName != "demo.westeurope.example" {
		t.Fatalf("%+v %v", mine, err)
	}
	for name, entry := range map[string]string{
		"cluster": "clusters: [{name: demo, cluster: {server: https://prod.example}}]",
		"user":    "users: [{name: demo, user: {token: mine}}]",
		"context": "contexts: [{name: demo, context: {cluster: prod, user: prod}}]",
		"user with more": "clusters: [{name: demo, cluster: {server: https://203.0.113.7:6443, tls-server-name: demo.westeurope.example}}]\n" +
			"users: [{name: demo, user: {token: mine}}]",
	} {
		text := "apiVersion: v1\nkind: Config\n" + entry + "\n"
		if err := os.WriteFile(l.kubeconfig, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, said := l.run(t, k3sYAML(t, nil), "kubeconfig")
		after, err := os.ReadFile(l.kubeconfig)
		if code != workflow.ExitRefused || !strings.Contains(said, strings.Fields(name)[0]+" demo is another's") || err != nil || string(after) != text {
			t.Errorf("%s: code %d, %v: %s\n%s", name, code, err, said, after)
		}
	}
	if code, _, said := l.run(t, k3sYAML(t, nil), "kubeconfig", "--name", "a\x1b[2J"); code != ExitUsage || strings.Contains(said, "\x1b") {
		t.Errorf("a name with control characters: code %d: %q", code, said)
	}
}

// What servers, nodes and tags say is text for a terminal, and nothing that it carries out.
func TestHole02TerminalsCarryOutNothing(t *testing.T) {
	l := newLaptop(t)
	if code, out, said := l.run(t, "k3s[1]: \x1b]0;owned\x07 größe\t1\x9b\u009b31m\n", "logs"); code != 0 || strings.ContainsAny(out, "\x1b\x07\u009b") || !strings.Contains(out, "größe\t1") || !strings.HasSuffix(out, "\n") {
		t.Errorf("logs: code %d: %q %q", code, out, said)
	}
	var out, said strings.Builder
	o := &options{output: "table", process: Process{Out: &out, Err: &said}}
	all := stories()
	all[3].Verdict.Evidence[0].Lines = []string{"\x1b[2J\x1b]52;c;cm0gLXJmIC8=\x07failed"}
	all[3].Verdict.Message = "\x1b[31mred"
	if err := o.printNode(survey.Survey{Stories: all[3:4], Now: noon}, all[3].HostName); err != nil || strings.ContainsAny(out.String(), "\x1b\x07") || !strings.Contains(out.String(), "failed") {
		t.Errorf("%v: %q", err, out.String())
	}
	writeError(&said, fmt.Errorf("node says \x1b[2J"))
	newProgress(&said, func(string) string { return "" }).Report(workflow.Event{Step: "s", Kind: workflow.EventBegun, Message: "\x1b[2J"})
	if strings.Contains(said.String(), "\x1b") {
		t.Errorf("%q", said.String())
	}
}
