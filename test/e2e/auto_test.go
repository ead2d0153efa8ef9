//go:build e2e

package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/internal/image/auto"
	"github.com/ortet/ortet/test/controlplane"
)

// The annotations that kured writes, as kamino's values name them.
const (
	lastPatch     = "weave.works/kured-most-recent-reboot-needed"
	pendingReboot = "weave.works/kured-reboot-in-progress"
)

// TestAuto is a night in which the chart's Job, by its own arguments and account, looks at
// all pools of a cluster. That cluster has Nodes of no other pool.
func TestAuto(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: -short, and this starts a control plane")
	}
	awaitDay(t)
	// What other tests of this package left are Nodes of pools that are gone.
	admin := controlplane.Shared(t).Admin(t)
	must(t, admin.CoreV1().Nodes().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	w := newWorld(t, []poolSpec{{short: "patched", capacity: 3}, {short: "mixed", capacity: 3}, {short: "stale", capacity: 2}})
	patched, mixed, stale := w.pool(t, "patched", 3), w.pool(t, "mixed", 3), w.pool(t, "stale", 2)
	today := time.Now().UTC().Format(time.RFC3339)

	// In the first, two nodes were patched; in the second all were, of which one waits for
	// a reboot and one is cordoned; in the third, no patch is known.
	for _, n := range patched.nodes[1:] {
		w.annotate(t, n, lastPatch, today)
	}
	for _, n := range mixed.nodes {
		w.annotate(t, n, lastPatch, today)
	}
	w.annotate(t, mixed.nodes[0], pendingReboot, "yes")
	w.cordon(t, mixed.nodes[1])
	w.annotate(t, stale.nodes[0], lastPatch, "soon")
	want := map[string]string{patched.name: w.longestReady(t, patched.nodes[1:]), mixed.name: mixed.nodes[2]}

	values := "kamino.auto.lastPatchAnnotation=" + lastPatch + ",kamino.auto.pendingRebootAnnotation=" + pendingReboot + ",kamino.auto.minimumReadyTime=1s,ortet.otherPools=true" // the one of mixed that is captured has none beside it
	t.Run("an account that was granted one pool refuses the others", func(t *testing.T) {
		night := w.installed(t, "narrow", values+",kamino.targetVMSS="+stale.name)
		for i, a := range night.args {
			if strings.HasPrefix(a, "--pool=") {
				night.args[i] = "--all"
			}
		}
		o := night.run(t).exits(t, exitRefused)
		o.says(t, "ortet.pools", string(patched.id()), string(mixed.id()), "not due").fits(t)
	})

	night := w.installed(t, "nightly", values+",kamino.targetVMSS=ALL")
	before := map[string]kept{}
	for _, p := range []*pool{patched, mixed, stale} {
		for _, n := range p.nodes {
			before[n] = p.node(t, n)
		}
	}
	mark := patched.mark(t)
	dry := night.run(t, "--dry-run").exits(t, exitDone)
	dry.says(t, want[patched.name], want[mixed.name], "Plan for the capture of", "not due").fits(t)
	if writes := patched.writes(t, mark); len(writes) > 0 {
		t.Errorf("a dry run wrote: %v", writes)
	}

	var results []auto.Result
	first := night.run(t, "-o", "json").exits(t, exitDone)
	first.json(t, &results)
	version := time.Now().UTC().Format("2006.01.02")
	for _, r := range results {
		name := r.Pool.Name()
		switch donor, due := want[name]; {
		case due && (r.Outcome != auto.Captured || r.Donor != donor || path.Base(string(r.Capture.Version)) != version):
			t.Errorf("%s: %s, donor %s, want %s", name, r.Outcome, r.Donor, donor)
		case !due && r.Outcome != auto.NotDue:
			t.Errorf("%s: %s (%s), want not due", name, r.Outcome, r.Because)
		}
	}
	if len(results) != 3 {
		t.Errorf("%d results, want 3", len(results))
	}
	for _, p := range []*pool{patched, mixed} {
		p.pinned(t, version)
		p.clean(t)
		for _, n := range p.nodes {
			p.whole(t, n, before[n])
		}
	}
	if v := stale.versions(t); len(v) > 0 {
		t.Errorf("the pool that is not due has versions %v", v)
	}

	mark = patched.mark(t)
	night.run(t).exits(t, exitDone).says(t, patched.name+": not due", mixed.name+": not due", stale.name+": not due").fits(t)
	if writes := patched.writes(t, mark); len(writes) > 0 {
		t.Errorf("a second run the same night wrote: %v", writes)
	}
	shown := patched.ortet(t, nil, "donors", "--all", "--patch-annotation="+lastPatch, "--min-ready=1s").exits(t, exitDone)
	shown.says(t, patched.name, mixed.name, stale.name, "cordoned").fits(t)
	t.Log(shown.stdout)
}

