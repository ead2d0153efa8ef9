package engine

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// before checks that image and customData are those of before the first capture.
func (w *world) before(t *testing.T) {
	t.Helper()
	first := newWorld()
	if got := w.pool.Model.Image; got != first.pool.Model.Image || w.customData != first.customData {
		t.Errorf("the model uses %+v with customData %q, want %+v with %q", got, w.customData, first.pool.Model.Image, first.customData)
	}
}

// TestFirstRollback: after the first capture there is no earlier version, but what the
// model was before.
func TestFirstRollback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e, _, ctx, _ := w.process(t, "a", 0)
		made, err := e.Capture(ctx, request())
		if err != nil {
			t.Fatal(err)
		}
		w.live(t, "2000.01.01")
		p, err := e.PlanRollback(ctx, RollbackRequest{Pool: poolID})
		if err != nil || len(p.Problems) > 0 {
			t.Fatalf("%+v, %v", p, err)
		}
		result, err := e.Rollback(ctx, RollbackRequest{Pool: poolID})
		if err != nil || !result.From.Equal(made.Version) || result.Original == nil || result.To != "" {
			t.Fatalf("%+v, %v", result, err)
		}
		w.before(t)
		w.tidy(t)
		if notes := strings.Join(result.Notes, "\n"); !strings.Contains(notes, "not added again: cse, after") {
			t.Errorf("nothing says that extensions are missing: %s", notes)
		}
		again, err := e.Rollback(ctx, RollbackRequest{Pool: poolID, To: Original})
		if err != nil || !again.NothingToDo {
			t.Errorf("a second rollback: %+v, %v", again, err)
		}
		// The version that was left is not brought back by itself.
		if _, err := e.Capture(ctx, request()); !refusedFor(err, "RolledBack") {
			t.Errorf("exit %d: %v", ExitCode(err), err)
		}
		if _, err := e.Rollback(ctx, RollbackRequest{Pool: poolID, To: "2000.01.01"}); err != nil {
			t.Error(err)
		}
		w.live(t, "2000.01.01")
	})
}

// TestReturnToTheOriginal: also after many captures, some of which died, and after
// others have left nothing of it; where it was not recorded, that is said.
func TestReturnToTheOriginal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e, p, ctx, _ := w.process(t, "killed", 0)
		p.killWhen = "after " + fleet.PatchModel{}.Verb() + " " + poolID.Name()
		_, _ = e.Capture(ctx, request())
		time.Sleep(time.Minute)
		e, _, ctx, _ = w.process(t, "a", 0)
		for range 3 {
			if _, err := e.Capture(ctx, request()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(24 * time.Hour)
		}
		if len(w.versions) < 3 {
			t.Fatalf("%d versions", len(w.versions))
		}
		p.kill()
		e, p, ctx, _ = w.process(t, "killed again", 0)
		p.killWhen = "before " + fleet.PatchModel{}.Verb() + " " + poolID.Name()
		_, _ = e.Rollback(ctx, RollbackRequest{Pool: poolID, To: Original})
		time.Sleep(time.Minute)
		e, _, ctx, _ = w.process(t, "b", 0)
		result, err := e.Rollback(ctx, RollbackRequest{Pool: poolID, To: Original})
		if err != nil || result.Original == nil || !result.Resumed {
			t.Fatalf("%+v, %v", result, err)
		}
		w.before(t)
		w.tidy(t)

		w = twoVersions()
		e, _, ctx, _ = w.process(t, "a", 0)
		if _, err := e.Rollback(ctx, RollbackRequest{Pool: poolID, To: Original}); !refusedFor(err, "NoOriginal") || !strings.Contains(err.Error(), "not recorded") {
			t.Errorf("exit %d: %v", ExitCode(err), err)
		}
	})
}

// TestOriginalOfALaterDonor: where the model's userData has changed, no instance has the
// latest model; the customData of the original is that of the later donor all the same.
func TestOriginalOfALaterDonor(t *testing.T) {
	for name, c := range map[string]struct {
		created time.Duration // before the second capture
		want    string
	}{
		"created after the first capture":  {time.Hour, "#cloud-config\nnewer"},
		"created before the first capture": {72 * time.Hour, "#cloud-config\nruncmd: [join]\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				e, _, ctx, _ := w.process(t, "a", 0)
				if _, err := e.Capture(ctx, request()); err != nil {
					t.Fatal(err)
				}
				if _, err := e.Rollback(ctx, RollbackRequest{Pool: poolID, To: Original}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(24 * time.Hour)
				w.customData = "#cloud-config\nnewer"
				w.donorInstance().Created = time.Now().Add(-c.created)
				if _, err := e.Capture(ctx, request()); err != nil {
					t.Fatal(err)
				}
				if _, err := e.Rollback(ctx, RollbackRequest{Pool: poolID, To: Original}); err != nil {
					t.Fatal(err)
				}
				if w.customData != c.want {
					t.Errorf("customData %q, want %q", w.customData, c.want)
				}
			})
		})
	}
}

// TestStatusAfterAChangeOfUserData: an instance of the model's image is the latest, also
// where Azure says that the latest model is not applied.
func TestStatusAfterAChangeOfUserData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e, _, ctx, _ := w.process(t, "a", 0)
		want := func(latest bool) {
			t.Helper()
			status, err := e.Status(ctx, nil)
			if err != nil || len(status) != 1 || len(status[0].Instances) == 0 {
				t.Fatalf("%+v, %v", status, err)
			}
			for _, i := range status[0].Instances {
				if i.LatestModel != latest {
					t.Errorf("instance %s: latest %t", i.InstanceID, i.LatestModel)
				}
			}
		}
		want(true)
		if _, err := e.Capture(ctx, request()); err != nil {
			t.Fatal(err)
		}
		want(false)
	})
}
