package rollback_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/rollback"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/journal/journaltest"
	"github.com/ortet/ortet/internal/workflow"
)

const pool fleet.ResourceID = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/pool1"

const (
	vmA = "5c5e9f1e-6d5b-4f0e-8a9d-0c1b2a3f4e5a"
	vmB = "5c5e9f1e-6d5b-4f0e-8a9d-0c1b2a3f4e5b"
)

// fake is what Plan reads: a pool that uses the second of two versions.
type fake struct {
	poolErr, nodeErr, keptErr, versionsErr error
	denied                                 []string
	notAllowed                             []cluster.Access
	customData                             string            // that the first version needs
	last                                   string            // customData that Ortet gave the model
	oldest                                 bool              // a third version, which needs no customData
	kept                                   map[string]string // customData by its hash; may be nil
	locked                                 bool
	owner                                  func(*fleet.Pool) // what the pool's owner changed; may be nil
	begun                                  int
	machine                                *fleet.Instance  // the donor's; nil: not found
	vm                                     fleet.ResourceID // the donor, if it is a virtual machine
}

type clusterOf struct {
	cluster.Cluster
	f *fake
}

func version(name string, at int) fleet.ImageVersion {
	id := plan.DefinitionOf(pool).Child("versions", name)
	return fleet.ImageVersion{ID: id, Name: name, ProvisioningState: plan.Succeeded, Published: time.Unix(int64(at), 0),
		Tags: map[string]string{fleet.TagBuiltFrom: "n"}}
}

type cloudOf struct {
	azure.Cloud
	f *fake
}

func (c cloudOf) Pool(_ context.Context, id fleet.ResourceID) (fleet.Pool, error) {
	p := fleet.Pool{ID: id, Name: "pool1", Model: fleet.Model{Image: fleet.ImageReference{ID: version("2026.01.02", 2).ID}}}
	if c.f.owner != nil {
		c.f.owner(&p)
	}
	return p, c.f.poolErr
}

func (cloudOf) Instances(context.Context, fleet.ResourceID) (none []fleet.Instance, _ error) { return }

func (cloudOf) Machines(context.Context, fleet.ResourceID) (none map[fleet.ResourceID]fleet.ResourceID, _ error) {
	return
}

func (c cloudOf) Begin(context.Context, fleet.Change) (fleet.Token, error) {
	c.f.begun++
	return "token", nil
}

func (c cloudOf) Versions(context.Context, fleet.ResourceID) ([]fleet.ImageVersion, error) {
	older := version("2026.01.01", 1)
	if c.f.customData != "" {
		older.Tags[fleet.TagCustomData] = c.f.customData
	}
	all := []fleet.ImageVersion{older, version("2026.01.02", 2)}
	if c.f.oldest {
		all = slices.Insert(all, 0, version("2025.12.31", 0))
	}
	return all, c.f.versionsErr
}

// The rest of what a capture's plan reads is there and empty, but for the instance.

func (c cloudOf) Instance(context.Context, fleet.ResourceID) (i fleet.Instance, _ error) {
	switch {
	case c.f.machine != nil:
		i = *c.f.machine
	case c.f.vm != "":
		return i, &fleet.Error{Kind: fleet.KindNotFound}
	default:
		i.Pool = pool
	}
	i.ID, i.HostName, i.VMID = cmp.Or(c.f.vm, pool.Child("virtualMachines", "0")), "N", cmp.Or(i.VMID, vmA)
	return i, nil
}
func (cloudOf) Size(context.Context, string, string, string) (x fleet.SizeInfo, _ error) { return }
func (cloudOf) Sizes(context.Context, string, string, ...string) (x map[string]fleet.SizeInfo, _ error) {
	return
}
func (cloudOf) Gallery(context.Context, fleet.ResourceID) (x fleet.Gallery, _ error)       { return }
func (cloudOf) Definition(context.Context, fleet.ResourceID) (x fleet.Definition, _ error) { return }
func (cloudOf) Snapshot(context.Context, fleet.ResourceID) (x fleet.Snapshot, _ error)     { return }
func (cloudOf) Disk(context.Context, fleet.ResourceID) (x fleet.Disk, _ error)             { return }
func (cloudOf) Uses(context.Context, ...fleet.ResourceID) (x []fleet.ImageUse, _ error)    { return }
func (cloudOf) Definitions(context.Context, fleet.ResourceID) (x []fleet.Definition, _ error) {
	return
}

