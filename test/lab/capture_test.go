//go:build e2e && linux

package lab

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestCaptureOnRealMachines is the whole story: a pool of three real machines;
// one is chosen and captured by the Job of the Helm chart, in a pod on a real kubelet; the
// pool is scaled out by two, and both clones are nodes of their own.
func TestCaptureOnRealMachines(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 18*time.Minute)
	defer cancel()
	line := newTimeline(t)
	l := newLab(ctx, t, line, "capture", nil)
	line.begin("container images")
	l.buildImages(ctx, t)
	l.buildAutoscaler(ctx, t)

	line.begin("pool of three machines boots and joins")
	l.createPool(ctx, t)
	nodes := l.awaitNodes(ctx, t, workers)
	donor, others := nodes[0], nodes[1:]

	line.begin("images are pulled, pods run")
	l.pull(ctx, t, "ortet", nodes...)
	l.pull(ctx, t, "prepulled", donor)
	l.runPod(ctx, t, "prepulled-on-donor", donor, prepulledImage)
	for _, o := range others {
		if got := l.machines.sh(ctx, t, o, "ctr --namespace k8s.io images list --quiet | grep prepulled || true"); got != "" {
			t.Fatalf("%s has %s too: the clones would prove nothing", o, got)
		}
	}
	l.deploy(ctx, t)
	before := l.observe(ctx, t, donor)
	if len(before.pods) == 0 {
		t.Fatalf("no pod of the Deployment runs on %s", donor)
	}

	evicted := watchEvictions(ctx, t, l.client)
	snapshot := make(chan opened, 1)
	go func() {
		f, err := l.machines.openWhenMade(ctx, "snapshot_"+poolName)
		snapshot <- opened{f, err}
	}()
	assertLeftoversAreSeen(t, l.machines.dir)
	line.begin("the chart's Job finds " + donor + " by itself, and captures it")
	l.installAuto(ctx, t, others[0], others[1])
	if job := l.follow(ctx, t, autoJobName, donor, nil); len(job.pods) != 1 || !strings.Contains(job.log, "captured "+donor) {
		t.Errorf("the Job took the pods %v, want one that captured %s", job.pods, donor)
	}
	l.mark(ctx, t, others[0], "null")
	line.begin("the Job is done; what it left is looked at")

	t.Run("the donor is given back as it was", func(t *testing.T) { l.checkDonor(ctx, t, donor, before) })
	t.Run("its disk was not changed", func(t *testing.T) { l.checkDisk(ctx, t, donor, before, snapshot) })
	t.Run("its pods were evicted and ran elsewhere", func(t *testing.T) { l.checkPods(ctx, t, donor, before, evicted) })
	t.Run("nothing temporary is left", func(t *testing.T) { l.checkTemporary(ctx, t, nodes) })
	var version string
	t.Run("the model is the prototype's", func(t *testing.T) { version = l.checkModel(ctx, t) })
	if t.Failed() {
		line.print()
		t.FailNow()
	}
	line.begin("the same chart again")
	t.Run("a second capture has nothing to do", func(t *testing.T) { l.checkAgain(ctx, t, donor, version) })

	l.deleteClones(ctx, t)
	line.begin("two clones boot and join by themselves")
	if err := l.azure.ScaleOut(ctx, poolName, 2); err != nil {
		t.Fatal(err)
	}
	clones := slices.DeleteFunc(l.awaitNodes(ctx, t, workers+2), func(n string) bool { return slices.Contains(nodes, n) })
	if len(clones) != 2 {
		t.Fatalf("clones %v, want 2", clones)
	}
	line.begin("the clones are looked at")
	t.Run("clones come from the prototype", func(t *testing.T) { l.checkOrigin(ctx, t, clones, version) })
	t.Run("clones are machines of their own", func(t *testing.T) { l.checkIdentity(ctx, t, donor, clones) })
	t.Run("what the donor had pulled is there", func(t *testing.T) {
		for i, c := range clones {
			l.runPod(ctx, t, fmt.Sprintf("prepulled-on-clone-%d", i), c, prepulledImage)
		}
	})
	t.Run("the donor runs pods again", func(t *testing.T) { l.runPod(ctx, t, "prepulled-on-donor-again", donor, prepulledImage) })
	t.Run("no unit failed that does not fail on the platform's image", func(t *testing.T) {
		for _, n := range append([]string{donor}, clones...) {
			for _, unit := range l.machines.failedUnits(ctx, t, n) {
				if !slices.Contains(before.failed, unit) {
					t.Errorf("%s: %s: %s", n, unit, l.machines.sh(ctx, t, n, "journalctl --boot --no-pager --unit "+unit+" | tail -20"))
				}
			}
		}
	})

	line.begin("another capture, whose pod is killed, by the next pod")
	second := ""
	t.Run("what a killed pod began the next one ends", func(t *testing.T) { second = l.checkKilled(ctx, t, donor, version) })
	if !t.Failed() {
		line.begin("rollback, and another instance")
		t.Run("a rollback holds for the next instance", func(t *testing.T) { l.checkRollback(ctx, t, donor, version, second) })
	}
	if !t.Failed() {
		line.begin("a further capture, while an autoscaler deletes empty nodes")
		t.Run("an autoscaler leaves donor and workbench alone", func(t *testing.T) { l.checkBeside(ctx, t, donor, others[0]) })
	}
	line.print()
}

