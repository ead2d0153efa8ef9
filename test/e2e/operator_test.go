//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/api/v1alpha1"
	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/test/controlplane"
	"github.com/ortet/ortet/test/syncbuffer"
)

// keptByOperator has the object of a pool done by two operators, with the account and policies of the chart: they
// make an image, lose the Lease and a process while the donor is off, prove it, renew the nodes, and take
// a bad one back.
func keptByOperator(t *testing.T, w *world) {
	o := w.pool(t, "kept", 2).operate(t)
	before := map[string]kept{}
	for _, n := range o.nodes {
		before[n] = o.node(t, n)
	}
	first, second := o.start(t), o.start(t)
	// No snapshot is made until the fault ends, so the donor stays off.
	o.control(t, http.MethodPost, "faults", azsim.Fault{Name: "kept", Method: http.MethodPut, Path: "/snapshots/.*" + o.name,
		Effect: azsim.EffectThrottle, RetryAfterSeconds: 1}, nil)
	o.apply(t, "kept", `
  donors: {minReady: 0s}
  canary: {clones: 0}
  watch: {nodes: 1, duration: 10m}
  capture: {schedule: "* * * * *", window: 1m, bootstrap: Baked, acceptPoolCredentials: true, extensions: {delete: All, keep: ["*AKSLinuxBilling*"]}}`)
	o.refusesBadObjects(t)

	// Another has the Lease: the operator returns the donor, and nobody begins before it is free.
	donor := o.donorOff(t)
	o.leader(t, first, second)
	const another = "elsewhere/1/-"
	o.lease(t, another)
	o.back(t, donor, before[donor])
	if l := o.lease(t, ""); l != another {
		t.Errorf("%s led before the Lease was free", l)
	}

	// The next one is killed, and the last one returns the donor and finishes the image.
	donor = o.donorOff(t)
	killed, last := o.leader(t, first, second), second
	if killed == second {
		last = first
	}
	must(t, killed.cmd.Process.Kill())
	o.control(t, http.MethodDelete, "faults/kept", nil, nil)
	o.back(t, donor, before[donor])
	o.leader(t, last)
	o.await(t, "Fresh")
	good := today()
	o.pinned(t, good)

	o.scaleOut(t, 3)
	o.await(t, "Proven")
	o.kubectl(t, "", "patch", "ssp", "kept", "--type=merge", "--patch", `{"spec":{"rollout":{"mode":"Proven","soak":"1s"}}}`)
	o.until(t, "3 renewed nodes", func(s v1alpha1.ScaleSetPoolStatus) bool { return s.Nodes.Summary == "3/3" && s.Run == nil })

	// A person captures a bad one: its node has the donor's machine id.
	n, err := o.kube.CoreV1().Nodes().Get(t.Context(), o.nodes[0], metav1.GetOptions{})
	must(t, err)
	planted := false
	o.ortet(t, func(l line) os.Signal {
		for _, v := range o.versions(t) {
			if !planted && v != good {
				planted = true
				o.setMachineID(t, v, n.Status.NodeInfo.MachineID)
			}
		}
		return nil
	}, baked("capture", o.nodes[0], "--workbench="+o.nodes[1], "--again", "--lease-duration=5s")...).exits(t, exitDone)
	for n := range 2 { // one alone may be an accident
		o.scaleOut(t, 4+n)
	}
	o.until(t, "a version in quarantine, and all nodes of the one before", func(s v1alpha1.ScaleSetPoolStatus) bool {
		return s.Image == good && s.Nodes.Summary == "5/5" && s.Run == nil && slices.ContainsFunc(s.Versions, func(v v1alpha1.VersionStatus) bool {
			return v.State == v1alpha1.VersionQuarantined && strings.HasPrefix(v.Reason, "identity: ") && v.Nodes == 0
		})
	})
	o.pinned(t, good)
	for name := range o.instances(t) {
		if now := o.node(t, name); now.spec.Unschedulable || now.power != "running" {
			t.Errorf("node %s: %+v", name, now)
		}
	}
	o.clean(t)
	table, described := o.kubectl(t, "", "get", "ssp"), o.kubectl(t, "", "describe", "ssp", "kept")
	for l := range strings.Lines(table) {
		if utf8.RuneCountInString(l) > 81 {
			t.Errorf("kubectl get ssp has a line of more than 80 columns:\n%s", table)
		}
	}
	for _, want := range []string{"identity: ", "Quarantined", "capture: " + good + " captured of " + donor, "rollout: 2 nodes renewed", "Operating"} {
		if !strings.Contains(described, want) {
			t.Errorf("kubectl describe ssp does not say %q:\n%s", want, described)
		}
	}
	t.Logf("%s\n%s", table, described)
	said := described + o.kubectl(t, "", "get", "events", "--all-namespaces", "--output=yaml") + first.log.String() + second.log.String()
	for _, secret := range []string{"secret-of-kept", "#cloud-config", "bootstrap-kubelet.conf", "commandToExecute"} {
		if strings.Contains(said, secret) {
			t.Errorf("conditions, events or the log have %q", secret)
		}
	}
}

