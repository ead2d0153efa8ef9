// Package journaltest has a journal.Store in memory.
package journaltest

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/workflow/journal"
)

// Memory is a journal.Store in memory, for tests and simulation. The zero value is ready; it
// may be used from several goroutines.
type Memory struct {
	mu     sync.Mutex
	writes int
	byPool map[string]stored // by the pool's id in lower case
}

type stored struct {
	data     []byte
	revision string
}

var _ journal.Store = (*Memory)(nil)

// Load implements journal.Store.
func (m *Memory) Load(ctx context.Context, pool string) (journal.Record, error) {
	if err := context.Cause(ctx); err != nil {
		return journal.Record{}, &fleet.Error{Op: "read journal", Resource: pool, Kind: fleet.KindTimedOut, Err: err}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.byPool[strings.ToLower(pool)]
	if !ok {
		return journal.Record{}, &fleet.Error{Op: "read journal", Resource: pool, Kind: fleet.KindNotFound}
	}
	r, err := journal.Decode(pool, s.data)
	r.Revision = s.revision
	return r, err
}

// Save implements journal.Store.
func (m *Memory) Save(ctx context.Context, r journal.Record) (journal.Record, error) {
	data, err := journal.Encode(r)
	if err != nil {
		return journal.Record{}, err
	}
	if err := context.Cause(ctx); err != nil {
		return journal.Record{}, &fleet.Error{Op: "write journal", Resource: r.Pool, Kind: fleet.KindTimedOut, Err: err}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := strings.ToLower(r.Pool)
	if m.byPool[key].revision != r.Revision {
		return journal.Record{}, &fleet.Error{Op: "write journal", Resource: r.Pool, Kind: fleet.KindConflict,
			Err: errors.New("another writer saved it since it was read")}
	}
	if m.byPool == nil {
		m.byPool = map[string]stored{}
	}
	m.writes++
	s := stored{data, strconv.Itoa(m.writes)}
	m.byPool[key] = s
	r, err = journal.Decode(r.Pool, data)
	r.Revision = s.revision
	return r, err
}

// Delete removes the pool's record, as a person may.
func (m *Memory) Delete(pool string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byPool, strings.ToLower(pool))
}
