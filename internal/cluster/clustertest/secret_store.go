package clustertest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

func (w *world) item(data string) cluster.SecretItem {
	return cluster.SecretItem{
		Kind: "customData", SHA256: hashOf(data), Data: fleet.NewSecret(data),
		Pool: fleet.ResourceID(w.pool()), Donor: "pool1000003",
		At: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC),
	}
}

func hashOf(data string) string {
	sum := sha256.Sum256([]byte(data))
	return hex.EncodeToString(sum[:])
}

func storeKeeps(w *world) {
	item := w.item("#cloud-config " + w.name + "\x00\xff")
	_, err := w.under.GetSecret(w.ctx, item.Pool, item.Kind, item.SHA256)
	w.wantKind(err, fleet.KindNotFound, "read before")
	w.must(w.under.PutSecret(w.ctx, item, nil), "keep")
	w.must(w.under.PutSecret(w.ctx, w.item("another of "+w.name), nil), "keep another")
	got, err := w.setup.Open(w.T, time.Now).GetSecret(w.ctx, item.Pool, item.Kind, item.SHA256)
	w.must(err, "read")
	if got.Data.Reveal() != item.Data.Reveal() {
		w.Errorf("the data changed")
	}
	got.Data, item.Data = fleet.Secret{}, fleet.Secret{}
	if !got.At.Equal(item.At) || fmt.Sprint(got) != fmt.Sprint(item) {
		w.Errorf("got  %+v\nkept %+v", got, item)
	}
	_, err = w.under.GetSecret(w.ctx, item.Pool, "protectedSettings", item.SHA256)
	w.wantKind(err, fleet.KindNotFound, "read under another kind")
	_, err = w.under.GetSecret(w.ctx, item.Pool+"-other", item.Kind, item.SHA256)
	w.wantKind(err, fleet.KindNotFound, "read of another pool")

	another := w.item("another of " + w.name)
	for range 2 { // the second has nothing to remove
		w.must(w.under.DropSecret(w.ctx, another.Pool, another.Kind, another.SHA256), "drop")
	}
	w.must(w.under.DropSecret(w.ctx, item.Pool+"-other", item.Kind, item.SHA256), "drop of another pool")
	_, err = w.under.GetSecret(w.ctx, another.Pool, another.Kind, another.SHA256)
	w.wantKind(err, fleet.KindNotFound, "read what was dropped")
	_, err = w.under.GetSecret(w.ctx, item.Pool, item.Kind, item.SHA256)
	w.must(err, "read what is beside it")
}

func storeNeverOverwrites(w *world) {
	item := w.item("first of " + w.name)
	w.must(w.under.PutSecret(w.ctx, item, nil), "keep")
	later := item
	later.Donor = "another"
	w.must(w.under.PutSecret(w.ctx, later, nil), "keep the same again")
	got, err := w.under.GetSecret(w.ctx, item.Pool, item.Kind, item.SHA256)
	w.must(err, "read")
	if got.Donor != item.Donor {
		w.Errorf("the second time overwrote the origin: %+v", got)
	}

	forged := item
	forged.Data = fleet.NewSecret("something else")
	w.wantKind(w.under.PutSecret(w.ctx, forged, nil), fleet.KindInvalid, "keep under a wrong hash")
	forged = w.item("other of " + w.name)
	forged.SHA256 = item.SHA256[:16] + forged.SHA256[16:]
	w.wantKind(w.under.PutSecret(w.ctx, forged, nil), fleet.KindInvalid, "keep under a hash that begins alike")
}

// Where the Secret is full, the oldest items go that nobody needs, and never the newest
// of its name.
func storeMakesRoom(w *world) {
	const size = 120 << 10 // eight fit
	at := func(n int) cluster.SecretItem {
		item := w.item(fmt.Sprintf("%d of %s", n, w.name) + strings.Repeat("x", size-100))
		item.At = item.At.Add(time.Duration(n) * time.Hour)
		return item
	}
	settings := at(0)
	settings.Kind, settings.Name, settings.At = "protectedSettings", "cse", settings.At.Add(-time.Hour)
	var keep []string
	asked := 0
	needed := func(context.Context) ([]string, error) { asked++; return keep, nil }
	for _, item := range []cluster.SecretItem{settings, at(1), at(2), at(3), at(4), at(5), at(6), at(7)} {
		w.must(w.under.PutSecret(w.ctx, item, needed), "keep")
	}
	if asked > 0 {
		w.Error("what is needed was asked for while there was room")
	}
	keep = []string{at(1).SHA256}
	w.must(w.under.PutSecret(w.ctx, at(8), needed), "keep in a full Secret")
	for n, want := range map[int]bool{1: true, 2: false, 3: true, 7: true, 8: true} {
		if _, err := w.under.GetSecret(w.ctx, at(n).Pool, at(n).Kind, at(n).SHA256); (err == nil) != want {
			w.Errorf("item %d: %v", n, err)
		}
	}
	if _, err := w.under.GetSecret(w.ctx, settings.Pool, settings.Kind, settings.SHA256); err != nil {
		w.Errorf("the only settings of their extension: %v", err)
	}

	for n := range 10 {
		keep = append(keep, at(n).SHA256)
	}
	w.wantKind(w.under.PutSecret(w.ctx, at(9), needed), fleet.KindInvalid, "keep where all is needed")
	for _, n := range []int{1, 3, 8} {
		if _, err := w.under.GetSecret(w.ctx, at(n).Pool, at(n).Kind, at(n).SHA256); err != nil {
			w.Errorf("item %d, after one was refused: %v", n, err)
		}
	}
}
