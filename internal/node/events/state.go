package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"
)

// Phase is how far an event has come. It only advances, except that a machine which reboots
// before it has to leave begins again.
type Phase string

// The phases, in their order.
const (
	Noticed      Phase = "Noticed"      // seen; nothing done yet
	Begun        Phase = "Begun"        // the node is being cordoned or drained
	Cleared      Phase = "Cleared"      // that is over: done, or its time was up
	Departed     Phase = "Departed"     // of Leave: the agent is stopped, and reported to the server
	Acknowledged Phase = "Acknowledged" // approved in Azure; nothing is left to do
)

func (p Phase) rank() int {
	return slices.Index([]Phase{Noticed, Begun, Cleared, Departed, Acknowledged}, p)
}

// A Handling is what is done about one event. Times are Azure's clock.
type Handling struct {
	ID      string `json:"eventId"`
	Type    Type   `json:"type"`
	Do      Do     `json:"action"`
	Phase   Phase  `json:"phase"`
	Started bool   `json:"started,omitempty"`
	// BootID is of the last boot in which it had not started.
	BootID string `json:"bootId,omitempty"`
	// Deadline is when the event may start.
	Deadline time.Time `json:"notBefore"`
	// Until is when clearing the node has to be over. It only comes nearer.
	Until time.Time `json:"until,omitzero"`
	// Acknowledge allows the acknowledgement, once all is done.
	Acknowledge bool `json:"acknowledge,omitempty"`

	// Done means that clearing did all that it was to do; By is by whom, Left what
	// remained.
	Done bool     `json:"done,omitempty"`
	By   By       `json:"by,omitempty"`
	Left []string `json:"left,omitempty"`

	// Tries counts failures of the present phase, the next of which is not before
	// Again. Problem is the last one.
	Tries   int       `json:"tries,omitempty"`
	Again   time.Time `json:"again,omitzero"`
	Problem string    `json:"problem,omitempty"`

	// When each phase was reached, for whoever measures.
	NoticedAt      time.Time `json:"noticedAt"`
	BegunAt        time.Time `json:"begunAt,omitzero"`
	ClearedAt      time.Time `json:"clearedAt,omitzero"`
	DepartedAt     time.Time `json:"departedAt,omitzero"`
	AcknowledgedAt time.Time `json:"acknowledgedAt,omitzero"`
}

// By is who cleared the node.
type By string

// The values of By.
const (
	ByServer  By = "server"  // the admission server
	ByKubelet By = "kubelet" // this agent, with the kubelet's credentials
)

// State is what outlives the daemon: what is known, and what was begun. Its zero
// value is that of a machine that never had an event.
type State struct {
	// VMID is the machine's: a state on a disk copied from another machine is ignored.
	VMID   string     `json:"vmId,omitempty"`
	Events []Handling `json:"events,omitempty"`
	// Touched means that the Node may have our mark, which records what was changed there.
	Touched bool `json:"touched,omitempty"`
	// Again and Tries are those of undoing it.
	Tries int       `json:"tries,omitempty"`
	Again time.Time `json:"again,omitzero"`
	// DepartedIn is the boot in which this machine left its cluster, or began to.
	DepartedIn string `json:"departedInBoot,omitempty"`
}

// clone returns a copy that shares nothing that is written to.
func (s State) clone() State {
	s.Events = slices.Clone(s.Events)
	return s
}

// find returns an event's handling; nil where it has none.
func (s *State) find(id string) *Handling {
	for i := range s.Events {
		if s.Events[i].ID == id {
			return &s.Events[i]
		}
	}
	return nil
}

// LoadState reads a kept state; one of another machine, or none, is a new one.
// vmID "" is not known, and matches any.
func LoadState(path, vmID string) (State, error) {
	fresh := State{VMID: vmID}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fresh, nil
	}
	if err != nil {
		return fresh, err
	}
	s, err := parseState(text)
	if err != nil {
		return fresh, fmt.Errorf("reading %s: %w", path, err)
	}
	if s.VMID != "" && vmID != "" && s.VMID != vmID {
		return fresh, nil
	}
	if vmID != "" {
		s.VMID = vmID
	}
	return s, nil
}

func parseState(text []byte) (State, error) {
	var s State
	if err := json.Unmarshal(text, &s); err != nil {
		return State{}, err
	}
	for i := range s.Events {
		h := &s.Events[i]
		if h.ID == "" || h.Phase.rank() < 0 || h.Do.rank() < 0 {
			return State{}, fmt.Errorf("event %q has the phase %q and the action %q", h.ID, h.Phase, h.Do)
		}
	}
	return s, nil
}
