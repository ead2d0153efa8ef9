package verdict

import "github.com/ortet/ortet/internal/wire"

// A Reason is one entry of the catalogue: why a node did not come up.
type Reason struct {
	Name      string     // CamelCase; keeps its meaning for ever
	Owner     wire.Owner // who can mend it; "" where the reason names no cause
	Retryable bool       // the same boot may succeed if it is tried again
	Summary   string     // what happened, in a few words
	Remedy    string     // what to do, one line

	rank rank
}

// rank says how near to the cause a reason's evidence is: of several reasons
// that have evidence the one with the highest is the verdict's.
type rank int

const (
	rankNone   rank = 0
	rankSign   rank = 10 // something did not happen, and nothing says why
	rankStage  rank = 20 // a part of the boot failed, and nothing says why
	rankStep   rank = 30 // a step failed that others may or may not depend on
	rankPhase  rank = 40 // a program's own word for where it failed
	rankEffect rank = 50 // a component that others depend on does not work
	rankCause  rank = 60 // the cause, in the words of the program that met it
	rankHost   rank = 70 // the machine itself is broken: all else follows from it
	rankAnswer rank = 80 // the cluster itself said no: what came before was got over
)

// Reasons is the catalogue, in the order of docs/reference/reasons.md.
func Reasons() []Reason {
	return append([]Reason(nil), catalogue[:]...)
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
