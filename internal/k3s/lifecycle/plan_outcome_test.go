package lifecycle_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
)

// lines are plan's fields as a person reads them.
func lines(p *lifecycle.Plan) (text string) {
	for _, f := range p.Fields {
		text += f.Line() + "\n"
		for _, e := range f.Effects {
			text += "  " + e.Line() + "\n"
		}
	}
	return text + strings.Join(p.Notes, "\n")
}

// planned plans a file, and wants these sentences in it.
func (x *site) planned(text string, wants ...string) {
	x.Helper()
	p, err := x.manager(text).Plan(x.ctx)
	if err != nil {
		x.Fatal(err)
	}
	for _, want := range wants {
		if !strings.Contains(lines(p), want) {
			x.Errorf("plan does not say %q:\n%s", want, lines(p))
		}
	}
}

// drained records which pools are lowered, in which world.
type drained struct {
	*site
	refuses, unreachable error
	asked                []string
}

func (d *drained) Reach(context.Context) error { return d.unreachable }

func (d *drained) Lower(ctx context.Context, name string, n int64, report func(string)) error {
	set, _ := d.thing(computeGroup + "/providers/Microsoft.Compute/virtualMachineScaleSets/" + name)
	_, scaled := d.thing(computeGroup + "/providers/Microsoft.Insights/autoscaleSettings/" + name)
	d.asked = append(d.asked, fmt.Sprintf("%s %d of %d, autoscale %t", name, n, set.SKU.Capacity, scaled))
	if d.refuses != nil {
		return d.refuses
	}
	return d.site.Lower(ctx, name, n, report)
}

func (x *site) with(text string, agents lifecycle.Agents) *lifecycle.Manager {
	m := x.manager(text)
	m.Agents = agents
	return m
}

// A lowered count and a removed pool are drained, and never left to Azure; a budget that
// forbids it ends up, whose next run goes on.
func TestOutcomeFewerAgentsAreDrained(t *testing.T) {
	four := strings.Replace(file, "count: 2}", "count: 4}, {name: more, count: 1}", 1)
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(four)
		x.planned(file, "spec.pools[agents].count: 4 -> 2", "scale set of pool agents: by this up; goes away: 2 of 4 agents, each drained first; a PodDisruptionBudget that forbids it stops up",
			"spec.pools[more]: 1 agents -> none", "up --prune, not by up alone; goes away: its agents, each drained first")
		d := &drained{site: x, unreachable: errors.New("connection refused")}
		_, err := x.with(file, d).Up(x.ctx, lifecycle.UpOptions{})
		if workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), "connection refused") || !strings.Contains(err.Error(), "ortet cluster kubeconfig") {
			x.Errorf("without the API server: %v", err)
		}
		d.unreachable, d.refuses = nil, &fleet.Error{Op: "drain", Kind: fleet.KindBlocked, Err: errors.New("PodDisruptionBudget default/web")}
		_, err = x.with(file, d).Up(x.ctx, lifecycle.UpOptions{})
		if workflow.ExitCode(err) != workflow.ExitNeedsPerson || !strings.Contains(err.Error(), "PodDisruptionBudget default/web") {
			x.Errorf("with a budget: exit code %d, %v", workflow.ExitCode(err), err)
		}
		if set, _ := x.thing(pool); set.SKU.Capacity != 4 {
			x.Errorf("a budget forbids it, and the pool has %d agents of 4", set.SKU.Capacity)
		}
		x.planned(file, "spec.pools[agents].count: 4 -> 2") // again: nothing was forgotten
		d.refuses = nil
		if _, err := x.with(file, d).Up(x.ctx, lifecycle.UpOptions{Prune: true}); err != nil {
			x.Error(err)
		}
		set, _ := x.thing(pool)
		if _, there := x.thing(morePool); set.SKU.Capacity != 2 || there || !strings.HasPrefix(set.Tags[recipe.TagApplied], "count=2 ") {
			x.Errorf("pool agents has %d agents and tags %v, pool more is there: %t", set.SKU.Capacity, set.Tags, there)
		}
		want := []string{"agents 2 of 4, autoscale false", "agents 2 of 4, autoscale false", "more 0 of 1, autoscale false"}
		if !slices.Equal(d.asked, want) {
			x.Errorf("drains %q, want %q", d.asked, want)
		}
		if p, err := x.manager(file).Plan(x.ctx); err != nil || len(p.Fields)+len(p.Changes) > 0 {
			x.Errorf("plan in the end: %v %+v", err, p)
		}
	})
}

