//go:build e2e && linux

package lab

import (
	"context"
	"errors"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	rootfs "github.com/ortet/ortet/hack/lab"
	"github.com/ortet/ortet/internal/fleet"
)

// brokenKubelet is a drop-in of the kubelet's unit. A node that has joined passes its check, a
// clone never does: it has no certificate before its kubelet has started.
const brokenKubelet = `d=/etc/systemd/system/kubelet.service.d
mkdir -p $d
printf '[Service]\nExecStartPre=/usr/bin/test -e /var/lib/kubelet/pki/kubelet-client-current.pem\n' >$d/90-broken.conf`

// isolatedWithin bounds how long the scheduler may choose a clone: its Node is looked for every
// 2 seconds, and the machines have two processors for all that runs there.
const isolatedWithin = 10 * time.Second

// TestCanaryOnRealMachines captures a good donor, whose clones come up, and then the same one
// with a kubelet's unit that fails on clones alone: that version never goes live.
func TestCanaryOnRealMachines(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 14*time.Minute)
	defer cancel()
	line := newTimeline(t)
	l := newLab(ctx, t, line, "canary", nil)
	line.begin("container images")
	l.buildOrtet(ctx, t)
	line.begin("pool of three machines boots and joins")
	l.createPool(ctx, t)
	nodes := l.awaitNodes(ctx, t, workers)
	donor, bench := nodes[0], nodes[1]
	l.pull(ctx, t, "ortet", donor, bench)
	l.deployDaemon(ctx, t, workers)
	l.deployWaiting(ctx, t, nodes)
	evicted := watchEvictions(ctx, t, l.client)
	clones := watchClones(ctx, t, l.client, nodes)
	capture := []string{
		"capture", donor, "--image=" + ortetImage, "--workbench=" + bench, "--accept-pool-credentials",
		"--grace-period=30s", "--canary=2", "--canary-soak=20s",
	}

	line.begin("a good donor is captured, with a canary")
	if err := l.change(ctx, t, capture...); err != nil {
		l.explain(t)
		t.Fatalf("the capture of a good donor: %v", err)
	}
	good := l.checkModel(ctx, t)
	if tag := l.tags(ctx, t, good)[fleet.TagCanary]; tag == nil {
		t.Errorf("version %s has no tag %s", good, fleet.TagCanary)
	} else if _, err := time.Parse(time.RFC3339, *tag); err != nil {
		t.Errorf("tag %s of version %s: %v", fleet.TagCanary, good, err)
	}
	for _, p := range l.webPods(ctx, t) {
		if p.Spec.NodeName != "" {
			t.Errorf("pod %s is left on %s, a clone", p.Name, p.Spec.NodeName)
		}
	}
	ran := evicted.names()
	for name, properly := range ran {
		if !properly {
			t.Errorf("pod %s was deleted with its clone, want it evicted", name)
		}
	}
	t.Logf("%d pods that wait for a node ran on clones, and were evicted", len(ran))
	came := clones.all()
	if len(came) != 2 {
		t.Errorf("Nodes of clones: %v, want 2", came)
	}
	for name, c := range came {
		if open := c.open(); !c.ready || c.cordoned.IsZero() || open > isolatedWithin {
			t.Errorf("clone %s: Ready %v, cordoned at %v, open to pods for %v, want at most %v", name, c.ready, c.cordoned, open, isolatedWithin)
		} else {
			t.Logf("clone %s was cordoned %v after it was there, and open to pods for %v", name, c.cordoned.Sub(c.seen), open)
		}
	}
	l.deleteClones(ctx, t)
	l.checkCanaryGone(ctx, t, nodes)

	line.begin("the donor's kubelet unit is broken, and it is captured again")
	l.machines.sh(ctx, t, donor, brokenKubelet)
	err := l.change(ctx, t, append(capture, "--again")...)
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("the capture of a broken donor: %v, want exit status 1", err)
	}
	if now := l.checkModel(ctx, t); now != good {
		t.Errorf("the model's image is %s, want %s still", now, good)
	}
	all := l.versions(ctx, t, good)
	bad := slices.DeleteFunc(slices.Clone(all), func(v string) bool { return v == resource(good).version })
	if len(bad) != 1 {
		t.Fatalf("versions %v, want %s and one more", all, good)
	}
	tags := l.tags(ctx, t, strings.TrimSuffix(good, resource(good).version)+bad[0])
	if why := tags[fleet.TagQuarantine]; why == nil || !strings.HasPrefix(*why, "join: ") && !strings.HasPrefix(*why, "ready: ") {
		t.Errorf("version %s has %d tags, and no quarantine by the gate join or ready among them", bad[0], len(tags))
	} else {
		t.Logf("version %s is quarantined: %s", bad[0], *why)
	}
	if n := l.node(ctx, t, donor); !ready(*n) || n.Spec.Unschedulable {
		t.Errorf("the donor: ready %v, unschedulable %v", ready(*n), n.Spec.Unschedulable)
	}
	for name, c := range clones.all() {
		if _, before := came[name]; !before {
			t.Errorf("clone %s of the broken donor joined: Ready %v", name, c.ready)
		}
	}
	l.checkCanaryGone(ctx, t, nodes)
	line.print()
}

