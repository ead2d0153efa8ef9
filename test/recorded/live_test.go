package recorded

import (
	"bytes"
	"context"
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
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		azure := &azsim.Server{}
		defer azure.Close()
		env := map[string]string{"LIVE_YES": "1", "LIVE_OUT": folder, "LIVE_CHECK": "Extensions"}
		var out bytes.Buffer
		p := live.Program{Getenv: func(name string) string { return env[name] }, Out: &out, Now: time.Now, Suffix: "abcd", Load: func(context.Context) (credential.Credentials, error) {
			return credential.Credentials{Cloud: azsim.Cloud(azsim.InProcess), TokenCredential: azure.Credential(""), Transport: azure.Transport(), Subscription: azsim.DefaultSubscription}, nil
		}}
		if code := p.Run(t.Context()); code != live.ExitDone {
			t.Fatalf("exit code %d:\n%s", code, &out)
		}
	})
	sessions, _, err := readSessions(folder, t.TempDir())
	if err != nil || len(sessions) != 1 {
		t.Fatalf("%d sessions, %v, want the one of the run", len(sessions), err)
	}
	results := played(t, sessions[0])
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
