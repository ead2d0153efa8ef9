package workflow_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/workflow"
)

// clean reports what is not as a finished run leaves it.
func (w *world) clean(done bool) error {
	for what, want := range map[string]bool{"stopped": false, "protected": false, "snapshot": false, "model": done, "grown": done} {
		if got := w.look(what); got != want {
			return fmt.Errorf("%s is %t", what, got)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy != "" {
		return errors.New(w.busy)
	}
	if w.holder != "" {
		return errors.New("the lock is not released")
	}
	return nil
}

func (w *world) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.log, "\n")
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		p := &process{world: w, name: "a"}
		begun := time.Now()
		if err := p.runner(t).Run(t.Context(), pool, &small{p: p}); err != nil {
			t.Fatalf("%v\n%s", err, w.text())
		}
		if err := w.clean(true); err != nil {
			t.Errorf("%v\n%s", err, w.text())
		}
		rec, err := w.records.Load(t.Context(), string(pool))
		if err != nil || rec.Open() || rec.Ended.Exit != 0 || string(rec.State) != `"closed small"` {
			t.Errorf("record %+v with state %s, %v", rec, rec.State, err)
		}
		if n, stop := w.calls["poll patch model"], w.calls["poll stop instance"]; n < 25 || stop > 5 {
			t.Errorf("polled %d and %d times in 30 s: Every is 1 s, and Azure asks for 10 s", n, stop)
		}
		t.Logf("%s, %d saves, calls %v", time.Since(begun), w.saves, w.calls)
		if err := p.runner(t).Run(t.Context(), pool, &small{p: p}); err != nil || w.saves != p.writes {
			t.Errorf("a run with nothing to do: %v", err)
		}
	})
}

// Each fault happens to each change once, and then always.
func TestFaults(t *testing.T) {
	verbs := []string{"stop instance", "start instance", "create snapshot", "delete snapshot", "create image version", "patch model",
		"set capacity"}
	for _, verb := range verbs {
		for _, fault := range []string{
			"begin refused", "begin lost", "begin no effect", "begin failed", "begin failed and done", "begin preempted", "poll refused",
			"poll throttled", "poll forgotten", "begin proxy and done",
		} {
			t.Run(verb+"/"+fault, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld()
					call, what, _ := strings.Cut(fault, " ")
					w.fault = func(name string, n int) string {
						if name == call+" "+verb && n == 1 {
							return what
						}
						return ""
					}
					p := &process{world: w, name: "a"}
					err := p.runner(t).Run(t.Context(), pool, &small{p: p})
					if err == nil {
						err = w.clean(true)
					}
					passes := fault == "poll refused" || fault == "poll throttled" // the operation goes on
					if begun := w.calls["begin "+verb]; err != nil || passes && begun != 1 {
						t.Errorf("begun %d times: %v\n%s", begun, err, w.text())
					}
				})
			})
		}
	}
}

