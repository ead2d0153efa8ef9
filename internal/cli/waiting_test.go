package cli

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/test/syncbuffer"
)

// silentServer serves TLS and never answers.
func silentServer(t *testing.T) *httptest.Server {
	t.Helper()
	ended := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-ended:
		}
	}))
	t.Cleanup(func() { close(ended); server.Close() })
	return server
}

// aKubeconfig is one of a cluster at url, with these contexts besides demo.
func aKubeconfig(t *testing.T, url string, more ...string) string {
	t.Helper()
	at := map[string]any{"cluster": "c", "user": "u"}
	contexts := []any{map[string]any{"name": "demo", "context": at}}
	for _, name := range more {
		contexts = append(contexts, map[string]any{"name": name, "context": at})
	}
	contexts = append(contexts, map[string]any{"name": "lost", "context": map[string]any{"cluster": "deleted", "user": "u"}})
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Config", "current-context": "demo", "contexts": contexts,
		"users": []any{map[string]any{"name": "u", "user": map[string]any{"token": "t"}}}, "clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": url}}}})
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// runIn is a command line with an environment, and with a patience that a test has.
func runIn(t *testing.T, env map[string]string, line string) (code int, out, said string) {
	t.Helper()
	return runUntil(t, env, line, "")
}

// runUntil is runIn whose --timeout is over once standard error has a text, unless that is "": a
// clock could be over before, on a machine with much to do.
func runUntil(t *testing.T, env map[string]string, line, text string) (code int, out, said string) {
	t.Helper()
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	var stdout strings.Builder
	stderr := &expiring{text: text}
	process := Process{In: strings.NewReader(""), Out: &stdout, Err: stderr,
		Getenv: func(name string) string { return env[name] }, patience: 20 * time.Millisecond, pollEvery: 20 * time.Millisecond}
	if text != "" {
		process.expires = func(end func()) { stderr.end = end }
	}
	code = Run(t.Context(), strings.Fields(line), process)
	return code, stdout.String(), stderr.String()
}

// expiring calls end once it has a text.
type expiring struct {
	syncbuffer.Buffer
	text string
	end  func()
	once sync.Once
}

func (e *expiring) Write(p []byte) (int, error) {
	n, err := e.Buffer.Write(p)
	if e.end != nil && strings.Contains(e.String(), e.text) {
		e.once.Do(func() { go e.end() }) // the writer has locked what end reads
	}
	return n, err
}

func TestASilentServiceIsNamed(t *testing.T) {
	azure, api := silentServer(t), silentServer(t)
	// Azure logs in, and its Resource Manager is silent.
	env := fakeAzure(t, func(string) (int, any) { return 404, nil })
	text, err := os.ReadFile(env["AZURE_ENVIRONMENT_FILEPATH"])
	if err != nil {
		t.Fatal(err)
	}
	var endpoints map[string]string
	if err := json.Unmarshal(text, &endpoints); err != nil {
		t.Fatal(err)
	}
	endpoints["resourceManagerEndpoint"] = azure.URL
	text, _ = json.Marshal(endpoints)
	if err := os.WriteFile(env["AZURE_ENVIRONMENT_FILEPATH"], text, 0o600); err != nil {
		t.Fatal(err)
	}
	cluster := aCluster(t, true)
	silent := aKubeconfig(t, api.URL)
	for _, c := range []struct {
		line, waits string
		code        int
	}{
		{"status --kubeconfig " + cluster, "Azure Resource Manager " + azure.URL, failed},
		{"nodes --kubeconfig " + cluster, "Azure Resource Manager " + azure.URL, failed},
		{"versions " + string(pool1) + " --kubeconfig " + cluster, "Azure Resource Manager " + azure.URL, failed},
		{"capture a --dry-run --kubeconfig " + cluster, "Azure Resource Manager " + azure.URL, failed},
		{"capture a --image=r/i:1 --kubeconfig " + cluster, "Azure Resource Manager " + azure.URL, interrupted},
		{"rollback " + string(pool1) + " --kubeconfig " + cluster, "Azure Resource Manager " + azure.URL, interrupted},
		{"status --kubeconfig " + silent, "the Kubernetes API server " + api.URL, failed},
		{"boot show a --kubeconfig " + silent, "the Kubernetes API server " + api.URL, failed},
		{"rollback a --kubeconfig " + silent, "the Kubernetes API server " + api.URL, interrupted},
	} {
		waiting := "Waiting for " + c.waits + ": no answer yet"
		code, out, said := runUntil(t, env, c.line+" --timeout 400ms", waiting)
		t.Logf("ortet %s: %d\n%s", strings.Fields(c.line)[0], code, said)
		if code != c.code || out != "" {
			t.Errorf("ortet %s: code %d, want %d and no result: %s", c.line, code, c.code, out)
		}
		_, end, _ := strings.Cut(said, "no answer from ") // others, if they are slow, may be named before it
		if strings.Count(said, waiting) != 1 || !strings.Contains(end, c.waits) || !strings.Contains(end, "within 400ms (--timeout)") {
			t.Errorf("ortet %s does not name %s once, or not at its end:\n%s", c.line, c.waits, said)
		}
	}
}

