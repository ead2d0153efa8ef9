package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/boots/survey"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/auto"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/k3s/agents"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

// pooled is an engine and a cluster for auto: a capture ends as fails says, and else is
// done in 14 minutes.
type pooled struct {
	mu       sync.Mutex
	nodes    []fleet.Node
	pools    []capture.PoolStatus
	fails    map[string]error // by node
	show     poolShow
	request  capture.Request
	checked  bool
	captured []string
	nameless bool // no resource group is named by the credentials
}

const someVM = "5c5e9f1e-6d5b-4f0e-8a9d-0c1b2a3f4e5d" // all nodes'

const group = "/subscriptions/s/resourceGroups/%s/providers/Microsoft.Compute/virtualMachineScaleSets/%s"

// add adds a pool, and its nodes NAME000000, NAME000001, …, the first Ready longest.
func (p *pooled) add(group1, name string, nodes int, change func(*capture.PoolStatus, []fleet.Node)) {
	id := fleet.ResourceID(fmt.Sprintf(group, group1, name))
	s := capture.PoolStatus{Pool: fleet.Pool{ID: id, Name: name, Model: fleet.Model{Linux: true}}}
	members := make([]fleet.Node, nodes)
	for i := range members {
		boot := noon.Add(-time.Duration(12-3*i) * 24 * time.Hour)
		s.Instances = append(s.Instances, capture.InstanceStatus{InstanceID: fmt.Sprint(i), HostName: fmt.Sprintf("%s%06d", name, i), VMID: someVM, Created: boot})
		members[i] = fleet.Node{
			Name: fmt.Sprintf("%s%06d", name, i), ProviderID: "azure://" + string(id) + "/virtualMachines/" + fmt.Sprint(i), OS: "linux", Ready: true, SystemUUID: someVM,
			ReadySince: boot.Add(2 * time.Minute), Created: boot.Add(time.Duration(80+i) * time.Second), Kernel: "5.15.0-1057-azure", OSImage: "Ubuntu 22.04.4 LTS", Runtime: "containerd://1.7.12",
		}
	}
	if change != nil {
		change(&s, members)
	}
	p.nodes, p.pools = append(p.nodes, members...), append(p.pools, s)
}

// newPooled has pools that end in every way.
func newPooled() *pooled {
	p := &pooled{fails: map[string]error{}}
	set := func(n *fleet.Node, key, value string) { n.Annotations = map[string]string{key: value} }
	p.add("g", "k8s-agentpool1-12345678-vmss", 4, func(_ *capture.PoolStatus, nodes []fleet.Node) {
		for i := range nodes {
			set(&nodes[i], "example.com/patched", "2026-11-20T03:00:00Z")
		}
		nodes[2].Kernel, nodes[2].Unschedulable = "5.15.0-1049-azure", true
		nodes[2].Taints = []fleet.Taint{{Key: "example.com/gpu", Value: "broken", Effect: "NoSchedule"}}
		nodes[3].Ready, nodes[3].NotReadyWhy, nodes[3].Runtime = false, "KubeletNotReady: container runtime network not ready", ""
		set(&nodes[3], "example.com/patched", "2026-11-27T03:00:00Z")
	})
	p.fails["k8s-agentpool1-12345678-vmss000000"] = &workflow.Refused{Problems: []fleet.Problem{{On: "node k8s-agentpool1-12345678-vmss000000", What: "its pod default/db has no controller"}}}
	p.add("g", "k8s-agentpool2-12345678-vmss", 1, func(s *capture.PoolStatus, _ []fleet.Node) {
		s.Versions = []capture.VersionStatus{version("2026.11.20", "", noon.Add(-24*time.Hour), nil)}
	})
	p.add("MC_g", "aks-system-12345678-vmss", 1, nil)
	for name, err := range map[string]error{
		"refused": &workflow.Refused{Problems: []fleet.Problem{{On: fmt.Sprintf(group, "g", "refused"), What: "its upgrade mode is Rolling", WayOut: "use --allow-rolling"}, {On: "Azure", What: "no quota"}}},
		"stuck":   &workflow.Outcome{Exit: workflow.ExitNeedsPerson, Step: "start", Left: []string{"start instance 0"}, Err: errors.New("no capacity")},
	} {
		p.add("g", name, 1, nil)
		p.fails[name+"000000"] = err
	}
	p.add("g", "twin", 1, func(s *capture.PoolStatus, _ []fleet.Node) {
		s.Capture = &capture.RunStatus{Name: captureName, Kind: capture.Kind, Donor: "twin000000", Begun: noon.Add(-time.Hour)}
	})
	p.add("other", "twin", 1, func(s *capture.PoolStatus, _ []fleet.Node) { s.JournalDenied = true })
	return p
}

