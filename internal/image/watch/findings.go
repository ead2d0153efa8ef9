package watch

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/prove"
)

// Limits of what is saved.
const (
	maxFindings = MaxNodes
	maxWhy      = 250 // characters
)

// findings are what the pool's record keeps of a watch: nodes that failed may be deleted before the next.
type findings struct {
	Version fleet.ResourceID `json:"version"`
	Since   time.Time        `json:"since"` // begin of the watch; a rollback to the version ends it, and what was found counts no longer
	Nodes   []prove.Finding  `json:"nodes"` // that failed, then that passed
}

// remember saves which nodes failed, and passed, once one has failed. While another process has the
// pool's lock, the next poll saves it.
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
	f.Nodes = f.Nodes[:min(len(f.Nodes), maxFindings)]
	data, err := json.Marshal(f)
	if err != nil || string(data) == w.saved {
		return err
	}
	switch err = w.Remember(ctx, w.result.Pool, data); {
	case err == nil:
		w.saved = string(data)
	case fleet.Is(err, fleet.KindNotFound):
		w.note("the pool has no record: a watch that is interrupted forgets nodes that are deleted")
		err = nil
	case fleet.Is(err, fleet.KindHeld), fleet.Is(err, fleet.KindConflict):
		err = nil
	}
	return err
}

// recall reads what a watch with this begin saved.
func (w *watch) recall(ctx context.Context, since time.Time) error {
	data, err := w.Remembered(ctx, w.result.Pool)
	var f findings
	if err != nil || data == nil || json.Unmarshal(data, &f) != nil || !f.Version.Equal(w.version.ID) || !f.Since.Equal(since) {
		return err
	}
	w.saved, w.result.Nodes = string(data), f.Nodes
	slices.SortFunc(w.result.Nodes, func(a, b prove.Finding) int { return cmp.Compare(a.Clone, b.Clone) })
	for _, n := range f.Nodes {
		if n.Result == prove.Failed {
			w.note("an earlier watch found: %s", n.Why)
		}
	}
	return nil
}
