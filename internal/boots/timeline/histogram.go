package timeline

import (
	"math"

	"github.com/ortet/ortet/internal/wire"
)

// RelativeError is by how much a Histogram's quantiles may be off, as a share of
// them: an upper bound.
const RelativeError = 0.01

const (
	// growth is the ratio of a bucket's bounds; a bucket's value is off by up to
	// RelativeError from each value in it.
	growth = (1 + RelativeError) / (1 - RelativeError)
	// buckets reach from 1 µs to more than 100 days; what is longer counts as that.
	buckets = 1500
)

// Histogram counts durations in buckets that grow in proportion, so that any
// quantile is known to RelativeError, in the same memory however many are
// counted. Its zero value is ready.
type Histogram struct {
	Count uint64      `json:"count"`
	Zero  uint64      `json:"zero,omitempty"` // durations of 0
	Sum   wire.Micros `json:"sumUsec"`
	Min   wire.Micros `json:"minUsec"`
	Max   wire.Micros `json:"maxUsec"`
	// First is the bucket of Counts[0]: bucket n counts durations above growth^(n-1)
	// and up to growth^n microseconds.
	First  int      `json:"first,omitempty"`
	Counts []uint32 `json:"counts,omitempty"`
}

// logGrowth is ln(growth).
var logGrowth = math.Log(growth)

// Add counts a duration; a negative one as 0.
func (h *Histogram) Add(d wire.Micros) {
	d = max(d, 0)
	if h.Count == 0 || d < h.Min {
		h.Min = d
	}
	h.Max = max(h.Max, d)
	h.Count++
	h.Sum += d
	if d == 0 {
		h.Zero++
		return
	}
	n := min(int(math.Ceil(math.Log(float64(d))/logGrowth)), buckets-1)
	h.reach(n)
	h.Counts[n-h.First]++
}

// reach makes room for a bucket.
func (h *Histogram) reach(n int) {
	switch {
	case len(h.Counts) == 0:
		h.First, h.Counts = n, make([]uint32, 1, 32)
	case n < h.First:
		grown := make([]uint32, len(h.Counts)+h.First-n)
		copy(grown[h.First-n:], h.Counts)
		h.First, h.Counts = n, grown
	}
	for n >= h.First+len(h.Counts) {
		h.Counts = append(h.Counts, 0)
	}
}

// Quantile is the duration that q (0 to 1) of all are not longer than; 0 of none.
func (h *Histogram) Quantile(q float64) wire.Micros {
	if h.Count == 0 {
		return 0
	}
	rank := max(uint64(math.Ceil(min(max(q, 0), 1)*float64(h.Count))), 1)
	switch {
	case rank <= 1:
		return h.Min
	case rank >= h.Count:
		return h.Max
	case rank <= h.Zero:
		return 0
	}
	seen := h.Zero
	for i, c := range h.Counts {
		if seen += uint64(c); seen >= rank {
			// The middle, by which both bounds are equally far off.
			middle := math.Pow(growth, float64(h.First+i)) * 2 / (1 + growth)
			return min(max(wire.Micros(math.Round(middle)), h.Min), h.Max)
		}
	}
	return h.Max
}

// Mean is the exact mean; 0 of none.
func (h *Histogram) Mean() wire.Micros {
	if h.Count == 0 {
		return 0
	}
	return h.Sum / wire.Micros(h.Count)
}
