package secrets

// imageBounds are the shares of planted secrets that have to be refused or removed.
var imageBounds = map[class]float64{identity: 1, pool: 1, other: 0.99}

// The numbers of false alarms that are allowed.
const (
	nearMissBound  = 1 // of the files that look like secrets
	cleanTreeBound = 1 // files of each tree of a real system
)

// The shares of groups of log lines of which nothing may be left, and of lines
// that have to stay readable.
const (
	evidenceBound = 0.99
	readableBound = 0.98
)

// The same of the held-out corpus. The one that is missed is a password in a note.
var heldOutBounds = map[class]float64{identity: 1, pool: 1, other: 0.98}

const (
	heldOutEvidenceBound = 1.0
	heldOutMissBound     = 0
)
