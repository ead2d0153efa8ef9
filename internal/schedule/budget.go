package schedule

import (
	"fmt"
	"strconv"
	"strings"
)

// A Budget is how many nodes may be out of service at a time: a number, or a share of a pool.
type Budget struct {
	count   int
	percent bool
}

// maxCount is how many instances a scale set has at most.
const maxCount = 1000

// ParseBudget reads "1" or "10%". A budget that never allows anything is refused.
func ParseBudget(s string) (Budget, error) {
	digits, percent := strings.CutSuffix(s, "%")
	limit, want := maxCount, fmt.Sprintf("want 1 to %d nodes, or 1%% to 100%%", maxCount)
	if percent {
		limit = 100
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	switch {
	case err == nil && n == 0:
		return Budget{}, fmt.Errorf("%q nodes would never allow anything: %s", s, want)
	case err != nil || n > uint64(limit):
		return Budget{}, fmt.Errorf("%q: %s", s, want)
	}
	return Budget{int(n), percent}, nil
}

// Of returns how many of a pool's nodes these are. A share is rounded down and at least 1, so that
// it allows something in a small pool too.
func (b Budget) Of(nodes int) int {
	if b.percent {
		return max(1, nodes*b.count/100)
	}
	return b.count
}
