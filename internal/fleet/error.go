package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Kind says what may be done about an error; it decides retry, wait, stop and
// exit code. Messages are for people and decide nothing.
type Kind string

const (
	// KindUnknown is an error nobody classified. Treated as permanent.
	KindUnknown Kind = ""
	// KindNotFound means that the resource does not exist, as a fresh GET says.
	KindNotFound Kind = "NotFound"
	// KindConflict means that something else is under way on the resource, or
	// it changed since it was read. Observe again and retry.
	KindConflict Kind = "Conflict"
	// KindStale means that the resource changed since it was read by what the
	// change was computed from, and that the change had no effect: see
	// Pool.Etag. Read again and compute anew; the same request cannot succeed.
	KindStale Kind = "Stale"
	// KindThrottled means that the service asks to wait; see Error.RetryAfter.
	KindThrottled Kind = "Throttled"
	// KindTransient means that a later try may succeed: 5xx, dropped connections.
	// The effect may have happened: observe before repeating.
	KindTransient Kind = "Transient"
	// KindDenied means that the credentials lack a permission.
	KindDenied Kind = "Denied"
	// KindUnauthenticated means that the credentials are wrong or expired.
	KindUnauthenticated Kind = "Unauthenticated"
	// KindInvalid means that the request can never succeed as it is.
	KindInvalid Kind = "Invalid"
	// KindUnsupported means that the region, SKU or cluster cannot do this:
	// ZRS in a region without zones.
	KindUnsupported Kind = "Unsupported"
	// KindTimedOut means that a deadline of ours passed.
	KindTimedOut Kind = "TimedOut"
	// KindBlocked means that the world refuses for now for a named reason,
	// such as a PodDisruptionBudget.
	KindBlocked Kind = "Blocked"
	// KindHeld means that somebody else holds the pool's capture.
	KindHeld Kind = "Held"
)

// Error is the only error type that crosses rooms.
type Error struct {
	Op         string        // what was tried, "create snapshot"
	Resource   string        // on what: an ARM id, "node aks-1", "pod ns/name"
	Kind       Kind          //
	Code       string        // the service's own code, "OperationNotAllowed"; may be empty
	RetryAfter time.Duration // what the service asked for; 0 if it did not say
	Remedy     string        // what a person can do about it; may be empty
	Err        error         // cause; may be nil
}

// Error says what was tried, on what, why it failed, and what to do.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Resource != "" {
		fmt.Fprintf(&b, " (%s)", e.Resource)
	}
	switch {
	case e.Err != nil:
		fmt.Fprintf(&b, ": %v", e.Err)
	case e.Kind != KindUnknown:
		fmt.Fprintf(&b, ": %s", e.Kind)
	}
	if e.Remedy != "" {
		fmt.Fprintf(&b, "; %s", e.Remedy)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of the outermost Error in err's chain that has one.
func KindOf(err error) Kind {
	for err != nil {
		var e *Error
		if !errors.As(err, &e) {
			return KindUnknown
		}
		if e.Kind != KindUnknown {
			return e.Kind
		}
		err = e.Err
	}
	return KindUnknown
}

// Is reports whether err is of one of the kinds.
func Is(err error, kinds ...Kind) bool { return err != nil && slices.Contains(kinds, KindOf(err)) }

// IgnoreNotFound returns nil for an error of KindNotFound.
func IgnoreNotFound(err error) error {
	if Is(err, KindNotFound) {
		return nil
	}
	return err
}

// Invalid returns an error of KindInvalid.
func Invalid(op, on, remedy, format string, args ...any) error {
	return &Error{Op: op, Resource: on, Kind: KindInvalid, Remedy: remedy, Err: fmt.Errorf(format, args...)}
}
