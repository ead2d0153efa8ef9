package capture

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
)

// Remember saves findings, which are JSON, in the pool's last record, under the pool's lock. From there
// they go from record to record. It is fleet.KindHeld while another has the lock, and
// fleet.KindNotFound without a record.
func (c Config) Remember(ctx context.Context, pool fleet.ResourceID, findings json.RawMessage) error {
	name, holder := strings.ToLower(string(pool)), c.Holder+"/watch"
	if _, err := c.Cluster.Hold(ctx, name, holder, c.LockFor); err != nil {
		return err
	}
	state := map[string]json.RawMessage{} // of any kind
	rec, err := c.Journal.Load(ctx, name)
	if err == nil {
		err = json.Unmarshal(rec.State, &state)
	}
	if err == nil {
		state["watched"] = findings
		rec.State, err = json.Marshal(state)
	}
	if err == nil {
		_, err = c.Journal.Save(ctx, rec)
	}
	return cmp.Or(err, c.Cluster.Release(context.WithoutCancel(ctx), name, holder))
}

// Remembered returns what Remember saved; nil for nothing.
func (c Config) Remembered(ctx context.Context, pool fleet.ResourceID) (json.RawMessage, error) {
	rec, err := c.Journal.Load(ctx, strings.ToLower(string(pool)))
	if err != nil {
		return nil, fleet.IgnoreNotFound(err)
	}
	var s Inherited
	_ = json.Unmarshal(rec.State, &s) // a state that cannot be read has none
	return s.Watched, nil
}