type opened struct {
	file *os.File
	err  error
}

// An observation is what a donor was before the capture.
type observation struct {
	node     *corev1.Node
	identity map[string]string
	tree     []string
	failed   []string // units; the machine booted from the platform's image
	pods     []corev1.Pod
	disk     *os.File // its OS disk, as it was written until it stopped
}

func (l *lab) observe(ctx context.Context, t *testing.T, donor string) observation {
	t.Helper()
	o := observation{
		node:     l.node(ctx, t, donor),
		identity: l.machines.identity(ctx, t, donor),
		tree:     l.machines.tree(ctx, t, donor),
		failed:   l.machines.failedUnits(ctx, t, donor),
	}
	for _, p := range l.webPods(ctx, t) {
		if p.Spec.NodeName == donor {
			o.pods = append(o.pods, p)
		}
	}
	vm := l.instances(ctx, t)[donor]
	if vm == nil {
		t.Fatalf("no instance of the pool is %s", donor)
	}
	file, err := l.machines.volumeFile(*vm.Properties.StorageProfile.OSDisk.ManagedDisk.ID)
	if err != nil || file == "" {
		t.Fatalf("the donor's OS disk: %q, %v", file, err)
	}
	if o.disk, err = os.Open(file); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.disk.Close() })
	t.Logf("donor %s: %d files, %d pods, failed units %v", donor, len(o.tree), len(o.pods), o.failed)
	return o
}

func (l *lab) checkDonor(ctx context.Context, t *testing.T, donor string, before observation) {
	now := l.node(ctx, t, donor)
	if now.UID != before.node.UID || !ready(*now) || now.Spec.Unschedulable {
		t.Errorf("ready %v, unschedulable %v, the same Node %v", ready(*now), now.Spec.Unschedulable, now.UID == before.node.UID)
	}
	if now.Status.NodeInfo.BootID == before.node.Status.NodeInfo.BootID {
		t.Error("it was not stopped: its boot id is the same")
	}
	if len(now.Spec.Taints) != len(before.node.Spec.Taints) {
		t.Errorf("taints %v, before %v", now.Spec.Taints, before.node.Spec.Taints)
	}
	if !maps.Equal(now.Annotations, before.node.Annotations) {
		t.Errorf("annotations %v, before %v", now.Annotations, before.node.Annotations)
	}
	if !maps.Equal(now.Labels, before.node.Labels) {
		t.Errorf("labels %v, before %v", now.Labels, before.node.Labels)
	}
	l.checkUnprotected(ctx, t, donor)
	for mark, value := range l.machines.identity(ctx, t, donor) {
		if value != before.identity[mark] {
			t.Errorf("%s: %s, before %s", mark, value, before.identity[mark])
		}
	}
	after := l.machines.tree(ctx, t, donor)
	for _, line := range onlyIn(before.tree, after) {
		t.Errorf("was: %s", line)
	}
	for _, line := range onlyIn(after, before.tree) {
		t.Errorf("is:  %s", line)
	}
}

