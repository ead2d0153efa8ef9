package prototype

import (
	"time"
)

// staleAfter is how old an interrupted capture may be whose donor has not been
// copied yet: its version is named by a day, and the node may be another by now.
const staleAfter = 24 * time.Hour

// GoesOn reports whether an interrupted capture is finished rather than put
// back: not where it was being put back already, nor where another donor is
// asked for, nor where it is old and had not got anywhere.
func GoesOn(undoing, sameDonor, underway bool, age time.Duration) bool {
	return !undoing && sameDonor && (underway || age < staleAfter)
}
