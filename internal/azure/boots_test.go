package azure_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

// Pools, Boots and SerialLog of a fake are answered from its list, too.
func (f *fake) Pools(context.Context, fleet.ResourceID) ([]fleet.Pool, error) {
	return []fleet.Pool{{Name: "p"}}, f.next()
}

func (f *fake) Boots(_ context.Context, pool fleet.Pool) ([]fleet.Boot, error) {
	return []fleet.Boot{{Pool: pool.ID}}, f.next()
}

func (f *fake) SerialLog(_ context.Context, instance fleet.ResourceID) ([]byte, error) {
	return []byte(instance), f.next()
}

// lookAll asks for one of each, and fails where the answer is not the fake's.
func lookAll(t *testing.T, b azure.Boots) {
	t.Helper()
	pools, err := b.Pools(t.Context(), "g")
	if err != nil || len(pools) != 1 || pools[0].Name != "p" {
		t.Errorf("%v, %v", pools, err)
	}
	list, err := b.Boots(t.Context(), fleet.Pool{ID: "x"})
	if err != nil || len(list) != 1 || list[0].Pool != "x" {
		t.Errorf("%v, %v", list, err)
	}
	log, err := b.SerialLog(t.Context(), "i")
	if err != nil || string(log) != "i" {
		t.Errorf("%q, %v", log, err)
	}
}

func TestRetryBoots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		again := &fleet.Error{Op: "o", Kind: fleet.KindTransient}
		f := &fake{began: time.Now(), errs: []error{again, nil, &fleet.Error{Op: "o", Kind: fleet.KindThrottled, RetryAfter: 7 * time.Second}, nil, again, again, nil}}
		b := azure.RetryBoots(f, azure.RetryPolicy{})
		lookAll(t, b)
		if want := []time.Duration{0, 1, 1, 8, 8, 9, 11}; !slices.Equal(f.at, seconds(want)) {
			t.Errorf("asked at %v, want %v s", f.at, want)
		}
		f.errs = []error{&fleet.Error{Op: "o", Kind: fleet.KindUnsupported}}
		if _, err := b.SerialLog(t.Context(), "i"); !fleet.Is(err, fleet.KindUnsupported) {
			t.Errorf("%v", err)
		}
	})
}

func TestLimitBoots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{began: time.Now()}
		lookAll(t, azure.LimitBoots(f, azure.Limits{Reads: 1, ReadBurst: 1}))
		if want := []time.Duration{0, 1, 2}; !slices.Equal(f.at, seconds(want)) {
			t.Errorf("asked at %v, want %v s", f.at, want)
		}
	})
}

func seconds(n []time.Duration) []time.Duration {
	out := make([]time.Duration, len(n))
	for i, v := range n {
		out[i] = v * time.Second
	}
	return out
}