// What up says of agents in the end counts those that it left.
func TestOutcomeNotesAfterALoweredCount(t *testing.T) {
	three := strings.Replace(file, "count: 2}", "count: 3}, {name: more, count: 1}", 1)
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(three)
		r, err := x.manager(strings.Replace(file, "count: 2", "count: 2, labels: {a: b}", 1)).Up(x.ctx, lifecycle.UpOptions{Prune: true})
		want := []string{"pool agents: 2 of 2 agents are behind the pool's model; ortet cluster reimage agents --outdated renews them"}
		if err != nil || !slices.Equal(r.Notes, want) {
			x.Errorf("%v, notes %q; want %q", err, r.Notes, want)
		}
	})
}

// min and max to count: Azure's autoscale setting goes before agents are drained, or it would
// scale on.
func TestOutcomeCountEndsAutoscale(t *testing.T) {
	scaled := strings.Replace(file, "count: 2", "min: 3, max: 5", 1)
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(scaled)
		x.planned(file, "spec.pools[agents].min: 3 -> none", "spec.pools[agents].max: 5 -> none", "spec.pools[agents].count: none -> 2", "1 of 3 agents, each drained first")
		d := &drained{site: x}
		if _, err := x.with(file, d).Up(x.ctx, lifecycle.UpOptions{}); err != nil {
			x.Error(err)
		}
		if want := []string{"agents 2 of 3, autoscale false"}; !slices.Equal(d.asked, want) {
			x.Errorf("drains %q, want %q", d.asked, want)
		}
		if _, there := x.thing(computeGroup + "/providers/Microsoft.Insights/autoscaleSettings/agents"); there {
			x.Error("the autoscale setting goes on scaling")
		}
	})
}

const otherKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJjKfnN1Uf9gUqbAT2a7Yh3hC3gPvmCqQvX2h0bQ9v3x other"

// Another SSH key reaches the server at once and agents by a reimage, and the former one ends.
func TestOutcomeKeyIsRotated(t *testing.T) {
	m := &machines{data: map[string]string{}}
	play(t, func(s *azsim.Server) { s.Substrate = m }, func(x *site) {
		go x.boot()
		x.up(file)
		other := x.manager(file)
		other.SSHPublicKey = otherKey
		p, err := other.Plan(x.ctx)
		if err != nil || len(p.Fields) != 1 {
			x.Fatalf("plan: %v\n%s", err, lines(p))
		}
		for _, want := range []string{"spec.access.sshKey: SHA256:", "server: by this up; goes away: the former key, and keys in ~/.ssh/authorized_keys",
			"agents of pool agents: new agents by this up, present ones by a reimage: until then the former key opens them, so keep it; after up: ortet cluster reimage agents --outdated"} {
			if !strings.Contains(lines(p), want) {
				x.Errorf("plan does not say %q:\n%s", want, lines(p))
			}
		}
		if _, err := other.Up(x.ctx, lifecycle.UpOptions{}); err != nil {
			x.Fatal(err)
		}
		keys := func() (content string, conf bool) {
			vm, _ := x.thing(serverVM, "$expand", "userData")
			var settings struct {
				Files []struct{ Path, Content string }
			}
			if err := json.Unmarshal(vm.Properties.UserData, &settings); err != nil {
				x.Fatal(err)
			}
			for _, f := range settings.Files {
				if f.Path == recipe.KeyFile {
					content = f.Content
				}
				conf = conf || f.Content == "Match User ortet\n\tAuthorizedKeysFile "+recipe.KeyFile+"\n"
			}
			return content, conf
		}
		if content, conf := keys(); strings.TrimSpace(content) != otherKey || !conf {
			x.Errorf("the server's sshd reads keys %q, %t", content, conf)
		}
		if !strings.Contains(x.reached(m)[lifecycle.ReachAgents], strings.Fields(otherKey)[1]) {
			x.Error("a reimaged agent does not have the new key")
		}
		if p, err := other.Plan(x.ctx); err != nil || len(p.Fields) > 0 {
			x.Errorf("plan in the end: %v\n%s", err, lines(p))
		}
		if s, err := x.manager(file).Status(x.ctx); err != nil || !s.Server.Ready || !s.Server.SameSettings {
			x.Errorf("status: %v %+v", err, s.Server)
		}
		// Made again, the machine has that key from Azure, and no file instead of the user's.
		if _, err := other.ReplaceServer(x.ctx, lifecycle.UpOptions{}); err != nil {
			x.Error(err)
		}
		if content, conf := keys(); content != "" || conf || !strings.Contains(m.data[strings.ToLower(serverVM)], strings.Fields(otherKey)[1]) {
			x.Errorf("the server made again has keys %q, %t", content, conf)
		}
	})
}

