package events

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/ortet/ortet/internal/node/bootstrap"
)

// StateFile is where what is known is kept.
const StateFile = "/var/lib/ortet/events.json"

// Options are what the daemon works with. Metadata, Kubernetes and Log are required.
type Options struct {
	Settings Settings
	State    string // its file
	// VMID and BootID identify this machine and boot; "" where unknown.
	VMID, BootID string
	Metadata     AskMetadata
	Kubernetes   AskKubernetes
	Server       Server // nil where there is no admission server
	// Post sends to a webhook; nil is bootstrap.Post.
	Post func(ctx context.Context, url, caFile string, body []byte) error
	// Ready is called once the daemon watches, and Alive at each turn. They may be nil.
	Ready, Alive func()
	Log          *slog.Logger
}

// daemon is one Run.
type daemon struct {
	o       Options
	state   State
	seen    Observed
	clock   clock
	tell    *teller
	metrics metrics

	kubernetes *kubernetes
	job        *job
	outcomes   chan Outcome
	keptAt     time.Time // when the last answer was written into the metrics
	saved      string    // what of the state is on the disk
	unsaved    bool      // it would not have the last one
}

// job is the action that is under way.
type job struct {
	action  Action
	stop    context.CancelFunc
	stopped bool
}

// polled is what one question came to.
type polled struct {
	document Document
	name     string
	clock    clock
	err      error
	failures int
}

// Run watches this machine's events and acts on them until ctx ends. The next Run resumes
// what was begun.
func Run(ctx context.Context, o Options) {
	if o.Post == nil {
		o.Post = postWebhook
	}
	o.State = cmp.Or(o.State, bootstrap.Under("", StateFile))
	o.BootID = cmp.Or(o.BootID, "unknown")
	s, err := LoadState(o.State, o.VMID)
	if err != nil {
		// Handling events from the start is harmless, and what is to be undone is marked on
		// the Node too.
		o.Log.Error("what was known of events cannot be used", "error", err)
		s.Touched = true
	}
	if o.Server != nil && !s.Touched && s.DepartedIn != o.BootID {
		// Nothing was begun here: release the join lock that an earlier daemon may have
		// left.
		if err := o.Server.Release(); err != nil {
			o.Log.Warn("the machine may be kept from joining", "error", err)
		}
	}
	d := &daemon{o: o, state: s, outcomes: make(chan Outcome, 1), metrics: metrics{path: o.Settings.MetricsFile, values: map[string]float64{}}}
	d.seen.Settings, d.seen.BootID = o.Settings, o.BootID
	d.seen.Settings.stay = o.Server == nil
	d.kubernetes = &kubernetes{ask: o.Kubernetes}
	for _, h := range metricHelp() {
		switch h[0] {
		case "ortet_events_up", "ortet_events_failures_total", "ortet_events_problems_total", "ortet_events_clock_ahead_seconds":
			d.metrics.set(h[0], 0)
		}
	}
	d.metrics.set("ortet_events_server", 0)
	if o.Server != nil {
		d.metrics.set("ortet_events_server", 1)
	}
	d.tell = &teller{kubernetes: d.kubernetes, settings: o.Settings, post: o.Post, log: o.Log}
	telling, stopTelling := context.WithCancel(context.WithoutCancel(ctx))
	defer stopTelling()
	d.tell.start(telling)
	defer d.tell.stop()
	context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stopTelling) })
	d.watch(ctx)
}

// watch is the loop. All that is known is this goroutine's alone.
func (d *daemon) watch(ctx context.Context) {
	answers := make(chan polled)
	polling := make(chan struct{})
	go func() {
		defer close(polling)
		d.poll(ctx, answers)
	}()
	defer func() { <-polling }()
	defer d.halt()
	if d.o.Ready != nil {
		d.o.Ready()
	}
	for {
		if d.o.Alive != nil {
			d.o.Alive()
		}
		select {
		case <-ctx.Done():
			return
		case p := <-answers:
			d.take(ctx, p)
		case o := <-d.outcomes:
			// What ended because the daemon does is not over: the next one goes on with it.
			d.job.stopped = d.job.stopped || ctx.Err() != nil
			d.record(o)
			d.decide(ctx)
		}
	}
}

