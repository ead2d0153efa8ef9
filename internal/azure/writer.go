package azure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// RestFor limits how long a change waits until a scale set is not updating: Azure gives
// up on an instance that does not start within 20 minutes.
const RestFor = 20 * time.Minute

// RestInterval is from one look at a scale set that is updating to the next.
const RestInterval = 20 * time.Second

const busyInterval = 5 * time.Second // from one try to the next of what another operation refuses

// A Rest says whether a scale set may be written: a newer write preempts an older one
// (OperationPreempted), so a scale-up that an autoscaler began would end without its
// nodes. It is for one scale set and one goroutine; its zero value is ready.
type Rest struct{ since time.Time }

// Updating says which operation the scale set has in progress; "" for none. From RestFor
// on overdue says it instead: the change is made all the same.
func (r *Rest) Updating(ctx context.Context, cloud Instances, pool fleet.Pool, now time.Time) (why, overdue string, err error) {
	instances, err := cloud.Instances(ctx, pool.ID)
	if err != nil {
		return "", "", err
	}
	for _, i := range instances {
		if strings.EqualFold(i.ProvisioningState, "Creating") || strings.EqualFold(i.ProvisioningState, "Deleting") {
			why = fmt.Sprintf("instance %s is %s", i.InstanceID, i.ProvisioningState)
		}
	}
	if Busy(pool.ProvisioningState) {
		why = "the scale set is " + pool.ProvisioningState
	}
	if why == "" {
		r.since = time.Time{}
	} else if r.since = cmp.Or(r.since, now); now.Sub(r.since) >= RestFor {
		return "", why, nil
	}
	return why, "", nil
}

// Instances is what of a Cloud a Rest reads.
type Instances interface {
	Instances(ctx context.Context, pool fleet.ResourceID) ([]fleet.Instance, error)
}

// Busy reports a provisioningState of an operation that runs: any but ARM's final ones.
func Busy(state string) bool {
	return !slices.ContainsFunc([]string{"", "Succeeded", "Failed", "Canceled"}, func(s string) bool { return strings.EqualFold(s, state) })
}

// A Writer is how programs without a journal change scale sets and their instances: it
// waits for other operations, sends the ETag, waits for the result, and reads back. It is
// safe for concurrent use.
type Writer struct {
	Cloud Cloud
	Now   func() time.Time
	// Within limits how long a change is tried again that another operation is in the way
	// of, or that Azure fails for a passing reason.
	Within time.Duration
	Report func(format string, args ...any) // what a person who watches sees; may be nil
	// Rest is one for several changes of a scale set, one after the other: what is overdue
	// for one is for the next. nil is a new Rest for each change.
	Rest *Rest
}

// ScaleSet makes the change that change computes from the scale set as it was read, while
// that is not updating and is still so; nil is no change to make. When the operation has
// ended, in reads it back: false is fleet.KindConflict, since somebody else changed it
// meanwhile; a nil in reads nothing. It returns the scale set as read last.
func (w Writer) ScaleSet(ctx context.Context, id fleet.ResourceID, change func(fleet.Pool) fleet.Change, in func(context.Context, fleet.Pool) (bool, error)) (fleet.Pool, error) {
	rest := cmp.Or(w.Rest, &Rest{})
	try := w.tries(id, true)
	for {
		pool, err := w.Cloud.Pool(ctx, id)
		if err != nil {
			return pool, err
		}
		c := change(pool)
		if c == nil {
			return pool, nil
		}
		waits, err := w.updating(ctx, pool, rest)
		again := false
		switch {
		case err == nil && waits:
			err, again = Sleep(ctx, RestInterval), true
		case err == nil:
			again, err = try(ctx, c)
		}
		if err != nil {
			return pool, err
		}
		if again {
			continue
		}
		if in == nil {
			return pool, nil
		}
		if pool, err = w.Cloud.Pool(ctx, id); err != nil {
			return pool, err
		}
		ok, err := in(ctx, pool)
		if err == nil && !ok {
			err = &fleet.Error{Op: c.Verb(), Resource: string(id), Kind: fleet.KindConflict,
				Err: errors.New("others changed the scale set after the operation had succeeded"), Remedy: "run the same command again"}
		}
		return pool, err
	}
}

// updating reports whether a change has to wait.
func (w Writer) updating(ctx context.Context, pool fleet.Pool, rest *Rest) (bool, error) {
	first := rest.since.IsZero()
	why, overdue, err := rest.Updating(ctx, w.Cloud, pool, w.Now())
	switch {
	case overdue != "":
		w.report("scale set %s was updating for %s (%s): it is changed nevertheless", pool.Name, RestFor, overdue)
	case why != "" && first:
		w.report("waiting until scale set %s is not updating: %s", pool.Name, why)
	}
	return why != "", err
}

// Do makes a change of one instance, or one that has no ETag, and waits for its result.
// For Within it is tried again while another operation runs on the target. A change whose
// Etag is not the target's any more is fleet.KindStale.
func (w Writer) Do(ctx context.Context, c fleet.Change) error {
	try := w.tries(c.Target(), false)
	for {
		again, err := try(ctx, c)
		if err != nil || !again {
			return err
		}
	}
}

// tries returns a function that makes a change once. again says that a later try may
// succeed, and was paused for; stale, that one of a newer ETag may.
func (w Writer) tries(id fleet.ResourceID, stale bool) func(context.Context, fleet.Change) (again bool, err error) {
	var deadline time.Time
	reported := false
	return func(ctx context.Context, c fleet.Change) (bool, error) {
		if deadline.IsZero() {
			deadline = w.Now().Add(w.Within)
		}
		token, err := w.Cloud.Begin(ctx, c)
		if err == nil {
			err = w.await(ctx, token)
		}
		changed := stale && fleet.Is(err, fleet.KindStale)
		if err == nil || ctx.Err() != nil || !changed && !passes(err) || w.Now().After(deadline) {
			return false, err
		}
		if !changed && !reported {
			reported = true
			w.report("%s: retry for up to %s: %v", id.Name(), w.Within, err)
		}
		return true, Sleep(ctx, max(busyInterval, RetryAfter(err)))
	}
}

// passes reports an error that a later try may not meet. Azure answers 409 for much that no
// waiting mends, such as a size that a region lacks.
func passes(err error) bool {
	switch fleet.KindOf(err) {
	case fleet.KindThrottled, fleet.KindTransient:
		return true
	case fleet.KindConflict:
		return slices.ContainsFunc([]string{"in progress", "concurrent request", "OperationPreempted", "AnotherOperation", "Canceled", "retry the request"},
			func(s string) bool { return strings.Contains(err.Error(), s) })
	}
	return false
}

// await follows an operation to its end, or until nothing is heard of it for Within.
func (w Writer) await(ctx context.Context, token fleet.Token) error {
	for heard := w.Now(); token != ""; {
		progress, err := w.Cloud.Poll(ctx, token)
		switch lost := fleet.Is(err, fleet.KindTransient) || fleet.Is(err, fleet.KindThrottled); {
		case progress.Done, err != nil && (!lost || w.Now().Sub(heard) >= w.Within):
			return err
		case err == nil:
			heard = w.Now()
		}
		if err := Sleep(ctx, max(progress.Wait, time.Second, RetryAfter(err))); err != nil {
			return err
		}
	}
	return nil
}

func (w Writer) report(format string, args ...any) {
	if w.Report != nil {
		w.Report(format, args...)
	}
}
