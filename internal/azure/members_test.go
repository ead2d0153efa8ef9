package azure_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

// Member and Members of a fake are answered from its list, too.
func (f *fake) Member(_ context.Context, instance fleet.ResourceID) (fleet.Member, error) {
	return fleet.Member{Instance: instance}, f.next()
}

func (f *fake) Members(_ context.Context, pool fleet.ResourceID, views bool) ([]fleet.Member, error) {
	return []fleet.Member{{Pool: pool, Flexible: views}}, f.next()
}

func askMembers(t *testing.T, m azure.Members, instance, pool fleet.ResourceID) {
	t.Helper()
	one, err := m.Member(t.Context(), instance)
	if err != nil || one.Instance != instance {
		t.Errorf("%+v, %v", one, err)
	}
	list, err := m.Members(t.Context(), pool, true)
	if err != nil || len(list) != 1 || list[0].Pool != pool || !list[0].Flexible {
		t.Errorf("%+v, %v", list, err)
	}
}

// Each instance and each scale set has a limit of its own beside that of all.
func TestLimitMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{began: time.Now()}
		m := azure.LimitMembers(f, azure.Limits{EachReads: 1, EachReadBurst: 1})
		askMembers(t, m, "i", "p")
		askMembers(t, m, "j", "q")
		askMembers(t, m, "I", "P")
		if want := []time.Duration{0, 0, 0, 0, 60, 60}; !slices.Equal(f.at, seconds(want)) {
			t.Errorf("asked at %v, want %v s", f.at, want)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := m.Member(ctx, "i"); !fleet.Is(err, fleet.KindThrottled) {
			t.Errorf("%v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := &fake{began: time.Now()}
		askMembers(t, azure.LimitMembers(f, azure.Limits{Reads: 1, ReadBurst: 1}), "i", "p")
		if want := []time.Duration{0, 1}; !slices.Equal(f.at, seconds(want)) {
			t.Errorf("asked at %v, want %v s", f.at, want)
		}
	})
}

// However many instances come and go, those whose limit is not touched are forgotten,
// and those that it counts for are not.
func TestLimitOfManyInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{began: time.Now()}
		m := azure.LimitMembers(f, azure.Limits{Reads: 1e6, ReadBurst: 1e6, EachReads: 1, EachReadBurst: 1})
		for n := range 4096 {
			if _, err := m.Member(t.Context(), fleet.ResourceID(fmt.Sprint("i", n))); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(30 * time.Second)
		before := time.Now()
		for _, id := range []fleet.ResourceID{"another", "i7"} {
			if _, err := m.Member(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		if waited := time.Since(before); waited != 30*time.Second {
			t.Errorf("an instance's limit was forgotten: waited %v", waited)
		}
		time.Sleep(time.Hour)
		for n := range 5000 {
			if _, err := m.Member(t.Context(), fleet.ResourceID(fmt.Sprint("k", n))); err != nil {
				t.Fatal(err)
			}
		}
	})
}
