package push_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/nodeconfig/push"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/test/conditional"
	"github.com/ortet/ortet/test/kubesim"
)

const (
	namespace = "ortet-system"
	version   = "2024-07-01"
	pool      = fleet.ResourceID("/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/" + azsim.DefaultResourceGroup + "/providers/Microsoft.Compute/virtualMachineScaleSets/pool1")
)

// A world is a pool in azsim, whose machines are Nodes in kubesim with agents that answer.
type world struct {
	*testing.T
	ctx    context.Context
	azure  *azsim.Server
	arm    *recorder
	kube   *kubesim.Server
	client kubernetes.Interface
	key    ed25519.PrivateKey

	mu     sync.Mutex
	lines  []string
	agents map[string]string // by Node: "fail", "refuse", "silent", "wait"; "" applies
	joined map[string]string // instance numbers by Node
	busy   int               // nodes that apply now
	// machine is called instead of what agents says.
	machine func(instance, node string)
	most    int
}

// play runs a test in virtual time, with a pool of n Ready nodes.
func play(t *testing.T, n int, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &azsim.Server{}
		defer s.Close()
		o := s.ClientOptions()
		options := arm.Options{Cloud: o.Cloud, Credential: s.Credential(""), Transport: o.Transport, Version: "test"}
		client, err := arm.NewResources(options)
		if err != nil {
			t.Fatal(err)
		}
		cloud, err := arm.New(options)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := &world{T: t, ctx: ctx, azure: s, arm: &recorder{Resources: client, cloud: cloud}, kube: &kubesim.Server{}, agents: map[string]string{}, joined: map[string]string{},
			key: ed25519.NewKeyFromSeed([]byte(strings.Repeat("k", ed25519.SeedSize)))}
		w.kube.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
		w.kube.Users = map[string][]kubesim.Grant{"operator": kubesim.Grants(kube.PolicyRules(kube.ConfigurationRules(namespace)))}
		if w.client, err = kubernetes.NewForConfig(w.kube.Config("operator")); err != nil {
			t.Fatal(err)
		}
		w.send(http.MethodPut, fmt.Sprintf(`{"location": "westeurope", "sku": {"name": "Standard_D2s_v5", "capacity": %d}, "properties": {"overprovision": false, "upgradePolicy": {"mode": "Manual"},
			"virtualMachineProfile": {"osProfile": {"computerNamePrefix": "pool1", "adminUsername": "ortet", "adminPassword": "Corr3ct-horse"},
			"storageProfile": {"imageReference": {"publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server", "version": "latest"}}}}}`, n))
		for id, node := range w.instances() {
			w.join(id, node)
		}
		go w.agent()
		test(w)
	})
}

// send changes the scale set, or what is below it.
func (w *world) send(method, body string, below ...string) {
	w.Helper()
	id := pool
	if len(below) > 0 {
		id = pool.Child(below[0], below[1])
	}
	var content any
	if body != "" {
		content = json.RawMessage(body)
	}
	op, err := w.arm.Resources.Send(w.ctx, method, method, id, version, content)
	if err == nil {
		_, err = op.Wait(w.ctx)
	}
	if err != nil {
		w.Fatal(err)
	}
}

// instances returns the Node names of the pool's machines, by instance number.
func (w *world) instances() map[string]string {
	w.Helper()
	names, _ := w.machines()
	return names
}

// machines returns the Node names and the vmIds of the pool's machines, by instance number.
func (w *world) machines() (out, ids map[string]string) {
	w.Helper()
	out, ids = map[string]string{}, map[string]string{}
	if err := w.arm.List(w.ctx, pool+"/virtualMachines", version, func(raw json.RawMessage) error {
		var i struct {
			InstanceID string `json:"instanceId"`
			Properties struct {
				VMID      string `json:"vmId"`
				OSProfile struct {
					ComputerName string `json:"computerName"`
				} `json:"osProfile"`
			} `json:"properties"`
		}
		err := json.Unmarshal(raw, &i)
		out[i.InstanceID], ids[i.InstanceID] = strings.ToLower(i.Properties.OSProfile.ComputerName), i.Properties.VMID
		return err
	}); err != nil {
		w.Fatal(err)
	}
	return out, ids
}

