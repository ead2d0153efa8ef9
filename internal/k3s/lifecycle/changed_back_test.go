package lifecycle_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

// Agents are not behind a model that went from A to B and back to A, though Azure calls none of
// them up to date; where it cannot be told, status says so.
func TestAzsimModelChangedBack(t *testing.T) {
	reads := 0
	play(t, func(s *azsim.Server) {
		s.OnRequest = func(r azsim.Request) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.Path, "/virtualmachinescalesets/agents") {
				reads++
			}
		}
	}, func(x *site) {
		go x.boot()
		x.up(file)
		status := func(when string, behind, most int, notes ...string) {
			x.Helper()
			before := reads
			s, err := x.manager(file).Status(x.ctx)
			if err != nil || len(s.Pools) != 1 {
				x.Fatalf("%s: %v %+v", when, err, s)
			}
			if s.Pools[0].Behind != behind || !slices.Equal(s.Notes, notes) || reads-before > most {
				x.Errorf("%s: %d behind, notes %q, %d reads of the pool; want %d, %q, at most %d", when, s.Pools[0].Behind, s.Notes, reads-before, behind, notes, most)
			}
		}
		if _, err := x.cloud.Instances(x.ctx, pool); err != nil { // the first list reads the pool's orchestration too
			x.Fatal(err)
		}
		status("new", 0, 0)
		for _, size := range []string{"Standard_D4s_v5", "Standard_D2s_v5"} {
			x.send(http.MethodPatch, pool, "2024-07-01", object{"sku": object{"name": size, "tier": "Standard", "capacity": 2}})
		}
		if list, err := x.cloud.Instances(x.ctx, pool); err != nil || len(list) != 2 || list[0].LatestModelApplied {
			x.Fatalf("azsim: %+v, %v", list, err)
		}
		status("changed back", 0, 1)
		if p, err := x.manager(file).Plan(x.ctx); err != nil || len(p.Notes)+len(p.Changes) > 0 {
			x.Errorf("plan: %v %+v", err, p)
		}
		if r, err := x.manager(file).Up(x.ctx, lifecycle.UpOptions{}); err != nil || len(r.Notes) > 0 {
			x.Errorf("up: %v %+v", err, r)
		}
		x.send(http.MethodPatch, pool, "2024-07-01", object{"properties": object{"virtualMachineProfile": object{"storageProfile": object{"osDisk": object{"diskSizeGB": 128}}}}})
		status("larger disk", 2, 1, "pool agents: 2 of 2 agents are behind the pool's model; ortet cluster reimage agents --outdated renews them")
		x.send(http.MethodPatch, pool, "2024-07-01", object{"properties": object{"virtualMachineProfile": object{"storageProfile": object{"osDisk": object{"diskSizeGB": 32}}}}})
		x.send(http.MethodPatch, pool+"/providers/Microsoft.Resources/tags/default", "2021-04-01",
			object{"operation": "Merge", "properties": object{"tags": object{recipe.TagApplied: ""}}})
		status("no record of the document", 0, 1,
			"pool agents: not known whether 2 of 2 agents are behind the pool's model (by which cloud-init document they were made); ortet cluster reimage agents renews all")
	})
}
