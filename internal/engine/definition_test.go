package engine

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
)

// byDefinition is a world of kamino's: the model refers to the image definition,
// and so do instances; each runs the version that was the latest when it was made.
func byDefinition(names ...string) *world {
	w := newWorld()
	definition := prototype.DefinitionOf(poolID)
	for n, name := range names {
		at, err := time.Parse("2006.01.02", name)
		if err != nil {
			panic(err)
		}
		w.versions[low(versionID(name))] = &image{generalized: true, ImageVersion: fleet.ImageVersion{
			ID: versionID(name), Name: name, ProvisioningState: prototype.Succeeded, Published: at, Tags: map[string]string{fleet.TagBuiltFrom: "n"},
		}}
		if n < len(w.instances) {
			w.instances[low(instanceID(n))].Image = fleet.ImageReference{ID: definition, ExactVersion: name}
		}
	}
	w.pool.Model.Image = fleet.ImageReference{ID: definition}
	return w
}

func TestRollbackFromTheDefinition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := byDefinition("1999.12.30", "1999.12.31")
		e, _, ctx, _ := w.process(t, "a", 0)
		result, err := e.Rollback(ctx, RollbackRequest{Node: donorName})
		if err != nil || result.From.Name() != "1999.12.31" || result.To.Name() != "1999.12.30" {
			t.Fatalf("%+v, %v", result, err)
		}
		if got := w.pool.Model.Image; !pinned(got, versionID("1999.12.30")) {
			t.Errorf("the model uses %+v", got)
		}
		if !prototype.RolledBack(w.versions[low(versionID("1999.12.31"))].ImageVersion) {
			t.Error("the version that was left is not tagged")
		}
	})
}

// TestVersionsBesideKamino: status shows what instances run, and which version the
// model stands for.
func TestVersionsBesideKamino(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := byDefinition("1999.12.29", "1999.12.30", "1999.12.31")
		w.instances[low(instanceID(0))].Image.ExactVersion = "1999.12.31"
		w.instances[low(instanceID(1))].Image.ExactVersion = "1999.12.01" // it is gone
		e, _, ctx, _ := w.process(t, "a", 0)
		all, err := e.Status(ctx, nil)
		if err != nil || len(all) != 1 || all[0].Problem != "" {
			t.Fatalf("%+v, %v", all, err)
		}
		var images []string
		for _, i := range all[0].Instances {
			images = append(images, i.Image)
		}
		if want := []string{"1999.12.31", "1999.12.01", "1999.12.31"}; !slices.Equal(images, want) {
			t.Errorf("instances run %v, want %v", images, want)
		}
		for _, v := range all[0].Versions {
			if newest := v.Name == "1999.12.31"; v.InModel != newest || v.Instances != map[bool]int{true: 2}[newest] {
				t.Errorf("%s: in the model %t, %d instances", v.Name, v.InModel, v.Instances)
			}
		}
	})
}

// TestUndoRestoresTheDefinition: as it was, and not the version that it stood for.
func TestUndoRestoresTheDefinition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A process dies when it has changed the model; the next is asked for something
		// else, and so restores it.
		w := byDefinition("1999.12.31")
		e, p, ctx, _ := w.process(t, "killed", 0)
		p.killWhen = "after " + fleet.PatchModel{}.Verb() + " " + poolID.Name()
		_, _ = e.Capture(ctx, request())
		if !p.dead {
			t.Fatal("the process lives")
		}
		time.Sleep(time.Minute)
		e, _, ctx, _ = w.process(t, "next", 0)
		if _, err := e.Rollback(ctx, RollbackRequest{Pool: poolID, To: "1999.12.01"}); ExitCode(err) != ExitRefused {
			t.Errorf("exit %d: %v", ExitCode(err), err)
		}
		if got := w.pool.Model.Image; got != (fleet.ImageReference{ID: prototype.DefinitionOf(poolID)}) || w.customData == noop {
			t.Errorf("the model is left with %+v, customData %q", got, w.customData)
		}
	})
}

func TestPruneSparesWhatInstancesRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := byDefinition("1999.12.28", "1999.12.29", "1999.12.30", "1999.12.31")
		e, _, ctx, _ := w.process(t, "a", 0)
		q := request()
		q.History = 2
		result, err := e.Capture(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range w.instances {
			if w.versions[low(i.Image.Exact())] == nil {
				t.Errorf("%s, which %s runs, is gone (pruned %v)", i.Image.ExactVersion, i.Name, result.Pruned)
			}
		}
		if len(result.Kept) == 0 {
			t.Error("nothing says why versions are kept")
		}
	})
}
