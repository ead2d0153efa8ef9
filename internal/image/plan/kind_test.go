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