func TestFailure(t *testing.T) {
	for _, c := range []struct {
		verb, fault string
		exit        int
		says        string
	}{
		{"stop instance", "denied", 1, "step stop"},
		{"stop instance", "invalid", 1, "quota"},
		{"create snapshot", "no effect", 1, "no effect after 5 operations, the last ended with: success"},
		{"create snapshot", "failed", 1, "no effect after 5 operations, the last ended with: test: internal"},
		{"set capacity", "denied", 4, "step grow"},
		{"start instance", "denied", 4, "start is not done: start: not done within 15m0s: test: no; start it by hand"},
	} {
		t.Run(c.verb+"/"+c.fault, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.fault = func(name string, n int) string {
					if name == "begin "+c.verb {
						return c.fault
					}
					return ""
				}
				p := &process{world: w, name: "a"}
				err := p.runner(t).Run(t.Context(), pool, &small{p: p})
				if got := workflow.ExitCode(err); got != c.exit || !strings.Contains(fmt.Sprint(err), c.says) {
					t.Errorf("exit %d: %v\n%s", got, err, w.text())
				}
				rec, _ := w.records.Load(t.Context(), string(pool))
				if c.verb == "start instance" {
					if !rec.Open() || !w.look("stopped") || !strings.HasPrefix(fmt.Sprint(err), "step start: ") {
						t.Errorf("record open %t: %v\n%s", rec.Open(), err, w.text())
					}
					tried, begun := w.calls["begin start instance"], w.begins()
					err := p.runner(t).Run(t.Context(), pool, &small{p: p})
					tried -= w.calls["begin start instance"] // it is tried again, and nothing else is done
					if workflow.ExitCode(err) != c.exit || !strings.Contains(err.Error(), c.says) || tried == 0 || w.begins() != begun-tried {
						t.Errorf("the same command: %v, %v", err, w.calls)
					}
					w.fault = nil // a person has put it right: the same command ends clean
					if err := p.runner(t).Run(t.Context(), pool, &small{p: p}); err != nil {
						t.Errorf("the same command again: %v\n%s", err, w.text())
					}
				} else if rec.Open() || rec.Ended.Exit != c.exit || string(rec.State) != `"closed small"` {
					t.Errorf("record %+v with state %s", rec, rec.State)
				}
				if err := w.clean(c.verb == "start instance"); err != nil && c.exit != 4 {
					t.Errorf("%v\n%s", err, w.text())
				}
			})
		})
	}
}

// A stop that Azure refuses was never begun: the donor is given back without a wait, and
// what a lost answer may have begun is waited for all the same.
func TestHole10RefusedStop(t *testing.T) {
	for _, c := range []struct {
		name    string
		faults  []string
		atMost  time.Duration
		atLeast time.Duration
	}{
		{"denied", []string{"denied"}, time.Second, 0},
		{"locked", []string{"locked"}, time.Second, 0},
		{"unsupported", []string{"unsupported"}, time.Second, 0},
		{"invalid at once", []string{"rejected"}, time.Second, 0},
		{"denied by a proxy", []string{"proxy"}, 2 * time.Minute, time.Minute},
		{"lost, then denied", []string{"lost", "denied"}, 5 * time.Minute, 30 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.fault = func(call string, n int) string {
					if call == "begin stop instance" {
						return c.faults[min(n, len(c.faults))-1]
					}
					return ""
				}
				p := &process{world: w, name: "a"}
				begun := time.Now()
				err := p.runner(t).Run(t.Context(), pool, &small{p: p})
				if took := time.Since(begun); workflow.ExitCode(err) != workflow.ExitFailed || took > c.atMost || took < c.atLeast {
					t.Errorf("exit %d after %s: %v\n%s", workflow.ExitCode(err), took, err, w.text())
				}
				time.Sleep(2 * time.Minute) // what was asked for may still come
				if err := w.clean(false); err != nil || w.calls["begin stop instance"] != len(c.faults) {
					t.Errorf("%v, %v", err, w.calls)
				}
			})
		})
	}
}

// A process is killed before and after each write of the journal; the next one ends clean.
func TestKilledAtEachWrite(t *testing.T) {
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			ended := false
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				p := &process{world: w, name: "a", killAt: n, after: after}
				err := p.runner(t).Run(t.Context(), pool, &small{p: p})
				if !p.dead {
					ended = true
					return
				}
				if workflow.ExitCode(err) != workflow.ExitInterrupted {
					t.Fatalf("killed at write %d: %v\n%s", n, err, w.text())
				}
				second := &process{world: w, name: "b"}
				err = second.runner(t).Run(t.Context(), pool, &small{p: second})
				if err == nil {
					time.Sleep(2 * time.Minute) // what the first asked for may still come
					err = w.clean(true)
				}
				if err != nil {
					t.Errorf("killed at write %d, after %t: %v\n%s", n, after, err, w.text())
				}
			})
			if ended {
				if n < 10 {
					t.Errorf("only %d writes", n)
				}
				break
			}
		}
	}
}

