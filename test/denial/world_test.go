package denial

import (
	"context"
	"crypto/ecdh"
	"crypto/hpke"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/capture"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/rollback"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/test/kubesim"
)

const (
	user       = "ortet" // to the API server
	clientID   = "0a7e7000-0000-4000-8000-000000000001"
	poorer     = "0a7e7000-0000-4000-8000-000000000002"
	customData = "#cloud-config\nruncmd: [join]\n"
	group      = fleet.ResourceID("/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/" + azsim.DefaultResourceGroup)
	pool       = group + "/providers/Microsoft.Compute/virtualMachineScaleSets/pool1"
	donor      = "pool1000000"
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
	output  map[string]string // of pods, by namespace/name
	// settings are the donor's protected settings of the extension cse, if any.
	settings string
}

// newWorld has a pool of three nodes, in a cluster with Cluster API. Ortet may
// do in Azure what the actions say on the resource group and on the
// subscription, and in the cluster what the rules say.
func newWorld(t *testing.T, onGroup, onSubscription []string, rules []kube.Rule, others ...azsim.Principal) *world {
	t.Helper()
	w := &world{t: t, output: map[string]string{}, client: clientID}
	w.kube = &kubesim.Server{
		Users: map[string][]kubesim.Grant{user: kubesim.Grants(kube.PolicyRules(rules))},
		Log:   w.log, OnRequest: w.kubelet, Machines: true,
		Ends: func(*corev1.Pod, time.Duration) time.Duration { return time.Second },
	}
	w.kube.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kube.DefaultNamespace}})
	w.azure = &azsim.Server{
		Seed: 1, Substrate: machines{w},
		Principals: append([]azsim.Principal{
			{Name: "owner", ClientID: azsim.DefaultClientID, Roles: []azsim.Grant{{Role: "Owner"}}}, principal(clientID, onGroup, onSubscription),
		}, others...),
	}
	t.Cleanup(w.azure.Close)
	w.azure.Instant(true)
	sets, err := armcompute.NewVirtualMachineScaleSetsClient(azsim.DefaultSubscription, w.azure.Credential(""), w.azure.ClientOptions())
	must(t, err)
	poller, err := sets.BeginCreateOrUpdate(t.Context(), azsim.DefaultResourceGroup, pool.Name(), scaleSet(), nil)
	must(t, err)
	_, err = poller.PollUntilDone(t.Context(), nil)
	must(t, err)
	w.azure.Instant(false)
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

func scaleSet() armcompute.VirtualMachineScaleSet {
	return armcompute.VirtualMachineScaleSet{
		Location: new("westeurope"), SKU: &armcompute.SKU{Name: new("Standard_D2s_v5"), Capacity: new(int64(3))},
		Properties: &armcompute.VirtualMachineScaleSetProperties{
			Overprovision: new(false), UpgradePolicy: &armcompute.UpgradePolicy{Mode: new(armcompute.UpgradeModeManual)},
			VirtualMachineProfile: &armcompute.VirtualMachineScaleSetVMProfile{
				OSProfile: &armcompute.VirtualMachineScaleSetOSProfile{
					ComputerNamePrefix: new("pool1"), AdminUsername: new("azureuser"), AdminPassword: new("Corr3ct-horse"),
					CustomData: new(base64.StdEncoding.EncodeToString([]byte(customData))),
				},
				StorageProfile: &armcompute.VirtualMachineScaleSetStorageProfile{
					ImageReference: &armcompute.ImageReference{Publisher: new("Canonical"), Offer: new("ubuntu-24_04-lts"), SKU: new("server"), Version: new("latest")},
				},
				ExtensionProfile: &armcompute.VirtualMachineScaleSetExtensionProfile{Extensions: []*armcompute.VirtualMachineScaleSetExtension{{
					Name: new("cse"), Properties: &armcompute.VirtualMachineScaleSetExtensionProperties{
						Publisher: new("Microsoft.Azure.Extensions"), Type: new("CustomScript"), TypeHandlerVersion: new("2.1"),
					},
				}}},
			},
		},
	}
}

