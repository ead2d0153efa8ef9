package lifecycle_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/test/serverboot"
)

// tailnetArtifact is Tailscale's archive in cluster.yaml.
var tailnetArtifact = `{"url": "https://m.example/tailscale.tgz", "sha256": "` + strings.Repeat("1", 64) + `"}`

// tailnetFile is file with a server in a tailnet, and other fields.
func tailnetFile(t *testing.T, fields map[string]string) string {
	all := map[string]string{"spec.artifacts.tailscale": tailnetArtifact, "spec.access.tailscale": `{"tags": ["tag:k3s"]}`}
	for field, value := range fields {
		all[field] = value
	}
	return edited(t, file, all)
}

// tagServer merges tags of the server's VM, as a person or the server does.
func (x *site) tagServer(tags object) {
	x.Helper()
	x.send(http.MethodPatch, serverVM+"/providers/Microsoft.Resources/tags/default", "2021-04-01", object{"operation": "Merge", "properties": object{"tags": tags}})
}

// Up logs the server in once, and says what is missing: before, where the key is refused, and
// when it has expired.
func TestOutcomeServerJoinsItsTailnet(t *testing.T) {
	play(t, nil, func(x *site) {
		x.loggedOut.Store(true)
		go x.boot()
		inTailnet := tailnetFile(t, nil)
		const command = "ortet cluster up --tailscale-key FILE"
		if r := x.up(inTailnet); !strings.Contains(strings.Join(r.Notes, "\n"), "server is not in the tailnet (NeedsLogin); to log it in: "+command) {
			x.Errorf("up without a key: %q", r.Notes)
		}
		_, err := x.manager(inTailnet).Up(x.ctx, lifecycle.UpOptions{Login: func(context.Context) error { return errors.New("backend error: invalid key") }})
		if workflow.ExitCode(err) != workflow.ExitNeedsPerson || !strings.Contains(err.Error(), "backend error: invalid key") {
			x.Errorf("a key that is refused: exit code %d: %v", workflow.ExitCode(err), err)
		}
		r, err := x.manager(inTailnet).Up(x.ctx, lifecycle.UpOptions{Login: func(context.Context) error { x.loggedOut.Store(false); return nil }})
		if err != nil || strings.Contains(strings.Join(r.Notes, "\n"), "tailnet") {
			x.Errorf("up with a key: %v %+v", err, r)
		}
		s, err := x.manager(inTailnet).Status(x.ctx)
		if err != nil || s.Server.Tailnet == nil || *s.Server.Tailnet != (lifecycle.TailnetStatus{State: "Running", Hostname: "demo", Name: "demo.tail1.example", Address: serverboot.TailnetAddress}) {
			x.Errorf("status: %v %+v", err, s.Server.Tailnet)
		}
		e, err := x.manager(inTailnet).Entrance(x.ctx)
		if err != nil || len(e.Ways) != 2 || e.Ways[0].Via != lifecycle.ViaTailnet || e.Ways[1].Via != lifecycle.ViaPublic {
			x.Errorf("ways: %v %+v", err, e)
		}
		x.tagServer(object{recipe.TagTailnet: "NoState"})
		if s, err = x.manager(inTailnet).Status(x.ctx); err != nil || !strings.Contains(strings.Join(s.Notes, "\n"), "its coordination server has not answered") || strings.Contains(strings.Join(s.Notes, "\n"), command) {
			x.Errorf("status while the coordination server is away: %v %q", err, s.Notes)
		}
		x.tagServer(object{recipe.TagTailnet: recipe.TailnetOutOfSync})
		const removed = "an admin removed the server there; to log it in: " + command
		if s, err = x.manager(inTailnet).Status(x.ctx); err != nil || !strings.Contains(strings.Join(s.Notes, "\n"), removed) {
			x.Errorf("status of a server that an admin removed from the tailnet: %v %q", err, s.Notes)
		}
		if e, err = x.manager(inTailnet).Entrance(x.ctx); err != nil || len(e.Ways) != 2 { // connections may go on
			x.Errorf("ways of a server that an admin removed from the tailnet: %v %+v", err, e)
		}
		x.tagServer(object{recipe.TagTailnet: recipe.TailnetRunning})
		x.tagServer(object{recipe.TagTailnetExpiry: time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)})
		if s, err = x.manager(inTailnet).Status(x.ctx); err != nil || !strings.Contains(strings.Join(s.Notes, "\n"), "key of the server in the tailnet ended on ") || !strings.Contains(strings.Join(s.Notes, "\n"), command) {
			x.Errorf("status of a key that ended: %v %q", err, s.Notes)
		}
		if _, err := x.manager(inTailnet).ReplaceServer(x.ctx, lifecycle.UpOptions{}); err != nil {
			x.Errorf("replace server: %v", err)
		}
	})
}

// The boot program of an earlier version knows no tailnet: replace server is the way out.
func TestOutcomeServerOfAnEarlierVersionJoinsNoTailnet(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		x.tagServer(object{recipe.TagApplied: "mount=data reboot=false"})
		_, err := x.manager(tailnetFile(t, nil)).Up(x.ctx, lifecycle.UpOptions{})
		if workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), "ortet cluster replace server") {
			x.Errorf("up: exit code %d: %v", workflow.ExitCode(err), err)
		}
		if _, err := x.manager(tailnetFile(t, nil)).ReplaceServer(x.ctx, lifecycle.UpOptions{}); err != nil {
			x.Errorf("replace server: %v", err)
		}
		x.up(tailnetFile(t, nil))
	})
}