// Ctrl-C at any second gives the donor back, also if the answers of the changes were
// lost, and the same command ends clean.
func TestInterruptedAtAnySecond(t *testing.T) {
	for at := time.Duration(0); at < 5*time.Minute; at += 500 * time.Millisecond {
		lost := at%time.Second != 0
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.fault = func(string, int) string { return map[bool]string{true: "lost"}[lost] }
			p := &process{world: w, name: "a"}
			ctx, cancel := context.WithTimeoutCause(t.Context(), at, errors.New("Ctrl-C"))
			defer cancel()
			err := p.runner(t).Run(ctx, pool, &small{p: p})
			switch workflow.ExitCode(err) {
			case workflow.ExitDone:
				return
			case workflow.ExitInterrupted:
			default:
				t.Fatalf("at %s: %v\n%s", at, err, w.text())
			}
			time.Sleep(2 * time.Minute)
			if w.look("stopped") || w.look("protected") || w.busy != "" {
				t.Fatalf("at %s: the donor is not back: %v %s\n%s", at, w.is, w.busy, w.text())
			}
			if err := p.runner(t).Run(t.Context(), pool, &small{p: p}); err != nil {
				t.Fatalf("at %s, resumed: %v\n%s", at, err, w.text())
			}
			if err := w.clean(true); err != nil {
				t.Fatalf("at %s: %v\n%s", at, err, w.text())
			}
		})
	}
}

// While the API server is away the lock lapses: no change begins, and the run goes on
// once it is back.
func TestOutageIsWaitedFor(t *testing.T) {
	for at := 5 * time.Second; at < 3*time.Minute; at += 7 * time.Second {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			p := &process{world: w, name: "a"}
			var lapsed, begins int
			set := func(away bool) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.away = away
				begins = w.begins()
			}
			time.AfterFunc(at, func() { set(true) })
			time.AfterFunc(at+46*time.Second, func() { w.mu.Lock(); lapsed = w.begins(); w.mu.Unlock() })
			time.AfterFunc(at+20*time.Minute, func() { set(false) })
			if err := p.runner(t).Run(t.Context(), pool, &small{p: p}); err != nil {
				t.Fatalf("away at %s: %v\n%s", at, err, w.text())
			}
			if err := w.clean(true); err != nil {
				t.Errorf("away at %s: %v\n%s", at, err, w.text())
			}
			if time.Since(w.renewed) > 20*time.Minute && begins != lapsed {
				t.Errorf("away at %s: %d changes begun without a valid lock", at, begins-lapsed)
			}
			time.Sleep(21 * time.Minute)
		})
	}
}

// A process that dies right after Azure has accepted a change leaves its token: the next one
// polls that operation, beside what its other steps do, and does not begin it again.
func TestKilledBeforeFirstPoll(t *testing.T) {
	for _, verb := range []string{"stop instance", "create snapshot", "create image version", "start instance", "delete snapshot"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.takes = 2 * time.Minute // longer than the lock
			first, second := &process{world: w, name: "a"}, &process{world: w, name: "b"}
			killed := 0
			w.fault = func(call string, n int) string {
				if call == "poll "+verb && n == 1 {
					first.dead, killed = true, len(w.log)
				}
				return ""
			}
			_ = first.runner(t).Run(t.Context(), pool, &small{p: first})
			err := cmp.Or(second.runner(t).Run(t.Context(), pool, &small{p: second}), w.clean(true))
			at := slices.IndexFunc(w.log[killed:], func(s string) bool { return s == "begin "+verb || s == "poll "+verb })
			if err != nil || w.log[killed:][at] != "poll "+verb || verb == "create image version" && w.calls["begin "+verb] > 1 {
				t.Errorf("%s: %v\n%s", verb, err, w.text())
			}
		})
	}
}

