//go:build e2e && linux

package lab

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A timeline says where a story's time went.
type timeline struct {
	t      *testing.T
	began  time.Time
	name   string
	phase  time.Time
	phases []string
}

func newTimeline(t *testing.T) *timeline {
	now := time.Now()
	return &timeline{t: t, began: now, phase: now}
}

// begin ends the current phase and begins another; "" only ends it.
func (l *timeline) begin(name string) {
	now := time.Now()
	if l.name != "" {
		l.phases = append(l.phases, fmt.Sprintf("%7.1f s  %s", now.Sub(l.phase).Seconds(), l.name))
	}
	l.name, l.phase = name, now
	if name != "" {
		l.t.Logf("== %s (%.0f s since the start)", name, now.Sub(l.began).Seconds())
	}
}

// print shows all phases and their sum.
func (l *timeline) print() {
	l.begin("")
	l.t.Logf("Where the time went:\n%s\n%7.1f s  in all", strings.Join(l.phases, "\n"), time.Since(l.began).Seconds())
}