func (c cloudOf) Denied(context.Context, fleet.ResourceID, []string) ([]string, error) {
	return c.f.denied, nil
}

func (cloudOf) Now() time.Time   { return time.Now() }
func (clusterOf) Now() time.Time { return time.Now() }

func (c clusterOf) Denied(context.Context, []cluster.Access) ([]cluster.Access, error) {
	return c.f.notAllowed, nil
}

func (c clusterOf) Node(context.Context, string) (fleet.Node, error) {
	id := cmp.Or(c.f.vm, pool.Child("virtualMachines", "0"))
	return fleet.Node{Name: "n", ProviderID: "azure://" + string(id), SystemUUID: vmA}, c.f.nodeErr
}

func (clusterOf) Machine(context.Context, fleet.Node) (_ map[string]string, _ bool, _ error) { return }

func (c clusterOf) GetSecret(_ context.Context, _ fleet.ResourceID, _, sum string) (x cluster.SecretItem, _ error) {
	if text, ok := c.f.kept[sum]; ok {
		x = cluster.SecretItem{SHA256: sum, Data: fleet.NewSecret(text), Donor: "donor-" + sum}
	}
	return x, c.f.keptErr
}

func (c clusterOf) Holding(context.Context, string) (cluster.Holding, bool, error) {
	return cluster.Holding{Holder: "b/1", Until: time.Now().Add(time.Minute)}, c.f.locked, nil
}

func (clusterOf) EvictionBlockers(context.Context, string, []string) (x []fleet.BlockedPod, _ error) {
	return
}

func (clusterOf) Hold(context.Context, string, string, time.Duration) (h cluster.Holding, _ error) {
	return
}

func (clusterOf) Release(context.Context, string, string) error { return nil }

// Nodes has two that claim the same instance, each in other letter case.
func (c clusterOf) Nodes(ctx context.Context) iter.Seq2[fleet.Node, error] {
	return func(yield func(fleet.Node, error) bool) {
		n, _ := c.Node(ctx, "n")
		_ = yield(n, nil) && yield(fleet.Node{Name: "twin", ProviderID: "azure://" + strings.ToLower(n.ProviderID[len("azure://"):])}, nil)
	}
}

func (f *fake) config() capture.Config {
	var store journaltest.Memory
	if f.last != "" {
		state, _ := json.Marshal(map[string]any{"lastCustomData": f.last})
		_, _ = store.Save(context.Background(), journal.Record{Kind: capture.Kind, Name: "20260102-090000", Pool: string(pool), State: state, Ended: &journal.End{}})
	}
	return capture.Config{
		Cloud: cloudOf{f: f}, Cluster: clusterOf{f: f}, Journal: &store, Now: time.Now, LockFor: time.Minute,
		Accesses: accesses, Log: slog.New(slog.DiscardHandler),
	}
}

func accesses(fleet.ResourceID) []cluster.Access {
	return []cluster.Access{{Verb: "get", Resource: "nodes"}}
}

