package watch

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

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
