package clustertest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

func (w *world) item(data string) cluster.Kept {
	sum := sha256.Sum256([]byte(data))
	return cluster.Kept{
		Kind: "customData", SHA256: hex.EncodeToString(sum[:]), Data: fleet.NewSecret(data),
		Pool: "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/pool1", Donor: "pool1000003",
		At: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC),
	}
}

func vaultKeeps(w *world) {
	item := w.item("#cloud-config " + w.name + "\x00\xff")
	_, err := w.under.Kept(w.ctx, item.Kind, item.SHA256)
	w.wantKind(err, fleet.KindNotFound, "read before")
	w.must(w.under.Keep(w.ctx, item), "keep")
	got, err := w.setup.Open(w.T, time.Now).Kept(w.ctx, item.Kind, item.SHA256)
	w.must(err, "read")
	if got.Data.Reveal() != item.Data.Reveal() {
		w.Errorf("the data changed")
	}
	got.Data, item.Data = fleet.Secret{}, fleet.Secret{}
	if !got.At.Equal(item.At) || fmt.Sprint(got) != fmt.Sprint(item) {
		w.Errorf("got  %+v\nkept %+v", got, item)
	}
	_, err = w.under.Kept(w.ctx, "protectedSettings", item.SHA256)
	w.wantKind(err, fleet.KindNotFound, "read under another kind")
}

func vaultNeverOverwrites(w *world) {
	item := w.item("first of " + w.name)
	w.must(w.under.Keep(w.ctx, item), "keep")
	later := item
	later.Donor = "another"
	w.must(w.under.Keep(w.ctx, later), "keep the same again")
	got, err := w.under.Kept(w.ctx, item.Kind, item.SHA256)
	w.must(err, "read")
	if got.Donor != item.Donor {
		w.Errorf("the second time overwrote the origin: %+v", got)
	}

	forged := item
	forged.Data = fleet.NewSecret("something else")
	w.wantKind(w.under.Keep(w.ctx, forged), fleet.KindInvalid, "keep under a wrong hash")
	forged = w.item("other of " + w.name)
	forged.SHA256 = item.SHA256[:16] + forged.SHA256[16:]
	w.wantKind(w.under.Keep(w.ctx, forged), fleet.KindInvalid, "keep under a hash that begins alike")

	// The Secret itself refuses, whoever writes.
	list, err := w.admin.CoreV1().Secrets(w.setup.Namespace).List(w.ctx, metav1.ListOptions{})
	w.must(err, "list secrets")
	found := false
	for i := range list.Items {
		secret := &list.Items[i]
		for key, data := range secret.Data {
			if string(data) != item.Data.Reveal() {
				continue
			}
			found = true
			secret.Data[key] = []byte("overwritten")
			if _, err := w.admin.CoreV1().Secrets(w.setup.Namespace).Update(w.ctx, secret, metav1.UpdateOptions{}); err == nil {
				w.Error("the Secret could be overwritten")
			}
		}
	}
	if !found {
		w.Error("no Secret of Ortet's namespace holds the data")
	}
}