// TestPlan gives a version to return to, or all reasons why it cannot.
func TestPlan(t *testing.T) {
	missing, denied := &fleet.Error{Kind: fleet.KindNotFound}, &fleet.Error{Kind: fleet.KindDenied}
	byPool := rollback.Request{Pool: pool}
	for name, c := range map[string]struct {
		f    fake
		q    rollback.Request
		want []string
	}{
		"by pool":                   {q: byPool},
		"by node":                   {q: rollback.Request{Node: "n"}},
		"customData of the owner":   {f: fake{customData: "abc"}, q: byPool},
		"customData of a donor":     {f: fake{customData: "abc", last: "def"}, q: byPool, want: []string{"LearnedFromDonor"}},
		"customData that is named":  {f: fake{customData: "abc", last: "def"}, q: rollback.Request{Pool: pool, RestoreLearned: []string{"CustomData"}}},
		"customData that was shown": {f: fake{customData: "abc", last: "def"}, q: rollback.Request{Pool: pool, RestoreLearned: []string{"customData@ab"}}},
		"other than what was shown": {f: fake{customData: "abc", last: "def"}, q: rollback.Request{Pool: pool, RestoreLearned: []string{"customData@def"}}, want: []string{"LearnedFromDonor"}},
		"customData left out":       {f: fake{customData: "abc", last: "def"}, q: rollback.Request{Pool: pool, WithoutLearned: true}},
		"unattended":                {f: fake{customData: "abc", last: "def"}, q: rollback.Request{Pool: pool, Unattended: true}, want: []string{"LearnedFromDonor"}},
		"no such node":              {f: fake{nodeErr: missing}, q: rollback.Request{Node: "n"}, want: []string{"NoPool"}},
		"no such pool":              {f: fake{poolErr: missing}, q: byPool, want: []string{"PoolNotFound"}},
		"pool that is not readable": {f: fake{poolErr: denied}, q: byPool, want: []string{"Unreadable"}},
		"versions not readable":     {f: fake{versionsErr: denied}, q: byPool, want: []string{"Unreadable"}},
		"permissions": {f: fake{denied: []string{"a/write"}, notAllowed: []cluster.Access{{Verb: "get", Resource: "secrets"}}},
			q: byPool, want: []string{"AzureDenied", "ClusterDenied"}},
		"permissions and no pool": {f: fake{poolErr: missing, denied: []string{"a/write"}}, q: byPool,
			want: []string{"PoolNotFound", "AzureDenied"}},
		"customData that is lost": {f: fake{customData: "abc", last: "def", keptErr: missing}, q: byPool, want: []string{"CustomDataLost"}},
		"customData not readable": {f: fake{customData: "abc", last: "def", keptErr: denied}, q: byPool, want: []string{"Unreadable"}},
		"no such version":         {q: rollback.Request{Pool: pool, To: "2025.01.01"}, want: []string{"NoVersion"}},
		"another process at work": {f: fake{locked: true}, q: byPool, want: []string{"Held"}},
		"the model's version":     {q: rollback.Request{Pool: pool, To: "2026.01.02"}},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := rollback.New(c.f.config()).Plan(t.Context(), c.q)
			var codes []string
			for _, x := range p.Problems {
				codes = append(codes, x.Code)
			}
			if err != nil || !slices.Equal(codes, c.want) {
				t.Fatalf("problems %v, want %v; %v", p.Problems, c.want, err)
			}
			to, nothing := cmp.Or(c.q.To, "2026.01.01"), c.q.To != ""
			if len(c.want) == 0 && (p.Version.Name() != to || p.NothingToDo != nothing || len(p.Steps) == 0 || (p.Steps[0].Skip != "") != nothing) {
				t.Errorf("%+v", p)
			}
		})
	}
}

// TestWithoutLearnedKeepsCustomData: what is left out is not announced.
func TestWithoutLearnedKeepsCustomData(t *testing.T) {
	f := fake{customData: "abc", last: "def"}
	for _, named := range []bool{true, false} {
		q := rollback.Request{Pool: pool, WithoutLearned: true}
		if named {
			q.RestoreLearned = []string{"customData"}
		}
		p, err := rollback.New(f.config()).Plan(t.Context(), q)
		notes := strings.Join(p.Notes, "\n")
		if err != nil || strings.Contains(notes, "becomes what goes with 2026.01.01") != named || strings.Contains(notes, "is left out") == named {
			t.Errorf("named %t: %q, %v", named, notes, err)
		}
	}
}