func (l *lab) checkUnprotected(ctx context.Context, t *testing.T, donor string) {
	t.Helper()
	vm := l.instances(ctx, t)[donor]
	if p := vm.Properties.ProtectionPolicy; p != nil && (isTrue(p.ProtectFromScaleIn) || isTrue(p.ProtectFromScaleSetActions)) {
		t.Error("the instance is still protected")
	}
}

func isTrue(b *bool) bool { return b != nil && *b }

// checkDisk compares the donor's disk as it was when the donor was off with the
// snapshot, after all that was done with copies of it; and asks the file system
// whether anybody but the donor mounted it.
func (l *lab) checkDisk(ctx context.Context, t *testing.T, donor string, before observation, snapshot <-chan opened) {
	got := <-snapshot
	if got.err != nil {
		t.Fatal(got.err)
	}
	defer got.file.Close()
	disk, err := digest(before.disk)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := digest(got.file)
	if err != nil {
		t.Fatal(err)
	}
	if disk != copied {
		t.Errorf("the donor's disk when it was off has digest %s, its snapshot %s", disk, copied)
	}
	off, err := mounts(ctx, before.disk)
	if err != nil {
		t.Fatalf("the donor's disk when it was off: %v", err)
	}
	now, err := mountCount(l.machines.sh(ctx, t, donor, `dumpe2fs -h "$(findmnt --noheadings --output SOURCE /)" 2>/dev/null`))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(off)
	if err != nil || now != strconv.Itoa(n+1) {
		t.Errorf("the file system counts %s mounts, and %s when the donor was off: want one more, the donor's own", now, off)
	}
	t.Logf("digest %s; mounts %s and then %s", disk, off, now)
}

// checkAgain installs the chart once more, on the same day.
func (l *lab) checkAgain(ctx context.Context, t *testing.T, donor, version string) {
	if today := time.Now().UTC().Format("2006.01.02"); resource(version).version != today {
		t.Skipf("NOT TESTED: midnight came between, the first capture made %s", resource(version).version)
	}
	boot := l.node(ctx, t, donor).Status.NodeInfo.BootID
	l.helm(ctx, t, "uninstall", "prototype", "--wait")
	l.install(ctx, t, donor)
	if job := l.follow(ctx, t, jobName, donor, nil); !strings.Contains(job.log, "Nothing to do") {
		t.Error("the Job did not say that there was nothing to do")
	}
	if id := l.checkModel(ctx, t); id != version {
		t.Errorf("the model's image is now %s, and was %s", id, version)
	}
	n := l.node(ctx, t, donor)
	if n.Status.NodeInfo.BootID != boot || n.Spec.Unschedulable {
		t.Errorf("the donor was touched: unschedulable %v, boot id %s, before %s", n.Spec.Unschedulable, n.Status.NodeInfo.BootID, boot)
	}
	if all := l.versions(ctx, t, version); len(all) != 1 {
		t.Errorf("versions %v, want 1", all)
	}
}

// versions lists those of the image definition that a version belongs to.
func (l *lab) versions(ctx context.Context, t *testing.T, of string) []string {
	t.Helper()
	f, err := l.azure.Clients()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	v := resource(of)
	list := f.NewGalleryImageVersionsClient().NewListByGalleryImagePager(l.azure.Endpoint.ResourceGroup, v.gallery, v.image, nil)
	for list.More() {
		page, err := list.NextPage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range page.Value {
			all = append(all, *v.Name)
		}
	}
	return all
}

