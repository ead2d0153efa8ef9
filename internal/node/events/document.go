package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/boots/verdict"
)

// Type is what an event does to the machine.
type Type string

// The types. Source of fact: "Scheduled Events for Linux VMs", "Event properties".
const (
	Freeze    Type = "Freeze"    // it pauses for seconds, and goes on
	Reboot    Type = "Reboot"    // it reboots
	Redeploy  Type = "Redeploy"  // it reboots on another host, without its temporary disk
	Preempt   Type = "Preempt"   // Spot: it is taken away
	Terminate Type = "Terminate" // it is deleted
)

// Types are all of them, the most urgent last.
func Types() []Type { return []Type{Freeze, Reboot, Redeploy, Terminate, Preempt} }

// notice is the minimum time between an event's announcement and its start; for Terminate
// it is the scale set's setting, 5 to 15 minutes. It applies where an event has no
// NotBefore. Source of fact: "Event scheduling" there.
func (t Type) notice() time.Duration {
	switch t {
	case Preempt:
		return 30 * time.Second
	case Terminate:
		return 5 * time.Minute
	case Redeploy:
		return 10 * time.Minute
	}
	return 15 * time.Minute
}

// An Event is one of those in Azure's document.
type Event struct {
	ID      string
	Type    Type
	Started bool // else it is scheduled; there is no other state, and one that is over is not in the document
	// Resources are the names in Azure of the machines that it is about.
	Resources []string
	// NotBefore is the earliest time of its start, by Azure's clock; zero where it is
	// missing, as in an event that has started.
	NotBefore time.Time
	// Duration is how long it interrupts the machine, in seconds: 0 not at all, -1 unknown.
	Duration    int
	Source      string // "Platform", "User"
	Description string
}

// about reports whether the event names a machine. Azure's names are case-insensitive.
func (e Event) about(name string) bool {
	for _, r := range e.Resources {
		if strings.EqualFold(r, name) {
			return true
		}
	}
	return false
}

// alone reports whether it names no other machine.
func (e Event) alone(name string) bool {
	for _, r := range e.Resources {
		if !strings.EqualFold(r, name) {
			return false
		}
	}
	return true
}

// A Document is what the metadata service answers: all events of the placement
// group.
type Document struct {
	Incarnation string // another one wherever the events have changed
	Events      []Event
	// Problems are what of it could not be used. The rest is as good as ever: one
	// event that is written in a new way must not hide an eviction.
	Problems []string
}

// Bounds of a document. A placement group has up to 1,000 machines in a Flexible scale set,
// else 100.
const (
	maxDocument    = 1 << 20 // bytes
	maxEvents      = 2000
	maxResources   = 2000
	maxID          = 128 // bytes; Azure's are UUIDs
	maxName        = 256
	maxDescription = 300
)

// ParseDocument reads the metadata service's answer, within bounds. Fields that it
// does not know are passed over; an error is of what is no such document at all.
func ParseDocument(text []byte) (Document, error) {
	if len(text) > maxDocument {
		return Document{}, fmt.Errorf("scheduled events of %d bytes, more than %d", len(text), maxDocument)
	}
	var raw struct {
		Incarnation json.RawMessage   `json:"DocumentIncarnation"`
		Events      []json.RawMessage `json:"Events"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return Document{}, fmt.Errorf("reading the scheduled events: %w", err)
	}
	d := Document{Incarnation: strings.Trim(string(raw.Incarnation), `"`)}
	if _, err := strconv.ParseInt(d.Incarnation, 10, 64); err != nil {
		return Document{}, errors.New("reading the scheduled events: want a number as DocumentIncarnation")
	}
	if len(raw.Events) > maxEvents {
		return Document{}, fmt.Errorf("%d scheduled events, more than %d", len(raw.Events), maxEvents)
	}
	seen := map[string]bool{}
	for i, r := range raw.Events {
		e, err := parseEvent(r)
		if err == nil && seen[e.ID] {
			err = errors.New("its EventId is that of another one")
		}
		if err != nil {
			if len(d.Problems) < 8 {
				d.Problems = append(d.Problems, fmt.Sprintf("event %d of %d: %s", i+1, len(raw.Events), plain(err.Error(), maxDescription)))
			}
			continue
		}
		seen[e.ID] = true
		d.Events = append(d.Events, e)
	}
	return d, nil
}

func parseEvent(text []byte) (Event, error) {
	var raw struct {
		EventID           string   `json:"EventId"`
		EventType         string   `json:"EventType"`
		EventStatus       string   `json:"EventStatus"`
		Resources         []string `json:"Resources"`
		NotBefore         string   `json:"NotBefore"`
		Description       string   `json:"Description"`
		EventSource       string   `json:"EventSource"`
		DurationInSeconds any      `json:"DurationInSeconds"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return Event{}, err
	}
	e := Event{ID: raw.EventID, Type: Type(raw.EventType), Resources: raw.Resources, Duration: -1,
		Source: plain(raw.EventSource, maxName), Description: plain(raw.Description, maxDescription)}
	// The id is only sent to Azure and never used in file names: anything without spaces
	// and characters that a log would quote is valid.
	if e.ID == "" || len(e.ID) > maxID || strings.ContainsFunc(e.ID, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
		return Event{}, fmt.Errorf("its EventId is %q", raw.EventID[:min(len(raw.EventID), maxID)])
	}
	if raw.EventType == "" || len(raw.EventType) > maxName || plain(raw.EventType, maxName) != raw.EventType {
		return Event{}, fmt.Errorf("its EventType is %q", raw.EventType[:min(len(raw.EventType), maxName)])
	}
	if len(e.Resources) > maxResources {
		return Event{}, fmt.Errorf("it names %d resources, more than %d", len(e.Resources), maxResources)
	}
	switch raw.EventStatus {
	case "Scheduled":
	case "Started":
		e.Started = true
	default:
		return Event{}, fmt.Errorf("its EventStatus is %q", raw.EventStatus[:min(len(raw.EventStatus), maxName)])
	}
	// A time that cannot be read counts as missing: then the least notice of its type
	// does.
	for _, layout := range []string{time.RFC1123, time.RFC3339} {
		if t, err := time.Parse(layout, raw.NotBefore); err == nil {
			e.NotBefore = t.UTC()
		}
	}
	switch n := raw.DurationInSeconds.(type) {
	case float64:
		if n >= 0 && n < 1e9 {
			e.Duration = int(n)
		}
	case string: // as the rest of the metadata service writes numbers
		if n, err := strconv.Atoi(n); err == nil && n >= 0 {
			e.Duration = n
		}
	}
	return e, nil
}

// plain is a text of others' that can be logged and shown.
func plain(s string, most int) string { return verdict.Plain(s, most) }
