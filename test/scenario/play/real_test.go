package play_test

import "testing"

// TestReal plays what test/e2e plays again on a real API server.
func TestReal(t *testing.T) { playAll(t, "../testdata/real") }
