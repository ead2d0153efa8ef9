//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ortet/ortet/internal/plan"
)

// blockedByBudget names a node of which a budget lets nothing go.
func blockedByBudget(t *testing.T, w *world) {
	p := w.pool(t, "budget", 2)
	donor := p.nodes[0]
	p.run2pods(t, "guarded", donor, "example.invalid/guarded:1")
	labels := map[string]string{"app": "guarded-" + p.short}
	none := intstr.FromInt32(0)
	_, err := p.kube.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "never-budget"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &none, Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}, metav1.CreateOptions{})
	must(t, err)
	pods := p.podsOn(t, donor, labels)
	before := p.node(t, donor)
	resources := p.resources(t)

	o := p.ortet(t, nil, baked("capture", donor, "--workbench="+p.nodes[1], "--grace-period=2s")...).exits(t, exitRefused)
	o.says(t, "default/never-budget", "default/"+pods[0].Name, "--force")
	p.whole(t, donor, before)
	p.clean(t)
	unchanged(t, "the capture that was refused", settled(t, resources), settled(t, p.resources(t)))
	if left := p.podsOn(t, donor, labels); len(left) != len(pods) {
		t.Errorf("%d pods were on the node, %d are", len(pods), len(left))
	}
}

// settled leaves out what a capture that is given up may leave: the image
// definition, which it makes before it touches the donor and which the next one
// uses, and the marks of having been written to and back.
func settled(t *testing.T, resources map[string]string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for id, text := range resources {
		if strings.Contains(id, "/galleries/") {
			continue
		}
		var body map[string]any
		must(t, json.Unmarshal([]byte(text), &body))
		delete(body, "etag")
		if properties, ok := body["properties"].(map[string]any); ok {
			if p, ok := properties["protectionPolicy"].(map[string]any); ok && p["protectFromScaleIn"] == false && p["protectFromScaleSetActions"] == false {
				delete(properties, "protectionPolicy") // none and an empty one are the same
			}
		}
		rest, err := json.Marshal(body)
		must(t, err)
		out[id] = string(rest)
	}
	return out
}

// automaticAndEphemeral is a pool that cannot be captured.
func automaticAndEphemeral(body map[string]any) {
	properties := body["properties"].(map[string]any)
	properties["upgradePolicy"] = map[string]any{"mode": "Automatic"}
	disk := properties["virtualMachineProfile"].(map[string]any)["storageProfile"].(map[string]any)["osDisk"].(map[string]any)
	disk["diffDiskSettings"] = map[string]any{"option": "Local", "placement": "ResourceDisk"}
	disk["caching"] = "ReadOnly"
	disk["managedDisk"] = map[string]any{"storageAccountType": "Standard_LRS"}
	body["sku"].(map[string]any)["name"] = "Standard_D4ds_v5"
}

