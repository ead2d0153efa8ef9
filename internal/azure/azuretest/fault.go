package azuretest

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// A Fault is what goes wrong with the next request of that method to the resource
// or its operation's beginning; the request after it is served as usual.
type Fault struct {
	Method   string // "PUT"
	Resource fleet.ResourceID
	// Effect is what happens: "throttle", "error", "dropBefore", "dropAfter",
	// "hang", "neverEnds", "failAtEnd", "reportFailure", "reportSuccess",
	// "expireToken", "stale". Those of operations concern the one that the
	// request begins.
	Effect     string
	Status     int           // of "error"
	Code       string        // of "error" and "failAtEnd"
	RetryAfter time.Duration // of "throttle", whole seconds
}

// faults makes the same things go wrong wherever the suite runs: what the caller
// hears, by its kind, and what the world is then, is the same in one process and
// over a network. A GET is not dropped: over a network the HTTP client asks again
// by itself where a connection that was used before breaks.
func faults(t *testing.T, f Fixture) {
	if f.Fault == nil {
		t.Log("this cloud cannot be made to fail: nothing is shown of faults")
		return
	}
	disk := instances(t, f, 2)[0].OSDisk
	for _, c := range []struct {
		name  string
		fault Fault
		// kind is what the creation or deletion of a snapshot ends with, "" for
		// no error; begun says that Begin itself gave none.
		kind       fleet.Kind
		begun      bool
		retryAfter time.Duration
		// state is that of the snapshot in the end, "" where there is none.
		state string
	}{
		{name: "throttled", fault: Fault{Method: "PUT", Effect: "throttle", RetryAfter: 7 * time.Second}, kind: fleet.KindThrottled, retryAfter: 7 * time.Second},
		{name: "unavailable", fault: Fault{Method: "PUT", Effect: "error", Status: 503, Code: "ServerBusy"}, kind: fleet.KindTransient},
		{name: "forbidden", fault: Fault{Method: "PUT", Effect: "error", Status: 403, Code: "AuthorizationFailed"}, kind: fleet.KindDenied},
		{name: "look-fails", fault: Fault{Method: "GET", Effect: "error", Status: 500}, kind: fleet.KindTransient},
		{name: "dropped-before", fault: Fault{Method: "PUT", Effect: "dropBefore"}, kind: fleet.KindTransient},
		{name: "dropped-after", fault: Fault{Method: "PUT", Effect: "dropAfter"}, kind: fleet.KindTransient, state: "Succeeded"},
		{name: "hangs", fault: Fault{Method: "PUT", Effect: "hang"}, kind: fleet.KindTimedOut},
		{name: "token-expired", fault: Fault{Method: "PUT", Effect: "expireToken"}, kind: fleet.KindUnauthenticated},
		{name: "fails-at-end", fault: Fault{Method: "PUT", Effect: "failAtEnd", Code: "AllocationFailed"}, kind: fleet.KindBlocked, begun: true, state: "Failed"},
		{name: "fails-passing", fault: Fault{Method: "PUT", Effect: "failAtEnd"}, kind: fleet.KindTransient, begun: true, state: "Failed"},
		{name: "reported-failure", fault: Fault{Method: "PUT", Effect: "reportFailure"}, kind: fleet.KindTransient, begun: true, state: "Succeeded"},
		{name: "reported-success", fault: Fault{Method: "PUT", Effect: "reportSuccess"}, begun: true},
		{name: "deletion-dropped-before", fault: Fault{Method: http.MethodDelete, Effect: "dropBefore"}, kind: fleet.KindTransient, state: "Succeeded"},
		{name: "deletion-dropped-after", fault: Fault{Method: http.MethodDelete, Effect: "dropAfter"}, kind: fleet.KindTransient},
		{name: "deletion-throttled", fault: Fault{Method: http.MethodDelete, Effect: "throttle", RetryAfter: time.Second}, kind: fleet.KindThrottled, retryAfter: time.Second, state: "Succeeded"},
		{name: "deletion-fails-at-end", fault: Fault{Method: http.MethodDelete, Effect: "failAtEnd"}, kind: fleet.KindTransient, begun: true, state: "Failed"},
		{name: "deletion-reported-failure", fault: Fault{Method: http.MethodDelete, Effect: "reportFailure"}, kind: fleet.KindTransient, begun: true},
		{name: "deletion-reported-success", fault: Fault{Method: http.MethodDelete, Effect: "reportSuccess"}, begun: true, state: "Succeeded"},
	} {
		id := f.Pool.In("snapshots", c.name)
		create := fleet.CreateSnapshot{ID: id, Location: f.Location, Source: disk}
		var change fleet.Change = create
		if c.fault.Method == http.MethodDelete {
			finish(t, f, create)
			change = fleet.DeleteSnapshot{ID: id}
		}
		c.fault.Resource = id
		f.Fault(t, c.fault)
		ctx, cancel := t.Context(), context.CancelFunc(func() {})
		if c.fault.Effect == "hang" {
			ctx, cancel = context.WithTimeout(ctx, 500*time.Millisecond)
		}
		tok, err := f.Cloud.Begin(ctx, change)
		cancel()
		if (err == nil) != c.begun {
			t.Errorf("%s: Begin gives %v", c.name, err)
		}
		if err == nil {
			err = follow(t, f, f.Cloud, tok)
		}
		var e *fleet.Error
		if c.kind == "" && err != nil || c.kind != "" && !fleet.Is(err, c.kind) {
			t.Errorf("%s: %v, want kind %q", c.name, err, c.kind)
		} else if c.retryAfter > 0 && (!errors.As(err, &e) || e.RetryAfter != c.retryAfter) {
			t.Errorf("%s: %+v, want to be asked to wait %v", c.name, err, c.retryAfter)
		}
		if got := settled(t, f, id); got != c.state {
			t.Errorf("%s: the snapshot is %q, want %q", c.name, got, c.state)
		}
		// Nothing is left of it: the change, made again, does what it is for.
		finish(t, f, change)
		want := "Succeeded"
		if c.fault.Method == http.MethodDelete {
			want = ""
		}
		if got := settled(t, f, id); got != want {
			t.Errorf("%s: made again, the snapshot is %q, want %q", c.name, got, want)
		}
	}

	endless := fleet.CreateSnapshot{ID: f.Pool.In("snapshots", "endless"), Location: f.Location, Source: disk}
	f.Fault(t, Fault{Method: "PUT", Resource: endless.ID, Effect: "neverEnds"})
	tok, err := f.Cloud.Begin(t.Context(), endless)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		f.Wait(24 * time.Hour)
		if p, err := f.Cloud.Poll(t.Context(), tok); err != nil || p.Done || p.Wait <= 0 {
			t.Errorf("an operation that never ends: %+v, %v", p, err)
		}
	}

	// A look that is answered from before a change says so only once.
	finish(t, f, fleet.StopInstance{Instance: instances(t, f, 2)[1].ID})
	i := instances(t, f, 2)[1]
	f.Fault(t, Fault{Method: "GET", Resource: i.ID, Effect: "stale"})
	before := f.instance(t, i.ID) // nothing is kept yet: fresh
	finish(t, f, fleet.StartInstance{Instance: i.ID})
	f.Fault(t, Fault{Method: "GET", Resource: i.ID, Effect: "stale"})
	stale, fresh := f.instance(t, i.ID), f.instance(t, i.ID)
	if before.Power != fleet.PowerStopped || stale.Power != fleet.PowerStopped || fresh.Power != fleet.PowerRunning {
		t.Errorf("power %q, stale %q, fresh %q", before.Power, stale.Power, fresh.Power)
	}
}

// settled waits until nothing is under way on a snapshot, and gives its state, ""
// where there is none.
func settled(t *testing.T, f Fixture, id fleet.ResourceID) string {
	t.Helper()
	for range maxPolls {
		s, err := f.Another.Snapshot(t.Context(), id)
		if fleet.Is(err, fleet.KindNotFound) {
			return ""
		}
		if err != nil {
			t.Fatal(err)
		}
		switch s.ProvisioningState {
		case "Succeeded", "Failed":
			return s.ProvisioningState
		}
		f.Wait(time.Second)
	}
	t.Errorf("%s does not settle", id)
	return ""
}
