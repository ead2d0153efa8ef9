package scenario

import "strings"

// How long a phase is, in requests of any kind, and how much likelier chance is in it: about
// a sixth of the changes of a capture are in one.
const (
	phaseLength = 80
	phaseFactor = 6
	mostPhases  = 40
	// provokeInPhaseOneIn is provokeOneIn where changes of one phase count alone.
	provokeInPhaseOneIn = 4
)

// inPhase reports whether chance comes to a request: where a scenario has a phase, from the
// change on by which so many kinds of changes have been asked for, and for some requests
// after it. So several happenings meet in one stretch of a capture, and its end sees as many as
// its beginning. The caller has the lock.
func (c *Chooser) inPhase(side, request string, get bool) bool {
	if c.chance.Phase == 0 {
		return true
	}
	if !get && !strings.Contains(request, "/leases/") && !isReview(request) {
		c.kinds[kindOfChange(side, request)] = true
	}
	if len(c.kinds) < c.chance.Phase {
		return false
	}
	c.phased++
	return c.phased <= phaseLength
}

// generatePhase has what happens by chance come in one phase, in three seeds of ten.
func generatePhase(d dice, s *Scenario) {
	c := &s.Chance
	if !d.percent(30) || c.Deaths > 0 || c.Rate+c.Death+c.World+c.Undoing == 0 {
		return
	}
	c.Phase = d.in(1, mostPhases)
	for _, rate := range []*int{&c.Rate, &c.Death, &c.World} {
		*rate = min(phaseFactor**rate, million*3/10)
	}
}