func (p *pooled) Nodes(context.Context) iter.Seq2[fleet.Node, error] {
	return func(yield func(fleet.Node, error) bool) {
		for _, n := range p.nodes {
			if !yield(n, nil) {
				return
			}
		}
	}
}

func (p *pooled) Status(_ context.Context, pools []fleet.ResourceID) ([]capture.PoolStatus, error) {
	for _, s := range p.pools {
		if s.Pool.ID.Equal(pools[0]) {
			return []capture.PoolStatus{s}, nil
		}
	}
	return []capture.PoolStatus{{Pool: fleet.Pool{ID: pools[0]}, Gone: true, Unread: true, Problem: "404"}}, nil
}

func (p *pooled) poolOf(node string) fleet.ResourceID {
	i := slices.IndexFunc(p.nodes, func(n fleet.Node) bool { return n.Name == node })
	id, _ := fleet.ParseProviderID(p.nodes[i].ProviderID)
	return id.Parent()
}

func (p *pooled) Plan(_ context.Context, q capture.Request) (plan.Plan, error) {
	return plan.Plan{Kind: capture.Kind, Pool: p.poolOf(q.Node), Donor: q.Node, Steps: []plan.Step{{ID: "drain", Title: "Drain " + q.Node}}}, nil
}

func (p *pooled) Capture(_ context.Context, q capture.Request, checks ...func(context.Context) error) (capture.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pool := q.Fresh
	if pool == "" {
		pool = p.poolOf(q.Node)
	}
	p.show(pool).Report(event("stop", "Power off "+q.Node, workflow.EventBegun, 0, ""))
	p.request, p.checked, p.captured = q, len(checks) == 1, append(p.captured, q.Node)
	r := capture.Result{
		Pool: pool, Donor: q.Node, Resumed: pool.Name() == "twin", Version: plan.DefinitionOf(pool).Child("versions", "2026.11.21"), Notes: []string{"the node was cordoned before, and still is"},
		Timing: capture.Timing{Begin: noon, End: noon.Add(14 * time.Minute)},
	}
	if q.PublishOnly {
		r.Published = &capture.Published{Version: r.Version.Name()}
	}
	return r, p.fails[q.Node]
}

// run carries out a command line on p.
func (p *pooled) run(t *testing.T, args string) (code int, out, err string) {
	t.Helper()
	var stdout, stderr strings.Builder
	code = Run(t.Context(), strings.Fields(args), Process{
		In: strings.NewReader(""), Out: &stdout, Err: &stderr, Version: "v0-test",
		Getenv: func(name string) string { return map[string]string{"NODE_NAME": "twin000000"}[name] },
		pools: func(_ context.Context, _ work, show poolShow, config *auto.Config) (survey.Finder, error) {
			p.show = show
			config.Nodes, config.Now = p, func() time.Time { return noon }
			config.Places = func() auto.Places { return &azure.Places{} }
			named := []string{"g", "MC_g", "other"}
			if p.nameless {
				named = nil
			}
			for _, name := range named {
				config.Groups = append(config.Groups, fleet.ResourceID("/subscriptions/s/resourceGroups/"+name))
			}
			config.Service = func(fleet.ResourceID) auto.Service { return p }
			var ids []string
			for _, n := range p.nodes {
				ids = append(ids, n.ProviderID)
			}
			return survey.Finder{Nodes: providerNodes(ids...)}, nil
		},
	})
	for l := range strings.Lines(stdout.String()) {
		if n := len([]rune(strings.TrimSuffix(l, "\n"))); n > resultWidth && !strings.Contains(l, "/subscriptions/") && !strings.Contains(args, "-o json") {
			t.Errorf("ortet %s: %d columns: %s", args, n, l)
		}
	}
	return code, stdout.String(), stderr.String()
}

