// Package clustertest is the contract of cluster.Cluster as a suite, which runs
// on a real API server and on whatever stands in for one. It asserts what is in
// the cluster afterwards, not which requests were sent. Its last part asks the
// API server itself what implementations rely on. RunFaults has requests meet
// faults, and gives what comes of each.
//
// The suite plays the kubelet of the nodes that it makes; nothing else may. The
// cluster needs Kubernetes' own controllers for disruption budgets, DaemonSets
// and service accounts.
package clustertest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

// Setup is the implementation under test and the cluster that it works on.
type Setup struct {
	// Admin may do everything: the suite makes and looks at objects by it.
	Admin *rest.Config
	// Namespace holds Ortet's own objects, and exists.
	Namespace string
	// Tests is a namespace of canaries' tests, and exists.
	Tests string
	// Open gives the implementation, each time as another process would have
	// it, with the clock given.
	Open func(t *testing.T, now func() time.Time) cluster.Cluster
	// Print makes what a job's container printed readable as the pod's log. nil
	// means that the API server asks the node's kubelet, which the suite plays.
	Print func(t *testing.T, namespace, pod, output string)
	// ServeMachines begins to serve Cluster API's Machines under
	// cluster.x-k8s.io/v1beta1, until the test ends.
	ServeMachines func(t *testing.T)
	// Within runs one test of the suite: in a bubble of testing/synctest, say,
	// if nothing that the implementation waits for is outside. nil runs it as it
	// is.
	Within func(t *testing.T, test func(t *testing.T))
}

// patience bounds what the suite waits for in the cluster.
const patience = 60 * time.Second

// world is one test's view.
type world struct {
	*testing.T
	ctx     context.Context
	setup   Setup
	admin   kubernetes.Interface
	dynamic dynamic.Interface
	name    string // unique for the test: names of nodes and namespaces begin with it
	under   cluster.Cluster
}

// A suite is one run, in which every test has a world of its own.
type suite struct {
	setup   Setup
	admin   kubernetes.Interface
	dynamic dynamic.Interface
	run     int64
	count   atomic.Int64
}

func (s Setup) connect() (*suite, error) {
	admin, err := kubernetes.NewForConfig(s.Admin)
	if err != nil {
		return nil, err
	}
	untyped, err := dynamic.NewForConfig(s.Admin)
	if err != nil {
		return nil, err
	}
	return &suite{setup: s, admin: admin, dynamic: untyped, run: time.Now().UnixNano() % 1e9}, nil
}

// within runs one test.
func (s *suite) within(t *testing.T, test func(*world)) {
	t.Helper()
	within := s.setup.Within
	if within == nil {
		within = func(t *testing.T, test func(*testing.T)) { test(t) }
	}
	within(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
		defer cancel()
		w := &world{T: t, ctx: ctx, setup: s.setup, admin: s.admin, dynamic: s.dynamic, name: fmt.Sprintf("ct-%d-%d", s.run, s.count.Add(1))}
		w.under = s.setup.Open(t, time.Now)
		test(w)
	})
}

// Run runs the suite.
func Run(t *testing.T, setup Setup) {
	t.Helper()
	s, err := setup.connect()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		test func(*world)
	}{
		{"Nodes/NotFound", nodeNotFound},
		{"Nodes/Read", nodeRead},
		{"Nodes/Walk", nodesWalk},
		{"Nodes/Annotate", nodeAnnotate},
		{"Nodes/AnnotatedByTwo", nodeAnnotatedByTwo},
		{"Nodes/Cordon", nodeCordon},
		{"Pods/Read", podsRead},
		{"Drain/Leaves", drainLeaves},
		{"Drain/LeavesNamed", drainLeavesNamed},
		{"Drain/Uncordoned", drainUncordoned},
		{"Drain/Budget", drainBudget},
		{"Drain/BudgetLifted", drainBudgetLifted},
		{"Drain/Successor", drainSuccessor},
		{"Drain/Cancelled", drainCancelled},
		{"Drain/Forced", drainForced},
		{"Drain/Unmanaged", drainUnmanaged},
		{"Drain/TwoBudgets", drainTwoBudgets},
		{"Drain/Stuck", drainStuck},
		{"Drain/EvictionBlockers", drainEvictionBlockers},
		{"Drain/AnotherNode", drainAnotherNode},
		{"Drain/FitLeaves", drainFitLeaves},
		{"Drain/FitCuts", drainFitCuts},
		{"Drain/FitBudget", drainFitBudget},
		{"Drain/FitHeld", drainFitHeld},
		{"Drain/FitAnotherNode", drainFitAnotherNode},
		{"Jobs/Life", jobLife},
		{"Jobs/ReadOnly", jobReadOnly},
		{"Jobs/Output", jobOutput},
		{"Jobs/Stuck", jobStuck},
		{"Jobs/Forced", jobForced},
		{"Jobs/Lost", jobLost},
		{"Jobs/Foreign", jobForeign},
		{"Machines/Unknown", machineUnknown},
		{"Machines/Annotate", machineAnnotate},
		{"NodeTests/Life", nodeTestLife},
		{"SecretStore/Keeps", storeKeeps},
		{"SecretStore/NeverOverwrites", storeNeverOverwrites},
		{"SecretStore/MakesRoom", storeMakesRoom},
		{"Leases/One", leaseOne},
		{"Leases/Race", leaseRace},
		{"Leases/Watched", leaseWatched},
		{"Leases/LongDead", leaseLongDead},
		{"Neighbours/NoKured", kuredAbsent},
		{"Neighbours/Kured", kuredLock},
		{"Neighbours/KuredOfSeveral", kuredSeveral},
		{"Accesses/Denied", accessesDenied},
		{"Recorder/Event", recorderEvent},
		{"Server/Create", serverCreate},
		{"Server/Update", serverUpdate},
		{"Server/Patch", serverPatch},
		{"Server/List", serverList},
		{"Server/Delete", serverDelete},
		{"Server/Evict", serverEvict},
		{"Server/Daemons", serverDaemons},
		{"Server/Watch", serverWatch},
		{"Server/Machines", serverMachines},
	} {
		t.Run(c.name, func(t *testing.T) { s.within(t, c.test) })
	}
}

