//go:build e2e

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/controlplane"
	"github.com/ortet/ortet/test/port"
)

// A site is a cluster with the controller's namespace and a user who may do what
// the controller's rules say and nothing else.
type site struct {
	admin   kubernetes.Interface
	dynamic dynamic.Interface
	user    *rest.Config
	as      func(controlplane.Client) (*rest.Config, error)
	space   string
	cloud   *cloud
	lift    time.Duration // --lift-after; 0 is without --lift-taint
}

func newSite(t *testing.T) *site {
	t.Helper()
	// Its own, so that it may be played again; there are no kubelets to report.
	cp := controlplane.Run(t, controlplane.Config{NodeMonitorGracePeriod: 24 * time.Hour})
	config, err := cp.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	s := &site{space: "ortet-test", as: cp.RESTConfigFor, admin: cp.Admin(t), cloud: &cloud{logs: map[fleet.ResourceID]string{}}}
	if s.dynamic, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{s.space, "machines"} {
		if _, err := s.admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	by := map[string][]rbacv1.PolicyRule{}
	for _, r := range Rules(s.space) {
		by[r.Namespace] = append(by[r.Namespace], rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, ResourceNames: r.Names, Verbs: r.Verbs})
	}
	s.user = cp.Grant(t.Context(), t, "ortet-controller", by)
	return s
}

// start runs a controller until the returned function is called, which says where
// its metrics are.
func (s *site) start(t *testing.T, name string) (metrics string, stop func()) {
	t.Helper()
	metrics = fmt.Sprintf("127.0.0.1:%d", port.Free(t))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	log := &logged{t: t}
	go func() {
		ended <- Run(ctx, Config{
			REST: s.user, Namespace: s.space, Identity: name, Boots: s.cloud, Budget: NewBudget(6000, time.Now), Groups: []fleet.ResourceID{somePool.Group()},
			Interval: time.Second, FirstPods: true, Metrics: metrics, Elect: true, LiftTaint: s.lift > 0, LiftAfter: s.lift,
			Log: slog.New(slog.NewTextHandler(log, nil)),
		})
	}()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("the controller ended: %v", err)
			}
			log.close()
		})
	}
	t.Cleanup(stop)
	return metrics, stop
}

// logged takes a controller's log, and finds what it was denied.
type logged struct {
	mu     sync.Mutex
	t      *testing.T
	closed bool
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.t.Log(strings.TrimRight(string(p), "\n"))
		if strings.Contains(string(p), "forbidden") {
			l.t.Error("the documented permissions do not suffice")
		}
	}
	return len(p), nil
}

func (l *logged) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// until waits for a state of the world.
func until(t *testing.T, what string, is func() (bool, error)) {
	t.Helper()
	deadline := time.After(5 * time.Minute)
	for {
		ok, err := is()
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			t.Fatalf("%s: %v", what, err)
		}
		if ok {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("never: %s (%v)", what, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// machine puts an instance in the cloud, and a Node where ready is not nil.
func (s *site) machine(t *testing.T, n int, ready *bool, change ...func(*fleet.Boot)) fleet.Boot {
	t.Helper()
	b := aBoot(append([]func(*fleet.Boot){func(b *fleet.Boot) {
		b.Instance, b.Name = somePool.Child("virtualMachines", fmt.Sprint(n)), fmt.Sprintf("pool1_%d", n)
		b.HostName, b.VMID = fmt.Sprintf("pool100000%d", n), fmt.Sprintf("%d1111111-2222-4333-8444-555555555555", n)
		b.Created = time.Now().Add(-3 * time.Minute).Truncate(time.Second)
	}}, change...)...)
	s.cloud.mu.Lock()
	s.cloud.boots = append(s.cloud.boots, b)
	s.cloud.mu.Unlock()
	if ready != nil {
		s.node(t, b, *ready)
	}
	return b
}

func (s *site) node(t *testing.T, b fleet.Boot, ready bool) {
	t.Helper()
	name := strings.ToLower(b.HostName)
	nodes := s.admin.CoreV1().Nodes()
	_, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: "azure://" + strings.ToLower(string(b.Instance))}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nodes.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}) })
	c := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", LastTransitionTime: metav1.Now(), LastHeartbeatTime: metav1.Now()}
	if ready {
		c.Status, c.Reason = corev1.ConditionTrue, "KubeletReady"
	}
	s.asKubelet(t, name, corev1.NodeStatus{Conditions: []corev1.NodeCondition{c}, NodeInfo: corev1.NodeSystemInfo{BootID: "boot-a", SystemUUID: b.VMID}})
}

