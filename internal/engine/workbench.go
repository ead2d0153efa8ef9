package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

const (
	// benchEvery is how often the workbench's node is looked at while its pod works.
	benchEvery = time.Minute
	// benchPatience is how long that node may be silent while its instance is off:
	// somebody may be restarting it.
	benchPatience = 5 * time.Minute
	// benchSilent is how long it may be silent while its instance runs: longer than
	// Kubernetes takes to evict the pods of such a node.
	benchSilent = 10 * time.Minute
	// podEnds is how long the pod has for ending in order, its grace period of 30 s
	// among it, before it is asked whether there is a kubelet to end it.
	podEnds = 45 * time.Second
)

// A silence is what is known of how long the workbench's node has been NotReady.
type silence struct{ looked, since time.Time }

// awaitBench gives an error once nobody can be expected to end the pod's work: the
// node is silent, and its instance off, or it is silent for long.
func (t *task) awaitBench(ctx context.Context, s *silence) error {
	now, bench := t.r.e.now(), t.r.get().Bench
	if now.Sub(s.looked) < benchEvery {
		return nil
	}
	s.looked = now
	node, there, err := found(ctx, t, func(ctx context.Context) (fleet.Node, error) { return t.r.e.cluster.Node(ctx, bench.Node) })
	switch {
	case err != nil:
		return nil //nolint:nilerr // the pod is looked at next, and tells what is wrong
	case there && node.Ready:
		s.since = time.Time{}
		return nil
	case s.since.IsZero():
		s.since = now
	}
	if now.Sub(s.since) < benchPatience {
		return nil
	}
	off, err := t.benchOff(ctx)
	if err != nil || !off && now.Sub(s.since) < benchSilent {
		return nil //nolint:nilerr // it may run
	}
	what := "runs"
	if off {
		what = "is off"
	}
	return &fleet.Error{Op: "generalize", Resource: "node " + bench.Node, Kind: fleet.KindBlocked,
		Err:    fmt.Errorf("the workbench's instance %s %s, and its node has not been Ready for %s", bench.Instance, what, now.Sub(s.since).Round(time.Second)),
		Remedy: "start it, or run the same command again: it takes another"}
}

// benchOff reports whether the workbench's computer does not run: then nothing on it
// has the copy of the disk in its hands.
func (t *task) benchOff(ctx context.Context) (bool, error) {
	id := t.r.get().Bench.Instance
	i, there, err := held(ctx, t, func(ctx context.Context) (fleet.Instance, error) { return t.r.e.cloud.Instance(ctx, id) })
	return err == nil && (!there || down(i)), err
}

// deletePodNow takes the pod away. Its kubelet ends it in order; where there is none,
// since the computer is off, it goes by force: a kubelet that starts later does not
// start what it was told to end.
func deletePodNow(ctx context.Context, t *task) error {
	jobs, name := t.r.e.cluster, t.r.get().Names.Job
	inOrder := func(ctx context.Context) error {
		return do(ctx, t, func(ctx context.Context) error { return jobs.DeleteJob(ctx, name) })
	}
	soon, cancel := context.WithTimeout(ctx, podEnds)
	defer cancel()
	err := inOrder(soon)
	if err == nil || ctx.Err() != nil || !errors.Is(soon.Err(), context.DeadlineExceeded) {
		return err
	}
	switch off, lookErr := t.benchOff(ctx); {
	case lookErr != nil:
		return err
	case off:
		return do(ctx, t, func(ctx context.Context) error { return jobs.ForceDeleteJob(ctx, name) })
	}
	return inOrder(ctx)
}
