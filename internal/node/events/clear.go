package events

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

// Server is the admission server, as a node that goes needs it: package join. It is
// used by one goroutine at a time.
type Server interface {
	// Leave has the server cordon and drain this node within the request's time, and
	// returns when that is over. Asking again is harmless, also with less time.
	Leave(ctx context.Context, r wire.LeaveRequest) (wire.Leave, error)
	// Hold keeps the machine from joining, where it has not yet, until Release or
	// another boot: one that is about to go is no node any more. Again each is harmless.
	Hold() error
	Release() error
	// Depart blocks joining, stops the node's agent and what would make it join, and
	// reports to the server that the agent is stopped for good. It is idempotent.
	Depart(ctx context.Context, cause string) error
	// Back makes the server undo what Leave marked on the Node; an unmarked Node is no
	// error. A server that cannot do so returns errors.ErrUnsupported.
	Back(ctx context.Context) error
	// Rejoin releases the machine, and starts what Depart stopped.
	Rejoin(ctx context.Context) error
}

const (
	// glance bounds the read of whether the server has begun.
	glance = 500 * time.Millisecond
	// maxWithin is a server's maximum drain time (wire.LeaveRequest), in seconds.
	maxWithin = 15 * 60
)

// margin is what of the time that is left is kept for what comes after draining:
// stopping the agent, and telling the server and Azure.
func margin(do Do, left time.Duration) time.Duration {
	if do == Leave {
		return min(max(left/6, time.Second), 30*time.Second)
	}
	return min(max(left/12, time.Second), 15*time.Second)
}

// share is how long the server is waited for before the node helps itself: 2 s of
// the 30 s of a Preempt.
func share(left time.Duration) time.Duration {
	return min(max(left/15, time.Second), 15*time.Second)
}

// clearer cordons and drains this node.
type clearer struct {
	server     Server // nil where there is none
	kubernetes *kubernetes
	now        func() time.Time // Azure's
	log        *slog.Logger
}

// clear cordons or drains, by the action's Do.
func (c *clearer) clear(ctx context.Context, a Action) Outcome {
	if a.Do == Cordon {
		err := c.kubernetes.cordon(ctx, a.Type, true, c.now())
		return Outcome{Action: a, Err: err, Done: err == nil, By: ByKubelet}
	}
	if a.Do == Leave && c.server != nil {
		if err := c.server.Hold(); err != nil { // Depart asks for it again
			c.log.Warn("the machine could not be kept from joining", "event", a.ID, "error", err)
		}
	}
	left := a.Until.Sub(c.now())
	until := a.Until.Add(-margin(a.Do, left))
	ctx, cancel := context.WithTimeout(ctx, max(until.Sub(c.now()), time.Second))
	defer cancel()
	d := drainage{clearer: c, action: a, until: until, left: left}
	o := d.run(ctx)
	o.Action = a
	return o
}

// begun reports whether the admission server has marked the Node.
func (c *clearer) begun(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, glance)
	defer cancel()
	n, err := c.kubernetes.read(ctx)
	_, marked := n.marked()
	return err == nil && marked
}

// giveBack undoes what was changed at the machine, and at the Node: by itself, and by
// the server where that has put its taint there.
func (c *clearer) giveBack(ctx context.Context) error {
	err := c.kubernetes.restore(ctx)
	if c.server == nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // no kubelet in this boot or before: the Node is not marked
		}
		return err
	}
	released := c.server.Release()
	if err != nil {
		if byServer := c.server.Back(ctx); byServer != nil {
			return errors.Join(released, err, byServer)
		}
	}
	return released
}

// A drainage is one drain: by the server, and where that does not seem to be at it
// by the node itself. Both may work at once: each pod ends once.
type drainage struct {
	*clearer
	action Action
	until  time.Time
	left   time.Duration
}

// run is bounded by ctx.
func (d *drainage) run(ctx context.Context) Outcome {
	ctx, cancel := context.WithCancel(ctx)
	var at sync.WaitGroup
	defer at.Wait() // the next action must not use the server concurrently
	defer cancel()
	answers := make(chan Outcome, 2)
	open, helping := 0, false
	start := func(drain func(context.Context) Outcome) {
		open++
		at.Go(func() { answers <- drain(ctx) })
	}
	help := func(why string) {
		if helping || ctx.Err() != nil || d.until.Sub(d.now()) < look {
			return
		}
		helping = true
		d.log.Info("the node drains itself", "event", d.action.ID, "why", why)
		start(d.byKubelet)
	}
	if d.server != nil {
		start(d.byServer)
	} else {
		help("there is no admission server")
	}
	overdue, halfway := time.NewTimer(share(d.left)), time.NewTimer(d.left/2)
	defer overdue.Stop()
	defer halfway.Stop()
	var failed error
	var last *Outcome
	for open > 0 {
		select {
		case o := <-answers:
			open--
			if o.Err != nil {
				failed = errors.Join(failed, o.Err)
				help(o.Err.Error())
				continue
			}
			if o.Done {
				return o
			}
			last = &o
			help("pods are left")
		case <-overdue.C:
			if !d.begun(ctx) {
				help("the admission server has not begun")
			}
		case <-halfway.C:
			help("half of the time is over")
		}
	}
	if last == nil {
		return Outcome{Err: failed}
	}
	return *last
}

// byServer asks the server to drain the node.
func (d *drainage) byServer(ctx context.Context) Outcome {
	seconds := int(d.until.Sub(d.now()) / time.Second)
	r := wire.LeaveRequest{Cause: string(d.action.Type), Within: min(max(seconds, 1), maxWithin), Stay: d.action.Do != Leave}
	d.log.Info("asking the admission server to drain the node", "event", d.action.ID, "type", string(d.action.Type), "within", r.Within)
	answer, err := d.server.Leave(ctx, r)
	return Outcome{Err: err, Done: answer.Drained, By: ByServer, Left: answer.Left}
}

// byKubelet drains the node with the kubelet's credentials.
func (d *drainage) byKubelet(ctx context.Context) Outcome {
	// Pods are evicted even if the cordon is refused; pods that arrive meanwhile are
	// evicted next.
	cordoned := d.kubernetes.cordon(ctx, d.action.Type, d.action.Do != Leave, d.now())
	if cordoned != nil {
		d.log.Warn("the node cannot cordon itself", "error", cordoned)
	}
	var first sync.Once
	left, err := d.kubernetes.drain(ctx, d.until, d.now, func(pod string) {
		first.Do(func() { d.log.Info("the first pod was told to end", "event", d.action.ID, "pod", pod) })
	})
	if err != nil {
		return Outcome{Err: errors.Join(cordoned, err)}
	}
	return Outcome{Done: len(left) == 0 && cordoned == nil, By: ByKubelet, Left: left, Err: cordoned}
}
