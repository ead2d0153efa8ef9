package watch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/prove"
)

// maxWhy limits what is saved of a reason, in characters.
const maxWhy = 250

// findings are what the pool's record keeps of a watch: nodes that failed may be deleted before the next.
type findings struct {
	Version fleet.ResourceID `json:"version"`
	Since   time.Time        `json:"since"` // begin of the watch; a rollback to the version ends it, and what was found counts no longer
	Nodes   []prove.Finding  `json:"nodes"` // that failed, then that passed
}

// remember saves which nodes failed, and passed, once one has failed. What cannot be saved, as while
// another process has the pool's lock, is saved by the next poll, and keeps no version from being taken back.
func (w *watch) remember(ctx context.Context) error {
	f := findings{Version: w.version.ID, Since: w.result.Since}
	for _, r := range []prove.Result{prove.Failed, prove.Passed} {
		for _, n := range w.result.Nodes {
			if n.Result == r {
				why := []rune(n.Why)
				n.Why = string(why[:min(len(why), maxWhy)])
				f.Nodes = append(f.Nodes, n)
			}
		}
	}
	if len(f.Nodes) == 0 || f.Nodes[0].Result != prove.Failed {
		return nil
	}
	f.Nodes = f.Nodes[:min(len(f.Nodes), MaxNodes)]
	data, err := json.Marshal(f)
	if err != nil || string(data) == w.saved {
		return err
	}
	if err = w.save(ctx, data); err != nil {
		if fleet.Is(err, fleet.KindHeld) { // says how long the lock is held yet: it would be another note at each poll
			err = errors.New("another process has the pool's lock")
		}
		w.note("which nodes failed is not saved yet: %v", err)
		return ctx.Err()
	}
	w.saved = string(data)
	return nil
}

// lock returns the name of the pool's lock, and as whom a watch has it.
func (w *watch) lock() (name, holder string) {
	return strings.ToLower(string(w.result.Pool)), w.Holder + "/watch"
}

// save writes findings into the pool's last record, of any kind, under the pool's lock.
func (w *watch) save(ctx context.Context, findings json.RawMessage) error {
	name, holder := w.lock()
	if _, err := w.Cluster.Hold(ctx, name, holder, w.LockFor); err != nil {
		return err
	}
	state := map[string]json.RawMessage{}
	rec, err := w.Journal.Load(ctx, name)
	if err = cmp.Or(err, json.Unmarshal(rec.State, &state)); err == nil {
		state["watched"] = findings // capture.Inherited has it
		rec.State, err = json.Marshal(state)
	}
	if err == nil {
		_, err = w.Journal.Save(ctx, rec)
	}
	return cmp.Or(err, w.Cluster.Release(context.WithoutCancel(ctx), name, holder))
}

// recall takes what a watch with this begin saved.
func (w *watch) recall(data json.RawMessage, since time.Time) {
	var f findings
	if json.Unmarshal(data, &f) != nil || !f.Version.Equal(w.version.ID) || !f.Since.Equal(since) {
		return
	}
	w.saved, w.result.Nodes = string(data), f.Nodes
	for _, n := range f.Nodes {
		if n.Result == prove.Failed {
			w.note("an earlier watch found: %s", n.Why)
		}
	}
}

// begin tags the version with the begin of the watch, or continues an earlier watch whose time is
// not over or whose take-back is not finished.
func (w *watch) begin(ctx context.Context) error {
	last, unread := w.Rollback.Last(ctx, w.result.Pool)
	if unread != nil {
		return unread
	}
	w.last = last.Name
	w.note("%s", w.ClockNote())
	now := w.Cloud.Now().UTC().Truncate(time.Second)
	since, within, nodes, err := parseBegin(w.version.Tags[fleet.TagWatch])
	if err == nil {
		w.recall(last.Watched, since)
	}
	if runs := since.Before(now.Add(clocks)) && now.Before(since.Add(within)); err == nil && (runs || w.finding != "") {
		w.result.Since = since
		if within != w.req.For || nodes != w.req.Nodes {
			w.note("continues the watch that began at %s: %d nodes within %s", since.Format(time.RFC3339), nodes, within)
		}
		w.req.For, w.req.Nodes = within, nodes
		return nil
	}
	w.result.Since = now
	return w.tag(ctx, passes, map[string]string{
		fleet.TagNotLive: "", fleet.TagWatch: fmt.Sprintf("%s %s %d", now.Format(time.RFC3339), w.req.For, w.req.Nodes)})
}

// parseBegin reads what begin wrote. Whoever may tag versions may write it, so values out of
// bounds are an error, and what is done with nodes is not in it.
func parseBegin(value string) (since time.Time, within time.Duration, nodes int, err error) {
	words := strings.Fields(value)
	if len(words) != 3 {
		return since, 0, 0, fmt.Errorf("%q is not BEGIN DURATION NODES", value)
	}
	since, err1 := time.Parse(time.RFC3339, words[0])
	within, err2 := time.ParseDuration(words[1])
	nodes, err3 := strconv.Atoi(words[2])
	if err = errors.Join(err1, err2, err3); err == nil && (within < MinFor || within > MaxFor || nodes < 1 || nodes > MaxNodes) {
		err = fmt.Errorf("%q is out of bounds", value)
	}
	return since, within, nodes, err
}
