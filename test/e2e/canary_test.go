//go:build e2e

package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
)

// TestCanary captures with a canary whose clones register with a real API server. A DaemonSet
// has to come up on them, and pods that fit nowhere else wait for them.
func TestCanary(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: -short, and this starts a control plane")
	}
	awaitDay(t)
	w := newWorld(t, []poolSpec{{short: "proven", capacity: 2}, {short: "twin", capacity: 2}, {short: "judged", capacity: 2}})
	proven, twin, judged := w.pool(t, "proven", 2), w.pool(t, "twin", 2), w.pool(t, "judged", 2)
	w.daemon(t)
	w.pending(t)
	for name, run := range map[string]func(*testing.T){
		"good":   func(t *testing.T) { goodCanary(t, proven) },
		"twin":   func(t *testing.T) { twinCanary(t, twin) },
		"killed": func(t *testing.T) { killedCanary(t, judged) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t)
		})
	}
}

func withCanary(p *pool) []string {
	return baked("capture", p.nodes[0], "--workbench="+p.nodes[1], "--canary=2", "--canary-soak=5s", "--lease-duration=5s")
}

func today() string { return time.Now().UTC().Format("2006.01.02") }

func goodCanary(t *testing.T, p *pool) {
	before, clones := p.node(t, p.nodes[0]), p.watchClones(t)
	o := p.ortet(t, nil, withCanary(p)...).exits(t, exitDone).says(t, "2 clones passed")
	p.pinned(t, today())
	v := p.version(t, today())
	if v.Tags[fleet.TagCanary] == nil || *v.Properties.PublishingProfile.ExcludeFromLatest {
		t.Errorf("the version's tags are %v, and its exclusion from latest %v", tagsOf(v), *v.Properties.PublishingProfile.ExcludeFromLatest)
	}
	isolated := clones()
	for name, at := range isolated {
		if judged := o.when("judge", "done"); at.IsZero() || at.After(judged) {
			t.Errorf("Node %s was cordoned and out of load balancers from %s, and judged at %s", name, at, judged)
		}
	}
	if len(isolated) != 2 {
		t.Errorf("the clones' Nodes were %v, want 2", slices.Sorted(maps.Keys(isolated)))
	}
	p.noCanary(t)
	p.clean(t)
	p.whole(t, p.nodes[0], before)
}

// twinCanary has clones come up with the donor's machine id.
func twinCanary(t *testing.T, p *pool) {
	before, image := p.node(t, p.nodes[0]), p.image(t)
	donor, err := p.kube.CoreV1().Nodes().Get(t.Context(), p.nodes[0], metav1.GetOptions{})
	must(t, err)
	planted := false
	o := p.ortet(t, func(l line) os.Signal {
		if !planted && l.step == "version" {
			planted = true
			p.setMachineID(t, today(), donor.Status.NodeInfo.MachineID)
		}
		return nil
	}, withCanary(p)...)
	o.exits(t, exitFailed).says(t, today()+" is quarantined: identity:", "has the machine id of "+p.nodes[0], "stays, quarantined")
	v := p.version(t, today())
	if why := str(v.Tags[fleet.TagQuarantine]); v.Tags[fleet.TagRolledBack] == nil || !strings.Contains(why, "identity") {
		t.Errorf("the version's tags are %v", tagsOf(v))
	}
	if now := p.image(t); !reflect.DeepEqual(now, image) {
		t.Errorf("the model uses %+v, want %+v as before", now, image)
	}
	p.noCanary(t)
	p.clean(t)
	p.whole(t, p.nodes[0], before)
}

// killedCanary kills a capture while it judges; the same command finishes it.
func killedCanary(t *testing.T, p *pool) {
	before, mark := p.node(t, p.nodes[0]), p.mark(t)
	p.ortet(t, on("judge", "started", syscall.SIGKILL), withCanary(p)...).exits(t, exitKilled)
	if _, err := p.azure.Pool(t.Context(), fleet.CanaryOf(p.id()).Name()); err != nil {
		t.Fatalf("it was not killed while it judged: %v", err)
	}
	p.ortet(t, nil, withCanary(p)...).exits(t, exitDone).says(t, "2 clones passed")
	p.pinned(t, today())
	p.noCanary(t)
	p.clean(t)
	p.whole(t, p.nodes[0], before)
	stops := slices.DeleteFunc(p.writes(t, mark), func(w string) bool { return !strings.HasSuffix(strings.ToLower(w), "/poweroff") })
	if len(stops) != 1 {
		t.Errorf("the donor was stopped by %q, want once", stops)
	}
}

