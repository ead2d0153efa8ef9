package simulate

import (
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/rollback"
)

// A ledger plays commands one after the other, and looks at the versions in between.
type ledger struct {
	*world
	t *testing.T
}

// played plays a story of a pool whose model names a Marketplace image, in virtual time.
func played(t *testing.T, f func(l ledger)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Seed: 7, Pool: fresh})
		defer w.close()
		f(ledger{w, t})
		for _, v := range w.violations {
			t.Error(v)
		}
	})
}

// run plays a command to its end, and requires its exit code.
func (l ledger) run(exit int, ask Ask) *process {
	l.t.Helper()
	l.beginAsk()
	p, err := l.start(ask)
	if err != nil {
		l.t.Fatal(err)
	}
	if !l.await(p) || p.code() != exit {
		l.t.Fatalf("%s ends with exit %d, want %d: %v", ask.Do, p.code(), exit, p.err)
	}
	return p
}

// kill plays a command that is killed, until its lock is over.
func (l ledger) kill(ask Ask) {
	l.t.Helper()
	p, err := l.start(ask)
	if err != nil || l.await(p) {
		l.t.Fatalf("%s was not killed: %v, %v", ask.Do, err, p.err)
	}
	time.Sleep(time.Hour)
}

// next has something happen at the next request of a name.
func (l ledger) next(request, what string) {
	l.locked(func() { l.pending = append(l.pending, Event{At: request, N: l.counts[request] + 1, What: what}) })
}

// abandon captures a version whose capture is interrupted while Azure builds it, and returns its name.
func (l ledger) abandon(ask Ask) string {
	l.t.Helper()
	before := l.versions()
	p, err := l.start(ask)
	if err != nil {
		l.t.Fatal(err)
	}
	for len(l.versions()) == len(before) {
		time.Sleep(time.Second)
	}
	p.interrupt()
	l.await(p)
	time.Sleep(2 * time.Hour)
	for id := range l.versions() {
		if before[id] == nil {
			return path.Base(id)
		}
	}
	l.t.Fatal("no version was made")
	return ""
}

// live is the version that the model names.
func (l ledger) live() string { return path.Base(l.imageNow()) }

// wants requires the version that the model names.
func (l ledger) wants(version, why string) {
	l.t.Helper()
	if got := l.live(); got != version {
		l.t.Errorf("%s: the model names %s, want %s", why, got, version)
	}
}

func (l ledger) tag(version, name string) string {
	v := l.versions()[low(l.names.Definition.Child("versions", version))]
	if v == nil || v.Tags[name] == nil {
		return ""
	}
	return *v.Tags[name]
}

// A version whose capture was interrupted before the model is not gone back to.
func TestOutcomeAbandonedVersionIsNotGoneBackTo(t *testing.T) {
	played(t, func(l ledger) {
		l.run(0, Ask{Do: "capture"})
		first := l.live()
		if l.tag(first, "ortet.io_not-live") != "" {
			t.Error("the live version is tagged as never live")
		}
		time.Sleep(time.Hour)
		left := l.abandon(Ask{Do: "capture", Again: true})
		if l.tag(left, "ortet.io_not-live") == "" {
			t.Error("a version that no model named is not tagged so")
		}
		l.run(0, Ask{Do: "capture", Node: 1, Again: true})
		l.run(0, Ask{Do: "rollback"})
		l.wants(first, "rollback past "+left)
		l.run(0, Ask{Do: "rollback", To: left})
		l.wants(left, "rollback by name")
		if l.tag(left, "ortet.io_not-live") != "" {
			t.Error("what a rollback made live is tagged as never live")
		}
	})
}

