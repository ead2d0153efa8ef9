//go:build e2e

package extension

import (
	"archive/zip"
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// agentCode is a folder with the Azure Linux Agent's own Python code: Debian's, or
// another that ORTET_WAAGENT names.
func agentCode(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("ORTET_WAAGENT"); dir != "" {
		return dir
	}
	var said bytes.Buffer
	cmd := exec.Command("../../../hack/extension/waagent.sh")
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("NOT TESTED with the Azure agent's own code: %v: %s", err, strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(string(out))
}

// azureAgent is the agent's handler code at work.
type azureAgent struct {
	t        *testing.T
	lib      string
	packages string
	requests io.Writer
	answers  *bufio.Scanner
}

func startAgent(t *testing.T) *azureAgent {
	t.Helper()
	code := agentCode(t)
	python, err := exec.LookPath("/usr/bin/python3")
	if err != nil {
		t.Skipf("NOT TESTED with the Azure agent's own code: %v", err)
	}
	base := t.TempDir()
	a := &azureAgent{t: t, lib: filepath.Join(base, "lib"), packages: filepath.Join(base, "packages")}
	for _, dir := range []string{a.lib, a.packages, filepath.Join(base, "log")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(python, "testdata/agent.py", a.lib, filepath.Join(base, "log"), a.packages)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+code, "PYTHONDONTWRITEBYTECODE=1")
	var said bytes.Buffer
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // it ends with its input
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("the agent: %v: %s", err, said.String())
		}
	})
	a.requests, a.answers = in, bufio.NewScanner(out)
	a.answers.Buffer(nil, 1<<20)
	return a
}

type answer struct {
	Error, State, Status, Message, Operation, Handler string
	Code                                              int
	Done                                              bool
	File                                              int
	Heartbeat                                         map[string]any
	Substatus                                         []struct {
		Name, Status, Message string
		Code                  int
	}
}

func (a *azureAgent) ask(request map[string]any) answer {
	a.t.Helper()
	line, err := json.Marshal(request)
	if err == nil {
		_, err = a.requests.Write(append(line, '\n'))
	}
	if err != nil {
		a.t.Fatal(err)
	}
	if !a.answers.Scan() {
		a.t.Fatalf("%v: no answer: %v", request, a.answers.Err())
	}
	var got answer
	if err := json.Unmarshal(a.answers.Bytes(), &got); err != nil {
		a.t.Fatalf("%v: %s", err, a.answers.Text())
	}
	return got
}

func (a *azureAgent) must(request map[string]any) answer {
	a.t.Helper()
	got := a.ask(request)
	if got.Error != "" {
		a.t.Fatalf("%v: the agent says %s", request, got.Error)
	}
	return got
}

// pack makes a package of our program and our manifest, which has the node's root
// added to its commands, and a heartbeat promised where it says so.
func (a *azureAgent) pack(version, program, root string, heartbeat bool) {
	a.t.Helper()
	manifest, err := os.ReadFile("../../../deploy/extension/linux/HandlerManifest.json")
	if err != nil {
		a.t.Fatal(err)
	}
	text := string(manifest)
	if heartbeat {
		text = strings.Replace(text, `"reportHeartbeat": false`, `"reportHeartbeat": true`, 1)
	}
	for _, verb := range []string{"install", "uninstall", "update", "enable", "disable"} {
		text = strings.Replace(text, " extension "+verb+`"`, " extension "+verb+" --root "+root+`"`, 1)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		a.t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(a.packages, version+".zip"))
	if err != nil {
		a.t.Fatal(err)
	}
	w := zip.NewWriter(f)
	for name, body := range map[string][]byte{"HandlerManifest.json": []byte(text), "bin/ortet-node": content} {
		e, err := w.Create(name)
		if err == nil {
			_, err = e.Write(body)
		}
		if err != nil {
			a.t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		a.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		a.t.Fatal(err)
	}
}

// until asks for the status until the agent holds it for done.
func (a *azureAgent) until(request map[string]any) answer {
	a.t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		got := a.must(request)
		if got.Done {
			return got
		}
		if time.Now().After(end) {
			a.t.Fatalf("after five minutes: %+v", got)
		}
	}
}

