//go:build e2e

package charts

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/internal/admission"
	admissionkube "github.com/ortet/ortet/internal/admission/kube"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/controlplane"
)

// An installation is both charts on the shared control plane, in a namespace of its own:
// all of them but what would run.
type installation struct {
	*testing.T
	ctx       context.Context
	cp        *controlplane.ControlPlane
	namespace string
	admin     kubernetes.Interface
}

// notRun are the kinds of what the charts run.
var notRun = map[string]bool{"Deployment": true, "Service": true, "PodDisruptionBudget": true, "Job": true, "CronJob": true}

// keptOf returns a manifest without what it runs.
func keptOf(t *testing.T, manifest string) string {
	t.Helper()
	var kept []string
	for _, doc := range strings.Split(manifest, "\n---\n") {
		var kind struct{ Kind string }
		if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
			t.Fatalf("not YAML: %v\n%s", err, doc)
		}
		if kind.Kind != "" && !notRun[kind.Kind] {
			kept = append(kept, doc)
		}
	}
	return strings.Join(kept, "\n---\n")
}

// manifests are those of both charts of today, for a namespace and an exempt node, without
// the policies on Nodes: they would be for the Nodes of all tests.
func manifests(t *testing.T, namespace, exempt string) string {
	t.Helper()
	var all []string
	for _, args := range releases(namespace, exempt) {
		out, err := helm(t, append([]string{"template"}, args...)...)
		if err != nil {
			t.Fatalf("helm template: %v\n%s", err, out)
		}
		all = append(all, keptOf(t, out))
	}
	return strings.Join(all, "\n---\n")
}

// releases are both charts of today, each as a release's name, its chart and its values.
func releases(namespace, exempt string) [][]string {
	return [][]string{
		append([]string{"r", "ortet", "--namespace", namespace, "--set", "controller.liftTaint=true,admission.policy.enabled=false,azure.configSecret=" + configSecret + ",admission.policy.exempt={" + exempt + "}"}, admitting...),
		{"c", "vmss-prototype", "--namespace", namespace, "--set", "kamino.targetNode=" + node + ",ortet.pools={" + accountsPool + "},ortet.namespace=" + namespace + ",ortet.exempt={" + exempt + "-2}"},
	}
}

// helm runs Helm on the control plane.
func (i *installation) helm(args ...string) {
	i.Helper()
	if out, err := helm(i.T, append(args, "--kubeconfig", i.cp.Kubeconfig)...); err != nil {
		i.Fatalf("helm %s: %v\n%s", args[0], err, out)
	}
}

// installed makes a namespace and applies a manifest, which is deleted with the test.
func installed(t *testing.T, namespace, manifest string) *installation {
	t.Helper()
	i := emptied(t, namespace)
	i.kubectl(manifest, "apply", "--filename", "-")
	t.Cleanup(func() { i.kubectl(manifest, "delete", "--ignore-not-found", "--wait=false", "--filename", "-") })
	return i
}

// emptied makes a namespace with no chart in it.
func emptied(t *testing.T, namespace string) *installation {
	t.Helper()
	i := &installation{T: t, ctx: t.Context(), cp: controlplane.Shared(t), namespace: namespace, admin: client(t, controlplane.Client{})}
	_, err := i.admin.CoreV1().Namespaces().Create(i.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	return i
}

func (i *installation) kubectl(manifest string, args ...string) {
	i.Helper()
	ctx := context.WithoutCancel(i.ctx)
	binary, err := controlplane.Binary(ctx)
	if err != nil {
		i.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, binary, append([]string{"kubectl", "--kubeconfig", i.cp.Kubeconfig}, args...)...)
	cmd.Stdin = strings.NewReader(manifest)
	if out, err := cmd.CombinedOutput(); err != nil {
		i.Fatalf("kubectl %s: %v\n%s", args[0], err, out)
	}
}

// account is the client of a service account of the namespace.
func (i *installation) account(name string) controlplane.Client {
	return controlplane.Client{User: "system:serviceaccount:" + i.namespace + ":" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + i.namespace, "system:authenticated"}}
}

// admission returns the admission server, as somebody and at a time.
func (i *installation) admission(who controlplane.Client, now func() time.Time) *admissionkube.Cluster {
	i.Helper()
	config, err := i.cp.RESTConfigFor(who)
	if err != nil {
		i.Fatal(err)
	}
	c, err := admissionkube.New(admissionkube.Config{REST: config, Namespace: i.namespace, Now: now, Server: i.cp.Server, CA: i.cp.CA()})
	if err != nil {
		i.Fatal(err)
	}
	return c
}

// server is the admission server by its own account.
func (i *installation) server() *admissionkube.Cluster {
	i.Helper()
	return i.admission(i.account("r-admission"), time.Now)
}

// starts has the server make its keys and its list, once it may, and admit a machine.
func (i *installation) starts(c *admissionkube.Cluster, m fleet.Member) (authority []byte) {
	i.Helper()
	eventually(i.T, "the server to start", func() error {
		if _, err := c.NonceKey(i.ctx); err != nil {
			return err
		}
		var err error
		authority, _, err = c.Authority(i.ctx, func() ([]byte, []byte, error) { return []byte("made"), []byte("key"), nil })
		if err != nil {
			return err
		}
		if err := c.Prepare(i.ctx); err != nil {
			return err
		}
		_, err = c.Admit(i.ctx, m, wire.Kubelet, admission.NodeState{})
		return err
	})
	return authority
}

