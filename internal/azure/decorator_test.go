package azure_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

// A fake answers Pool, Begin and Poll from a list; the rest it does not have.
type fake struct {
	azure.Cloud
	mu     sync.Mutex
	errs   []error
	at     []time.Duration // since the start of the test
	began  time.Time
	takes  time.Duration
	now    int
	most   int
	polled fleet.Progress
}

func (f *fake) next() error {
	f.mu.Lock()
	f.at = append(f.at, time.Since(f.began))
	f.now++
	f.most = max(f.most, f.now)
	var err error
	if len(f.errs) > 0 {
		err, f.errs = f.errs[0], f.errs[1:]
	}
	f.mu.Unlock()
	if f.takes > 0 {
		time.Sleep(f.takes)
	}
	f.mu.Lock()
	f.now--
	f.mu.Unlock()
	return err
}

func (f *fake) Instances(context.Context, fleet.ResourceID) ([]fleet.Instance, error) {
	return nil, f.next()
}

func (f *fake) Instance(context.Context, fleet.ResourceID) (fleet.Instance, error) {
	return fleet.Instance{}, f.next()
}

func (f *fake) Machines(context.Context, fleet.ResourceID) (map[fleet.ResourceID]fleet.ResourceID, error) {
	return nil, f.next()
}

func (f *fake) Pool(context.Context, fleet.ResourceID) (fleet.Pool, error) {
	err := f.next()
	return fleet.Pool{Name: "p"}, err
}

func (f *fake) Begin(context.Context, fleet.Change) (fleet.Token, error) { return "tok", f.next() }

func (f *fake) Poll(context.Context, fleet.Token) (fleet.Progress, error) {
	err := f.next()
	return f.polled, err
}

func fail(kind fleet.Kind, after time.Duration) error {
	return &fleet.Error{Op: "x", Resource: "y", Kind: kind, RetryAfter: after, Err: errors.New("no")}
}

func TestRetry(t *testing.T) {
	s := time.Second
	transient, throttled := fail(fleet.KindTransient, 0), fail(fleet.KindThrottled, 17*s)
	wrapped := &fleet.Error{Op: "outer", Err: fmt.Errorf("in the middle: %w", throttled)}
	for _, tc := range []struct {
		name   string
		errs   []error
		policy azure.RetryPolicy
		at     []time.Duration
		kind   fleet.Kind
		begin  fleet.Kind // of a change; "" is kind
		fails  bool
	}{
		{name: "at once", at: []time.Duration{0}},
		{name: "backs off", errs: []error{transient, transient, transient}, at: []time.Duration{0, s, 3 * s, 7 * s}},
		{name: "gives up", errs: slices.Repeat([]error{transient}, 9), at: []time.Duration{0, s, 3 * s, 7 * s, 15 * s}, kind: fleet.KindTransient, fails: true},
		{name: "waits as it is told", errs: []error{throttled, transient}, at: []time.Duration{0, 17 * s, 19 * s}},
		{name: "finds it deep down", errs: []error{wrapped}, at: []time.Duration{0, 17 * s}},
		{name: "not that long", errs: []error{fail(fleet.KindThrottled, time.Hour)}, at: []time.Duration{0}, kind: fleet.KindThrottled, fails: true},
		{name: "jitter", errs: []error{transient}, policy: azure.RetryPolicy{Jitter: func() float64 { return 0.5 }}, at: []time.Duration{0, 1250 * time.Millisecond}},
		{name: "longest", errs: []error{transient, transient, transient}, policy: azure.RetryPolicy{Longest: 2 * s}, at: []time.Duration{0, s, 3 * s, 5 * s}},
		{name: "conflict", errs: []error{fail(fleet.KindConflict, 0)}, at: []time.Duration{0}, kind: fleet.KindConflict, fails: true},
		{name: "stale", errs: []error{fail(fleet.KindStale, 0)}, at: []time.Duration{0}, kind: fleet.KindStale, fails: true},
		{name: "stale by itself perhaps", errs: []error{transient, fail(fleet.KindStale, 0)}, at: []time.Duration{0, s}, kind: fleet.KindTransient, fails: true},
		{name: "in its own way perhaps", errs: []error{transient, fail(fleet.KindConflict, 0)}, at: []time.Duration{0, s}, kind: fleet.KindTransient, fails: true},
		{name: "stale by others", errs: []error{throttled, fail(fleet.KindStale, 0)}, at: []time.Duration{0, 17 * s}, kind: fleet.KindStale, fails: true},
		{name: "denied", errs: []error{fail(fleet.KindDenied, 0)}, at: []time.Duration{0}, kind: fleet.KindDenied, fails: true},
		{name: "denied after a lost answer", errs: []error{transient, fail(fleet.KindDenied, 0)}, at: []time.Duration{0, s}, kind: fleet.KindDenied, begin: fleet.KindTransient, fails: true},
		{name: "other policy", errs: slices.Repeat([]error{transient}, 9), policy: azure.RetryPolicy{Tries: 3, First: 3 * s}, at: []time.Duration{0, 3 * s, 9 * s}, kind: fleet.KindTransient, fails: true},
		{name: "not ours", errs: []error{errors.New("?")}, at: []time.Duration{0}, fails: true},
	} {
		for _, what := range []string{"read", "begin", "poll"} {
			t.Run(tc.name+"/"+what, func(t *testing.T) {
				tc := tc
				synctest.Test(t, func(t *testing.T) {
					if what == "begin" {
						tc.kind = cmp.Or(tc.begin, tc.kind)
					}
					if what == "begin" && len(tc.errs) > 0 && azure.RetryAfter(tc.errs[0]) > 0 { // its caller repeats it
						tc.at, tc.kind, tc.fails = tc.at[:1], fleet.KindOf(tc.errs[0]), true
					}
					f := &fake{errs: slices.Clone(tc.errs), began: time.Now()}
					c := azure.Retry(f, tc.policy)
					var err error
					switch what {
					case "read":
						_, err = c.Pool(t.Context(), "id")
					case "begin":
						_, err = c.Begin(t.Context(), fleet.StartInstance{Instance: "id"})
					case "poll":
						_, err = c.Poll(t.Context(), "tok")
					}
					if (err != nil) != tc.fails || fleet.KindOf(err) != tc.kind {
						t.Errorf("%v", err)
					}
					if !slices.Equal(f.at, tc.at) {
						t.Errorf("tried at %v, want %v", f.at, tc.at)
					}
				})
			})
		}
	}
}

