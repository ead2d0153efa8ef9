//go:build e2e && linux

package lab

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

var outage = flag.Duration("outage", 20*time.Second, "how long the admission server is down in TestJoinOnRealMachines")

// TestJoinOnRealMachines has real machines join by themselves, and leave: a scale set
// whose machines have nothing but an address in their customData, the shipped units,
// an upstream kubelet, and an admission server with the chart's rights.
func TestJoinOnRealMachines(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 14*time.Minute+*outage)
	defer cancel()
	line := newTimeline(t)
	j := newJoining(ctx, t, line)

	line.begin("two machines boot and join")
	j.createPool(ctx, t, 2)
	first := j.awaitNodes(ctx, t, 2)
	j.deploy(ctx, t)
	t.Run("a joined node is as it should be", func(t *testing.T) { j.checkJoined(ctx, t, first[0]) })

	line.begin("pods try to join in their node's name")
	t.Run("a pod cannot take its node's name", func(t *testing.T) { j.checkPodCannotJoin(ctx, t, first[0]) })

	line.begin("a donor's files are put back by hand")
	t.Run("a stranger's identity is discarded", func(t *testing.T) { j.checkStranger(ctx, t, first[0], first[1]) })

	line.begin("five more, while the server is down")
	t.Run("with the server down nothing happens to nodes", func(t *testing.T) { j.checkOutage(ctx, t, 5) })

	line.begin("five less")
	t.Run("scaling in leaves the right nodes", func(t *testing.T) { j.checkScaleIn(ctx, t, 5) })

	if t.Failed() {
		t.FailNow() // the rest would only wait
	}
	line.begin("an eviction")
	t.Run("an eviction drains in time", func(t *testing.T) { j.checkEviction(ctx, t) })
	line.print()
}

// checkJoined looks at a node that joined.
func (j *joining) checkJoined(ctx context.Context, t *testing.T, name string) {
	n := j.node(ctx, t, name)
	vm := j.instances(ctx, t)[name]
	if vm == nil {
		t.Fatalf("no instance has the computer name %s", name)
	}
	if want := "azure://" + *vm.ID; !strings.EqualFold(n.Spec.ProviderID, want) {
		t.Errorf("provider id %s, want %s", n.Spec.ProviderID, want)
	}
	// Its serving certificate is of the cluster, and for its own name and address.
	subject := j.machines.sh(ctx, t, name, "openssl x509 -in /var/lib/kubelet/pki/kubelet-server-current.pem -noout -subject -ext subjectAltName")
	if !strings.Contains(subject, "system:node:"+name) || !strings.Contains(subject, "DNS:"+name) {
		t.Errorf("the serving certificate is %s", subject)
	}
	poll(ctx, t, "no token to be left", time.Minute, func(ctx context.Context) (bool, error) {
		tokens, err := j.tokens(ctx)
		return len(tokens) == 0, err
	})
	// It goes on without asking anybody.
	before := j.auditLines(t)
	j.machines.sh(ctx, t, name, "systemctl restart ortet-join.service kubelet.service && systemctl is-active kubelet.service")
	if after := j.auditLines(t); after != before {
		t.Errorf("a restart asked the server: %d lines of audit, before %d", after, before)
	}
}

// checkPodCannotJoin has processes in a pod's network ask to join as the node that
// they run on.
func (j *joining) checkPodCannotJoin(ctx context.Context, t *testing.T, name string) {
	// A pod's first process has its network; what runs there is root, and has all that
	// customData has.
	const pod = `
		pid=$(ctr --namespace k8s.io tasks list | awk '$3 == "RUNNING" { print $2 }' | while read p; do
			[ "$(readlink /proc/$p/ns/net)" != "$(readlink /proc/1/ns/net)" ] && echo $p && break; done)
		[ -n "$pid" ] || { echo "no pod has a network of its own"; exit 0; }
		mkdir -p /tmp/pod/etc/ortet && cp /etc/ortet/join.json /tmp/pod/etc/ortet/join.json
		`
	// The metadata service allows a few requests a second.
	const ask = `for n in 1 2 3; do out=$(timeout 20 nsenter --target $pid --net -- /usr/local/bin/ortet-node join --root /tmp/pod --once 2>&1; echo "exit $?")
		case $out in *"429 Too Many"*) sleep 2;; *) break;; esac; done; echo "$out"`
	const read = `timeout 5 nsenter --target $pid --net -- curl --silent --max-time 3 --noproxy '*' --header Metadata:true 'http://169.254.169.254/metadata/instance/compute/userData?api-version=2021-02-01&format=text'; echo "exit $?"`
	try := func(script string) string {
		t.Helper()
		return j.machines.sh(ctx, t, name, pod+script+"; test -e /tmp/pod/etc/kubernetes && echo GRANTED; rm -rf /tmp/pod")
	}
	refused := func(what, script, want string) {
		t.Helper()
		out := try(script)
		if !strings.Contains(out, want) || strings.Contains(out, "exit 0") || strings.Contains(out, "GRANTED") {
			t.Errorf("%s: want %q and no success, got: %s", what, want, out)
		}
	}
	refused("with the rule, userData", read, "exit 28")
	refused("with the rule, joining", ask, "asking Azure who this machine is")

	j.machines.sh(ctx, t, name, "systemctl stop ortet-metadata-guard.service")
	defer j.machines.sh(ctx, t, name, "systemctl start ortet-metadata-guard.service")
	refused("without the rule, while the Node is Ready", ask, "NodeReady")
	j.notReady(ctx, t, name)
	refused("without the rule, while the Node is not Ready", ask, "KubeletHeard")
	// A minute after its last renewal, by the API server's clock.
	if err := wait.PollUntilContextTimeout(ctx, 5*time.Second, 2*time.Minute, true, func(context.Context) (bool, error) {
		return !strings.Contains(try(ask), "KubeletHeard"), nil
	}); err != nil {
		t.Fatalf("the kubelet never counts as silent: %v", err)
	}
	refused("without the rule, while the kubelet is silent", ask, "CallbackFailed")
	j.machines.sh(ctx, t, name, "systemctl start kubelet.service")
	j.awaitNodes(ctx, t, 2)
}

