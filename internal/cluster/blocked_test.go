package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

func TestBlockedErrorNamesPodsAndBudgets(t *testing.T) {
	one := &cluster.BlockedError{Node: "n", Pods: []fleet.BlockedPod{{Pod: "ns/db", Budget: "ns/b", Why: "it needs 1 healthy pod"}}}
	if got, want := one.Error(), "a pod of node n cannot be evicted: ns/db (PodDisruptionBudget ns/b): it needs 1 healthy pod"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	many := &cluster.BlockedError{Node: "n"}
	for i := range 12 {
		many.Pods = append(many.Pods, fleet.BlockedPod{Pod: fmt.Sprintf("ns/p%d", i)})
	}
	got := many.Error()
	if !strings.HasPrefix(got, "12 pods of node n cannot be evicted: ns/p0; ns/p1") || !strings.HasSuffix(got, "ns/p9; and 2 more") {
		t.Errorf("%s", got)
	}
}