// daemon deploys a DaemonSet, and waits until it is Ready.
func (w *world) daemon(t *testing.T) {
	t.Helper()
	labels := map[string]string{"app": "agent"}
	sets := w.kube.AppsV1().DaemonSets("default")
	_, err := sets.Create(t.Context(), &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template(labels),
	}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, sets.Delete(context.WithoutCancel(t.Context()), "agent", metav1.DeleteOptions{})) })
	eventually(t, "DaemonSet agent", func() bool {
		set, err := sets.Get(t.Context(), "agent", metav1.GetOptions{})
		must(t, err)
		// Nodes that other tests left are in the number that is desired.
		return set.Status.NumberReady >= 6
	})
}

// pending deploys pods that none of the Nodes so far may run: the scheduler takes the next.
func (w *world) pending(t *testing.T) {
	t.Helper()
	nodes, err := w.kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	other := corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpNotIn}
	for _, n := range nodes.Items {
		other.Values = append(other.Values, n.Name)
	}
	labels := map[string]string{"app": "waiting"}
	terms := []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{other}}}
	pods := template(labels)
	pods.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
	}}
	deployments := w.kube.AppsV1().Deployments("default")
	_, err = deployments.Create(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "waiting"}, Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: pods,
	}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		must(t, deployments.Delete(context.WithoutCancel(t.Context()), "waiting", metav1.DeleteOptions{}))
	})
}

func template(labels map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "example.invalid/app:1"}}}}
}

// version reads one of the pool's.
func (p *pool) version(t *testing.T, name string) armcompute.GalleryImageVersion {
	t.Helper()
	names := plan.NamesOf(p.id(), name)
	versions := p.clients(t).NewGalleryImageVersionsClient()
	v, err := versions.Get(t.Context(), p.group(), names.Gallery.Name(), names.Definition.Name(), name, nil)
	must(t, err)
	return v.GalleryImageVersion
}

func tagsOf(v armcompute.GalleryImageVersion) map[string]string {
	tags := map[string]string{}
	for k, text := range v.Tags {
		tags[k] = str(text)
	}
	return tags
}

// setMachineID gives a version a machine id once its disk has been copied, which is long
// before the version is complete.
func (p *pool) setMachineID(t *testing.T, version, id string) {
	t.Helper()
	digest := sha256.Sum256([]byte(strings.ToLower(string(plan.NamesOf(p.id(), version).Version))))
	disk := version + "-" + hex.EncodeToString(digest[:6])
	file := filepath.Join(p.azure.Dir, "hollow", "volumes", disk, "etc", "machine-id")
	eventually(t, "the disk of version "+version, func() bool {
		_, err := os.Stat(file)
		return err == nil
	})
	must(t, os.Remove(file)) // it is read-only
	must(t, os.WriteFile(file, []byte(id+"\n"), 0o444))
}

// watchClones watches the Nodes of the pool's clones until it is asked when each was first seen
// cordoned and out of load balancers; zero for one that never was.
func (p *pool) watchClones(t *testing.T) (isolated func() map[string]time.Time) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	w, err := p.kube.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
	must(t, err)
	of := strings.ToLower("azure://" + string(fleet.CanaryOf(p.id())) + "/")
	seen := map[string]time.Time{}
	var done sync.WaitGroup
	done.Go(func() {
		for e := range w.ResultChan() {
			n, ok := e.Object.(*corev1.Node)
			if !ok || !strings.HasPrefix(strings.ToLower(n.Spec.ProviderID), of) {
				continue
			}
			at := seen[n.Name]
			if _, out := n.Labels[corev1.LabelNodeExcludeBalancers]; out && n.Spec.Unschedulable && at.IsZero() {
				at = time.Now()
			}
			seen[n.Name] = at
		}
	})
	return func() map[string]time.Time {
		w.Stop()
		done.Wait()
		return seen
	}
}

// noCanary fails the test where something of the canary is left, in Azure or in the cluster.
func (p *pool) noCanary(t *testing.T) {
	t.Helper()
	canary := strings.ToLower(fleet.CanaryOf(p.id()).Name())
	if _, err := p.azure.Pool(t.Context(), canary); !notFound(err) {
		t.Errorf("scale set %s: %v, want that it does not exist", canary, err)
	}
	for id := range p.resources(t) {
		if strings.Contains(id, canary) {
			t.Errorf("%s is left", id)
		}
	}
	nodes, err := p.kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, n := range nodes.Items {
		if strings.Contains(strings.ToLower(n.Spec.ProviderID), "/"+canary+"/") {
			t.Errorf("Node %s is left", n.Name)
		}
	}
	// Of a machine that was deleted under them they would stay until the garbage collection.
	pods, err := p.kube.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=waiting"})
	must(t, err)
	for _, pod := range pods.Items {
		if strings.HasPrefix(pod.Spec.NodeName, p.name+"-c") && pod.DeletionTimestamp == nil {
			t.Errorf("pod %s was not evicted from %s", pod.Name, pod.Spec.NodeName)
		}
	}
}