// A versionName is an image version's id, taken apart.
type versionName struct{ gallery, image, version string }

func resource(id string) versionName {
	parts := strings.Split(id, "/") // …/galleries/G/images/I/versions/V
	n := len(parts)
	return versionName{gallery: parts[n-5], image: parts[n-3], version: parts[n-1]}
}

func (l *lab) checkPods(ctx context.Context, t *testing.T, donor string, before observation, evicted *evictions) {
	l.awaitDeployment(ctx, t)
	now := l.webPods(ctx, t)
	if len(now) != replicas {
		t.Errorf("%d pods, want %d", len(now), replicas)
	}
	for _, p := range now {
		if p.Spec.NodeName == donor {
			t.Errorf("%s runs on %s: nothing moves pods back", p.Name, donor)
		}
	}
	for _, p := range before.pods {
		poll(ctx, t, "the eviction of "+p.Name+" to be seen", time.Minute, func(context.Context) (bool, error) {
			return evicted.evicted(p.Name), nil
		})
	}
}

// checkTemporary looks for what a capture makes and takes away.
func (l *lab) checkTemporary(ctx context.Context, t *testing.T, nodes []string) {
	f, err := l.azure.Clients()
	if err != nil {
		t.Fatal(err)
	}
	for snapshots := f.NewSnapshotsClient().NewListByResourceGroupPager(l.azure.Endpoint.ResourceGroup, nil); snapshots.More(); {
		page, err := snapshots.NextPage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page.Value {
			t.Errorf("snapshot %s", *s.Name)
		}
	}
	disks := 0
	for list := f.NewDisksClient().NewListByResourceGroupPager(l.azure.Endpoint.ResourceGroup, nil); list.More(); {
		page, err := list.NextPage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range page.Value {
			disks++
			if d.ManagedBy == nil {
				t.Errorf("disk %s, which nobody has", *d.Name)
			}
		}
	}
	instances := l.instances(ctx, t)
	if disks != len(instances) {
		t.Errorf("%d disks, want one for each of %d machines", disks, len(instances))
	}
	for name, vm := range instances {
		if n := len(vm.Properties.StorageProfile.DataDisks); n != 0 {
			t.Errorf("%s has %d data disks", name, n)
		}
	}
	for _, n := range nodes {
		for key := range l.node(ctx, t, n).Annotations {
			if strings.Contains(key, "ortet") {
				t.Errorf("%s has the annotation %s", n, key)
			}
		}
		if got := l.machines.sh(ctx, t, n, "ls /dev/disk/azure/scsi1 2>/dev/null || true; findmnt --noheadings --output TARGET --raw | grep -i -e ortet -e generalize || true"); got != "" {
			t.Errorf("on %s: %s", n, got)
		}
	}
	pods, err := l.client.CoreV1().Pods("ortet-system").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		t.Errorf("pod %s", p.Name)
	}
	leases, err := l.client.CoordinationV1().Leases("ortet-system").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, lease := range leases.Items {
		if h := lease.Spec.HolderIdentity; h != nil && *h != "" {
			t.Errorf("Lease %s is held by %s", lease.Name, *h)
		}
	}
}

