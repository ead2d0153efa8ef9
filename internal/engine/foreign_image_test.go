package engine

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
)

func keeping() CaptureRequest {
	q := request()
	q.Bootstrap = BootstrapKeep
	return q
}

// setImage has somebody else set the model's image, and leave its customData, as
// `az vmss update` and Terraform do.
func (w *world) setImage(image fleet.ImageReference) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pool.Model.Image = image
}

// TestImageSetByOthersAfterABakedCapture: a baked capture left the model with
// customData that does nothing, and somebody else set another image: the next capture
// with keep gives the model the customData that its nodes need, also where a rollback
// came in between.
func TestImageSetByOthersAfterABakedCapture(t *testing.T) {
	for name, between := range map[string]func(t *testing.T, w *world, e *Engine){
		"at once": func(*testing.T, *world, *Engine) {},
		"after a rollback": func(t *testing.T, w *world, e *Engine) {
			time.Sleep(24 * time.Hour)
			if _, err := e.Capture(t.Context(), request()); err != nil {
				t.Fatal(err)
			}
			if _, err := e.Rollback(t.Context(), RollbackRequest{Pool: poolID}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				joins := w.customData
				w.cameWith = joins
				e, _, ctx, _ := w.process(t, "a", 0)
				if _, err := e.Capture(ctx, request()); err != nil {
					t.Fatal(err)
				}
				between(t, w, e)
				if w.customData != noop {
					t.Fatalf("after baked captures, the model's customData is %q", w.customData)
				}
				w.setImage(fleet.ImageReference{Publisher: "Canonical", Offer: "ubuntu", SKU: "26_04", Version: "26.04.1"})
				time.Sleep(24 * time.Hour)
				result, err := e.Capture(ctx, keeping())
				if err != nil || !pinned(w.pool.Model.Image, result.Version) {
					t.Fatalf("%+v, %v; the model uses %s", result, err, w.pool.Model.Image.Text())
				}
				if w.customData != joins {
					t.Errorf("the model's customData is %q: new nodes never join", w.customData)
				}
				if notes := strings.Join(result.Notes, "\n"); !strings.Contains(notes, "somebody else set the image") {
					t.Errorf("nothing says that customData was replaced: %s", notes)
				}
				// Whether that was theirs nobody knows, so nobody says that it comes back.
				if _, err := e.Rollback(ctx, RollbackRequest{Pool: poolID, To: Original}); !refusedFor(err, "CustomDataLost") {
					t.Errorf("exit %d: %v", ExitCode(err), err)
				}
			})
		})
	}
}

// TestEarlierImageSetByOthersAfterABakedCapture: somebody went back by hand to a version
// whose nodes need customData, or to the image of before all captures, and the model has
// the no-op since. The next capture with keep, and a rollback to that image, restore it.
func TestEarlierImageSetByOthersAfterABakedCapture(t *testing.T) {
	original := newWorld().pool.Model.Image
	kept := fleet.ImageReference{ID: versionID("2000.01.01")}
	for _, c := range []struct {
		name  string
		image fleet.ImageReference
		then  func(t *testing.T, e *Engine) error
	}{
		{"capture over a version", kept, func(t *testing.T, e *Engine) error {
			_, err := e.Capture(t.Context(), keeping())
			return err
		}},
		{"capture over the original", original, func(t *testing.T, e *Engine) error {
			_, err := e.Capture(t.Context(), keeping())
			return err
		}},
		{"rollback to that version", kept, func(t *testing.T, e *Engine) error {
			_, err := e.Rollback(t.Context(), RollbackRequest{Pool: poolID, To: "2000.01.01"})
			return err
		}},
		{"rollback to the original", original, func(t *testing.T, e *Engine) error {
			p, err := e.PlanRollback(t.Context(), RollbackRequest{Pool: poolID, To: Original})
			if err != nil || p.NothingToDo {
				t.Errorf("%+v, %v", p, err)
			}
			for _, s := range p.Steps {
				if s.ID == prototype.StepModel && s.Skip != "" {
					t.Errorf("the plan leaves the model alone: %s", s.Skip)
				}
			}
			_, err = e.Rollback(t.Context(), RollbackRequest{Pool: poolID, To: Original})
			if err != nil {
				return err
			}
			again, err := e.Rollback(t.Context(), RollbackRequest{Pool: poolID, To: Original})
			if !again.NothingToDo {
				t.Errorf("once more: %+v", again)
			}
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				joins := w.customData
				w.cameWith = joins
				e, _, ctx, _ := w.process(t, "a", 0)
				if _, err := e.Capture(ctx, keeping()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(24 * time.Hour)
				if _, err := e.Capture(ctx, request()); err != nil || w.customData != noop {
					t.Fatalf("%v; the model's customData is %q", err, w.customData)
				}
				time.Sleep(24 * time.Hour)
				w.setImage(c.image)
				if err := c.then(t, e); err != nil {
					t.Fatal(err)
				}
				if w.customData != joins {
					t.Errorf("the model's customData is %q: new nodes never join", w.customData)
				}
			})
		})
	}
}

