package events

import (
	"context"
	"sync"
	"time"
)

const (
	// atOnce is how many evictions are asked for together.
	atOnce = 8
	// look is the interval between listings of the remaining pods.
	look = time.Second
)

// important inserts a pod by priority, the highest first: pods evicted first have the
// longest time to end.
func important(pods []pod, p pod) []pod {
	at := len(pods)
	for at > 0 && pods[at-1].Spec.Priority < p.Spec.Priority {
		at--
	}
	pods = append(pods, p)
	copy(pods[at+1:], pods[at:])
	pods[at] = p
	return pods
}

// A push is what is done about one pod now.
type push struct {
	pod    pod
	delete bool  // else it is evicted
	grace  int64 // seconds; negative is its own
}

// pushes is what to do about the pods that are left: each is asked to end in its own
// time, or in what is left where that is less. Budgets are asked for the first third
// of the time at least, and after that for as long as the pod's own time still fits:
// the machine goes whether or not they allow it.
func pushes(pods []pod, begun, until, now time.Time) []push {
	left := until.Sub(now)
	var out []push
	for _, p := range pods {
		if d := p.Metadata.DeletionTime; d != nil && (p.ended() || !d.After(until.Add(shorter))) {
			continue // it is on its way
		}
		u := push{pod: p, grace: -1}
		if p.grace() > left {
			// 0 would delete the pod at once, without waiting for the kubelet.
			u.grace = max(int64(left/time.Second), 1)
		}
		third := begun.Add(until.Sub(begun) / 3)
		// An eviction of what is terminating does nothing, a deletion shortens it.
		u.delete = p.Metadata.DeletionTime != nil || now.After(third) && p.grace() > left
		out = append(out, u)
	}
	return out
}

// drain evicts the pods until none is left or the time is up, and returns the names of the
// remaining pods. It fails if no eviction could be requested at all. Times are by Azure's
// clock (now); told is called for each evicted pod.
func (k *kubernetes) drain(ctx context.Context, until time.Time, now func() time.Time, told func(pod string)) (left []string, err error) {
	begun := now()
	listed := false
	for {
		pods, failed := k.pods(ctx)
		if failed == nil {
			if len(pods) == 0 {
				return nil, nil
			}
			listed, left = true, left[:0]
			for _, p := range pods {
				if !p.ended() {
					left = append(left, p.String())
				}
			}
			k.pushAll(ctx, pushes(pods, begun, until, now()), told)
		}
		wait := min(look, until.Sub(now()))
		if wait <= 0 || !sleep(ctx, wait) {
			if !listed && failed != nil {
				return nil, failed
			}
			return left, nil
		}
	}
}

// pushAll requests the ends of pods by priority, pods of equal priority together, atOnce at
// a time. Refused requests are retried at the next listing.
func (k *kubernetes) pushAll(ctx context.Context, all []push, told func(pod string)) {
	slots := make(chan struct{}, atOnce)
	for len(all) > 0 && ctx.Err() == nil {
		n := 1
		for n < len(all) && all[n].pod.Spec.Priority == all[0].pod.Spec.Priority {
			n++
		}
		var wait sync.WaitGroup
		for _, u := range all[:n] {
			slots <- struct{}{}
			wait.Go(func() {
				defer func() { <-slots }()
				what := k.evict
				if u.delete {
					what = k.remove
				}
				if what(ctx, u.pod, u.grace) == nil {
					told(u.pod.String())
				}
			})
		}
		wait.Wait()
		all = all[n:]
	}
}

// sleep returns false where the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
