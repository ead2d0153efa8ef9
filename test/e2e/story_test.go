//go:build e2e

package e2e

import (
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// baked are the arguments by which a pool's clones join from their disks alone.
func baked(args ...string) []string {
	return append(args, "--bootstrap=baked", "--accept-pool-credentials", "--extensions=all", "--keep-extension=*AKSLinuxBilling*")
}

// story is an operator's day: look, capture, scale out, capture again, roll back.
func story(t *testing.T, w *world) {
	p := w.pool(t, "story", 2)
	donor, bench := p.nodes[0], p.nodes[1]
	image := "example.invalid/prepulled:" + p.short
	p.run2pods(t, "app", donor, image)

	// A dry run tells everything and changes nothing.
	resources, objects, mark := p.resources(t), p.objects(t), p.mark(t)
	dry := p.ortet(t, nil, baked("capture", donor, "--workbench="+bench, "--dry-run")...).exits(t, exitDone)
	dry.says(t, "Plan for the capture of "+donor, "Power off", "Build image version", "~40m", "customData").fits(t)
	if writes := p.writes(t, mark); len(writes) > 0 {
		t.Errorf("a dry run wrote: %v", writes)
	}
	unchanged(t, "dry run", resources, p.resources(t))
	unchanged(t, "dry run", objects, p.objects(t))

	before, original := p.node(t, donor), p.image(t)
	first := p.capture(t, donor, "--workbench="+bench)
	if day := time.Now().UTC().Format("2006.01.02"); first != day {
		t.Fatalf("the day's version is %s, want %s", first, day)
	}
	p.whole(t, donor, before)
	p.clean(t)
	p.pinned(t, first)
	p.savedCustomData(t)
	p.extensionsLeft(t)

	// A new node comes from it, with an identity of its own.
	p.scaleOut(t, 3)
	clone := p.newest(t, 3)
	p.fromVersion(t, clone, first)
	p.strangers(t, donor, bench, clone)
	p.hasImage(t, clone, image)
	status := p.ortet(t, nil, "status", string(p.id())).exits(t, exitDone).says(t, first, donor, clone)
	status.fits(t)

	// A further version has the time in its name, and is the day's newest: then there
	// is no more to do today.
	second := p.capture(t, donor, "--workbench="+bench, "--again")
	if !regexp.MustCompile(`^\d{4}\.\d{4}\.\d{6}$`).MatchString(second) {
		t.Errorf("--again made version %s, want YYYY.MMDD.HHMMSS", second)
	}
	p.pinned(t, second)
	resources, objects, mark = p.resources(t), p.objects(t), p.mark(t)
	p.ortet(t, nil, baked("capture", donor, "--workbench="+bench)...).exits(t, exitDone).says(t, "Nothing to do", second).fits(t)
	if writes := p.writes(t, mark); len(writes) > 0 {
		t.Errorf("a second capture of the day wrote: %v", writes)
	}
	unchanged(t, "second capture", resources, p.resources(t))
	unchanged(t, "second capture", objects, p.objects(t))

	// Back to the version before, and the next node proves it.
	var back struct{ From, To string }
	p.ortet(t, nil, "rollback", donor, "-o", "json").exits(t, exitDone).json(t, &back)
	if path.Base(back.From) != second || path.Base(back.To) != first {
		t.Errorf("rollback says from %s to %s, want from %s to %s", back.From, back.To, second, first)
	}
	p.pinned(t, first)
	p.scaleOut(t, 4)
	p.fromVersion(t, p.newest(t, 4), first)

	// What was rolled back does not come back by itself.
	mark = p.mark(t)
	p.ortet(t, nil, baked("capture", donor, "--workbench="+bench)...).exits(t, exitDone).says(t, "Nothing to do", first)
	if writes := p.writes(t, mark); len(writes) > 0 {
		t.Errorf("the capture after a rollback wrote: %v", writes)
	}
	p.pinned(t, first)
	p.ortet(t, nil, "status", string(p.id())).exits(t, exitDone).says(t, "rolled back").fits(t)
	if got, want := p.versions(t), []string{first, second}; !slices.Equal(got, sorted(want)) {
		t.Errorf("versions are %v, want %v", got, want)
	}
	// Before the first capture the model had another image: there is a way back to it.
	p.ortet(t, nil, "rollback", donor).exits(t, exitRefused).says(t, "customData was read from a donor's disk")
	p.ortet(t, nil, "rollback", donor, "--restore-learned=customData").exits(t, exitRefused).says(t, "vmssCSE was read from a donor's disk", "--restore-learned customData@", "--restore-learned vmssCSE@")
	p.ortet(t, nil, "rollback", donor, "--restore-learned=customData", "--restore-learned=vmssCSE").exits(t, exitDone)
	if now := p.image(t); !reflect.DeepEqual(now, original) {
		t.Errorf("the model uses %+v, want %+v as before the first capture", now, original)
	}
	p.clean(t)
	p.whole(t, donor, before)
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

// capture captures the node and gives the new version's name.
func (p *pool) capture(t *testing.T, donor string, args ...string) string {
	t.Helper()
	var result struct {
		Version, Donor, BuiltFrom string
		NothingToDo               bool
	}
	p.ortet(t, nil, append(baked("capture", donor, "-o", "json"), args...)...).exits(t, exitDone).json(t, &result)
	if result.NothingToDo || result.Donor != donor || result.BuiltFrom != donor {
		t.Fatalf("the capture of %s says %+v", donor, result)
	}
	return path.Base(result.Version)
}

// run2pods deploys two pods that would rather be on the node, and waits until
// one runs there, so that its image is on the node's disk.
func (p *pool) run2pods(t *testing.T, name, node, image string) {
	t.Helper()
	labels := map[string]string{"app": name + "-" + p.short}
	replicas := int32(2)
	_, err := p.kube.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-" + p.short},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: "app", Image: image}},
					Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
						Weight: 100, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
							Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
						}}},
					}}}},
				},
			},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	eventually(t, "a pod of "+image+" on "+node, func() bool {
		return slices.Contains(p.imagesOf(t, node), image) && len(p.podsOn(t, node, labels)) > 0
	})
}

