// Package journaltest has a journal.Store in memory, and the contract of one as a suite.
package journaltest

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
)

// Memory is a journal.Store in memory, for tests and simulation. The zero value is ready; it
// may be used from several goroutines.
type Memory struct {
	mu     sync.Mutex
	writes int
	byPool map[string]entry // by the pool's id in lower case
}

type entry struct {
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
	if m.byPool[strings.ToLower(r.Pool)].revision != r.Revision {
		return journal.Record{}, &fleet.Error{Op: "write journal", Resource: r.Pool, Kind: fleet.KindConflict,
			Err: errors.New("another writer saved it since it was read")}
	}
	revision := m.store(r.Pool, data)
	r, err = journal.Decode(r.Pool, data)
	r.Revision = revision
	return r, err
}

// Put replaces the pool's record by data, as a person may; nil deletes it.
func (m *Memory) Put(pool string, data []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if data == nil {
		delete(m.byPool, strings.ToLower(pool))
		return
	}
	m.store(pool, data)
}

// store replaces a record. The caller has the lock.
func (m *Memory) store(pool string, data []byte) (revision string) {
	if m.byPool == nil {
		m.byPool = map[string]entry{}
	}
	m.writes++
	revision = strconv.Itoa(m.writes)
	m.byPool[strings.ToLower(pool)] = entry{data, revision}
	return revision
}
