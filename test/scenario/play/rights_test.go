package play

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/test/scenario"
)

func TestRightsOfRequests(t *testing.T) {
	for _, c := range [][3]string{
		{scenario.Azure, "PUT snapshots/s", "azure write snapshots"},
		{scenario.Azure, "PATCH virtualMachineScaleSets/pool1", "azure write virtualMachineScaleSets"},
		{scenario.Azure, "GET galleries/g/images/i/versions/v", "azure read galleries/images/versions"},
		{scenario.Azure, "GET galleries/g/images/i/versions", "azure read galleries/images/versions"},
		{scenario.Azure, "POST virtualMachineScaleSets/pool1/virtualMachines/0/start", "azure action virtualMachineScaleSets/virtualMachines/start"},
		{scenario.Azure, "GET operation of PUT snapshots/s", ""},
		{scenario.Kube, "PATCH nodes/n", "kube patch nodes"},
		{scenario.Kube, "GET nodes", "kube list nodes"},
		{scenario.Kube, "POST default/pods/web-1/eviction", "kube create pods/eviction"},
		{scenario.Kube, "GET default/pods/web-1", "kube get pods"},
		{scenario.Kube, "DELETE ortet-system/pods/p", "kube delete pods"},
		{scenario.Kube, "POST ortet-system/leases", "kube create leases"},
		{scenario.Kube, "POST selfsubjectaccessreviews of get nodes", ""},
	} {
		if got := right(c[0], c[1]); got != c[2] {
			t.Errorf("%s %q: %q, want %q", c[0], c[1], got, c[2])
		}
	}
}

// A right that was taken away lacks for its time, for all requests of its kind.
func TestRightsLack(t *testing.T) {
	in(t, "pool instances=3 versions=1\ncapture\n", func(w *world) {
		w.deny(scenario.Event{Side: scenario.Azure, Request: "GET virtualMachineScaleSets/pool1/virtualMachines/0", What: scenario.Deny, Args: []string{"60"}})
		status := func(id fleet.ResourceID) int {
			answer, _ := sends(t, w, http.MethodGet, string(id), apiYear)
			return answer.StatusCode
		}
		if got := status(w.instance(1)); got != http.StatusForbidden {
			t.Errorf("another instance: %d, want 403", got)
		}
		if got := status(w.pool); got != http.StatusOK {
			t.Errorf("the scale set: %d, want 200", got)
		}
		time.Sleep(time.Minute)
		if got := status(w.instance(1)); got != http.StatusOK {
			t.Errorf("after a minute: %d, want 200", got)
		}
	})
}

func TestRulesOfRights(t *testing.T) {
	fails := func(what string) func(*world, *process) {
		return func(w *world, p *process) {
			p.forbidden, p.err = true, errors.New(what)
			w.checkDenied(p)
		}
	}
	judged(t, []ruling{
		{"a right that lacks is named", pool3, nil, nil, fails("create snapshot: 403 AuthorizationFailed"), fails("create snapshot: gone"), "and does not say so"},
	})
}
