package denial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/rollback"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/test/azsimserver"
	"github.com/ortet/ortet/test/kubesim"
)

const (
	user       = "ortet" // to the API server
	revoked    = "ortet, with a verb less"
	clientID   = "0a7e7000-0000-4000-8000-000000000001"
	poorer     = "0a7e7000-0000-4000-8000-000000000002"
	customData = "#cloud-config\nruncmd: [join]\n"
	group      = fleet.ResourceID("/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/" + azsim.DefaultResourceGroup)
	pool       = group + "/providers/Microsoft.Compute/virtualMachineScaleSets/pool1"
	keys       = group + "/providers/Microsoft.Compute/diskEncryptionSets/keys" // of the pool's disks
)

// A world is a pool of nodes in a simulated Azure and a simulated cluster, which
// write down what Ortet asks of them.
type world struct {
	t     *testing.T
	azure *azsim.Server
	kube  *kubesim.Server
	// client is who Ortet is to Azure from now on.
	client string

	mu      sync.Mutex
	actions []azsim.Request   // Ortet's
	asks    []kubesim.Request // Ortet's
	boots   int
	hosts   map[string]string // of computers, by id
	// settings are the protected settings of the donor's CustomScript.
	settings string
	// isRevoked is whether Ortet is the user revoked to the API server from now on.
	isRevoked atomic.Bool
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// newWorld has a pool of three nodes, in a cluster with Cluster API. Ortet may
// do in Azure what the actions say on the resource group and on the
// subscription, and in the cluster what the rules say.
func newWorld(t *testing.T, onGroup, onSubscription []string, rules []kube.Rule, others ...azsim.Principal) *world {
	t.Helper()
	return newWorldOf(t, azsim.Spec{}, nil, rules, append([]azsim.Principal{principal(clientID, onGroup, onSubscription)}, others...)...)
}

// newWorldOf does so in an Azure with what the spec has, for a pool with that change.
func newWorldOf(t *testing.T, spec azsim.Spec, change func(map[string]any), rules []kube.Rule, principals ...azsim.Principal) *world {
	t.Helper()
	w := &world{t: t, client: clientID, hosts: map[string]string{}}
	w.kube = &kubesim.Server{
		Users: map[string][]kubesim.Grant{user: kubesim.Grants(kube.PolicyRules(rules))},
		Log:   w.log, OnRequest: w.kubelet, Machines: true,
		Ends: func(*corev1.Pod, time.Duration) time.Duration { return time.Second },
	}
	w.kube.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kube.DefaultNamespace}})
	w.azure = &azsim.Server{
		Seed: 1, Substrate: machines{w: w},
		Principals: append([]azsim.Principal{
			{Name: "owner", ClientID: azsim.DefaultClientID, Roles: []azsim.Grant{{Role: "Owner"}}},
		}, principals...),
	}
	t.Cleanup(w.azure.Close)
	spec.Resources = append(spec.Resources, azsim.ResourceSpec{Type: "Microsoft.Compute/diskEncryptionSets", Name: keys.Name(),
		Body: map[string]any{"location": "westeurope", "properties": map[string]any{"activeKey": map[string]any{"keyUrl": "https://keys.vault.azure.net/keys/disks/1"}}}})
	must(t, w.azure.Create(t.Context(), &spec))
	must(t, azsimserver.Pool{Name: pool.Name(), Capacity: 3, CustomData: customData, Change: func(body map[string]any) {
		if change != nil {
			change(body)
		}
		profile := body["properties"].(map[string]any)["virtualMachineProfile"].(map[string]any)
		profile["storageProfile"].(map[string]any)["osDisk"] = map[string]any{"createOption": "FromImage",
			"managedDisk": map[string]any{"diskEncryptionSet": map[string]any{"id": string(keys)}}}
	}}.CreateIn(t.Context(), w.azure))
	w.azure.RequireOwnKeys(true)
	w.azure.OnRequest = func(r azsim.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.actions = append(w.actions, r)
	}
	w.populate()
	return w
}

// principal may do these on the resource group, and those on the subscription.
func principal(client string, onGroup, onSubscription []string) azsim.Principal {
	return azsim.Principal{Name: client, ClientID: client, Roles: []azsim.Grant{
		{Role: client + " on the group", Scope: string(group), Actions: some(onGroup)}, {Role: client + " on the subscription", Actions: some(onSubscription)},
	}}
}

