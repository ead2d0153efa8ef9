package cli

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/internal/auto"
	"github.com/ortet/ortet/internal/donors"
	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/plan"
)

// fakeAuto gives what it has, and keeps what it was asked.
type fakeAuto struct {
	looks   []auto.Look
	results []auto.Result
	err     error

	config      auto.Config
	show        func(fleet.ResourceID) *progress
	pools       []fleet.ResourceID
	all, dryRun bool
}

func (f *fakeAuto) Pools(context.Context) ([]fleet.ResourceID, error) {
	return []fleet.ResourceID{pool1, pool2}, nil
}

func (f *fakeAuto) Looks(_ context.Context, pools []fleet.ResourceID, all bool) ([]auto.Look, error) {
	f.pools, f.all = pools, all
	return f.looks, f.err
}

func (f *fakeAuto) Run(_ context.Context, pools []fleet.ResourceID, all, dryRun bool) []auto.Result {
	f.pools, f.all, f.dryRun = pools, all, dryRun
	for _, p := range pools {
		f.show(p).Report(event(plan.StepStop, "Power off a node", engine.StepStarted, 0, ""))
	}
	return f.results
}

var pool2 = pool1.In("virtualMachineScaleSets", "k8s-pool2-12345678-vmss")

// runAuto carries out a command line on f, with a cluster that has pool1 and pool2.
func runAuto(t *testing.T, f *fakeAuto, args ...string) (code int, out, err string) {
	t.Helper()
	var stdout, stderr strings.Builder
	code = Run(t.Context(), args, Process{
		In: strings.NewReader(""), Out: &stdout, Err: &stderr, Version: "v0-test",
		Getenv: func(name string) string { return map[string]string{"NODE_NAME": "self"}[name] },
		auto: func(_ context.Context, _ work, config auto.Config, show func(fleet.ResourceID) *progress) (autoMode, kubernetes.Interface, error) {
			f.config, f.show = config, show
			return f, providerNodes("azure://"+string(pool1)+"/virtualMachines/0", "azure://"+string(pool2)+"/virtualMachines/0"), nil
		},
	})
	return code, stdout.String(), stderr.String()
}

func TestPolicyFlags(t *testing.T) {
	for _, command := range []string{"donors", "capture --all"} {
		f := &fakeAuto{}
		code, _, err := runAuto(t, f, append(strings.Fields(command), strings.Fields("--patch-annotation a --reboot-annotation b --min-ready 2d"+
			" --min-candidates 2 --max-image-age 7 --ignore-node n --ignore-node m --ignore-annotation c --skip-rule verdict")...)...)
		p := f.config.Policy
		if code != 0 || p.PatchAnnotation != "a" || p.RebootAnnotation != "b" || p.MinReady != 48*time.Hour || p.MinCandidates != 2 || p.MaxImageAge != 7 ||
			!slices.Equal(p.IgnoreNodes, []string{"n", "m"}) || !slices.Equal(p.IgnoreAnnotations, []string{"c"}) || !slices.Equal(p.Off, []string{"verdict"}) || p.Self != "self" {
			t.Errorf("ortet %s: code %d, %+v\n%s", command, code, p, err)
		}
	}
	for text, want := range map[string]time.Duration{"": time.Hour, "90": 90 * time.Second, "0": 0, "45s": 45 * time.Second, "5m": 5 * time.Minute, "1h30m": 90 * time.Minute, "2d": 48 * time.Hour} {
		f, args := &fakeAuto{}, []string{"donors"}
		if text != "" {
			args = append(args, "--min-ready", text)
		}
		if code, _, err := runAuto(t, f, args...); code != 0 || f.config.Policy.MinReady != want {
			t.Errorf("--min-ready %q: code %d, %s, want %s\n%s", text, code, f.config.Policy.MinReady, want, err)
		}
	}
}

func TestPoolsOfACapture(t *testing.T) {
	for _, c := range []struct {
		args string
		want []fleet.ResourceID
		all  bool
	}{
		{"capture --all", []fleet.ResourceID{pool1, pool2}, true},
		{"capture --pool " + pool2.Name() + " --pool " + strings.ToUpper(pool2.Name()), []fleet.ResourceID{pool2}, false},
		{"capture --dry-run --pool " + pool2.Name() + " --pool " + string(pool1), []fleet.ResourceID{pool2, pool1}, false},
		{"donors", []fleet.ResourceID{pool1, pool2}, true},
		{"donors --all", []fleet.ResourceID{pool1, pool2}, true},
		{"donors " + pool1.Name(), []fleet.ResourceID{pool1}, false},
	} {
		f := &fakeAuto{}
		code, _, err := runAuto(t, f, strings.Fields(c.args)...)
		if code != 0 || !slices.Equal(f.pools, c.want) || f.all != c.all || f.dryRun != strings.Contains(c.args, "--dry-run") {
			t.Errorf("ortet %s: code %d, pools %v, all %v, dry run %v\n%s", c.args, code, f.pools, f.all, f.dryRun, err)
		}
	}
	f := &fakeAuto{}
	if code, _, err := runAuto(t, f, "capture", "--pool", "pool9"); code != engine.ExitFailed || f.pools != nil || !strings.Contains(err, pool1.Name()+", "+pool2.Name()) {
		t.Errorf("an unknown pool: code %d, pools %v: %s", code, f.pools, err)
	}
}

