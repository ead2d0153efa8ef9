package azure_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

// A slow Resources has operations that take as long as it says.
type slow struct {
	azure.Resources
	takes time.Duration

	mu           sync.Mutex
	sent         int
	waiting, now int // most operations that were waited for at once, and those now
}

func (s *slow) Send(context.Context, string, string, fleet.ResourceID, string, any, ...string) (azure.Operation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent++
	return s, nil
}

func (s *slow) Answer() json.RawMessage { return nil }

func (s *slow) Wait(context.Context) (json.RawMessage, error) {
	s.mu.Lock()
	s.now++
	s.waiting = max(s.waiting, s.now)
	s.mu.Unlock()
	time.Sleep(s.takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now--
	return nil, nil
}

const scaleSet = fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/p")

// A thousand instances get new userData within the limits, in the time that is shown
// before, and no more operations are polled at once than ARM's reads allow.
func TestLimitResourcesThousandPuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{takes: 10 * time.Second}
		limited := azure.LimitResources(s, azure.Limits{})
		began := time.Now()
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() {
				op, err := limited.Send(t.Context(), "set userData", http.MethodPut, scaleSet.Child("virtualMachines", fmt.Sprint(i)), "2024-07-01", nil)
				if err == nil {
					_, err = op.Wait(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		took, expected := time.Since(began), azure.Limits{}.Expected(1000)
		t.Logf("config/1000-puts\t%.6g\ts of virtual time\t-\t-", took.Seconds()) // for bench
		t.Logf("config/1000-puts-expected\t%.6g\ts of virtual time\t-\t-", expected.Seconds())
		if s.sent != 1000 || took < expected || took > expected+2*s.takes {
			t.Errorf("%d PUTs in %s, want 1000 in %s and at most two operations more", s.sent, took, expected)
		}
		if s.waiting > 40 {
			t.Errorf("%d operations were waited for at once", s.waiting)
		}
	})
}

// One instance has a limit of its own.
func TestLimitResourcesOfOneInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{}
		limited := azure.LimitResources(s, azure.Limits{EachChanges: 1, EachChangeBurst: 2})
		began := time.Now()
		for range 3 {
			if _, err := limited.Send(t.Context(), "set userData", http.MethodPut, scaleSet.Child("virtualMachines", "7"), "2024-07-01", nil); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("the third change of an instance went after %s, want 1 min", took)
		}
	})
}