// some is the list, or one that grants nothing: an azsim.Grant without actions
// is a built-in role by its name.
func some(actions []string) []string {
	if len(actions) == 0 {
		return []string{"Nothing/read"}
	}
	return actions
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// populate puts onto the donor what a drain meets: a pod that a budget guards
// for a while, a pod that nothing would create again, and a DaemonSet's.
func (w *world) populate() {
	w.putDaemonSet("agent")
	w.fill()
	w.kube.Put(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine", "metadata": map[string]any{"namespace": "default", "name": donor},
	}})
}

// fill puts the pods on the donor that a drain takes away.
func (w *world) fill() {
	guarded := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "guarded", Labels: map[string]string{"app": "guarded"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "r-1", Controller: new(true)}}},
		Spec:   corev1.PodSpec{NodeName: donor, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	alone := guarded.DeepCopy()
	alone.Name, alone.Labels, alone.OwnerReferences = "alone", nil, nil
	w.kube.Put(guarded)
	w.kube.Put(alone)
	w.kube.Put(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "budget"},
		Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.IntOrString), Selector: &metav1.LabelSelector{MatchLabels: guarded.Labels}}})
}

func (w *world) putDaemonSet(name string) {
	meta := metav1.ObjectMeta{Namespace: "kube-system", Name: name, Labels: map[string]string{"app.kubernetes.io/name": name}}
	w.kube.Put(&appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: meta.Labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: meta.Labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
	}})
}

// kubelet hears of every request, and does what kubelets and people do: pods of
// Ortet's run as soon as they are there, and who named the budget that blocks
// finds it gone.
func (w *world) kubelet(r kubesim.Request) {
	if r.User != user && r.User != revoked {
		return
	}
	w.mu.Lock()
	w.asks = append(w.asks, r)
	w.mu.Unlock()
	if r.Resource == "poddisruptionbudgets" && r.Verb == "list" && r.Status == http.StatusOK {
		w.kube.Remove("poddisruptionbudgets", "default", "budget")
	}
	if r.Resource != "pods" || r.Subresource != "" || r.Namespace != kube.DefaultNamespace || r.Verb != "create" || r.Status != http.StatusCreated {
		return
	}
	w.kube.Each("pods", func(o runtime.Object) bool {
		if pod := o.(*corev1.Pod); pod.Namespace == r.Namespace && pod.Status.Phase != corev1.PodSucceeded {
			w.kube.Change("pods", pod.Namespace, pod.Name, func(o runtime.Object) { o.(*corev1.Pod).Status = azsimserver.Ended(pod, 0) })
		}
		return true
	})
}

// log is what a pod of Ortet's prints: a report that the disk is generalised.
func (w *world) log(namespace, name string) []byte {
	pod := w.kube.Pod(namespace, name)
	if pod.Status.Phase != corev1.PodSucceeded {
		return nil
	}
	command := pod.Spec.Containers[0].Command
	report := wire.GeneralizeReport{
		Capture: azsimserver.Flag(command, "--capture"), Donor: azsimserver.Flag(command, "--donor"), Outcome: wire.Generalized,
		Joins: []string{"/etc/kubernetes/bootstrap-kubelet.conf"}, NoProtected: []string{"Microsoft.AKS.Compute.AKS-Engine.Linux.Billing"},
	}
	const script = "Microsoft.Azure.Extensions.CustomScript"
	if w.settings == "" {
		report.NoProtected = append(report.NoProtected, script)
	}
	save := func(kind wire.SealedKind, name, text string) {
		item, err := azsimserver.Seal(command, kind, name, text)
		if err != nil {
			w.t.Error(err)
		}
		report.Saved = append(report.Saved, item)
	}
	if azsimserver.Flag(command, "--seal-to") != "" {
		save(wire.CustomData, "", customData)
		if w.settings != "" {
			save(wire.ProtectedSettings, script, w.settings)
		}
	}
	line, err := json.Marshal(wire.GeneralizeLine{Report: &report})
	if err != nil {
		w.t.Error(err)
	}
	return append(line, '\n')
}

// donor and next are the first machines' Nodes; a Flexible set's host names are random.
var donor, next = "pool1000000", "pool1000001"

// machines is a substrate whose computers are the cluster's nodes.
type machines struct {
	azsim.NopSubstrate
	w *world
}

