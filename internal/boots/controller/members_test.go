package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/fleet"
)

func anObject(kind, name, provider, infrastructureKind, infrastructureName string) *unstructured.Unstructured {
	spec := map[string]any{}
	if provider != "" {
		spec["providerID"] = provider
	}
	if infrastructureKind != "" {
		spec["infrastructureRef"] = map[string]any{"kind": infrastructureKind, "name": infrastructureName, "apiGroup": azureGroup}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "x/v1beta1", "kind": kind, "metadata": map[string]any{"name": name, "namespace": "n", "labels": map[string]any{"big": "label"}}, "spec": spec,
	}}
}

// An instance's machines are found in whatever order they come, change and go.
func TestMembersAreFound(t *testing.T) {
	boot := aBoot()
	key := fleet.KeyOf(boot.Instance)
	provider := "azure://" + strings.ToUpper(string(boot.Instance)[:20]) + string(boot.Instance)[20:]
	x := newMembers()
	names := func() string {
		var out []string
		for _, m := range x.of(key) {
			out = append(out, m.name)
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	machine, infrastructure := anObject(machineKind, "m", "", azurePoolKind, "apm"), anObject(azurePoolKind, "apm", provider, "", "")
	if got := x.put(memberOf(trimMember(machine))); got != "" || names() != "" {
		t.Errorf("a Machine of nothing: %q %q", got, names())
	}
	if got := x.put(memberOf(trimMember(infrastructure))); got != key || names() != "apm m" {
		t.Errorf("with its infrastructure: %q %q", got, names())
	}
	if got := x.put(memberOf(machine)); got != key || names() != "apm m" {
		t.Errorf("again: %q %q", got, names())
	}
	if got := x.put(memberOf(anObject(machineKind, "m", provider, azurePoolKind, "apm"))); got != key || names() != "apm m" {
		t.Errorf("with a provider id of its own: %q %q", got, names())
	}
	x.put(memberOf(anObject(azurePoolKind, "other", "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v", "", "")))
	x.remove(memberOf(infrastructure).id())
	if names() != "m" {
		t.Errorf("without its infrastructure: %q", names())
	}
	x.remove(memberOf(machine).id())
	if names() != "" || len(x.all) != 1 || len(x.byInstance) != 1 || len(x.machines) != 0 {
		t.Errorf("left: %+v", x)
	}
}

func TestBudgetIsKept(t *testing.T) {
	now := noon
	b := NewBudget(60, func() time.Time { return now })
	sent := 0
	for range 600 { // seconds
		for b.reserve(1) == 0 {
			b.spend()
			b.release(1)
			sent++
		}
		now = now.Add(time.Second)
	}
	if sent > 500 || sent < 470 {
		t.Errorf("%d requests in ten minutes", sent)
	}
	now = now.Add(time.Hour)
	if b.reserve(100) != 0 {
		t.Error("what costs more than may go at once never goes")
	}
	if b.reserve(1) == 0 {
		t.Error("more was promised than there is")
	}
	b.release(100)
	b.block(time.Minute)
	if d := b.reserve(1); d != time.Minute {
		t.Errorf("blocked for %s", d)
	}
}

func FuzzInstanceOf(f *testing.F) {
	f.Add("azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v")
	f.Add("azure://" + string(somePool.Child("virtualMachines", "3")))
	f.Add("azure:///subscriptions/../resourceGroups//providers/x")
	f.Fuzz(func(t *testing.T, s string) {
		id, ok := assess.InstanceOf(s)
		if !ok {
			return
		}
		g := id.Group()
		if !fleet.ValidName(g.Segment("subscriptions")) || !fleet.ValidName(g.Name()) || !strings.EqualFold(s, "azure://"+string(id)) {
			t.Errorf("%q gives %q of %q", s, id, g)
		}
	})
}