// The end of an operation is not tried again, whatever its kind.
func TestRetryKnowsTheEnd(t *testing.T) {
	f := &fake{errs: []error{fail(fleet.KindTransient, 0)}, polled: fleet.Progress{Done: true, Percent: -1}}
	p, err := azure.Retry(f, azure.RetryPolicy{}).Poll(t.Context(), "tok")
	if !p.Done || !fleet.Is(err, fleet.KindTransient) || len(f.at) != 1 {
		t.Errorf("%+v, %v, %d tries", p, err, len(f.at))
	}
}

func TestMachinesAreDecorated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{errs: []error{fail(fleet.KindTransient, 0)}, began: time.Now()}
		var b bytes.Buffer
		c := azure.Audit(azure.Retry(azure.Limit(f, azure.Limits{}), azure.RetryPolicy{}), slog.New(slog.NewTextHandler(&b, nil)))
		if _, err := c.Machines(t.Context(), "/subscriptions/s/resourceGroups/g"); err != nil || len(f.at) != 2 || b.Len() > 0 {
			t.Errorf("%v after %d tries, logged %q", err, len(f.at), b.String())
		}
	})
}

func TestRetryHeedsTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		f := &fake{errs: slices.Repeat([]error{fail(fleet.KindThrottled, 60*time.Second)}, 9), began: began}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if _, err := azure.Retry(f, azure.RetryPolicy{}).Pool(ctx, "id"); !fleet.Is(err, fleet.KindThrottled) {
			t.Errorf("%v", err)
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("waited %v for what could not come", d)
		}
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second, stop)
		if _, err := azure.Retry(f, azure.RetryPolicy{}).Pool(ctx, "id"); err == nil {
			t.Error("no error")
		}
		if d := time.Since(began); d != 5*time.Second {
			t.Errorf("came back after %v", d)
		}
	})
}

