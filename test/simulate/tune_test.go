package simulate

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/internal/boots/assess"
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
				ask := Ask{Do: "capture", Tune: wire.RecommendedTunings(), Once: true}
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

// A capture with --tune that is killed is finished as it began, and another that asks for other tunings later
// does not take what is there for its own.
func TestOutcomeTunedAndResumed(t *testing.T) {
	for _, event := range slices.Concat(at(putVersion, 1, "kill before"), at(putVersion, 1, "kill after"), at(putCanary, 1, "kill before")) {
		t.Run(event.What+" "+event.At, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(Story{Seed: 1, Pool: usual, Happen: []Event{event}})
				defer w.finish()
				w.bootOf = func(_ context.Context, n fleet.Node) prove.Boot {
					return prove.Boot{HostKeys: []string{"ssh-ed25519 SHA256:" + n.Name}, Failed: []string{}}
				}
				before := w.live()
				if p := w.do(t, Ask{Do: "capture", Tune: []string{wire.TuneRuntimeEarly}, Once: true}); !p.isDead() || w.live() != before {
					t.Fatalf("exit %d, live %s, was %s: %v", p.code(), w.live(), before, p.err)
				}
				p := w.do(t, Ask{Do: "capture", Tune: []string{wire.TuneSSHHostKey}, Once: true})
				tunings, live := w.tunedOf(t)
				notes := strings.Join(p.capture.Notes, "\n")
				if p.code() != workflow.ExitDone || tunings[live] != "runtime-early" || len(p.capture.Canary) != 1 || !strings.Contains(notes, "the options of the open capture are used") || !strings.Contains(notes, "has other tunings than were asked for: runtime-early") {
					t.Errorf("exit %d, clones %v, live %s of %v, notes %q: %v", p.code(), p.capture.Canary, live, tunings, notes, p.err)
				}
				p = w.do(t, Ask{Do: "capture", Once: true})
				if notes = strings.Join(p.capture.Notes, "\n"); p.code() != workflow.ExitDone || !strings.Contains(notes, "has other tunings than were asked for: runtime-early; give --again to make one with those") {
					t.Errorf("exit %d, notes %q: %v", p.code(), notes, p.err)
				}
			})
		})
	}
}

