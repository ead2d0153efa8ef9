package simulate

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/watch"
	"github.com/ortet/ortet/internal/workflow"
)

const badVersion = "2000.01.01" // of the capture in these worlds

// inCaptured plays f in a world whose capture made nodes that are bad.
func inCaptured(t *testing.T, pool Pool, grow int64, happen []Event, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		asks := []Ask{{Do: "capture", Grow: grow}, {Do: "watch"}} // so the capture does not wait for its nodes
		w := newWorld(Story{Seed: 7, Pool: pool, Asks: asks, Happen: happen})
		w.pursue(0, asks[0])
		f(t, w)
		w.close()
		for _, p := range w.processes {
			p.cancel()
			<-p.done
		}
		for _, v := range w.violations {
			t.Error(v)
		}
		if t.Failed() && *verbose {
			t.Log(strings.Join(w.lines, "\n"))
		}
	})
}

func badPool(bad string, change func(*Pool)) Pool {
	return with(func(p *Pool) {
		p.Daemons, p.Bad = 1, bad
		if change != nil {
			change(p)
		}
	})
}

// begin begins a command, and do waits for its end.
func (w *world) beginCommand(t *testing.T, ask Ask) *process {
	t.Helper()
	p, err := w.start(ask)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (w *world) do(t *testing.T, ask Ask) *process {
	t.Helper()
	p := w.beginCommand(t, ask)
	w.await(p)
	return p
}

// until waits until something is so, for at most three hours.
func (w *world) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Hour); !is(); time.Sleep(time.Second) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 3 hours:\n%s", what, strings.Join(w.lines, "\n"))
		}
	}
}

func (w *world) live() string { return path.Base(w.imageNow()) }

// ends checks an exit code, an outcome and parts of the sentence and its notes.
func (p *process) ends(t *testing.T, code int, outcome watch.Outcome, says ...string) {
	t.Helper()
	p.w.checkClaims(p, false)
	for _, v := range p.w.violations {
		t.Error(v)
	}
	text := fmt.Sprint(p.err) + "\n" + strings.Join(p.watch.Notes, "\n")
	if p.code() != code || p.watch.Outcome != outcome {
		t.Errorf("%s ends with exit %d and %q, want %d and %q: %s", p.ask.Do, p.code(), p.watch.Outcome, code, outcome, text)
	}
	for _, s := range says {
		if !strings.Contains(text, s) {
			t.Errorf("%s does not say %q: %s", p.ask.Do, s, text)
		}
	}
}

// A person chooses an image between a rollback's plan and its write: it stays.
func TestOutcomeImageChosenMeanwhileStays(t *testing.T) {
	for name, pool := range map[string]Pool{"version": badPool("no join", nil), "latest": badPool("no join", func(p *Pool) { p.Latest = true })} {
		for _, chosen := range []string{"model changed by others", "definition chosen by others", "version chosen by others"} {
			if name == "latest" && chosen == "definition chosen by others" {
				continue // it is what the model names
			}
			happen := at(patchModel, 3, chosen)
			for _, do := range []string{"watch", "rollback"} {
				t.Run(name+", "+chosen+", "+do, func(t *testing.T) {
					inCaptured(t, pool, 2, happen, func(t *testing.T, w *world) {
						image := w.imageNow
						p := w.do(t, Ask{Do: do})
						if len(w.pending) > 0 {
							t.Fatalf("%v was not played:\n%s", w.pending, strings.Join(w.lines, "\n"))
						}
						want := map[string]string{"model changed by others": otherImage, "definition chosen by others": string(w.names.Definition),
							"version chosen by others": string(w.names.Definition.Child("versions", "1999.12.18"))}[chosen]
						if do == "watch" && chosen == "definition chosen by others" { // whose latest is the bad version
							want = string(w.names.Definition.Child("versions", "1999.12.25"))
							p.ends(t, workflow.ExitFailed, watch.TakenBack, "planned again", "by now, not", "new nodes come from 1999.12.25")
						}
						if !strings.EqualFold(image(), want) {
							t.Errorf("the model has %s, and others chose %s; exit %d: %v", image(), want, p.code(), p.err)
						}
						if do == "rollback" && (p.code() != workflow.ExitFailed || !strings.Contains(fmt.Sprint(p.err), "by now, not")) {
							t.Errorf("exit %d: %v", p.code(), p.err)
						}
						if do == "watch" && chosen != "definition chosen by others" {
							_, version, _ := strings.Cut(path.Base(want), ":")
							p.ends(t, workflow.ExitFailed, watch.TakenBack, "new nodes come from ", cmp.Or(version, path.Base(want)))
						}
					})
				})
			}
		}
	}
}

