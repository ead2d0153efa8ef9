package journal_test

import (
	"testing"

	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/journal/journaltest"
)

func TestMemory(t *testing.T) {
	var store journal.Memory
	journaltest.Run(t, "memory-", func(*testing.T) journal.Store { return &store }, func(_ *testing.T, pool string) { store.Delete(pool) })
}