// name is a Node's: those of a pool of n are numbered from 0.
func name(instance int) string { return fmt.Sprintf("pool1%06d", instance) }

// join makes an instance's Node, Ready.
func (w *world) join(instance, node string) {
	w.mu.Lock()
	w.joined[node] = instance
	w.mu.Unlock()
	_, ids := w.machines()
	w.kube.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: corev1.NodeSpec{ProviderID: "azure://" + string(pool.Child("virtualMachines", instance))},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{SystemUUID: ids[instance]}, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
}

func (w *world) change(node string, change func(*corev1.Node)) {
	w.kube.Change("nodes", "", node, func(o runtime.Object) { change(o.(*corev1.Node)) })
}

func (w *world) behave(node, how string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.agents[node] = how
}

// agent plays the agents of all nodes: each reads its userData when its Node wants a
// generation, and answers 12 s later.
func (w *world) agent() {
	began := map[string]int64{}
	for w.ctx.Err() == nil {
		w.kube.Each("nodes", func(o runtime.Object) bool {
			n := o.(*corev1.Node)
			wanted, _ := strconv.ParseInt(n.Annotations[wire.ConfigurationWanted], 10, 64) // 0 where nothing is asked
			wanted = nodeconfig.Counted(wanted)
			if wanted > began[n.Name] && n.Status.Conditions[0].Status == corev1.ConditionTrue {
				began[n.Name] = wanted
				go w.apply(n.Name, wanted)
			}
			return true
		})
		select {
		case <-time.After(200 * time.Millisecond):
		case <-w.ctx.Done():
		}
	}
}

func (w *world) apply(node string, wanted int64) {
	w.mu.Lock()
	instance := w.joined[node]
	w.mu.Unlock()
	d := w.document(w.userData(instance))
	if d == nil || d.Generation < wanted {
		w.Errorf("%s is to have generation %d before its userData has it", node, wanted)
		return
	}
	w.mu.Lock()
	how := w.agents[node]
	w.busy++
	w.most = max(w.most, w.busy)
	w.mu.Unlock()
	select {
	case <-time.After(12 * time.Second):
	case <-w.ctx.Done():
		return
	}
	w.mu.Lock()
	w.busy--
	w.mu.Unlock()
	had := w.answer(node).Generation
	a := wire.ConfigurationAnswer{Generation: had, Wanted: d.Generation, At: time.Now()}
	if w.machine != nil {
		w.machine(instance, node)
		return
	}
	switch how {
	case "silent":
		return
	case "interrupted":
		a.State, a.Reason, a.Message = wire.ConfigurationFailed, wire.ReasonInterrupted, "the machine stopped"
	case "wait":
		a.State, a.Reason = wire.ConfigurationWaiting, wire.ReasonNodeNotReady
	case "fail":
		a.State, a.Reason, a.Message = wire.ConfigurationFailed, wire.ReasonUnhealthy, "kubelet did not start"+wire.ConfigurationLog+"many lines"
	case "refuse":
		a.State, a.Reason, a.Message = wire.ConfigurationRefused, wire.ReasonNotPrepared, "kubelet has no --config-dir"
	default:
		a.State, a.Generation = wire.ConfigurationApplied, d.Generation
	}
	w.write(node, a)
}

func (w *world) write(node string, a wire.ConfigurationAnswer) {
	text, err := json.Marshal(a)
	if err != nil {
		w.Error(err)
	}
	w.change(node, func(n *corev1.Node) {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, wire.ConfigurationAnnotation, string(text))
	})
}

func (w *world) answer(node string) (a wire.ConfigurationAnswer) {
	if n := w.kube.Node(node); n != nil && n.Annotations[wire.ConfigurationAnnotation] != "" {
		if err := json.Unmarshal([]byte(n.Annotations[wire.ConfigurationAnnotation]), &a); err != nil {
			w.Error(err)
		}
	}
	return a
}

func (w *world) document(userData string) *nodeconfig.Document {
	signed, err := nodeconfig.Read(userData)
	if err != nil {
		return nil
	}
	d, err := signed.Verify([]nodeconfig.PublicKey{nodeconfig.PublicKeyOf(w.key.Public().(ed25519.PublicKey))})
	if err != nil {
		w.Error(err)
	}
	return &d
}

