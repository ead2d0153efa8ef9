package recorded

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure/credential"
	"github.com/ortet/ortet/test/live"
)

// What make live records is a session that replays. Recorded on azsim, it gets the same answers
// there; of the check that meets no names, zones and progress that azsim draws again.
func TestLiveRecordingReplays(t *testing.T) {
	results := replayed(t, live.ExitDone, map[string]string{"LIVE_CHECK": "Extensions"})
	count := map[category]int{}
	for _, r := range results {
		if count[r.category]++; r.category != same {
			printResult(t, r)
		}
	}
	if len(results) < 30 || count[same] != len(results) {
		t.Errorf("%d of %d answers are the same, want all", count[same], len(results))
	}
}

// The recording of a cluster, whose machines boot nothing here: each write succeeds again, role
// assignments of a deployment too. Reads while an operation goes on that no poll follows differ.
func TestLiveRecordingOfClusterReplays(t *testing.T) {
	file := filepath.Join(t.TempDir(), "k3s")
	for _, name := range []string{"k3s", "ortet", "ortet-node", "images.tar"} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(file), name), []byte(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	results := replayed(t, live.ExitFailed, map[string]string{"LIVE": "publish", "LIVE_K3S": file, "LIVE_FILES": filepath.Dir(file),
		"LIVE_OWN_ADDRESS": "198.51.100.23"})
	writes := 0
	for _, r := range results {
		if strings.HasPrefix(r.request, http.MethodGet) || r.status >= http.StatusBadRequest {
			continue
		}
		if writes++; r.category >= status {
			printResult(t, r)
			t.Errorf("%s: %s, want the same status", r.request, r.category)
		}
	}
	if writes < 10 {
		t.Errorf("%d writes, want those of a cluster", writes)
	}
}

// replayed are the results of the recording of a run.
func replayed(t *testing.T, code int, env map[string]string) []*result {
	t.Helper()
	folder := t.TempDir()
	env["LIVE_YES"], env["LIVE_OUT"] = "1", folder
	synctest.Test(t, func(t *testing.T) {
		azure := &azsim.Server{}
		defer azure.Close()
		ctx, end := context.WithTimeout(t.Context(), 30*time.Minute) // machines do not boot
		defer end()
		var out bytes.Buffer
		p := live.Program{Getenv: func(name string) string { return env[name] }, Out: &out, Now: time.Now, Suffix: "abcd", Load: func(context.Context) (credential.Credentials, error) {
			return credential.Credentials{Cloud: azsim.Cloud(azsim.InProcess), TokenCredential: azure.Credential(""), Transport: azure.Transport(), Subscription: azsim.DefaultSubscription}, nil
		}, Az: func(context.Context, ...string) error { return nil }}
		if got := p.Run(ctx); got != code {
			t.Fatalf("exit code %d, want %d:\n%s", got, code, &out)
		}
	})
	sessions, _, err := readSessions(folder, t.TempDir())
	if err != nil || len(sessions) != 1 {
		t.Fatalf("%d sessions, %v, want the one of the run", len(sessions), err)
	}
	return played(t, sessions[0])
}