// Spot agents that were evicted come back with up, to the number of the file or of scale.
func TestOutcomeEvictedAgentsComeBack(t *testing.T) {
	evict := func(x *site) {
		x.Helper()
		list, err := x.cloud.Instances(x.ctx, pool)
		if err != nil || len(list) == 0 {
			x.Fatal(err)
		}
		x.send(http.MethodPost, pool+"/delete", "2024-07-01", object{"instanceIds": []string{list[0].InstanceID}})
	}
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		evict(x)
		const note = "pool agents has 1 of 2 agents: 1 evicted; ortet cluster up makes them again"
		x.planned(file, note, "spec.pools[agents].count: 1 -> 2", "agents that were evicted come back")
		if s, err := x.manager(file).Status(x.ctx); err != nil || !slices.Contains(s.Notes, note) {
			x.Errorf("status: %v %q", err, s.Notes)
		}
		x.up(file)
		if set, _ := x.thing(pool); set.SKU.Capacity != 2 {
			x.Errorf("after up the pool has %d agents of 2", set.SKU.Capacity)
		}
		// What scale asked for is what comes back.
		x.send(http.MethodPatch, pool+"/providers/Microsoft.Resources/tags/default", "2021-04-01", object{"operation": "Merge", "properties": object{"tags": object{recipe.TagScaled: "1"}}})
		evict(x)
		x.up(file)
		if set, _ := x.thing(pool); set.SKU.Capacity != 1 {
			x.Errorf("scaled to 1, the pool has %d agents after up", set.SKU.Capacity)
		}
	})
}

// What cannot be changed is refused before anything is, and no way out loses data.
func TestOutcomeRefusedUpFront(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		x.refuses(edited(t, file, map[string]string{"spec.access.user": `"other"`}), refusal{code: "UserFixed",
			wants: []string{"spec.access.user is other, but machines were made with ortet", "write user: ortet"}})
		x.refuses(withPool("diskType: Premium_LRS"), refusal{code: "PoolFixed", wants: []string{"diskType of pool agents is StandardSSD_LRS and cannot become Premium_LRS"}})
		x.refuses(edited(t, file, map[string]string{"spec.groups": `{"compute": "new"}`}), refusal{code: "GroupFixed",
			wants: []string{"the cluster's server is in group demo-compute", "write groups.compute: demo-compute"}})
		_, err := x.manager(edited(t, file, map[string]string{"spec.groups": `{"compute": "new"}`})).Plan(x.ctx)
		if strings.Contains(fmt.Sprint(err), "detach") {
			x.Errorf("a way out detaches a live data store: %v", err)
		}
	})
}

// Sources are named with their ranges, and that one locks oneself out.
func TestOutcomeSourcesHaveTheirRanges(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		x.planned(edited(t, file, map[string]string{"spec.access": `{"ssh": ["198.51.100.0/24"], "api": ["own", "198.51.100.0/24"]}`}),
			`spec.access.ssh: ["192.0.2.7/32"] -> ["198.51.100.0/24"]`, `spec.access.api: ["192.0.2.7/32"] -> ["192.0.2.7/32","198.51.100.0/24"]`,
			"spec.access.ssh does not have your own address, 192.0.2.7")
	})
}

