package simulate

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/prove"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

// tunedOf are the tunings of the versions in the status of the pool, by name, and the one in the model.
func (w *world) tunedOf(t *testing.T) (tunings map[string]string, live string) {
	t.Helper()
	config, err := w.config("status", w.azure.Transport(), w.kube, nil)
	if err != nil {
		t.Fatal(err)
	}
	all, err := capture.New(config).Status(t.Context(), []fleet.ResourceID{w.pool})
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	tunings = map[string]string{}
	for _, v := range all[0].Versions {
		tunings[v.Name] = v.Tags[fleet.TagTuned]
		if v.InModel {
			live = v.Name
		}
	}
	return tunings, live
}

// A tuned version goes live by the proof of a clone. One whose clones fail a gate stays out of the model, with
// its tunings named; the model keeps the good one, and goes to an untuned one and back.
func TestOutcomeTuned(t *testing.T) {
	for name, c := range map[string]struct {
		clone prove.Boot // beside the donor's
		gate  string
	}{
		"host key": {prove.Boot{HostKeys: []string{"ssh-rsa SHA256:c"}, Failed: []string{}}, "host-key: "},
		"donor's":  {prove.Boot{HostKeys: []string{"ssh-ed25519 SHA256:d"}, Failed: []string{}}, "host-key: "},
		"unit":     {prove.Boot{HostKeys: []string{"ssh-ed25519 SHA256:c"}, Failed: []string{"containerd.service"}}, "units: "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(Story{Seed: 1, Pool: usual})
				defer w.finish()
				good := prove.Boot{HostKeys: []string{"ssh-ed25519 SHA256:c"}, Failed: []string{"fwupd.service"}}
				clone := good
				w.bootOf = func(_ context.Context, n fleet.Node) prove.Boot {
					if strings.Contains(n.ProviderID, "-canary/") {
						return clone
					}
					return prove.Boot{HostKeys: []string{"ssh-ed25519 SHA256:d"}, Failed: []string{"fwupd.service"}}
				}
				ask := Ask{Do: "capture", Tune: wire.Tunings(), Once: true}
				p := w.do(t, ask)
				if tunings, live := w.tunedOf(t); p.code() != workflow.ExitDone || len(p.capture.Canary) != 1 || tunings[live] != "runtime-early,ssh-host-key" || p.capture.Version.Name() != live {
					t.Fatalf("exit %d, clones %v, live %s of %v: %v", p.code(), p.capture.Canary, live, tunings, p.err)
				}
				before := w.live()
				clone, ask.Again = c.clone, true
				p = w.do(t, ask)
				text := p.err.Error()
				if p.code() != workflow.ExitFailed || !strings.Contains(text, "is quarantined: "+c.gate) || !strings.Contains(text, "tuned with runtime-early, ssh-host-key") ||
					!strings.Contains(text, "or leave --tune out") || w.live() != before {
					t.Errorf("exit %d, live %s, was %s: %v", p.code(), w.live(), before, p.err)
				}
				if _, live := w.tunedOf(t); live != before {
					t.Errorf("the status has %s in the model, want %s", live, before)
				}
				p = w.do(t, Ask{Do: "capture", Again: true, Once: true})
				if tunings, live := w.tunedOf(t); p.code() != workflow.ExitDone || tunings[live] != "" || live == before {
					t.Fatalf("without --tune: exit %d, live %s of %v: %v", p.code(), live, tunings, p.err)
				}
				untuned := w.live()
				for _, to := range []string{before, untuned, before} {
					if p = w.do(t, Ask{Do: "rollback", To: to, Once: true}); p.code() != workflow.ExitDone || w.live() != to {
						t.Errorf("rollback to %s: exit %d, live %s: %v", to, p.code(), w.live(), p.err)
					}
				}
			})
		})
	}
}

// What nothing shows is not checked, and the result says so.
func TestOutcomeTunedAndNotChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Seed: 1, Pool: usual})
		defer w.finish()
		p := w.do(t, Ask{Do: "capture", Tune: []string{wire.TuneRuntimeEarly}, Auto: true, Once: true})
		says := func(text string) bool {
			return slices.ContainsFunc(p.capture.Notes, func(n string) bool { return strings.Contains(n, text) })
		}
		if p.code() != workflow.ExitDone || len(p.capture.Canary) != 1 || !says("not all SSH host keys and failed units of clones will be checked") || !says("was not checked: neither clone nor donor has") {
			t.Errorf("exit %d, clones %v: %q, %v", p.code(), p.capture.Canary, p.capture.Notes, p.err)
		}
	})
}
