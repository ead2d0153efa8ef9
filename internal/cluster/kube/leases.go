package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

// clockSkew is how far apart two holders' clocks may be. Entra ID tolerates as
// much in a token's times: who is further off cannot work with Azure at all.
const clockSkew = 5 * time.Minute

// holdTries bounds how often Hold looks again after somebody wrote meanwhile.
const holdTries = 4

// observations remembers since when, by our own clock, another's Lease has not
// been renewed.
type observations struct {
	mu     sync.Mutex
	byName map[string]observation
	// own are the Leases as this Cluster wrote them last, so that renewing one
	// that nobody else wrote takes one request.
	own map[string]*coordinationv1.Lease
}

type observation struct {
	revision string
	since    time.Time
}

// unrenewed says for how long the Lease has been seen at this revision.
func (o *observations) unrenewed(name, revision string, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byName == nil {
		o.byName = map[string]observation{}
	}
	seen, ok := o.byName[name]
	if !ok || seen.revision != revision {
		seen = observation{revision, now}
		o.byName[name] = seen
	}
	return now.Sub(seen.since)
}

// wrote remembers a Lease that this Cluster wrote.
func (o *observations) wrote(lease *coordinationv1.Lease) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.own == nil {
		o.own = map[string]*coordinationv1.Lease{}
	}
	o.own[lease.Name] = lease
	delete(o.byName, lease.Name)
}

// takeOwn returns the Lease as it was written last for the holder, nil for none. It
// is given once: who writes it again says so.
func (o *observations) takeOwn(name, holder string) *coordinationv1.Lease {
	o.mu.Lock()
	defer o.mu.Unlock()
	lease := o.own[name]
	if lease == nil || deref(lease.Spec.HolderIdentity) != holder {
		return nil
	}
	delete(o.own, name)
	return lease
}

// LeaseName is the Lease that keeps captures of the pool apart; the pool's ARM
// id is compared without letter case.
func LeaseName(pool string) string { return objectName("ortet", pool) }

func (c *Cluster) onLease(op, verb, name string) act {
	return act{op: op, on: "lease " + c.namespace + "/" + name,
		access: cluster.Access{Verb: verb, Group: "coordination.k8s.io", Resource: "leases", Namespace: c.namespace}}
}

// Hold takes or renews. Another's hold has run out once this Cluster saw it
// unrenewed for as long as it was taken for, by our clock alone, as client-go's
// leader election has it; or at the first look, if its own renewal time is
// older than that by more than clocks may be apart. The error says in RetryAfter
// when it will have run out if it is not renewed.
//
// A clock that jumps forward may take a hold too early. The former holder learns
// it at its next Hold, which is then fleet.KindHeld.
func (c *Cluster) Hold(ctx context.Context, name, holder string, duration time.Duration) (cluster.Holding, error) {
	key := LeaseName(name)
	if holder == "" || duration < time.Second {
		a := c.onLease("hold lease", "", key)
		return cluster.Holding{}, &fleet.Error{Op: a.op, Resource: a.on, Kind: fleet.KindInvalid, Err: errors.New("a hold needs a holder, and at least a second")}
	}
	var err error
	if lease := c.leases.takeOwn(key, holder); lease != nil {
		holding, err := c.renew(ctx, lease, duration)
		if !fleet.Is(err, fleet.KindConflict) {
			return holding, err
		}
	}
	for range holdTries {
		var holding cluster.Holding
		holding, err = c.tryHold(ctx, key, name, holder, duration)
		if !fleet.Is(err, fleet.KindConflict) {
			return holding, err
		}
		// Somebody wrote meanwhile; look who.
	}
	return cluster.Holding{}, err
}

func (c *Cluster) tryHold(ctx context.Context, key, name, holder string, duration time.Duration) (cluster.Holding, error) {
	leases := c.client.CoordinationV1().Leases(c.namespace)
	lease, err := leases.Get(ctx, key, metav1.GetOptions{})
	now := c.now()
	switch {
	case apierrors.IsNotFound(err):
		meta := c.ours(key, "lease")
		meta.Annotations[annotationPool] = name
		lease = &coordinationv1.Lease{ObjectMeta: meta}
		take(lease, holder, duration, now)
		lease, err = leases.Create(ctx, lease.DeepCopy(), metav1.CreateOptions{FieldManager: fieldManager})
		if apierrors.IsNotFound(err) {
			// Only a missing namespace makes a Create NotFound. The Lease is the
			// first thing that is ever written in it.
			if err := c.EnsureNamespace(ctx); err != nil {
				return cluster.Holding{}, err
			}
			lease = &coordinationv1.Lease{ObjectMeta: meta}
			take(lease, holder, duration, now)
			lease, err = leases.Create(ctx, lease, metav1.CreateOptions{FieldManager: fieldManager})
		}
		if err != nil {
			return cluster.Holding{}, c.onLease("take lease", "create", key).fail(ctx, err)
		}
		c.leases.wrote(lease)
		return holdingOf(lease), nil
	case err != nil:
		return cluster.Holding{}, c.onLease("read lease", "get", key).fail(ctx, err)
	}
	before := holdingOf(lease)
	switch before.Holder {
	case holder:
		return c.renew(ctx, lease, duration)
	case "":
	default:
		if left := c.leftOf(lease, now); left > 0 {
			a := c.onLease("hold lease", "", key)
			return before, &fleet.Error{Op: a.op, Resource: a.on, Kind: fleet.KindHeld, RetryAfter: left,
				Err:    fmt.Errorf("%s holds it since %s, and renewed it at %s", before.Holder, before.Since.UTC().Format(time.RFC3339), before.Renewed.UTC().Format(time.RFC3339)),
				Remedy: fmt.Sprintf("wait for it; if it died, its hold runs out in %s", left.Round(time.Second))}
		}
	}
	take(lease, holder, duration, now)
	holding, err := c.update(ctx, lease)
	if err == nil {
		holding.TookFrom = before.Holder
	}
	return holding, err
}

