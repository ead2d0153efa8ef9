//go:build e2e && linux

package lab

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/test/azsimserver"
)

const (
	recordsImage  = "lab.ortet.invalid/records:1" // no registry has it
	recordsFolder = "/var/lib/records"            // on the donor's OS disk
)

// TestOnlineCapture captures a node of a Flexible set while a pod on it writes and syncs
// records to its OS disk: the node stays in service, the captured disk has each record that
// was acknowledged before the flush, and a clone comes up from it.
func TestOnlineCapture(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	line := newTimeline(t)
	l := newLab(ctx, t, line, "online", nil)
	line.begin("container images")
	l.buildOrtet(ctx, t)
	l.run(ctx, t, "go", "build", "-trimpath", "-o", filepath.Join(l.bin, "records"), "./hack/lab/images/records")
	l.run(ctx, t, "go", "run", "./hack/image", "-name", recordsImage, "-out", l.image("records"), filepath.Join(l.bin, "records"))

	line.begin("Flexible pool of three machines boots and joins")
	pool := azsimserver.Pool{Name: poolName, Capacity: workers, CustomData: l.nodeData(ctx, t), Change: azsimserver.Flexible}
	if err := l.azure.Create(ctx, pool); err != nil {
		t.Fatalf("create the pool: %v", err)
	}
	nodes := l.awaitNodes(ctx, t, workers)
	donor, bench := nodes[0], nodes[1]
	l.pull(ctx, t, "ortet", donor, bench)
	l.pull(ctx, t, "records", donor)
	l.deploy(ctx, t)
	before := l.node(ctx, t, donor)
	if !strings.Contains(before.Spec.ProviderID, "/Microsoft.Compute/virtualMachines/") {
		t.Fatalf("donor %s has provider id %s: it is no member of a Flexible set", donor, before.Spec.ProviderID)
	}
	pods := l.podsOn(ctx, t, donor)
	acks := l.writeRecords(ctx, t, donor)
	seen := l.watchNode(ctx, t, donor)
	evicted := watchEvictions(ctx, t, l.client)

	line.begin("capture while it is in service")
	began := time.Now()
	if err := l.change(ctx, t, "capture", donor, "--online", "--grow=1", "--image="+ortetImage, "--workbench="+bench,
		"--accept-pool-credentials"); err != nil {
		l.explain(t)
		t.Fatal(err)
	}
	ended := time.Now()
	version := l.checkModel(ctx, t)
	tag := l.tags(ctx, t, version)[fleet.TagOnline]
	if tag == nil {
		t.Fatalf("version %s has no tag %s", version, fleet.TagOnline)
	}
	flushed, err := time.Parse(time.RFC3339, *tag) // whole seconds, rounded down
	if err != nil {
		t.Fatal(err)
	}

	line.begin("what became of donor, disk and clone")
	after := l.node(ctx, t, donor)
	if after.UID != before.UID || after.Status.NodeInfo.BootID != before.Status.NodeInfo.BootID {
		t.Errorf("donor %s is Node %s with boot %s, was %s with boot %s",
			donor, after.UID, after.Status.NodeInfo.BootID, before.UID, before.Status.NodeInfo.BootID)
	}
	for _, bad := range seen() {
		t.Errorf("donor %s: %s", donor, bad)
	}
	for name := range evicted.names() {
		t.Errorf("pod %s was deleted", name)
	}
	for uid, name := range l.podsOn(ctx, t, donor) {
		delete(pods, uid)
		t.Logf("pod %s runs on %s", name, donor)
	}
	for _, name := range pods {
		t.Errorf("pod %s does not run on %s any more", name, donor)
	}
	var all []ack
	poll(ctx, t, "a record that is acknowledged after the capture", time.Minute, func(context.Context) (bool, error) {
		all = acks.all()
		return len(all) >= 3 && !all[len(all)-1].at.Before(ended), nil
	})
	if all[0].at.After(began) {
		t.Fatalf("%d records were acknowledged, none from before the capture", len(all))
	}
	l.checkRecords(ctx, t, version, flushed, all)
	slices.SortFunc(all, func(a, b ack) int { return int(b.took - a.took) })
	for i, stall := range all[:3] {
		t.Logf("write stall %d: %s, which ended %.1f s after the flush began", i+1, stall.took, stall.at.Sub(flushed).Seconds())
	}
	clones := slices.DeleteFunc(l.awaitNodes(ctx, t, workers+1), func(n string) bool { return slices.Contains(nodes, n) })
	images, err := l.azure.Images(ctx, poolName)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range clones {
		n := l.node(ctx, t, c)
		if from := images[strings.ToLower(n.Spec.ProviderID)]; from != path.Base(version) {
			t.Errorf("clone %s was made from %q, want %s", c, from, path.Base(version))
		}
		t.Logf("clone %s is Ready, with boot %s", c, n.Status.NodeInfo.BootID)
	}
	l.checkIdentity(ctx, t, donor, clones)
	line.print()
}

