package events

import (
	"slices"
	"strings"
	"time"
)

// What time is taken for.
const (
	// least is the minimum drain time of an event that may start at any moment: a short
	// notice to pods is better than none.
	least = 5 * time.Second
	// shorter is by how much a deadline has to come nearer to restart a drain.
	shorter = 2 * time.Second
	// tardy is how long telling Azure and the server of what is done is tried for after
	// an event may have started.
	tardy = 10 * time.Minute
	// lingers is how long after the event that a machine left for it may live on: only
	// one that outlives it stays after all.
	lingers    = 2 * time.Minute
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

// maxHandled bounds the events of one machine; Azure has one or two.
const maxHandled = 64

// Verb is what an Action is.
type Verb string

// The values of Verb.
const (
	Clear  Verb = "clear"       // cordon or drain, by Do, until Until
	Depart Verb = "depart"      // stop the agent, report the departure to the server
	Tell   Verb = "acknowledge" // approve the event's start in Azure
	Undo   Verb = "undo"        // restore the node's earlier state
	Rejoin Verb = "rejoin"      // the machine left, and stays after all
)

// An Action is the next thing to do. It stays the next one until its Outcome is
// recorded: who is at it goes on, who was interrupted begins again.
type Action struct {
	Verb     Verb
	ID       string
	Type     Type
	Do       Do
	Until    time.Time // by Azure's clock
	Deadline time.Time
}

// A Notice is published to people, once.
type Notice struct {
	ID      string
	Type    Type
	Reason  string // CamelCase, "PreemptScheduled"
	Message string
	Warning bool
}

// Observed is what Decide goes by.
type Observed struct {
	Name     string // of this machine in Azure
	BootID   string // of this boot; never ""
	Document Document
	Settings Settings
}

// Decide returns the new state, the next action (nil: none) and the notices to publish. It
// has no side effects, and returns the same for the same observation until an outcome is
// recorded; now is Azure's clock.
func Decide(s State, o Observed, now time.Time) (State, *Action, []Notice) {
	s = s.clone()
	var notices []Notice
	mine := map[string]Event{}
	for _, e := range o.Document.Events {
		if e.about(o.Name) {
			mine[e.ID] = e
		}
	}
	s.Events = slices.DeleteFunc(s.Events, func(h Handling) bool {
		_, there := mine[h.ID]
		if !there {
			notices = append(notices, h.over(now))
			if h.Do == Leave && s.DepartedIn != "" {
				s.Again = now.Add(lingers)
			}
		}
		return !there
	})
	for _, e := range o.Document.Events { // in Azure's order
		if _, ok := mine[e.ID]; ok {
			notices = append(notices, s.see(e, o, now)...)
		}
	}
	a := s.next(o, now)
	if a != nil && a.Verb == Clear {
		h := s.find(a.ID)
		if h.Phase == Noticed {
			h.Phase, h.BegunAt = Begun, now
		}
		s.Touched = true
	}
	if a != nil && a.Verb == Depart {
		// The agent may stand still from here on, whatever becomes of the event meanwhile.
		s.DepartedIn = o.BootID
	}
	return s, a, notices
}

// notice returns a notice of the event; %s in the reason and the message is its type.
func (h *Handling) notice(warning bool, reason, message string) Notice {
	say := strings.NewReplacer("%s", string(h.Type))
	return Notice{ID: h.ID, Type: h.Type, Reason: say.Replace(reason), Message: say.Replace(message), Warning: warning}
}

// over returns the notice that the event is no longer in the document.
func (h *Handling) over(now time.Time) Notice {
	if !h.Started && h.Deadline.After(now) && h.Phase != Acknowledged {
		return h.notice(false, "%sCancelled", "Azure has cancelled the %s of this machine.")
	}
	return h.notice(false, "%sOver", "The %s of this machine is over.")
}

// see merges one of this machine's events from the document into the state.
func (s *State) see(e Event, o Observed, now time.Time) []Notice {
	var notices []Notice
	h := s.find(e.ID)
	if h == nil {
		if len(s.Events) >= maxHandled {
			return nil
		}
		rule, why := o.Settings.rule(e)
		s.Events = append(s.Events, Handling{ID: e.ID, Type: e.Type, Do: rule.Do, Phase: Noticed, NoticedAt: now, BootID: o.BootID})
		h = &s.Events[len(s.Events)-1]
		h.Deadline = now.Add(e.Type.notice())
		if e.Started {
			h.Deadline = now
			if h.Do == Drain && (e.Type == Reboot || e.Type == Redeploy) {
				// It is upon us, or over already and this is the machine after it: there is no
				// time that pods could be given.
				h.Do, why = Cordon, "it came without notice"
			}
		} else if !e.NotBefore.IsZero() {
			h.Deadline = e.NotBefore
		}
		notices = append(notices, h.noticed(e, why, o, now))
	}
	if o.Settings.stay && h.Do == Leave && h.Phase.rank() < Departed.rank() {
		h.Do = Drain // the admission server's settings were removed meanwhile
	}
	switch {
	case e.Started:
		if !h.Started && h.NoticedAt != now {
			notices = append(notices, h.notice(false, "%sStarted", "The %s of this machine has started."))
		}
		if !h.Started && h.Deadline.After(now) {
			h.Deadline = now
		}
		h.Started = true
		if h.BootID != o.BootID && h.Phase.rank() < Cleared.rank() && h.Do.rank() > Cordon.rank() && (e.Type == Reboot || e.Type == Redeploy) {
			// It has happened before all was done; pods that are here now have come back.
			h.Do = Cordon
		}
	case !e.NotBefore.IsZero():
		h.Deadline = e.NotBefore
	}
	if !h.Started {
		if h.Do == Leave && h.BootID != o.BootID && h.Phase != Noticed {
			// It rebooted before the event, and joins as any machine does.
			h.Phase, h.Until, h.Done, h.Tries, h.Again = Noticed, time.Time{}, false, 0, time.Time{}
		}
		h.BootID = o.BootID
	}
	rule, _ := o.Settings.rule(e)
	// What has started cannot be hurried.
	h.Acknowledge = !h.Started && (rule.Acknowledge == Always || rule.Acknowledge == Alone && e.alone(o.Name))
	return notices
}

// noticed returns the notice of a new event.
func (h *Handling) noticed(e Event, why string, o Observed, now time.Time) Notice {
	reason, text := "%sScheduled", "A %s of this machine begins at "+h.Deadline.UTC().Format(time.RFC3339)+" at the earliest"
	switch {
	case e.Started:
		reason, text = "%sStarted", "A %s of this machine has started without notice"
	case e.NotBefore.IsZero():
		text += " (Azure does not say; that is the least notice)"
	}
	if e.Source != "" {
		text += ", by " + e.Source
	}
	if e.Description != "" {
		text += ": " + strings.TrimSuffix(e.Description, ".")
	}
	text += ". Action: " + string(h.Do)
	if why != "" {
		text += ", since " + why
	}
	if h.Do != Ignore && !e.Started && h.Deadline.Sub(now) > o.Settings.ahead() {
		text += ", " + o.Settings.ahead().String() + " before it"
	}
	return h.notice(h.Do != Ignore, reason, text+".")
}

// next is what to do now. The strongest action counts first, then the nearest
// deadline; what waits for another try lets the others through.
func (s *State) next(o Observed, now time.Time) *Action {
	var due []*Handling
	touching := false
	for i := range s.Events {
		h := &s.Events[i]
		if h.Do == Ignore || h.Phase != Noticed || h.Started || h.Deadline.Sub(now) <= o.Settings.ahead() {
			// Few: each is put before what it comes before.
			at := len(due)
			for at > 0 && h.before(due[at-1]) {
				at--
			}
			due = append(due, h)
			copy(due[at+1:], due[at:])
			due[at] = h
		}
		touching = touching || h.Do != Ignore && h.Phase != Noticed
	}
	// A drain has to be over before the first event that it is for.
	first := time.Time{}
	for _, h := range due {
		if h.Do.rank() >= Drain.rank() && h.Phase.rank() < Cleared.rank() && (first.IsZero() || h.Deadline.Before(first)) {
			first = h.Deadline
		}
	}
	for _, h := range due {
		if a := s.step(h, o, first, now); a != nil {
			return a
		}
	}
	if touching || now.Before(s.Again) {
		return nil
	}
	if s.DepartedIn != "" {
		if s.DepartedIn == o.BootID {
			return &Action{Verb: Rejoin}
		}
		// It rebooted, and joined as any machine does.
		s.DepartedIn = ""
	}
	if s.Touched {
		return &Action{Verb: Undo}
	}
	return nil
}

// before reports whether h counts before other.
func (h *Handling) before(other *Handling) bool {
	if h.Do != other.Do {
		return h.Do.rank() > other.Do.rank()
	}
	return h.Deadline.Before(other.Deadline)
}

// step is the next one of an event; nil where it has none now.
func (s *State) step(h *Handling, o Observed, first, now time.Time) *Action {
	if now.Before(h.Again) {
		return nil
	}
	departed := s.DepartedIn != "" && s.DepartedIn == o.BootID
	a := &Action{ID: h.ID, Type: h.Type, Do: h.Do, Deadline: h.Deadline}
	switch {
	case h.Phase.rank() < Cleared.rank() && h.Do != Ignore:
		if departed && h.Do != Leave {
			// There is no node any more that anything could be done with. For a leave it may
			// be there still, since the one before was ended in the middle.
			return nil
		}
		until := h.Deadline
		if h.Do.rank() >= Drain.rank() && first.Before(until) {
			until = first
		}
		if soonest := now.Add(least); until.Before(soonest) {
			until = soonest
		}
		if h.Until.IsZero() || until.Before(h.Until.Add(-shorter)) {
			h.Until = until
		}
		a.Verb, a.Until = Clear, h.Until
		return a
	case h.Do == Leave && h.Phase == Cleared:
		a.Verb = Depart
		return a
	case h.Acknowledge && h.Phase != Acknowledged && (h.Done || h.Do == Ignore):
		a.Verb = Tell
		return a
	}
	return nil
}

// Outcome is what came of an Action.
type Outcome struct {
	Action Action
	Err    error
	// Final means that a retry cannot help.
	Final bool
	// Done, By and Left are Clear's.
	Done bool
	By   By
	Left []string
}

// maxLeft bounds the pods that are named.
const maxLeft = 16

// Record returns the state after an action, and the notices to publish.
func Record(s State, r Outcome, o Observed, now time.Time) (State, []Notice) {
	s = s.clone()
	if r.Action.Verb == Undo || r.Action.Verb == Rejoin {
		return s.recordReturn(r, now)
	}
	h := s.find(r.Action.ID)
	if h == nil {
		return s, nil // the event is over
	}
	if r.Err != nil && !r.Final && now.Before(h.patience(r.Action)) {
		h.Problem = plain(r.Err.Error(), maxDescription)
		h.Again = now.Add(pause(h.Tries))
		h.Tries++
		return s, nil
	}
	h.Tries, h.Again, h.Problem = 0, time.Time{}, ""
	problem := ""
	if r.Err != nil {
		h.Problem = plain(r.Err.Error(), maxDescription)
		problem = ": " + h.Problem
	}
	var n Notice
	switch r.Action.Verb {
	case Clear:
		h.Phase, h.ClearedAt, h.Done, h.By = Cleared, now, r.Done && r.Err == nil, r.By
		h.Left = r.Left[:min(len(r.Left), maxLeft)]
		switch {
		case h.Done && h.Do == Cordon:
			n = h.notice(false, "CordonedFor%s", "Cordoned, and taken out of load balancers.")
		case h.Done:
			n = h.notice(false, "DrainedFor%s", "Drained by the "+string(h.By)+".")
		default:
			if len(h.Left) > 0 {
				problem += "; pods are left: " + strings.Join(h.Left, ", ")
			}
			n = h.notice(true, "NotDrainedFor%s", "The time for draining is up"+problem+".")
		}
	case Depart:
		h.Phase, h.DepartedAt = Departed, now
		if n = h.notice(false, "LeftFor%s", "The node's agent stands still, and its Node may go."); r.Err != nil {
			h.Done = false // nothing is acknowledged that was not done
			n = h.notice(true, "NotLeftFor%s", "The node could not leave in order"+problem+".")
		}
	case Tell:
		h.Phase, h.AcknowledgedAt = Acknowledged, now
		if n = h.notice(false, "%sAcknowledged", "Azure was told that the %s may begin."); r.Err != nil {
			n = h.notice(true, "%sNotAcknowledged", "Azure could not be told that the %s may begin; it begins when its time has come"+problem+".")
		}
	}
	return s, []Notice{n}
}

// patience is until when an action is tried.
func (h *Handling) patience(a Action) time.Time {
	switch a.Verb {
	case Clear:
		return h.Until.Add(-time.Second)
	case Depart:
		return h.Deadline
	}
	return h.Deadline.Add(tardy)
}

// recordReturn takes in how undoing went; it is tried for as long as it takes.
func (s State) recordReturn(r Outcome, now time.Time) (State, []Notice) {
	if r.Err != nil {
		s.Again = now.Add(pause(s.Tries))
		s.Tries++
		return s, nil
	}
	s.Tries, s.Again = 0, time.Time{}
	if r.Action.Verb == Rejoin {
		s.DepartedIn = ""
		return s, []Notice{{Reason: "Rejoined", Message: "The machine stays after all, and joins its cluster again."}}
	}
	s.Touched = false
	return s, []Notice{{Reason: "Returned", Message: "The node takes pods again."}}
}

// pause grows from firstPause to lastPause.
func pause(tries int) time.Duration {
	return min(firstPause<<min(tries, 10), lastPause)
}
