package join

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

// started says that an agent may start.
func (w *world) started() bool { return w.there(ReadyFile) }

// A machine that leaves does not join, whenever it began to leave; once it stays after
// all it does.
func TestWhoLeavesDoesNotJoin(t *testing.T) {
	for _, distribution := range []string{wire.Kubelet, wire.K3s} {
		for name, when := range map[string]func(w *world, hold func()){
			"before":               func(_ *world, hold func()) { hold() },
			"while it is admitted": func(w *world, hold func()) { w.grant = func(*wire.Join) { hold() } },
			"while it is written": func(w *world, hold func()) {
				// The time is asked for the record, after all else is written.
				w.options.Now = func() time.Time {
					if w.there(KubeletArguments) || w.there(RancherToken) {
						hold()
					}
					return time.Now()
				}
			},
			"at a start of one that has joined": func(w *world, hold func()) {
				w.mustJoin()
				w.kubelet(ourName, time.Now().Add(time.Hour))
				if err := os.RemoveAll(w.path("/run")); err != nil {
					t.Fatal(err)
				}
				hold()
			},
		} {
			t.Run(distribution+" "+name, func(t *testing.T) {
				w := newWorld(t)
				w.settings.Distribution = distribution
				released := false
				when(w, func() {
					if err := w.client().Hold(); err != nil && !released {
						t.Error(err)
					}
				})
				wait := w.options.Wait
				w.options.Wait = func(ctx context.Context, d time.Duration) error {
					if w.started() {
						t.Error("an agent may start")
					}
					if len(w.waits) < 3 {
						return wait(ctx, d)
					}
					// It stays after all.
					released = true
					w.grant, w.options.Now = nil, nil
					if err := w.client().Release(); err != nil {
						t.Error(err)
					}
					return wait(ctx, d)
				}
				if name == "while it is written" {
					if err := w.client().Join(t.Context(), true); !errors.Is(err, errLeaving) || w.started() {
						t.Errorf("%v; an agent may start: %v", err, w.started())
					}
					w.options.Now = nil
				}
				w.mustJoin()
				if !w.started() || len(w.waits) != 4 {
					t.Errorf("an agent may start: %v, after %d pauses", w.started(), len(w.waits))
				}
				if n := strings.Count(w.said(), "cannot join yet"); n != 1 && name != "while it is written" {
					t.Errorf("told %d times:\n%s", n, w.said())
				}
			})
		}
	}
}

// An agent that ends while its node is drained comes back, or its pods would not end;
// once the node has left, or where the identity is not its own, it does not.
func TestAnAgentComesBackWhileItsNodeIsDrained(t *testing.T) {
	for _, distribution := range []string{wire.Kubelet, wire.K3s} {
		for name, c := range map[string]struct {
			change func(w *world)
			comes  bool
		}{
			"while it is drained":       {func(*world) {}, true},
			"when it has left":          {func(w *world) { _ = w.client().noteLeft() }, false},
			"in another boot":           {func(w *world) { _ = os.Remove(w.path(ReadyFile)) }, false},
			"in another name":           {func(w *world) { w.kubelet("pool1000001", time.Now().Add(time.Hour)) }, false},
			"with what has ended":       {func(w *world) { w.kubelet(ourName, time.Now().Add(-time.Hour)) }, false},
			"without a certificate yet": {func(w *world) { _ = os.RemoveAll(w.path("/etc/kubernetes/kubelet.conf")) }, false},
		} {
			w := newWorld(t)
			w.mustJoin()
			w.kubelet(ourName, time.Now().Add(time.Hour))
			w.settings.Distribution = distribution
			w.mustJoin()
			if err := w.client().Hold(); err != nil {
				t.Fatal(err)
			}
			joins := w.joins
			c.change(w)
			if err := w.client().Join(t.Context(), true); c.comes != (err == nil) || !c.comes && !errors.Is(err, errLeaving) || w.joins != joins {
				t.Errorf("%s, %s: %v, %d joins", distribution, name, err, w.joins-joins)
			}
		}
	}
}

// Two that join at once would take away what the other got.
func TestOneJoinsAtATime(t *testing.T) {
	w := newWorld(t)
	var second error
	w.grant = func(*wire.Join) {
		w.grant = nil
		second = w.client().Join(t.Context(), true)
	}
	w.mustJoin()
	if !errors.Is(second, errNotAlone) || w.joins != 1 {
		t.Errorf("the second: %v; %d joins", second, w.joins)
	}
	// Whoever comes after it finds it done, though no kubelet has used it yet.
	token := w.read(bootstrapKubeconfig)
	w.mustJoin()
	if w.joins != 1 || w.read(bootstrapKubeconfig) != token {
		t.Errorf("%d joins; the token is %q", w.joins, w.read(bootstrapKubeconfig))
	}
}

// Who was admitted a moment ago is let get its certificate. With a token that has
// ended or is gone, by a clock that was set, in another boot or after it has left it
// joins anew.
func TestAdmittedAMomentAgo(t *testing.T) {
	for _, distribution := range []string{wire.Kubelet, wire.RKE2} {
		for name, c := range map[string]struct {
			change func(w *world)
			joins  int
		}{
			"at once":            {func(*world) {}, 1},
			"the token ended":    {func(w *world) { w.options.Now = func() time.Time { return time.Now().Add(6 * time.Minute) } }, 2},
			"the clock was set":  {func(w *world) { w.options.Now = func() time.Time { return time.Now().Add(-time.Hour) } }, 2},
			"the token is gone":  {func(w *world) { _ = os.Remove(w.path(bootstrapKubeconfig)); _ = os.Remove(w.path(RancherToken)) }, 2},
			"in another boot":    {func(w *world) { _ = os.RemoveAll(w.path("/run")) }, 2},
			"it has left":        {func(w *world) { _ = w.client().noteLeft() }, 2},
			"the record is lost": {func(w *world) { _ = os.Remove(w.path(RecordFile)) }, 2},
		} {
			w := newWorld(t)
			w.settings.Distribution = distribution
			w.mustJoin()
			c.change(w)
			w.mustJoin()
			if w.joins != c.joins || !w.started() {
				t.Errorf("%s, %s: %d joins, want %d", distribution, name, w.joins, c.joins)
			}
		}
	}
}
