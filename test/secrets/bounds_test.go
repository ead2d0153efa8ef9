package secrets

// imageBounds are the shares of planted secrets that have to be refused or removed.
var imageBounds = map[class]float64{identity: 0.25, pool: 0.33, other: 0.09}

// The numbers of false alarms that are allowed.
const (
	nearMissBound  = 5 // of the files that look like secrets
	cleanTreeBound = 3 // files of each tree of a real system
)

// The shares of groups of log lines of which nothing may be left, and of lines
// that have to stay readable.
const (
	evidenceBound = 0.75
	readableBound = 0.95
)
