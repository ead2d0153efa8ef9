package renew_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/renew"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/test/conditional"
	"github.com/ortet/ortet/test/kubesim"
)

const (
	pool       fleet.ResourceID = "/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/" + azsim.DefaultResourceGroup + "/providers/Microsoft.Compute/virtualMachineScaleSets/pool1"
	computeAPI                  = "2024-11-01"
	galleryAPI                  = "2024-03-03"
	disksAPI                    = "2025-01-02"
)

type object = map[string]any

var definition = plan.DefinitionOf(pool)

func version(n int) fleet.ResourceID {
	return definition.Child("versions", fmt.Sprintf("2026.11.%02d", n))
}

// A world is one Azure with a pool of machines, and a cluster whose Nodes follow them.
type world struct {
	*testing.T
	azsim.NopSubstrate
	azure     *azsim.Server
	kube      *kubesim.Server
	size      int // of the pool
	settingUp bool

	mu       sync.Mutex
	lives    map[string]int  // boots and ends, by node
	runs     map[string]bool // by node
	bad      map[string]bool // nodes that do not come back
	drained  []string        // nodes, in the order in which a pod went
	requests map[string]int  // to Azure while a rollout runs, by method
	lines    []string        // of the rollout
	out      int             // most nodes that were out of service at once
	kubelet  string          // version of new Nodes
	on       func(what string)
}

// play runs a test in virtual time, with a pool of version 1 whose model names version 2.
func play(t *testing.T, size int, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, size: size, lives: map[string]int{}, runs: map[string]bool{}, bad: map[string]bool{}, requests: map[string]int{}, kubelet: "v1.36.3"}
		w.kube = &kubesim.Server{Ends: func(*corev1.Pod, time.Duration) time.Duration { return 2 * time.Second },
			Deleting: func(d kubesim.Deletion) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.drained = append(w.drained, d.Pod.Spec.NodeName)
			}}
		w.azure = &azsim.Server{Substrate: w, OnRequest: func(r azsim.Request) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.requests[r.Method]++
		}}
		defer w.azure.Close()
		w.azure.Instant(true)
		w.settingUp = true
		w.setUp()
		w.settingUp = false
		w.azure.Instant(false)
		w.requests = map[string]int{}
		test(w)
	})
}

func (w *world) setUp() {
	empty, snapshot := pool.In("disks", "empty"), pool.In("snapshots", "empty")
	w.put(empty, disksAPI, object{"sku": object{"name": "Standard_LRS"}, "properties": object{"creationData": object{"createOption": "Empty"}, "diskSizeGB": 30, "osType": "Linux", "hyperVGeneration": "V2"}})
	w.put(snapshot, disksAPI, object{"properties": object{"creationData": object{"createOption": "Copy", "sourceResourceId": string(empty)}}})
	w.put(definition.Parent(), galleryAPI, object{"properties": object{}})
	w.put(definition, galleryAPI, object{"properties": object{"osType": "Linux", "osState": "Generalized", "hyperVGeneration": "V2", "architecture": "x64",
		"identifier": object{"publisher": "VMSS-Prototype-Pattern", "offer": "o", "sku": "pool1"}}})
	for n := range 2 {
		time.Sleep(time.Hour)
		w.put(version(n+1), galleryAPI, object{"tags": object{fleet.TagCapture: "c"}, "properties": object{
			"publishingProfile": object{"targetRegions": []object{{"name": "westeurope", "regionalReplicaCount": 1}}},
			"storageProfile":    object{"osDiskImage": object{"source": object{"id": string(snapshot)}}}}})
	}
	w.model(object{"id": string(version(1))}, "Manual")
	for _, n := range w.nodes() {
		w.pod(n, "web-"+n, nil)
	}
	time.Sleep(time.Hour)
	w.model(object{"id": string(version(2))}, "Manual")
}

// model makes the pool, or changes its image and its upgrade mode.
func (w *world) model(image object, mode string) {
	extensions := object{}
	if mode == "Rolling" {
		extensions["extensions"] = []object{{"name": "health", "properties": object{"publisher": "Microsoft.ManagedServices", "type": "ApplicationHealthLinux", "typeHandlerVersion": "1.0",
			"settings": object{"protocol": "tcp", "port": 10250}}}}
	}
	w.put(pool, computeAPI, object{"sku": object{"name": "Standard_D2s_v5", "capacity": w.size}, "properties": object{"overprovision": false, "upgradePolicy": object{"mode": mode},
		"virtualMachineProfile": object{"extensionProfile": extensions, "osProfile": object{"computerNamePrefix": "pool1", "adminUsername": "ortet", "adminPassword": "Corr3ct-horse"},
			"storageProfile": object{"imageReference": image, "osDisk": object{"createOption": "FromImage", "managedDisk": object{"storageAccountType": "Standard_LRS"}}}}}})
}