// TestUndoneOverABakedModel: a change of the model that is undone leaves the customData
// that the model had, and not what the donor came with.
func TestUndoneOverABakedModel(t *testing.T) {
	for _, q := range []CaptureRequest{request(), keeping()} {
		t.Run(q.Bootstrap, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.cameWith = w.customData
				e, p, ctx, _ := w.process(t, "a", 0)
				if _, err := e.Capture(ctx, request()); err != nil {
					t.Fatal(err)
				}
				was := w.pool.Model.Image
				time.Sleep(24 * time.Hour)
				p.kill()
				e, p, ctx, _ = w.process(t, "killed", 0)
				p.killWhen = "after " + fleet.PatchModel{}.Verb() + " " + poolID.Name()
				_, _ = e.Capture(ctx, q)
				time.Sleep(time.Minute)
				e, _, ctx, _ = w.process(t, "b", 0)
				// Another command undoes what was begun, and finds nothing to do.
				if _, err := e.Rollback(ctx, RollbackRequest{Pool: poolID, To: was.ID.Name()}); err != nil {
					t.Fatal(err)
				}
				if w.customData != noop || !w.pool.Model.Image.Same(was) {
					t.Errorf("the model uses %s with the customData %q", w.pool.Model.Image.Text(), w.customData)
				}
			})
		})
	}
}

// TestKeptAfterBaked: a node of a baked version came with customData that does nothing. A
// version of it that joins by its disk says so; one that does not is not published.
func TestKeptAfterBaked(t *testing.T) {
	for _, joins := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			e, _, ctx, _ := w.process(t, "a", 0)
			if _, err := e.Capture(ctx, request()); err != nil || w.customData != noop {
				t.Fatalf("%v; the model's customData is %q", err, w.customData)
			}
			was := w.pool.Model.Image
			time.Sleep(24 * time.Hour)
			if !joins {
				w.outcome = "nojoin"
			}
			result, err := e.Capture(ctx, keeping())
			if !joins {
				if err == nil || !strings.Contains(err.Error(), "--bootstrap baked") || !w.pool.Model.Image.Same(was) {
					t.Errorf("%v; the model uses %s, whose nodes never join", err, w.pool.Model.Image.Text())
				}
				return
			}
			if err != nil || w.customData != noop {
				t.Fatalf("%v; the model's customData is %q", err, w.customData)
			}
			if tag := w.versions[low(result.Version)].Tags[fleet.TagCustomData]; tag != sha(noop) {
				t.Errorf("the version goes with customData %q, want the no-op's", tag)
			}
			if _, err := e.Rollback(ctx, RollbackRequest{Pool: poolID}); err != nil || w.customData != noop {
				t.Errorf("%v; the model's customData is %q", err, w.customData)
			}
		})
	}
}