// A night is one run of the chart's Job.
type night struct {
	*pool
	args []string
}

// render renders a chart as helm install would have it, by document.
func (w *world) render(t *testing.T, release, chart, namespace, values string) []string {
	t.Helper()
	script := exec.CommandContext(t.Context(), "../../hack/helm/build.sh")
	binary, err := script.Output()
	must(t, err)
	helm := exec.CommandContext(t.Context(), strings.TrimSpace(string(binary)), "template", release, chart, "--dry-run=server",
		"--kubeconfig", w.cp.Kubeconfig, "--namespace", namespace, "--set", values)
	var complaint bytes.Buffer
	helm.Stderr = &complaint
	manifest, err := helm.Output()
	if err != nil {
		t.Fatalf("helm template: %v\n%s", err, complaint.String())
	}
	return strings.Split(string(manifest), "\n---\n")
}

// account returns a kubeconfig with the rights of a ServiceAccount.
func (w *world) account(t *testing.T, namespace, name string) string {
	t.Helper()
	config, err := w.cp.KubeconfigFor(controlplane.Client{User: "system:serviceaccount:" + namespace + ":" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}})
	must(t, err)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(kubeconfig, config, 0o600))
	return kubeconfig
}

// installed installs the chart but for its Job, whose arguments and account it gives.
func (w *world) installed(t *testing.T, release, values string) *night {
	t.Helper()
	var job batchv1.Job
	var rest []string
	for _, doc := range w.render(t, release, "../../charts/vmss-prototype", "default", "ortet.image="+ortetImage+","+values) {
		var kind struct{ Kind string }
		must(t, yaml.Unmarshal([]byte(doc), &kind))
		switch kind.Kind {
		case "Job":
			must(t, yaml.UnmarshalStrict([]byte(doc), &job))
		case "":
		default:
			rest = append(rest, doc)
		}
	}
	w.kubectl(t, strings.Join(rest, "\n---\n"), "apply", "--filename", "-")
	p := &pool{world: w, short: "patched", home: t.TempDir()}
	return &night{pool: p, args: append(slices.Clone(job.Spec.Template.Spec.Containers[0].Args),
		// The last one of a flag counts; the account's token is a certificate here.
		"--azure-config="+w.azureJSON(t, clientID(p.short), "secret-of-"+p.short),
		"--kubeconfig="+w.account(t, "default", job.Spec.Template.Spec.ServiceAccountName))}
}

func (n *night) run(t *testing.T, more ...string) outcome {
	t.Helper()
	return n.pool.run(t, nil, append(slices.Clone(n.args), more...)...)
}

func (w *world) annotate(t *testing.T, node, key, value string) {
	t.Helper()
	_, err := w.kube.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+key+`":"`+value+`"}}}`), metav1.PatchOptions{})
	must(t, err)
}

func (w *world) cordon(t *testing.T, node string) {
	t.Helper()
	_, err := w.kube.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
	must(t, err)
}

// longestReady is the one of the nodes that is Ready longest, by name where two are.
func (w *world) longestReady(t *testing.T, nodes []string) string {
	t.Helper()
	best, since := "", time.Time{}
	for _, name := range nodes {
		n, err := w.kube.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		must(t, err)
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && (best == "" || c.LastTransitionTime.Time.Before(since)) {
				best, since = name, c.LastTransitionTime.Time
			}
		}
	}
	return best
}