// A Node that has another team's host name, and claims that machine, leads no capture there.
func TestHoleForeignMachineCaptured(t *testing.T) {
	const named, foreign = "/subscriptions/s/resourceGroups/g", "/subscriptions/s/resourceGroups/victims"
	for args, c := range map[string]struct {
		nameless bool
		code     int
		captured string
		err      string
	}{
		"--all":                                                   {captured: "[web000000]", err: "Left out: pools of " + foreign + ", which Nodes report; name those to work in by --resource-group"},
		"--all --resource-group " + foreign:                       {captured: "[batch000000 web000000]"},
		"--all --resource-group " + named:                         {nameless: true, captured: "[web000000]", err: "Left out: pools of " + foreign},
		"--all --max-parallel 1":                                  {nameless: true, code: 3, captured: "[]", err: "no resource group is named, and Nodes report machines of " + named + ", " + foreign},
		"--all --resource-group " + named + "s":                   {nameless: true, code: 3, captured: "[]", err: "no Node reports a machine of the named resource groups [" + named + "s], and Nodes report machines of " + named + ", " + foreign},
		"--pool batch":                                            {code: 3, captured: "[]", err: "a name is looked for in the named resource groups alone"},
		"--pool web":                                              {captured: "[web000000]"},
		"--pool web --max-parallel 1":                             {nameless: true, code: 3, captured: "[]", err: "name those to work in by --resource-group"},
		"--pool " + fmt.Sprintf(group, "victims", "batch"):        {captured: "[batch000000]"},
		"--pool batch --resource-group " + foreign:                {captured: "[batch000000]"},
		"--pool web --resource-group " + strings.ToUpper(foreign): {code: 3, captured: "[]", err: "2 have that name"},
	} {
		p := &pooled{fails: map[string]error{}, nameless: c.nameless}
		p.add("g", "web", 1, nil)
		p.add("victims", "batch", 1, nil)
		p.add("victims", "web", 1, func(_ *capture.PoolStatus, nodes []fleet.Node) { nodes[0].Ready = false })
		p.nodes = append(p.nodes, fleet.Node{Name: "a"}, fleet.Node{Name: "b"})
		code, _, err := p.run(t, "capture --image example.invalid/ortet:1 --other-pools "+args)
		slices.Sort(p.captured)
		if got := fmt.Sprint(p.captured); code != c.code || got != c.captured || !strings.Contains(err, c.err) {
			t.Errorf("%s: code %d, captured %s; want %d, %s\n%s", args, code, got, c.code, c.captured, err)
		}
	}
}

const pools12 = "k8s-agentpool1-12345678-vmss k8s-agentpool2-12345678-vmss"

