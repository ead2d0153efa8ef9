package lifecycle_test

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
)

const (
	networkID  = computeGroup + "/providers/Microsoft.Network/virtualNetworks/ortet"
	serversNSG = computeGroup + "/providers/Microsoft.Network/networkSecurityGroups/servers"
	agentsNSG  = computeGroup + "/providers/Microsoft.Network/networkSecurityGroups/agents"
	diskID     = storageGroup + "/providers/Microsoft.Compute/disks/state"
)

// etags are those of what a deployment changes in a cluster's network.
func (x *site) etags() map[string]string {
	x.Helper()
	all := map[string]string{}
	for _, id := range []string{networkID, serversNSG, agentsNSG} {
		var r struct{ Etag string }
		if err := x.arm.Get(x.ctx, fleet.ResourceID(id), "2024-05-01", &r); err != nil || r.Etag == "" {
			x.Fatalf("ETag of %s is %q, %v", id, r.Etag, err)
		}
		all[id] = r.Etag
	}
	return all
}

// refusal is a problem that a refused command names.
type refusal struct {
	code  string
	wants []string // parts of what and of the way out
}

// refuses has up and plan refuse a file for these problems and no others, and change
// nothing of the network.
func (x *site) refuses(text string, wants ...refusal) {
	x.Helper()
	before := x.etags()
	_, upErr := x.manager(text).Up(x.ctx, lifecycle.UpOptions{})
	_, planErr := x.manager(text).Plan(x.ctx)
	for command, err := range map[string]error{"up": upErr, "plan": planErr} {
		var refused *workflow.Refused
		if workflow.ExitCode(err) != workflow.ExitRefused || !errors.As(err, &refused) {
			x.Errorf("%s is not refused: %v", command, err)
			continue
		}
		var codes, wanted []string
		for _, p := range refused.Problems {
			codes = append(codes, p.Code)
		}
		for _, w := range wants {
			wanted = append(wanted, w.code)
			if !slices.ContainsFunc(refused.Problems, func(p fleet.Problem) bool {
				text := p.What + "; " + p.WayOut
				return p.Code == w.code && !slices.ContainsFunc(w.wants, func(part string) bool { return !strings.Contains(text, part) })
			}) {
				x.Errorf("%s has no problem %q in %v", command, w, err)
			}
		}
		if slices.Sort(codes); !slices.Equal(codes, slices.Sorted(slices.Values(wanted))) {
			x.Errorf("%s has problems %q, not %q: %v", command, codes, wanted, err)
		}
	}
	if after := x.etags(); !maps.Equal(before, after) {
		x.Errorf("ETags %v became %v", before, after)
	}
}

func withNetwork(network string) string {
	return strings.Replace(file, "  pools:", "  network: "+network+"\n  pools:", 1)
}

func withPool(fields string) string { return strings.Replace(file, "count: 2", "count: 2, "+fields, 1) }

// Each agent has an address of its own, and nothing is billed for a gateway.
func TestOutboundByAddresses(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(withNetwork("{outbound: addresses}"))
		if p, err := x.manager(withNetwork("{outbound: addresses}")).Plan(x.ctx); err != nil || len(p.Changes) > 0 {
			x.Errorf("plan of what up has made: %v %+v", err, p)
		}
		has := map[string]int{}
		err := x.arm.List(x.ctx, computeGroup+"/resources", "2021-04-01", func(raw json.RawMessage) error {
			var one struct{ Type string }
			defer func() { has[one.Type]++ }()
			return json.Unmarshal(raw, &one)
		})
		if err != nil || has["Microsoft.Network/natGateways"] != 0 || has["Microsoft.Network/publicIPAddresses"] != 1 {
			x.Errorf("%v: the group has %v", err, has)
		}
		x.refuses(file, refusal{code: "NetworkFixed", wants: []string{"spec.network.outbound is gateway, but the network has addresses", "write outbound: addresses"}})
	})
}