// A version that was published, and that no model named, is not gone back to; one that another
// tool made live is.
func TestOutcomePublishedVersionIsGoneBackToIfItWasLive(t *testing.T) {
	published := Ask{Do: "capture", PublishOnly: true}
	t.Run("found, of a capture that was interrupted", func(t *testing.T) {
		played(t, func(l ledger) {
			l.run(0, Ask{Do: "capture"})
			first := l.live()
			time.Sleep(day)
			left := l.abandon(Ask{Do: "capture"})
			if p := l.run(0, published); p.capture.Version.Name() != left {
				t.Fatalf("published %s, want %s", p.capture.Version.Name(), left)
			}
			time.Sleep(day)
			l.run(0, Ask{Do: "capture"})
			l.run(0, Ask{Do: "rollback"})
			l.wants(first, "rollback past "+left)
		})
	})
	t.Run("another tool uses each second one", func(t *testing.T) {
		played(t, func(l ledger) {
			l.run(0, Ask{Do: "capture"})
			time.Sleep(day)
			var versions []string
			for i := range 3 {
				p := l.run(0, published)
				versions = append(versions, p.capture.Version.Name())
				if i != 1 {
					_ = l.setImage(versions[i], "a tool")
				}
				time.Sleep(day)
			}
			l.run(0, Ask{Do: "rollback"})
			l.wants(versions[0], "rollback from "+versions[2])
		})
	})
}

// A tag that says that the model's version was live, and is refused, fails no capture.
func TestOutcomeRefusedRecordOfLiveIsANote(t *testing.T) {
	played(t, func(l ledger) {
		l.run(0, Ask{Do: "capture"})
		time.Sleep(day)
		live := l.run(0, Ask{Do: "capture", PublishOnly: true}).capture.Version.Name()
		_ = l.setImage(live, "a person")
		time.Sleep(8 * day)
		l.next("azure PATCH "+definition+"/versions/"+live, "refused")
		p := l.run(0, Ask{Do: "capture", History: 2})
		if notes := strings.Join(p.capture.Notes, "\n"); len(l.pending) > 0 || !strings.Contains(notes, "that "+live+" was live could not be recorded") {
			t.Errorf("%v is to come; notes: %s", l.pending, notes)
		}
		if l.live() == live || len(l.versions()) != 3 {
			t.Errorf("the model has %s, and %d versions are there", l.live(), len(l.versions()))
		}
	})
}

// A watch of a version that another tool made live records that it was.
func TestOutcomeWatchRecordsThatVersionIsLive(t *testing.T) {
	played(t, func(l ledger) {
		l.run(0, Ask{Do: "capture"})
		time.Sleep(day)
		tools := l.run(0, Ask{Do: "capture", PublishOnly: true}).capture.Version.Name()
		_ = l.setImage(tools, "a tool")
		l.run(0, Ask{Do: "watch"})
		if l.tag(tools, "ortet.io_not-live") != "" {
			t.Errorf("%s is live, and tagged as never live", tools)
		}
	})
}

// Where the tag of the version that was left is refused, the same command sets it, also after a
// capture that failed, and does not go back once more.
func TestOutcomeUnfinishedRollbackOutlivesFailedCaptures(t *testing.T) {
	played(t, func(l ledger) {
		var versions []string
		for range 3 {
			l.run(0, Ask{Do: "capture"})
			versions = append(versions, l.live())
			time.Sleep(day)
		}
		newest := definition + "/versions/" + versions[2]
		l.next("azure PATCH "+newest, "refused")
		if p := l.run(4, Ask{Do: "rollback"}); !strings.Contains(p.err.Error(), "new nodes come from "+versions[1]+"; once this is mended, the same command does the rest") {
			t.Errorf("the rollback ends with %v", p.err)
		}
		l.wants(versions[1], "rollback whose tag is refused")
		l.next("azure PATCH "+newest, "refused")
		l.run(4, Ask{Do: "rollback"})
		for range 2 {
			l.next(powerOff, "refused")
			l.run(1, Ask{Do: "capture"})
		}
		l.run(3, Ask{Do: "rollback", To: "1.2.3"}) // refused: nothing is recorded
		l.run(0, Ask{Do: "rollback"})
		l.wants(versions[1], "the same command")
		if l.tag(versions[2], fleet.TagRolledBack) == "" {
			t.Errorf("%s is not tagged as rolled back", versions[2])
		}
		l.run(0, Ask{Do: "rollback"})
		l.wants(versions[0], "a rollback after one that ended well")
	})
}

