package scenario

import (
	"fmt"
	"strings"
)

const (
	// deathsOneIn is how many kinds of changes there are for each at which a process dies.
	deathsOneIn = 22
	// latest bounds which change of its kind that is.
	latest = 6
	// mostDeaths bounds how many processes die or are suspended.
	mostDeaths = 4
)

// byDeaths chooses at which changes a process dies or is suspended, and what becomes of
// the next one. Each kind of change is as likely as any other, however often it comes.
// The caller has the lock.
func (c *Chooser) byDeaths(side, request string, count int, get bool) []Event {
	if checkRequest(request) != nil || strings.Contains(request, " operation of ") || isReview(request) {
		return nil
	}
	_, path, _ := strings.Cut(request, " ")
	event := func(what What, args ...string) Event {
		return Event{Side: side, Request: request, Count: count, What: what, Args: args}
	}
	if c.afterDeath != nil {
		all := c.afterDeath
		c.afterDeath = nil
		for i := range all {
			all[i].Side, all[i].Request, all[i].Count = side, request, count
		}
		return all
	}
	if get {
		if c.staleNext[side+" "+path] {
			delete(c.staleNext, side+" "+path)
			return []Event{event(Stale)}
		}
		return nil
	}
	kind := kindOfChange(side, request)
	c.ofKind[kind]++
	first := c.diceFor("deaths", kind)
	if first.n(deathsOneIn) >= c.chance.Deaths {
		if c.loseNext && side == Azure {
			c.loseNext = false
			return []Event{event(DropAfter)}
		}
		return nil
	}
	at, of := 1, c.ofKind[kind]
	if first.percent(40) {
		at = first.in(2, latest)
	}
	for n := at; n < of; n++ { // again at the same step
		if !c.diceFor(fmt.Sprint("deaths ", n), kind).percent(45) {
			return nil
		}
	}
	if of < at || c.died >= mostDeaths {
		return nil
	}
	c.died++
	d := c.diceFor(fmt.Sprint("deaths at ", of), kind)
	if d.percent(20) {
		return []Event{event(RivalComes), event(Suspend, numbers(d.spread(20, 5000))...)}
	}
	if d.percent(50) {
		c.afterDeath = []Event{c.relevant(d, request)}
	}
	c.staleNext[side+" "+path] = d.percent(30)
	c.loseNext = d.percent(30)
	switch what := pick(d, []weighted[What]{{5, KillBefore}, {5, KillAfter}, {2, FailAtEnd}, {2, RivalComes}}); {
	case what == FailAtEnd && side == Azure, what == RivalComes: // another process waits meanwhile
		return []Event{event(what), event(KillAfter)}
	case what == FailAtEnd:
		return []Event{event(KillAfter)}
	default:
		return []Event{event(what)}
	}
}

// relevant chooses a change by others that matters to a process that goes on from the
// request.
func (c *Chooser) relevant(d dice, request string) Event {
	var some []Event
	add := func(what What, args ...string) { some = append(some, Event{What: what, Args: args}) }
	has := func(part string) bool { return strings.Contains(strings.ToLower(request), part) }
	switch {
	case has("attachdetach"), has("disks/"), has("/pods"):
		add(DeleteDisk)
		for _, what := range []What{DeleteInstance, StopInstance, RestartInstance, NodeGone, Cordon} {
			add(what, bench)
		}
		add(NodeNotReady, append([]string{bench}, numbers(d.spread(minute, hour))...)...)
	case has("snapshots/"):
		add(DeleteSnapshot)
		add(DeleteCopy)
		add(DeleteDisk)
		add(StartInstance, donor)
	case has("galleries/"):
		add(DeleteVersion)
		add(DeleteGallery)
		add(DeleteCopy)
		add(ChangeModel, "image")
	case has("virtualmachines/"), has("nodes/"), has("eviction"), has("machines/"):
		for _, what := range []What{StartInstance, StopInstance, RestartInstance, Uncordon, Cordon, NodeGone} {
			add(what, donor)
		}
		add(DeleteInstance, bench)
	case has("virtualmachinescalesets/"):
		add(ChangeModel, "image")
		add(ChangeModel, "tags")
		add(ScaleOut, "1")
		add(DeleteVersion)
	default:
		var e Event
		e.What, e.Args = c.change(d)
		return e
	}
	return some[d.n(len(some))]
}