// podsOn lists the running pods of a node that have the labels.
func (p *pool) podsOn(t *testing.T, node string, labels map[string]string) []corev1.Pod {
	t.Helper()
	list, err := p.kube.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{
		LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: labels}), FieldSelector: "spec.nodeName=" + node,
	})
	must(t, err)
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return pod.Status.Phase != corev1.PodRunning })
}

func (p *pool) imagesOf(t *testing.T, node string) []string {
	t.Helper()
	n, err := p.kube.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	must(t, err)
	var names []string
	for _, i := range n.Status.Images {
		names = append(names, i.Names...)
	}
	return names
}

// hasImage ends the test unless the image was on the node's disk at its first boot.
func (p *pool) hasImage(t *testing.T, node, image string) {
	t.Helper()
	if !strings.Contains(p.file(t, node, "var/lib/containerd/images.json"), image) || !slices.Contains(p.imagesOf(t, node), image) {
		t.Fatalf("image %s is not in the store of %s", image, node)
	}
	if log := p.file(t, node, "var/log/journal/*/*"); strings.Contains(log, `pulled image "`+image) {
		t.Fatalf("node %s pulled %s:\n%s", node, image, log)
	}
}

// scaleOut adds a node and waits until so many are Ready.
func (p *pool) scaleOut(t *testing.T, want int) {
	t.Helper()
	must(t, p.azure.ScaleOut(t.Context(), p.name, 1))
	p.ready(t, want)
}

// newest returns the node of the youngest of so many instances.
func (p *pool) newest(t *testing.T, want int) string {
	t.Helper()
	names := p.ready(t, want)
	if len(names) != want {
		t.Fatalf("pool %s has nodes %v, want %d", p.name, names, want)
	}
	return names[len(names)-1]
}

// fromVersion ends the test unless the node's instance was made from the version.
func (p *pool) fromVersion(t *testing.T, node, version string) {
	t.Helper()
	vm := p.instances(t)[node]
	if vm == nil {
		t.Fatalf("node %s has no instance", node)
	}
	if got := path.Base(str(vm.Properties.StorageProfile.ImageReference.ID)); got != version {
		t.Fatalf("node %s was made from %q, want version %s", node, got, version)
	}
}

// strangers ends the test where two nodes share what tells nodes apart.
func (p *pool) strangers(t *testing.T, nodes ...string) {
	t.Helper()
	for _, pattern := range []string{"etc/machine-id", "etc/hostname", "etc/ssh/ssh_host_*_key", "var/lib/kubelet/pki/kubelet-client-current.pem"} {
		seen := map[string]string{}
		for _, n := range nodes {
			text := strings.TrimSpace(p.file(t, n, pattern))
			if text == "" {
				t.Errorf("node %s has no %s", n, pattern)
			} else if other, twice := seen[text]; twice {
				t.Errorf("nodes %s and %s share %s", n, other, pattern)
			}
			seen[text] = n
		}
	}
	ids := map[string]string{}
	for _, n := range nodes {
		node, err := p.kube.CoreV1().Nodes().Get(t.Context(), n, metav1.GetOptions{})
		must(t, err)
		for _, id := range []string{node.Status.NodeInfo.MachineID, node.Status.NodeInfo.SystemUUID, node.Spec.ProviderID, node.Status.Addresses[0].Address} {
			if other, twice := ids[id]; twice || id == "" {
				t.Errorf("nodes %s and %s share %q", n, other, id)
			}
			ids[id] = n
		}
	}
}

// savedCustomData fails the test unless the pool's customData lies in its Secret.
func (p *pool) savedCustomData(t *testing.T) {
	t.Helper()
	list, err := p.kube.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "ortet.io/purpose=saved"})
	must(t, err)
	for _, s := range list.Items {
		for _, data := range s.Data {
			if strings.Contains(string(data), "# "+p.short+"\n") && strings.HasPrefix(s.Name, "ortet-saved-"+p.name+"-") {
				return
			}
		}
	}
	t.Errorf("no Secret of %s holds the customData of %s", namespace, p.name)
}

// extensionsLeft ends the test unless the model has the billing extension alone.
func (p *pool) extensionsLeft(t *testing.T) {
	t.Helper()
	set, err := p.azure.Pool(t.Context(), p.name)
	must(t, err)
	var names []string
	if profile := set.Properties.VirtualMachineProfile.ExtensionProfile; profile != nil {
		for _, e := range profile.Extensions {
			names = append(names, str(e.Name))
		}
	}
	if len(names) != 1 || !strings.HasSuffix(names[0], "AKSLinuxBilling") {
		t.Errorf("the model's extensions are %v, want the billing one alone", names)
	}
}
