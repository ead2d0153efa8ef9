//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
)

// automatic is a pool whose upgrade policy forbids a capture.
func automatic(body map[string]any) {
	body["properties"].(map[string]any)["upgradePolicy"] = map[string]any{"mode": "Automatic"}
}

// refused has mistakes of all exit codes, and a capture that is refused for three
// reasons at once: by the pool, by Azure's permissions and by a resource that is
// another's. Nothing is written.
func refused(t *testing.T, w *world) {
	p := w.pool(t, "wrong", 2)
	donor := p.nodes[0]
	snapshot := p.foreignSnapshot(t, donor)
	broken := filepath.Join(t.TempDir(), "azure.json")
	must(t, os.WriteFile(broken, []byte("{\"cloud\": \n"), 0o600))
	kubeconfig, azureConfig := "--kubeconfig="+p.cp.Kubeconfig, "--azure-config="+p.azureConfig
	resources, objects, mark := p.resources(t), p.objects(t), p.mark(t)
	for _, c := range []struct {
		code int
		says []string
		args []string
	}{
		{exitUsage, []string{"--agein", "--help"}, []string{"capture", donor, "--agein"}},
		{exitRefused, []string{"node nobody", "no such node"}, []string{"capture", "nobody", kubeconfig, azureConfig}},
		{exitRefused, []string{"no earlier version is kept, and no first capture is recorded"}, []string{"rollback", donor, kubeconfig, azureConfig}},
		{exitRefused, []string{broken}, []string{"capture", donor, kubeconfig, "--azure-config=" + broken}},
		{exitFailed, []string{"AADSTS7000215"}, []string{"capture", donor, kubeconfig, "--azure-config=" + p.azureJSON(t, clientID(p.short), "not the secret")}},
		{exitRefused, []string{"Automatic", "Microsoft.Compute/snapshots/write", snapshot, "Ortet did not make", "nothing was changed"}, []string{"capture", donor, kubeconfig, azureConfig}},
	} {
		o := p.run(t, nil, c.args...).exits(t, c.code).says(t, c.says...)
		if o.stdout != "" {
			t.Errorf("ortet %s: standard output is not empty:\n%s", strings.Join(c.args, " "), o.stdout)
		}
	}
	var shown struct{ Problems []fleet.Problem }
	p.ortet(t, nil, "capture", donor, "--dry-run", "-o", "json").exits(t, exitRefused).json(t, &shown)
	for _, code := range []string{"AutomaticUpgrade", "AzureDenied", "ForeignSnapshot"} {
		if !slices.ContainsFunc(shown.Problems, func(b fleet.Problem) bool { return b.Code == code }) {
			t.Errorf("the dry run's JSON has no %s: %+v", code, shown.Problems)
		}
	}
	p.ortet(t, nil, "status", string(p.id())).exits(t, exitDone).says(t, "no prototype").fits(t)
	if writes := p.writes(t, mark); len(writes) > 0 {
		t.Errorf("refused commands wrote: %v", writes)
	}
	unchanged(t, "refused commands", resources, p.resources(t))
	unchanged(t, "refused commands", objects, p.objects(t))
}

// foreignSnapshot makes a snapshot of somebody else, with the name that a capture's has.
func (p *pool) foreignSnapshot(t *testing.T, donor string) string {
	t.Helper()
	name := plan.NamesOf(p.id(), "").Snapshot.Name()
	poller, err := p.clients(t).NewSnapshotsClient().BeginCreateOrUpdate(t.Context(), p.group(), name, armcompute.Snapshot{
		Location: to.Ptr("westeurope"), Tags: map[string]*string{"owner": to.Ptr("accounting")},
		Properties: &armcompute.SnapshotProperties{CreationData: &armcompute.CreationData{
			CreateOption: to.Ptr(armcompute.DiskCreateOptionCopy), SourceResourceID: p.instances(t)[donor].Properties.StorageProfile.OSDisk.ManagedDisk.ID,
		}},
	}, nil)
	must(t, err)
	_, err = poller.PollUntilDone(t.Context(), nil)
	must(t, err)
	return name
}