// The version to go back to is deleted between the plan and the write of a take-back.
func TestOutcomeNextOlderVersionIfOneIsDeleted(t *testing.T) {
	for versions, says := range map[int]string{3: "new nodes come from 1999.12.18", 1: "there is no way back"} {
		t.Run(fmt.Sprint(versions), func(t *testing.T) {
			pool := badPool("no join", func(p *Pool) { p.Versions = versions })
			inCaptured(t, pool, 2, at(patchModel, 3, "version before deleted"), func(t *testing.T, w *world) {
				p := w.do(t, Ask{Do: "watch"})
				if len(w.pending) > 0 {
					t.Fatalf("%v was not played:\n%s", w.pending, strings.Join(w.lines, "\n"))
				}
				if versions == 1 {
					p.ends(t, workflow.ExitNeedsPerson, "", says)
				} else {
					p.ends(t, workflow.ExitFailed, watch.TakenBack, says)
				}
			})
		})
	}
}

// A person brings a version back while the watch that took it back sees to its nodes.
func TestOutcomeVersionBroughtBackStopsTheWatch(t *testing.T) {
	for _, bad := range []string{"cordon", "delete"} {
		t.Run(bad, func(t *testing.T) {
			inCaptured(t, badPool("daemon", nil), 2, nil, func(t *testing.T, w *world) {
				p := w.beginCommand(t, Ask{Do: "watch", Bad: bad})
				time.Sleep(time.Minute)
				w.story.Pool.SlowBoot = 20 * time.Minute
				w.scaleOut(1) // its Node is still to come as the version is taken back
				w.until(t, "taken back", func() bool { holder, _ := w.holder(); return w.live() != badVersion && holder == "" && w.quarantined() })
				if back := w.do(t, Ask{Do: "rollback", To: badVersion}); back.code() != 0 {
					t.Fatal(back.err)
				}
				capacity := w.modelNow().capacity
				cordoned := w.cordonedNodes()
				w.await(p)
				p.ends(t, workflow.ExitNeedsPerson, watch.StoodDown, "is quarantined: ", "names it again, by rollback ", " of p3/", "kubectl uncordon "+strings.Join(cordoned, " "))
				if now := w.modelNow().capacity; now != capacity || w.live() != badVersion {
					t.Errorf("capacity %d, was %d; the model has %s", now, capacity, w.live())
				}
				if now := w.cordonedNodes(); !slices.Equal(now, cordoned) {
					t.Errorf("cordoned %v, and %v when the version was brought back", now, cordoned)
				}
				if tags := tagsOf(w.versions()[low(w.names.Definition.Child("versions", badVersion))]); tags[fleet.TagQuarantine] != "" {
					t.Errorf("the version that a person chose is quarantined: %v", tags)
				}
			})
		})
	}
}

// A version that a person brings back while its bad nodes are drained keeps those that are not deleted
// yet, and one that others deleted meanwhile keeps no other from its deletion.
func TestOutcomeDeletionLooksAgainAfterDrains(t *testing.T) {
	for _, others := range []string{"bring the version back", "delete a bad node"} {
		t.Run(others, func(t *testing.T) {
			inCaptured(t, badPool("daemon", func(p *Pool) { p.PodsTake = 40 * time.Second }), 2, nil, func(t *testing.T, w *world) {
				all := w.badComputers()
				for _, c := range all {
					w.putPod(c.node(), "web", w.nextPod(), nil)
				}
				stays := func(p *corev1.Pod) bool { return p.DeletionTimestamp == nil }
				p := w.beginCommand(t, Ask{Do: "watch", Bad: watch.Delete})
				w.until(t, "last of them is being drained", func() bool {
					return w.live() != badVersion && !slices.ContainsFunc(all, func(c *computer) bool { return slices.ContainsFunc(w.evictable(c.node()), stays) })
				})
				time.Sleep(time.Second)
				if others == "delete a bad node" {
					w.deleteInstances(w.pool, path.Base(all[0].ID))
					w.await(p)
					p.ends(t, workflow.ExitFailed, watch.TakenBack)
					if left := w.badComputers(); len(left) > 0 {
						t.Errorf("%d bad machines are left", len(left))
					}
					return
				}
				if err := w.setImage(badVersion, "others"); err != nil {
					t.Fatal(err)
				}
				w.await(p)
				p.ends(t, workflow.ExitNeedsPerson, watch.StoodDown, "names it again, by a program without a record")
				if left := w.badComputers(); len(left) != len(all) {
					t.Errorf("%d of %d machines of what a person chose are left", len(left), len(all))
				}
			})
		})
	}
}

