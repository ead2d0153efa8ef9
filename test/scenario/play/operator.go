package play

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/test/scenario"
)

const (
	// patience is how many processes may fail to end what is asked before the
	// world is let be.
	patience = 4
	// longest bounds a process: the deadlines of a capture's steps, one after the
	// other, and an hour's outage.
	longest = 36 * time.Hour
	// drowns bounds how long a process that is cut off goes on.
	drowns = 2 * time.Hour
)

// Stats count what was played.
type Stats struct {
	Azure, Kube       int // requests of Ortet's
	Faults, Deaths    int
	World             int // changes that others made
	Processes         int
	Captures          int // ended with a new version in the model
	Virtual           time.Duration
	Refused, GaveBack int // ends with exit code 3, and 1
	Person            int // … 4
}

// Add adds what another playing counted.
func (s *Stats) Add(o Stats) {
	s.Azure += o.Azure
	s.Kube += o.Kube
	s.Faults += o.Faults
	s.Deaths += o.Deaths
	s.World += o.World
	s.Processes += o.Processes
	s.Captures += o.Captures
	s.Virtual += o.Virtual
	s.Refused += o.Refused
	s.GaveBack += o.GaveBack
	s.Person += o.Person
}

// A Result is what came of a playing.
type Result struct {
	// Listed is the scenario with what happened as events, and no chance: it
	// plays the same.
	Listed     scenario.Scenario
	Violations []string
	Trace      string
	Stats      Stats
	// Missed are the listed happenings whose request did not come.
	Missed []scenario.Event
	// Told is what a person sees of it: how each process ended, and the pool.
	Told string
}

// Play plays a scenario. It has to be called in a bubble of testing/synctest,
// and nothing that it began outlives it.
func Play(s scenario.Scenario) (result Result) {
	w, err := newWorld(s)
	if err != nil {
		return Result{Listed: s, Violations: []string{"the world cannot be set up: " + err.Error()}}
	}
	defer func() {
		w.finish()
		result = w.result()
	}()
	for i, ask := range s.Asks {
		w.chooser.Ask(i)
		if ask.Verb == scenario.Wait {
			time.Sleep(ask.For)
			continue
		}
		w.attend(i, ask)
	}
	return result
}

// attend is an operator who asks for one thing until it has come to an end.
func (w *world) attend(i int, ask scenario.Ask) {
	ask.To = w.versionAsked(ask.To)
	w.setAsk(ask)
	var rival chan *process
	if ask.Rival >= 0 {
		other := rivalOf(ask)
		other.Node, other.Rival = ask.Rival, -1
		rival = make(chan *process, 1)
		w.after(w.between(0, 20*time.Minute, "rival", i), func() {
			p, err := w.start(other)
			if err != nil {
				w.broken("a rival cannot begin: %v", err)
			}
			rival <- p
		})
	}
	last := w.pursue(i, ask)
	if rival != nil {
		// It may begin only after the other has ended.
		last = w.afterRival(i, ask, <-rival, last)
	}
	for r := w.nextRival(); r != nil; r = w.nextRival() {
		last = w.afterRival(i, ask, r, last)
	}
	w.settle(i, last)
}

// rivalOf is what another process asks for meanwhile.
func rivalOf(ask scenario.Ask) scenario.Ask {
	if ask.RivalRollback {
		ask.Verb, ask.RivalRollback = scenario.Rollback, false
	}
	return ask
}

// afterRival awaits a rival. Whatever it left open is taken up by whoever comes next.
func (w *world) afterRival(i int, ask scenario.Ask, r, last *process) *process {
	if r == nil {
		return last
	}
	w.await(r)
	if !r.isCut() && !w.overtaken(r) {
		w.checkEnd(r)
	}
	w.letBe()
	return w.pursue(i, ask)
}

// mostRivals come by happenings, in all.
const mostRivals = 4

// rivalComes starts a process that asks what this one was asked.
func (w *world) rivalComes(p *process) {
	w.mu.Lock()
	full := w.came == mostRivals
	w.came++
	w.mu.Unlock()
	if full {
		return
	}
	r, err := w.start(rivalOf(p.ask))
	if err != nil {
		w.broken("a rival cannot begin: %v", err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rivals = append(w.rivals, r)
}

func (w *world) nextRival() (r *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.rivals) > 0 {
		r, w.rivals = w.rivals[0], w.rivals[1:]
	}
	return r
}

// overtaken tells that another process worked after this one had ended, which may
// have changed what it reported.
func (w *world) overtaken(p *process) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.processes, func(other *process) bool {
		if other == p {
			return false
		}
		other.mu.Lock()
		defer other.mu.Unlock()
		return !other.ended || other.returned.After(p.returned)
	})
}

// settle ends what was asked: things may go wrong again.
func (w *world) settle(i int, last *process) {
	w.expect(i, last)
	w.mu.Lock()
	w.calm = false
	w.mu.Unlock()
}