// TestShownLinesOfDonors: a refusal shows where two donors differ, without secrets and without
// control characters, and a disk does not decide how much.
func TestShownLinesOfDonors(t *testing.T) {
	const secret = "hunter2Hunter2"
	deep := strings.Repeat(`{"a":[`, 2000) + `"curl http://203.0.113.9"` + strings.Repeat("]}", 2000)
	for name, c := range map[string]struct{ abc, def, want string }{
		"script":             {"#!/bin/sh\necho \x1b]0;x\x07\nPASSWORD=" + secret, "#!/bin/sh\necho", `"PASSWORD=`},
		"JSON":               {`{"script":"curl http://203.0.113.9","password":"` + secret + `"}`, `{"script":"true"}`, `"\"script\": \"curl http://203.0.113.9\"`},
		"nested JSON":        {deep, `{"a":[` + "\n]}", `"\"a\": [" "\"a\": [" and`},
		"one line":           {strings.Repeat("x ", 30_000), "x", `"x x`},
		"line of no matter":  {"a\nb\nc\nd\ne\ncurl http://203.0.113.9", "", "and 1 line more"},
		"bytes, not of text": {"\x1f\x8b\xff" + secret, "x", "donor-def"},
		"other of no text":   {"x", "\x1f\x8b\xff" + secret, "donor-def"},
	} {
		t.Run(name, func(t *testing.T) {
			f := fake{customData: "abc", last: "def", kept: map[string]string{"abc": c.abc, "def": c.def}}
			p, err := rollback.New(f.config()).Plan(t.Context(), rollback.Request{Pool: pool})
			if err != nil || len(p.Problems) != 1 {
				t.Fatalf("%v, %v", p.Problems, err)
			}
			text := p.Problems[0].What
			if !strings.Contains(text, c.want) || strings.Contains(text, secret) || len(text) > 8<<10 || strings.ContainsAny(text, "\x1b\x07\n") ||
				!strings.Contains(text, "from node donor-abc at") {
				t.Errorf("%d bytes: %.600s", len(text), text)
			}
		})
	}
}