func TestDonors(t *testing.T) {
	for name, args := range map[string]string{
		"donors":         "donors --all",
		"donors-patched": "donors --patch-annotation example.com/patched " + pools12,
	} {
		code, out, err := newPooled().run(t, args)
		unread := name == "donors" // the journal of one pool
		if (code != 0) != unread || (err != "") != unread {
			t.Errorf("ortet %s: code %d, %s", args, code, err)
		}
		golden(t, name, out)
	}
	for flag, want := range map[string]string{"--min-candidates=-1": "cannot use minimum candidates -1: ", "--max-image-age=-2": "cannot use maximum image age -2: "} {
		if code, _, err := newPooled().run(t, "donors "+flag); code != 2 || !strings.Contains(err, want) {
			t.Errorf("%s: code %d, %s", flag, code, err)
		}
	}
	_, without, _ := newPooled().run(t, "donors")
	if _, all, _ := newPooled().run(t, "donors --all"); without != all {
		t.Errorf("without arguments not all are shown:\n%s", without)
	}
	code, out, _ := newPooled().run(t, "donors -o json "+pools12)
	var back []struct {
		Due        bool
		Candidates []struct{ Ready string }
	}
	if err := json.Unmarshal([]byte(out), &back); code != 0 || err != nil || len(back) != 2 || len(back[0].Candidates) != 4 || !back[0].Due {
		t.Errorf("-o json: code %d, %v\n%s", code, err, out)
	}
	gone := fmt.Sprintf(group, "g", "gone")
	if code, out, err := newPooled().run(t, "donors "+pools12+" "+gone); code != workflow.ExitRefused || !strings.Contains(out, "k8s-agentpool2") || !strings.Contains(err, "scale set gone: Azure has no such scale set") {
		t.Errorf("a named pool that is gone: code %d\n%s%s", code, out, err)
	}
	for form, want := range map[string]string{"table": noPools, "json": "[]", "yaml": "[]"} {
		for _, command := range []string{"donors", "capture --all"} {
			if code, out, err := (&pooled{}).run(t, command+" -o "+form); code != 0 || out != want+"\n" {
				t.Errorf("%s -o %s without pools: code %d, %s%s", command, form, code, out, err)
			}
		}
	}
}

// A pool whose only node no other node can serve as workbench is not called due without a word,
// and --all accepts the advice.
func TestHole14DonorsOfAPoolOfOneNode(t *testing.T) {
	p := &pooled{}
	p.add("g", "single", 1, nil)
	code, out, _ := p.run(t, "donors --all")
	for _, want := range []string{"due, but its capture would be refused: no version yet", "no other node can work on a copy of its disk: is the donor (1); add a Ready Linux node"} {
		if flat := strings.Join(strings.Fields(out), " "); code != 0 || !strings.Contains(flat, want) || strings.Contains(out, "--workbench") {
			t.Errorf("code %d, want %q\n%s", code, want, out)
		}
	}
	var looks []struct{ Blockers []fleet.Problem } // durations are text
	if _, out, _ := p.run(t, "donors --all -o json"); json.Unmarshal([]byte(out), &looks) != nil || len(looks) != 1 || len(looks[0].Blockers) != 1 || looks[0].Blockers[0].Code != "NoWorkbench" {
		t.Errorf("%s", out)
	}
	p.add("g", "other", 1, nil)
	if _, out, _ := p.run(t, "donors --all"); !strings.Contains(out, "another pool (1)") {
		t.Errorf("with a workbench in another pool:\n%s", out)
	}
	if _, out, _ := p.run(t, "donors --all --other-pools"); strings.Contains(out, "would be refused") {
		t.Errorf("with a workbench in another pool, which is allowed:\n%s", out)
	}
}

// A read that Azure or Kubernetes refuses fails the command, whichever pools were asked for.
func TestHole14RefusedReadFailsDonors(t *testing.T) {
	for _, args := range []string{"donors", "donors --all", "donors --all -o json", "donors good bad"} {
		for what, change := range map[string]func(*capture.PoolStatus, []fleet.Node){
			"Azure": func(s *capture.PoolStatus, _ []fleet.Node) {
				s.Problem, s.Unread = "read scale set: 403 AuthorizationFailed", true
			},
			"instances":  func(s *capture.PoolStatus, _ []fleet.Node) { s.Problem = "list instances: 403 AuthorizationFailed" },
			"Kubernetes": func(s *capture.PoolStatus, _ []fleet.Node) { s.JournalDenied = true },
		} {
			p := &pooled{}
			p.add("g", "good", 2, nil)
			p.add("g", "bad", 2, change)
			if code, out, err := p.run(t, args); code != workflow.ExitFailed || !strings.Contains(err, "cannot judge scale set bad: ") || !strings.Contains(out, "good") {
				t.Errorf("%s, %s: code %d\n%s%s", args, what, code, out, err)
			}
		}
	}
}

