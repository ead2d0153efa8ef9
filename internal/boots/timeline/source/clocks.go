package source

import "github.com/ortet/ortet/internal/wire"

// clockFilter keeps the significant ones of many readings of the clocks: the first, the
// last, and each at which the offset differs from the last that was kept, with the one
// before it, so that the moment of a step lies between two readings.
type clockFilter struct {
	kept   []wire.ClockReading
	last   wire.ClockReading
	any    bool
	within wire.Micros // offsets that differ by no more are the same
}

// steady is by how much two readings of the same offset may differ: the two clocks are read
// one after the other, maybe with an interruption.
const steady = millisecond

func (f *clockFilter) take(c wire.ClockReading) {
	if f.within == 0 {
		f.within = steady
	}
	if !f.any {
		f.any, f.last = true, c
		f.kept = append(f.kept, c)
		return
	}
	base := f.kept[len(f.kept)-1]
	if by := (c.Wall - c.Monotonic) - (base.Wall - base.Monotonic); by > f.within || by < -f.within {
		if f.last != base && f.last.Monotonic <= c.Monotonic {
			f.kept = append(f.kept, f.last)
		}
		f.kept = append(f.kept, c)
		if len(f.kept) >= wire.MaxBootClocks/2 {
			f.coarsen()
		}
	}
	f.last = c
}

// coarsen drops the less significant half of the readings, and ignores differences as small
// from now on.
func (f *clockFilter) coarsen() {
	f.within *= 2
	all := f.kept
	f.kept = nil
	var last wire.ClockReading
	for i, c := range all {
		if i == 0 {
			f.kept = append(f.kept, c)
			last = c
			continue
		}
		base := f.kept[len(f.kept)-1]
		if by := (c.Wall - c.Monotonic) - (base.Wall - base.Monotonic); by > f.within || by < -f.within {
			if last != base {
				f.kept = append(f.kept, last)
			}
			f.kept = append(f.kept, c)
		}
		last = c
	}
	if len(f.kept) >= wire.MaxBootClocks/2 { // each is a step: the first ones are of the boot
		f.kept = f.kept[:wire.MaxBootClocks/4]
	}
}

// readings are those that were kept, by the monotonic clock.
func (f *clockFilter) readings() []wire.ClockReading {
	if !f.any {
		return nil
	}
	if f.kept[len(f.kept)-1] != f.last {
		f.kept = append(f.kept, f.last)
	}
	sortClocks(f.kept)
	return f.kept
}