// Plain progress of several pools names them; that of one does not.
func TestProgressOfPools(t *testing.T) {
	_, _, err := runAuto(t, &fakeAuto{}, "capture", "--all")
	for _, pool := range []fleet.ResourceID{pool1, pool2} {
		if !strings.Contains(err, pool.Name()+": 12:00:00 stop: Power off a node\n") {
			t.Errorf("no progress of %s:\n%s", pool.Name(), err)
		}
	}
	if _, _, err = runAuto(t, &fakeAuto{}, "capture", "--pool", pool1.Name()); err != "12:00:00 stop: Power off a node\n" {
		t.Error(err)
	}
}

func someResults() []auto.Result {
	refused := &engine.Refused{Problems: []plan.Problem{{Code: "NodeNotReady", On: "node n", What: "it is not Ready", WayOut: "wait"}}}
	failed := &engine.NeedsPerson{Step: plan.StepStart, Left: []string{"start instance 0"}, Err: errors.New("no capacity")}
	pool := func(name string) fleet.ResourceID { return pool1.In("virtualMachineScaleSets", name) }
	result := engine.CaptureResult{
		Pool: pool1, Donor: donor, Version: plan.DefinitionOf(pool1).Child("versions", "2026.11.21"),
		Irreversible: []string{"protectedSettings of vmssCSE: no certificate decrypts them"}, Timing: engine.Timing{Begin: noon, End: noon.Add(14 * time.Minute)},
	}
	resumed := result
	resumed.Resumed, resumed.Irreversible = true, nil
	return []auto.Result{
		{Pool: pool1, Outcome: auto.Captured, Donor: donor, Capture: &result, Because: "patched 2026-11-20, after version 2026.11.18 (2026-11-18)",
			Passed: []string{"k8s-pool1-12345678-vmss00000a: its Node was deleted since it was chosen"}},
		{Pool: pool2, Outcome: auto.NotDue, Because: "version 2026.11.20 is there, and no maximum image age is set"},
		{Pool: pool("aks-system-12345678-vmss"), Outcome: auto.LeftOut, Because: "AKS manages it (resource group MC_group_cluster_westeurope)"},
		{Pool: pool("pool4"), Outcome: auto.Ended, Donor: "n", Exit: engine.ExitRefused, Error: refused.Error(), Err: refused, Because: "no version yet"},
		{Pool: pool("pool5"), Outcome: auto.Ended, Donor: "n", Exit: engine.ExitNeedsPerson, Error: failed.Error(), Err: failed, Because: "no version yet"},
		{Pool: pool("pool7"), Outcome: auto.Captured, Donor: donor, Capture: &resumed, Because: "its interrupted capture was resumed"},
		{Pool: "/subscriptions/s/resourceGroups/other/providers/Microsoft.Compute/virtualMachineScaleSets/pool7", Outcome: auto.NotDue, Because: "0 of 5 nodes qualify, 1 is needed; disqualified by ready: 5"},
	}
}