func (w *world) put(id fleet.ResourceID, version string, body object) {
	w.Helper()
	body["location"] = "westeurope"
	w.send(http.MethodPut, id, version, body)
	if w.settingUp {
		synctest.Wait()
	}
}

func (w *world) send(method string, id fleet.ResourceID, version string, body any) {
	w.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		w.Fatal(err)
	}
	r, err := http.NewRequestWithContext(w.Context(), method, azsim.InProcess+string(id)+"?api-version="+version, bytes.NewReader(text))
	if err != nil {
		w.Fatal(err)
	}
	token, err := w.azure.Credential("").GetToken(w.Context(), policy.TokenRequestOptions{Scopes: []string{azsim.InProcess + "//.default"}})
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token.Token)
	r.Header.Set("Content-Type", "application/json")
	answer, err := w.azure.Transport().Do(r)
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if text, _ = io.ReadAll(answer.Body); answer.StatusCode >= http.StatusBadRequest {
		w.Errorf("%s %s: %s: %s", method, id, answer.Status, text)
	}
}

// Boot implements azsim.Substrate: the Node reports 30 s later.
func (w *world) Boot(_ context.Context, c azsim.Computer) error {
	name := strings.ToLower(c.HostName)
	w.mu.Lock()
	w.lives[name]++
	life, setUp := w.lives[name], w.kube.Node(name) == nil
	w.runs[name] = true
	bad := w.bad[name]
	w.mu.Unlock()
	if setUp {
		w.report(c, life)
	} else if !bad {
		time.AfterFunc(30*time.Second, func() { w.report(c, life) })
	}
	return nil
}

// Shutdown implements azsim.Substrate: the Node is noticed to be silent 40 s later.
func (w *world) Shutdown(_ context.Context, id string, _ bool) error {
	name := "pool1" + fmt.Sprintf("%06s", id[strings.LastIndex(id, "/")+1:])
	w.mu.Lock()
	w.lives[name]++
	life := w.lives[name]
	w.runs[name] = false
	w.mu.Unlock()
	time.AfterFunc(40*time.Second, func() {
		if w.life(name) == life {
			w.ready(name, corev1.ConditionUnknown, "")
		}
	})
	return nil
}

// Remove implements azsim.Substrate: the cloud controller deletes the Node.
func (w *world) Remove(ctx context.Context, id string) error {
	_ = w.Shutdown(ctx, id, false)
	w.kube.Remove("nodes", "", "pool1"+fmt.Sprintf("%06s", id[strings.LastIndex(id, "/")+1:]))
	return nil
}

func (w *world) life(node string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lives[node]
}

func (w *world) report(c azsim.Computer, life int) {
	name := strings.ToLower(c.HostName)
	if w.life(name) != life {
		return
	}
	if w.kube.Node(name) == nil {
		w.kube.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux"}}, Spec: corev1.NodeSpec{ProviderID: "azure://" + c.ResourceID},
			Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64", KubeletVersion: w.kubelet, MachineID: name, SystemUUID: c.VMID}}})
	}
	w.ready(name, corev1.ConditionTrue, fmt.Sprint(name, "-", life))
}

func (w *world) ready(node string, status corev1.ConditionStatus, boot string) {
	w.kube.Change("nodes", "", node, func(o runtime.Object) {
		n := o.(*corev1.Node)
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.Now(), LastHeartbeatTime: metav1.Now()}}
		if boot != "" {
			n.Status.NodeInfo.BootID = boot
		}
	})
	w.count()
}

