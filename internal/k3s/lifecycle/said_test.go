package lifecycle_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
)

// steps are what a person who watches a command sees: by step, how it stands.
type steps map[string]string

func (s steps) of(m *lifecycle.Manager) *lifecycle.Manager {
	m.Report = func(e workflow.Event) {
		if e.Kind != workflow.EventProgress {
			s[e.Step] = e.Kind
		} else if s[e.Step] == "" {
			s[e.Step] = "progress before its begin"
		}
	}
	return m
}

// Each step that a command shows as begun it shows as done, and of a deployment that fails the
// resource that failed.
func TestOutcomeStepsThatBeginEnd(t *testing.T) {
	play(t, twoRegions, func(x *site) {
		go x.boot()
		text := backedUp(1, "northeurope")
		changed := strings.ReplaceAll(withState(text, 16, "Standard_D4s_v5"), "ea5647", "0b5647")
		for _, c := range []struct {
			name  string
			do    func(m *lifecycle.Manager) error
			wants string // steps
		}{
			{"up", func(m *lifecycle.Manager) error { _, err := m.Up(x.ctx, lifecycle.UpOptions{}); return err }, "preflight storage compute boot"},
			{"up with changes", func(m *lifecycle.Manager) error {
				m.Cluster = x.manager(changed).Cluster
				_, err := m.Up(x.ctx, lifecycle.UpOptions{})
				return err
			}, "preflight rest storage compute server backup boot"},
			{"stop", func(m *lifecycle.Manager) error { return stop(x.ctx, m) }, "stop"},
			{"start", func(m *lifecycle.Manager) error { return start(x.ctx, m) }, "start boot"},
			{"backup", func(m *lifecycle.Manager) error { _, err := m.Backup(x.ctx, "good", ""); return err }, "backup"},
			{"backup to a group", func(m *lifecycle.Manager) error { _, err := m.BackupToGroup(x.ctx); return err }, "backup"},
			{"restore", func(m *lifecycle.Manager) error {
				m.Cluster = x.manager(changed).Cluster
				return restore("good")(x.ctx, m)
			}, "preflight server backup storage compute boot"},
			{"down", func(m *lifecycle.Manager) error {
				_, err := m.Down(x.ctx, []string{lifecycle.RoleCompute, lifecycle.RoleState})
				return err
			}, "compute delete"},
		} {
			s := steps{}
			if err := c.do(s.of(x.manager(text))); err != nil {
				x.Fatalf("%s: %v", c.name, err)
			}
			for step, kind := range s {
				if kind != workflow.EventDone {
					x.Errorf("%s: step %s is shown as %s in the end", c.name, step, kind)
				}
			}
			for want := range strings.FieldsSeq(c.wants) {
				if !slices.ContainsFunc(slices.Collect(maps.Keys(s)), func(step string) bool { return strings.HasPrefix(step, want) }) {
					x.Errorf("%s: step %s is not shown, of %v", c.name, want, s)
				}
			}
		}
	})
	play(t, nil, func(x *site) {
		go x.boot()
		if err := x.s.AddFault(azsim.Fault{Method: http.MethodPut, Path: "virtualMachineScaleSets/agents$", Count: 1, Effect: "error", Status: 409, Code: "SkuNotAvailable"}); err != nil {
			x.Fatal(err)
		}
		s := steps{}
		m, why := s.of(x.manager(file)), ""
		inner := m.Report
		m.Report = func(e workflow.Event) {
			if inner(e); e.Step == "scale set agents" && e.Kind == workflow.EventFailed {
				why = e.Message
			}
		}
		_, err := m.Up(x.ctx, lifecycle.UpOptions{})
		if err == nil || s["scale set agents"] != workflow.EventFailed || !strings.Contains(why, "SkuNotAvailable") || s["compute"] != workflow.EventFailed || s["nic server"] != workflow.EventDone || s["storage"] != workflow.EventDone {
			x.Errorf("%v; failed for %q; %v", err, why, s)
		}
	})
}

// foreseen answers what-if as Azure does.
type foreseen struct {
	azure.Resources
	answer string // of the compute group
}

func (f foreseen) Send(ctx context.Context, what, method string, id fleet.ResourceID, version string, body any, query ...string) (azure.Operation, error) {
	if id.Name() != "whatIf" {
		return f.Resources.Send(ctx, what, method, id, version, body, query...)
	}
	if strings.Contains(string(id), "demo-compute") {
		return answered(f.answer), nil
	}
	return answered(`{"properties": {"changes": []}}`), nil
}

type answered string

func (a answered) Answer() json.RawMessage                       { return json.RawMessage(a) }
func (a answered) Wait(context.Context) (json.RawMessage, error) { return json.RawMessage(a), nil }

