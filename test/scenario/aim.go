package scenario

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
)

// How many kinds of changes there are for each that is aimed at: a capture has about
// thirty, and each is as likely as any other, however often it comes and however late.
const (
	aimOneIn  = 15
	aimLatest = 6 // which of its kind that is, at most
	aimMost   = 4 // in all, so that no other chance is lost in them
)

// kindOfChange is what counts as one kind of change: all evictions are one.
func kindOfChange(side, request string) string {
	if strings.HasSuffix(request, "/eviction") {
		return side + " eviction"
	}
	return side + " " + request
}

// diceFor rolls what a seed has for one kind of change.
func (c *Chooser) diceFor(purpose, kind string) dice {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%s", purpose, c.seed, kind))
	return roll(binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:]))
}

// byAim chooses what happens at a change that is aimed at, or at the read after it.
// The caller has the lock.
func (c *Chooser) byAim(side, request string, count int, get bool) (Event, bool) {
	_, path, ok := strings.Cut(request, " ")
	if !ok || checkRequest(request) != nil || strings.Contains(request, "/leases/") || isReview(request) || strings.Contains(request, " operation of ") {
		return Event{}, false
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "aim\x00%d\x00%s\x00%s\x00%d", c.seed, side, request, count))
	d := roll(binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:]))
	e := Event{Side: side, Request: request, Count: count}
	if get {
		if !c.isAfter(side, path) {
			return Event{}, false
		}
		e.What = pick(d, []weighted[What]{{3, Error}, {3, Stale}, {1, ""}})
		switch {
		case e.What == Error && side == Azure && d.percent(30):
			e.What, e.Args = proxied(d, ProxyBefore, []string{"404"})
		case e.What == Error:
			e.Args = []string{"404"}
		}
		return e, e.What != ""
	}
	kind := kindOfChange(side, request)
	of := c.diceFor("aim", kind)
	which := 1
	if of.n(aimOneIn) >= c.chance.Aimed || side == Kube && of.percent(50) {
		return Event{}, false
	}
	if of.percent(35) {
		which = of.in(2, aimLatest)
	}
	kind = "aim " + kind
	if c.ofKind[kind]++; c.ofKind[kind] != which || c.aimed >= aimMost {
		return Event{}, false
	}
	c.aimed++
	c.after[side+" "+path] = true
	const others What = "others"
	e.What = pick(d, []weighted[What]{{4, DropAfter}, {3, ReportSuccess}, {3, FailAtEnd}, {3, Error}, {2, RivalComes}, {4, others}, {2, KillBefore}, {3, KillAfter}, {3, ""}})
	switch {
	case e.What == FailAtEnd && side == Kube:
		e.What = Interrupt
	case e.What == others:
		e.What, e.Args = c.change(d)
	case e.What == ReportSuccess && side == Kube:
		e.What = ReportFailure
	case e.What == Error && side == Kube:
		e.Args = []string{"409"}
	case e.What == Error:
		e.Args = []string{"412"}
	}
	return e, e.What != ""
}

// isAfter reports, once, whether a read is the first of what was aimed at: of the
// resource itself, what it is a part of, or its instance view.
func (c *Chooser) isAfter(side, path string) bool {
	is := false
	for hit := range c.after {
		of, changed, _ := strings.Cut(hit, " ")
		if of == side && (changed == path || strings.HasPrefix(changed, path+"/") || strings.HasPrefix(path, changed+"/")) {
			delete(c.after, hit)
			is = true
		}
	}
	return is
}