// asKubelet merges into a Node's status as the kubelet does: without the version of what it
// read, since controllers write to the Node as well.
func (s *site) asKubelet(t *testing.T, node string, status corev1.NodeStatus) {
	t.Helper()
	patch := map[string]any{"conditions": status.Conditions}
	if status.NodeInfo.BootID != "" {
		patch["nodeInfo"] = map[string]any{"bootID": status.NodeInfo.BootID}
		if id := status.NodeInfo.SystemUUID; id != "" {
			patch["nodeInfo"] = map[string]any{"bootID": status.NodeInfo.BootID, "systemUUID": id}
		}
	}
	body, err := json.Marshal(map[string]any{"status": patch})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.admin.CoreV1().Nodes().PatchStatus(t.Context(), node, body); err != nil {
		t.Fatal(err)
	}
}

func (s *site) nodeCondition(t *testing.T, b fleet.Boot) (corev1.NodeCondition, error) {
	n, err := s.admin.CoreV1().Nodes().Get(t.Context(), strings.ToLower(b.HostName), metav1.GetOptions{})
	if err != nil {
		return corev1.NodeCondition{}, err
	}
	if c := conditionOf(n); c != nil {
		return *c, nil
	}
	return corev1.NodeCondition{}, nil
}

func (s *site) hasNodeCondition(t *testing.T, b fleet.Boot, status corev1.ConditionStatus, reason string) {
	t.Helper()
	until(t, fmt.Sprintf("%s has the condition %s, %s", b.HostName, status, reason), func() (bool, error) {
		c, err := s.nodeCondition(t, b)
		return c.Status == status && c.Reason == reason, err
	})
}

// scrape reads a controller's metrics.
func scrape(t *testing.T, metrics string) string {
	t.Helper()
	resp, err := http.Get("http://" + metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// installCRDs puts in Cluster API's CRDs, from its module, and its Azure
// provider's.
func (s *site) installCRDs(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "sigs.k8s.io/cluster-api")
	cmd.Dir = "../../../hack/crds"
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("get Cluster API's module: %v\n%s", err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	files := []string{
		filepath.Join(module.Dir, "core/config/crd/bases/cluster.x-k8s.io_machines.yaml"),
		filepath.Join(module.Dir, "core/config/crd/bases/cluster.x-k8s.io_machinehealthchecks.yaml"),
		"testdata/crds/infrastructure.cluster.x-k8s.io_azuremachines.yaml",
		"testdata/crds/infrastructure.cluster.x-k8s.io_azuremachinepoolmachines.yaml",
	}
	for _, f := range files {
		s.installCRD(t, f)
	}
}

func (s *site) installCRD(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &u.Object); err != nil {
		t.Fatal(err)
	}
	kind := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	crds := s.dynamic.Resource(kind)
	if _, err := crds.Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, u.GetName()+" is served", func() (bool, error) {
		got, err := crds.Get(t.Context(), u.GetName(), metav1.GetOptions{})
		return err == nil && hasCondition(got, "Established", "True"), err
	})
}

func conditionIn(u *unstructured.Unstructured, kind string) map[string]any {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range list {
		if m, ok := c.(map[string]any); ok && m["type"] == kind {
			return m
		}
	}
	return nil
}

func hasCondition(u *unstructured.Unstructured, kind, status string) bool {
	return conditionIn(u, kind)["status"] == status
}