func TestASilentLogInIsNamed(t *testing.T) {
	azure := silentServer(t)
	env := fakeAzure(t, func(string) (int, any) { return 404, nil })
	text, _ := json.Marshal(map[string]string{"resourceManagerEndpoint": azure.URL, "activeDirectoryEndpoint": azure.URL})
	if err := os.WriteFile(env["AZURE_ENVIRONMENT_FILEPATH"], text, 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, said := runUntil(t, env, "status --timeout 300ms --kubeconfig "+aCluster(t, true), "Waiting for Azure's log-in service "+azure.URL)
	if code != failed || !strings.Contains(said, "no answer from Azure's log-in service "+azure.URL) {
		t.Errorf("code %d: %s", code, said)
	}
}

// What is said of a service over time, without a clock.
func TestWaitLog(t *testing.T) {
	const s = time.Second
	type try struct {
		takes, rests time.Duration
		status       int
		err          error
	}
	for name, c := range map[string]struct {
		tries []try
		want  []string
	}{
		"quick":       {[]try{{2 * s, s, 200, nil}, {2 * s, 9 * s, 200, nil}, {2 * s, 0, 404, nil}}, nil},
		"slow":        {[]try{{4 * s, 0, 200, nil}, {4 * s, 0, 200, nil}}, []string{"Waiting for x: no answer yet"}},
		"refused":     {[]try{{0, s, 0, errors.New("connection refused")}, {0, 4 * s, 0, errors.New("connection refused")}, {0, 0, 200, nil}}, []string{"Waiting for x: no answer yet (connection refused)"}},
		"throttled":   {[]try{{0, 17 * s, 429, nil}}, []string{"Waiting for x: no answer yet (429 Too Many Requests, Retry-After 17)"}},
		"short break": {[]try{{0, 2 * s, 503, nil}, {0, 9 * s, 200, nil}}, nil},
		"hung":        {[]try{{60 * s, s, 0, context.DeadlineExceeded}, {60 * s, s, 0, context.DeadlineExceeded}, {60 * s, 0, 0, context.DeadlineExceeded}}, []string{"Waiting for x: no answer yet"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said []string
				w := newWaitLog(0, func(text string) { said = append(said, text) })
				n := 0
				rt := w.roundTripper(roundTripperFunc(func(*http.Request) (*http.Response, error) {
					time.Sleep(c.tries[n].takes)
					return &http.Response{StatusCode: c.tries[n].status, Header: http.Header{"Retry-After": {"17"}}}, c.tries[n].err
				}), func(*http.Request) string { return "x" })
				for n = range c.tries {
					_, _ = rt.RoundTrip(httptest.NewRequest(http.MethodGet, "/", nil))
					time.Sleep(c.tries[n].rests)
				}
				w.Close()
				time.Sleep(9 * s)
				if strings.Join(said, "\n") != strings.Join(c.want, "\n") {
					t.Errorf("said %q, want %q", said, c.want)
				}
			})
		})
	}
}

// Each command has decided what the end of --timeout means.
func TestTimeoutOfEachCommand(t *testing.T) {
	for _, line := range leaves(Command(Process{}), "") {
		if _, decided := timeoutClasses[line]; !decided {
			t.Errorf("timeoutClasses has no %q", line)
		}
	}
	for _, line := range []string{"controller", "cluster ssh", "cluster proxy"} {
		if code, _, said := run(t, append(strings.Fields(line), "--timeout", "5s")...); code != ExitUsage || !strings.Contains(said, "runs until it is stopped") {
			t.Errorf("ortet %s --timeout 5s: code %d: %s", line, code, said)
		}
	}
	if code, _, said := run(t, "status", "--timeout", "-5s"); code != ExitUsage || !strings.Contains(said, "--timeout -5s: want 0s") {
		t.Errorf("code %d: %s", code, said)
	}
}

func TestAWrongContextListsThoseThatThereAre(t *testing.T) {
	file := aKubeconfig(t, "https://127.0.0.1:1", "prod", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8")
	for _, c := range []struct{ args, says string }{
		{"status --context pord", "context pord: the kubeconfig " + file + " has the contexts a1, a2, a3, a4, a5, a6, a7, a8, demo, lost and 1 more"},
		{"capture n --image=r/i:1 --context pord", "give one of these with --context"},
		{"nodes --context lost", `its cluster "deleted" is not in the kubeconfig ` + file + ", which has the cluster c"},
	} {
		code, _, said := run(t, append(strings.Fields(c.args), "--kubeconfig", file)...)
		t.Logf("%d %s", code, said)
		if code != workflow.ExitRefused || !strings.Contains(said, c.says) {
			t.Errorf("ortet %s: code %d, want %d with %q: %s", c.args, code, workflow.ExitRefused, c.says, said)
		}
	}
}
