// Package lead has one of several replicas work at a time, by a Lease. Unlike the election of
// controller-runtime's manager, which ends the process once the Lease is lost, it waits for the work
// to end: a donor that is out of service is returned first.
package lead

import (
	"context"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/ortet/ortet/internal/fleet"
)

// How leading goes over from a replica that died: within leadFor.
const (
	leadFor   = 15 * time.Second
	leadRenew = 10 * time.Second
	leadRetry = 2 * time.Second
)

// Config says which Lease, and who takes it. All but Log is required.
type Config struct {
	Client          kubernetes.Interface
	Namespace, Name string // of the Lease
	Identity        string // unique for the replica: its pod's name
	Log             *slog.Logger
}

// Run runs work while this replica leads, and again whenever it is elected again, until ctx
// ends; then it returns ctx's error. work has to return when its context ends, which is when
// ctx ends, or this replica leads no more: until then Run does not return, and the replica neither
// releases the Lease nor is elected again. The timing is the real clock's.
func Run(ctx context.Context, c Config, work func(context.Context)) error {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	for ctx.Err() == nil {
		if err := c.term(ctx, work); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// term waits until this replica leads, and returns once it leads no more and work has ended.
func (c Config) term(ctx context.Context, work func(context.Context)) error {
	election, end := context.WithCancel(context.WithoutCancel(ctx)) // of which the end releases the Lease
	defer end()
	var once sync.Mutex
	var done chan struct{} // nil until work begins
	defer context.AfterFunc(ctx, func() {
		once.Lock()
		defer once.Unlock()
		if done == nil {
			end()
		}
	})()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}, Client: c.Client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: c.Identity},
		},
		LeaseDuration: leadFor, RenewDeadline: leadRenew, RetryPeriod: leadRetry, ReleaseOnCancel: true, Name: c.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			// The elector starts this on a goroutine of its own and does not wait for it.
			OnStartedLeading: func(leading context.Context) {
				once.Lock()
				if ctx.Err() != nil || leading.Err() != nil {
					once.Unlock()
					return // it led no more before it began
				}
				done = make(chan struct{})
				once.Unlock()
				defer close(done)
				working, stop := context.WithCancel(leading)
				defer stop()
				defer context.AfterFunc(ctx, stop)()
				c.Log.InfoContext(ctx, "leads", "lease", c.Name, "as", c.Identity)
				work(working)
				if ctx.Err() != nil {
					end()
				}
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return &fleet.Error{Op: "lead", Resource: "lease " + c.Namespace + "/" + c.Name, Kind: fleet.KindInvalid, Err: err}
	}
	elector.Run(election)
	once.Lock()
	begun := done
	once.Unlock()
	if begun != nil {
		<-begun
	}
	return nil
}