// What has no effect is said: in the table, in JSON, and by both commands.
func TestHole14WhatHasNoEffectIsSaid(t *testing.T) {
	p := &pooled{}
	p.add("g", "good", 2, func(_ *capture.PoolStatus, nodes []fleet.Node) {
		nodes[0].Annotations = map[string]string{"ortet.io/ignore": "true", "ortet.io/mine": "", "ortet.io/boot-report": "{}", "example.com/x": ""}
		nodes[1].Annotations = map[string]string{"ortet.io/workbench": "yes"}
	})
	want := []string{
		"annotation ortet.io/ignore of node good000000 has no effect",
		`annotation ortet.io/workbench of node good000001 has the value "yes", which no capture writes`,
		"--ignore-node godo000001 has no effect: the cluster has no node of that name",
	}
	for _, command := range []string{"donors --all", "capture --all"} {
		for _, form := range []string{"table", "json"} {
			code, out, err := p.run(t, command+" --ignore-node godo000001 --ignore-node good000001 --ignore-annotation ortet.io/mine -o "+form)
			flat := strings.ReplaceAll(strings.Join(strings.Fields(out), " "), `\"`, `"`)
			for _, text := range want {
				if code != 0 || strings.Count(flat, text) != 1 {
					t.Errorf("%s -o %s: code %d, want %q once\n%s%s", command, form, code, text, out, err)
				}
			}
			for _, not := range []string{"ortet.io/mine of", "boot-report", "example.com", "--ignore-node good"} {
				if strings.Contains(out, not) {
					t.Errorf("%s says %q", command, not)
				}
			}
		}
	}
	for _, key := range []string{wire.BootAnnotation, wire.ConfigurationAnnotation, wire.ConfigurationWanted, wire.LeavingMark, agents.AnnotationCordon} {
		if !fleet.OwnAnnotation(key) {
			t.Errorf("%s would be called unknown", key)
		}
	}
}

// The flags of the rules do what they say, on both commands.
func TestPolicyFlags(t *testing.T) {
	first, second := "k8s-agentpool1-12345678-vmss000000", "k8s-agentpool1-12345678-vmss000001"
	for flags, want := range map[string]string{
		"":                                     first,
		"--ignore-node " + first:               second,
		"--reboot-annotation example.com/none": first,
		"--min-ready 9d":                       first,
		"--min-ready 12d":                      "",
		"--min-ready 1036680":                  first, // 12 days less 2 minutes, in seconds
		"--min-ready 1036681":                  "",
		"--min-ready 287h58m":                  first,
		"--min-candidates 2":                   first,
		"--min-candidates 3":                   "",
		"--min-candidates 3 --skip-rule taints --skip-rule kernel": "", // it is cordoned, too
		"--ignore-annotation example.com/patched":                  "",
		"--reboot-annotation example.com/patched":                  "",
		"--patch-annotation example.com/unknown":                   "",
		"--patch-annotation example.com/unknown --max-image-age 9": first,
	} {
		code, out, err := newPooled().run(t, "donors -o json k8s-agentpool1-12345678-vmss "+flags)
		var looks []struct{ Donor string }
		if e := json.Unmarshal([]byte(out), &looks); code != 0 || e != nil || len(looks) != 1 || looks[0].Donor != want {
			t.Errorf("ortet donors %s: code %d, want donor %q\n%s%s", flags, code, want, out, err)
		}
		code, out, err = newPooled().run(t, "capture --dry-run -o json --pool k8s-agentpool1-12345678-vmss "+flags)
		var results []struct{ Donor string }
		if e := json.Unmarshal([]byte(out), &results); code != 0 || e != nil || len(results) != 1 || results[0].Donor != want {
			t.Errorf("ortet capture --dry-run %s: code %d, want donor %q\n%s%s", flags, code, want, out, err)
		}
	}
}