// checkModel returns the version that the model points at.
func (l *lab) checkModel(ctx context.Context, t *testing.T) string {
	set, err := l.azure.Pool(ctx, poolName)
	if err != nil {
		t.Fatal(err)
	}
	profile := set.Properties.VirtualMachineProfile
	image := profile.StorageProfile.ImageReference
	if image.ID == nil || image.Publisher != nil || image.SKU != nil {
		t.Fatalf("the model's image is %+v", image)
	}
	want := "/galleries/SIG_" + strings.ReplaceAll(l.azure.Endpoint.ResourceGroup, "-", "_") + "/images/kamino-" + poolName + "-prototype/versions/"
	if !strings.Contains(*image.ID, want) {
		t.Fatalf("the model's image is %s, want one in %s", *image.ID, want)
	}
	if profile.ExtensionProfile == nil { // a bare pool's
		profile.ExtensionProfile = &armcompute.VirtualMachineScaleSetExtensionProfile{}
	}
	for _, e := range profile.ExtensionProfile.Extensions {
		if !strings.HasSuffix(*e.Name, "AKSLinuxBilling") {
			t.Errorf("extension %s is still in the model", *e.Name)
		}
	}
	f, err := l.azure.Clients()
	if err != nil {
		t.Fatal(err)
	}
	v := resource(*image.ID)
	version, err := f.NewGalleryImageVersionsClient().Get(ctx, l.azure.Endpoint.ResourceGroup, v.gallery, v.image, v.version, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s := version.Properties.ProvisioningState; s == nil || *s != armcompute.GalleryProvisioningStateSucceeded {
		t.Errorf("version %s is %v", *version.ID, s)
	}
	return *image.ID
}

func (l *lab) checkOrigin(ctx context.Context, t *testing.T, clones []string, version string) {
	instances := l.instances(ctx, t)
	for _, c := range clones {
		vm := instances[c]
		if vm == nil {
			t.Errorf("%s is no instance of the pool", c)
			continue
		}
		if id := vm.Properties.StorageProfile.ImageReference.ID; id == nil || !strings.EqualFold(*id, version) {
			t.Errorf("%s was made from %v, want %s", c, id, version)
		}
		if want := "azure://" + *vm.ID; !strings.EqualFold(l.node(ctx, t, c).Spec.ProviderID, want) {
			t.Errorf("%s: provider id %q, want %q", c, l.node(ctx, t, c).Spec.ProviderID, want)
		}
		// What the platform handed over could not have made a node of it.
		data := l.machines.sh(ctx, t, c, "cat /run/platform/seed/user-data")
		if plain, err := base64.StdEncoding.DecodeString(data); err == nil {
			data = string(plain)
		}
		if len(data) > 200 || strings.Contains(data, "kubelet") {
			t.Errorf("%s was given custom data of %d bytes: %.200s", c, len(data), data)
		}
		if got := l.machines.sh(ctx, t, c, "ls /opt/azure /var/lib/waagent/custom-script 2>/dev/null || true"); got != "" {
			t.Errorf("%s: an extension was here: %s", c, got)
		}
	}
}

// checkIdentity compares every mark of every machine with those of the others.
func (l *lab) checkIdentity(ctx context.Context, t *testing.T, donor string, clones []string) {
	type owner struct{ host, value string }
	seen := map[string][]owner{}
	for _, n := range append([]string{donor}, clones...) {
		marks := l.machines.identity(ctx, t, n)
		if !strings.EqualFold(marks["host name"], n) || !strings.EqualFold(marks["/etc/hostname"], n) {
			t.Errorf("%s has the host name %s", n, marks["host name"])
		}
		for mark, value := range marks {
			for _, o := range seen[mark] {
				if o.value == value {
					t.Errorf("%s: %s and %s both have %s", mark, o.host, n, value)
				}
			}
			seen[mark] = append(seen[mark], owner{n, value})
		}
	}
	for mark, owners := range seen {
		if len(owners) != 1+len(clones) {
			t.Errorf("%s: only %v have it", mark, owners)
		}
	}
	uids := map[string]string{}
	for _, n := range append([]string{donor}, clones...) {
		info := l.node(ctx, t, n).Status.NodeInfo
		for kind, v := range map[string]string{"machine id": info.MachineID, "boot id": info.BootID} {
			if other := uids[kind+v]; other != "" {
				t.Errorf("the Nodes %s and %s say the same %s", other, n, kind)
			}
			uids[kind+v] = n
		}
	}
}