// A cluster of an earlier version says once what is not known.
func TestOutcomeNotKnownOnce(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		earlier := x.manager(file)
		earlier.Render = func(c *k3s.Cluster, f recipe.Facts) (*recipe.Documents, error) {
			d, err := recipe.Render(c, f)
			if err != nil {
				return nil, err
			}
			delete(d.Compute.Parameters, "applied")
			text, _ := json.Marshal(d.Compute.Template)
			text = []byte(strings.ReplaceAll(string(text), " cloudinit="+d.Applied.CloudInit["agents"], ""))
			return d, cmp.Or(err, json.Unmarshal(text, &d.Compute.Template))
		}
		if _, err := earlier.Up(x.ctx, lifecycle.UpOptions{}); err != nil {
			x.Fatal(err)
		}
		x.planned(withPool("labels: {a: b}"), "pool agents: not known whether its cloud-init document changes, since an earlier version of ortet made it; up records it")
		x.up(file)
		if p, err := x.manager(file).Plan(x.ctx); err != nil || len(p.Fields)+len(p.Notes) > 0 {
			x.Errorf("after up: %v\n%s", err, lines(p))
		}
		x.planned(withPool("labels: {a: b}"), "spec.pools[agents].labels.a: none -> b")
	})
}

// After a deployment that failed halfway, each pool's fields are compared with what that pool has.
func TestOutcomePlanAfterAFailedDeployment(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(twoPools)
		if err := x.s.AddFault(azsim.Fault{Method: http.MethodPut, Path: "virtualMachineScaleSets/more$", Count: 1, Effect: "error", Status: 409, Code: "SkuNotAvailable"}); err != nil {
			x.Fatal(err)
		}
		labeled := strings.NewReplacer("count: 2", "count: 2, labels: {a: b}", "count: 1", "count: 1, labels: {a: b}").Replace(twoPools)
		if _, err := x.manager(labeled).Up(x.ctx, lifecycle.UpOptions{}); workflow.ExitCode(err) != workflow.ExitNeedsPerson {
			x.Fatal(err)
		}
		p, err := x.manager(labeled).Plan(x.ctx)
		if err != nil || len(p.Fields) != 1 || p.Fields[0].Line() != "spec.pools[more].labels.a: none -> b" {
			x.Errorf("plan: %v\n%s", err, lines(p))
		}
		x.up(labeled)
		if p, err := x.manager(labeled).Plan(x.ctx); err != nil || len(p.Fields) > 0 {
			x.Errorf("plan after the repair: %v\n%s", err, lines(p))
		}
	})
}

// A secret is never in a line, and that it changed is.
func TestOutcomePlanShowsNoSecret(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		with := func(token string) string {
			return edited(t, file, map[string]string{"spec.server.k3s": `{"etcd-s3-secret-key": "` + token + `"}`, "spec.artifacts.k3s": `{"url": "https://m.example/k3s?token=` + token + `", "sha256": "` + strings.Repeat("1", 64) + `"}`})
		}
		x.up(with("hush"))
		p, err := x.manager(with("quiet")).Plan(x.ctx)
		data, _ := json.Marshal(p)
		if err != nil || len(p.Fields) != 2 || strings.Contains(lines(p)+string(data), "hush") || strings.Contains(lines(p)+string(data), "quiet") ||
			!strings.Contains(lines(p), "spec.server.k3s.etcd-s3-secret-key: changed (its value may be a secret)") {
			x.Errorf("plan: %v\n%s", err, data)
		}
		var d struct{ Properties struct{ Parameters object } }
		if err := x.arm.Get(x.ctx, computeGroup+"/providers/Microsoft.Resources/deployments/ortet", "2021-04-01", &d); err != nil {
			x.Fatal(err)
		}
		if record, _ := json.Marshal(d.Properties.Parameters["applied"]); !strings.Contains(string(record), "secret:") || strings.Contains(string(record), "hush") {
			x.Errorf("record: %s", record)
		}
	})
}

// The table of docs/reference/cluster.md is the one that plan goes by.
func TestDocsHaveTheTableOfPlan(t *testing.T) {
	text, err := os.ReadFile("../../../docs/reference/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range lifecycle.Reaches() {
		var effects, then []string
		for _, e := range r.Effects {
			one := e.Reaches
			if e.Loses != "" {
				one += " (goes away: " + e.Loses + ")"
			}
			if effects = append(effects, one); e.Then != "" {
				then = append(then, "`"+e.Then+"`")
			}
		}
		row := fmt.Sprintf("| `%s` | %s | %s |\n", r.Field, strings.Join(effects, ", "), strings.Join(then, ", "))
		if !strings.Contains(string(text), row) {
			t.Errorf("docs/reference/cluster.md lacks the row\n%s", row)
		}
	}
}