func TestCaptureOfPools(t *testing.T) {
	p := newPooled()
	code, out, err := p.run(t, "capture --all --history 5")
	if code != workflow.ExitNeedsPerson || p.request.History != 5 || !p.checked {
		t.Errorf("code %d, want the gravest; the request is %+v", code, p.request)
	}
	golden(t, "capture-pools", out)
	for _, want := range []string{
		"refused:\nortet: refused for 2 reasons", "  - scale set refused: its upgrade mode is Rolling\n    -> use --allow-rolling\n  - Azure: no quota\n",
		"stuck:\nNote: the node was cordoned before, and still is\nortet: step start: no capacity; this needs a person\n", "- start instance 0\n", "other/twin:\nortet: refused for 1 reason",
	} {
		if !strings.Contains(err, want) {
			t.Errorf("standard error lacks %q:\n%s", want, err)
		}
	}
	for _, want := range []string{"stuck: 12:00:00 stop: Power off stuck000000\n", "g/twin: 12:00:00 stop: Power off twin000000\n"} {
		if !strings.Contains(err, want) {
			t.Errorf("progress of several pools lacks %q:\n%s", want, err)
		}
	}

	code, out, _ = newPooled().run(t, "capture --all -o json")
	var back []auto.Result
	if err := json.Unmarshal([]byte(out), &back); code != workflow.ExitNeedsPerson || err != nil || len(back) != 7 {
		t.Errorf("-o json: code %d, %v\n%s", code, err, out)
	}
	var problems, left []string
	for _, r := range back {
		left = append(left, r.Left...)
		for _, p := range r.Problems {
			problems = append(problems, p.What+" -> "+p.WayOut)
		}
	}
	if len(problems) != 3 || problems[0] != "its upgrade mode is Rolling -> use --allow-rolling" || !slices.Equal(left, []string{"start instance 0"}) {
		t.Errorf("-o json: problems %q, left %q", problems, left)
	}
}

func TestCaptureOfNamedPools(t *testing.T) {
	p, one := newPooled(), "k8s-agentpool1-12345678-vmss"
	code, out, err := p.run(t, "capture --pool "+one+" --pool "+strings.ToUpper(one)+" --pool "+fmt.Sprintf(group, "g", one))
	if code != 0 || len(p.captured) != 2 || !strings.Contains(out, one+": captured "+one+"000001 as\n  2026.11.21 in 14m00s: no version yet\n  passed over: "+one+"000000: ") {
		t.Errorf("code %d, captured %v\n%s%s", code, p.captured, out, err)
	}
	if !strings.HasPrefix(err, "12:00:00 stop: Power off") {
		t.Errorf("progress of one pool names it:\n%s", err)
	}
	if code, out, err := newPooled().run(t, "capture --pool k8s-agentpool2-12345678-vmss"); code != 0 || !strings.Contains(out, "not due: version 2026.11.20") || err != "" {
		t.Errorf("one that is not due: code %d\n%s%s", code, out, err)
	}
	if code, _, err := newPooled().run(t, "capture --pool aks-system-12345678-vmss"); code != workflow.ExitRefused || !strings.Contains(err, "AKS manages it") {
		t.Errorf("one of AKS's, by name: code %d\n%s", code, err)
	}
	p = newPooled()
	if code, _, err := p.run(t, "capture --pool refused --pool twin"); code != workflow.ExitRefused || len(p.captured) > 0 || !strings.Contains(err, "2 have that name") {
		t.Errorf("an ambiguous name: code %d, captured %v\n%s", code, p.captured, err)
	}
}