// A record that another process has written since ends the run, however valid its lock is:
// it begins nothing more, and the record stays the other's.
func TestAnotherWriterEndsTheRun(t *testing.T) {
	// The run acts at quarters of a second. At the same instant it may have begun a change that the
	// other writer does not see yet.
	for at := 1100 * time.Millisecond; at < 180*time.Second; at += 4 * time.Second {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			p := &process{world: w, name: "a"}
			begun := 0
			time.AfterFunc(at, func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				rec, _ := w.records.Load(context.Background(), string(pool))
				rec.Writer, begun = "b/1", w.begins()
				_, _ = w.records.Save(context.Background(), rec)
			})
			err := p.runner(t).Run(t.Context(), pool, &small{p: p})
			rec, _ := w.records.Load(t.Context(), string(pool))
			if workflow.ExitCode(err) != workflow.ExitInterrupted || rec.Writer != "b/1" || w.begins() != begun {
				t.Errorf("written at %s: %v; the record is of %s\n%s", at, err, rec.Writer, w.text())
			}
		})
	}
}

func TestOnlyAnotherHolderEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		p := &process{world: w, name: "a"}
		time.AfterFunc(40*time.Second, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.holder, w.renewed = "b/1", time.Now().Add(time.Hour)
		})
		err := p.runner(t).Run(t.Context(), pool, &small{p: p})
		if workflow.ExitCode(err) != workflow.ExitInterrupted || !strings.Contains(err.Error(), "another process took the pool lock") {
			t.Fatal(err)
		}
		n := len(w.log)
		time.Sleep(time.Hour)
		if len(w.log) != n {
			t.Errorf("it goes on: %v", w.log[n:])
		}
	})
}

func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		p := &process{world: w, name: "a"}
		problem := []fleet.Problem{{Code: "NotLinux", What: "the node is not Linux"}}
		err := p.runner(t).Run(t.Context(), pool, &small{p: p, problems: problem})
		if workflow.ExitCode(err) != workflow.ExitRefused || w.saves > 0 || len(w.calls) > 0 || w.holder != "" {
			t.Errorf("%v, %d saves, %v", err, w.saves, w.calls)
		}
		// Another process that renews its lock.
		w.holder, w.renewed, w.ttl = "b/1", time.Now(), time.Minute
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(15 * time.Second):
					w.mu.Lock()
					w.renewed = time.Now()
					w.mu.Unlock()
				}
			}
		}()
		err = p.runner(t).Run(t.Context(), pool, &small{p: p})
		close(stop)
		if workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), "b/1 has had the pool lock") {
			t.Error(err)
		}
	})
}

// What a plan leaves for a person is the run's end, also if nothing else is to be done.
func TestLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		p := &process{world: w, name: "a"}
		for _, saves := range []bool{true, false} {
			before := w.saves
			err := p.runner(t).Run(t.Context(), pool, &small{p: p, left: []string{"extension x is lost"}})
			if workflow.ExitCode(err) != workflow.ExitNeedsPerson || !strings.Contains(err.Error(), "extension x is lost") ||
				(w.saves > before) != saves {
				t.Errorf("%v, %d saves", err, w.saves-before)
			}
			if err := w.clean(true); err != nil {
				t.Error(err)
			}
			if rec, err := w.records.Load(t.Context(), string(pool)); err != nil || rec.Open() || rec.Ended.Exit != workflow.ExitNeedsPerson {
				t.Errorf("%+v %v", rec, err)
			}
		}
	})
}

