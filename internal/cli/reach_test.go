package cli

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/boots/survey"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/workflow"
)

// Every command that asks the cluster ends with why it could not, and with what stays
// open; here its certificate is of another authority.
func TestEveryCommandSaysWhyTheAPIServerWasNotAsked(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	other := httptest.NewTLSServer(nil)
	defer other.Close()
	config, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c", "user": "u"}}},
		"users":    []any{map[string]any{"name": "u", "user": map[string]any{"token": "t"}}},
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{
			"server": server.URL, "tls-server-name": "not-in-the-certificate.example",
			"certificate-authority-data": base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: other.Certificate().Raw})),
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"capture n", "capture n --dry-run", "rollback n", "rollout n", "status", "nodes", "boot show n", "boot stats p", "boot diff a b"} {
		code, out, said := run(t, append(strings.Fields(args), "--kubeconfig", file)...)
		if code != workflow.ExitFailed || out != "" {
			t.Errorf("ortet %s: code %d, want %d and no result: %s", args, code, workflow.ExitFailed, out)
		}
		for _, want := range []string{server.URL, "x509", "the same command goes on"} {
			if !strings.Contains(said, want) {
				t.Errorf("ortet %s does not say %q: %s", args, want, said)
			}
		}
	}
}

func TestStatusOfWhatCannotBeRead(t *testing.T) {
	read := capture.PoolStatus{Pool: fleet.Pool{ID: "/subscriptions/s/pool1", Name: "pool1", Location: "eastus"}}
	typo := capture.PoolStatus{Pool: fleet.Pool{ID: "/subscriptions/s/pool2", Name: "pool2"}, Unread: true, Problem: "404 ResourceNotFound"}
	half := capture.PoolStatus{Pool: fleet.Pool{ID: "/subscriptions/s/pool3", Name: "pool3", Location: "eastus"}, Problem: "journal: 403 Forbidden"}
	var out strings.Builder
	o := &options{output: "table", process: Process{Out: &out}}
	err := o.printStatus([]capture.PoolStatus{typo, read, half}, statusOf, time.Time{}, writeStatus)
	for _, want := range []string{"pool2", "404 ResourceNotFound", "pool3", "403 Forbidden"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	if workflow.ExitCode(err) != workflow.ExitFailed {
		t.Errorf("exit %d", workflow.ExitCode(err))
	}
	if !strings.HasPrefix(out.String(), "pool1") || strings.Contains(out.String(), "pool2") || !strings.Contains(out.String(), "pool3") {
		t.Errorf("what was read, and no more, is to be shown:\n%s", out.String())
	}
	out.Reset()
	o.output = "json"
	result, _ := versionsOf([]capture.PoolStatus{read})
	err = o.print(result, nil)
	if err != nil || !strings.Contains(out.String(), `"versions": []`) {
		t.Errorf("a pool without versions is to have an empty list: %v\n%s", err, out.String())
	}
	o.output = "table"
	if err := o.printStatus([]capture.PoolStatus{read}, statusOf, time.Time{}, writeStatus); err != nil {
		t.Errorf("all was read: %v", err)
	}
}

// What could not be read of the cluster or of Azure ends ortet nodes with 1, after what
// could be.
func TestNodesOfWhatCannotBeRead(t *testing.T) {
	var out, said strings.Builder
	o := &options{output: "table", process: Process{Out: &out, Err: &said}}
	s := survey.Survey{Stories: stories(), Notes: []string{"2 serial logs were not read"}, Unread: []string{"Azure was not asked: 403"}}
	if err := o.printNodes(s, false); err == nil || !strings.Contains(err.Error(), "403") || out.Len() == 0 {
		t.Errorf("%v after:\n%s", err, out.String())
	}
	if err := o.printNodes(survey.Survey{Stories: stories(), Notes: s.Notes}, false); err != nil {
		t.Errorf("a note is no failure: %v", err)
	}
	out.Reset()
	if err := o.printNodes(survey.Survey{Unread: s.Unread}, false); err == nil || out.Len() != 0 {
		t.Errorf("nothing was read (%v), and the answer is %q", err, out.String())
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestAResultThatCannotBeWrittenIsAFailure(t *testing.T) {
	var said strings.Builder
	code := Run(t.Context(), []string{"--help"}, Process{In: strings.NewReader(""), Out: fullDisk{}, Err: &said, Getenv: func(string) string { return "" }})
	if code != workflow.ExitFailed || !strings.Contains(said.String(), "no space left on device") {
		t.Errorf("code %d: %s", code, said.String())
	}
}