// poll asks once a second, and hands on what came. It keeps asking whatever is done
// meanwhile.
func (d *daemon) poll(ctx context.Context, answers chan<- polled) {
	p := polled{}
	limit := firstWithin
	for {
		began := time.Now()
		p.err = d.pollOnce(ctx, &p, limit)
		if p.err == nil {
			p.failures, limit = 0, within
		} else {
			p.failures++
		}
		select {
		case <-ctx.Done():
			return
		case answers <- p:
		}
		if wait := rest(p.failures, p.err) - time.Since(began); wait > 0 && !sleep(ctx, wait) {
			return
		}
	}
}

func (d *daemon) pollOnce(ctx context.Context, p *polled, limit time.Duration) error {
	if p.name == "" {
		name, err := fetchName(ctx, d.o.Metadata)
		if err != nil {
			return err
		}
		p.name = name
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	asked := time.Now()
	r, err := d.o.Metadata(ctx, "GET", eventsPath, nil)
	if err == nil {
		p.clock.hear(r, asked, time.Now())
		err = granted(r)
	}
	if err != nil {
		return err
	}
	p.document, err = ParseDocument(r.Body)
	return err
}

// take takes in what was polled.
func (d *daemon) take(ctx context.Context, p polled) {
	d.clock = p.clock
	d.metrics.set("ortet_events_clock_ahead_seconds", p.clock.ahead(time.Now()).Seconds())
	up := d.metrics.values["ortet_events_up"] == 1
	if p.err != nil {
		if p.failures == 1 || p.failures == 10 {
			d.o.Log.Warn("the metadata service does not tell the scheduled events", "failures", p.failures, "error", p.err)
		}
		d.metrics.set("ortet_events_up", 0)
		d.metrics.count("ortet_events_failures_total")
		d.decide(ctx) // times pass all the same
		return
	}
	if !up {
		d.o.Log.Info("watching scheduled events", "instance", p.name, "incarnation", p.document.Incarnation)
	}
	d.metrics.set("ortet_events_up", 1)
	if now := time.Now(); now.Sub(d.keptAt) >= 15*time.Second || !up {
		d.keptAt = now
		d.metrics.set("ortet_events_last_answer_timestamp_seconds", float64(now.Unix()))
	}
	// Documents with the same incarnation are equal.
	if d.seen.Name == "" || p.document.Incarnation != d.seen.Document.Incarnation {
		for _, problem := range p.document.Problems {
			d.o.Log.Warn("a part of the scheduled events cannot be used", "incarnation", p.document.Incarnation, "problem", problem)
			d.metrics.count("ortet_events_problems_total")
		}
		d.seen.Name, d.seen.Document = p.name, p.document
	}
	d.decide(ctx)
}

// decide has decided what is next, keeps it, and sees to it that it is done.
func (d *daemon) decide(ctx context.Context) {
	defer d.keepMetrics()
	if d.seen.Name == "" || ctx.Err() != nil {
		return // nothing is known yet
	}
	now := d.clock.now(time.Now())
	before := d.state
	state, action, notices := Decide(before, d.seen, now)
	for _, h := range state.Events {
		if before.find(h.ID) == nil {
			d.metrics.count(label("ortet_events_noticed_total", "type", known(h.Type)))
		}
	}
	d.state = state
	d.save()
	d.say(notices, now)
	d.pursue(ctx, action)
}

// known returns a type that may be a metric label: Azure's unknown types are not.
func known(t Type) string {
	for _, k := range Types() {
		if k == t {
			return string(t)
		}
	}
	return "other"
}

// save keeps the state where it has changed, on the disk when it returns. A disk that
// takes none must not keep the node from leaving.
func (d *daemon) save() {
	text, err := json.Marshal(d.state)
	if err == nil && string(text) == d.saved {
		return
	}
	if err == nil {
		err = bootstrap.Keep(d.o.State, append(text, '\n'))
	}
	if err == nil {
		d.saved, d.unsaved = string(text), false
		return
	}
	if !d.unsaved {
		d.o.Log.Error("going on without a record: a restart in the middle would begin anew", "error", err)
	}
	d.unsaved = true
}

func (d *daemon) say(notices []Notice, now time.Time) {
	for _, n := range notices {
		t := Told{At: now, Name: d.seen.Name, EventID: n.ID, Type: n.Type, Reason: n.Reason, Message: n.Message, Warning: n.Warning}
		if h := d.state.find(n.ID); h != nil {
			copied := *h
			t.Handling = &copied
		}
		d.tell.say(t)
	}
}

// pursue has the action done: what is at it already goes on, another one is stopped
// first.
func (d *daemon) pursue(ctx context.Context, a *Action) {
	if d.job != nil {
		if a != nil && d.job.action.same(*a) {
			return
		}
		d.job.stopped = true
		d.job.stop()
		return // its end has the next one decided
	}
	if a == nil {
		return
	}
	work, stop := context.WithCancel(ctx)
	d.job = &job{action: *a, stop: stop}
	at := d.clock // the loop's goes on
	c := &clearer{server: d.o.Server, kubernetes: d.kubernetes, now: func() time.Time { return at.now(time.Now()) }, log: d.o.Log}
	go func() {
		defer stop()
		d.outcomes <- d.act(work, c, *a)
	}()
}

// same reports whether both are one action, so that the running one continues.
func (a Action) same(b Action) bool {
	return a.Verb == b.Verb && a.ID == b.ID && a.Do == b.Do && a.Until.Equal(b.Until)
}

// errNoServer is of a machine that had an admission server when it began to leave.
var errNoServer = errors.New("the admission server's settings are gone, or cannot be used")

// act does one action.
func (d *daemon) act(ctx context.Context, c *clearer, a Action) Outcome {
	o := Outcome{Action: a}
	switch a.Verb {
	case Clear:
		return c.clear(ctx, a)
	case Depart:
		bounded, cancel := context.WithTimeout(ctx, max(a.Deadline.Sub(c.now()), least))
		defer cancel()
		if o.Err = errNoServer; c.server != nil {
			o.Err = c.server.Depart(bounded, string(a.Type))
		}
	case Tell:
		o.Err = approve(ctx, d.o.Metadata, a.ID)
		var refused metadataError
		o.Final = errors.As(o.Err, &refused) && !refused.passing()
	case Undo:
		o.Err = c.giveBack(ctx)
	case Rejoin:
		bounded, cancel := context.WithTimeout(ctx, tardy)
		defer cancel()
		if o.Err = errNoServer; c.server != nil {
			o.Err = c.server.Rejoin(bounded)
		}
	}
	return o
}

// record takes in what came of the job. What was stopped is not known, unless it was
// done.
func (d *daemon) record(o Outcome) {
	stopped := d.job.stopped
	d.job = nil
	if stopped && (o.Err != nil || o.Action.Verb == Clear && !o.Done) {
		return
	}
	now := d.clock.now(time.Now())
	if o.Err != nil {
		d.o.Log.Warn("an action failed", "action", string(o.Action.Verb), "event", o.Action.ID, "error", o.Err)
	}
	state, notices := Record(d.state, o, d.seen, now)
	d.state = state
	d.save()
	if h := state.find(o.Action.ID); h != nil {
		d.count(o, *h)
	}
	d.say(notices, now)
}

// count records an outcome in the metrics.
func (d *daemon) count(o Outcome, h Handling) {
	switch {
	case o.Action.Verb == Clear && h.Phase == Cleared:
		whole := "false"
		if h.Done {
			whole = "true"
		}
		d.metrics.count(label("ortet_events_drains_total", "by", string(h.By), "type", known(h.Type), "whole", whole))
		d.metrics.set("ortet_events_pods_left", float64(len(o.Left)))
		d.metrics.set("ortet_events_drain_seconds", h.ClearedAt.Sub(h.NoticedAt).Seconds())
	case o.Action.Verb == Tell && h.Phase == Acknowledged && o.Err == nil:
		d.metrics.count(label("ortet_events_acknowledged_total", "type", known(h.Type)))
	}
}

func (d *daemon) keepMetrics() {
	d.metrics.clear("ortet_events_pending{")
	for _, h := range d.state.Events {
		d.metrics.count(label("ortet_events_pending", "phase", string(h.Phase), "type", known(h.Type)))
	}
	if err := d.metrics.keep(); err != nil && !d.metrics.failed {
		d.metrics.failed = true
		d.o.Log.Warn("the metrics cannot be kept", "error", err)
	} else if err == nil {
		d.metrics.failed = false
	}
}

// halt stops the job, and keeps what it got done.
func (d *daemon) halt() {
	if d.job == nil {
		return
	}
	d.job.stopped = true
	d.job.stop()
	d.record(<-d.outcomes)
}