const accountsPool = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/p"

func machine(host string) fleet.Member {
	return fleet.Member{Pool: accountsPool, Instance: accountsPool + "/virtualMachines/1", HostName: host, VMID: "vm-" + host}
}

// surroundings are two Nodes, kured, and a tenant who may edit and debug in the
// namespace.
func (i *installation) surroundings(worker, control string) {
	i.Helper()
	const others = `
apiVersion: v1
kind: Node
metadata: {name: %[2]s}
---
apiVersion: v1
kind: Node
metadata: {name: %[3]s, annotations: {%[4]s: x}}
spec: {taints: [{key: theirs, effect: NoSchedule}, {key: %[5]s, effect: NoSchedule}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: kured, namespace: %[1]s, labels: {app.kubernetes.io/name: kured}}
spec:
  selector: {matchLabels: {app: kured}}
  template:
    metadata: {labels: {app: kured}}
    spec: {nodeSelector: {none: none}, containers: [{name: kured, image: example.invalid/kured}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{kind: ServiceAccount, name: tenant, namespace: %[1]s}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: debug, namespace: %[1]s}
rules: [{apiGroups: [""], resources: [pods/ephemeralcontainers], verbs: [patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: debug, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: debug}
subjects: [{kind: ServiceAccount, name: tenant, namespace: %[1]s}]
`
	manifest := fmt.Sprintf(others, i.namespace, control, worker, wire.BootAnnotation, fleet.TaintUnproven)
	i.kubectl(manifest, "apply", "--filename", "-")
	i.Cleanup(func() { i.kubectl(manifest, "delete", "--ignore-not-found", "--wait=false", "--filename", "-") })
	ready := []byte(`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)
	if _, err := i.admin.CoreV1().Nodes().Patch(i.ctx, worker, types.StrategicMergePatchType, ready, metav1.PatchOptions{}, "status"); err != nil {
		i.Fatal(err)
	}
}

// spendOnce spends a nonce, now or before.
func spendOnce(ctx context.Context, c *admissionkube.Cluster, nonce string) error {
	err := c.Spend(ctx, nonce, time.Now().Add(time.Hour))
	if errors.Is(err, admission.ErrSpent) {
		return nil
	}
	return err
}

// capture returns a capture's part of the cluster, by its own account.
func (i *installation) capture() *kube.Cluster {
	i.Helper()
	config, err := i.cp.RESTConfigFor(i.account("c-vmss-prototype"))
	if err != nil {
		i.Fatal(err)
	}
	c, err := kube.New(kube.Config{REST: config, Namespace: i.namespace})
	if err != nil {
		i.Fatal(err)
	}
	return c
}

const captureHolder, captureJob = "test", "capture-work"

var captureData, captureMore = saved("x"), saved("y")

func saved(data string) cluster.SecretItem {
	return cluster.SecretItem{Kind: "customData", SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(data))), Data: fleet.NewSecret(data), Pool: accountsPool}
}

// captures does what a capture does in the cluster: it holds the pool, writes its journal,
// keeps data, cordons the node, holds kured and starts its pod.
func (i *installation) captures(t *testing.T, c *kube.Cluster, on string) {
	t.Helper()
	check := func(what string, err error) {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := c.Hold(i.ctx, accountsPool, captureHolder, time.Minute)
	check("hold the pool", err)
	r, err := c.Journals().Load(i.ctx, accountsPool)
	if fleet.Is(err, fleet.KindNotFound) {
		r, err = journal.Record{Schema: journal.Schema, Name: "20261121-1", Kind: "capture", Pool: accountsPool, Subject: on, Begun: time.Unix(1790000000, 0).UTC(), Request: []byte("{}")}, nil
	}
	check("read the journal", err)
	for range 2 {
		r, err = c.Journals().Save(i.ctx, r)
		check("write the journal", err)
	}
	for _, item := range []cluster.SecretItem{captureData, captureMore} {
		check("keep data", c.PutSecret(i.ctx, item, nil))
		_, err = c.GetSecret(i.ctx, item.Pool, item.Kind, item.SHA256)
		check("read what is kept", err)
	}
	value := "x"
	check("annotate", c.Annotate(i.ctx, on, map[string]*string{"ortet.io/capture": &value}))
	check("cordon", c.SetUnschedulable(i.ctx, on, true))
	check("uncordon", c.SetUnschedulable(i.ctx, on, false))
	check("isolate a clone", c.Isolate(i.ctx, on))
	check("uncordon it", c.SetUnschedulable(i.ctx, on, false))
	held, err := c.HoldReboots(i.ctx, captureHolder, time.Minute)
	check("hold kured", err)
	if !held {
		t.Error("there is no kured")
	}
	check("start the pod", c.StartJob(i.ctx, cluster.Job{Name: captureJob, Node: on, Image: "example.invalid/c", Command: []string{"c"}}))
	state, err := c.Job(i.ctx, captureJob)
	check("read the pod", err)
	if !state.Exists {
		t.Error("there is no pod")
	}
}