// With --again no version of an earlier capture is used.
func TestAgainOfPools(t *testing.T) {
	const pool = "k8s-agentpool1-12345678-vmss"
	for flags, takes := range map[string]bool{"": true, "--again": false} {
		p := newPooled()
		if code, _, err := p.run(t, "capture --fresh --pool "+pool+" "+flags); code != 0 || p.request.TakeUnjudged != takes {
			t.Errorf("%q: code %d; an unjudged version is used: %t, want %t\n%s", flags, code, p.request.TakeUnjudged, takes, err)
		}
	}
}

// Nights on pools of Cluster API: published without a canary, with the id in one piece.
func TestPoolsAreOnlyPublished(t *testing.T) {
	p := &pooled{}
	p.add("g", "capz", 2, func(s *capture.PoolStatus, _ []fleet.Node) {
		s.Pool.Tags = map[string]string{"sigs.k8s.io_cluster-api-provider-azure_cluster_prod": "owned"}
	})
	code, out, _ := p.run(t, "capture --all")
	if want := "capz: left out: Cluster API's cluster prod owns its model and would change it\n  back\n"; code != 0 || out != want || len(p.captured) > 0 {
		t.Errorf("without the flag: code %d, captured %v\n%s", code, p.captured, out)
	}
	code, out, err := p.run(t, "capture --all --publish-only")
	id := string(plan.DefinitionOf(p.pools[0].Pool.ID).Child("versions", "2026.11.21"))
	if !strings.HasPrefix(out, "capz:\n"+id+"\n") || !strings.HasSuffix(out, "\ncapz: published 2026.11.21 from capz000000 in 14m00s: no version yet\n") {
		t.Errorf("code %d\n%s%s", code, out, err)
	}
	if code != 0 || !p.request.PublishOnly || p.request.Canary != 0 {
		t.Errorf("code %d, the request is %+v\n%s", code, p.request, err)
	}
	if _, _, err := p.run(t, "capture --pool capz"); !strings.Contains(strings.Join(strings.Fields(err), " "), "--publish-only makes an image and leaves the model alone") {
		t.Errorf("the refusal does not name --publish-only:\n%s", err)
	}
}

func TestDryRunOfPools(t *testing.T) {
	p := newPooled()
	code, out, err := p.run(t, "capture --dry-run --all")
	if code != workflow.ExitRefused || len(p.captured) > 0 { // for other/twin
		t.Errorf("code %d, captured %v\n%s", code, p.captured, err)
	}
	golden(t, "capture-pools-plan", out)
}

// The line of a pool says once what it needs: how to resume, without the request that was
// cut short, and a reason that its nodes share, with their names.
func TestLineOfAPool(t *testing.T) {
	const pool = "k8s-agentpool1-12345678-vmss"
	p := newPooled()
	p.fails[pool+"000000"] = &workflow.Outcome{Exit: workflow.ExitInterrupted, Step: "stop", Left: []string{"node " + pool + "000000 is in service"}, Err: fmt.Errorf("get instance: %w", context.Canceled)}
	code, out, _ := p.run(t, "capture --pool "+pool)
	if want := pool + ": interrupted at step stop; node\n  " + pool + "000000 is in service; run the same command to\n  resume\n"; code != workflow.ExitInterrupted || !strings.HasSuffix(out, want) {
		t.Errorf("interrupted: code %d\n%s\nwant %s", code, out, want)
	}
	p = newPooled()
	p.nodes[2].Unschedulable, p.nodes[2].Taints, p.nodes[2].Kernel = false, nil, p.nodes[0].Kernel
	for _, n := range p.nodes[:3] {
		p.fails[n.Name] = &workflow.Refused{Problems: []fleet.Problem{{On: "node " + n.Name, What: "its disk has a secret"}}}
	}
	code, out, _ = p.run(t, "capture --pool "+pool)
	if want := pool + ": refused: node " + pool + "000002:\n  its disk has a secret\n  passed over: " + pool + "000000,\n    " + pool + "000001: its disk has a secret\n"; code != workflow.ExitRefused || !strings.HasSuffix(out, want) {
		t.Errorf("all refused: code %d\n%s\nwant %s", code, out, want)
	}
}