// count notes how many nodes are out of service.
func (w *world) count() {
	out := 0
	w.kube.Peek("nodes", func(o runtime.Object) bool {
		n := o.(*corev1.Node)
		if n.Spec.Unschedulable || len(n.Status.Conditions) == 0 || n.Status.Conditions[0].Status != corev1.ConditionTrue {
			out++
		}
		return true
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out = max(w.out, out)
}

// pod puts a pod of a workload on a node.
func (w *world) pod(node, name string, change func(*corev1.Pod)) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": name},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web", Controller: new(true)}}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "c"}},
			Volumes: []corev1.Volume{{Name: "cache", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
	if change != nil {
		change(p)
	}
	w.kube.Put(p)
}

// budget keeps a pod from being evicted.
func (w *world) budget(pod string) {
	one := intstr.FromInt32(1)
	w.kube.Put(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "keep"},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": pod}}}})
}

func (w *world) change(node string, change func(*corev1.Node)) {
	w.kube.Change("nodes", "", node, func(o runtime.Object) { change(o.(*corev1.Node)) })
}

func (w *world) nodes() (names []string) {
	w.kube.Peek("nodes", func(o runtime.Object) bool { names = append(names, o.(*corev1.Node).Name); return true })
	slices.Sort(names)
	return names
}

// config is what a process works with. Its requests to Azure are counted.
func (w *world) config(ctx context.Context) capture.Config {
	w.Helper()
	cloud, err := arm.New(arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: w.azure.Credential(""), Transport: w.azure.Transport(), Version: "test"})
	if err != nil {
		w.Fatal(err)
	}
	rest := w.kube.Config("ortet")
	rest.Transport = watched{w, rest.Transport}
	api, err := kube.New(kube.Config{REST: rest, Namespace: "ortet-system", Now: time.Now})
	if err != nil {
		w.Fatal(err)
	}
	return capture.Config{
		Cloud:   conditional.Cloud(azure.Retry(azure.Settled(cloud), azure.RetryPolicy{}), func(verb string) { w.Errorf("%s without an ETag", verb) }),
		Cluster: api, Journal: api.Journals(), Log: slog.New(slog.DiscardHandler), Now: time.Now, Version: "test", Namespace: "ortet-system", Holder: fmt.Sprint(ctx), LockFor: 45 * time.Second,
		Accesses: func(fleet.ResourceID) []cluster.Access { return nil },
		Report: func(e workflow.Event) {
			w.mu.Lock()
			w.lines = append(w.lines, fmt.Sprint(e.Kind, " ", e.Title, e.Message))
			on := w.on
			w.mu.Unlock()
			if on != nil {
				on(e.Message)
			}
		},
	}
}

// watched counts nodes out of service after each write.
type watched struct {
	w    *world
	next http.RoundTripper
}

func (t watched) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.next.RoundTrip(r)
	if r.Method == http.MethodPatch {
		t.w.count()
	}
	return answer, err
}

func request() renew.Request {
	return renew.Request{Pool: pool, MaxUnavailable: "2", Soak: renew.DefaultSoak, DrainTimeout: renew.DefaultDrainTimeout}
}

func (w *world) rollout(ctx context.Context, q renew.Request) (renew.Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 6*time.Hour, errors.New("the rollout does not end"))
	defer cancel()
	return renew.New(w.config(ctx)).Rollout(ctx, q)
}

// has wants each node to have the version, be in service, and be unmarked, but for those named.
func (w *world) has(n int, but ...string) {
	w.Helper()
	list, err := w.config(w.Context()).Cloud.Instances(w.Context(), pool)
	if err != nil {
		w.Fatal(err)
	}
	for _, i := range list {
		name := strings.ToLower(i.HostName)
		node := w.kube.Node(name)
		if slices.Contains(but, name) {
			continue
		}
		if !i.Image.Exact().Equal(version(n)) || node == nil || node.Spec.Unschedulable || node.Annotations[fleet.AnnotationRollout] != "" || node.Status.Conditions[0].Status != corev1.ConditionTrue {
			w.Errorf("%s has %s, want version %d in service; its Node: %+v\n%s", name, i.Image.Text(), n, node, strings.Join(w.lines, "\n"))
		}
	}
}

func (w *world) boots() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.lives)
}

// restart restarts a node's machine.
func (w *world) restart(node string) { w.act(node, "restart") }

// stop stops it.
func (w *world) stop(node string) { w.act(node, "powerOff") }

func (w *world) act(node, action string) {
	w.Helper()
	w.send(http.MethodPost, pool.Child("virtualMachines", node[len(node)-1:])+fleet.ResourceID("/"+action), computeAPI, object{})
	time.Sleep(5 * time.Minute)
}

func (w *world) deleteInstance(id string) {
	w.send(http.MethodPost, pool+"/delete", computeAPI, object{"instanceIds": []string{id}})
}

// tag sets tags, by name and value.
func (w *world) tag(id fleet.ResourceID, pairs ...string) {
	w.Helper()
	tags := object{}
	for i := 0; i < len(pairs); i += 2 {
		tags[pairs[i]] = pairs[i+1]
	}
	w.send(http.MethodPatch, id+"/providers/Microsoft.Resources/tags/default", "2021-04-01", object{"operation": "Merge", "properties": object{"tags": tags}})
}