// quarantined reports whether the bad version's tags are written.
func (w *world) quarantined() bool {
	id := low(w.names.Definition.Child("versions", badVersion))
	return w.isQuarantined(id) && stateOf(w.versions()[id]) == plan.Succeeded
}

// cordonedNodes are those of bad computers.
func (w *world) cordonedNodes() (all []string) {
	for _, c := range w.badComputers() {
		if n := w.kube.Node(c.node()); n != nil && n.Spec.Unschedulable {
			all = append(all, n.Name)
		}
	}
	slices.Sort(all)
	return all
}

// A node that a take-back cordoned is named by its outcome and by ortet status until it is uncordoned.
func TestOutcomeCordonedNodesAreNamed(t *testing.T) {
	inCaptured(t, badPool("daemon", nil), 2, nil, func(t *testing.T, w *world) {
		p := w.do(t, Ask{Do: "watch"})
		time.Sleep(time.Hour)
		names := w.cordonedNodes()
		if len(names) == 0 {
			t.Fatal("no node is cordoned")
		}
		p.ends(t, workflow.ExitFailed, watch.TakenBack, "kubectl uncordon "+strings.Join(names, " "))
		status := func() []string {
			config, err := w.config("status", w.azure.Transport(), w.kube, nil)
			if err != nil {
				t.Fatal(err)
			}
			all, err := capture.New(config).Status(w.ctx, []fleet.ResourceID{w.pool})
			if err != nil {
				t.Fatal(err)
			}
			return all[0].Cordoned
		}
		if got := status(); !slices.Equal(got, names) {
			t.Errorf("status names %v as cordoned, want %v", got, names)
		}
		for _, name := range names {
			w.uncordon(name)
		}
		if got := status(); len(got) > 0 {
			t.Errorf("status names %v as cordoned after kubectl uncordon", got)
		}
	})
}

// Of two watches of a version both say that it was taken back.
func TestOutcomeTwoWatchesSayTheSame(t *testing.T) {
	inCaptured(t, badPool("no join", nil), 2, nil, func(t *testing.T, w *world) {
		first := w.beginCommand(t, Ask{Do: "watch"})
		time.Sleep(7 * time.Second)
		second := w.beginCommand(t, Ask{Do: "watch"})
		w.await(first)
		w.await(second)
		for _, p := range []*process{first, second} {
			p.ends(t, workflow.ExitFailed, watch.TakenBack, badVersion+" is quarantined: join", "new nodes come from 1999.12.25")
		}
		second.ends(t, workflow.ExitFailed, watch.TakenBack, "another command took "+badVersion+" back: rollback ")
	})
}

// A node that failed counts also if the watch is killed and the node deleted.
func TestOutcomeFailureOutlivesItsNode(t *testing.T) {
	inCaptured(t, badPool("no join", nil), 1, nil, func(t *testing.T, w *world) {
		p := w.beginCommand(t, Ask{Do: "watch"})
		time.Sleep(15 * time.Minute) // the limit of a node is shorter
		p.die()
		for _, c := range w.badComputers() {
			w.deleteInstances(w.pool, path.Base(c.ID))
		}
		time.Sleep(8 * time.Minute)
		again := w.do(t, Ask{Do: "watch"})
		again.ends(t, workflow.ExitFailed, watch.TakenBack, "an earlier watch found: ", badVersion+" is quarantined: join: ", "new nodes come from 1999.12.25")
	})
}
