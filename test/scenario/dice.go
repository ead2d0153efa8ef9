package scenario

import (
	"math/bits"
	"math/rand/v2"
)

// dice are fair enough, and fall the same on every platform and with every Go,
// which rand.Rand's bounded numbers do not promise.
type dice struct{ from *rand.PCG }

func roll(a, b uint64) dice { return dice{rand.NewPCG(a, b)} }

// n gives 0 to below-1; 0 where below is not positive.
func (d dice) n(below int) int {
	if below <= 0 {
		return 0
	}
	hi, _ := bits.Mul64(d.from.Uint64(), uint64(below))
	return int(hi)
}

// in gives low to high, both included.
func (d dice) in(low, high int) int { return low + d.n(high-low+1) }

// percent is true that often in a hundred.
func (d dice) percent(p int) bool { return d.n(100) < p }

// spread gives low to high such that each doubling is about as likely as the
// next one. low has to be positive.
func (d dice) spread(low, high int) int {
	doublings := bits.Len(uint(high/low)) - 1
	from := low << d.n(doublings+1)
	return d.in(from, min(2*from, high))
}

// A weighted is something that is as likely as its weight says.
type weighted[T any] struct {
	weight int
	of     T
}

func pick[T any](d dice, from []weighted[T]) T {
	sum := 0
	for _, w := range from {
		sum += w.weight
	}
	at := d.n(sum)
	for _, w := range from {
		if at -= w.weight; at < 0 {
			return w.of
		}
	}
	var nothing T
	return nothing
}
