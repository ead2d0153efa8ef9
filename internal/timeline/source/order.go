package source

import (
	"sort"

	"github.com/ortet/ortet/internal/wire"
)

func sortStrings(s []string) { sort.Strings(s) }

// byMonotonic and bySpan are sort.Interfaces: the generic sort costs a copy of
// itself in the agent for each type.
type byMonotonic []wire.ClockReading

func (s byMonotonic) Len() int      { return len(s) }
func (s byMonotonic) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s byMonotonic) Less(i, j int) bool {
	if s[i].Monotonic != s[j].Monotonic {
		return s[i].Monotonic < s[j].Monotonic
	}
	return s[i].Wall < s[j].Wall
}

func sortClocks(s []wire.ClockReading) { sort.Sort(byMonotonic(s)) }

type bySpan []wire.BootSpan

func (s bySpan) Len() int      { return len(s) }
func (s bySpan) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s bySpan) Less(i, j int) bool {
	a, b := &s[i], &s[j]
	switch {
	case a.Source != b.Source:
		return a.Source < b.Source
	case a.Clock != b.Clock:
		return a.Clock < b.Clock
	case a.Start != b.Start:
		return a.Start < b.Start
	case a.Name != b.Name:
		return a.Name < b.Name
	}
	return a.End < b.End
}

func sortSpans(s []wire.BootSpan) { sort.Stable(bySpan(s)) }