// A rollback that was killed after any of its writes goes back once, by whichever name of its target
// it is repeated.
func TestOutcomeInterruptedRollbackGoesBackOnce(t *testing.T) {
	played(t, func(l ledger) {
		var versions []string
		for range 3 {
			l.run(0, Ask{Do: "capture"})
			versions = append(versions, l.live())
			time.Sleep(day)
		}
		before, newest := versions[1], versions[2]
		was, begin := maps.Clone(l.counts), len(l.requests)
		l.run(0, Ask{Do: "rollback"})
		for _, r := range slices.Clone(l.requests[begin:]) {
			for _, to := range []string{"", plan.Previous, before} {
				if !r.write() || strings.Contains(r.name, "/leases/") {
					continue
				}
				l.run(0, Ask{Do: "rollback", To: newest})
				l.locked(func() {
					l.pending = append(l.pending, Event{At: r.name, N: l.counts[r.name] + r.n - was[r.name], What: "kill after"})
				})
				l.kill(Ask{Do: "rollback", To: to})
				if j := l.journal(); j == nil || j.Ended != nil { // the next one is another
					continue
				}
				p := l.run(0, Ask{Do: "rollback", To: to})
				l.wants(before, r.name+", and the same rollback to "+to)
				if !p.rollback.Resumed {
					t.Errorf("%s, and the same rollback to %s: it does not report that it resumes", r.name, to)
				}
			}
		}
	})
}

// A rollback that was killed after its last write, or before it released the lock, is done: the same
// command says so, also in a dry run, and only the next goes back further.
func TestOutcomeRollbackKilledAfterItsEndGoesBackOnce(t *testing.T) {
	for _, last := range []string{"/secrets/", "/leases/"} {
		played(t, func(l ledger) {
			var versions []string
			for range 4 {
				l.run(0, Ask{Do: "capture", History: 4})
				versions = append(versions, l.live())
				time.Sleep(day)
			}
			was, begin := maps.Clone(l.counts), len(l.requests)
			l.run(0, Ask{Do: "rollback"})
			var end Event
			for _, r := range l.requests[begin:] {
				if r.write() && strings.Contains(r.name, last) {
					end = Event{At: r.name, N: l.counts[r.name] + r.n - was[r.name], What: "kill after"}
				}
			}
			if end.What = "kill after"; last == "/leases/" {
				end.What = "kill before"
			}
			l.locked(func() { l.pending = append(l.pending, end) })
			l.kill(Ask{Do: "rollback"})
			if j := l.journal(); j == nil || j.Ended == nil {
				l.t.Fatalf("killed at %v: the record is open", end)
			}
			config, _ := l.of(l.t, namespace)
			if p, err := rollback.New(config).Plan(l.t.Context(), rollback.Request{Pool: l.pool}); err != nil || !p.NothingToDo || p.Version.Name() != versions[1] {
				l.t.Errorf("killed at %v, the dry run: to %s, %v %v", end, p.Version.Name(), p.Problems, err)
			}
			p := l.run(0, Ask{Do: "rollback"})
			l.wants(versions[1], "the same command after a kill at "+end.At)
			if notes := strings.Join(p.rollback.Notes, "\n"); !p.rollback.NothingToDo || !strings.Contains(notes, "its process was killed before it reported that") {
				l.t.Errorf("the same command does not say that it was done: %q", notes)
			}
			l.run(0, Ask{Do: "rollback"})
			l.wants(versions[0], "the next rollback")
		})
	}
}

