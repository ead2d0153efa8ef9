//go:build e2e

package charts

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/test/controlplane"
)

var errReadable = errors.New("they can be read")

// Earlier versions saved each item in a Secret named by its content. An upgrade finds
// those, and the pool by the target node, so that a capture's account reads both, and no
// other Secret.
func TestUpgradeNamesWhatEarlierVersionsSaved(t *testing.T) {
	const namespace, target = "saved-system", "saved-vmss000000"
	i := installed(t, namespace, strings.ReplaceAll(earlier(t), "upgrade-system", namespace))
	before, meanwhile := saved("of before"), saved("of a Job that goes on")
	other := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: configSecret}, Data: map[string][]byte{"azure.json": []byte("{}")}}
	immutable := true
	earlierSecret := func(item cluster.SecretItem) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "ortet-saved-customdata-" + item.SHA256[:16], Annotations: map[string]string{
				"ortet.io/kind": "customData", "ortet.io/sha256": item.SHA256, "ortet.io/pool": accountsPool,
			}},
			Type: "ortet.io/saved", Immutable: &immutable, Data: map[string][]byte{"data": []byte(item.Data.Reveal())},
		}
	}
	for _, secret := range []*corev1.Secret{other, earlierSecret(before)} {
		if _, err := i.admin.CoreV1().Secrets(namespace).Create(i.ctx, secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: target}, Spec: corev1.NodeSpec{ProviderID: "azure://" + accountsPool + "/virtualMachines/0"}}
	// An API server applies the policies of a test before this one for a moment after
	// they are deleted.
	eventually(t, "create "+target, func() error {
		_, err := i.admin.CoreV1().Nodes().Create(i.ctx, n, metav1.CreateOptions{})
		return err
	})
	t.Cleanup(func() {
		_ = client(t, controlplane.Client{}).CoreV1().Nodes().Delete(context.WithoutCancel(i.ctx), target, metav1.DeleteOptions{})
	})

	out, err := helm(t, "template", "c", "vmss-prototype", "--namespace", namespace, "--dry-run=server", "--kubeconfig", i.cp.Kubeconfig, "--set", "kamino.targetNode="+target+",ortet.namespace="+namespace)
	if err != nil {
		t.Fatalf("helm template: %v\n%s", err, out)
	}
	now := keptOf(t, out)
	i.kubectl(now, "apply", "--filename", "-")
	t.Cleanup(func() { i.kubectl(now, "delete", "--ignore-not-found", "--wait=false", "--filename", "-") })

	c, account := i.capture(), client(t, i.account("c-vmss-prototype"))
	eventually(t, "other Secrets to be out of reach", func() error {
		_, err := account.CoreV1().Secrets(namespace).Get(i.ctx, configSecret, metav1.GetOptions{})
		if err == nil {
			return errReadable
		}
		return nil
	})
	if kept, err := c.GetSecret(i.ctx, accountsPool, before.Kind, before.SHA256); err != nil || kept.Data.Reveal() != before.Data.Reveal() {
		t.Errorf("what was saved before: %v", err)
	}
	refusal(t, "the policy on records", "a capture writes its journal", func() error {
		_, err := account.CoreV1().Secrets(namespace).Create(i.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: kube.SavedName(accountsPool + "2")}, Type: "ortet.io/saved"}, metav1.CreateOptions{DryRun: dry})
		return err
	})
	if _, err := account.CoreV1().Secrets(namespace).Create(i.ctx, earlierSecret(meanwhile), metav1.CreateOptions{}); err != nil {
		t.Errorf("an earlier version's Job, still running, saves: %v", err)
	}
	for range 2 {
		if err := c.PutSecret(i.ctx, captureData, nil); err != nil {
			t.Errorf("save: %v", err)
		}
	}
	if _, err := c.GetSecret(i.ctx, accountsPool, captureData.Kind, captureData.SHA256); err != nil {
		t.Errorf("what is saved now: %v", err)
	}
	// What may be there in another Secret is not taken for lost.
	lost := saved("never")
	if _, err := c.GetSecret(i.ctx, accountsPool, lost.Kind, lost.SHA256); !fleet.Is(err, fleet.KindDenied) {
		t.Errorf("read what no Role names: %v", err)
	}
	if _, err := c.Journals().Load(i.ctx, accountsPool); !fleet.Is(err, fleet.KindNotFound) {
		t.Errorf("read the journal %s: %v", kube.JournalName(accountsPool), err)
	}
}