// must ends the test on an error.
func (w *world) must(err error, what string) {
	w.Helper()
	if err != nil {
		w.Fatalf("%s: %v", what, err)
	}
}

// wantKind ends the test where the error is not of the kind.
func (w *world) wantKind(err error, kind fleet.Kind, what string) {
	w.Helper()
	if !fleet.Is(err, kind) {
		w.Fatalf("%s: got %v (kind %q), want kind %q", what, err, fleet.KindOf(err), kind)
	}
}

// eventually waits until check is content.
func (w *world) eventually(what string, check func() (string, bool)) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	for {
		last, ok := check()
		if ok {
			return
		}
		timer := time.NewTimer(50 * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			w.Fatalf("%s does not happen: %s", what, last)
		}
	}
}

// node makes a Ready node, which is deleted after the test with what is on it.
func (w *world) node(suffix string, change func(*corev1.Node)) string {
	w.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: w.name + suffix, Labels: map[string]string{corev1.LabelHostname: w.name + suffix}},
		Spec:       corev1.NodeSpec{ProviderID: "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/pool1/virtualMachines/3"},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64", BootID: "boot", MachineID: "machine", OSImage: "Debian", KubeletVersion: "v1.36.3"},
			Capacity: corev1.ResourceList{corev1.ResourcePods: quantity("500"), corev1.ResourceCPU: quantity("16"), corev1.ResourceMemory: quantity("64Gi")},
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
			}},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.4"}},
		},
	}
	node.Status.Allocatable = node.Status.Capacity
	if change != nil {
		change(node)
	}
	made, err := w.admin.CoreV1().Nodes().Create(w.ctx, node, metav1.CreateOptions{})
	w.must(err, "make node")
	w.Cleanup(func() {
		err := w.admin.CoreV1().Nodes().Delete(context.WithoutCancel(w.ctx), made.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			w.Errorf("clean up node %s: %v", made.Name, err)
		}
	})
	node.Status.DeepCopyInto(&made.Status)
	_, err = w.admin.CoreV1().Nodes().UpdateStatus(w.ctx, made, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		// The node lifecycle controller has put a taint on it.
		w.eventually("node status", func() (string, bool) {
			made, err = w.admin.CoreV1().Nodes().Get(w.ctx, made.Name, metav1.GetOptions{})
			if err == nil {
				node.Status.DeepCopyInto(&made.Status)
				_, err = w.admin.CoreV1().Nodes().UpdateStatus(w.ctx, made, metav1.UpdateOptions{})
			}
			return fmt.Sprint(err), err == nil
		})
		err = nil
	}
	w.must(err, "report node status")
	return made.Name
}

// readNode returns the node as the API server has it.
func (w *world) readNode(name string) *corev1.Node {
	w.Helper()
	node, err := w.admin.CoreV1().Nodes().Get(w.ctx, name, metav1.GetOptions{})
	w.must(err, "read node")
	return node
}

// names lists what is on the node, sorted, without namespaces.
func (w *world) podsOn(node string) string {
	w.Helper()
	list, err := w.admin.CoreV1().Pods("").List(w.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	w.must(err, "list pods")
	var names []string
	for _, pod := range list.Items {
		names = append(names, pod.Name)
	}
	return strings.Join(names, " ")
}
