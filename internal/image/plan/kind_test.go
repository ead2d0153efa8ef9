package plan

import (
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/fleet"
)

// TestNamesOfKinds: definitions of all kinds of pools with names alike have names, and publisher, offer
// and SKU, of their own, within Azure's limits.
func TestNamesOfKinds(t *testing.T) {
	long := strings.Repeat("p", 62)
	names := map[string]bool{}
	for _, pool := range []string{"a", "a-v2", "a-v2-tl", "a-prototype-v2", long + "-1", long + "-2"} {
		id := fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/" + pool)
		for _, kind := range []string{"", "-v1", "-v2", "-v2-tl", "-v2-tl-nvme", "-v2-arm64-tl-nvme-hibernate"} {
			definition, sku := ofKind(id, kind), skuOf(pool, kind)
			if len(definition.Name()) > 80 || len(sku) > 64 || names[definition.Name()] || names["SKU "+sku] {
				t.Errorf("%s%s has definition %s and SKU %s", pool, kind, definition.Name(), sku)
			}
			names[definition.Name()], names["SKU "+sku] = true, true
			if !IsDefinitionOf(id, fleet.ResourceID(strings.ToUpper(string(definition)))) || IsDefinitionOf(id+"x", definition) {
				t.Errorf("%s is not the definition of %s alone", definition, pool)
			}
			own := fleet.Definition{ID: definition, Publisher: publisher, SKU: sku}
			if theirs := (fleet.Definition{ID: definition, Publisher: publisher, SKU: "theirs"}); kind != "" && len(DefinitionsOf(id, []fleet.Definition{own, theirs})) != 1 {
				t.Errorf("of %s, a stranger's counts as the pool's", definition)
			}
		}
	}
}

// TestCannotBoot: what of a model does not boot versions of a definition is named, each by itself.
func TestCannotBoot(t *testing.T) {
	all := fleet.Definition{Generation: "V2", SecurityType: "TrustedLaunch", Controllers: "SCSI, NVMe", Hibernates: true}
	model := fleet.Pool{Hibernates: true, Model: fleet.Model{SecurityType: "TrustedLaunch", NVMe: true}}
	for want, change := range map[string]func(d *fleet.Definition, size *fleet.SizeInfo){
		"": func(*fleet.Definition, *fleet.SizeInfo) {},
		"hibernation: the definition lacks IsHibernateSupported":    func(d *fleet.Definition, _ *fleet.SizeInfo) { d.Hibernates = false },
		"disk controller NVMe: the definition's is SCSI":            func(d *fleet.Definition, _ *fleet.SizeInfo) { d.Controllers = "" },
		"security type TrustedLaunch: the definition's is Standard": func(d *fleet.Definition, _ *fleet.SizeInfo) { d.SecurityType = "" },
		"size s: the size does not boot generation V2":              func(_ *fleet.Definition, s *fleet.SizeInfo) { s.Generations = []string{"V1"} },
		"size s: the architecture is Arm64, not x64":                func(_ *fleet.Definition, s *fleet.SizeInfo) { s.Architecture = "Arm64" },
	} {
		d, size := all, fleet.SizeInfo{Name: "s", Architecture: "x64", Generations: []string{"V1", "V2"}}
		change(&d, &size)
		what, why := CannotBoot(d, model, []fleet.SizeInfo{size})
		if got := strings.Trim(what+": "+why, ": "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
