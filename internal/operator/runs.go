package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/api/v1alpha1"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/auto"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/renew"
	"github.com/ortet/ortet/internal/image/rollback"
	"github.com/ortet/ortet/internal/image/watch"
	"github.com/ortet/ortet/internal/workflow"
)

// watchesPerRun is how many watches go on for each other run that may: they hold no Lease, and mostly wait.
const watchesPerRun = 4

// errDeleted ends the run of an object that was deleted.
var errDeleted = errors.New("its ScaleSetPool was deleted")

// A run is one that the operator has begun.
type run struct {
	object string
	do     Do
	kind   string // v1alpha1.RunCapture, or another
	begun  time.Time
	cancel context.CancelCauseFunc
	text   string // of its last event
}

// start begins a run unless as many go on as may.
func (r *Reconciler) start(object string, asked *run, w wanted, o open) bool {
	do := asked.do
	r.mu.Lock()
	defer r.mu.Unlock()
	others, limit := 0, r.c.MaxRuns
	for _, x := range r.running {
		if (x.do == Watch) == (do == Watch) {
			others++
		}
	}
	if do == Watch {
		limit *= watchesPerRun
	}
	if others >= limit || r.leading.Err() != nil {
		return false
	}
	ctx, cancel := context.WithCancelCause(r.leading)
	key, now := fleet.KeyOf(w.pool), r.c.Capture.Now()
	x := &run{object: object, do: do, kind: asked.kind, begun: now, cancel: cancel}
	if do == Capture {
		r.tried[key] = r.c.Capture.Cluster.Now()
	}
	r.running[key] = x
	r.number++
	config := r.c.Capture
	config.Holder, config.Next = fmt.Sprintf("%s/%d", config.Holder, r.number), w.watch.Changes()
	config.Report = func(e workflow.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if e.Kind != workflow.EventNote {
			x.text = strings.TrimSpace(e.Title + " " + e.Message)
		}
	}
	r.all.Go(func() {
		defer cancel(nil)
		name, message, err := r.run(ctx, config, do, w, o)
		if errors.Is(context.Cause(ctx), errDeleted) && r.leading.Err() == nil && x.kind == v1alpha1.RunCapture {
			captures, _ := rollback.Services(config)
			_, abandonErr := captures.Abandon(r.leading, w.pool, "")
			err = errors.Join(err, abandonErr)
		}
		r.end(key, x, name, message, err)
	})
	return true
}

// run runs to the end, as the command of the same name does. A watch's name is its version.
func (r *Reconciler) run(ctx context.Context, config capture.Config, do Do, w wanted, o open) (name, message string, err error) {
	captures, rollbacks := rollback.Services(config)
	switch {
	case do == Rollout:
		w.rollout.Window = w.open(config.Cluster.Now())
		result, err := renew.New(config).Rollout(ctx, w.rollout)
		return "", strings.TrimSpace(fmt.Sprintf("%s renewed. %s", fleet.Count(len(result.Renewed), "node"), result.Waiting)), err
	case do == DeleteCanary:
		return "", "deleted " + fleet.CanaryOf(w.pool).Name() + ", which had expired", r.deleteCanary(ctx, config, w.pool)
	case do == Watch, o.takesBack() && w.Watches:
		s := watch.Service{Config: config, Rollback: rollbacks}
		result, err := s.Watch(ctx, w.watch)
		return result.Version.Name(), result.Version.Name() + ": " + string(result.Outcome) + ": " + result.Why, err
	case do == Resume && o.record.Kind == rollback.Kind:
		q := rollback.Request{Pool: w.pool, AllowRolling: w.request.AllowRolling, AllowOwned: w.request.AllowOwned}
		result, err := rollbacks.Rollback(ctx, q)
		return "", "new nodes come from " + result.To.Name(), err
	}
	if do == Resume { // an open one ends as it began
		var q plan.Request
		w.fresh = json.Unmarshal(o.record.Request, &q) == nil && q.Fresh != ""
	}
	places := func() auto.Places { return &azure.Places{Reader: config.Cloud} }
	result := r.auto(w, config.Cluster, nil, captures, places).Run(ctx, []fleet.ResourceID{w.pool}, false, false)[0]
	if result.Outcome == auto.Captured {
		return "", result.Capture.Version.Name() + " captured of " + result.Donor + ": " + result.Because, nil
	}
	return "", string(result.Outcome) + ": " + result.Because, result.Err
}

// deleteCanary deletes a canary that no capture will delete, under the pool's Lease: no capture makes
// one meanwhile.
func (r *Reconciler) deleteCanary(ctx context.Context, c capture.Config, pool fleet.ResourceID) error {
	const lease = 10 * time.Minute
	if _, err := c.Cluster.Hold(ctx, string(pool), c.Holder, lease); err != nil {
		return err
	}
	defer func() { _ = c.Cluster.Release(context.WithoutCancel(ctx), string(pool), c.Holder) }() // else it expires
	within, cancel := context.WithTimeout(ctx, lease)
	defer cancel()
	all, err := capture.New(c).Status(within, []fleet.ResourceID{pool})
	if err != nil || all[0].Canary == nil || !all[0].Canary.Obsolete {
		return err
	}
	return azure.Writer{Cloud: c.Cloud, Now: c.Now, Within: lease}.Do(within, fleet.DeleteScaleSet{Pool: all[0].Canary.ID, Force: true})
}

// end notes how a run ended.
func (r *Reconciler) end(key fleet.Key, x *run, name, message string, err error) {
	now := r.c.Capture.Cluster.Now()
	last := v1alpha1.LastRunStatus{Kind: x.kind, Name: name, Ended: metav1.NewTime(now.Truncate(time.Second)), Message: message}
	last.Exit = int32(workflow.ExitCode(err))
	if err != nil {
		last.Message = forReaders(workflow.FailureText(err))
	}
	r.c.Capture.Log.Info("run ended", "pool", string(key), "kind", x.kind, "exit", last.Exit, "message", last.Message)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, key)
	r.ended[key] = ended{last, err, r.c.Capture.Now().Sub(x.begun)}
}
