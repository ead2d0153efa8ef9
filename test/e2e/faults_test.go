//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/test/scenario"
	"github.com/ortet/ortet/test/scenario/fault"
	"github.com/ortet/ortet/test/scenario/play"
)

// A faulted is a scenario that is played in memory and against a real API server.
type faulted struct {
	name  string
	short string // of its pool
	story scenario.Scenario
}

// faultedStories reads them.
func faultedStories(t *testing.T) []faulted {
	t.Helper()
	files, err := filepath.Glob("../scenario/testdata/real/*.txt")
	must(t, err)
	if len(files) == 0 {
		t.Fatal("there are no scenarios")
	}
	var all []faulted
	for i, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		s, err := scenario.Parse(string(text))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, e := range s.Events {
			if err := fault.Supports(e); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
		}
		if len(s.Asks) != 1 || s.Asks[0].Verb != scenario.Capture {
			t.Fatalf("%s: it has to ask for one capture", file)
		}
		all = append(all, faulted{strings.TrimSuffix(filepath.Base(file), ".txt"), fmt.Sprintf("fault%02d", i), s})
	}
	return all
}

// faultsOnTheWay plays each scenario in memory, and again with the real ortet and
// a real API server behind a proxy that does the same to the same requests: both
// come to the same end.
func faultsOnTheWay(t *testing.T, w *world) {
	for _, f := range faultedStories(t) {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			f.played(t, w)
		})
	}
}

// toldExit is a process's end in what a playing tells.
var toldExit = regexp.MustCompile(`(?m)^p\d+ capture \S+: exit (\d+)$`)

func (f faulted) played(t *testing.T, w *world) {
	var inMemory play.Result
	synctest.Test(t, func(*testing.T) { inMemory = play.Play(f.story) })
	for _, v := range inMemory.Violations {
		t.Errorf("in memory: %s", v)
	}
	for _, e := range inMemory.Missed {
		t.Errorf("in memory the request %s %d never comes", e.Request, e.Count)
	}
	var want []string
	for _, m := range toldExit.FindAllStringSubmatch(inMemory.Told, -1) {
		want = append(want, m[1])
	}
	if len(want) == 0 || t.Failed() {
		t.Fatalf("what is told has no exit codes:\n%s", inMemory.Told)
	}

	p := w.pool(t, f.short, f.story.Pool.Instances)
	donor, bench := p.nodes[0], p.nodes[1]
	pods := p.populate(t, donor, f.story.Donor)
	before := p.node(t, donor)
	chooser := scenario.NewChooser(p.named(f.story, donor, bench))
	proxy := w.before(t, chooser)
	args := append([]string{"capture", donor, "--workbench=" + bench, "--accept-pool-credentials"}, p.through(proxy)...)
	var got []string
	var last outcome
	for range want {
		last = p.run(t, nil, args...)
		got = append(got, fmt.Sprint(last.code))
		if last.code != exitNeedsPerson {
			p.whole(t, donor, before)
			p.clean(t)
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("exit codes %v, and in memory %v\n%s", got, want, last)
	}
	for _, e := range chooser.Missed() {
		t.Errorf("the request %s %d never comes", e.Request, e.Count)
	}

	versions := p.versions(t)
	if told := toldVersions(inMemory.Told); len(versions) != told {
		t.Errorf("versions are %v, and in memory there are %d", versions, told)
	}
	if marketplace := strings.Contains(inMemory.Told, "model: a Marketplace image"); marketplace {
		if image := p.image(t); image.ID != nil {
			t.Errorf("the model uses %s, and in memory a Marketplace image", str(image.ID))
		}
	} else if len(versions) > 0 {
		p.pinned(t, lastOf(versions))
	}
	if last.code == exitDone {
		p.extensionsLeft(t)
		if left := p.workload(t, donor, pods); len(left) > 0 {
			t.Errorf("of the pods that were on the donor, %v are", left)
		}
	}
}

func lastOf(s []string) string { return s[len(s)-1] }

// toldVersions counts the versions that a playing tells of.
func toldVersions(told string) int {
	_, rest, _ := strings.Cut(told, "versions:")
	line, _, _ := strings.Cut(rest, "\n")
	return len(strings.Fields(line))
}

// Where a playing has its pool.
const playedPool = fleet.ResourceID("/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/" + azsim.DefaultResourceGroup +
	"/providers/Microsoft.Compute/virtualMachineScaleSets/pool1")

// named has the scenario's happenings come to the pool's own requests: nodes,
// the Lease, the journal and pods are called otherwise than in a playing.
func (p *pool) named(s scenario.Scenario, donor, bench string) scenario.Scenario {
	names := strings.NewReplacer(
		"pool1000000", donor, "pool1000001", bench,
		kube.LeaseName(string(playedPool)), kube.LeaseName(string(p.id())),
		kube.JournalName(string(playedPool)), kube.JournalName(string(p.id())),
		" default/pods/", " "+p.short+"/pods/",
	)
	s.Events = slices.Clone(s.Events)
	for i := range s.Events {
		s.Events[i].Request = names.Replace(s.Events[i].Request)
	}
	return s
}

// populate puts a ReplicaSet's pods on the donor, named as a playing names them,
// in a namespace of the pool's own, and gives their names.
func (p *pool) populate(t *testing.T, donor string, d scenario.Donor) []string {
	t.Helper()
	_, err := p.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.short}}, metav1.CreateOptions{})
	must(t, err)
	eventually(t, "a service account of "+p.short, func() bool {
		_, err := p.kube.CoreV1().ServiceAccounts(p.short).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	labels := map[string]string{"app": "web"}
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.invalid/web:1"}}}
	replicas := int32(d.Pods)
	var names []string
	for i := range d.Pods {
		bound := spec
		bound.NodeName = donor
		names = append(names, fmt.Sprintf("web-%d", i))
		_, err := p.kube.CoreV1().Pods(p.short).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: names[i], Labels: labels, Annotations: map[string]string{corev1.PodDeletionCost: "100"},
		}, Spec: bound}, metav1.CreateOptions{})
		must(t, err)
	}
	// A ReplicaSet controller that has not seen them yet makes pods of its own, and
	// then deletes what is too many: those that do not run first, the cheapest next.
	eventually(t, "pods that run on "+donor, func() bool { return len(p.running(t, donor, names)) == d.Pods })
	// It takes the pods for its own, since it would have made the same.
	_, err = p.kube.AppsV1().ReplicaSets(p.short).Create(t.Context(), &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.ReplicaSetSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
	}}, metav1.CreateOptions{})
	must(t, err)
	eventually(t, "pods of the ReplicaSet on "+donor, func() bool { return len(p.workload(t, donor, names)) == d.Pods })
	return names
}

// workload lists those of the pods that run on the node and that a controller has.
func (p *pool) workload(t *testing.T, node string, names []string) (there []string) {
	t.Helper()
	for _, pod := range p.running(t, node, names) {
		if metav1.GetControllerOf(pod) != nil {
			there = append(there, pod.Name)
		}
	}
	return there
}

// running lists those of the pods that run on the node.
func (p *pool) running(t *testing.T, node string, names []string) (there []*corev1.Pod) {
	t.Helper()
	list, err := p.kube.CoreV1().Pods(p.short).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	must(t, err)
	for i := range list.Items {
		pod := &list.Items[i]
		if slices.Contains(names, pod.Name) && pod.Status.Phase == corev1.PodRunning {
			there = append(there, pod)
		}
	}
	return there
}
