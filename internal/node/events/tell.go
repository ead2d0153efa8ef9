package events

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ortet/ortet/internal/node/bootstrap"
)

const (
	// backlog limits the queued notices; more are dropped, since no action waits for their
	// receivers.
	backlog     = 64
	tellTimeout = 20 * time.Second
)

// Told is a webhook's body.
type Told struct {
	At      time.Time `json:"at"` // Azure's clock
	Node    string    `json:"node,omitempty"`
	Name    string    `json:"instance"` // in Azure
	EventID string    `json:"eventId,omitempty"`
	Type    Type      `json:"type,omitempty"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Warning bool      `json:"warning,omitempty"`
	// Handling is what is known of the event then.
	Handling *Handling `json:"handling,omitempty"`
}

// A teller publishes notices in the background.
type teller struct {
	kubernetes *kubernetes
	settings   Settings
	post       func(ctx context.Context, url, caFile string, body []byte) error
	log        *slog.Logger

	queue chan Told
	done  sync.WaitGroup
}

func (t *teller) start(ctx context.Context) {
	t.queue = make(chan Told, backlog)
	t.done.Go(func() {
		for told := range t.queue {
			t.tell(ctx, told)
		}
	})
}

// stop waits a little for queued notices to be sent.
func (t *teller) stop() {
	close(t.queue)
	t.done.Wait()
}

// say queues a notice.
func (t *teller) say(told Told) {
	level := slog.LevelInfo
	if told.Warning {
		level = slog.LevelWarn
	}
	t.log.Log(context.Background(), level, told.Message, "reason", told.Reason, "event", told.EventID, "type", string(told.Type))
	select {
	case t.queue <- told:
	default:
		t.log.Warn("notification queue full; dropping notice", "reason", told.Reason, "event", told.EventID)
	}
}

// tell tries each way, even if the other fails.
func (t *teller) tell(ctx context.Context, told Told) {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	n := Notice{ID: told.EventID, Type: told.Type, Reason: told.Reason, Message: told.Message, Warning: told.Warning}
	if err := t.kubernetes.event(ctx, n, told.At); err != nil {
		t.log.Info("not told as an Event of the Node", "reason", told.Reason, "error", err)
	}
	if t.settings.Webhook == "" {
		return
	}
	told.Node, _ = t.kubernetes.nodeName(ctx) // "" where there is none
	body, err := json.Marshal(told)
	if err == nil {
		err = t.post(ctx, t.settings.Webhook, t.settings.WebhookCA, body)
	}
	if err != nil {
		t.log.Warn("the webhook was not told", "reason", told.Reason, "error", err)
	}
}

// A gauge board is what node-exporter's textfile collector reads.
type metrics struct {
	path   string
	values map[string]float64
	kept   string
	failed bool
}

// Metrics, with their help. Names of counters end in _total.
func metricHelp() [][2]string {
	return [][2]string{
		{"ortet_events_up", "Whether the metadata service answered the last question for scheduled events."},
		{"ortet_events_server", "Whether there is an admission server to leave by."},
		{"ortet_events_last_answer_timestamp_seconds", "When it answered last, by this machine's clock; kept to 15 s."},
		{"ortet_events_failures_total", "Questions that the metadata service did not answer."},
		{"ortet_events_clock_ahead_seconds", "How far Azure's clock is ahead of this machine's; 0 within 2 s."},
		{"ortet_events_pending", "Events of this machine, by type and phase."},
		{"ortet_events_noticed_total", "Events of this machine that were told, by type."},
		{"ortet_events_drains_total", "Times the node was cordoned or drained for an event, by who did it and whether wholly."},
		{"ortet_events_pods_left", "Pods that were left when the time of the last drain was up."},
		{"ortet_events_drain_seconds", "How long the last one took, from the event's notice."},
		{"ortet_events_acknowledged_total", "Events that Azure was told may begin, by type."},
		{"ortet_events_problems_total", "Parts of Azure's documents that could not be used."},
	}
}

func (m *metrics) set(name string, v float64) { m.values[name] = v }
func (m *metrics) count(name string)          { m.values[name]++ }

// clear takes away what begins so.
func (m *metrics) clear(prefix string) {
	for name := range m.values {
		if strings.HasPrefix(name, prefix) {
			delete(m.values, name)
		}
	}
}

// label makes a name with labels, in pairs; their values are constants of ours.
func label(name string, pairs ...string) string {
	var parts []string
	for i := 0; i+1 < len(pairs); i += 2 {
		parts = append(parts, fmt.Sprintf("%s=%q", pairs[i], pairs[i+1]))
	}
	return name + "{" + strings.Join(parts, ",") + "}"
}

func (m *metrics) text() string {
	names := slices.Sorted(maps.Keys(m.values))
	var b strings.Builder
	for _, h := range metricHelp() {
		kind := "gauge"
		if strings.HasSuffix(h[0], "_total") {
			kind = "counter"
		}
		headed := false
		for _, name := range names {
			if bare, _, _ := strings.Cut(name, "{"); bare != h[0] {
				continue
			}
			if !headed {
				_, _ = fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", h[0], h[1], h[0], kind)
				headed = true
			}
			_, _ = fmt.Fprintf(&b, "%s %g\n", name, m.values[name])
		}
	}
	return b.String()
}

// keep writes the file where it has changed: wholly or not at all, and readable by
// the collector, which is another user.
func (m *metrics) keep() error {
	text := m.text()
	if m.path == "" || text == m.kept {
		return nil
	}
	if err := bootstrap.Replace(m.path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("keeping metrics in %s: %w", m.path, err)
	}
	m.kept = text
	return nil
}

// postWebhook posts to the webhook, with a few tries.
func postWebhook(ctx context.Context, url, caFile string, body []byte) error {
	return bootstrap.Post(ctx, url, caFile, body)
}