// pursue starts processes until one has come to an end, and gives that. Where
// nothing goes wrong any more, that is exit 0 within the virtual day, unless what is
// asked cannot succeed.
func (w *world) pursue(i int, ask scenario.Ask) *process {
	var calm time.Time // since when nothing goes wrong any more
	for try := 1; ; try++ {
		if try > patience {
			w.letBe()
		}
		w.mu.Lock()
		if w.calm && calm.IsZero() {
			calm = time.Now()
		}
		happened := len(w.chooser.Happened())
		w.mu.Unlock()
		p, err := w.start(ask)
		if err != nil {
			w.broken("a process cannot begin: %v", err)
			return nil
		}
		if !w.await(p) {
			time.Sleep(cmp.Or(ask.Pause, w.between(time.Second, 90*time.Second, "restart", i, try)))
			continue
		}
		w.checkEnd(p)
		code := engine.ExitCode(p.err)
		failed := code == engine.ExitFailed || code == engine.ExitRefused
		undisturbed := !calm.IsZero() || len(w.chooser.Happened()) == happened
		switch {
		case code == engine.ExitDone, failed && undisturbed && w.hopeless(ask):
			return p
		case failed && len(w.chooser.Happened()) == 0 && w.drainsFor() < drainFor: // a drain that takes longer ends at a repeat
			w.broken("ask %d ends with exit %d though nothing ever happened: %v", i, code, p.err)
			return p
		case failed && undisturbed && calm.IsZero() && !w.busy(p):
			w.letBe() // what happened to an earlier process may last for a while
		case !calm.IsZero() && time.Since(calm) > virtualDay:
			if !w.excused(ask) {
				w.broken("ask %d does not come to an end though nothing goes wrong any more: exit %d, %v", i, code, p.err)
			}
			return p
		}
		if calm.IsZero() {
			time.Sleep(w.between(time.Second, 10*time.Minute, "again", i, try))
		} else {
			time.Sleep(w.retryPause(i, try))
		}
	}
}

// letBe ends what goes wrong, and what hangs in Azure for it.
func (w *world) letBe() {
	w.mu.Lock()
	w.calm = true
	clear(w.down)
	clear(w.denied)
	w.mu.Unlock()
	w.azure.EndHung()
}

// await waits until the process has ended; false where it died.
func (w *world) await(p *process) bool {
	timer := time.NewTimer(longest)
	defer timer.Stop()
	select {
	case <-p.done:
		return !p.isCut()
	case <-p.dead:
		return false
	case <-timer.C:
		w.broken("%s does not end within %s", p.name, longest)
		p.die()
		return false
	}
}

// finish lets all that goes on come to its end, and looks a last time.
func (w *world) finish() {
	for _, p := range w.processes {
		ctx, cancel := context.WithTimeout(w.over, drowns)
		select {
		case <-p.done:
		case <-ctx.Done():
			w.broken("%s goes on %s after it was cut off", p.name, drowns)
		}
		cancel()
	}
	if len(w.violations) == 0 {
		w.checkOver()
	}
	w.mu.Lock()
	w.stats.Virtual = time.Since(w.begin)
	w.mu.Unlock()
	w.told = w.tell()
	w.close()
	for _, p := range w.processes {
		p.cancel()
		<-p.done
	}
}

func (w *world) result() Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	listed := w.story
	listed.Chance = scenario.Chance{}
	listed.Events = w.chooser.Happened()
	for _, e := range listed.Events {
		switch e.What {
		case scenario.KillBefore, scenario.KillAfter:
			w.stats.Deaths++
		case scenario.RivalComes, scenario.ScaleOut, scenario.ScaleIn, scenario.DeleteInstance, scenario.StopInstance, scenario.StartInstance, scenario.RestartInstance, scenario.DeleteSnapshot, scenario.DeleteCopy, scenario.DeleteDisk,
			scenario.DeleteVersion, scenario.DeleteGallery, scenario.ChangeModel, scenario.NodeNotReady, scenario.NodeGone, scenario.Cordon, scenario.Uncordon, scenario.Clock, scenario.Interrupt, scenario.Deny, scenario.Evict, scenario.Suspend:
			w.stats.World++
		default:
			w.stats.Faults++
		}
	}
	return Result{Listed: listed, Violations: w.violations, Trace: w.text(), Stats: w.stats, Missed: w.chooser.Missed(), Told: w.told}
}

// expect looks whether a kept scenario came to what it says.
func (w *world) expect(i int, p *process) {
	for _, e := range w.story.Expect {
		if e.Ask != i || p == nil {
			continue
		}
		code := engine.ExitCode(p.err)
		text := fmt.Sprint(p.err)
		if p.err == nil {
			text = strings.Join(append(p.capture.Notes, p.rollback.Notes...), "\n")
		}
		if code != e.Exit {
			w.broken("ask %d ends with exit %d, expected %d: %s", i, code, e.Exit, text)
		}
		if !strings.Contains(text, e.Says) {
			w.broken("ask %d does not say %q: %s", i, e.Says, text)
		}
	}
}
