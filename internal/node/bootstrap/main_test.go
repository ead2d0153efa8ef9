package bootstrap

import (
	"flag"
	"testing"
)

// Tests wait most of their time, so that more run at once than there are processors.
// There is no TestMain: the tests with a control plane have theirs.
func init() {
	testing.Init()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
}