// A version is tagged, and its clones are judged, by what ortet-node reports that it applied, whatever was
// asked for.
func TestOutcomeTunedAsApplied(t *testing.T) {
	for _, applied := range [][]string{{}, {wire.TuneRuntimeEarly}, wire.Tunings()} {
		t.Run(strings.Join(applied, " "), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(Story{Seed: 1, Pool: usual})
				defer w.finish()
				w.applied = applied
				w.bootOf = func(_ context.Context, n fleet.Node) prove.Boot { // without the kind of key that ssh-host-key asks for
					return prove.Boot{HostKeys: []string{"ssh-rsa SHA256:" + n.Name}, Failed: []string{}}
				}
				before := w.live()
				p := w.do(t, Ask{Do: "capture", Tune: wire.Tunings(), Once: true})
				tunings, live := w.tunedOf(t)
				if whole := len(applied) == len(wire.Tunings()); whole {
					if p.code() != workflow.ExitFailed || !strings.Contains(p.err.Error(), "is quarantined: host-key: ") || w.live() != before {
						t.Errorf("exit %d, live %s: %v", p.code(), w.live(), p.err)
					}
					return
				}
				if want := wire.JoinTunings(applied); p.code() != workflow.ExitDone || live == before || tunings[live] != want || !strings.Contains(strings.Join(p.capture.Notes, "\n"), "has other tunings than were asked for") {
					t.Errorf("exit %d, live %s of %v, want %q, notes %q: %v", p.code(), live, tunings, want, p.capture.Notes, p.err)
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

// A donor that is raised, or stays in service, is what clones of its tuned version are compared with.
func TestOutcomeTunedOfEachDonor(t *testing.T) {
	for name, ask := range map[string]Ask{"fresh": {Fresh: true}, "online": {Online: true}} {
		for _, flexible := range []bool{false, true} {
			for gate, clone := range map[string]prove.Boot{
				"":           {HostKeys: []string{"ssh-ed25519 SHA256:c"}, Failed: []string{"fwupd.service"}},
				"host-key: ": {HostKeys: []string{"ssh-ed25519 SHA256:d"}, Failed: []string{}},
				"units: ":    {HostKeys: []string{"ssh-ed25519 SHA256:c"}, Failed: []string{"a.service"}},
			} {
				t.Run(strings.TrimSuffix(name+" "+gate, ": "), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						ask.Do, ask.Tune, ask.Once = "capture", wire.RecommendedTunings(), true
						s := Story{Seed: 1, Pool: usual, Asks: []Ask{ask}}
						if flexible {
							s = onFlexible(s)
						}
						w := newWorld(s)
						defer w.finish()
						asked := map[string]int{} // by node
						w.bootOf = func(_ context.Context, n fleet.Node) prove.Boot {
							if strings.Contains(n.ProviderID, "-canary") {
								return clone
							}
							if asked[n.Name]++; asked[n.Name] == 1 { // its report comes minutes after its Node
								return prove.Boot{}
							}
							return prove.Boot{HostKeys: []string{"ssh-ed25519 SHA256:d"}, Failed: []string{"fwupd.service"}}
						}
						before := w.live()
						p := w.do(t, ask)
						switch {
						case gate == "" && (p.code() != workflow.ExitDone || len(p.capture.Canary) != 1 || w.live() == before):
							t.Errorf("exit %d, clones %v, live %s: %v", p.code(), p.capture.Canary, w.live(), p.err)
						case gate != "" && (p.code() != workflow.ExitFailed || !strings.Contains(p.err.Error(), "is quarantined: "+gate) || w.live() != before):
							t.Errorf("exit %d, live %s, was %s: %v", p.code(), w.live(), before, p.err)
						}
						if donor := w.donorOf(p.ask); asked[donor] == 0 || len(asked) != 1 {
							t.Errorf("the boots of %v were read, want the donor's, %s", asked, donor)
						}
						for _, n := range p.capture.Notes {
							if gate == "" && strings.Contains(n, "was not checked") {
								t.Errorf("note %q", n)
							}
						}
					})
				})
			}
		}
	}
}

// A report counts by its vmId: a Node may have stayed from an earlier machine of its name, and so may what
// a controller keeps. The last of the machine's own boots counts, and the console where there is none.
func TestBootsOfMachines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Seed: 1, Pool: usual})
		defer w.finish()
		w.console = []byte("[  OK  ] Started a.service.\n[FAILED] Failed to start on-console.service.\n")
		w.make(http.MethodPatch, w.pool, computeAPI, object{"properties": object{"virtualMachineProfile": object{"diagnosticsProfile": object{"bootDiagnostics": object{"enabled": true}}}}})
		w.make(http.MethodPost, w.pool+"/manualupgrade", computeAPI, object{"instanceIds": []string{"0"}})
		_ = sleep(t.Context(), 10*time.Minute)
		config, err := w.config("look", w.azure.Transport(), w.kube, nil)
		if err != nil {
			t.Fatal(err)
		}
		api, err := kubernetes.NewForConfig(&rest.Config{Host: "http://kubesim.invalid", Transport: w.kube, BearerToken: ortetUser})
		if err != nil {
			t.Fatal(err)
		}
		name := w.nodeName(0)
		i, err := config.Cloud.Instance(t.Context(), w.instance(0))
		if err != nil {
			t.Fatal(err)
		}
		report := func(vm, unit string) wire.BootReport {
			return wire.BootReport{Version: wire.BootReportVersion, Node: name, VMID: strings.ToLower(vm), BootID: unit,
				Units:   []wire.BootUnit{{Name: unit, Result: "exit-code"}},
				Sources: []wire.BootSource{{Name: wire.SourceSSHHostKey, State: wire.SourceRead, Detail: "ssh-ed25519 SHA256:" + unit}}}
		}
		onNode := func(vm, unit string) string {
			text, err := wire.EncodeBootAnnotation(report(vm, unit))
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		keep := func(vm, unit string, stored time.Duration) {
			r, err := assess.BootRecord{Node: name, Pool: w.pool, Instance: w.instance(0), VMID: vm, BootID: unit, Stored: time.Now().Add(stored)}.Record(report(vm, unit))
			if err != nil {
				t.Fatal(err)
			}
			m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: r.Name, Namespace: namespace, Labels: r.Labels, Annotations: r.Annotations}, Data: r.Data, BinaryData: r.Binary}
			if _, err := api.CoreV1().ConfigMaps(namespace).Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		const another = "00000000-0000-4000-8000-00000000ffff"
		want := func(what, unit string, annotation string) {
			t.Helper()
			n, err := config.Cluster.Node(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if n.Annotations = map[string]string{}; annotation != "" {
				n.Annotations[wire.BootAnnotation] = annotation
			}
			if got := config.Boot(t.Context(), n); !slices.Equal(got.Failed, []string{unit}) || got.Console != (unit == "on-console.service") {
				t.Errorf("%s: %+v, want %s", what, got, unit)
			}
		}
		want("nothing but a console", "on-console.service", "")
		want("a report of another machine", "on-console.service", onNode(another, "annotated.service"))
		want("a report of no machine", "on-console.service", onNode("", "annotated.service"))
		want("a cut report", "on-console.service", onNode(i.VMID, "annotated.service")[:40])
		keep(another, "theirs.service", time.Hour)
		want("a kept one of another machine", "on-console.service", "")
		keep(i.VMID, "last.service", time.Minute)
		keep(i.VMID, "first.service", 0)
		want("two that are kept", "last.service", "")
		keep(i.VMID, "newest.service", 2*time.Minute)
		want("three that are kept", "newest.service", "")
		want("a report on the Node beside them", "annotated.service", onNode(i.VMID, "annotated.service"))
		want("another's on the Node beside them", "newest.service", onNode(another, "annotated.service"))
	})
}