func (s *site) create(t *testing.T, resource schema.GroupVersionResource, text, status string) {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	in := s.dynamic.Resource(resource).Namespace("machines")
	u, err := in.Create(t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if status == "" {
		return
	}
	var st map[string]any
	if err := yaml.Unmarshal([]byte(status), &st); err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(map[string]any{"status": st})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Patch(t.Context(), u.GetName(), types.MergePatchType, body, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

var (
	machines     = schema.GroupVersionResource{Group: machineGroup, Version: "v1beta2", Resource: "machines"}
	healthChecks = schema.GroupVersionResource{Group: machineGroup, Version: "v1beta2", Resource: "machinehealthchecks"}
	poolMachines = schema.GroupVersionResource{Group: azureGroup, Version: "v1beta1", Resource: "azuremachinepoolmachines"}
	azMachines   = schema.GroupVersionResource{Group: azureGroup, Version: "v1beta1", Resource: "azuremachines"}
)

// unhealthy is what a MachineHealthCheck does with its unhealthyMachineConditions:
// a machine is, whose condition of the type has had the status for the time.
func unhealthy(t *testing.T, check, machine *unstructured.Unstructured, now time.Time) bool {
	t.Helper()
	list, _, err := unstructured.NestedSlice(check.Object, "spec", "checks", "unhealthyMachineConditions")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range list {
		want, ok := x.(map[string]any)
		if !ok {
			t.Fatalf("%v", x)
		}
		c := conditionIn(machine, fmt.Sprint(want["type"]))
		if c == nil || c["status"] != want["status"] {
			continue
		}
		since, err := time.Parse(time.RFC3339, fmt.Sprint(c["lastTransitionTime"]))
		if err != nil {
			t.Fatal(err)
		}
		seconds, ok := want["timeoutSeconds"].(int64)
		if !ok {
			t.Fatalf("%v", want)
		}
		if !now.Before(since.Add(time.Duration(seconds) * time.Second)) {
			return true
		}
	}
	return false
}

const othersConditions = `
conditions:
- {type: BootstrapSucceeded, status: "False", severity: Info, reason: BootstrapInProgress, lastTransitionTime: "2026-11-21T11:00:00Z"}
- {type: VMRunning, status: "True", lastTransitionTime: "2026-11-21T11:00:00Z"}
`

func TestVerdictsArePublishedInACluster(t *testing.T) {
	s := newSite(t)
	yes, no := true, false
	good := s.machine(t, 0, &yes)
	// This one came as far as its Node, and its extension says why no farther.
	lame := s.machine(t, 1, &no)
	v := aVerdict(wire.Failed, time.Minute, func(v *wire.Verdict) {
		v.Node, v.VMID, v.Reason, v.Owner, v.At = "", lame.VMID, "CNINotReady", wire.OwnerUser, time.Now().UTC()
	})
	s.cloud.mu.Lock()
	saying("X.Ortet", "ProvisioningState/failed/1", "Failed: CNINotReady\n"+v.ConsoleLine())(&s.cloud.boots[1])
	s.cloud.mu.Unlock()
	// And this one never joined: only its serial log has a report.
	lost := s.machine(t, 2, nil, func(b *fleet.Boot) { b.ProvisioningState = "Failed" })
	w := aVerdict(wire.Failed, time.Minute, func(v *wire.Verdict) { v.Node, v.VMID, v.At = "", lost.VMID, time.Now().UTC() })
	s.cloud.logs[lost.Instance] = "[    0.000000] Linux version 6.1\r\nkubeadm join 10.0.0.4:6443 --token abcdef.0123456789abcdef\r\n" + w.ConsoleLine() + "\r\n"

	// Without Cluster API.
	metrics, stop := s.start(t, "first")
	s.hasNodeCondition(t, good, corev1.ConditionTrue, "Succeeded")
	s.hasNodeCondition(t, lame, corev1.ConditionFalse, "CNINotReady")
	kept := func(b fleet.Boot) *corev1.ConfigMap {
		list, err := s.admin.CoreV1().ConfigMaps(s.space).List(t.Context(), metav1.ListOptions{LabelSelector: assess.EvidenceLabel + "=" + assess.EvidenceValue + "," + assess.MachineLabel + "=" + b.VMID})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) > 1 {
			t.Fatalf("%d pieces of evidence of one machine", len(list.Items))
		}
		if len(list.Items) == 0 {
			return nil
		}
		return &list.Items[0]
	}
	until(t, "the serial log's verdict is kept", func() (bool, error) {
		m := kept(lost)
		return m != nil && strings.Contains(m.Data[assess.KeyAssessment], "BootstrapTokenUnknown"), nil
	})
	m := kept(lost)
	if !strings.Contains(m.Data[assess.KeyConsole], "kubeadm join") || strings.Contains(fmt.Sprint(m.Data), "0123456789abcdef") {
		t.Errorf("the console that is kept:\n%s", m.Data[assess.KeyConsole])
	}
	if kept(good) != nil {
		t.Error("evidence is kept of a boot that went well")
	}
	wanted := []string{
		`ortet_boot_failures_total{confidence="observed",outcome="Failed",owner="user",pool="pool1",reason="BootstrapTokenUnknown"} 1`,
		`ortet_boot_failures_total{confidence="concluded",outcome="Failed",owner="user",pool="pool1",reason="CNINotReady"} 1`,
		`ortet_boot_verdicts_total{outcome="Failed",pool="pool1",source="console"} 1`,
		`ortet_instances{pool="pool1",state="Failed"} 2`, `ortet_instances{pool="pool1",state="Succeeded"} 1`,
		`ortet_boot_duration_seconds_count{pool="pool1"} 1`, `ortet_cloud_calls_total{call="boots",result="ok"}`, "ortet_arm_requests_total",
	}
	var text string
	lacks := func(want string) bool { return !strings.Contains(text, want) }
	defer func() {
		if t.Failed() {
			t.Logf("the metrics:\n%s", grep(text, "ortet_"))
		}
	}()
	until(t, "the metrics have it all", func() (bool, error) { // a boot is counted last
		text = scrape(t, metrics)
		return !slices.ContainsFunc(wanted, lacks), nil
	})
	if strings.Contains(text, `reason="Unknown"`) {
		t.Errorf("a reason was published before the log was read:\n%s", grep(text, "ortet_boot_failures"))
	}
	lease, err := s.admin.CoordinationV1().Leases(s.space).Get(t.Context(), LeaseName, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != "first" {
		t.Errorf("the Lease: %+v, %v", lease, err)
	}
	stop()
	before, err := s.nodeCondition(t, lame)
	if err != nil {
		t.Fatal(err)
	}

	// With Cluster API, of whose machines one has no provider id yet.
	s.installCRDs(t)
	s.create(t, poolMachines, fmt.Sprintf("{apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: AzureMachinePoolMachine, metadata: {name: apm-2}, spec: {providerID: \"azure://%s\"}}", lost.Instance), othersConditions)
	s.create(t, azMachines, fmt.Sprintf("{apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: AzureMachine, metadata: {name: am-1}, spec: {providerID: \"azure://%s\", vmSize: s, osDisk: {osType: Linux}, sshPublicKey: \"\"}}", lame.Instance), othersConditions)
	machine := func(name, kind, infrastructure, provider string) string {
		return fmt.Sprintf(`{apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, metadata: {name: %s, labels: {pool: one}}, spec: {clusterName: c, bootstrap: {dataSecretName: d}%s,
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: %s, name: %s}}}`, name, provider, kind, infrastructure)
	}
	theirs := "conditions: [{type: BootstrapConfigReady, status: \"True\", reason: Ready, message: \"\", lastTransitionTime: \"2026-11-21T11:00:00Z\"}]"
	s.create(t, machines, machine("lost", "AzureMachinePoolMachine", "apm-2", ""), theirs)
	s.create(t, machines, machine("good", "AzureMachinePoolMachine", "apm-0", ", providerID: \"azure://"+string(good.Instance)+"\""), theirs)
	s.create(t, healthChecks, `{apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineHealthCheck, metadata: {name: boots}, spec: {clusterName: c, selector: {matchLabels: {pool: one}},
  checks: {unhealthyMachineConditions: [{type: "ortet.io/BootSucceeded", status: "False", timeoutSeconds: 0}]}}}`, "")

	_, stop = s.start(t, "second")
	get := func(r schema.GroupVersionResource, name string) *unstructured.Unstructured {
		u, err := s.dynamic.Resource(r).Namespace("machines").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	check := get(healthChecks, "boots")
	until(t, "the health check finds the machine that never joined", func() (bool, error) { return unhealthy(t, check, get(machines, "lost"), time.Now()), nil })
	until(t, "the good machine has its condition", func() (bool, error) {
		return hasCondition(get(machines, "good"), fleet.ConditionBootSucceeded, "True"), nil
	})
	if unhealthy(t, check, get(machines, "good"), time.Now().Add(time.Hour)) {
		t.Error("the health check finds the machine that came up")
	}
	for _, m := range []struct {
		of     schema.GroupVersionResource
		name   string
		reason string
	}{{poolMachines, "apm-2", "BootstrapTokenUnknown"}, {azMachines, "am-1", "CNINotReady"}, {machines, "lost", "BootstrapTokenUnknown"}} {
		until(t, m.name+" has its condition", func() (bool, error) {
			return conditionIn(get(m.of, m.name), fleet.ConditionBootSucceeded)["reason"] == m.reason, nil
		})
		u := get(m.of, m.name)
		others := map[string]string{"BootstrapSucceeded": "False", "VMRunning": "True"}
		if m.of == machines {
			others = map[string]string{"BootstrapConfigReady": "True"}
		}
		for kind, status := range others {
			if !hasCondition(u, kind, status) || conditionIn(u, kind)["lastTransitionTime"] != "2026-11-21T11:00:00Z" {
				t.Errorf("%s: the condition %s of another owner is %v", m.name, kind, conditionIn(u, kind))
			}
		}
	}
	// The second found what the first had published, and did not publish it again.
	if after, err := s.nodeCondition(t, lame); err != nil || after.LastTransitionTime != before.LastTransitionTime || after.Message != before.Message {
		t.Errorf("the condition of %s was %+v, and is %+v (%v)", lame.HostName, before, after, err)
	}
	// The machine goes, and what shows why stays.
	s.cloud.mu.Lock()
	s.cloud.boots = s.cloud.boots[:2]
	s.cloud.mu.Unlock()
	// Later it came up in spite of it: that is published, and no health check acts on it.
	s.asKubelet(t, "pool1000001", corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastTransitionTime: metav1.Now(), LastHeartbeatTime: metav1.Now()}}})
	s.hasNodeCondition(t, lame, corev1.ConditionTrue, "CNINotReady")
	stop()
	if kept(lost) == nil {
		t.Error("the evidence went with the machine")
	}
	events, err := s.admin.CoreV1().Events("").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=BootFailed"})
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, e := range events.Items {
		counts[e.InvolvedObject.Kind+" "+e.InvolvedObject.Name+" "+strings.SplitN(e.Message, ":", 2)[0]]++
	}
	for what, want := range map[string]int{"Node pool1000001 CNINotReady": 1, "Node pool1000002 BootstrapTokenUnknown": 1, "Machine lost BootstrapTokenUnknown": 1} {
		if counts[what] != want {
			t.Errorf("%d Events of %q; all: %v", counts[what], what, counts)
		}
	}
}

func grep(text, what string) string {
	var b strings.Builder
	for l := range strings.Lines(text) {
		if strings.Contains(l, what) && !strings.HasPrefix(l, "#") {
			b.WriteString(l)
		}
	}
	return b.String()
}