// podsOn returns the names of the pods of the namespace default that run on a node, by
// their UIDs.
func (l *lab) podsOn(ctx context.Context, t *testing.T, node string) map[string]string {
	t.Helper()
	list, err := l.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		t.Fatal(err)
	}
	pods := map[string]string{}
	for _, p := range list.Items {
		restarted := slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.RestartCount > 0 })
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil && !restarted {
			pods[string(p.UID)] = p.Name
		}
	}
	return pods
}

// An ack is a record of which its writer knew that it was on the disk.
type ack struct {
	n    int
	at   time.Time
	took time.Duration
}

type acknowledged struct {
	mu   sync.Mutex
	list []ack
	said error // what is no record
}

func (a *acknowledged) all() []ack {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.list)
}

// writeRecords runs a pod that writes records to the node's OS disk, until the test ends.
func (l *lab) writeRecords(ctx context.Context, t *testing.T, node string) *acknowledged {
	t.Helper()
	pods := l.client.CoreV1().Pods("default")
	if _, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "records"},
		Spec: corev1.PodSpec{
			NodeName: node, SecurityContext: &corev1.PodSecurityContext{RunAsUser: new(int64(0))},
			Containers: []corev1.Container{{
				Name: "records", Image: recordsImage, ImagePullPolicy: corev1.PullNever, Args: []string{"/data/list"},
				VolumeMounts: []corev1.VolumeMount{{Name: "records", MountPath: "/data"}},
			}},
			Volumes: []corev1.Volume{{Name: "records", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
				Path: recordsFolder, Type: new(corev1.HostPathDirectoryOrCreate),
			}}}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	poll(ctx, t, "the pod that writes records", time.Minute, func(ctx context.Context) (bool, error) {
		p, err := pods.Get(ctx, "records", metav1.GetOptions{})
		return err == nil && p.Status.Phase == corev1.PodRunning, err
	})
	stream, err := pods.GetLogs("records", &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	a := &acknowledged{}
	go func() {
		defer stream.Close()
		for lines := bufio.NewScanner(stream); lines.Scan(); {
			var n, at, took int64
			_, err := fmt.Sscan(lines.Text(), &n, &at, &took)
			a.mu.Lock()
			if err != nil {
				a.said = fmt.Errorf("the writer printed %q", lines.Text())
			} else {
				a.list = append(a.list, ack{int(n), time.Unix(0, at), time.Duration(took) * time.Microsecond})
			}
			a.mu.Unlock()
		}
	}()
	poll(ctx, t, "a record", time.Minute, func(context.Context) (bool, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.list) > 0, a.said
	})
	return a
}

// watchNode records all that takes a node out of service, from now on until the test asks.
func (l *lab) watchNode(ctx context.Context, t *testing.T, name string) (seen func() []string) {
	t.Helper()
	events, err := l.client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all []string
	changes := 0
	go func() {
		for e := range events.ResultChan() {
			n, is := e.Object.(*corev1.Node)
			mu.Lock()
			changes++
			if !is || !ready(*n) || n.Spec.Unschedulable || len(n.Spec.Taints) > 0 {
				all = append(all, fmt.Sprintf("%s: %+v", e.Type, e.Object))
			}
			mu.Unlock()
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, "the watch ended")
	}()
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		if changes < 2 {
			t.Errorf("%d states of node %s were seen: nothing was watched", changes, name)
		}
		result := slices.Clone(all)
		go events.Stop()
		return result
	}
}

// checkRecords looks at the disk of an image version: its root file system has no errors, and
// each record that was acknowledged before the flush.
func (l *lab) checkRecords(ctx context.Context, t *testing.T, version string, flushed time.Time, all []ack) {
	t.Helper()
	name, err := l.machines.volumeFile(version)
	if err != nil || name == "" {
		t.Fatalf("the disk of version %s: %q, %v", version, name, err)
	}
	disk, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	if _, err := mounts(ctx, disk); err != nil {
		t.Errorf("the root file system of version %s: %v", version, err)
	}
	sector := strings.TrimSpace(l.run(ctx, t, "partx", "--noheadings", "--raw", "--output", "START", "--nr", "1", name))
	start, err := strconv.ParseInt(sector, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(ctx, "debugfs", "-R", "cat "+recordsFolder+"/list", fmt.Sprintf("%s?offset=%d", name, start*512)).Output()
	if err != nil {
		t.Fatal(err)
	}
	there := 0
	for line := range strings.Lines(string(out)) {
		if line != strconv.Itoa(there+1)+"\n" {
			break
		}
		there++
	}
	promised := 0
	for _, a := range all {
		if a.at.Before(flushed) {
			promised = a.n
		}
	}
	if promised == 0 || there < promised {
		t.Errorf("the captured disk has records up to %d, of which those up to %d were acknowledged before the flush", there, promised)
	}
	t.Logf("acknowledged before the flush at %s: %d records; on the captured disk: %d; in all: %d",
		flushed.Format(time.TimeOnly), promised, there, all[len(all)-1].n)
}
