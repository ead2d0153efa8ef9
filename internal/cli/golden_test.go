package cli

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/rollback"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/workflow"
)

var update = flag.Bool("update", false, "write the golden texts anew")

// goes asks a rule for one extension; vmssCSE is a CustomScript.
func goes(rule plan.ExtensionRule, name string) bool {
	e := fleet.Extension{Name: name, Type: "Monitor"}
	if name == "vmssCSE" {
		e.Type = "CustomScript"
	}
	doomed, _ := rule.ToDelete([]fleet.Extension{e})
	return len(doomed) == 1
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is shown differently; if that is meant, run this test with -update.\nnow:\n%s\nwanted:\n%s", name, got, want)
	}
}

const (
	pool1       = fleet.ResourceID(somePool)
	donor       = "k8s-pool1-12345678-vmss000000"
	captureName = "20261121-120000"
	theVersion  = fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/galleries/SIG_g/images/kamino-k8s-pool1-12345678-vmss-prototype/versions/2026.11.21")
)

// thePlan is that of a pool that never was captured, in short.
func thePlan() plan.Plan {
	return plan.Plan{
		Kind: capture.Kind, Pool: pool1, Donor: donor, Workbench: "k8s-pool1-12345678-vmss000001", Version: theVersion,
		Steps: []plan.Step{
			{ID: "inspect", Title: "Inspect " + donor + "'s disk for blockers", Usual: fleet.Duration(20 * time.Second)},
			{ID: "gallery", Title: "Create the gallery SIG_g", Usual: fleet.Duration(10 * time.Second), Skip: "already exists"},
			{ID: "cordon", After: []string{"inspect"}, Title: "Cordon " + donor},
			{ID: "drain", After: []string{"cordon"}, Title: "Drain " + donor, Usual: fleet.Duration(time.Minute)},
			{ID: "uncordon", After: []string{"drain"}, Title: "Uncordon " + donor},
			{ID: "generalized-snapshot", Title: "Take a snapshot of the generalised copy", Usual: fleet.Duration(6 * time.Second)},
			{ID: "version", Title: "Build image version 2026.11.21", Usual: fleet.Duration(40 * time.Minute)},
			{ID: "model", Title: "Point the model at 2026.11.21", Usual: fleet.Duration(30 * time.Second)},
			{ID: "extensions", Title: "Delete extensions from the model", Skip: "none to delete"},
			{ID: "grow", Title: "Add 0 new nodes", Skip: "not requested"},
		},
	}
}

func version(name, from string, at time.Time, tags map[string]string) capture.VersionStatus {
	v := fleet.ImageVersion{ID: plan.DefinitionOf(pool1).Child("versions", name), Name: name, ProvisioningState: plan.Succeeded, Published: at, Tags: tags}
	return capture.VersionStatus{ImageVersion: v, BuiltFrom: from, BuiltAt: at, RolledBack: plan.RolledBack(v)}
}

