package controller

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/cluster/conversion"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// aStore is a store on an API server, with a clock that the test turns.
func aStore(c client.Client, now *time.Time) *bootStore {
	return newBootStore(c, Config{Namespace: "ns", BootsPerVersion: 4, MaxBoots: 12, KeepBoots: 24 * time.Hour, Now: func() time.Time { return *now }, Log: slog.New(slog.DiscardHandler)})
}

const galleryOf = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/galleries/g/images/d/versions/"

func store(t *testing.T, s *bootStore, pool, version string, machine, boot int) bool {
	t.Helper()
	vm := fmt.Sprintf("%08d-2222-4333-8444-555555555555", machine)
	r := wire.BootReport{Version: wire.BootReportVersion, VMID: vm, BootID: fmt.Sprintf("boot-%d", boot)}
	fresh, err := s.keep(t.Context(), assess.BootRecord{Node: fmt.Sprintf("node%d", machine), VMID: vm, Image: galleryOf + version, BootID: r.BootID,
		Pool: fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/" + pool)}, r)
	if err != nil {
		t.Fatal(err)
	}
	return fresh
}

// kept is what is stored: "pool version machine boot".
func kept(t *testing.T, c client.Client) []string {
	t.Helper()
	var list corev1.ConfigMapList
	if err := c.List(t.Context(), &list, client.InNamespace("ns"), client.MatchingLabels{assess.BootLabel: assess.BootValue}); err != nil {
		t.Fatal(err)
	}
	var out []string
	for i := range list.Items {
		record, report, err := assess.ReadBoot(conversion.Record(&list.Items[i]))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, strings.Join([]string{record.Pool.Name(), record.ImageVersion(), record.Node, report.BootID}, " "))
	}
	slices.Sort(out)
	return out
}

func count(list []string, start string) int {
	n := 0
	for _, s := range list {
		if strings.HasPrefix(s, start) {
			n++
		}
	}
	return n
}

func TestStoredBootsAreBounded(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	now := noon
	s := aStore(c, &now)
	var forgot []string
	s.forgot = func(pool, _ string) { forgot = append(forgot, pool) }

	// Of one image version of a pool the newest stay.
	for i := range 7 {
		now = now.Add(time.Minute)
		store(t, s, "p1", "1", i, i)
	}
	if got, want := kept(t, c), []string{"p1 1 node3 boot-3", "p1 1 node4 boot-4", "p1 1 node5 boot-5", "p1 1 node6 boot-6"}; !slices.Equal(got, want) {
		t.Errorf("kept %q, want %q", got, want)
	}
	// A machine that reports boots without end takes the place of its own.
	now = now.Add(time.Minute)
	store(t, s, "p2", "1", 20, 0)
	for i := range 9 {
		now = now.Add(time.Minute)
		store(t, s, "p2", "1", 21, i)
	}
	if got := kept(t, c); count(got, "p2 1 node21 ") != perMachine || count(got, "p2 1 node20 boot-0") != 1 {
		t.Errorf("kept %q", got)
	}
	// Of all, those go first whose image versions are not the last two of their pools.
	for v := 2; v <= 3; v++ {
		for i := range 4 {
			now = now.Add(time.Minute)
			store(t, s, "p1", fmt.Sprint(v), 100*v+i, 0)
		}
	}
	got := kept(t, c)
	if len(got) != 12 || count(got, "p1 1 ") != 0 || count(got, "p1 2 ") != 4 || count(got, "p1 3 ") != 4 || count(got, "p2 1 ") != 4 {
		t.Errorf("kept %q", got)
	}
	if !slices.Equal(forgot, []string{"p1"}) {
		t.Errorf("forgot %q, want the first version of p1", forgot)
	}
	// A new one goes in however full it is.
	now = now.Add(time.Minute)
	store(t, s, "p3", "1", 999, 0)
	if got := kept(t, c); len(got) != 12 || count(got, "p3 ") != 1 || count(got, "p2 1 node20") != 0 {
		t.Errorf("kept %q", got)
	}
}

func TestStoredBootsExpire(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	now := noon
	s := aStore(c, &now)
	for v := range 3 {
		now = now.Add(time.Minute)
		store(t, s, "p1", fmt.Sprint(v), v, 0)
	}
	now = now.Add(48 * time.Hour)
	if err := s.prune(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The last two versions are kept to be compared.
	if got, want := kept(t, c), []string{"p1 1 node1 boot-0", "p1 2 node2 boot-0"}; !slices.Equal(got, want) {
		t.Errorf("kept %q, want %q", got, want)
	}
	now = now.Add(keptLonger * 24 * time.Hour)
	// What another controller finds is what this one left.
	if err := aStore(c, &now).prune(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := kept(t, c); len(got) != 0 {
		t.Errorf("kept %q for ever", got)
	}
}

func TestBootIsStoredOnce(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	now := noon
	first := aStore(c, &now)
	if !store(t, first, "p1", "1", 1, 0) || store(t, first, "p1", "1", 1, 0) {
		t.Error("a boot is new twice, or never")
	}
	second := aStore(c, &now)
	if store(t, second, "p1", "1", 1, 0) {
		t.Error("a boot is new to the next controller")
	}
	// Also where the next one had looked before.
	third := aStore(c, &now)
	if err := third.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	store(t, first, "p1", "1", 2, 0)
	if store(t, third, "p1", "1", 2, 0) {
		t.Error("a boot that another stored meanwhile is new")
	}
}
