package engine

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
)

func versionID(name string) fleet.ResourceID {
	return prototype.DefinitionOf(poolID).Child("versions", name)
}

// twoVersions is a world whose model uses the second of two versions; the
// first was made with other customData.
func twoVersions() *world {
	w := newWorld()
	old := "#cloud-config\nold"
	w.vault["customData/"+sha(old)] = old
	w.customData = noop
	for name, custom := range map[string]string{"1999.12.30": sha(old), "1999.12.31": sha(noop)} {
		at, err := time.Parse("2006.01.02", name)
		if err != nil {
			panic(err)
		}
		w.versions[low(versionID(name))] = &image{generalized: true, ImageVersion: fleet.ImageVersion{
			ID: versionID(name), Name: name, ProvisioningState: prototype.Succeeded, Published: at,
			Tags: map[string]string{fleet.TagBuiltFrom: "n", fleet.TagCustomData: custom},
		}}
	}
	w.pool.Model.Image = fleet.ImageReference{ID: versionID("1999.12.31")}
	return w
}

func TestRollback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := twoVersions()
		e, _, ctx, _ := w.process(t, "a", 0)
		p, err := e.PlanRollback(ctx, RollbackRequest{Node: donorName})
		if err != nil || len(p.Problems) > 0 || p.Version.Name() != "1999.12.30" {
			t.Fatalf("%+v, %v", p, err)
		}
		result, err := e.Rollback(ctx, RollbackRequest{Node: donorName})
		if err != nil {
			t.Fatal(err)
		}
		if result.From.Name() != "1999.12.31" || result.To.Name() != "1999.12.30" || w.customData != "#cloud-config\nold" {
			t.Errorf("%+v, customData %q", result, w.customData)
		}
		again, err := e.Rollback(ctx, RollbackRequest{Pool: poolID, To: "1999.12.30"})
		if err != nil || !again.NothingToDo {
			t.Errorf("a second rollback: %+v, %v", again, err)
		}
		// Nothing older is kept.
		if _, err := e.Rollback(ctx, RollbackRequest{Pool: poolID}); ExitCode(err) != ExitRefused {
			t.Errorf("exit %d: %v", ExitCode(err), err)
		}
		// Forward again takes the tag off.
		if _, err := e.Rollback(ctx, RollbackRequest{Pool: poolID, To: "1999.12.31"}); err != nil {
			t.Error(err)
		}
		for name, v := range w.versions {
			if prototype.RolledBack(v.ImageVersion) {
				t.Errorf("%s is tagged as rolled back", name)
			}
		}
		if w.customData != noop || len(w.lease) > 0 {
			t.Errorf("customData %q, Lease %v", w.customData, w.lease)
		}
	})
}

// TestRollbackRefusesLostCustomData before it changes anything.
func TestRollbackRefusesLostCustomData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := twoVersions()
		clear(w.vault)
		e, p, ctx, _ := w.process(t, "a", 0)
		_, err := e.Rollback(ctx, RollbackRequest{Pool: poolID})
		if ExitCode(err) != ExitRefused || !strings.Contains(err.Error(), "is not kept") || len(p.trace) > 0 {
			t.Errorf("exit %d: %v; %v", ExitCode(err), err, p.trace)
		}
	})
}

// TestRolledBackIsNotBroughtBack by the same day's capture, but for --again.
func TestRolledBackIsNotBroughtBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := twoVersions()
		e, _, ctx, _ := w.process(t, "a", 0)
		if _, err := e.Capture(ctx, request()); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Rollback(ctx, RollbackRequest{Pool: poolID}); err != nil {
			t.Fatal(err)
		}
		if got := w.pool.Model.Image.ID.Name(); got != "1999.12.31" {
			t.Fatalf("the model uses %s", got)
		}
		_, err := e.Capture(ctx, request())
		if ExitCode(err) != ExitRefused || !strings.Contains(err.Error(), "rolled back") || !strings.Contains(err.Error(), "--again") {
			t.Errorf("exit %d: %v", ExitCode(err), err)
		}
		q := request()
		q.Again = true
		result, err := e.Capture(ctx, q)
		if err != nil || !strings.HasPrefix(result.Version.Name(), "2000.0101.") {
			t.Fatalf("%+v, %v", result, err)
		}
		w.whole(t)
		w.tidy(t)
		w.live(t, result.Version.Name())
		if len(w.versions) != 3 || len(result.Pruned) != 1 || result.Pruned[0] != "1999.12.30" {
			t.Errorf("%d versions, pruned %v, kept %v", len(w.versions), result.Pruned, result.Kept)
		}
		status, err := e.Status(ctx, nil)
		if err != nil || len(status) != 1 || len(status[0].Versions) != 3 || !status[0].Versions[0].InModel || status[0].Versions[0].BuiltFrom != donorName {
			t.Errorf("status %+v, %v", status, err)
		}
	})
}