func TestFixedByALiveCluster(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		other := "{addressSpace: 10.20.0.0/16, servers: 10.20.0.0/24, agents: 10.20.16.0/20}"
		x.refuses(withNetwork(other),
			refusal{code: "NetworkFixed", wants: []string{"spec.network.addressSpace is 10.20.0.0/16", "write addressSpace: 10.16.0.0/16",
				"ortet cluster down, then ortet cluster up"}},
			refusal{code: "NetworkFixed", wants: []string{"spec.network.servers is 10.20.0.0/24", "write servers: 10.16.0.0/24"}},
			refusal{code: "NetworkFixed", wants: []string{"spec.network.agents is 10.20.16.0/20", "write agents: 10.16.16.0/20"}})
		x.refuses(withNetwork("{agents: 10.16.16.0/21}"), refusal{code: "NetworkFixed",
			wants: []string{"agents is 10.16.16.0/21, but the network has 10.16.16.0/20"}})

		x.refuses(withNetwork("{outbound: addresses}"), refusal{code: "NetworkFixed",
			wants: []string{"spec.network.outbound is addresses, but the network has gateway", "ortet cluster down, then"}})

		x.refuses(withPool("priority: Regular"), refusal{code: "PoolFixed",
			wants: []string{"priority of pool agents is Spot and cannot become Regular",
				"write priority: Spot, or give the pool another name", "ortet cluster up --prune deletes pool agents"}})
		x.refuses(withPool("evictionPolicy: Deallocate"), refusal{code: "PoolFixed",
			wants: []string{"evictionPolicy of pool agents is Delete and cannot become Deallocate"}})
		x.refuses(withPool(`zones: ["2", "1"]`), refusal{code: "PoolFixed",
			wants: []string{`zones of pool agents is none and cannot become ["1", "2"]`, "write no zones"}})

		x.refuses(strings.Replace(file, "demo1234567", "demo7654321", 1), refusal{code: "AccountFixed",
			wants: []string{"the cluster's data is in demo1234567", "ortet cluster down --all"}})
		x.refuses(strings.Replace(file, "westeurope", "northeurope", 1), refusal{code: "GroupLocation"}, refusal{code: "GroupLocation"})
		// All at once, and the file of before is still right.
		x.refuses(strings.Replace(strings.Replace(withNetwork(other), "count: 2", "count: 2, priority: Regular", 1), "demo1234567",
			"demo7654321", 1),
			refusal{code: "NetworkFixed"}, refusal{code: "NetworkFixed"}, refusal{code: "NetworkFixed"},
			refusal{code: "PoolFixed"}, refusal{code: "AccountFixed"})
		x.up(file)
	})
}

func TestZonesAndPriorityOfAPool(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		regular := withPool(`priority: Regular, zones: ["2", "1"]`)
		x.up(regular)
		x.up(withPool(`priority: Regular, zones: ["1", "2"]`)) // another order
		x.refuses(withPool(`zones: ["1", "2"]`), refusal{code: "PoolFixed", wants: []string{"Regular and cannot become Spot"}})
		x.refuses(withPool(`priority: Regular, zones: ["1"]`), refusal{code: "PoolFixed",
			wants: []string{`zones of pool agents is ["1", "2"]`, `write zones: ["1", "2"]`}})
	})
}

func withVersion(v string) string {
	return strings.Replace(file, "  artifacts:", "  artifacts:\n    version: "+v, 1)
}

// disk makes the state disk of a cluster, with what its datastore has.
func (x *site) disk(location string, tags object) {
	x.Helper()
	x.send(http.MethodPut, diskID, "2023-10-02", object{"location": location, "tags": tags, "sku": object{"name": "StandardSSD_LRS"},
		"properties": object{"diskSizeGB": 8, "creationData": object{"createOption": "Empty"}}})
}

