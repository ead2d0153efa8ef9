package engine

import (
	"testing"
	"time"
)

func TestLookAfter(t *testing.T) {
	for _, c := range []struct{ worked, want time.Duration }{
		{-time.Hour, lookEvery}, // a clock that was put back
		{0, lookEvery},
		{4 * time.Second, lookEvery},
		{8 * time.Second, time.Second},
		{time.Hour, 2 * time.Second},
	} {
		if got := lookAfter(c.worked); got != c.want {
			t.Errorf("after %s: %s, want %s", c.worked, got, c.want)
		}
	}
}
