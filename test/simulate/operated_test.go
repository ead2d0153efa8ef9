package simulate

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// operated are stories of operators who capture, watch what came of it, and go on: from these
// seeds draw, beside the written ones.
func operated() (all []Story) {
	for n := range uint64(24) {
		random := rand.New(rand.NewPCG(n, 2)) // #nosec G404 -- the same at every run
		all = append(all, operate(fmt.Sprint("operators ", n), random))
	}
	return all
}

func operate(name string, random *rand.Rand) Story {
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	in := func(n int) bool { return random.IntN(n) == 0 }
	bad := one("", "", "", "no boot", "slow", "no join", "twin", "daemon")
	s := Story{Name: name, Seed: 1, Pool: with(func(p *Pool) { p.Daemons, p.Bad, p.Machines, p.Kured = 1, bad, false, in(2) })}
	c := Ask{Do: "capture", Grow: []int64{0, 1, 2, 2, 3}[random.IntN(5)]}
	c.Online = in(6)
	c.Baked = !c.Online && in(8)
	if in(4) {
		c.History = 2
	}
	switch random.IntN(5) {
	case 0:
		c.Canary, c.Once = 2, bad != "" // which ends it with exit 1, and the next is refused
	case 1, 2:
		c.Watch = one("cordon", "delete", "leave")
	}
	s.Asks = []Ask{c}
	if once := false; c.Watch == "" {
		switch random.IntN(8) {
		case 0:
			s.Asks = append(s.Asks, Ask{Do: "wait", For: []time.Duration{time.Hour, day}[random.IntN(2)]})
		case 1:
			s.Asks = append(s.Asks, Ask{Do: "scale out", N: 2})
		case 2:
			s.Asks = append(s.Asks, Ask{Do: "set image", To: one("1999.12.18", otherImage)})
			once = true // the other image is no version
		}
		s.Asks = append(s.Asks, Ask{Do: "watch", Bad: one("cordon", "delete", "leave"), Once: once || in(4)})
	}
	switch random.IntN(6) {
	case 0:
		s.Asks = append(s.Asks, Ask{Do: "rollback"})
	case 1: // a person who is not sure that it was done
		if !c.Once {
			c.Watch, c.Once = "", true // refused where the version was taken back
			s.Asks = append(s.Asks, c)
		}
	case 2:
		s.Asks = append(s.Asks, Ask{Do: "scale out", N: 1}, Ask{Do: "watch", Bad: "cordon"})
	}
	return s
}