// model is the generation in the model, 0 for none.
func (w *world) model() int64 {
	w.Helper()
	var v struct {
		Properties struct {
			Profile struct {
				UserData string `json:"userData"`
			} `json:"virtualMachineProfile"`
		} `json:"properties"`
	}
	if err := w.arm.Resources.Get(w.ctx, pool, version, &v, "$expand", "userData"); err != nil {
		w.Fatal(err)
	}
	if d := w.document(v.Properties.Profile.UserData); d != nil {
		return d.Generation
	}
	return 0
}

// rollout is one run of the command.
func (w *world) rollout() *push.Rollout {
	return push.New(push.Options{ARM: azure.LimitResources(w.arm, azure.Limits{}), Cloud: conditional.Cloud(azure.Limit(changer{w.arm.cloud, w.arm}, azure.Limits{}), func(verb string) { w.Errorf("%s without an ETag: others' changes would be lost", verb) }), Kube: w.client, Namespace: namespace, Now: time.Now, By: "ada@desk", Report: func(line string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lines = append(w.lines, line)
		w.Log(line)
	}})
}

// config has one file with the content.
func config(content string) nodeconfig.Config {
	return nodeconfig.Config{Files: []nodeconfig.File{{Path: "/etc/motd", Content: content}}}
}

func (w *world) push(content string, set ...func(*push.Request)) (*push.Result, error) {
	o := push.Request{Config: config(content), Key: w.key}
	for _, s := range set {
		s(&o)
	}
	return w.rollout().Push(w.ctx, pool, o)
}

// must pushes what succeeds.
func (w *world) must(content string, set ...func(*push.Request)) *push.Result {
	w.Helper()
	result, err := w.push(content, set...)
	if err != nil {
		w.Fatal(err)
	}
	return result
}

// refused wants a refusal of that code.
func (w *world) refused(err error, code string) {
	w.Helper()
	var refused *workflow.Refused
	if !errors.As(err, &refused) || len(refused.Problems) != 1 || refused.Problems[0].Code != code || refused.Problems[0].WayOut == "" {
		w.Errorf("got %v; want it refused for %s alone, with a way out", err, code)
	}
}

// has wants the nodes to have a generation.
func (w *world) has(generation int64, nodes ...string) {
	w.Helper()
	for _, n := range nodes {
		if a := w.answer(n); a.Generation != generation {
			w.Errorf("%s has generation %d, want %d: %+v", n, a.Generation, generation, a)
		}
	}
}

func (w *world) printed(part string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Contains(strings.Join(w.lines, "\n"), part)
}

// userData is that of an instance.
func (w *world) userData(instance string) string {
	var v struct {
		Properties struct {
			UserData string `json:"userData"`
		} `json:"properties"`
	}
	if err := w.arm.Resources.Get(w.ctx, pool.Child("virtualMachines", instance), version, &v, "$expand", "userData"); err != nil && w.ctx.Err() == nil {
		w.Error(err)
	}
	return v.Properties.UserData
}

// A recorder calls hook before each PUT of an instance, and counts them.
type recorder struct {
	azure.Resources
	cloud azure.Cloud
	mu    sync.Mutex
	puts  int
	hook  func(id fleet.ResourceID, put int)
	onGet func(id fleet.ResourceID) // before each Get
	// onSend is called before each Send.
	onSend func(method string)
}

func (r *recorder) Get(ctx context.Context, id fleet.ResourceID, version string, into any, query ...string) error {
	if r.onGet != nil {
		r.onGet(id)
	}
	return r.Resources.Get(ctx, id, version, into, query...)
}

// A changer is the cloud of a recorder.
type changer struct {
	azure.Cloud
	*recorder
}

func (c changer) Begin(ctx context.Context, change fleet.Change) (fleet.Token, error) {
	_, put := change.(fleet.SetUserData)
	if c.onSend != nil {
		c.onSend(map[bool]string{true: http.MethodPut, false: http.MethodPatch}[put])
	}
	if put {
		c.mu.Lock()
		c.puts++
		hook, put := c.hook, c.puts
		c.mu.Unlock()
		if hook != nil {
			hook(change.Target(), put)
		}
	}
	return c.Cloud.Begin(ctx, change)
}