// The agent's own code runs the commands of our package with our program and
// reports our status, over an install, an update and an uninstall.
func TestAzureAgentRunsTheExtension(t *testing.T) {
	a := startAgent(t)
	program := filepath.Join(t.TempDir(), "ortet-node")
	if out, err := exec.Command("go", "build", "-o", program, "../../../cmd/ortet-node").CombinedOutput(); err != nil {
		t.Fatalf("building the agent: %v: %s", err, out)
	}
	root := t.TempDir()
	for _, dir := range []string{"run/cluster-api", "run/cloud-init", "proc/sys/kernel/random"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "proc/sys/kernel/random/boot_id"), []byte("11111111-2222-3333-4444-555555555555\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.pack("1.0.0", program, root, false)
	a.pack("1.1.0", program, root, true)
	one := func(do string, sequence int, version string) map[string]any {
		return map[string]any{"do": do, "version": version, "sequence": sequence, "settings": map[string]any{"deadline": "10m", "kubelet": "no"}}
	}
	t.Cleanup(func() { a.ask(one("uninstall", 0, "1.1.0")); a.ask(one("uninstall", 0, "1.0.0")) })

	if got := a.must(one("enable", 0, "1.0.0")); got.State != "Enabled" {
		t.Errorf("after enable the handler is %q", got.State)
	}
	if got := a.must(one("status", 0, "1.0.0")); got.Status != transitioning || got.Done || got.Handler != "Ready" || got.Operation != "Enable" {
		t.Errorf("while it waits: %+v", got)
	}
	// An update in the middle goes on waiting.
	a.must(one("enable", 0, "1.1.0"))
	if _, err := os.Stat(filepath.Join(a.lib, "Ortet.Node.Linux-1.0.0")); !os.IsNotExist(err) {
		t.Errorf("the old version's folder: %v", err)
	}
	if got := a.must(one("status", 0, "1.1.0")); got.Status != transitioning || got.Heartbeat["status"] != "Ready" {
		t.Errorf("after the update: %+v", got)
	}
	if err := os.WriteFile(filepath.Join(root, "run/cluster-api/bootstrap-success.complete"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got := a.until(one("status", 0, "1.1.0"))
	if got.Status != success || got.Code != 0 || !strings.HasPrefix(got.Message, "Succeeded") || len(got.Substatus) == 0 {
		t.Errorf("in the end: %+v", got)
	}
	// Wrong settings are the operator's to see.
	bad := one("enable", 1, "1.1.0")
	bad["settings"] = map[string]any{"dedline": "5m"}
	if got := a.ask(bad); !strings.Contains(got.Error, "Non-zero exit code: 64") {
		t.Errorf("wrong settings: %+v", got)
	}
	if got := a.must(one("status", 1, "1.1.0")); got.Status != failure || got.Code != 64 || !strings.Contains(got.Message, "dedline") {
		t.Errorf("wrong settings: %+v", got)
	}
	a.must(one("uninstall", 1, "1.1.0"))
	if _, err := os.Stat(filepath.Join(a.lib, "Ortet.Node.Linux-1.1.0")); !os.IsNotExist(err) {
		t.Errorf("the folder after uninstall: %v", err)
	}
}

// The agent's parser takes every status that we write, whole.
func TestAzureAgentReadsEveryStatus(t *testing.T) {
	a := startAgent(t)
	limit := a.must(map[string]any{"do": "limits"}).File
	if limit <= maxStatus {
		t.Fatalf("the agent cuts files of more than %d bytes, and ours may have %d", limit, maxStatus)
	}
	path := filepath.Join(t.TempDir(), "0.status")
	for name, s := range everyStatus(t) {
		t.Run(name, func(t *testing.T) {
			text, err := encodeStatus(s, time.Unix(1e9, 0))
			if err != nil {
				t.Fatal(err)
			}
			if len(text) > maxStatus {
				t.Errorf("it has %d bytes", len(text))
			}
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			got := a.ask(map[string]any{"do": "parse", "path": path})
			if got.Error != "" || got.Status != s.State || got.Code != s.Code || got.Message != s.Message.Text || len(got.Substatus) != len(s.Subparts) {
				t.Fatalf("the agent reads %+v of\n%s", got, text)
			}
			for i, p := range s.Subparts {
				if q := got.Substatus[i]; q.Name != p.Name || q.Status != p.State || q.Code != p.Code || q.Message != p.Message.Text {
					t.Errorf("the agent reads %+v of %+v", q, p)
				}
			}
		})
	}
}