// notReady stops a node's kubelet, and has the cluster know it at once.
func (j *joining) notReady(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	j.machines.sh(ctx, t, name, "systemctl stop kubelet.service")
	patch := `{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown","message":"Kubelet stopped posting node status."}]}}`
	if _, err := j.client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

// checkStranger puts one node's kubelet files on another by hand.
func (j *joining) checkStranger(ctx context.Context, t *testing.T, donor, clone string) {
	files := j.machines.feedOut(ctx, t, donor, "tar --create --directory / var/lib/kubelet/pki etc/kubernetes/kubelet.conf")
	own := j.identity(ctx, t, clone)
	j.notReady(ctx, t, clone)
	j.machines.feed(ctx, t, clone, files, "rm -rf /var/lib/kubelet/pki && tar --extract --directory /")
	if got := j.identity(ctx, t, clone); !strings.Contains(got, "system:node:"+donor) {
		t.Fatalf("the donor's files are not there: %s", got)
	}
	uid := j.node(ctx, t, donor).UID
	// It boots with them, as from a disk that was prepared so.
	boot := j.node(ctx, t, clone).Status.NodeInfo.BootID
	j.machines.sh(ctx, t, clone, "systemctl --no-block reboot")
	// It joins once its kubelet was silent for a minute.
	poll(ctx, t, clone+" to be Ready after its boot", 4*time.Minute, func(ctx context.Context) (bool, error) {
		n, err := j.client.CoreV1().Nodes().Get(ctx, clone, metav1.GetOptions{})
		if err != nil {
			return false, ignoreNotFound(err)
		}
		return ready(*n) && n.Status.NodeInfo.BootID != boot, nil
	})
	j.awaitNodes(ctx, t, 2)
	now := j.identity(ctx, t, clone)
	if !strings.Contains(now, "system:node:"+clone) || now == own {
		t.Errorf("the clone is %s, before %s", now, own)
	}
	if told := j.machines.sh(ctx, t, clone, "journalctl --boot --unit ortet-join.service --output cat"); !strings.Contains(told, "identity on this disk is not this machine's") {
		t.Errorf("nothing is told of it: %s", told)
	}
	if after := j.node(ctx, t, donor); after.UID != uid {
		t.Errorf("the donor's Node is another")
	}
}

func (j *joining) identity(ctx context.Context, t *testing.T, host string) string {
	t.Helper()
	return j.machines.sh(ctx, t, host, "openssl x509 -in /var/lib/kubelet/pki/kubelet-client-current.pem -noout -subject -serial")
}

// checkOutage scales out while the server is down.
func (j *joining) checkOutage(ctx context.Context, t *testing.T, more int) {
	before := j.awaitNodes(ctx, t, 2)
	uids := map[string]types.UID{}
	for _, n := range before {
		uids[n] = j.node(ctx, t, n).UID
	}
	down := time.Now()
	end(t, func(ctx context.Context) error { return j.server.Stop(ctx, 20*time.Second) })
	// A machine counts as started once all that starts with it has, and the kubelet
	// waits until it has joined.
	scaled := make(chan error, 1)
	go func() { scaled <- j.azure.ScaleOut(ctx, poolName, int64(more)) }()
	for time.Since(down) < *outage {
		nodes := j.awaitNodes(ctx, t, 2)
		for _, n := range nodes {
			if j.node(ctx, t, n).UID != uids[n] {
				t.Errorf("%s is another Node than before", n)
			}
		}
		time.Sleep(time.Second)
	}
	t.Logf("down for %s", time.Since(down).Round(time.Second))
	j.serve(ctx, t)
	began := time.Now()
	all := j.awaitNodes(ctx, t, 2+more)
	t.Logf("%d joined within %s of its return", more, time.Since(began).Round(time.Millisecond))
	if err := <-scaled; err != nil {
		t.Fatal(err)
	}
	if want := slices.Sorted(maps.Keys(j.instances(ctx, t))); !slices.Equal(all, want) {
		t.Errorf("the Nodes are %v, the instances %v", all, want)
	}
}

// checkScaleIn scales in, and looks for what is left of who is gone.
func (j *joining) checkScaleIn(ctx context.Context, t *testing.T, less int64) {
	if err := j.azure.ScaleOut(ctx, poolName, -less); err != nil {
		t.Fatal(err)
	}
	all := j.awaitNodes(ctx, t, 2)
	if want := slices.Sorted(maps.Keys(j.instances(ctx, t))); !slices.Equal(all, want) {
		t.Errorf("the Nodes are %v, the instances %v", all, want)
	}
	j.checkLeftovers(ctx, t, all)
}

// checkLeftovers looks for what belongs to no Node: it is deleted after the Node is.
func (j *joining) checkLeftovers(ctx context.Context, t *testing.T, nodes []string) {
	t.Helper()
	var left []string
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(ctx context.Context) (_ bool, err error) {
		left, err = j.leftovers(ctx, t, nodes)
		return len(left) == 0, err
	})
	if err != nil {
		t.Fatalf("%v: of nodes that are gone there is left: %v", err, left)
	}
}

