package kube

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// LeadName is the Lease in Ortet's namespace by which replicas agree who does what
// one is enough for.
const LeadName = "ortet-admission"

// How leading goes over from a replica that died: within leadFor.
const (
	leadFor   = 15 * time.Second
	leadRenew = 10 * time.Second
	leadRetry = 2 * time.Second
)

// Lead runs run while this replica leads, and again whenever it is elected again, until ctx
// ends; then it returns ctx's error. run has to return when its context ends, which is when
// this replica leads no more. identity is the replica's own, as its pod's name. Its timing
// is the real clock's.
func (c *Cluster) Lead(ctx context.Context, identity string, run func(context.Context)) error {
	for ctx.Err() == nil {
		// The elector starts run on a goroutine of its own and does not wait for it.
		var once sync.Mutex
		var done chan struct{}
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: LeadName}, Client: c.client.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
			},
			LeaseDuration: leadFor, RenewDeadline: leadRenew, RetryPeriod: leadRetry, ReleaseOnCancel: true, Name: LeadName,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) {
					c.log.InfoContext(ctx, "leads", "lease", LeadName, "as", identity)
					once.Lock()
					if ctx.Err() != nil {
						once.Unlock()
						return // it led no more before it began
					}
					done = make(chan struct{})
					once.Unlock()
					defer close(done)
					run(ctx)
				},
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			return fail(ctx, "lead", "lease "+c.namespace+"/"+LeadName, err)
		}
		elector.Run(ctx)
		once.Lock()
		begun := done
		once.Unlock()
		if begun != nil {
			<-begun
		}
	}
	return ctx.Err()
}