// deployDaemon runs a pod on each of the nodes, which clones have to run too.
func (l *lab) deployDaemon(ctx context.Context, t *testing.T, nodes int32) {
	t.Helper()
	labels := map[string]string{"app": "daemon"}
	sets := l.client.AppsV1().DaemonSets("default")
	if _, err := sets.Create(ctx, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "daemon"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					DNSPolicy:  corev1.DNSDefault,
					Containers: []corev1.Container{{Name: "web", Image: rootfs.WebImage, ImagePullPolicy: corev1.PullNever}},
				},
			},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	poll(ctx, t, "the DaemonSet's pods", time.Minute, func(ctx context.Context) (bool, error) {
		d, err := sets.Get(ctx, "daemon", metav1.GetOptions{})
		return err == nil && d.Status.NumberReady == nodes, err
	})
}

// deployWaiting makes pods that none of these nodes may run: they wait for a new one.
func (l *lab) deployWaiting(ctx context.Context, t *testing.T, nodes []string) {
	t.Helper()
	labels := map[string]string{"app": "web"}
	if _, err := l.client.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "waiting"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: "web", Image: rootfs.WebImage, ImagePullPolicy: corev1.PullNever}},
					Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
						NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
							{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpNotIn, Values: nodes},
						}}},
					}}},
				},
			},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// tags returns those of an image version.
func (l *lab) tags(ctx context.Context, t *testing.T, id string) map[string]*string {
	t.Helper()
	f, err := l.azure.Clients()
	if err != nil {
		t.Fatal(err)
	}
	v := resource(id)
	version, err := f.NewGalleryImageVersionsClient().Get(ctx, l.azure.Endpoint.ResourceGroup, v.gallery, v.image, v.version, nil)
	if err != nil {
		t.Fatal(err)
	}
	return version.Tags
}

// checkCanaryGone looks for what a canary makes, and what a capture does.
func (l *lab) checkCanaryGone(ctx context.Context, t *testing.T, nodes []string) {
	t.Helper()
	f, err := l.azure.Clients()
	if err != nil {
		t.Fatal(err)
	}
	for sets := f.NewVirtualMachineScaleSetsClient().NewListPager(l.azure.Endpoint.ResourceGroup, nil); sets.More(); {
		page, err := sets.NextPage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range slices.DeleteFunc(page.Value, func(s *armcompute.VirtualMachineScaleSet) bool { return *s.Name == poolName }) {
			t.Errorf("scale set %s is left", *s.Name)
		}
	}
	l.checkTemporary(ctx, t, nodes)
}

// A clone is what was seen of a Node of the canary.
type clone struct {
	ready                  bool
	seen, opened, cordoned time.Time // when it was first there, without a taint that keeps pods off, and cordoned
}

// open is for how long the scheduler could choose it.
func (c clone) open() time.Duration {
	if c.opened.IsZero() {
		return 0
	}
	return max(0, c.cordoned.Sub(c.opened))
}

func (c *clone) see(n *corev1.Node, now time.Time) {
	c.ready = c.ready || ready(*n)
	if c.seen.IsZero() {
		c.seen = now
	}
	// Each pod tolerates the taint of a Node that is not Ready if its effect is NoExecute.
	tainted := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoSchedule })
	if c.opened.IsZero() && !tainted && !n.Spec.Unschedulable {
		c.opened = now
	}
	if c.cordoned.IsZero() && n.Spec.Unschedulable {
		c.cordoned = now
	}
}

type cloneWatch struct {
	mu     sync.Mutex
	clones map[string]clone
}

// watchClones records all Nodes but those, until ctx ends.
func watchClones(ctx context.Context, t *testing.T, client kubernetes.Interface, but []string) *cloneWatch {
	t.Helper()
	w := &cloneWatch{clones: map[string]clone{}}
	events, err := client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer events.Stop()
		for event := range events.ResultChan() {
			n, ok := event.Object.(*corev1.Node)
			if !ok || slices.Contains(but, n.Name) {
				continue
			}
			w.mu.Lock()
			c := w.clones[n.Name]
			c.see(n, time.Now())
			w.clones[n.Name] = c
			w.mu.Unlock()
		}
	}()
	return w
}

func (w *cloneWatch) all() map[string]clone {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.clones)
}

// names returns the pods that were deleted so far, and whether by an eviction.
func (e *evictions) names() map[string]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.all)
}

// deleteClones deletes the Nodes of a canary that is gone, as the cloud's controllers do, which the
// lab does not have.
func (l *lab) deleteClones(ctx context.Context, t *testing.T) {
	t.Helper()
	nodes, err := l.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes.Items {
		if !strings.Contains(n.Spec.ProviderID, poolName+"-canary/") {
			continue
		}
		if err := l.client.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}