// renew writes our own Lease anew.
func (c *Cluster) renew(ctx context.Context, lease *coordinationv1.Lease, duration time.Duration) (cluster.Holding, error) {
	lease.Spec.RenewTime = ptr(metav1.NewMicroTime(c.now()))
	lease.Spec.LeaseDurationSeconds = ptr(int32(seconds(duration)))
	return c.update(ctx, lease)
}

// update writes a Lease, as long as it is as it was read: its resourceVersion
// sees to that.
func (c *Cluster) update(ctx context.Context, lease *coordinationv1.Lease) (cluster.Holding, error) {
	key := lease.Name
	lease, err := c.client.CoordinationV1().Leases(c.namespace).Update(ctx, lease, metav1.UpdateOptions{FieldManager: fieldManager})
	if apierrors.IsNotFound(err) {
		// It was released between our look and our write.
		return cluster.Holding{}, &fleet.Error{Op: "hold lease", Resource: "lease " + c.namespace + "/" + key, Kind: fleet.KindConflict, Err: err}
	}
	if err != nil {
		return cluster.Holding{}, c.onLease("renew lease", "update", key).fail(ctx, err)
	}
	c.leases.wrote(lease)
	return holdingOf(lease), nil
}

// leftOf says how long another's hold still has, at least.
func (c *Cluster) leftOf(lease *coordinationv1.Lease, now time.Time) time.Duration {
	lasts := time.Duration(deref(lease.Spec.LeaseDurationSeconds)) * time.Second
	watched := lasts - c.leases.unrenewed(lease.Name, lease.ResourceVersion, now)
	if lease.Spec.RenewTime == nil {
		return watched
	}
	return min(watched, lease.Spec.RenewTime.Add(lasts+clockSkew).Sub(now))
}

func take(lease *coordinationv1.Lease, holder string, duration time.Duration, now time.Time) {
	lease.Spec.HolderIdentity = ptr(holder)
	lease.Spec.LeaseDurationSeconds = ptr(int32(seconds(duration)))
	lease.Spec.AcquireTime = ptr(metav1.NewMicroTime(now))
	lease.Spec.RenewTime = ptr(metav1.NewMicroTime(now))
	if lease.ResourceVersion != "" {
		lease.Spec.LeaseTransitions = ptr(deref(lease.Spec.LeaseTransitions) + 1)
	}
}

func holdingOf(lease *coordinationv1.Lease) cluster.Holding {
	holding := cluster.Holding{Holder: deref(lease.Spec.HolderIdentity)}
	if t := lease.Spec.AcquireTime; t != nil {
		holding.Since = t.Time
	}
	if t := lease.Spec.RenewTime; t != nil {
		holding.Renewed = t.Time
		holding.Until = t.Add(time.Duration(deref(lease.Spec.LeaseDurationSeconds)) * time.Second)
	}
	return holding
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// Holding reads the Lease.
func (c *Cluster) Holding(ctx context.Context, name string) (cluster.Holding, bool, error) {
	key := LeaseName(name)
	lease, err := c.client.CoordinationV1().Leases(c.namespace).Get(ctx, key, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return cluster.Holding{}, false, nil
	}
	if err != nil {
		return cluster.Holding{}, false, c.onLease("read lease", "get", key).fail(ctx, err)
	}
	holding := holdingOf(lease)
	return holding, holding.Holder != "", nil
}

// Release deletes the Lease where holder has it.
func (c *Cluster) Release(ctx context.Context, name, holder string) error {
	key := LeaseName(name)
	leases := c.client.CoordinationV1().Leases(c.namespace)
	for range holdTries {
		lease, err := leases.Get(ctx, key, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return c.onLease("read lease", "get", key).fail(ctx, err)
		}
		if deref(lease.Spec.HolderIdentity) != holder {
			return nil
		}
		err = leases.Delete(ctx, key, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
			UID: &lease.UID, ResourceVersion: &lease.ResourceVersion,
		}})
		if err == nil || apierrors.IsNotFound(err) {
			return nil
		}
		if !apierrors.IsConflict(err) {
			return c.onLease("release lease", "delete", key).fail(ctx, err)
		}
	}
	return &fleet.Error{Op: "release lease", Resource: "lease " + c.namespace + "/" + key, Kind: fleet.KindConflict, Err: errors.New("it is written all the time")}
}
