package verdict

import (
	"math"

	"github.com/ortet/ortet/internal/wire"
)

// A Reason is one entry of the catalogue: why a node did not come up.
type Reason struct {
	Name      string     // CamelCase; keeps its meaning for ever
	Owner     wire.Owner // who can mend it; "" where the reason names no cause
	Retryable bool       // the same boot may succeed if it is tried again
	Summary   string     // what happened, in short
	Remedy    string     // what to do, one line

	rank rank
}

// rank is how near to the cause a reason's evidence is: of several reasons that have
// evidence the one with the highest is the verdict's.
type rank int

const (
	rankNone   rank = 0
	rankSign   rank = 10 // something did not happen, for an unknown cause
	rankStage  rank = 20 // a part of the boot failed, for an unknown cause
	rankStep   rank = 30 // a step failed that others may or may not depend on
	rankPhase  rank = 40 // a program's own name of where it failed
	rankEffect rank = 50 // a component that others depend on does not work
	rankCause  rank = 60 // the cause, by the program that met it
	rankHost   rank = 70 // the machine itself is broken: all else follows from it
	rankAnswer rank = 80 // the cluster itself said no: what came before was got over
)

// Reasons is the catalogue, in the order of docs/reference/reasons.md.
func Reasons() []Reason {
	return append([]Reason(nil), catalogue[:]...)
}

// Evidence is a level of evidence and the reasons whose own evidence is of it.
type Evidence struct {
	Meaning string
	Reasons []Reason
}

// ByEvidence returns the catalogue by how near to the cause a reason's evidence is, the nearest
// first. docs/img/verdict.svg shows it.
func ByEvidence() []Evidence {
	levels := []struct {
		rank
		meaning string
	}{
		{rankAnswer, "the cluster itself says no"},
		{rankHost, "the machine itself is broken"},
		{rankCause, "a program names the cause"},
		{rankEffect, "a component does not work"},
		{rankPhase, "a program says where it failed"},
		{rankStep, "a step failed"},
		{rankStage, "a part of the boot failed"},
		{rankSign, "something did not happen"},
		{rankNone, "no evidence"},
	}
	var all []Evidence
	above := rank(math.MaxInt)
	for _, l := range levels {
		e := Evidence{Meaning: l.meaning}
		for _, r := range catalogue {
			if r.rank >= l.rank && r.rank < above {
				e.Reasons = append(e.Reasons, r)
			}
		}
		all, above = append(all, e), l.rank
	}
	return all
}

// Lookup finds a reason by its name.
func Lookup(name string) (Reason, bool) {
	for i := range catalogue {
		if catalogue[i].Name == name {
			return catalogue[i], true
		}
	}
	return Reason{}, false
}

// Confidence is how sure a reason is. It follows from the reason alone, so that it is the
// same wherever a verdict is shown, and nothing of it crosses the wire.
type Confidence string

// The confidences.
const (
	Observed  Confidence = "observed"  // a program logged why it stopped
	Concluded Confidence = "concluded" // by what does not work, or by where it failed
	Unsure    Confidence = "unknown"   // something did not happen, for an unknown cause: no owner
)

// Confidence is a column of the catalogue: unknown without an owner, else by the
// evidence.
func (r Reason) Confidence() Confidence {
	switch {
	case r.Owner == "":
		return Unsure
	case r.rank >= rankCause:
		return Observed
	}
	return Concluded
}

// ConfidenceOf is that of a verdict's reason; "" where it has none. A reason that this
// version does not know is unknown.
func ConfidenceOf(reason string) Confidence {
	if reason == "" {
		return ""
	}
	r, _ := Lookup(reason)
	return r.Confidence()
}