// populate puts onto the donor what a drain meets: a pod that a budget guards
// for a while, one that nothing would create again, and a DaemonSet's.
func (w *world) populate() {
	w.kube.Put(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "agent"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "agent"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
	}})
	w.fill()
	machine := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine", "metadata": map[string]any{"namespace": "default", "name": donor},
	}}
	w.kube.Put(machine)
}

// fill puts the pods on the donor that a drain takes away.
func (w *world) fill() {
	labels := map[string]string{"app": "guarded"}
	owner := []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "r-1", Controller: new(true)}}
	for name, owners := range map[string][]metav1.OwnerReference{"guarded": owner, "alone": nil} {
		w.kube.Put(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels, OwnerReferences: owners},
			Spec:       corev1.PodSpec{NodeName: donor, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
		})
		if owners == nil {
			w.kube.Change("pods", "default", name, func(o runtime.Object) { o.(*corev1.Pod).Labels = nil })
		}
	}
	none := intstr.FromInt32(0)
	w.kube.Put(&policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "budget"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &none, Selector: &metav1.LabelSelector{MatchLabels: labels}},
	})
}

// addKured gives the cluster a kured.
func (w *world) addKured() {
	w.kube.Put(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kured", Labels: map[string]string{"app.kubernetes.io/name": "kured"}},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "kured"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"name": "kured"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "kured", Image: "kured"}}}},
		}})
}

// kubelet hears of every request, and does what kubelets and people do: pods of
// Ortet's run as soon as they are there, and who named the budget that blocks
// finds it gone.
func (w *world) kubelet(r kubesim.Request) {
	if r.User != user {
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
			w.run(pod)
		}
		return true
	})
}

// run is what the pod does: it reports that the disk is generalised.
func (w *world) run(pod *corev1.Pod) {
	flag := func(name string) string {
		command := pod.Spec.Containers[0].Command
		if i := slices.Index(command, name); i >= 0 && i+1 < len(command) {
			return command[i+1]
		}
		return ""
	}
	report := wire.GeneralizeReport{
		Capture: flag("--capture"), Donor: flag("--donor"), Outcome: wire.Generalized, Joins: []string{"/etc/kubernetes/bootstrap-kubelet.conf"},
	}
	if key := flag("--seal-to"); key != "" {
		report.Saved = []wire.SealedItem{sealed(w.t, key, wire.CustomData, "", customData)}
		if w.settings == "" {
			report.NoProtected = []string{"Microsoft.Azure.Extensions.CustomScript"}
		} else {
			report.Saved = append(report.Saved, sealed(w.t, key, wire.ProtectedSettings, "cse", w.settings))
		}
	}
	line, err := json.Marshal(wire.GeneralizeLine{Report: &report})
	if err != nil {
		w.t.Error(err)
		return
	}
	w.mu.Lock()
	w.output[pod.Namespace+"/"+pod.Name] = string(line) + "\n"
	w.mu.Unlock()
	w.kube.Change("pods", pod.Namespace, pod.Name, func(o runtime.Object) {
		p := o.(*corev1.Pod)
		p.Status.Phase = corev1.PodSucceeded
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: p.Spec.Containers[0].Name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
	})
}

func sealed(t *testing.T, to string, kind wire.SealedKind, name, data string) wire.SealedItem {
	public, err := base64.StdEncoding.DecodeString(to)
	if err != nil {
		t.Error(err)
		return wire.SealedItem{}
	}
	key, err := hpke.DHKEM(ecdh.X25519()).NewPublicKey(public)
	if err != nil {
		t.Error(err)
		return wire.SealedItem{}
	}
	sum := sha256.Sum256([]byte(data))
	item := wire.SealedItem{Kind: kind, Name: name, SHA256: hex.EncodeToString(sum[:])}
	item.Sealed, err = hpke.Seal(key, hpke.HKDFSHA256(), hpke.AES256GCM(), []byte("ortet.io/saved/"+string(kind)+"/"+name), []byte(data))
	if err != nil {
		t.Error(err)
	}
	return item
}