// A run beside another is refused, also if the other one ends while it waits: what it was
// asked for was asked of another state of the pool.
func TestBeside(t *testing.T) {
	for after := 150; after < 190; after++ { // a run takes about three minutes
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			first, second := &process{world: w, name: "a"}, &process{world: w, name: "b"}
			ended := make(chan error, 1)
			go func() { ended <- first.runner(t).Run(t.Context(), pool, &small{p: first}) }()
			time.Sleep(time.Duration(after)*time.Second + time.Millisecond)
			want := workflow.ExitRefused
			if len(ended) > 0 {
				want = workflow.ExitDone
			}
			if err := second.runner(t).Run(t.Context(), pool, &small{p: second}); workflow.ExitCode(err) != want {
				t.Errorf("begun after %d s: %v, want exit %d\n%s", after, err, want, w.text())
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// A workflow of another kind undoes what is open before it begins.
func TestOtherKindIsUndoneFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		p := &process{world: w, name: "a", killAt: 6}
		_ = p.runner(t).Run(t.Context(), pool, &small{p: p})
		second := &process{world: w, name: "b"}
		problem := []fleet.Problem{{Code: "NotLinux", What: "the node is not Linux"}}
		err := second.runner(t).Run(t.Context(), pool, &small{p: second, kind: "er", problems: problem})
		if workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), "refused for 1 reason, the open small was undone, nothing else was changed") {
			t.Errorf("%v\n%s", err, w.text())
		}
		if err := w.clean(false); err != nil {
			t.Errorf("%v\n%s", err, w.text())
		}
		if rec, err := w.records.Load(t.Context(), string(pool)); err != nil || rec.Open() || string(rec.State) != `"closed small"` {
			t.Errorf("%+v with state %s, %v", rec, rec.State, err)
		}
	})
}

// A write of the journal whose answer is lost, and a record that somebody deletes, hold
// nothing up.
func TestJournalWrites(t *testing.T) {
	for n := 1; n <= 16; n++ {
		for _, deleted := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				p := &process{world: w, name: "a"}
				if deleted {
					w.fault = func(string, int) string {
						if w.saves == n {
							w.records.Put(string(pool), nil)
						}
						return ""
					}
				} else {
					w.lose = n
				}
				err := p.runner(t).Run(t.Context(), pool, &small{p: p})
				if err == nil {
					err = w.clean(true)
				}
				if err != nil {
					t.Errorf("write %d, deleted %t: %v\n%s", n, deleted, err, w.text())
				}
			})
		}
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.fault = func(call string, n int) string {
			if call == "begin create snapshot" && n == 1 {
				return "throttled"
			}
			return ""
		}
		p := &process{world: w, name: "a"}
		begun := time.Now()
		if err := p.runner(t).Run(t.Context(), pool, &small{p: p}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took < 3*time.Minute+90*time.Second || took > 5*time.Minute {
			t.Errorf("took %s", took)
		}
	})
}

// An act that finds the effect of earlier steps lost has the run planned again, from the
// snapshot; the third time the run fails and is undone.
func TestReplan(t *testing.T) {
	for times, exit := range map[int]int{2: workflow.ExitDone, 3: workflow.ExitFailed} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			p := &process{world: w, name: "a"}
			err := p.runner(t).Run(t.Context(), pool, &small{p: p, again: times})
			if broken := w.clean(exit == 0); workflow.ExitCode(err) != exit || broken != nil || w.calls["begin stop instance"] != 1 {
				t.Errorf("%d times: %v, %v\n%s", times, err, broken, w.text())
			}
		})
	}
}

// Before anything is changed, refused credentials are not waited for.
func TestRefusedCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.refused = true
		p := &process{world: w, name: "a"}
		begun := time.Now()
		err := p.runner(t).Run(t.Context(), pool, &small{p: p})
		if took := time.Since(begun); workflow.ExitCode(err) != workflow.ExitFailed || took < 30*time.Second || took > time.Minute {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

// What an interruption kept and the plan does not skip is looked at again, and its undo
// stays due.
func TestResumeKeeps(t *testing.T) {
	rec := workflow.Resume((&small{p: &process{world: newWorld()}}).table(),
		journal.Record{Phase: journal.Suspend, Steps: map[string]journal.Step{
			"snapshot": {State: journal.Done}, "version": {State: journal.Running, Token: "t"}, "stop": {State: journal.Undone},
		}})
	for id, want := range map[string]journal.State{"snapshot": journal.Running, "version": journal.Running, "stop": journal.Pending} {
		if got := rec.Steps[id].State; got != want {
			t.Errorf("%s is %q, want %q", id, got, want)
		}
	}
	if rec.Steps["version"].Token != "t" || rec.Phase != journal.Forward {
		t.Errorf("%+v", rec)
	}
}