// An operation is the operator of one pool: the chart's account and arguments, in processes of its own.
type operation struct {
	*pool
	args []string
}

// A replica is one process of ortet operator.
type replica struct {
	cmd *exec.Cmd
	log *syncbuffer.Buffer
}

// operate applies what of the chart the operator needs, but for its Deployment, of which it takes the arguments.
func (p *pool) operate(t *testing.T) *operation {
	t.Helper()
	_, err := p.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		must(t, err)
	}
	var d appsv1.Deployment
	var rest []string
	for _, doc := range p.render(t, "ortet", "../../charts/ortet", namespace, "image.repository=example.invalid/ortet,image.tag=v1,operator.enabled=true,"+
		"operator.resourceGroups[0]="+string(p.id().Group())) {
		var o metav1.PartialObjectMetadata
		must(t, yaml.Unmarshal([]byte(doc), &o))
		switch operators := strings.Contains(o.Name, "operator"); {
		case o.Kind == "Deployment" && operators:
			must(t, yaml.UnmarshalStrict([]byte(doc), &d))
		case o.Kind == "CustomResourceDefinition", operators && o.Kind != "Service":
			rest = append(rest, doc)
		}
	}
	p.kubectl(t, strings.Join(rest, "\n---\n"), "apply", "--server-side", "--filename", "-")
	p.kubectl(t, "", "wait", "--for=condition=Established", "--timeout=1m", "crd/scalesetpools.ortet.io")
	return &operation{p, append(d.Spec.Template.Spec.Containers[0].Args, "--azure-config="+p.azureConfig,
		"--kubeconfig="+p.account(t, namespace, d.Spec.Template.Spec.ServiceAccountName),
		"--metrics-address=0", "--health-address=0", "--lease-duration=5s")}
}

// start starts a replica, which ends with the test.
func (o *operation) start(t *testing.T) *replica {
	t.Helper()
	r := &replica{cmd: exec.Command(filepath.Join(o.bin, "ortet"), o.args...), log: &syncbuffer.Buffer{}} //nolint:noctx // it is to end by a signal
	r.cmd.Env = []string{"SSL_CERT_FILE=" + o.azure.Endpoint.CAFile, "HOME=" + o.home, "PATH=" + o.home, "TERM=dumb"}
	r.cmd.Stdout, r.cmd.Stderr = r.log, r.log
	must(t, r.cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.cmd.Wait() // the signal says it
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Signal(os.Interrupt) // it may have been killed
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Error("an operator did not end within a minute of its signal")
			_ = r.cmd.Process.Kill()
		}
		if t.Failed() {
			t.Logf("operator %d:\n%s", r.cmd.Process.Pid, r.log.String())
		}
	})
	return r
}

// lease gives the operators' Lease to a holder for half a minute, unless that is "". It returns who had it.
func (o *operation) lease(t *testing.T, holder string) (had string) {
	t.Helper()
	leases := o.kube.CoordinationV1().Leases(namespace)
	l, err := leases.Get(t.Context(), "ortet-operator", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	must(t, err)
	if holder != "" {
		patch := `{"spec":{"holderIdentity":"` + holder + `","leaseDurationSeconds":30,"renewTime":"` + time.Now().UTC().Format(metav1.RFC3339Micro) + `"}}`
		_, err = leases.Patch(t.Context(), l.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		must(t, err)
	}
	return str(l.Spec.HolderIdentity)
}

// leader waits until one of the replicas has the Lease.
func (o *operation) leader(t *testing.T, of ...*replica) (r *replica) {
	t.Helper()
	eventually(t, "a leader", func() bool {
		holder := o.lease(t, "")
		i := slices.IndexFunc(of, func(r *replica) bool { return strings.Contains(holder, fmt.Sprintf("/%d/", r.cmd.Process.Pid)) })
		if i >= 0 {
			r = of[i]
		}
		return i >= 0
	})
	return r
}

// donorOff waits until a machine of the pool is off, and returns its node.
func (o *operation) donorOff(t *testing.T) (node string) {
	t.Helper()
	eventually(t, "a donor that is off", func() bool {
		for name, vm := range o.instances(t) {
			if powerOf(vm) == "stopped" {
				node = name
			}
		}
		return node != ""
	})
	return node
}

// back waits until a donor is in service as before.
func (o *operation) back(t *testing.T, donor string, before kept) {
	t.Helper()
	eventually(t, "the donor's return", func() bool {
		now := o.node(t, donor)
		return now.power == "running" && !now.spec.Unschedulable && !now.protected && len(now.annotations) == len(before.annotations)
	})
	o.whole(t, donor, before)
}

// apply applies an object of the pool with the rest of a spec.
func (o *operation) apply(t *testing.T, name, spec string) {
	t.Helper()
	o.kubectl(t, o.object(name, string(o.id()), spec), "apply", "--filename", "-")
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(o.kubectl(t, "", "get", "ssp", "--output=yaml"))
		}
	})
}

