package scenario

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
)

// How many kinds of changes there are for each at which a failure or an interruption is
// brought about, and how many requests that undo changes for each at which something happens.
const (
	provokeOneIn  = 20 // kinds of changes, each as likely as any other
	undoChangeIn  = 5
	undoReadOneIn = 40
)

// whileUndoing chooses what makes a process undo its changes, once, and then what
// happens to it meanwhile. The caller has the lock.
func (c *Chooser) whileUndoing(side, request string, count int, get, undoes bool) (Event, bool) {
	if checkRequest(request) != nil || strings.Contains(request, "/leases/") || isReview(request) {
		return Event{}, false
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "undo\x00%d\x00%s\x00%s\x00%d", c.seed, side, request, count))
	d := roll(binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:]))
	e := Event{Side: side, Request: request, Count: count}
	switch {
	case undoes && get && d.n(undoReadOneIn) > 0, undoes && !get && d.n(undoChangeIn) > 0, undoes && c.undoing >= c.chance.Undoing:
		return Event{}, false
	case undoes:
		c.undoing++
		e.What = pick(d, []weighted[What]{{3, KillBefore}, {4, KillAfter}, {2, Interrupt}, {4, DropAfter}, {7, ""}})
		if e.What == "" {
			e.What, e.Args = c.faultAt(d, side, request)
		}
		return e, true
	case get || c.provoked:
		return Event{}, false
	}
	oneIn := provokeOneIn
	if c.chance.Phase > 0 {
		oneIn = provokeInPhaseOneIn
	}
	if of := c.diceFor("provoke", kindOfChange(side, request)); of.n(oneIn) > 0 || side == Kube && of.percent(50) {
		return Event{}, false
	}
	c.provoked = true
	e.What = pick(d, []weighted[What]{{5, Interrupt}, {5, Error}})
	if e.What == Error { // no answer that may pass
		e.Args = pick(d, []weighted[[]string]{{1, []string{"403"}}, {1, []string{"400"}}})
	}
	return e, true
}
