package azure_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

// A change whose answer was lost, and which is throttled then, may have had its effect: the caller
// is given the change, its target, and when to ask again. A read is repeated.
func TestOutcomeThrottledAfterALostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs := func() []error {
			return []error{fail(fleet.KindTransient, 0), fail(fleet.KindThrottled, 17*time.Second)}
		}
		f := &fake{errs: errs(), began: time.Now()}
		_, err := azure.Retry(f, azure.RetryPolicy{}).Begin(t.Context(), fleet.StartInstance{Instance: "/instance/7"})
		var e *fleet.Error
		if !errors.As(err, &e) || e.Kind != fleet.KindTransient || e.Resource != "/instance/7" || e.Op != (fleet.StartInstance{}).Verb() || azure.RetryAfter(err) != 17*time.Second || len(f.at) != 2 {
			t.Errorf("%+v after %d tries", err, len(f.at))
		}
		f = &fake{errs: errs(), began: time.Now()}
		if _, err := azure.Retry(f, azure.RetryPolicy{}).Pool(t.Context(), "id"); err != nil || len(f.at) != 3 || f.at[2] != 18*time.Second {
			t.Errorf("a read: %v, tried at %v", err, f.at)
		}
	})
}

// What waits for its turn says at the end of its context which request of which resource it was, and
// whether its time was over.
func TestOutcomeTurnThatDoesNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{began: time.Now(), takes: time.Minute}
		c := azure.Limit(f, azure.Limits{Concurrent: 1})
		var first sync.WaitGroup
		first.Go(func() { _, _ = c.Pool(t.Context(), "id") })
		synctest.Wait()
		for cause, kind := range map[error]fleet.Kind{context.DeadlineExceeded: fleet.KindTimedOut, context.Canceled: fleet.KindUnknown} {
			ctx, cancel := context.WithCancel(t.Context())
			if errors.Is(cause, context.DeadlineExceeded) {
				ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			}
			time.AfterFunc(2*time.Second, cancel)
			_, err := c.Begin(ctx, fleet.StartInstance{Instance: "/instance/7"})
			var e *fleet.Error
			if !errors.As(err, &e) || fleet.KindOf(err) != kind || e.Resource != "/instance/7" || !errors.Is(err, cause) {
				t.Errorf("%v: %+v is %q", cause, err, fleet.KindOf(err))
			}
		}
		first.Wait()
		limited := azure.LimitResources(&slow{}, azure.Limits{EachChanges: 1, EachChangeBurst: 1})
		id := scaleSet.Child("virtualMachines", "7")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var err error
		for range 2 {
			_, err = limited.Send(ctx, "set userData", http.MethodPut, id, "2024-07-01", nil)
		}
		var e *fleet.Error
		if !errors.As(err, &e) || e.Resource != string(id) || e.Op != "set userData" || !errors.Is(err, azure.ErrTurn) {
			t.Errorf("a turn past the deadline: %+v", err)
		}
	})
}

// By default one instance is read 18 times at once and changed 6 times, and then every 10 s and 30 s; other
// resources share the limits of all alone.
func TestOutcomeLimitsOfOneInstanceByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{began: time.Now()}
		c := azure.Limit(f, azure.Limits{})
		for range 19 {
			if _, err := c.Instance(t.Context(), scaleSet.Child("virtualMachines", "1")); err != nil {
				t.Fatal(err)
			}
		}
		if f.at[17] != 0 || f.at[18] != 10*time.Second {
			t.Errorf("an instance was read at %v", f.at)
		}
		for id, want := range map[fleet.ResourceID]time.Duration{scaleSet.Child("virtualMachines", "1"): 30 * time.Second, "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d": 0} {
			limited, began := azure.LimitResources(&slow{}, azure.Limits{}), time.Now()
			for range 7 {
				if _, err := limited.Send(t.Context(), "change", http.MethodPatch, id, "2024-07-01", nil); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(began); took != want {
				t.Errorf("the seventh change of %s went after %s, want %s", id, took, want)
			}
		}
	})
}

// The longest Retry-After counts, also where a shorter one is answered later.
func TestOutcomeLongestRetryAfterCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{began: time.Now(), takes: time.Second, errs: []error{fail(fleet.KindThrottled, 30*time.Second), fail(fleet.KindThrottled, 5*time.Second)}}
		c := azure.Limit(f, azure.Limits{})
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { _, _ = c.Instances(t.Context(), scaleSet) })
			time.Sleep(500 * time.Millisecond)
		}
		both.Wait()
		if _, err := c.Instances(t.Context(), scaleSet); err != nil || f.at[2] != 31*time.Second {
			t.Errorf("%v; asked at %v", err, f.at)
		}
	})
}

// refusing refuses all writes.
type refusing struct{ azure.Resources }

func (refusing) Send(context.Context, string, string, fleet.ResourceID, string, any, ...string) (azure.Operation, error) {
	return nil, fail(fleet.KindDenied, 0)
}

// A write that Azure refuses has no operation to wait for.
func TestOutcomeRefusedWriteHasNoOperation(t *testing.T) {
	op, err := azure.LimitResources(refusing{}, azure.Limits{}).Send(t.Context(), "change", http.MethodPatch, scaleSet, "2024-07-01", nil)
	if op != nil || !fleet.Is(err, fleet.KindDenied) || !strings.Contains(err.Error(), "no") {
		t.Errorf("%v, %v", op, err)
	}
}