// TestConsents: a person's consent is for one rollback, also when it is resumed, or for the watch
// of one capture. Only a watch passes over versions.
func TestConsents(t *testing.T) {
	const abc = "2026.01.01"
	state := map[string]any{"pool": pool, "to": version(abc, 1).ID, "from": version("2026.01.02", 2).ID, "customData": "abc", "lastCustomData": "def"}
	ended := &journal.End{}
	for name, c := range map[string]struct {
		kind       string
		ended      *journal.End
		was        rollback.Request // of the record
		unattended bool
		to         string // "": refused
	}{
		"person's rollback that is resumed":        {rollback.Kind, nil, rollback.Request{RestoreLearned: []string{"customData"}}, false, abc},
		"the same by a watch":                      {rollback.Kind, nil, rollback.Request{RestoreLearned: []string{"customData"}}, true, abc},
		"one that named nothing":                   {rollback.Kind, nil, rollback.Request{}, false, ""},
		"person after a rollback that ended":       {rollback.Kind, ended, rollback.Request{RestoreLearned: []string{"customData"}}, false, ""},
		"watch after a person's rollback":          {rollback.Kind, ended, rollback.Request{RestoreLearned: []string{"customData"}}, true, "2025.12.31"},
		"watch of the capture that named it":       {capture.Kind, ended, rollback.Request{RestoreLearned: []string{"customData"}}, true, abc},
		"watch after a watch's rollback":           {rollback.Kind, ended, rollback.Request{RestoreLearned: []string{"customData"}, Unattended: true}, true, abc},
		"watch of a capture that named another":    {capture.Kind, ended, rollback.Request{RestoreLearned: []string{"cse"}}, true, "2025.12.31"},
		"person after the capture that named it":   {capture.Kind, ended, rollback.Request{RestoreLearned: []string{"customData"}}, false, ""},
		"rollback that left out, and is resumed":   {rollback.Kind, nil, rollback.Request{WithoutLearned: true}, false, abc},
		"person after a rollback that left it out": {rollback.Kind, ended, rollback.Request{WithoutLearned: true}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := fake{customData: "abc", last: "def", oldest: true}
			config := f.config()
			rec, err := config.Journal.Load(t.Context(), string(pool))
			must(t, err)
			rec.Kind, rec.Ended = c.kind, c.ended
			rec.Request, _ = json.Marshal(c.was)
			rec.State, _ = json.Marshal(state)
			_, err = config.Journal.Save(t.Context(), rec)
			must(t, err)
			p, err := rollback.New(config).Plan(t.Context(), rollback.Request{Pool: pool, Unattended: c.unattended})
			must(t, err)
			refused := len(p.Problems) == 1 && p.Problems[0].Code == "LearnedFromDonor"
			if refused != (c.to == "") || !refused && (p.Version.Name() != c.to || len(p.Problems) > 0) {
				t.Errorf("%s: %v", p.Version, p.Problems)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestLeftOutExtensions: with an extension that only a donor's disk showed goes what runs after it,
// and both are named.
func TestLeftOutExtensions(t *testing.T) {
	original := plan.Original{Image: fleet.ImageReference{ID: "/subscriptions/s/original"}}
	for _, e := range []fleet.Extension{{Name: "cse"}, {Name: "agent", After: []string{"CSE"}}, {Name: "monitor"}} {
		x := plan.OriginalExtension{Extension: e, PublicSHA256: plan.NoSettings, ProtectedSHA256: plan.NoSettings, Deleted: true}
		if e.Name == "cse" {
			x.ProtectedSHA256 = "abc"
		}
		original.Extensions = append(original.Extensions, x)
	}
	f := fake{last: "def", kept: map[string]string{"abc": "{}"}}
	config := f.config()
	rec, err := config.Journal.Load(t.Context(), string(pool))
	must(t, err)
	rec.State, _ = json.Marshal(map[string]any{"original": original})
	_, err = config.Journal.Save(t.Context(), rec)
	must(t, err)
	for _, without := range []bool{true, false} {
		p, err := rollback.New(config).Plan(t.Context(), rollback.Request{Pool: pool, To: plan.ToOriginal, WithoutLearned: without})
		must(t, err)
		steps, notes := fmt.Sprint(p.Steps), strings.Join(p.Notes, "\n")
		switch {
		case !without && (len(p.Problems) != 1 || !strings.HasSuffix(p.Problems[0].WayOut, "ortet rollback pool1 --to original --restore-learned cse@44136fa355b3; or give --without-learned in place of these")):
			t.Errorf("%v", p.Problems)
		case without && (len(p.Problems) > 0 || !strings.Contains(steps, "Restore extensions of the model: monitor ")),
			without && (!strings.Contains(notes, "extension cse: left out") || !strings.Contains(notes, "extension agent: left out") || strings.Contains(notes, "monitor")):
			t.Errorf("%v\n%s\n%s", p.Problems, steps, notes)
		}
	}
}

// TestCommandOfRefusal: the command of a refusal is not refused: it names what the request names, too.
func TestCommandOfRefusal(t *testing.T) {
	original := plan.Original{Image: fleet.ImageReference{ID: "/subscriptions/s/original"}, CustomData: "abc",
		Extensions: []plan.OriginalExtension{{Extension: fleet.Extension{Name: "cse"}, PublicSHA256: plan.NoSettings, ProtectedSHA256: "abc", Deleted: true}}}
	f := fake{last: "def", kept: map[string]string{"abc": "{}"}}
	config := f.config()
	rec, err := config.Journal.Load(t.Context(), string(pool))
	must(t, err)
	rec.State, _ = json.Marshal(map[string]any{"original": original, "lastCustomData": "def"})
	_, err = config.Journal.Save(t.Context(), rec)
	must(t, err)
	request := rollback.Request{Pool: pool, To: plan.ToOriginal, RestoreLearned: []string{"cse"}}
	p, err := rollback.New(config).Plan(t.Context(), request)
	must(t, err)
	if len(p.Problems) != 1 || !strings.Contains(p.Problems[0].What, "customData was read from a donor's disk: 2 bytes") {
		t.Fatal(p.Problems)
	}
	_, command, _ := strings.Cut(p.Problems[0].WayOut, "--to original ")
	command, _, _ = strings.Cut(command, ";")
	request.RestoreLearned = strings.Split(strings.TrimPrefix(command, "--restore-learned "), " --restore-learned ")
	if p, err = rollback.New(config).Plan(t.Context(), request); err != nil || len(p.Problems) > 0 || len(request.RestoreLearned) != 2 {
		t.Errorf("%q: %v, %v", command, p.Problems, err)
	}
}

// alone is a workflow with one of its rows.
type alone struct {
	workflow.Workflow
	row workflow.Step
}

func (a *alone) Restore(journal.Record) (workflow.Table, string, error) {
	return workflow.Table{a.row}, "", nil
}

func (a *alone) Plan(context.Context, journal.Record) (workflow.Plan, error) {
	return workflow.Plan{Name: "20260103-090000", Request: struct{}{}, Table: workflow.Table{a.row}}, nil
}

// onePass runs a step or an undo of what w restores from the record, and ends it with its first pass.
func onePass(t *testing.T, config capture.Config, w workflow.Workflow, rec journal.Record, act string) (failure error) {
	t.Helper()
	table, _, err := w.Restore(rec)
	if err != nil {
		t.Fatal(err)
	}
	row := table[slices.IndexFunc(table, func(s workflow.Step) bool { return s.ID == act || s.Undo != nil && s.Undo.ID == act })]
	passes := 0
	first := func(do workflow.Act) workflow.Act {
		return func(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
			passes++
			_, failure = do(ctx, p)
			return workflow.Wait{}, nil
		}
	}
	if row.After = nil; row.ID == act {
		row.Do, row.Undo = first(row.Do), nil
	} else { // the record is open, so it is undone before anything else
		row.Undo, row.Skip = &workflow.Undo{ID: act, Do: first(row.Undo.Do)}, "undone"
		if _, err := config.Journal.Save(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := config.Runner("1", &workflow.Summary{}).Run(t.Context(), pool, &alone{w, row}); err != nil || passes != 1 {
		t.Fatalf("%s: %d passes, %v", act, passes, err)
	}
	return failure
}

// TestResumedAtModel: right before they change the model, a capture and a rollback find what an
// owner changed after preflight. The key that an open record has is not in a closed one.
func TestResumedAtModel(t *testing.T) {
	state, _ := json.Marshal(map[string]any{ // a capture's and a rollback's
		"pool": pool, "instance": pool + "/virtualMachines/0", "names": map[string]string{"version": "2026.01.03"}, "key": "AAAA",
		"to": version("2026.01.01", 1).ID,
	})
	for name, c := range map[string]struct {
		owner   func(*fleet.Pool)
		refuses string
	}{
		"nothing": {nil, ""},
		"Rolling": {func(p *fleet.Pool) { p.UpgradeMode = fleet.Rolling }, "capture, rollback"},
		"an owner": {func(p *fleet.Pool) {
			p.Tags = map[string]string{"sigs.k8s.io_cluster-api-provider-azure_cluster_c": "owned"}
		}, "capture, rollback"},
		"automatic OS upgrades": {func(p *fleet.Pool) { p.AutomaticOSUpgrade = true }, "capture"},
	} {
		for _, kind := range []string{capture.Kind, rollback.Kind} {
			f := fake{owner: c.owner}
			config := f.config()
			w := map[string]workflow.Workflow{capture.Kind: capture.New(config).Workflow(), rollback.Kind: rollback.New(config).Workflow()}[kind]
			rec := journal.Record{Kind: kind, Name: "20260103-090000", Pool: string(pool), Request: []byte("{}"), State: state}
			refusal := onePass(t, config, w, rec, "model")
			if refused := strings.Contains(c.refuses, kind); refused != (f.begun == 0) || refused != (refusal != nil) {
				t.Errorf("%s, %s: %d changes begun: %v", name, kind, f.begun, refusal)
			}
			open, _ := json.Marshal(w.State(false))
			closed, _ := json.Marshal(w.State(true))
			if has := strings.Contains(string(open), `"key"`); has != (kind == capture.Kind) || strings.Contains(string(closed), `"key"`) {
				t.Errorf("%s: open %s, closed %s", kind, open, closed)
			}
		}
	}
}

// TestRecordOfAnotherMachine: a record that names a virtual machine which Azure does not say to be
// the donor, of this pool, changes nothing of it.
func TestRecordOfAnotherMachine(t *testing.T) {
	vm := pool.In("virtualMachines", "pool1_1c0ffee0")
	state, _ := json.Marshal(map[string]any{
		"pool": pool, "instance": vm, "vmId": vmA, "stopped": true, "names": map[string]string{"version": "2026.01.03"},
	})
	for name, c := range map[string]struct {
		machine fleet.Instance
		changed bool
	}{
		"the donor":                           {fleet.Instance{Pool: fleet.ResourceID(strings.ToUpper(string(pool))), VMID: strings.ToUpper(vmA)}, true},
		"of another pool":                     {fleet.Instance{Pool: pool + "2", VMID: vmA}, false},
		"of another group's pool of its name": {fleet.Instance{Pool: fleet.ResourceID(strings.Replace(string(pool), "/g/", "/h/", 1)), VMID: vmA}, false},
		"of no pool":                          {fleet.Instance{VMID: vmA}, false},
		"made again under its name":           {fleet.Instance{Pool: pool, VMID: vmB}, false},
		"made again in another pool":          {fleet.Instance{Pool: pool + "2", VMID: vmB}, false},
	} {
		for _, act := range []string{"stop", "start", "unprotect"} {
			f := fake{machine: &c.machine, vm: vm}
			if c.machine.Power = fleet.PowerRunning; act == "start" {
				c.machine.Power = fleet.PowerStopped
			}
			c.machine.Protection.ScaleIn = act == "unprotect"
			config := f.config()
			w := capture.New(config).Workflow()
			rec := journal.Record{Kind: capture.Kind, Name: "20260103-090000", Pool: string(pool), Request: []byte("{}"), State: state,
				Steps: map[string]journal.Step{"stop": {State: journal.Done, Before: []byte(`"boot"`)}, "protect": {State: journal.Done, Before: []byte(`{"node":"n","mark":"ortet.io/capture","value":"x"}`)}}}
			_ = onePass(t, config, w, rec, act)
			if c.changed != (f.begun > 0) {
				t.Errorf("%s, %s: %d changes begun", name, act, f.begun)
			}
		}
	}
}

// TestManual: what a person is asked to do names the scale set and the commands of the donor's
// and the workbench's kind.
func TestManual(t *testing.T) {
	const protect = "az vmss update -g g -n "
	vm, uniform := pool.In("virtualMachines", "pool1_1c0ffee0"), pool.Child("virtualMachines", "0")
	for _, c := range []struct {
		donor, bench, benchPool fleet.ResourceID
		want                    map[string]string // by undo: what its text has
	}{
		{vm, pool.In("virtualMachines", "pool2_1c0ffee0"), pool + "2", map[string]string{"start": "(az vm get-instance-view)",
			"unprotect": protect + "pool1 --instance-id pool1_1c0ffee0 ", "unprotect-workbench": protect + "pool12 --instance-id pool2_1c0ffee0 "}},
		{uniform, uniform, pool, map[string]string{"start": "(az vmss get-instance-view)",
			"unprotect": protect + "pool1 --instance-id 0 ", "unprotect-workbench": protect + "pool1 --instance-id 0 "}},
		{vm, vm, "", map[string]string{"unprotect-workbench": "did not set: kubectl annotate node b"}},
	} {
		state, _ := json.Marshal(map[string]any{"pool": pool, "instance": c.donor, "names": map[string]string{"version": "2026.01.03"},
			"workbench": map[string]any{"node": "b", "pool": c.benchPool, "instance": c.bench}})
		w := capture.New((&fake{}).config()).Workflow()
		rec := journal.Record{Kind: capture.Kind, Name: "20260103-090000", Pool: string(pool), Request: []byte("{}"), State: state}
		table, _, err := w.Restore(rec)
		if err != nil {
			t.Fatal(err)
		}
		for undo, want := range c.want {
			at := slices.IndexFunc(table, func(s workflow.Step) bool { return s.Undo != nil && s.Undo.ID == undo })
			if text := table[at].Undo.Manual(); !strings.Contains(text, want) {
				t.Errorf("%s of %s and %s: %q, want %q", undo, c.donor, c.bench, text, want)
			}
		}
	}
}

// TestMachinesPool: the pool of a virtual machine is what Azure says, whatever the machine is named.
func TestMachinesPool(t *testing.T) {
	other := fleet.ResourceID(strings.Replace(string(pool), "/g/", "/h/", 1))
	for name, c := range map[string]struct {
		machine *fleet.Instance
		pool    fleet.ResourceID
		code    string // of the capture's refusal
	}{
		"in no scale set":        {&fleet.Instance{}, "", "NoPool"},
		"gone":                   {nil, "", "InstanceNotFound"},
		"of the pool":            {&fleet.Instance{Pool: pool}, pool, ""},
		"of another of one name": {&fleet.Instance{Pool: other}, other, ""},
	} {
		f := fake{machine: c.machine, vm: pool.In("virtualMachines", "pool1_1c0ffee0")}
		p, err := capture.New(f.config()).Plan(t.Context(), capture.Request{Node: "n"})
		has := slices.ContainsFunc(p.Problems, func(p fleet.Problem) bool { return p.Code == c.code })
		if err != nil || has != (c.code != "") || !p.Pool.Equal(c.pool) {
			t.Errorf("%s: capture of %s: %v, %v", name, p.Pool, p.Problems, err)
		}
		back, err := rollback.New(f.config()).Plan(t.Context(), rollback.Request{Node: "n"})
		refused := len(back.Problems) > 0 && back.Problems[0].Code == "NoPool"
		if err != nil || refused != (c.pool == "") || !back.Pool.Equal(c.pool) {
			t.Errorf("%s: rollback of %s: %v, %v", name, back.Pool, back.Problems, err)
		}
	}
}

// TestOtherLetterCase: two Nodes whose provider ids differ in letter case alone are of one pool,
// and claim one instance.
func TestOtherLetterCase(t *testing.T) {
	s := capture.New((&fake{}).config())
	pools, err := s.Status(t.Context(), nil)
	if err != nil || len(pools) != 1 {
		t.Errorf("%d pools, %v", len(pools), err)
	}
	p, err := s.Plan(t.Context(), capture.Request{Node: "n"})
	if err != nil || !slices.ContainsFunc(p.Problems, func(p fleet.Problem) bool { return p.Code == "DuplicateNode" }) {
		t.Errorf("%v, %v", p.Problems, err)
	}
}
