package journal

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/ortet/ortet/internal/fleet"
)

// Memory is a Store that forgets with its process: for tests and simulation.
// The zero value is ready, and it may be used from many goroutines.
type Memory struct {
	mu       sync.Mutex
	writes   int
	byPool   map[string][]byte // by the pool's id in lower case
	revision map[string]string
}

var _ Store = (*Memory)(nil)

// Load gives the record of the pool, whose id is compared without letter case.
func (m *Memory) Load(ctx context.Context, pool string) (Record, error) {
	if err := m.ended(ctx, "read journal", pool); err != nil {
		return Record{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := strings.ToLower(pool)
	data, ok := m.byPool[key]
	if !ok {
		return Record{}, &fleet.Error{Op: "read journal", Resource: pool, Kind: fleet.KindNotFound}
	}
	r, err := Decode(pool, data)
	if err != nil {
		return Record{}, err
	}
	r.Revision = m.revision[key]
	return r, nil
}

// Save writes the record where its revision is the newest, or where it has none
// and there is no record.
func (m *Memory) Save(ctx context.Context, r Record) (Record, error) {
	if err := m.ended(ctx, "write journal", r.Pool); err != nil {
		return Record{}, err
	}
	data, err := Encode(r)
	if err != nil {
		return Record{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := strings.ToLower(r.Pool)
	if m.revision[key] != r.Revision {
		return Record{}, &fleet.Error{Op: "write journal", Resource: r.Pool, Kind: fleet.KindConflict,
			Err: errors.New("somebody else wrote it since it was read")}
	}
	if m.byPool == nil {
		m.byPool, m.revision = map[string][]byte{}, map[string]string{}
	}
	m.writes++
	m.byPool[key], m.revision[key] = data, strconv.Itoa(m.writes)
	saved, err := Decode(r.Pool, data)
	if err != nil {
		return Record{}, err
	}
	saved.Revision = m.revision[key]
	return saved, nil
}

// Delete removes the pool's record, if there is one: the hand of a person, since
// no Store does that.
func (m *Memory) Delete(pool string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := strings.ToLower(pool)
	delete(m.byPool, key)
	delete(m.revision, key)
}

func (*Memory) ended(ctx context.Context, op, pool string) error {
	if err := context.Cause(ctx); err != nil {
		return &fleet.Error{Op: op, Resource: pool, Kind: fleet.KindTimedOut, Err: err}
	}
	return nil
}
