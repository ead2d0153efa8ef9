package bootstrap

import (
	"testing"
	"time"
)

// unitWords are a unit's state in a line.
func unitWords(u unitSeen) string {
	if u.Missing {
		return "missing"
	}
	words := u.Active + "/" + u.Sub
	if u.Result != "" {
		words += " " + u.Result
	}
	return words
}

func TestServiceInSystemdsWords(t *testing.T) {
	restart := recovery{restarts: []bool{true, false}}
	for _, c := range []struct {
		name   string
		status serviceStatus
		auto   bool
		r      recovery
		want   string
		code   int
	}{
		{"no such service", serviceStatus{}, false, recovery{}, "missing", 0},
		{"running", serviceStatus{state: serviceRunning, pid: 4}, false, recovery{}, "active/running", 0},
		{"starting", serviceStatus{state: serviceStartPending}, false, recovery{}, "activating/start", 0},
		{"stopping", serviceStatus{state: serviceStopPending}, false, recovery{}, "deactivating/stop", 0},
		{"a wrapper waits", serviceStatus{state: servicePaused}, false, recovery{}, "activating/paused", 0},
		{"stopped well", serviceStatus{state: serviceStopped}, true, restart, "inactive/dead", 0},
		{"never started", serviceStatus{state: serviceStopped, exit: errNeverStarted}, false, restart, "inactive/not-started", 0},
		{"to be started", serviceStatus{state: serviceStopped, exit: errNeverStarted}, true, restart, "activating/not-started", 0},
		{"its own code", serviceStatus{state: serviceStopped, exit: errServiceSpecific, specific: 7}, false, recovery{}, "failed/failed exit-code", 7},
		{"its own code, none", serviceStatus{state: serviceStopped, exit: errServiceSpecific}, false, recovery{}, "inactive/dead", 0},
		{"another code", serviceStatus{state: serviceStopped, exit: 5}, false, restart, "failed/failed exit-code", 5},
		{"another code, which counts", serviceStatus{state: serviceStopped, exit: 5}, false, recovery{restarts: []bool{true}, always: true}, "activating/auto-restart exit-code", 5},
		{"not in time", serviceStatus{state: serviceStopped, exit: errServiceTimeout}, false, recovery{}, "failed/failed timeout", errServiceTimeout},
		{"killed", serviceStatus{state: serviceStopped, exit: errServiceAborted}, false, recovery{}, "failed/failed crash", errServiceAborted},
		{"killed, and started anew", serviceStatus{state: serviceStopped, exit: errServiceAborted}, false, restart, "activating/auto-restart crash", errServiceAborted},
		{"what it needs failed", serviceStatus{state: serviceStopped, exit: errServiceNoParent}, false, recovery{}, "failed/failed dependency", errServiceNoParent},
		{"an NTSTATUS", serviceStatus{state: serviceStopped, exit: 0xC0000005}, false, recovery{}, "failed/failed exit-code", 0xC0000005},
		{"unknown", serviceStatus{state: 99}, false, recovery{}, "unknown/unknown", 0},
	} {
		h := serviceHistory{auto: c.auto}.next(c.status, time.Unix(1, 0))
		u := h.unit("x", c.r)
		if got := unitWords(u); got != c.want || u.ExitCode != c.code || u.Name != "x" {
			t.Errorf("%s: %s with code %d, want %s with %d", c.name, got, u.ExitCode, c.want, c.code)
		}
	}
}

func TestServiceRestartsAreCounted(t *testing.T) {
	run := func(pid uint32) serviceStatus { return serviceStatus{state: serviceRunning, pid: pid} }
	in := func(s serviceState) serviceStatus { return serviceStatus{state: s, pid: 4} }
	stopped := serviceStatus{state: serviceStopped}
	never := serviceStatus{state: serviceStopped, exit: errNeverStarted}
	for _, c := range []struct {
		name string
		seen []serviceStatus
		want int
	}{
		{"it runs", []serviceStatus{run(4), run(4)}, 0},
		{"its first start", []serviceStatus{never, in(serviceStartPending), run(4)}, 0},
		{"created and started", []serviceStatus{{}, never, run(4)}, 0},
		{"ran before we looked", []serviceStatus{stopped, in(serviceStartPending), run(4)}, 1},
		{"stopped and started", []serviceStatus{run(4), in(serviceStopPending), stopped, in(serviceStartPending), run(4)}, 1},
		{"stopped and started between two looks", []serviceStatus{run(4), run(8), run(12)}, 2},
		{"while it starts", []serviceStatus{never, {state: serviceStartPending, pid: 4}, {state: serviceStartPending, pid: 8}}, 1},
		{"no process yet", []serviceStatus{never, {state: serviceStartPending}, run(4)}, 0},
		{"a wrapper waits and starts it anew", []serviceStatus{run(4), in(servicePaused), in(serviceStartPending), run(4), in(servicePaused), run(4)}, 2},
		{"a wrapper starts it anew", []serviceStatus{run(4), in(serviceStartPending), run(4)}, 1},
		{"paused and continued by somebody", []serviceStatus{run(4), in(servicePausePending), in(servicePaused), in(serviceContinuePending), run(4)}, 0},
	} {
		var h serviceHistory
		for _, s := range c.seen {
			h = h.next(s, time.Unix(1, 0))
		}
		if h.restarts != c.want {
			t.Errorf("%s: %d restarts, want %d", c.name, h.restarts, c.want)
		}
	}
}

func TestRecoveryFollows(t *testing.T) {
	crash := serviceStatus{state: serviceStopped, exit: errServiceAborted}
	r := recovery{restarts: []bool{true, true, false}}
	for n, want := range []bool{true, true, false, false} {
		if got := r.follows(crash, n); got != want {
			t.Errorf("after %d: %t", n, got)
		}
	}
	if r.follows(serviceStatus{state: serviceRunning}, 0) || (recovery{}).follows(crash, 0) {
		t.Error("a start follows what it does not")
	}
}

// A service that ends to have the machine reboot has not ended the boot.
func TestServiceMayReboot(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	h := serviceHistory{}.next(serviceStatus{state: serviceStopped, exit: errNeverStarted}, at(0))
	if _, may := h.mayReboot(at(1)); may {
		t.Error("one that never ran")
	}
	h = h.next(serviceStatus{state: serviceRunning}, at(1)).next(serviceStatus{state: serviceStopped}, at(10)).next(serviceStatus{state: serviceStopped}, at(20))
	end := at(10).Add(cloudbaseReboots)
	if until, may := h.mayReboot(end.Add(-1)); !may || !until.Equal(end) {
		t.Errorf("until %v, %t", until, may)
	}
	if _, may := h.mayReboot(end); may {
		t.Errorf("ended at %v", h.ended)
	}
	if _, may := h.next(serviceStatus{state: serviceRunning}, at(30)).mayReboot(at(31)); may {
		t.Error("one that runs")
	}
}