func (m machines) Boot(_ context.Context, c azsim.Computer) error {
	w, name := m.w, strings.ToLower(c.HostName)
	w.mu.Lock()
	switch len(w.hosts) {
	case 1:
		next = name
	case 0:
		donor = name
	}
	w.hosts[c.ID] = name // in one piece with the count, since machines boot at once
	w.mu.Unlock()
	if w.kube.Node(name) == nil {
		w.kube.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			fleet.AnnotationCapiMachine: name, fleet.AnnotationCapiNamespace: "default",
		}}, Spec: corev1.NodeSpec{ProviderID: "azure://" + c.ResourceID}})
	}
	w.mu.Lock()
	w.boots++
	boot := fmt.Sprintf("boot-%d", w.boots)
	w.mu.Unlock()
	w.report(name, corev1.ConditionTrue, boot, c.VMID)
	return nil
}

func (m machines) Shutdown(_ context.Context, id string, _ bool) error {
	m.w.mu.Lock()
	name := m.w.hosts[id]
	m.w.mu.Unlock()
	m.w.report(name, corev1.ConditionUnknown, "", m.w.kube.Node(name).Status.NodeInfo.SystemUUID)
	return nil
}

// report writes a node's status.
func (w *world) report(node string, ready corev1.ConditionStatus, boot, uuid string) {
	w.kube.Change("nodes", "", node, func(o runtime.Object) {
		o.(*corev1.Node).Status = corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{BootID: boot, SystemUUID: uuid, OperatingSystem: "linux", Architecture: "amd64"},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.Now()}},
		}
	})
}

// services are what the command line makes of one connection.
type services struct {
	*capture.Service
	rollback *rollback.Service
}

// open makes them with the rules that preflight asks for, and with a cloud that may be
// changed.
func (w *world) open(asked []kube.Rule, change ...func(azure.Cloud) azure.Cloud) services {
	w.t.Helper()
	cloud, err := arm.New(arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: w.azure.Credential(w.client), Transport: w.azure.Transport()})
	must(w.t, err)
	rest := w.kube.Config(user)
	rest.Wrap(func(before http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			if w.isRevoked.Load() {
				return w.kube.Config(revoked).Transport.RoundTrip(r)
			}
			return before.RoundTrip(r)
		})
	})
	c, err := kube.New(kube.Config{REST: rest})
	must(w.t, err)
	quiet := slog.New(slog.DiscardHandler)
	config := capture.Config{
		Cloud:   azure.Audit(azure.Retry(azure.Settled(azure.Limit(cloud, azure.Limits{})), azure.RetryPolicy{}), quiet),
		Cluster: c, Journal: c.Journals(), Log: quiet, Now: time.Now, Version: "test", Image: "ortet:test", Namespace: kube.DefaultNamespace, Holder: "test",
		LockFor:  45 * time.Second,
		Accesses: kube.PoolAccesses(asked),
	}
	for _, f := range change {
		config.Cloud = f(config.Cloud)
	}
	return services{capture.New(config), rollback.New(config)}
}

// wrote lists what Ortet asked that may change something, in Azure and in the
// cluster, done or refused. Preflight takes and releases the pool lock.
func (w *world) wrote() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, r := range w.actions {
		if r.Method != http.MethodGet && r.Action != "" {
			all = append(all, fmt.Sprintf("%s %s: %d", r.Method, r.Path, r.Status))
		}
	}
	for _, r := range w.asks {
		if !r.DryRun && r.Verb != "get" && r.Verb != "list" && r.Resource != "selfsubjectaccessreviews" && r.Resource != "leases" {
			all = append(all, fmt.Sprintf("%s %s %s/%s: %d", r.Verb, r.Resource, r.Namespace, r.Name, r.Status))
		}
	}
	return all
}

// forget drops the requests so far.
func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.actions, w.asks = nil, nil
}

// refused fails unless err is a preflight's refusal that says all of the words,
// and nothing was changed.
func (w *world) refused(err error, words ...string) {
	w.t.Helper()
	var refusal *workflow.Refused
	if !errors.As(err, &refusal) || workflow.ExitCode(err) != workflow.ExitRefused {
		w.t.Errorf("not refused (exit code %d): %v", workflow.ExitCode(err), err)
	} else {
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				w.t.Errorf("does not say %q: %v", word, err)
			}
		}
	}
	if wrote := w.wrote(); len(wrote) > 0 {
		w.t.Errorf("refused, and yet asked for changes: %q", wrote)
	}
}

func (w *world) nodes() (n int) {
	w.kube.Each("nodes", func(runtime.Object) bool { n++; return true })
	return n
}