// Of what Azure foresees the plan has what changes, without its noise, and its error.
func TestOutcomePlanOfWhatAzureForesees(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		plan := func(changes string) (*lifecycle.Plan, error) {
			m := x.manager(file)
			m.ARM = foreseen{m.ARM, `{"properties": {"changes": [` + changes + `]}}`}
			return m.Plan(x.ctx)
		}
		set := func(kind, delta string) string {
			return `{"resourceId": "` + pool + `", "changeType": "` + kind + `", "before": {"type": "Microsoft.Compute/virtualMachineScaleSets"}, "after": {"type": "Microsoft.Compute/virtualMachineScaleSets"}, "delta": [` + delta + `]}`
		}
		for delta, want := range map[string]string{
			`{"path": "sku.capacity", "propertyChangeType": "Modify", "before": 2, "after": 3}`:                                                          "sku.capacity: 2 -> 3",
			`{"path": "properties.a.properties.b", "propertyChangeType": "Modify", "before": "x", "after": "y"}`:                                         "a.b: x -> y",
			`{"path": "tags.` + recipe.TagApplied + `", "propertyChangeType": "Modify", "before": "x", "after": "y"}`:                                    "",
			`{"path": "tags.team", "propertyChangeType": "Delete", "before": "x"}`:                                                                       "tags.team",
			`{"path": "properties.set", "propertyChangeType": "Delete", "before": "x"}`:                                                                  "",
			`{"path": "id", "propertyChangeType": "Modify", "before": "/X", "after": "/x"}`:                                                              "",
			`{"path": "name", "propertyChangeType": "Create", "after": "[reference('x').y]"}`:                                                            "",
			`{"path": "name", "propertyChangeType": "NoEffect", "after": "y"}`:                                                                           "",
			`{"path": "list", "propertyChangeType": "Array", "children": []}`:                                                                            "",
			`{"path": "list", "propertyChangeType": "Array", "children": [{"path": "1", "propertyChangeType": "Delete", "before": "x"}]}`:                "list",
			`{"path": "list", "propertyChangeType": "Array", "after": "[x]", "children": [{"path": "1", "propertyChangeType": "Create", "after": "x"}]}`: "list",
			`{"path": "deep", "propertyChangeType": "Modify", "children": [{"path": "one", "propertyChangeType": "Modify", "before": 1, "after": 2}]}`:   "deep.one: 1 -> 2",
		} {
			p, err := plan(set("Modify", delta))
			if err != nil {
				x.Fatal(err)
			}
			var got []string
			for _, c := range p.Changes {
				got = append(got, c.What...)
				if c.Group != "demo-compute" || c.Change != "Modify" || c.Name != "agents" || c.Type != "Microsoft.Compute/virtualMachineScaleSets" {
					x.Errorf("%s: %+v", delta, c)
				}
			}
			if strings.Join(got, "; ") != want || p.Counts["Modify"] != len(p.Changes) || (want == "") != (p.Unchanged == 1) {
				x.Errorf("%s: %q, want %q; counts %v, unchanged %d", delta, got, want, p.Counts, p.Unchanged)
			}
		}
		for kind, want := range map[string][2]int{"NoChange": {0, 1}, "NoEffect": {0, 1}, "Ignore": {0, 0}, "Create": {1, 0}, "Delete": {1, 0}} {
			if p, err := plan(set(kind, "")); err != nil || len(p.Changes) != want[0] || p.Unchanged != want[1] || p.Counts[kind] != want[0] {
				x.Errorf("%s: %v %+v", kind, err, p)
			}
		}
		p, err := plan(`{"resourceId": "` + pool + `/providers/x/[guid(a)]", "changeType": "Unsupported", "unsupportedReason": "its id is computed"}, {"resourceId": "` +
			computeGroup + `/providers/Microsoft.Authorization/roleAssignments/6c5e9f1e-6d5b-4f0e-8a9d-0c1b2a3f4e5d", "changeType": "Create"}`)
		if err != nil || len(p.Changes) != 2 || !slices.Equal(p.Changes[0].What, []string{"its id is computed"}) || p.Changes[0].Name != "(computed)" || p.Changes[1].Name != "6c5e9f1e…" {
			x.Errorf("what Azure does not foresee: %v %+v", err, p)
		}
		m := x.manager(file)
		m.ARM = foreseen{m.ARM, `{"error": {"code": "Outer", "message": "see details", "details": [{"code": "QuotaExceeded", "message": "no cores left"}]}}`}
		if _, err := m.Plan(x.ctx); err == nil || !strings.Contains(err.Error(), "cannot plan group demo-compute: QuotaExceeded: no cores left") {
			x.Errorf("what-if that fails: %v", err)
		}
	})
}