// refusedForAllReasons asks for a capture that is impossible for four reasons.
func refusedForAllReasons(t *testing.T, w *world) {
	p := w.pool(t, "auto", 2)
	donor := p.nodes[0]
	// Its kubelet says so, and reports no more within this test.
	patch := `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"KubeletNotReady","message":"container runtime is down"}]}}`
	_, err := p.kube.CoreV1().Nodes().Patch(t.Context(), donor, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	must(t, err)
	eventually(t, donor+" to be NotReady", func() bool {
		n, err := p.kube.CoreV1().Nodes().Get(t.Context(), donor, metav1.GetOptions{})
		must(t, err)
		return !isReady(n) && len(n.Spec.Taints) == 2 // the node controller has said all that it says
	})
	resources, objects, mark := p.resources(t), p.objects(t), p.mark(t)
	for _, args := range [][]string{{"capture", donor}, {"capture", donor, "--dry-run"}} {
		o := p.ortet(t, nil, args...).exits(t, exitRefused)
		o.says(t, "Automatic", "ephemeral", "Microsoft.Compute/snapshots/write", "not Ready", "nothing was changed")
	}
	var shown struct{ Problems []plan.Problem }
	p.ortet(t, nil, "capture", donor, "--dry-run", "-o", "json").exits(t, exitRefused).json(t, &shown)
	if len(shown.Problems) < 4 {
		t.Errorf("JSON tells %d problems, want 4 or more: %+v", len(shown.Problems), shown.Problems)
	}
	if writes := p.writes(t, mark); len(writes) > 0 {
		t.Errorf("a refused capture wrote: %v", writes)
	}
	unchanged(t, "refused capture", resources, p.resources(t))
	unchanged(t, "refused capture", objects, p.objects(t))
}

// wrongInput is what people mistype, and what they have lying about.
func wrongInput(t *testing.T, w *world) {
	p := w.pool(t, "wrong", 2)
	donor := p.nodes[0]
	kubeconfig, azureConfig := "--kubeconfig="+p.cp.Kubeconfig, "--azure-config="+p.azureConfig
	stray := p.strayNode(t)
	broken := filepath.Join(t.TempDir(), "azure.json")
	must(t, os.WriteFile(broken, []byte("{\"cloud\": \n"), 0o600))
	locked := filepath.Join(t.TempDir(), "no", "azure.json")
	wrongSecret := p.azureJSON(t, clientID(p.short), "not the secret")
	resources, objects, mark := p.resources(t), p.objects(t), p.mark(t)
	for _, c := range []struct {
		name string
		code int
		says []string
		args []string
	}{
		{"no command", exitUsage, []string{"ortet"}, []string{"captur"}},
		{"no node", exitUsage, []string{"name the node"}, []string{"capture"}},
		{"two nodes", exitUsage, []string{"one argument"}, []string{"capture", donor, p.nodes[1]}},
		{"unknown flag", exitUsage, []string{"--agein", "--help"}, []string{"capture", donor, "--agein"}},
		{"flag without value", exitUsage, []string{"--workbench"}, []string{"capture", donor, "--workbench"}},
		{"no such output", exitUsage, []string{"xml", "json"}, []string{"capture", donor, "-o", "xml"}},
		{"short history", exitUsage, []string{"--history", "at least 2"}, []string{"capture", donor, "--history=1"}},
		{"no such bootstrap", exitUsage, []string{"--bootstrap", "baked"}, []string{"capture", donor, "--bootstrap=magic"}},
		{"bad duration", exitUsage, []string{"--grace-period"}, []string{"capture", donor, "--grace-period=5"}},
		{"bad pattern", exitUsage, []string{"["}, []string{"capture", donor, "--extensions=all", "--keep-extension=["}},
		{"no such scale set", exitUsage, []string{"ARM id"}, []string{"status", "pool"}},
		{"unknown node", exitRefused, []string{"node nobody", "no such node"}, []string{"capture", "nobody", kubeconfig, azureConfig}},
		{"unknown node, dry", exitRefused, []string{"node nobody"}, []string{"capture", "nobody", "--dry-run", kubeconfig, azureConfig}},
		{"unknown node, back", exitRefused, []string{"node nobody"}, []string{"rollback", "nobody", kubeconfig, azureConfig}},
		{"node of no scale set", exitRefused, []string{stray, "Uniform scale set"}, []string{"capture", stray, kubeconfig, azureConfig}},
		{"no such workbench", exitRefused, []string{"nobody"}, []string{"capture", donor, "--workbench=nobody", kubeconfig, azureConfig}},
		{"donor as workbench", exitRefused, []string{donor}, []string{"capture", donor, "--workbench=" + donor, kubeconfig, azureConfig}},
		{"no such kubeconfig", exitFailed, []string{"/nowhere/config", "--kubeconfig"}, []string{"capture", donor, "--kubeconfig=/nowhere/config", azureConfig}},
		{"no such azure.json", exitFailed, []string{locked}, []string{"capture", donor, kubeconfig, "--azure-config=" + locked}},
		{"broken azure.json", exitFailed, []string{broken}, []string{"capture", donor, kubeconfig, "--azure-config=" + broken}},
		{"wrong secret", exitFailed, []string{"AADSTS7000215"}, []string{"capture", donor, kubeconfig, "--azure-config=" + wrongSecret}},
		{"nothing to go back to", exitRefused, []string{"nothing was captured of this pool yet"}, []string{"rollback", donor, kubeconfig, azureConfig}},
		{"no such version", exitRefused, []string{"1.2.3"}, []string{"rollback", donor, "--to=1.2.3", kubeconfig, azureConfig}},
	} {
		o := p.run(t, nil, c.args...)
		if o.code != c.code {
			t.Errorf("%s: exit %d, want %d\n%s", c.name, o.code, c.code, o)
		}
		for _, s := range c.says {
			if !strings.Contains(flat(o.stderr), s) {
				t.Errorf("%s: does not say %q\n%s", c.name, s, o)
			}
		}
		if o.stdout != "" {
			t.Errorf("%s: standard output is not empty:\n%s", c.name, o.stdout)
		}
	}
	if writes := p.writes(t, mark); len(writes) > 0 {
		t.Errorf("wrong input wrote: %v", writes)
	}
	unchanged(t, "wrong input", resources, p.resources(t))
	unchanged(t, "wrong input", objects, p.objects(t))

	// Status is JSON too, and says of a pool without a prototype that it has none.
	var pools []json.RawMessage
	p.ortet(t, nil, "status", "-o", "json", string(p.id())).exits(t, exitDone).json(t, &pools)
	if len(pools) != 1 {
		t.Errorf("status tells of %d pools, want 1", len(pools))
	}
	p.ortet(t, nil, "status", string(p.id())).exits(t, exitDone).says(t, "no prototype").fits(t)

	p.foreignSnapshot(t, donor)
}

// strayNode makes a Node that belongs to no cloud.
func (p *pool) strayNode(t *testing.T) string {
	t.Helper()
	const name = "stray"
	_, err := p.kube.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux"}},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := background()
		defer cancel()
		if err := p.kube.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return name
}

// foreignSnapshot captures where a snapshot of somebody else has the name that a
// capture's has.
func (p *pool) foreignSnapshot(t *testing.T, donor string) {
	t.Helper()
	snapshots := p.clients(t).NewSnapshotsClient()
	name := plan.NamesOf(p.id(), "", "").Snapshot.Name()
	poller, err := snapshots.BeginCreateOrUpdate(t.Context(), p.group(), name, armcompute.Snapshot{
		Location: to.Ptr("westeurope"), Tags: map[string]*string{"owner": to.Ptr("accounting")},
		Properties: &armcompute.SnapshotProperties{CreationData: &armcompute.CreationData{
			CreateOption: to.Ptr(armcompute.DiskCreateOptionCopy), SourceResourceID: p.instances(t)[donor].Properties.StorageProfile.OSDisk.ManagedDisk.ID,
		}},
	}, nil)
	must(t, err)
	_, err = poller.PollUntilDone(t.Context(), nil)
	must(t, err)
	resources, objects, mark := p.resources(t), p.objects(t), p.mark(t)
	p.ortet(t, nil, "capture", donor).exits(t, exitRefused).says(t, name, "Ortet did not make")
	if writes := p.writes(t, mark); len(writes) > 0 {
		t.Errorf("the refused capture wrote: %v", writes)
	}
	unchanged(t, "a foreign snapshot", resources, p.resources(t))
	unchanged(t, "a foreign snapshot", objects, p.objects(t))
}
