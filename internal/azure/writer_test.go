package azure_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

// A writing is an Azure with one scale set. Its clock is the test's.
type writing struct {
	azure.Cloud
	began time.Time
	begin func(n int, c fleet.Change) error                 // the n-th change, from 0
	poll  func(since time.Duration) (fleet.Progress, error) // since its operation began; nil: done at once
	state func(since time.Duration) string                  // provisioningState since the test began; nil: Succeeded
	at    []time.Duration                                   // of the changes, since the test began
	etags []string                                          // that they had
	sent  time.Time                                         // the last one
	said  []string
}

func (w *writing) since() time.Duration { return time.Since(w.began) }

func (w *writing) Pool(_ context.Context, id fleet.ResourceID) (fleet.Pool, error) {
	p := fleet.Pool{ID: id, Name: "pool1", Capacity: int64(len(w.at)), Etag: fmt.Sprint("etag", len(w.at)), ProvisioningState: "Succeeded"}
	if w.state != nil {
		p.ProvisioningState = w.state(w.since())
	}
	return p, nil
}

func (w *writing) Instances(context.Context, fleet.ResourceID) ([]fleet.Instance, error) {
	return nil, nil
}

func (w *writing) Begin(_ context.Context, c fleet.Change) (fleet.Token, error) {
	n := len(w.at)
	if w.since() > 30*24*time.Hour || n > 1000 {
		return "", errors.New("tried for ever")
	}
	w.at, w.sent = append(w.at, w.since()), time.Now()
	if s, ok := c.(fleet.SetSize); ok {
		w.etags = append(w.etags, s.Etag)
	}
	if w.begin != nil {
		if err := w.begin(n, c); err != nil {
			return "", err
		}
	}
	if w.poll == nil {
		return "", nil
	}
	return "token", nil
}

func (w *writing) Poll(context.Context, fleet.Token) (fleet.Progress, error) {
	return w.poll(time.Since(w.sent))
}

func (w *writing) report(format string, args ...any) {
	w.said = append(w.said, fmt.Sprintf(format, args...))
}

const patience = 10 * time.Minute // Within

func writes(t *testing.T, w *writing, f func(t *testing.T, writer azure.Writer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w.began = time.Now()
		f(t, azure.Writer{Cloud: w, Now: time.Now, Within: patience, Report: w.report})
	})
}

func resized(p fleet.Pool) fleet.Change { return fleet.SetSize{Pool: p.ID, Size: "s", Etag: p.Etag} }

// both calls f with each way of a Writer to make a change.
func both(t *testing.T, cloud func() *writing, f func(t *testing.T, w *writing, change func() error)) {
	t.Helper()
	for _, how := range []string{"Do", "ScaleSet"} {
		t.Run(how, func(t *testing.T) {
			w := cloud()
			writes(t, w, func(t *testing.T, writer azure.Writer) {
				f(t, w, func() error {
					if how == "Do" {
						return writer.Do(t.Context(), fleet.RestartInstance{Instance: "i"})
					}
					_, err := writer.ScaleSet(t.Context(), "set", resized, nil)
					return err
				})
			})
		})
	}
}

// What another operation is in the way of, or what passes, is tried again for Within, and no longer.
// What no waiting mends is tried once.
func TestWriterTriesAgain(t *testing.T) {
	conflict := func(text string) error {
		return &fleet.Error{Op: "x", Resource: "y", Kind: fleet.KindConflict, Err: errors.New(text)}
	}
	for _, err := range []error{
		fail(fleet.KindTransient, 0), fail(fleet.KindThrottled, time.Minute),
		conflict("409 Conflict: another operation is in progress"), conflict("OperationPreempted: by a newer one"), conflict("409 AnotherOperationInProgress"),
		conflict("Canceled: by a newer one"), conflict("concurrent request"), conflict("retry the request later"),
	} {
		t.Run("passes: "+err.Error(), func(t *testing.T) {
			both(t, func() *writing {
				return &writing{begin: func(n int, _ fleet.Change) error {
					return slices.Concat([]error{err, err}, make([]error, 1))[min(n, 2)]
				}}
			}, func(t *testing.T, w *writing, change func() error) {
				if err := change(); err != nil || len(w.at) != 3 || len(w.said) != 1 {
					t.Errorf("%v after %v, saying %q", err, w.at, w.said)
				}
			})
			both(t, func() *writing { return &writing{begin: func(int, fleet.Change) error { return err }} }, func(t *testing.T, w *writing, change func() error) {
				if got := change(); !errors.Is(got, err) || w.since() < patience || w.since() > patience+2*time.Minute {
					t.Errorf("gives up after %s: %v", w.since(), got)
				}
			})
		})
	}
	for _, err := range []error{conflict("SkuNotAvailable"), fail(fleet.KindDenied, 0), fail(fleet.KindInvalid, 0), fail(fleet.KindNotFound, 0), errors.New("?")} {
		t.Run("stays: "+err.Error(), func(t *testing.T) {
			both(t, func() *writing { return &writing{begin: func(int, fleet.Change) error { return err }} }, func(t *testing.T, w *writing, change func() error) {
				if got := change(); !errors.Is(got, err) || len(w.at) != 1 {
					t.Errorf("%v after %v", got, w.at)
				}
			})
		})
	}
}

