package conversion_test

import (
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/cluster/conversion"
	"github.com/ortet/ortet/internal/fleet"
)

// TestNodeDevices keeps extended resources alone: they have a domain, and it is not kubernetes.io.
func TestNodeDevices(t *testing.T) {
	list := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{"cpu", "hugepages-2Mi", "attachable-volumes-azure-disk", "kubernetes.io/batch", "x.kubernetes.io/y", "nvidia.com/gpu"} {
		list[name] = resource.MustParse("2")
	}
	if got := conversion.Node(&corev1.Node{Status: corev1.NodeStatus{Allocatable: list}}).Devices; !maps.Equal(got, map[string]int64{"nvidia.com/gpu": 2}) {
		t.Errorf("devices %v", got)
	}
}

// TestNodeConditions keeps what a Node's conditions say, and by whom: a controller that lost the
// kubelet writes Unknown, which is no report of the kubelet's.
func TestNodeConditions(t *testing.T) {
	since, written := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC), time.Date(2026, 1, 2, 4, 0, 0, 0, time.UTC)
	condition := func(kind, status, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: corev1.NodeConditionType(kind), Status: corev1.ConditionStatus(status), Reason: reason, Message: message,
			LastTransitionTime: metav1.NewTime(since), LastHeartbeatTime: metav1.NewTime(written)}
	}
	const notYet = "its kubelet has not reported yet"
	for name, c := range map[string]struct {
		of       []corev1.NodeCondition
		ready    bool
		since    time.Time
		why      string
		reported time.Time
		other    []fleet.Condition
	}{
		"none":               {why: notYet},
		"Ready":              {of: []corev1.NodeCondition{condition("Ready", "True", "KubeletReady", "posting")}, ready: true, since: since, reported: written},
		"not Ready":          {of: []corev1.NodeCondition{condition("Ready", "False", "KubeletNotReady", "no CNI")}, since: since, why: "KubeletNotReady: no CNI", reported: written},
		"not Ready, no word": {of: []corev1.NodeCondition{condition("Ready", "False", "", "")}, since: since, why: "its kubelet gives no reason", reported: written},
		"silent":             {of: []corev1.NodeCondition{condition("Ready", "Unknown", "NodeStatusUnknown", "")}, since: since, why: "NodeStatusUnknown"},
		"another": {of: []corev1.NodeCondition{condition("ortet.io/BootSucceeded", "True", "Booted", "in 40s")}, why: notYet,
			other: []fleet.Condition{{Type: "ortet.io/BootSucceeded", Status: "True", Reason: "Booted", Message: "in 40s", Since: since, Written: written}}},
	} {
		n := conversion.Node(&corev1.Node{Status: corev1.NodeStatus{Conditions: c.of}})
		if n.Ready != c.ready || !n.ReadySince.Equal(c.since) || n.NotReadyWhy != c.why || !n.Reported.Equal(c.reported) {
			t.Errorf("%s: %+v", name, n)
		}
		if len(n.Conditions) != len(c.other) || len(c.other) > 0 && n.Conditions[0] != c.other[0] {
			t.Errorf("%s: %+v, want %+v", name, n.Conditions, c.other)
		}
	}
}
