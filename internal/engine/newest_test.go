package engine

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
)

func again() CaptureRequest {
	q := request()
	q.Again = true
	return q
}

// refusedFor reports whether a capture was refused, for that reason alone.
func refusedFor(err error, code string) bool {
	refused := new(Refused)
	return errors.As(err, &refused) && len(refused.Problems) == 1 && refused.Problems[0].Code == code
}

func TestPlainCaptureDoesNotRollBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e, _, ctx, _ := w.process(t, "a", 0)
		if _, err := e.Capture(ctx, request()); err != nil {
			t.Fatal(err)
		}
		made, err := e.Capture(ctx, again())
		if err != nil {
			t.Fatal(err)
		}
		result, err := e.Capture(ctx, request())
		if err != nil || !result.NothingToDo {
			t.Errorf("%+v, %v", result, err)
		}
		if got := w.pool.Model.Image.ID; !got.Equal(made.Version) {
			t.Errorf("a plain capture after --again leaves the model on %s", got.Name())
		}
		// After a rollback, the day's version is the one gone back to.
		if _, err := e.Rollback(ctx, RollbackRequest{Pool: poolID}); err != nil {
			t.Fatal(err)
		}
		result, err = e.Capture(ctx, request())
		if err != nil || !result.NothingToDo || w.pool.Model.Image.ID.Name() != "2000.01.01" {
			t.Errorf("after a rollback: %+v, %v; the model uses %s", result, err, w.pool.Model.Image.ID.Name())
		}
	})
}

// TestClockSetBack: a clock that was a day ahead named a version of tomorrow, and the
// model uses it when the clock is right again.
func TestClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e, _, ctx, _ := w.process(t, "a", 0)
		if _, err := e.Capture(ctx, request()); err != nil {
			t.Fatal(err)
		}
		right := e.now
		e.now = func() time.Time { return right().AddDate(0, 0, 1) }
		if _, err := e.Capture(ctx, request()); err != nil {
			t.Fatal(err)
		}
		e.now = right
		p, err := e.Plan(ctx, request())
		if err != nil || len(p.Problems) != 1 || p.Problems[0].Code != "OlderVersion" {
			t.Errorf("%+v, %v", p.Problems, err)
		}
		if _, err := e.Capture(ctx, request()); !refusedFor(err, "OlderVersion") || !strings.Contains(err.Error(), "--again") {
			t.Errorf("exit %d: %v", ExitCode(err), err)
		}
		if got := w.pool.Model.Image.ID.Name(); got != "2000.01.02" {
			t.Errorf("the model uses %s", got)
		}
		result, err := e.Capture(ctx, again())
		if err != nil || !strings.HasPrefix(w.pool.Model.Image.ID.Name(), "2000.0101.") {
			t.Errorf("%+v, %v; the model uses %s", result, err, w.pool.Model.Image.ID.Name())
		}
	})
}

// TestModelIsNotPointedAtAnOlderVersion: while a capture was interrupted, others
// published a newer version, and the model uses it.
func TestModelIsNotPointedAtAnOlderVersion(t *testing.T) {
	for name, image := range map[string]fleet.ImageReference{
		"by its name": {ID: versionID("2000.01.02")}, "by the definition": {ID: prototype.DefinitionOf(poolID)},
	} {
		synctest.Test(t, func(t *testing.T) {
			t.Log(name)
			w := newWorld()
			e, p, ctx, _ := w.process(t, "killed", 0)
			p.killWhen = "after " + fleet.CreateVersion{}.Verb() + " 2000.01.01"
			_, _ = e.Capture(ctx, request())
			time.Sleep(2 * time.Hour)
			w.mu.Lock()
			w.catchUp() // dates what was built
			time.Sleep(time.Minute)
			w.halfMade(fleet.CreateVersion{ID: versionID("2000.01.02"), Tags: map[string]string{fleet.TagBuiltFrom: "n"}}, prototype.Succeeded)
			w.pool.Model.Image = image
			w.mu.Unlock()
			e, _, ctx, _ = w.process(t, "next", 0)
			_, err := e.Capture(ctx, request())
			if ExitCode(err) != ExitFailed || !strings.Contains(err.Error(), "newer than 2000.01.01") {
				t.Errorf("exit %d: %v", ExitCode(err), err)
			}
			if got := w.pool.Model.Image; got != image {
				t.Errorf("the model uses %+v", got)
			}
			w.whole(t)
		})
	}
}

// unlisted leaves one version out of lists, as a cache of before it was made does.
type unlisted struct {
	cloudProc
	version *fleet.ResourceID
}

func (u unlisted) Versions(ctx context.Context, definition fleet.ResourceID) ([]fleet.ImageVersion, error) {
	all, err := u.cloudProc.Versions(ctx, definition)
	return slices.DeleteFunc(all, func(v fleet.ImageVersion) bool { return v.ID.Equal(*u.version) }), err
}

// TestStaleListOfVersions: a list that lacks the version which the model uses does not
// have a plain capture move the model to an older one.
func TestStaleListOfVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e, p, ctx, seen := w.process(t, "a", 0)
		if _, err := e.Capture(ctx, request()); err != nil {
			t.Fatal(err)
		}
		made, err := e.Capture(ctx, again())
		if err != nil {
			t.Fatal(err)
		}
		e, err = New(Config{
			Cloud: unlisted{cloudProc{p}, &made.Version}, Cluster: clusterProc{p}, Logger: slog.New(slog.DiscardHandler),
			Reporter: seen, Version: "test", Image: "ortet:test", Namespace: "ortet", Holder: "b", Liveness: func(string) Liveness { return Unknown },
		})
		if err != nil {
			t.Fatal(err)
		}
		if result, err := e.Capture(ctx, request()); err != nil || !result.NothingToDo {
			t.Errorf("%+v, %v", result, err)
		}
		if got := w.pool.Model.Image.ID; !got.Equal(made.Version) {
			t.Errorf("a plain capture leaves the model on %s", got.Name())
		}
	})
}
