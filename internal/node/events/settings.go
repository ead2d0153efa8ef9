package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/node/bootstrap"
)

// Do is what is done before an event.
type Do string

// The values of Do, each with all that the ones before it do.
const (
	Ignore Do = "ignore" // publish a notice, nothing else
	Cordon Do = "cordon" // no new pods, out of load balancers; pods stay
	Drain  Do = "drain"  // and pods are evicted; the node comes back when the event is over
	Leave  Do = "leave"  // and the node's agent is stopped and its Node deleted
)

func (d Do) rank() int { return slices.Index([]Do{Ignore, Cordon, Drain, Leave}, d) }

// Acknowledge selects when an event is acknowledged, so that Azure need not wait until its
// NotBefore. It is acknowledged for all machines that it names.
type Acknowledge string

// The values of Acknowledge. What was not wholly done is never acknowledged.
const (
	Never  Acknowledge = "never"
	Alone  Acknowledge = "alone"  // where the event names no other machine
	Always Acknowledge = "always" // also for the other machines: for who knows that they are of no concern
)

// Rule is what is done about a type of event.
type Rule struct {
	Do          Do          `json:"action,omitempty"`
	Acknowledge Acknowledge `json:"acknowledge,omitempty"`
}

// Settings are what is done about events. Its JSON is the settings file's.
type Settings struct {
	// Rules by type; a type or field that is missing has its default.
	Rules map[Type]Rule `json:"events,omitempty"`
	// IgnoreFreezeBelow is how long a Freeze has to last to matter, in seconds. One of
	// an unknown length does.
	IgnoreFreezeBelow *int `json:"ignoreFreezeBelowSeconds,omitempty"`
	// Ahead is how long before an event's NotBefore handling begins, in seconds: Azure
	// announces hardware failures days before.
	Ahead int `json:"aheadSeconds,omitempty"`
	// MetricsFile is where node-exporter's textfile collector finds metrics, ending in
	// ".prom"; "" for none.
	MetricsFile string `json:"metricsFile,omitempty"`
	// Webhook receives all notices, by POST of JSON; "" for none.
	Webhook   string `json:"webhook,omitempty"`
	WebhookCA string `json:"webhookCAFile,omitempty"`

	// stay makes Leave a Drain: without an admission server nothing would let the machine
	// join again if it stays.
	stay bool
}

// Defaults of Settings.
const (
	// DefaultIgnoreFreezeBelow: a live migration pauses a machine for up to 10 s or so,
	// less than a kubelet may be silent for (40 s) and most clients wait.
	DefaultIgnoreFreezeBelow = 10
	// DefaultAhead is more than the longest usual notice (15 minutes): such an event is
	// begun with at once.
	DefaultAhead = 20 * 60
)

const maxSettings = 64 << 10

// ParseSettings reads a settings file strictly.
func ParseSettings(text []byte) (Settings, error) {
	var s Settings
	if len(text) > maxSettings {
		return s, fmt.Errorf("settings of %d bytes, more than %d", len(text), maxSettings)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return Settings{}, err
	}
	if len(bytes.TrimSpace(text[d.InputOffset():])) > 0 {
		return Settings{}, errors.New("something follows the object")
	}
	return s, s.Validate()
}

// LoadSettings reads a settings file.
func LoadSettings(path string) (Settings, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Settings{}, fmt.Errorf("reading the settings: %w", err)
	}
	s, err := ParseSettings(text)
	if err != nil {
		return Settings{}, fmt.Errorf("reading %s: %w", path, err)
	}
	return s, nil
}

// Validate returns all that is wrong with settings.
func (s Settings) Validate() error {
	var problems []error
	wrong := func(is bool, format string, values ...any) {
		if is {
			problems = append(problems, fmt.Errorf(format, values...))
		}
	}
	for t, r := range s.Rules {
		wrong(!slices.Contains(Types(), t), "events: unknown type %q, want Freeze, Reboot, Redeploy, Terminate or Preempt", t)
		wrong(r.Do != "" && r.Do.rank() < 0, "%s: action %q, want leave, drain, cordon or ignore", t, r.Do)
		wrong(r.Acknowledge != "" && r.Acknowledge != Never && r.Acknowledge != Alone && r.Acknowledge != Always, "%s: acknowledge %q, want alone, always or never", t, r.Acknowledge)
	}
	wrong(s.IgnoreFreezeBelow != nil && *s.IgnoreFreezeBelow < 0, "ignoreFreezeBelowSeconds has to be 0 or more")
	wrong(s.Ahead < 0, "aheadSeconds has to be 0 or more")
	wrong(s.MetricsFile != "" && !strings.HasSuffix(s.MetricsFile, ".prom"), "metricsFile %q: node-exporter reads files that end in .prom", s.MetricsFile)
	wrong(s.Webhook != "" && bootstrap.CheckURL(s.Webhook) != nil, "webhook %q: want https://HOST[:PORT]/PATH", s.Webhook)
	wrong(s.Webhook == "" && s.WebhookCA != "", "webhookCAFile without a webhook")
	return errors.Join(problems...)
}

// rule is what is done about an event, and why where that is not the type's rule.
func (s Settings) rule(e Event) (r Rule, why string) {
	r = s.Rules[e.Type]
	if r.Do == "" {
		switch e.Type {
		case Preempt, Terminate:
			r.Do = Leave
		case Reboot, Redeploy:
			r.Do = Drain
		case Freeze:
			r.Do = Cordon
		default:
			r.Do, why = Ignore, "nothing is known of this type of event"
		}
	}
	if s.stay && r.Do == Leave {
		r.Do, why = Drain, "there is no admission server"
	}
	below := DefaultIgnoreFreezeBelow
	if s.IgnoreFreezeBelow != nil {
		below = *s.IgnoreFreezeBelow
	}
	if e.Type == Freeze && r.Do != Ignore && e.Duration >= 0 && (e.Duration < below || e.Duration == 0) {
		r.Do, why = Ignore, fmt.Sprintf("it lasts %d s", e.Duration)
	}
	if r.Acknowledge == "" {
		// Nobody waits for a freeze that pods stay through, and what is ignored is not
		// hurried.
		r.Acknowledge = Never
		if r.Do == Drain || r.Do == Leave {
			r.Acknowledge = Alone
		}
	}
	return r, why
}

func (s Settings) ahead() time.Duration {
	if s.Ahead == 0 {
		return DefaultAhead * time.Second
	}
	return time.Duration(s.Ahead) * time.Second
}