func TestShown(t *testing.T) {
	nothing, resumed := thePlan(), thePlan()
	nothing.NothingToDo, resumed.Resumes = true, true
	resumed.Steps[7].Irreversible = []string{"the model's customData cannot be read back: it is kept in Ortet's Secrets where the donor's disk still has it, else it is lost"}
	resumed.Steps[8] = plan.Step{ID: "extensions", Title: "Delete extensions from the model: vmssCSE", Usual: fleet.Duration(30 * time.Second),
		Irreversible: []string{"extension vmssCSE (CustomScript): its protected settings cannot be read back; they are kept where the donor's certificate decrypts them, else they are lost"}}
	resumed.Notes = []string{"an open capture of " + donor + " (step snapshot, begun 2026-11-21T12:00:00Z) is resumed", "node " + donor + " is cordoned, and stays so"}

	newest := version("2026.11.21", donor, noon.Add(-3*time.Hour), nil)
	newest.InModel, newest.Instances = true, 1
	left := version("2026.1120.180000", "k8s-pool1-12345678-vmss00000a", noon.Add(-18*time.Hour), map[string]string{fleet.TagRolledBack: "2026-11-20T19:00:00Z"})
	broken := version("2026.11.19", "", time.Time{}, nil)
	broken.ProvisioningState = plan.Failed
	full := capture.PoolStatus{
		Pool:     fleet.Pool{ID: pool1, Name: pool1.Name(), Location: "westeurope", Size: "Standard_D2s_v5"},
		Versions: []capture.VersionStatus{newest, left, broken},
		Instances: []capture.InstanceStatus{
			{InstanceID: "0", HostName: "K8S-POOL1-12345678-VMSS000000", Power: fleet.PowerRunning, Image: "Debian:debian-12:12-gen2:latest"},
			{InstanceID: "3", HostName: "k8s-pool1-12345678-vmss000003", Power: fleet.PowerRunning, Image: "2026.11.21", LatestModel: true},
			{InstanceID: "4", HostName: "k8s-pool1-12345678-vmss000004", Power: fleet.PowerStopped, Image: "2026.11.21", LatestModel: true},
		},
		Capture: &capture.RunStatus{Name: captureName, Kind: capture.Kind, Donor: donor, Begun: noon.Add(-4 * time.Hour), Ended: &journal.End{At: noon.Add(-3 * time.Hour)}},
	}
	fresh := capture.PoolStatus{
		Pool: fleet.Pool{ID: pool1, Name: pool1.Name(), Location: "westeurope", Size: "Standard_D2s_v5",
			Model: fleet.Model{Image: fleet.ImageReference{Publisher: "Debian", Offer: "debian-12", SKU: "12-gen2", Version: "latest"}}},
	}
	kamino := full
	kamino.Pool.Model.Image = fleet.ImageReference{ID: plan.DefinitionOf(pool1)}
	kamino.Instances = []capture.InstanceStatus{{InstanceID: "0", HostName: donor, Power: fleet.PowerRunning, Image: somePool + "/../galleries/other/images/linux/versions/1.2.3"}}
	raised := fresh
	raised.Fresh = []capture.FreshStatus{
		{Instance: "7", Node: "k8s-pool1-12345678-vmss000007", Capture: captureName, Delete: "ortet capture --abandon " + pool1.Name()},
		{Instance: "8", Capture: captureName},
	}
	underway := fresh
	underway.Problem = "GET versions: 403 AuthorizationFailed"
	underway.Capture = &capture.RunStatus{Name: captureName, Kind: capture.Kind, Donor: donor, Begun: noon, Running: []string{"drain"}, Undo: []string{"cordon", "stop", "protection"}, Why: "interrupt signal received", Holder: "operator/4711/1d2c3b4a"}

	proving := underway
	proving.Problem = ""
	proving.Canary = &capture.CanaryStatus{ID: fleet.CanaryOf(pool1), Instances: 2, Capture: captureName, Expires: noon.Add(24 * time.Hour)}
	leftover, canary := fresh, fresh
	leftover.Canary = &capture.CanaryStatus{ID: fleet.CanaryOf(pool1), Instances: 1, Capture: captureName, Expires: noon.Add(-time.Hour), Obsolete: true}
	canary.Pool.ID, canary.Pool.Name = fleet.CanaryOf(pool1), fleet.CanaryOf(pool1).Name()
	canary.Pool.Tags = map[string]string{fleet.TagCanary: noon.Format(time.RFC3339)}

	flexible := full
	flexible.Versions = slices.Clone(full.Versions)
	flexible.Versions[0].Tags = map[string]string{fleet.TagQuarantine: "conditions: node is tainted", fleet.TagOnline: "2026-11-21 12:00:00", fleet.TagTuned: "runtime-early,ssh-host-key"}
	flexible.Instances = []capture.InstanceStatus{
		{InstanceID: pool1.Name() + "_03db84b0", HostName: pool1.Name() + "29uqgj", Power: fleet.PowerRunning, Image: "Debian:debian-12:12-gen2:latest"},
		{InstanceID: pool1.Name() + "_17a1f4e3", HostName: pool1.Name() + "0tljt0", Power: fleet.PowerRunning, Image: "2026.11.21", LatestModel: true},
	}
	abandoned := plan.Plan{Kind: "abandonment", Pool: pool1, Donor: donor}

	for name, show := range map[string]func(io.Writer){
		"status-flexible": func(w io.Writer) { writeStatus(w, flexible, noon) },
		"plan-abandon": func(w io.Writer) {
			writePlan(w, abandoned)
			abandoned.Steps = []plan.Step{{ID: "delete-snapshot", Title: "Delete the snapshot of the donor's disk", Usual: fleet.Duration(5 * time.Second)}}
			writePlan(w, abandoned)
		},
		"plan-first":   func(w io.Writer) { writePlan(w, thePlan()) },
		"plan-resumed": func(w io.Writer) { writePlan(w, resumed) },
		"plan-nothing": func(w io.Writer) { writePlan(w, nothing) },
		"plan-refused": func(w io.Writer) {
			p := thePlan()
			p.Problems = []fleet.Problem{{Code: "NodeNotReady", On: "node n", What: "it is not Ready"}}
			writePlan(w, p)
		},
		"plan-rollback": func(w io.Writer) {
			steps := []plan.Step{
				{ID: "model", Title: "Point the model at 2026.1120.180000", Usual: fleet.Duration(30 * time.Second)},
				{ID: "tag", Title: "Tag version 2026.11.21 as rolled back", Usual: fleet.Duration(10 * time.Second)},
			}
			writePlan(w, plan.Plan{Kind: rollback.Kind, Pool: pool1, Version: left.ID, Steps: steps,
				Notes: []string{"extensions that were deleted for 2026.11.21 are not brought back"}})
		},
		"status":          func(w io.Writer) { writeStatus(w, full, noon) },
		"status-latest":   func(w io.Writer) { writeStatus(w, kamino, noon) },
		"status-fresh":    func(w io.Writer) { writeStatus(w, fresh, noon) },
		"status-raised":   func(w io.Writer) { writeStatus(w, raised, noon) },
		"status-underway": func(w io.Writer) { writeStatus(w, underway, noon) },
		"status-canary": func(w io.Writer) {
			for _, s := range []capture.PoolStatus{proving, leftover, canary} {
				writeStatus(w, s, noon)
			}
		},
		"capture": func(w io.Writer) {
			writeCapture(w, capture.Result{
				Pool: pool1, Donor: donor, Version: theVersion, BuiltFrom: donor, Pruned: []string{"2026.11.01"},
				Kept:         []string{"2026.11.02: " + string(pool1.Child("virtualMachines", "7")) + " refers to it", "2026.11.03: its deletion is blocked until its end of life"},
				Irreversible: []string{"protectedSettings of Microsoft.Azure.Extensions.CustomScript: no certificate decrypts them"},
				// The scan may find two secrets in one file.
				PoolCredentials: []string{"/etc/kubernetes/azure.json", "/etc/kubernetes/bootstrap-kubelet.conf"},
				AcceptedSecrets: []string{"/opt/app/.env"}, RemovedSecrets: []string{"/home/azureuser/.netrc", "/root/.docker/config.json"},
				Timing: capture.Timing{Begin: noon, End: noon.Add(72 * time.Minute)},
			})
		},
		"capture-nothing": func(w io.Writer) {
			writeCapture(w, capture.Result{Pool: pool1, Donor: donor, Version: theVersion, BuiltFrom: "k8s-pool1-12345678-vmss000001", NothingToDo: true,
				Timing: capture.Timing{Begin: noon, End: noon.Add(time.Second)}})
		},
		"capture-resumed": func(w io.Writer) {
			writeCapture(w, capture.Result{Pool: pool1, Donor: donor, Version: theVersion, BuiltFrom: donor, Resumed: true,
				Notes: []string{"finished what was begun at 2026-11-21T12:00:00Z as " + captureName}})
		},
		"rollback": func(w io.Writer) {
			writeRollback(w, rollback.Result{Pool: pool1, From: newest.ID, To: left.ID, Notes: []string{"the model's customData becomes what goes with 2026.1120.180000"}})
		},
		"rollback-nothing": func(w io.Writer) {
			writeRollback(w, rollback.Result{Pool: pool1, To: left.ID, NothingToDo: true})
		},
		"rollback-original": func(w io.Writer) {
			writeRollback(w, rollback.Result{Pool: pool1, From: newest.ID, Original: &plan.Original{Image: fresh.Pool.Model.Image},
				Restored: []string{"monitor"}, Lost: []string{"vmssCSE: its protected settings were not saved"}})
		},
		"rollback-marketplace": func(w io.Writer) { writeRollback(w, rollback.Result{Pool: pool1, To: left.ID}) },
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			show(&b)
			golden(t, name, b.String())
			for l := range strings.Lines(b.String()) {
				if n := len([]rune(strings.TrimSuffix(l, "\n"))); n > resultWidth && !strings.Contains(l, "/subscriptions/") {
					t.Errorf("%d columns: %s", n, l)
				}
			}
		})
	}
}

