package bootstrap

import (
	"time"

	"github.com/ortet/ortet/internal/boots/verdict"
)

// serviceState is where a Windows service stands. Source: winsvc.h,
// SERVICE_STATUS_PROCESS.dwCurrentState.
type serviceState uint32

const (
	serviceMissing         serviceState = 0 // ours: there is no such service
	serviceStopped         serviceState = 1
	serviceStartPending    serviceState = 2
	serviceStopPending     serviceState = 3
	serviceRunning         serviceState = 4
	serviceContinuePending serviceState = 5
	servicePausePending    serviceState = 6
	servicePaused          serviceState = 7
)

// Exit codes of Windows itself for a service. Source: winerror.h.
const (
	errServiceTimeout  = 1053 // it did not report in time that it started
	errServiceSpecific = 1066 // the code is in another field, the service's own
	errServiceAborted  = 1067 // its process ended without saying so
	errServiceNoParent = 1068 // one that it depends on did not start
	errNeverStarted    = 1077 // since the machine's start
)

// serviceStatus is a service's state by the service control manager.
type serviceStatus struct {
	state          serviceState
	exit, specific uint32
	pid            uint32 // 0 without a process
}

// code is what the service ended with, 0 where well or not at all yet.
func (s serviceStatus) code() uint32 {
	switch s.exit {
	case errNeverStarted:
		return 0
	case errServiceSpecific:
		return s.specific
	}
	return s.exit
}

// starting reports that it is up, or about to be for the first time since it was down.
func (s serviceStatus) starting() bool {
	return s.state == serviceStartPending || s.state == serviceRunning
}

// recovery is what the service control manager does when a service ends.
// Source: winsvc.h, SERVICE_FAILURE_ACTIONS.
type recovery struct {
	restarts []bool // whether the nth end, from 0, is followed by a start
	// always means that it counts too where the service itself reported that it failed, and
	// not only where its process ended without a report.
	always bool
}

// follows reports whether a service that ended this way, for the nth time, is restarted.
func (r recovery) follows(s serviceStatus, n int) bool {
	if s.state != serviceStopped || s.code() == 0 || s.exit != errServiceAborted && !r.always || len(r.restarts) == 0 {
		return false
	}
	// The last holds for all that come after it.
	return r.restarts[min(n, len(r.restarts)-1)]
}

// serviceHistory is what became of a service since it is watched. Windows does
// not count how often a service was started, so it is counted here.
type serviceHistory struct {
	status   serviceStatus
	auto     bool      // Windows starts it by itself
	seen     bool      // it was looked at
	ran      bool      // in this boot
	restarts int       // since it is watched
	ended    time.Time // when it was first seen stopped after it ran, zero while it is not
}

// next adds an observation. Changes between two observations show in the process's number.
func (h serviceHistory) next(s serviceStatus, now time.Time) serviceHistory {
	old := h.status
	began := s.starting() && (old.state == serviceStopped || old.state == serviceStopPending || old.state == servicePaused ||
		// A wrapper such as NSSM, which is a service's process instead of it, reports these
		// states when it restarts the program.
		old.state == serviceRunning && s.state == serviceStartPending ||
		old.starting() && old.pid != 0 && s.pid != 0 && old.pid != s.pid)
	if h.seen && h.ran && began {
		h.restarts++
	}
	if s.state != serviceMissing && (s.state != serviceStopped || s.exit != errNeverStarted) {
		h.ran = true
	}
	switch {
	case s.state != serviceStopped || !h.ran:
		h.ended = time.Time{}
	case h.ended.IsZero():
		h.ended = now
	}
	h.status, h.seen = s, true
	return h
}

// unit is a service in systemd's terms, for decide. When it was started is left open: the
// process may be a wrapper's, which outlives many starts of its program.
func (h serviceHistory) unit(name string, r recovery) unitSeen {
	u := unitSeen{Unit: verdict.Unit{Name: name, Restarts: min(h.restarts, 1<<20)}}
	switch h.status.state {
	case serviceMissing:
		u.Missing = true
	case serviceRunning:
		u.Active, u.Sub = "active", "running"
	case serviceStartPending:
		u.Active, u.Sub = "activating", "start"
	case serviceContinuePending:
		u.Active, u.Sub = "activating", "continue"
	case servicePaused:
		// NSSM reports so while it waits before it restarts the program.
		u.Active, u.Sub = "activating", "paused"
	case serviceStopPending, servicePausePending:
		u.Active, u.Sub = "deactivating", "stop"
	case serviceStopped:
		u.Active, u.Sub = "inactive", "dead"
		if h.status.exit == errNeverStarted {
			u.Sub = "not-started"
			if h.auto {
				u.Active = "activating"
			}
		}
		code := h.status.code()
		if code == 0 {
			break
		}
		u.Active, u.Sub, u.Result, u.ExitCode = "failed", "failed", "exit-code", int(code)
		switch h.status.exit {
		case errServiceTimeout:
			u.Result = "timeout"
		case errServiceAborted:
			u.Result = "crash"
		case errServiceNoParent:
			u.Result = "dependency"
		}
		if r.follows(h.status, h.restarts) {
			u.Active, u.Sub = "activating", "auto-restart"
		}
	default:
		u.Active, u.Sub = "unknown", "unknown"
	}
	return u
}

// mayReboot returns until when a service that ended, as cloudbase-init does, may still have
// the machine reboot: until then its end is no evidence.
func (h serviceHistory) mayReboot(now time.Time) (until time.Time, may bool) {
	until = h.ended.Add(cloudbaseReboots)
	return until, !h.ended.IsZero() && now.Before(until)
}
