package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

// A job is one unit's start, stop or restart.
type job struct {
	verb Verb
	unit string
}

// actions are what a change needs beside its files.
type actions struct {
	reload, certificates bool
	sysctls              map[string]string
	late                 bool // at boot: a sysctl's module is loaded later
	jobs                 []job
	// judge are the units that have to be healthy: those of jobs, and at boot the ones
	// that start later.
	judge []string
}

// unitOf returns the unit that a path below /etc/systemd/system is of; "" for none.
func unitOf(name string) string {
	rest, ok := strings.CutPrefix(name, systemUnits+"/")
	if !ok {
		return ""
	}
	first, _, _ := strings.Cut(rest, "/")
	return strings.TrimSuffix(first, ".d") // of links: "x.wants", which is no unit's name
}

// decide says what activates a change of files between two plans. When a change is undone,
// only has the units that it restarted: others need no restart. nil is for all.
func (r *session) decide(ctx context.Context, from, to *plan, changed, only []string) (actions, error) {
	a := actions{sysctls: map[string]string{}}
	touched, restart := map[string]bool{}, []string{}
	for _, name := range changed {
		if unit := unitOf(name); unit != "" {
			a.reload, touched[unit] = true, true
			for name := range to.units {
				touched[name] = touched[name] || templateOf(name) == unit
			}
		}
		restart = slices.Concat(restart, from.restart[name], to.restart[name])
		switch {
		case path.Dir(name) == certificateDir:
			a.certificates = true
			restart = append(restart, r.h.containerd, r.h.kubelet)
		case name == path.Join(r.h.kubeletDir, kubeletDropIn),
			r.h.rancher != "" && name == path.Join("/etc/rancher", r.h.rancher, "registries.yaml"):
			restart = append(restart, r.h.kubelet)
		}
	}
	if err := r.decideSysctls(from, to, &a); err != nil {
		return a, err
	}
	for _, name := range slices.Concat(to.order, from.order) {
		want := to.units[name].Started
		if before, ok := r.m.Running[name]; ok && want == nil {
			want = &before
		}
		if want == nil || a.has(name) {
			continue
		}
		s, err := r.a.o.System.Unit(ctx, name)
		switch {
		case err != nil:
			return a, err
		case !*want && !s.down():
			a.jobs = append(a.jobs, job{Stop, name})
		case *want && !touched[name] && (!s.up() || s.Done && !from.started(name)):
			a.add(Start, name, r.later(name, s))
		case *want && !s.up():
			a.add(Restart, name, r.later(name, s)) // also where systemd is about to restart it
		case *want && touched[name] && (only == nil || slices.Contains(only, name)):
			a.add(Restart, name, r.later(name, s))
		}
	}
	for _, name := range restart {
		if a.has(name) || only != nil && !slices.Contains(only, name) {
			continue
		}
		s, err := r.a.o.System.Unit(ctx, name)
		if err != nil {
			return a, err
		}
		if at, err := r.h.unitFile(name); err != nil || at == "" {
			continue // another container runtime, or a unit that went with its file
		}
		if s.Active != "inactive" || s.Done || r.later(name, s) {
			a.add(Restart, name, r.later(name, s))
		}
	}
	slices.SortStableFunc(a.jobs, func(x, y job) int { return r.rank(x) - r.rank(y) })
	return a, nil
}

// later says that the unit starts by itself after this: at boot the kubelet, and containerd
// where it does not run yet.
func (r *session) later(unit string, s UnitState) bool {
	return r.h.boot && s.Active == "inactive" && (unit == r.h.kubelet || unit == r.h.containerd)
}

// rank orders jobs: what stops, then all others, containerd, and the kubelet last.
func (r *session) rank(j job) int {
	switch {
	case j.verb == Stop:
		return 0
	case j.unit == r.h.kubelet:
		return 3
	case j.unit == r.h.containerd:
		return 2
	}
	return 1
}

func (a *actions) has(unit string) bool {
	return slices.Contains(a.judge, unit) || slices.ContainsFunc(a.jobs, func(j job) bool { return j.unit == unit })
}

func (a *actions) add(verb Verb, unit string, later bool) {
	a.judge = append(a.judge, unit)
	if !later {
		a.jobs = append(a.jobs, job{verb, unit})
	}
}

// activate does the actions. The error of a unit has the last lines of its log.
func (r *session) activate(ctx context.Context, a actions) error {
	sys := r.a.o.System
	if a.reload {
		if err := sys.Reload(ctx); err != nil {
			return err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(a.sysctls)) {
		if err := sys.SetSysctl(key, a.sysctls[key]); err != nil {
			return fmt.Errorf("set sysctl %s to %q: %w", key, a.sysctls[key], err)
		}
		r.a.o.Log.Info("set sysctl", "key", key, "value", a.sysctls[key])
	}
	if a.certificates {
		if err := sys.UpdateCACertificates(ctx); err != nil {
			return err
		}
	}
	for _, j := range a.jobs {
		r.a.o.Log.Info("change unit", "verb", j.verb, "unit", j.unit)
		r.done = append(r.done, j.unit)
		if j.unit == r.h.kubelet {
			r.since = r.a.o.Now()
		}
		if err := r.control(ctx, j); err != nil {
			return r.withJournal(ctx, j.unit, fmt.Errorf("%s %s: %w", j.verb, j.unit, err))
		}
	}
	return nil
}

// control ends by the deadline of health: some units may start for as long as they like.
func (r *session) control(ctx context.Context, j job) error {
	ctx, cancel := context.WithTimeout(ctx, r.a.o.Deadline)
	defer cancel()
	return r.a.o.System.Control(ctx, j.verb, j.unit, !r.h.boot)
}

// withJournal adds the last lines of a unit's log to an error.
func (r *session) withJournal(ctx context.Context, unit string, err error) error {
	lines := r.a.o.System.Journal(context.WithoutCancel(ctx), unit)
	if len(lines) == 0 {
		return err
	}
	return fmt.Errorf("%w%s%s", err, wire.ConfigurationLog, strings.Join(lines, " | "))
}

func (r *session) decideSysctls(from, to *plan, a *actions) error {
	old, next := from.doc.Config.Sysctls, to.doc.Config.Sysctls
	for _, keys := range [...]map[string]string{old, next} {
		for key := range keys {
			want, ok := next[key]
			if !ok {
				if want, ok = r.m.Sysctls[key]; !ok {
					continue
				}
			}
			if before, had := old[key]; had && before == want {
				continue
			}
			is, err := r.a.o.System.Sysctl(key)
			switch {
			case r.h.boot && errors.Is(err, fs.ErrNotExist):
				a.late = true
			case err != nil:
				return fmt.Errorf("read sysctl %s: %w", key, err)
			case !slices.Equal(strings.Fields(is), strings.Fields(want)):
				a.sysctls[key] = want
			}
		}
	}
	return nil
}