// leftovers lists Secrets, admissions and certificate requests of nodes that are not
// among these.
func (j *joining) leftovers(ctx context.Context, t *testing.T, nodes []string) (left []string, err error) {
	admitted, err := j.client.CoreV1().ConfigMaps(admissionSpace).Get(ctx, "ortet-admitted", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if names := slices.Sorted(maps.Keys(admitted.Data)); !slices.Equal(names, nodes) {
		left = append(left, fmt.Sprintf("admitted names %v", names))
	}
	requests, err := j.client.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, r := range requests.Items {
		if name, ours := strings.CutPrefix(commonName(t, r), "system:node:"); !ours || !slices.Contains(nodes, name) {
			left = append(left, fmt.Sprintf("certificate request %s of %s", r.Name, name))
		}
	}
	secrets, err := j.client.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, s := range secrets.Items {
		if s.Namespace != admissionSpace && s.Namespace != keySpace {
			left = append(left, "Secret "+s.Namespace+"/"+s.Name)
		}
	}
	return left, nil
}

// checkEviction evicts a node that has pods to run.
func (j *joining) checkEviction(ctx context.Context, t *testing.T) {
	j.awaitDeployment(ctx, t)
	nodes := j.awaitNodes(ctx, t, 2)
	victim := nodes[0]
	vm := j.instances(ctx, t)[victim]
	var pods []string
	for _, p := range j.webPods(ctx, t) {
		if p.Spec.NodeName == victim {
			pods = append(pods, p.Name)
		}
	}
	if len(pods) == 0 {
		t.Fatalf("no pod of the Deployment runs on %s", victim)
	}
	evicted := watchEvictions(ctx, t, j.client)
	f, err := j.azure.Clients()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := f.NewVirtualMachineScaleSetVMsClient().SimulateEviction(ctx, j.azure.Endpoint.ResourceGroup, poolName, *vm.InstanceID, nil); err != nil {
		t.Fatal(err)
	}
	poll(ctx, t, "the first pod to be evicted", 2*time.Minute, func(ctx context.Context) (bool, error) {
		list, err := j.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + victim})
		return slices.ContainsFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil }), err
	})
	t.Logf("first pod evicted after %s", time.Since(began).Round(time.Millisecond))
	left := j.awaitNodes(ctx, t, 1)
	t.Logf("the Node was gone after %s", time.Since(began).Round(time.Millisecond))
	if left[0] == victim {
		t.Errorf("%s is left", victim)
	}
	for _, p := range pods {
		poll(ctx, t, "pod "+p+" to go by an eviction", time.Minute, func(context.Context) (bool, error) { return evicted.evicted(p), nil })
	}
	j.awaitDeployment(ctx, t)
	j.checkLeftovers(ctx, t, left)
	poll(ctx, t, "Azure to take the machine away", time.Minute, func(ctx context.Context) (bool, error) {
		return len(j.instances(ctx, t)) == 1, nil
	})
	text, err := os.ReadFile(j.audit())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `"departure":"Preempt"`) {
		t.Errorf("the audit log tells of no departure for a Preempt")
	}
}

// tokens are the bootstrap tokens that are there.
func (j *joining) tokens(ctx context.Context) ([]string, error) {
	list, err := j.client.CoreV1().Secrets(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range list.Items {
		if strings.HasPrefix(s.Name, tokenPrefix) {
			names = append(names, s.Name)
		}
	}
	return names, nil
}

func (j *joining) auditLines(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(j.audit())
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}

// commonName is who a certificate request is for.
func commonName(t *testing.T, r certificatesv1.CertificateSigningRequest) string {
	t.Helper()
	block, _ := pem.Decode(r.Spec.Request)
	if block == nil {
		t.Fatalf("%s holds no PEM", r.Name)
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatalf("%s: %v", r.Name, err)
	}
	return request.Subject.CommonName
}