// A capture of the same day does not go forward to what a rollback left and could not tag.
func TestOutcomeCaptureDoesNotBringBackWhatWasLeft(t *testing.T) {
	played(t, func(l ledger) {
		l.run(0, Ask{Do: "capture"})
		before := l.live()
		time.Sleep(day)
		l.run(0, Ask{Do: "capture"})
		l.next("azure PATCH "+definition+"/versions/"+l.live(), "refused")
		l.run(4, Ask{Do: "rollback"})
		if p := l.run(3, Ask{Do: "capture"}); !strings.Contains(p.err.Error(), "did not finish") {
			t.Errorf("the capture ends with %v", p.err)
		}
		l.wants(before, "a capture after it")
		l.run(0, Ask{Do: "rollback"})
		l.wants(before, "the same rollback")
	})
}

// A capture keeps the version that another tool made live before versions that were rolled back,
// and before those that never were live.
func TestOutcomeHistoryIsWhatWasLive(t *testing.T) {
	there := func(l ledger) (names []string) {
		for id := range l.versions() {
			names = append(names, path.Base(id))
		}
		slices.Sort(names)
		return names
	}
	t.Run("another tool's", func(t *testing.T) {
		played(t, func(l ledger) {
			l.run(0, Ask{Do: "capture"})
			time.Sleep(day)
			tools := l.run(0, Ask{Do: "capture", PublishOnly: true}).capture.Version.Name()
			_ = l.setImage(tools, "a tool")
			for range 2 {
				time.Sleep(day)
				l.run(0, Ask{Do: "capture"})
				l.run(0, Ask{Do: "rollback"})
				_ = l.setImage(tools, "a tool")
			}
			time.Sleep(day)
			l.next(patchModel, "kill after") // it prunes later, when the model names the tool's version no more
			l.kill(Ask{Do: "capture"})
			l.run(0, Ask{Do: "capture"})
			if !slices.Contains(there(l), tools) {
				t.Errorf("%s was live, and is pruned: %s are left", tools, strings.Join(there(l), ", "))
			}
			l.run(0, Ask{Do: "rollback"})
			l.wants(tools, "rollback")
		})
	})
	t.Run("abandoned", func(t *testing.T) {
		played(t, func(l ledger) {
			l.run(0, Ask{Do: "capture"})
			first := l.live()
			time.Sleep(day)
			l.run(0, Ask{Do: "capture"})
			left := l.abandon(Ask{Do: "capture", Again: true})
			time.Sleep(day)
			l.run(0, Ask{Do: "capture", Node: 1})
			if all := there(l); !slices.Contains(all, first) || !slices.Contains(all, left) {
				t.Errorf("%s was live before, and %s was just made: %s are left", first, left, strings.Join(all, ", "))
			}
			time.Sleep(7 * day)
			l.run(0, Ask{Do: "capture", Node: 1})
			if all := there(l); slices.Contains(all, left) || len(all) != 3 {
				t.Errorf("%s never was live, and is a week old: %s are left", left, strings.Join(all, ", "))
			}
		})
	})
}

// A rollback to a newer version records that the one which it leaves was live, and does not tag it as
// rolled back: the next rollback goes to it.
func TestOutcomeForwardRecordsWhatWasLive(t *testing.T) {
	played(t, func(l ledger) {
		l.run(0, Ask{Do: "capture"})
		first := l.live()
		time.Sleep(day)
		l.run(0, Ask{Do: "capture", PublishOnly: true, Again: true})
		var second string
		for id := range l.versions() {
			if name := fleet.ResourceID(id).Name(); name != first {
				second = name
			}
		}
		time.Sleep(day)
		l.run(0, Ask{Do: "capture"})
		third := l.live()
		if err := l.setImage(second, "others"); err != nil {
			t.Fatal(err)
		}
		l.run(0, Ask{Do: "rollback", To: third})
		l.wants(third, "forward")
		if l.tag(second, fleet.TagRolledBack) != "" || l.tag(second, fleet.TagNotLive)+l.tag(second, fleet.TagPublished) != "" {
			t.Errorf("%s, which was live, has %v", second, tagsOf(l.versions()[low(l.names.Definition.Child("versions", second))]))
		}
		l.run(0, Ask{Do: "rollback"})
		l.wants(second, "back")
	})
}
