//go:build e2e

package kube_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/fleet"
)

// What is desired outlives the process, and two that write at once are told apart.
func TestDesires(t *testing.T) {
	w := newWorld(t, "desires")
	a, b := w.open(), w.open()
	first, err := a.Desire(w.ctx, pool)
	if err != nil || !reflect.DeepEqual(first, admission.Desire{}) {
		t.Fatalf("%+v, %v", first, err)
	}
	want := admission.Desire{Capacity: 5, Seen: 4, Failures: 2, NotBefore: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC),
		Evictions: []admission.Eviction{{Instance: pool + "/virtualMachines/3", VMID: "c0ffee00-0000-4000-8000-000000000000", At: time.Date(2026, 11, 21, 11, 59, 0, 5, time.UTC), Counted: true}}}
	must(t, a.SetDesire(w.ctx, pool, want))
	if err := b.SetDesire(w.ctx, pool, admission.Desire{Capacity: 1}); !fleet.Is(err, fleet.KindStale) {
		t.Errorf("made twice: %v", err)
	}
	got, err := b.Desire(w.ctx, fleet.ResourceID(strings.ToUpper(pool)))
	if want.Version = got.Version; err != nil || got.Version == "" || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v\nwant %+v", got, err, want)
	}
	if other, err := b.Desire(w.ctx, pool+"2"); err != nil || other.Version != "" {
		t.Errorf("another scale set's: %+v, %v", other, err)
	}
	next := got
	next.Capacity, next.Evictions = 7, nil
	must(t, b.SetDesire(w.ctx, pool, next))
	if err := a.SetDesire(w.ctx, pool, want); !fleet.Is(err, fleet.KindStale) {
		t.Errorf("written over what somebody else wrote: %v", err)
	}
	got, err = a.Desire(w.ctx, pool)
	if err != nil || got.Capacity != 7 || len(got.Evictions) != 0 {
		t.Errorf("%+v, %v", got, err)
	}

	// Whatever a person makes of it is no obstacle.
	list, err := w.admin.CoreV1().ConfigMaps(w.namespace).List(w.ctx, metav1.ListOptions{LabelSelector: "ortet.io/purpose=desired-capacity"})
	must(t, err)
	if len(list.Items) != 1 || list.Items[0].Annotations["ortet.io/pool"] != pool || list.Items[0].Annotations["ortet.io/made-by"] == "" {
		t.Fatalf("%+v", list.Items)
	}
	m := list.Items[0]
	for _, text := range []string{"", "five", `{"capacity":-1}`, `{"capacity":1e99}`} {
		m.Data = map[string]string{"desire": text}
		written, err := w.admin.CoreV1().ConfigMaps(w.namespace).Update(w.ctx, &m, metav1.UpdateOptions{})
		must(t, err)
		m = *written
		if got, err := a.Desire(w.ctx, pool); err != nil || !reflect.DeepEqual(got, admission.Desire{Version: m.ResourceVersion}) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	must(t, a.SetDesire(w.ctx, pool, admission.Desire{Capacity: 2, Version: m.ResourceVersion}))
	stale, err := a.Desire(w.ctx, pool)
	must(t, err)
	must(t, w.admin.CoreV1().ConfigMaps(w.namespace).Delete(w.ctx, m.Name, metav1.DeleteOptions{}))
	if err := a.SetDesire(w.ctx, pool, stale); !fleet.Is(err, fleet.KindStale) {
		t.Errorf("deleted meanwhile: %v", err)
	}
	if got, err := a.Desire(w.ctx, pool); err != nil || got.Version != "" {
		t.Errorf("%+v, %v", got, err)
	}
}