// The plan names what up changes at the server, and which reimage brings a field to several pools.
func TestOutcomePlanOfTheServerAndOfTwoPools(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(twoPools)
		for text, want := range map[string][]string{
			withServer(twoPools, "Standard_D4s_v5"):          {"size of the machine or of its state disk"},
			withState(twoPools, 16, "Standard_D2s_v5"):       {"size of the machine or of its state disk"},
			strings.ReplaceAll(twoPools, "ea5647", "0b5647"): {"userData"},
		} {
			p, err := x.manager(text).Plan(x.ctx)
			if err != nil || !slices.ContainsFunc(p.Changes, func(c lifecycle.Change) bool { return c.Name == recipe.ServerName && slices.Equal(c.What, want) }) {
				x.Errorf("want %q: %v %+v", want, err, p)
			}
		}
		x.planned(edited(t, twoPools, map[string]string{"spec.options.timeZone": `"Asia/Tokyo"`}), "agents of pool agents, more: ", "for each of the pools ortet cluster reimage")
		cloudinit := recipe.AppliedSetting(x.tags(pool)[recipe.TagApplied], "cloudinit")
		x.retag(pool, object{recipe.TagApplied: strings.Replace(x.tags(pool)[recipe.TagApplied], cloudinit, "another", 1)})
		x.planned(twoPools, "pool agents: cloud-init document changes, for new agents; which fields is not known, since no record of the last up is left")
		x.up(twoPools)
		m := x.manager(twoPools) // of a later version, whose documents differ
		m.Render = func(c *k3s.Cluster, f recipe.Facts) (*recipe.Documents, error) {
			d, err := recipe.Render(c, f)
			if err == nil {
				d.Applied.CloudInit["more"] = "later"
			}
			return d, err
		}
		if p, err := m.Plan(x.ctx); err != nil || !slices.Contains(p.Notes, "pool more: cloud-init document changes, for new agents: that of this version of ortet") {
			x.Errorf("plan of another version: %v\n%s", err, lines(p))
		}
	})
}

// A server that does not come up with another k3s ends up with the way back.
func TestOutcomeWayBackFromAnotherK3s(t *testing.T) {
	play(t, nil, func(x *site) {
		ctx, hangs := context.WithCancel(x.ctx)
		boots := *x
		boots.ctx = ctx
		go boots.boot()
		x.up(file)
		hangs()
		m := x.manager(strings.ReplaceAll(file, "ea5647", "0b5647"))
		r, err := m.Up(x.ctx, lifecycle.UpOptions{})
		var outcome *workflow.Outcome
		if !errors.As(err, &outcome) || outcome.Exit != workflow.ExitNeedsPerson || r.Backup == "" ||
			!slices.Contains(outcome.Left, "to have the cluster as it was before: write the former artifacts into cluster.yaml, then ortet cluster restore "+r.Backup) {
			x.Errorf("%v; backup %q, %+v", err, r.Backup, outcome)
		}
	})
}

// What an up cannot end well with is refused before it changes anything.
func TestOutcomeUpIsRefusedBefore(t *testing.T) {
	play(t, nil, func(x *site) {
		up := func(text string) error { _, err := x.manager(text).Up(x.ctx, lifecycle.UpOptions{}); return err }
		zeros := strings.ReplaceAll(file, "ea5647ee8642f531e768edfc9fc5c6f34b911696d7488a0ec26ac2a798f41da4", `"`+strings.Repeat("0", 64)+`"`)
		x.isRefused("digests of zeros", up(zeros), "digest is all zeros, so machines cannot fetch k3s", "write the block with ortet cluster artifacts")
		go x.boot()
		x.up(file)
		x.isRefused("a size with a temporary disk", up(withServer(file, "Standard_D2ds_v5")), "spec.server.size is Standard_D2ds_v5, but the server has Standard_D2s_v5", "ortet cluster replace server")
		x.send(http.MethodDelete, serverVM, "2024-07-01", nil)
		x.send(http.MethodDelete, storageGroup+"/providers/Microsoft.ManagedIdentity/userAssignedIdentities/ortet-agent", "2023-01-31", nil)
		x.isRefused("agents whose identity is gone", up(file), "identity ortet-agent was deleted", "run ortet cluster down, then ortet cluster up")
		if _, there := x.thing(serverVM); there {
			x.Error("a server was made")
		}
	})
}

// A restore of a backup in a group of one's own goes by its ARM id, and leaves no tag that the backup
// does not have.
func TestOutcomeRestoreByID(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		vault := strings.Replace(backupGroup, "backups", "vault", 1)
		x.send(http.MethodPut, vault, "2021-04-01", object{"location": "westeurope"})
		id := vault + "/providers/Microsoft.Compute/snapshots/mine"
		x.send(http.MethodPut, id, "2023-10-02", object{"location": "westeurope", "tags": object{recipe.TagCluster: "demo", recipe.TagRole: recipe.RoleBackup}, "sku": object{"name": "Standard_LRS"},
			"properties": object{"incremental": true, "creationData": object{"createOption": "Copy", "sourceResourceId": stateDisk}}})
		time.Sleep(time.Minute)
		r, err := x.manager(file).Restore(x.ctx, id)
		d, _ := x.thing(stateDisk)
		_, k3sTag := d.Tags[recipe.TagK3s]
		_, ranges := d.Tags[recipe.TagRanges]
		if err != nil || !r.Ready || !strings.EqualFold(d.Properties.CreationData.SourceResourceID, id) || k3sTag || ranges {
			x.Errorf("%v; the disk is of %s, with tags %v", err, d.Properties.CreationData.SourceResourceID, d.Tags)
		}
	})
}