// A plan in JSON or YAML is whole, also where it is refused, which is the
// command's answer too.
func TestPlanForPrograms(t *testing.T) {
	p := thePlan()
	p.Steps[2].Deadline = fleet.Duration(90 * time.Second)
	p.Problems = []fleet.Problem{{Code: "NodeNotReady", What: "it is not Ready", On: "node n", WayOut: "wait"}}
	for form, decode := range map[string]func([]byte, any) error{
		"json": json.Unmarshal,
		"yaml": func(data []byte, v any) error { return yaml.Unmarshal(data, v) },
	} {
		var out strings.Builder
		o := &options{output: form, process: Process{Out: &out}}
		err := o.printPlan(p)
		var refused *workflow.Refused
		if !errors.As(err, &refused) || len(refused.Problems) != 1 {
			t.Errorf("%s: a plan with problems ends with %v", form, err)
		}
		var back struct {
			Exit     int
			Error    string
			Version  fleet.ResourceID
			Steps    []struct{ Usual, Deadline string }
			Problems []fleet.Problem
		}
		if err := decode([]byte(out.String()), &back); err != nil {
			t.Errorf("%s: %v\n%s", form, err, out.String())
			continue
		}
		if len(back.Steps) != len(p.Steps) || len(back.Problems) != 1 || back.Problems[0] != p.Problems[0] || back.Version != p.Version ||
			back.Exit != workflow.ExitRefused || back.Error == "" || back.Steps[0].Usual != "20s" || back.Steps[2].Usual != "0s" || back.Steps[2].Deadline != "1m30s" {
			t.Errorf("%s: what comes back is not what went out:\n%s", form, out.String())
		}
	}
}