func TestFixedByAStateDisk(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		x.disk("westeurope", object{recipe.TagCluster: "demo", recipe.TagRanges: "10.42.0.0/16,10.43.0.0/16", recipe.TagK3s: "v1.33.4+k3s1"})
		x.refuses(withNetwork("{pods: 10.52.0.0/16, services: 10.53.0.0/16}"),
			refusal{code: "RangesFixed", wants: []string{"spec.network.pods is 10.52.0.0/16, but the cluster has 10.42.0.0/16",
				"write pods: 10.42.0.0/16", "ortet cluster down --state, then"}},
			refusal{code: "RangesFixed", wants: []string{"write services: 10.43.0.0/16"}})
		x.refuses(withVersion("v1.33.3+k3s1"), refusal{code: "DowngradeRefused", wants: []string{"runs v1.33.4+k3s1",
			"ortet cluster down --state"}})
		for _, v := range []string{"v1.33.4+k3s1", "v1.33.4+k3s2", "v1.33.9+k3s1", "v1.34.0+k3s1"} {
			x.up(withVersion(v))
		}
		x.up(file) // no version
		if _, err := x.manager(file).Down(x.ctx, []string{lifecycle.RoleCompute}); err != nil {
			x.Fatal(err)
		}
		// The disk outlives the machines, and so do its ranges.
		_, err := x.manager(withNetwork("{pods: 10.52.0.0/16}")).Plan(x.ctx)
		if workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), "write pods: 10.42.0.0/16") {
			x.Errorf("plan after down: %v", err)
		}
		x.up(withNetwork("{addressSpace: 10.20.0.0/16, servers: 10.20.0.0/24, agents: 10.20.16.0/20}"))
	})
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		if _, err := x.manager(file).Down(x.ctx, []string{lifecycle.RoleCompute, lifecycle.RoleState}); err != nil {
			x.Fatal(err)
		}
		x.disk("northeurope", object{recipe.TagCluster: "demo"})
		for _, want := range []string{"state disk is in northeurope, but spec.location is westeurope; write location: northeurope", "disk state exists and was not made by ortet cluster"} {
			_, err := x.manager(file).Up(x.ctx, lifecycle.UpOptions{})
			if workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), want) {
				x.Errorf("up: %v; want %q", err, want)
			}
			x.disk("northeurope", object{recipe.TagCluster: "other", recipe.TagRanges: "10.1.0.0/16,10.2.0.0/16", recipe.TagK3s: "v9.0.0+k3s1"})
		}
	})
}

func TestVersionsOfTheServer(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(withVersion("v1.20.0+k3s1")) // no tag yet
		tag := func(v string) {
			x.send(http.MethodPatch, serverVM+"/providers/Microsoft.Resources/tags/default", "2021-04-01",
				object{"operation": "Merge", "properties": object{"tags": object{recipe.TagK3s: v}}})
		}
		tag("v1.33.4+k3s2")
		for v, want := range map[string]refusal{
			"v1.33.4+k3s1": {code: "DowngradeRefused", wants: []string{"use the artifacts of v1.33.4+k3s2 or later",
				"then ortet cluster restore NAME", "ortet cluster down --state, then"}},
			"v1.32.9+k3s1": {code: "DowngradeRefused"},
			"v1.35.0+k3s1": {code: "MinorVersionSkipped", wants: []string{"use the artifacts of v1.34 first"}},
			"v2.33.4+k3s1": {code: "MinorVersionSkipped"},
		} {
			x.refuses(withVersion(v), want)
		}
		x.up(withVersion("v1.34.10+k3s10"))
		x.disk("westeurope", object{recipe.TagCluster: "demo", recipe.TagK3s: "v1.36.0+k3s1"}) // the server knows better
		x.up(withVersion("v1.34.10+k3s10"))
		tag("dev")
		x.up(withVersion("v1.20.0+k3s1"))
		tag("v1.35.2+k3s1") // since the last up
		if _, err := x.manager(file).Down(x.ctx, []string{lifecycle.RoleCompute}); err != nil {
			x.Fatal(err)
		}
		if _, err := x.manager(withVersion("v1.35.1+k3s1")).Plan(x.ctx); workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), "runs v1.35.2+k3s1") {
			x.Errorf("plan of an older k3s after down: %v", err)
		}
	})
}