func somePools() []auto.Look {
	pool := func(name string) fleet.ResourceID { return pool1.In("virtualMachineScaleSets", name) }
	unknown := []string{"verdict: no ortet controller judges boots"}
	return []auto.Look{
		{
			Choice: donors.Choice{Pool: pool1, Due: true, Because: "patched 2026-11-20, after version 2026.11.18 (2026-11-18)", Donor: "k8s-agentpool1-12345678-vmss00000a",
				Candidates: []donors.Candidate{
					{Node: "k8s-agentpool1-12345678-vmss00000a", Eligible: true, Ready: 12 * 24 * time.Hour, Patched: "2026-11-20", Boot: 95 * time.Second, Unknown: unknown},
					{Node: "k8s-agentpool1-12345678-vmss000001", Eligible: true, Ready: 100 * time.Minute, Unknown: unknown},
					{Node: "k8s-agentpool1-12345678-vmss0000000000zz", Patched: "2026-11-27", Boot: 75 * time.Minute, Unknown: append(unknown, "kernel: not known"), Reasons: []donors.Reason{
						{Rule: "schedulable", Text: "cordoned"}, {Rule: "patch", Text: "last patch 2026-11-27 is in the future"}, {Rule: "ready", Text: "not Ready: KubeletNotReady: container runtime network not ready"}}},
				}},
			Resumes: "k8s-agentpool1-12345678-vmss000001",
			Notes:   []string{"the journal could not be read: 403 Forbidden; grant get on the Secret in ortet-system"},
		},
		{Choice: donors.Choice{Pool: pool2, Because: "0 of 1 node qualify, 1 is needed; disqualified by ready: 1", Candidates: []donors.Candidate{
			{Node: "n", Reasons: []donors.Reason{{Rule: "ready", Text: "not Ready: KubeletNotReady: container runtime network not ready"}}}}}},
		{Choice: donors.Choice{Pool: pool("aks-system-12345678-vmss")}, Left: "AKS manages it (resource group MC_group_cluster_westeurope)"},
		{Choice: donors.Choice{Pool: pool("pool4")}, Refused: []plan.Problem{{Code: "PoolGone", On: string(pool("pool4")), What: "Azure has no such scale set", WayOut: "check its name (az vmss list)"}}},
	}
}

func TestDonorsShown(t *testing.T) {
	code, out, err := runAuto(t, &fakeAuto{looks: somePools()}, "donors")
	if code != 0 || err != "" {
		t.Errorf("code %d: %s", code, err)
	}
	golden(t, "donors", out)
	fits(t, out)
	code, out, _ = runAuto(t, &fakeAuto{looks: somePools()}, "donors", "-o", "json")
	var back []auto.Look
	if err := json.Unmarshal([]byte(out), &back); code != 0 || err != nil || len(back) != 4 || len(back[0].Candidates[2].Reasons) != 3 {
		t.Errorf("-o json: code %d, %v\n%s", code, err, out)
	}
	if _, out, _ = runAuto(t, &fakeAuto{}, "donors"); out != noPools+"\n" {
		t.Errorf("without pools: %s", out)
	}
	if _, out, _ = runAuto(t, &fakeAuto{}, "donors", "-o", "json"); out != "[]\n" {
		t.Errorf("without pools, -o json: %s", out)
	}
}

func TestResultsOfPools(t *testing.T) {
	code, out, err := runAuto(t, &fakeAuto{results: someResults()}, "capture", "--all")
	if code != engine.ExitNeedsPerson {
		t.Errorf("code %d, want the gravest", code)
	}
	golden(t, "capture-pools", out)
	fits(t, out)
	for _, want := range []string{"\npool4:\nortet: refused for 1 reason, nothing was changed\n  - node n: it is not Ready\n", "\npool5:\nortet: step start: no capacity", "- start instance 0"} {
		if !strings.Contains(err, want) {
			t.Errorf("standard error lacks %q:\n%s", want, err)
		}
	}
	code, out, _ = runAuto(t, &fakeAuto{results: someResults()}, "capture", "--all", "-o", "json")
	var back []auto.Result
	if err := json.Unmarshal([]byte(out), &back); code != engine.ExitNeedsPerson || err != nil || len(back) != len(someResults()) || back[3].Exit != engine.ExitRefused {
		t.Errorf("-o json: code %d, %v\n%s", code, err, out)
	}
	if code, out, err := runAuto(t, &fakeAuto{results: someResults()[1:2]}, "capture", "--all"); code != 0 || !strings.HasPrefix(out, pool2.Name()+": not due: version 2026.11.20 is there") || strings.Contains(err, "ortet:") {
		t.Errorf("nothing is due: code %d\n%s%s", code, out, err)
	}
	if code, _, err := runAuto(t, &fakeAuto{err: errors.New("list nodes: forbidden")}, "donors"); code != engine.ExitFailed || !strings.Contains(err, "ortet: list nodes: forbidden") {
		t.Errorf("pools that cannot be read: code %d\n%s", code, err)
	}
}

func TestPlansOfPools(t *testing.T) {
	p := thePlan(input(plan.Options{}))
	_, out, _ := runAuto(t, &fakeAuto{results: []auto.Result{{Pool: pool1, Outcome: auto.Planned, Donor: donor, Plan: &p, Because: "no version yet"}, someResults()[1]}}, "capture", "--all", "--dry-run")
	golden(t, "capture-pools-plan", out)
	fits(t, out)
}

func fits(t *testing.T, out string) {
	t.Helper()
	for l := range strings.Lines(out) {
		if n := len([]rune(strings.TrimSuffix(l, "\n"))); n > resultWidth {
			t.Errorf("%d columns: %s", n, l)
		}
	}
}