// A write that others preempted is computed of what they left, with its ETag. Do, which computes
// nothing, leaves that to its caller.
func TestWriterAndETags(t *testing.T) {
	both(t, func() *writing {
		return &writing{begin: func(n int, _ fleet.Change) error { return []error{fail(fleet.KindStale, 0), nil}[min(n, 1)] }}
	}, func(t *testing.T, w *writing, change func() error) {
		err := change()
		if single := len(w.etags) == 0; single && (!fleet.Is(err, fleet.KindStale) || len(w.at) != 1) || !single && (err != nil || !slices.Equal(w.etags, []string{"etag0", "etag1"})) {
			t.Errorf("%v after %v with %v", err, w.at, w.etags)
		}
	})
	w := &writing{}
	writes(t, w, func(t *testing.T, writer azure.Writer) {
		_, err := writer.ScaleSet(t.Context(), "set", resized, func(context.Context, fleet.Pool) (bool, error) { return false, nil })
		if !fleet.Is(err, fleet.KindConflict) || len(w.at) != 1 {
			t.Errorf("changed back by others: %v", err)
		}
	})
}

// An operation may take longer than Within while it answers. A poll that fails counts from the last
// answer on, and only silence for all of Within ends the wait.
func TestWriterFollowsAnOperation(t *testing.T) {
	const takes = 4 * patience
	lost := fail(fleet.KindTransient, 0)
	for name, c := range map[string]struct {
		from, to time.Duration // of the silence
		fails    bool
	}{
		"always answers":            {takes, takes, false},
		"a poll lost at the begin":  {0, 2 * time.Second, false},
		"a poll lost late":          {3 * patience, 3*patience + 2*time.Second, false},
		"silent, almost for Within": {patience, 2*patience - time.Minute, false},
		"silent for Within":         {patience, takes, true},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func() *writing {
				return &writing{poll: func(since time.Duration) (fleet.Progress, error) {
					if since >= c.from && since < c.to {
						return fleet.Progress{}, lost
					}
					return fleet.Progress{Done: since >= takes}, nil
				}, begin: func(n int, _ fleet.Change) error { return []error{nil, fail(fleet.KindDenied, 0)}[min(n, 1)] }}
			}, func(t *testing.T, w *writing, change func() error) {
				if err := change(); (err != nil) != c.fails || len(w.at) != 1 {
					t.Errorf("%v after %s, %d changes", err, w.since(), len(w.at))
				}
			})
		})
	}
}

type listed string

func (l listed) Instances(context.Context, fleet.ResourceID) ([]fleet.Instance, error) {
	return []fleet.Instance{{InstanceID: "0", ProvisioningState: "Succeeded"}, {InstanceID: "1", ProvisioningState: string(l)}}, nil
}

// A scale set is updating also while one of its instances is made or deleted, which its own state need not show.
func TestRestOfInstances(t *testing.T) {
	for state, want := range map[string]string{"Creating": "instance 1 is Creating", "deleting": "instance 1 is deleting", "Updating": "", "Failed": "", "Succeeded": ""} {
		why, overdue, err := new(azure.Rest).Updating(t.Context(), listed(state), fleet.Pool{ProvisioningState: "Succeeded"}, time.Now())
		if why != want || overdue != "" || err != nil {
			t.Errorf("beside an instance that is %s: %q, %q, %v; want %q", state, why, overdue, err, want)
		}
	}
}

// A change waits while the scale set is updating, for RestFor from the begin of each operation, and
// then is made all the same, which is said.
func TestWriterWaitsForOtherOperations(t *testing.T) {
	updating := func(periods ...time.Duration) func(time.Duration) string {
		return func(since time.Duration) string {
			for i := 0; i < len(periods); i += 2 {
				if since >= periods[i] && since < periods[i+1] {
					return "Updating"
				}
			}
			return "Succeeded"
		}
	}
	for name, c := range map[string]struct {
		state     func(time.Duration) string
		at        []time.Duration
		overdue   int
		intervals time.Duration // between the changes
	}{
		"idle":                   {updating(), []time.Duration{0}, 0, 0},
		"for a minute":           {updating(0, time.Minute), []time.Duration{time.Minute}, 0, 0},
		"almost for RestFor":     {updating(0, azure.RestFor-time.Second), []time.Duration{azure.RestFor}, 0, 0},
		"for ever":               {updating(0, 24*time.Hour), []time.Duration{azure.RestFor}, 1, 0},
		"twice, apart":           {updating(0, time.Minute, time.Hour, time.Hour+10*time.Minute), []time.Duration{time.Minute, time.Hour + 10*time.Minute}, 0, time.Hour - time.Minute},
		"for ever, two changes":  {updating(0, 24*time.Hour), []time.Duration{azure.RestFor, azure.RestFor}, 2, 0},
		"twice, the second long": {updating(0, time.Minute, time.Hour, 24*time.Hour), []time.Duration{time.Minute, time.Hour + azure.RestFor}, 1, time.Hour - time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			w := &writing{state: c.state}
			writes(t, w, func(t *testing.T, writer azure.Writer) {
				writer.Rest = &azure.Rest{}
				for range c.at {
					if _, err := writer.ScaleSet(t.Context(), "set", resized, nil); err != nil {
						t.Fatal(err)
					}
					if len(w.at) < len(c.at) {
						time.Sleep(c.intervals)
						if c.intervals > 0 { // seen at rest by what is no change
							continue
						}
					}
				}
			})
			late := func(got, want time.Duration) bool { return got < want || got > want+azure.RestInterval }
			if len(w.at) != len(c.at) || slices.ContainsFunc(w.at, func(d time.Duration) bool {
				return !slices.ContainsFunc(c.at, func(want time.Duration) bool { return !late(d, want) })
			}) {
				t.Errorf("changed at %v, want %v", w.at, c.at)
			}
			said := 0
			for _, line := range w.said {
				if strings.Contains(line, "changed nevertheless") {
					said++
				}
			}
			if said != c.overdue {
				t.Errorf("says %q", w.said)
			}
		})
	}
}
