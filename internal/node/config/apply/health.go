package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// stable is how long a unit has to be active without a restart.
	stable = 10 * time.Second
	poll   = time.Second
	// DefaultDeadline is how long a machine has to become healthy.
	DefaultDeadline = 2 * time.Minute
	// maxRestarts by systemd itself end the wait before the deadline: the unit will not
	// become well.
	maxRestarts = 3
	healthzPort = 10248 // default of KubeletConfiguration's healthzPort
)

// A watched unit is one whose health counts.
type watched struct {
	name  string
	first int // restarts by systemd, when it was first seen
	seen  bool
	up    bool
}

// healthy waits until all units are, or gives why they are not.
func (r *session) healthy(ctx context.Context, p *plan, units []string) error {
	all := make([]*watched, len(units))
	for i, name := range units {
		all[i] = &watched{name: name}
	}
	deadline := r.a.o.Now().Add(r.a.o.Deadline)
	for {
		problem, err := r.observe(ctx, all)
		if err != nil {
			return err
		}
		if problem == nil {
			problem = r.lateSysctls(p)
		}
		if problem == nil && slices.Contains(units, r.h.kubelet) {
			problem = r.kubeletHealthy(ctx)
		}
		if problem == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !r.a.o.Now().Before(deadline) {
			err := fmt.Errorf("not healthy within %s: %w", r.a.o.Deadline, problem)
			for _, w := range all {
				if !w.up {
					return r.withJournal(ctx, w.name, err)
				}
			}
			if slices.Contains(units, r.h.kubelet) {
				return r.withJournal(ctx, r.h.kubelet, err)
			}
			return err
		}
		if err := r.a.o.System.Wait(ctx, poll); err != nil {
			return err
		}
	}
}

// observe looks at the units once. A problem may pass, an error does not.
func (r *session) observe(ctx context.Context, all []*watched) (problem, err error) {
	now := r.a.o.Now()
	for _, w := range all {
		s, err := r.a.o.System.Unit(ctx, w.name)
		if err != nil {
			problem = fmt.Errorf("read state of %s: %w", w.name, err)
			continue
		}
		if !w.seen {
			w.seen, w.first = true, s.Restarts
		}
		w.up = s.up()
		switch {
		case s.Active == "failed":
			return nil, r.withJournal(ctx, w.name, fmt.Errorf("%s failed", w.name))
		case s.Restarts-w.first >= maxRestarts:
			return nil, r.withJournal(ctx, w.name, fmt.Errorf("%s restarted %d times", w.name, s.Restarts-w.first))
		case !w.up:
			problem = fmt.Errorf("%s is %s", w.name, s.Active)
		case !s.Done && now.Sub(s.Since) < stable:
			problem = fmt.Errorf("%s has been active for %s only", w.name, now.Sub(s.Since))
		}
	}
	return problem, nil
}

// lateSysctls sets what boot could not, since the module was not loaded yet.
func (r *session) lateSysctls(p *plan) error {
	for key, want := range p.doc.Config.Sysctls {
		if _, ok := r.m.Sysctls[key]; ok {
			continue
		}
		is, err := r.a.o.System.Sysctl(key)
		if err == nil {
			r.m.Sysctls[key] = is
			err = r.a.o.System.SetSysctl(key, want)
		}
		if err != nil {
			return fmt.Errorf("set sysctl %s: %w", key, err)
		}
	}
	return nil
}

// kubeletHealthy asks the kubelet, and the Node: Ready, and said so since the restart. The
// old Ready stays for 40 s after a kubelet died (the node controller's grace period).
func (r *session) kubeletHealthy(ctx context.Context) error {
	if err := r.a.o.System.Healthz(ctx, healthzPort); err != nil {
		return fmt.Errorf("kubelet's health check: %w", err)
	}
	if r.a.o.Heartbeat == nil {
		return nil
	}
	ready, at, err := r.a.o.Heartbeat(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("read Node: %w", err)
	case at.Before(r.since.Truncate(time.Second)): // heartbeats have whole seconds
		return errors.New("the kubelet has sent no heartbeat to its Node since its restart")
	case !ready:
		return errors.New("the Node is not Ready")
	}
	return nil
}

// awaitKubelet waits until the kubelet has begun to start, and gives when it did: at boot
// the deadline of its health begins there.
func (r *session) awaitKubelet(ctx context.Context) (since time.Time, err error) {
	for {
		s, err := r.a.o.System.Unit(ctx, r.h.kubelet)
		switch {
		case err == nil && !s.Since.IsZero():
			return s.Since, nil
		case err == nil && s.Active != "inactive":
			return r.a.o.Now(), nil
		}
		if err := r.a.o.System.Wait(ctx, poll); err != nil {
			return since, err
		}
	}
}