func (o *operation) object(name, scaleSet, spec string) string {
	return "apiVersion: ortet.io/v1alpha1\nkind: ScaleSetPool\nmetadata: {name: " + name + "}\nspec:\n  scaleSet: " + scaleSet + spec + "\n"
}

// await waits for a condition as a person would.
func (o *operation) await(t *testing.T, condition string) {
	t.Helper()
	if out, err := o.tryKubectl(t, "", "wait", "--for=condition="+condition, "--timeout="+patience.String(), "ssp/kept"); err != nil {
		t.Fatalf("kubectl wait: %v\n%s", err, out)
	}
}

func (o *operation) until(t *testing.T, what string, is func(v1alpha1.ScaleSetPoolStatus) bool) {
	t.Helper()
	eventually(t, what, func() bool { return is(o.status(t, "kept")) })
}

func (o *operation) status(t *testing.T, name string) v1alpha1.ScaleSetPoolStatus {
	t.Helper()
	var p v1alpha1.ScaleSetPool
	must(t, json.Unmarshal([]byte(o.kubectl(t, "", "get", "ssp", name, "--output=json")), &p))
	return p.Status
}

// refusesBadObjects applies objects for which nothing can be done: the API server or the operator says why.
func (o *operation) refusesBadObjects(t *testing.T) {
	t.Helper()
	id := string(o.id())
	for spec, why := range map[string]string{
		"\n  capture: {schedule: \"0 0 2 * * *\"}":             "want five fields",
		"\n  rollout: {mode: Proven, maxUnavailable: 0}":       "want 1 to 1000 nodes, or 1% to 100%",
		"\n  capture: {schedule: \"@daily\", maxImageAge: 0s}": "needs donors.patchAnnotation",
	} {
		if out, err := o.tryKubectl(t, o.object("refused", id, spec), "apply", "--filename", "-"); err == nil || !strings.Contains(out, why) {
			t.Errorf("%s is applied, or does not say %q: %s", spec, why, out)
		}
	}
	bad := map[string]struct{ scaleSet, spec, reason, says string }{
		"twin":     {id, "", v1alpha1.ReasonDuplicate, "kubectl delete ssp twin"},
		"gone":     {id + "-2", "\n  watch: {}", "PoolNotFound", "az vmss list"},
		"outside":  {strings.Replace(id, o.group(), "others", 1), "\n  watch: {}", v1alpha1.ReasonOutside, "operator.resourceGroups"},
		"february": {id + "-3", "\n  capture: {schedule: \"0 0 30 2 *\"}", "PoolNotFound", "az vmss list"},
	}
	for name, b := range bad {
		o.kubectl(t, o.object(name, b.scaleSet, b.spec), "apply", "--filename", "-")
	}
	for name, b := range bad {
		eventually(t, "what is wrong with "+name, func() bool {
			all := o.status(t, name).Conditions
			return len(all) == 5 && slices.ContainsFunc(all, func(c metav1.Condition) bool {
				return c.Type == v1alpha1.ConditionStalled && c.Reason == b.reason && strings.Contains(c.Message, b.says)
			})
		})
		o.kubectl(t, "", "delete", "ssp", name)
	}
}

func (w *world) kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := w.tryKubectl(t, stdin, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (w *world) tryKubectl(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	binary, err := controlplane.Binary(t.Context())
	must(t, err)
	cmd := exec.CommandContext(t.Context(), binary, append([]string{"kubectl", "--kubeconfig", w.cp.Kubeconfig}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
