package scenario

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
)

// aimOneIn is how many changes there are for each that is aimed at, in a capture;
// those that a capture makes once, and that matter most, count often.
const (
	aimOneIn = 16
	often    = 3
)

// weighty reports whether a change is of the model or its extensions, a version, the
// donor's power or the workbench's disks.
func weighty(request string) bool {
	return strings.HasPrefix(request, "PATCH virtualMachineScaleSets/") || strings.Contains(request, "/extensions/") || strings.HasSuffix(strings.ToLower(request), "/attachdetachdatadisks") || strings.HasPrefix(request, "PUT galleries/") && strings.Contains(request, "/versions/") ||
		strings.HasSuffix(request, "/start") || strings.HasSuffix(request, "/poweroff")
}

// byAim chooses what happens at a change that is aimed at, or at the read after it.
// The caller has the lock.
func (c *Chooser) byAim(side, request string, count int, get bool) (Event, bool) {
	_, path, ok := strings.Cut(request, " ")
	if !ok || checkRequest(request) != nil || strings.Contains(request, "/leases/") || strings.Contains(request, " operation of ") {
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
	likely := c.chance.Aimed
	if weighty(request) {
		likely *= often
	}
	if c.aimed >= c.chance.Aimed || d.n(aimOneIn) >= likely || side == Kube && d.percent(70) {
		return Event{}, false
	}
	c.aimed++
	c.after[side+" "+path] = true
	const others What = "others"
	e.What = pick(d, []weighted[What]{{4, DropAfter}, {3, ReportSuccess}, {3, Error}, {2, RivalComes}, {4, others}, {3, ""}})
	switch {
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
