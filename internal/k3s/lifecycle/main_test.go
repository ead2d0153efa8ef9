package lifecycle_test

import (
	"flag"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
)

func TestMain(m *testing.M) {
	// Most memory is JSON of polls, and lives briefly: collecting less often saves a third of the time.
	debug.SetGCPercent(800)
	flag.Parse()
	if flag.Lookup("test.memprofile").Value.String() == "" {
		runtime.MemProfileRate = 0
	}
	os.Exit(m.Run())
}