func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{began: time.Now(), takes: 10 * time.Second}
		c := azure.Limit(f, azure.Limits{Concurrent: 3, Reads: 2, ReadBurst: 4, Changes: 0.5, ChangeBurst: 1})
		var wg sync.WaitGroup
		for range 12 {
			wg.Go(func() {
				if _, err := c.Pool(t.Context(), "id"); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if f.most != 3 {
			t.Errorf("%d at once, want 3", f.most)
		}
		if d := time.Since(f.began); d != 40*time.Second {
			t.Errorf("took %v", d)
		}

		f = &fake{began: time.Now()}
		c = azure.Limit(f, azure.Limits{Reads: 2, ReadBurst: 4, Changes: 0.5, ChangeBurst: 1})
		for range 8 {
			if _, err := c.Pool(t.Context(), "id"); err != nil {
				t.Fatal(err)
			}
		}
		h := 500 * time.Millisecond
		if want := []time.Duration{0, 0, 0, 0, h, 2 * h, 3 * h, 4 * h}; !slices.Equal(f.at, want) {
			t.Errorf("reads at %v, want %v", f.at, want)
		}
		f.at, f.began = nil, time.Now()
		for range 3 {
			if _, err := c.Begin(t.Context(), fleet.StartInstance{Instance: "i"}); err != nil {
				t.Fatal(err)
			}
		}
		if want := []time.Duration{0, 2 * time.Second, 4 * time.Second}; !slices.Equal(f.at, want) {
			t.Errorf("changes at %v, want %v", f.at, want)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Begin(ctx, fleet.StartInstance{Instance: "i"})
		if !fleet.Is(err, fleet.KindThrottled) || len(f.at) != 3 {
			t.Errorf("%v, %d requests", err, len(f.at))
		}
		time.Sleep(2 * time.Second)
		if _, err := c.Begin(t.Context(), fleet.StartInstance{Instance: "i"}); err != nil {
			t.Error(err)
		}
		if d := f.at[3]; d != 6*time.Second {
			t.Errorf("a turn that nobody took was not given back: next at %v", d)
		}
	})
}

// A read that Azure throttled has the other reads wait for its Retry-After, also where
// another step asks in another way. What is changed does not wait, nor what is read of
// another instance.
func TestLimitWaitsForOthersRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list, one := fleet.ResourceID("/subscriptions/s"), scaleSet.Child("virtualMachines", "1")
		f := &fake{began: time.Now(), errs: []error{fail(fleet.KindThrottled, 30*time.Second), nil, fail(fleet.KindThrottled, 7*time.Second)}}
		c := azure.Limit(f, azure.Limits{})
		ask := func(ctx context.Context, id fleet.ResourceID) error {
			if id != list {
				_, err := c.Instance(ctx, id)
				return err
			}
			_, err := c.Instances(ctx, scaleSet)
			return err
		}
		for _, tc := range []struct {
			id      fleet.ResourceID
			at      time.Duration
			refused bool
		}{{list, 0, true}, {one, 0, false}, {one, 0, true}, {scaleSet.Child("virtualMachines", "2"), 0, false}, {one, 7 * time.Second, false}, {list, 30 * time.Second, false}} {
			err := ask(t.Context(), tc.id)
			if got := f.at[len(f.at)-1]; got != tc.at || tc.refused != fleet.Is(err, fleet.KindThrottled) || !tc.refused && err != nil {
				t.Errorf("%s was asked at %v: %v, want %v", tc.id, got, err, tc.at)
			}
		}

		f.errs = []error{fail(fleet.KindThrottled, 30*time.Second)}
		if err := ask(t.Context(), list); !fleet.Is(err, fleet.KindThrottled) {
			t.Fatal(err)
		}
		asked := len(f.at)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := ask(ctx, list); !errors.Is(err, azure.ErrTurn) || azure.RetryAfter(err) != 30*time.Second || len(f.at) != asked {
			t.Errorf("a read whose turn is past its deadline: %v, %d requests", err, len(f.at)-asked)
		}
		if _, err := c.Begin(t.Context(), fleet.DeleteDisk{ID: "/disk"}); err != nil || f.at[asked] != f.at[asked-1] {
			t.Errorf("a change waited: %v, %v", err, f.at)
		}
	})
}

func TestAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		denied := &fleet.Error{Op: "delete disk", Kind: fleet.KindDenied, Code: "AuthorizationFailed"}
		f := &fake{takes: 3 * time.Second, errs: []error{nil, nil, fmt.Errorf("around: %w", denied), context.Canceled}}
		c := azure.Audit(f, slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})))
		secret := fleet.NewSecret("hunter2")
		if _, err := c.Pool(t.Context(), "id"); err != nil {
			t.Error(err)
		}
		if _, err := c.Begin(t.Context(), fleet.PatchModel{Pool: "/pool", CustomData: &secret}); err != nil {
			t.Error(err)
		}
		if _, err := c.Begin(t.Context(), fleet.DeleteDisk{ID: "/disk"}); err == nil {
			t.Error("the error was swallowed")
		}
		interrupted, stop := context.WithCancel(t.Context())
		stop()
		if _, err := c.Begin(interrupted, fleet.DeleteDisk{ID: "/disk"}); err == nil {
			t.Error("the error was swallowed")
		}
		want := `level=INFO msg="cloud change" verb="patch model" target=/pool outcome=begun took=3s
level=WARN msg="cloud change" verb="delete disk" target=/disk outcome=refused took=3s kind=Denied code=AuthorizationFailed
level=INFO msg="cloud change" verb="delete disk" target=/disk outcome=interrupted took=3s
`
		if b.String() != want {
			t.Errorf("logged\n%swant\n%s", b.String(), want)
		}
	})
}

func TestActions(t *testing.T) {
	seen := map[string]bool{}
	for _, ch := range slices.Concat(azure.Changes(), azure.PoolChanges(), azure.CanaryChanges()) {
		a := azure.Actions(ch.Verb())
		if len(a) == 0 || !slices.IsSorted(a) {
			t.Errorf("%s: %v", ch.Verb(), a)
		}
		if seen[ch.Verb()] {
			t.Errorf("%s twice", ch.Verb())
		}
		seen[ch.Verb()] = true
		for _, x := range a {
			if !strings.HasPrefix(x, "Microsoft.Compute/") || strings.Contains(x, "*") {
				t.Errorf("%s: %q", ch.Verb(), x)
			}
		}
	}
	if azure.Actions("explode") != nil {
		t.Error("an unknown verb has actions")
	}
	if all := azure.ActionsOf(azure.Changes()...); !slices.IsSorted(all) || len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Errorf("%v", all)
	}
}
