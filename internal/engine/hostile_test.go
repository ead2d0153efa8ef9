package engine

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
)

// remove takes an instance and its node away, as an autoscaler or a person does.
func (w *world) remove(n string) {
	for k, i := range w.instances {
		if i.HostName == n {
			delete(w.disks, low(i.OSDisk))
			for _, d := range w.disks {
				if d.ManagedBy.Equal(i.ID) {
					d.ManagedBy = ""
				}
			}
			delete(w.instances, k)
		}
	}
	delete(w.nodes, n)
}

// sabotage is what somebody does to the world while a capture runs.
func (w *world) sabotage(after time.Duration, do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.in(after, do)
}

var sabotageTimes = []time.Duration{
	10 * time.Second, 50 * time.Second, 120 * time.Second, 210 * time.Second, 225 * time.Second, 260 * time.Second,
	300 * time.Second, 330 * time.Second, 360 * time.Second, 400 * time.Second, 10 * time.Minute, 44 * time.Minute,
}

// TestDonorIsDeleted: whenever somebody deletes the donor, the pool's next
// capture, of another node, is not held up by it.
func TestDonorIsDeleted(t *testing.T) {
	for _, after := range sabotageTimes {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.sabotage(after, func() { w.remove(donorName) })
				e, _, ctx, _ := w.process(t, "a", 0)
				if _, err := e.Capture(ctx, request()); ExitCode(err) != ExitDone && ExitCode(err) != ExitFailed {
					t.Errorf("exit %d: %v", ExitCode(err), err)
				}
				q := request()
				q.Node = "pool1000001"
				e, _, ctx, _ = w.process(t, "b", 0)
				if _, err := e.Capture(ctx, q); err != nil {
					t.Fatalf("another node cannot be captured: exit %d: %v", ExitCode(err), err)
				}
				w.tidy(t)
				w.live(t, today)
			})
		})
	}
}

// TestWorkbenchIsDeleted: the donor is whole, and the same command finds another.
func TestWorkbenchIsDeleted(t *testing.T) {
	for _, after := range sabotageTimes {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.sabotage(after, func() { w.remove("pool1000001") })
				e, _, ctx, _ := w.process(t, "a", 0)
				if _, err := e.Capture(ctx, request()); ExitCode(err) != ExitDone && ExitCode(err) != ExitFailed {
					t.Errorf("exit %d: %v", ExitCode(err), err)
				}
				w.whole(t)
				w.tidy(t)
				e, _, ctx, _ = w.process(t, "b", 0)
				if _, err := e.Capture(ctx, request()); err != nil {
					t.Fatalf("exit %d: %v", ExitCode(err), err)
				}
				w.whole(t)
				w.tidy(t)
				w.live(t, today)
			})
		})
	}
}

// TestThingsAreDeleted while they are needed: all is put back or done.
func TestThingsAreDeleted(t *testing.T) {
	for name, do := range map[string]func(w *world){
		"snapshots": func(w *world) { clear(w.snapshots) },
		"version":   func(w *world) { clear(w.versions) },
		"pods":      func(w *world) { clear(w.pods) },
		"journal":   func(w *world) { w.journals.Delete(journalKey(poolID)) },
		"work disk": func(w *world) {
			for k, d := range w.disks {
				if d.Tags[fleet.TagCapture] != "" && d.ManagedBy == "" {
					delete(w.disks, k)
				}
			}
		},
	} {
		for _, after := range sabotageTimes {
			t.Run(name+" "+after.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld()
					w.sabotage(after, func() { do(w) })
					e, _, ctx, _ := w.process(t, "a", 0)
					if _, err := e.Capture(ctx, request()); ExitCode(err) != ExitDone && ExitCode(err) != ExitFailed {
						t.Errorf("exit %d: %v", ExitCode(err), err)
					}
					w.whole(t)
					w.tidy(t)
					e, _, ctx, _ = w.process(t, "b", 0)
					if _, err := e.Capture(ctx, request()); err != nil {
						t.Fatalf("exit %d: %v", ExitCode(err), err)
					}
					w.whole(t)
					w.tidy(t)
					w.live(t, today)
				})
			})
		}
	}
}

// An outage is an API server that nobody can reach for a while.
type outage struct {
	clusterProc
	from, to time.Time
}

func (o outage) down() error {
	if now := time.Now(); !now.Before(o.from) && now.Before(o.to) {
		return &fleet.Error{Op: "call", Kind: fleet.KindTransient, Err: errors.New("connection refused")}
	}
	return nil
}

func (o outage) Node(ctx context.Context, name string) (fleet.Node, error) {
	if err := o.down(); err != nil {
		return fleet.Node{}, err
	}
	return o.clusterProc.Node(ctx, name)
}

func (o outage) Hold(ctx context.Context, name, holder string, d time.Duration) (cluster.Holding, error) {
	if err := o.down(); err != nil {
		return cluster.Holding{}, err
	}
	return o.clusterProc.Hold(ctx, name, holder, d)
}

func (o outage) Release(ctx context.Context, name, holder string) error {
	if err := o.down(); err != nil {
		return err
	}
	return o.clusterProc.Release(ctx, name, holder)
}

func (o outage) SetUnschedulable(ctx context.Context, name string, yes bool) error {
	if err := o.down(); err != nil {
		return err
	}
	return o.clusterProc.SetUnschedulable(ctx, name, yes)
}

func (o outage) Annotate(ctx context.Context, name string, a map[string]*string) error {
	if err := o.down(); err != nil {
		return err
	}
	return o.clusterProc.Annotate(ctx, name, a)
}

func (o outage) Journals() journal.Store {
	return outageJournals{procJournals(o.clusterProc), o}
}

type outageJournals struct {
	procJournals
	o outage
}

func (j outageJournals) Load(ctx context.Context, pool string) (journal.Record, error) {
	if err := j.o.down(); err != nil {
		return journal.Record{}, err
	}
	return j.procJournals.Load(ctx, pool)
}

func (j outageJournals) Save(ctx context.Context, r journal.Record) (journal.Record, error) {
	if err := j.o.down(); err != nil {
		return journal.Record{}, err
	}
	return j.procJournals.Save(ctx, r)
}

// Moments at which one step runs: two that write the journal wait for each other
// by a mutex, which stops a bubble's clock.
var outageTimes = []time.Duration{
	10 * time.Second, 50 * time.Second, 120 * time.Second, 210 * time.Second, 225 * time.Second, 10 * time.Minute, 44 * time.Minute,
}

// TestAPIServerIsAway: for longer than a hold lasts, while the donor is out of
// service. The donor is not left behind, and nobody has to come.
func TestAPIServerIsAway(t *testing.T) {
	for _, after := range outageTimes {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				_, p, ctx, seen := w.process(t, "a", 0)
				e, err := New(Config{
					Cloud: cloudProc{p}, Cluster: outage{clusterProc{p}, time.Now().Add(after), time.Now().Add(after + 2*time.Minute)},
					Logger: slog.New(slog.DiscardHandler), Reporter: seen, Version: "test",
					Image: "ortet:test", Namespace: "ortet", Holder: "a", Liveness: func(string) Liveness { return Unknown },
				})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := e.Capture(ctx, request()); err != nil {
					t.Errorf("exit %d: %v", ExitCode(err), err)
				}
				w.whole(t)
				w.tidy(t)
				w.live(t, today)
			})
		})
	}
}
