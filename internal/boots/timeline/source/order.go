package source

import (
	"cmp"
	"slices"

	"github.com/ortet/ortet/internal/wire"
)

func sortClocks(s []wire.ClockReading) {
	slices.SortFunc(s, func(a, b wire.ClockReading) int {
		return cmp.Or(cmp.Compare(a.Monotonic, b.Monotonic), cmp.Compare(a.Wall, b.Wall))
	})
}

func sortSpans(s []wire.BootSpan) {
	slices.SortStableFunc(s, func(a, b wire.BootSpan) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Clock, b.Clock), cmp.Compare(a.Start, b.Start),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.End, b.End))
	})
}