func (w *world) log(namespace, pod string) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	if text, ok := w.output[namespace+"/"+pod]; ok {
		return []byte(text)
	}
	return nil
}

// machines is a substrate whose computers are the cluster's nodes.
type machines struct{ w *world }

func (machines) CreateVolume(context.Context, azsim.Volume, azsim.Source) error { return nil }
func (machines) DeleteVolume(context.Context, azsim.Volume) error               { return nil }
func (machines) Attach(context.Context, string, int32, azsim.Volume) error      { return nil }
func (machines) Detach(context.Context, string, int32) error                    { return nil }
func (machines) Console(context.Context, string) ([]byte, error)                { return nil, nil }
func (m machines) Remove(ctx context.Context, id string) error                  { return m.Shutdown(ctx, id, false) }

func (m machines) Boot(_ context.Context, c azsim.Computer) error {
	w := m.w
	w.mu.Lock()
	w.boots++
	boot := fmt.Sprintf("boot-%d", w.boots)
	w.mu.Unlock()
	up := func(n *corev1.Node) {
		n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: boot, OperatingSystem: "linux", Architecture: "amd64"}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	}
	name := strings.ToLower(c.HostName)
	if w.kube.Change("nodes", "", name, func(o runtime.Object) { up(o.(*corev1.Node)) }) {
		return nil
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
		fleet.AnnotationCapiMachine: name, fleet.AnnotationCapiNamespace: "default",
	}}, Spec: corev1.NodeSpec{ProviderID: "azure://" + c.ResourceID}}
	up(n)
	w.kube.Put(n)
	return nil
}

func (m machines) Shutdown(_ context.Context, id string, _ bool) error {
	var names []string
	m.w.kube.Each("nodes", func(o runtime.Object) bool {
		if n := o.(*corev1.Node); strings.EqualFold(n.Spec.ProviderID, "azure://"+id) {
			names = append(names, n.Name)
		}
		return true
	})
	for _, name := range names {
		m.w.kube.Change("nodes", "", name, func(o runtime.Object) {
			n := o.(*corev1.Node)
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", LastTransitionTime: metav1.Now()}}
		})
	}
	return nil
}

// services are what the command line makes of one connection.
type services struct {
	*capture.Service
	rollback *rollback.Service
}

// open makes them with the rules that preflight asks for.
func (w *world) open(asked []kube.Rule) services {
	w.t.Helper()
	return w.openOn(asked, func(c azure.Cloud) azure.Cloud { return c })
}

// openOn does so with a cloud of another kind.
func (w *world) openOn(asked []kube.Rule, change func(azure.Cloud) azure.Cloud) services {
	w.t.Helper()
	cloud, err := arm.New(arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: w.azure.Credential(w.client), Transport: w.azure.Transport()})
	must(w.t, err)
	c, err := kube.New(kube.Config{REST: w.kube.Config(user)})
	must(w.t, err)
	quiet := slog.New(slog.DiscardHandler)
	config := capture.Config{
		Cloud:   change(azure.Audit(azure.Retry(azure.Settled(azure.Limit(cloud, azure.Limits{})), azure.RetryPolicy{}), quiet)),
		Cluster: c, Journal: c.Journals(), Log: quiet, Now: time.Now, Version: "test", Image: "ortet:test", Namespace: kube.DefaultNamespace, Holder: "test",
		LockFor:  45 * time.Second,
		Accesses: kube.PoolAccesses(asked),
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
		if r.Verb != "get" && r.Verb != "list" && r.Resource != "selfsubjectaccessreviews" && r.Resource != "leases" {
			all = append(all, fmt.Sprintf("%s %s %s/%s: %d", r.Verb, r.Resource, r.Namespace, r.Name, r.Status))
		}
	}
	return all
}

// forget begins to write down anew.
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
