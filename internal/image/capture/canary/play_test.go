package canary

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/prove"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/test/workflowtest"
)

const (
	poolID  = fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/Pool_1")
	imageID = fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/galleries/ortet/images/pool1/versions/2026.1.2")
)

// A site is a pool and its canary, and the version's tags.
type site struct {
	azure.Cloud
	mu      sync.Mutex
	pool    fleet.Pool
	canary  *fleet.Pool
	tags    map[string]string // of the version
	refuses map[string]error
	clones  []fleet.Instance
}

func (s *site) Now() time.Time { return time.Now() }

func (s *site) Pool(_ context.Context, id fleet.ResourceID) (fleet.Pool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id.Equal(poolID) {
		return s.pool, s.refuses["read pool"]
	}
	if s.canary == nil {
		return fleet.Pool{}, &fleet.Error{Op: "get scale set", Kind: fleet.KindNotFound}
	}
	return *s.canary, nil
}

func (s *site) Version(context.Context, fleet.ResourceID) (fleet.ImageVersion, error) {
	return fleet.ImageVersion{ID: imageID, ProvisioningState: plan.Succeeded, Tags: s.tags}, nil
}

func (s *site) Instances(_ context.Context, id fleet.ResourceID) ([]fleet.Instance, error) {
	switch {
	case id.Equal(poolID):
		return nil, nil
	case s.canary == nil:
		return nil, &fleet.Error{Kind: fleet.KindNotFound}
	}
	return s.clones, nil
}

func (s *site) Begin(_ context.Context, change fleet.Change) (fleet.Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refuses[change.Verb()]; err != nil {
		return "", err
	}
	switch c := change.(type) {
	case fleet.CreateCanary:
		s.canary = &fleet.Pool{ID: c.ID, Tags: c.Tags, ProvisioningState: plan.Succeeded}
	case fleet.DeleteScaleSet:
		s.canary = nil
	case fleet.TagVersion:
		maps.Copy(s.tags, c.Tags)
	}
	return "", nil
}

type kube struct {
	cluster.Cluster
	state   cluster.JobState // of a test
	fails   error            // to start one
	started int
	deletes error // of tests
	log     []string
}

func (k *kube) Now() time.Time { return time.Now() }

func (k *kube) Nodes(context.Context) iter.Seq2[fleet.Node, error] {
	return func(func(fleet.Node, error) bool) {}
}

func (k *kube) GetSecret(_ context.Context, _ fleet.ResourceID, kind, sha string) (cluster.SecretItem, error) {
	return cluster.SecretItem{Data: fleet.NewSecret(kind + " " + sha)}, nil
}

func (k *kube) StartTest(_ context.Context, test cluster.NodeTest) error {
	k.log = append(k.log, fmt.Sprint(test))
	k.started++
	return k.fails
}

func (k *kube) Test(context.Context, cluster.NodeTest) (cluster.JobState, error) { return k.state, nil }

func (k *kube) DeleteTests(_ context.Context, file string, pool fleet.ResourceID) error {
	k.log = append(k.log, "delete "+file)
	return k.deletes
}

func (s *site) of(v Version, k *kube) (c *Canary, o *Outcome, notes *[]string) {
	var mu sync.Mutex
	o, notes = &Outcome{}, &[]string{}
	v.ID, v.Pool, v.Capture, v.Request.Canary = imageID, poolID, "c", 2
	if s.refuses == nil {
		s.refuses = map[string]error{}
	}
	s.pool.ID, s.tags = poolID, map[string]string{}
	return &Canary{Cloud: s, Cluster: k, Log: slog.New(slog.DiscardHandler), Now: time.Now, Outcome: workflow.PartOf(&mu, o),
		Note: func(format string, args ...any) { *notes = append(*notes, fmt.Sprintf(format, args...)) },
		Of: func() Version {
			now := v
			now.Tags = map[string]string{fleet.TagCapture: "c"}
			return now
		},
		CustomData: func(_ context.Context, sha string) (fleet.Secret, error) { return fleet.NewSecret("data " + sha), nil }}, o, notes
}

// TestRowsText: when a canary is made and judged, and when it is deleted.
func TestRowsText(t *testing.T) {
	for _, c := range []struct {
		skip       string
		quarantine string
		request    plan.Request
		want       string
	}{
		{"", "", plan.Request{CanarySoak: time.Minute, CanaryTest: "f"}, `
canary: Create the scale set Pool_1-canary with 2 clones; after version; undo delete-canary: Delete the scale set Pool_1-canary; when judge; or az vmss delete --ids Pool_1-canary
judge: Judge the clones: do they come up, and stay up for 1m0s; then each runs the test of --canary-test; after version canary`},
		{"", "boot", plan.Request{}, `
canary: Create the scale set Pool_1-canary with 2 clones; after version; skip: the version is quarantined; undo delete-canary: Delete the scale set Pool_1-canary; when judge; or az vmss delete --ids Pool_1-canary
judge: Judge the clones: do they come up, and stay up for 0s; after version canary`},
		{"why", "", plan.Request{}, `
canary: Create the scale set Pool_1-canary with 2 clones; after version; skip: why; undo delete-canary: Delete the scale set Pool_1-canary; when judge; or az vmss delete --ids Pool_1-canary
judge: Judge the clones: do they come up, and stay up for 0s; after version canary; skip: why`},
	} {
		x, o, _ := (&site{}).of(Version{Request: c.request}, &kube{})
		o.Quarantine = c.quarantine
		create, judge := x.Rows("version", c.skip)
		if got := workflowtest.Text(create, judge); got != strings.TrimSpace(c.want) {
			t.Errorf("%s", got)
		}
		if judge.Usual != 3*time.Minute+c.request.CanarySoak {
			t.Errorf("a judgement takes %s", judge.Usual)
		}
	}
}

// TestCreate makes clones of what new nodes will be, where no scale set of others has the name.
func TestCreate(t *testing.T) {
	expires := map[string]string{fleet.TagCanary: "2026-01-02T03:04:05Z"}
	ours := func(by, state string) *fleet.Pool {
		return &fleet.Pool{ID: fleet.CanaryOf(poolID), ProvisioningState: state, Tags: map[string]string{fleet.TagCanary: expires[fleet.TagCanary], fleet.TagCapture: by}}
	}
	denied := &fleet.Error{Op: "create", Kind: fleet.KindDenied, Code: "x"}
	type row struct {
		site  *site
		of    Version
		verbs string
		says  string
		left  string // why the canary is left out
		notes string
	}
	extension := func(name, kind string, sealed bool) fleet.Extension {
		return fleet.Extension{Name: name, Publisher: "p", Type: kind, HasProtectedSettings: sealed}
	}
	mix := &site{pool: fleet.Pool{Model: fleet.Model{Extensions: []fleet.Extension{extension("cse", "CustomScript", true), extension("health", "ApplicationHealthLinux", false), extension("plain", "X", false),
		extension("sealed", "X", true), extension("known", "X", true)}}}}
	original := &plan.Original{Extensions: plan.OriginalExtensions(mix.pool.Model.Extensions, nil)}
	original.Extensions[4].ProtectedSHA256 = "abc"
	for name, c := range map[string]row{
		"as usual":                 {of: Version{CustomData: "sha"}, verbs: "create canary"},
		"new nodes get none":       {of: Version{NoCustomData: true}, verbs: "create canary"},
		"extensions":               {site: mix, of: Version{NoCustomData: true, Original: original}, verbs: "create canary", notes: "clones are made without extension sealed, whose protected settings Azure does not show"},
		"customData is not known":  {says: "step canary: create canary"},
		"not known, and optional":  {of: Version{Request: plan.Request{CanaryIfPossible: true}}, left: "no canary: create canary", notes: "no canary: create canary"},
		"refused":                  {site: &site{refuses: map[string]error{"create canary": denied}}, of: Version{NoCustomData: true}, verbs: "create canary", says: "step canary: create"},
		"refused, and optional":    {site: &site{refuses: map[string]error{"create canary": denied}}, of: Version{NoCustomData: true, Request: plan.Request{CanaryIfPossible: true}}, verbs: "create canary", left: "no canary: create", notes: "no canary: create"},
		"its own is there":         {site: &site{canary: ours("c", plan.Succeeded)}, of: Version{NoCustomData: true}},
		"its own is being deleted": {site: &site{canary: ours("c", plan.Deleting)}, of: Version{NoCustomData: true}, verbs: "delete scale set, create canary"},
		"an earlier capture's":     {site: &site{canary: ours("b", plan.Succeeded)}, of: Version{NoCustomData: true}, verbs: "delete scale set, create canary"},
		"one of others":            {site: &site{canary: &fleet.Pool{ID: fleet.CanaryOf(poolID), Tags: map[string]string{fleet.TagCapture: "c"}}}, of: Version{NoCustomData: true}, says: "a scale set of this name exists that Ortet did not make; rename or delete it"},
		"the pool cannot be read":  {site: &site{refuses: map[string]error{"read pool": denied}}, of: Version{NoCustomData: true}, says: "step canary: create"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := c.site
				if s == nil {
					s = &site{}
				}
				x, o, _ := s.of(c.of, &kube{})
				create, _ := x.Rows("version", "")
				create.Undo, create.Deadline = nil, time.Minute
				p := workflowtest.Play(t, s, create)
				verbs := strings.Join(fleet.Each(p.Changes, fleet.Change.Verb), ", ")
				if (p.Err != nil) != (c.says != "") || p.Err != nil && !strings.Contains(p.Err.Error(), c.says) || verbs != c.verbs || !strings.HasPrefix(o.NoCanary, c.left) || (o.NoCanary != "") != (c.left != "") ||
					!strings.HasPrefix(strings.Join(p.Notes, "; "), c.notes) || (len(p.Notes) > 0) != (c.notes != "") {
					t.Errorf("%v, %q, %+v, %q", p.Err, verbs, o, p.Notes)
				}
				for _, change := range p.Changes {
					got, is := change.(fleet.CreateCanary)
					custom := ""
					if is && got.CustomData != nil {
						custom, got.CustomData = got.CustomData.Reveal(), nil
					}
					want := "{ID:Pool_1-canary Pool:Pool_1 Image:2026.1.2 Instances:2 HostPrefix:pool-1-c0101000000 CustomData:<nil> Without:[] Protected:map[] Tags:map[ortet.io_canary:2000-01-02T00:00:00Z ortet.io_capture:c]}"
					if name == "extensions" {
						want = strings.Replace(want, "Without:[] Protected:map[]", "Without:[cse health sealed] Protected:map[known:[redacted]]", 1)
						if got.Protected["known"].Reveal() != "protectedSettings abc" {
							t.Errorf("%q", got.Protected["known"].Reveal())
						}
					}
					wrong := workflowtest.Short(got) != want && len(p.Changes) == 1 // else some seconds have passed
					if is && (wrong || (custom == "data sha") != (c.of.CustomData != "")) {
						t.Errorf("%s\nwant\n%s, %q", workflowtest.Short(got), want, custom)
					}
				}
			})
		})
	}
}

// TestDelete deletes its own canary, and what is left of its tests.
func TestDelete(t *testing.T) {
	for name, c := range map[string]struct {
		by, test string
		deletes  error
		stays    bool
		note     string
		log      string
	}{
		"its own":       {by: "c"},
		"another's":     {by: "b", stays: true},
		"with tests":    {by: "c", test: "file", log: "delete file"},
		"tests may not": {by: "c", test: "file", log: "delete file", deletes: &fleet.Error{Op: "delete pods", Kind: fleet.KindDenied}, note: "pods of the clones' test are left: delete pods"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, k := &site{canary: &fleet.Pool{Tags: map[string]string{fleet.TagCapture: c.by}}}, &kube{deletes: c.deletes}
				x, _, notes := s.of(Version{Request: plan.Request{CanaryTest: c.test}}, k)
				p := workflowtest.Play(t, s, workflow.Step{ID: "x", Do: x.delete})
				if p.Err != nil || (s.canary != nil) != c.stays || !strings.HasPrefix(strings.Join(*notes, ""), c.note) || strings.Join(k.log, "") != c.log {
					t.Errorf("%v, %+v, %q, %q", p.Err, s.canary, *notes, k.log)
				}
			})
		})
	}
}

// TestJudge: what clones show is proof, quarantine, or nothing.
func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		before Outcome
		gone   bool // the clones' scale set
		denied bool
		says   string
		after  Outcome
		tag    bool
	}{
		"left out":             {before: Outcome{NoCanary: "x"}, after: Outcome{NoCanary: "x"}},
		"deleted by others":    {gone: true, says: "the clones say nothing of 2026.1.2: others deleted their scale set; run the same command again, which makes others"},
		"quarantined before":   {before: Outcome{Quarantine: "boot: x"}, after: Outcome{Quarantine: "boot: x"}, tag: true, says: "2026.1.2 is quarantined: boot: x; mend the donor and capture it with --again, or capture another node"},
		"it may not be tagged": {before: Outcome{Quarantine: "boot: x"}, after: Outcome{Quarantine: "boot: x"}, denied: true, says: "tag 2026.1.2 as quarantined, which failed boot: x: "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &site{refuses: map[string]error{}}
				if !c.gone {
					s.canary = &fleet.Pool{}
				}
				if c.denied {
					s.refuses["tag image version"] = &fleet.Error{Kind: fleet.KindDenied, Code: "x"}
				}
				x, o, _ := s.of(Version{}, &kube{})
				*o = c.before
				_, judge := x.Rows("version", "")
				p := workflowtest.Play(t, s, judge)
				if (p.Err != nil) != (c.says != "") || p.Err != nil && !strings.Contains(p.Err.Error(), c.says) || *o != c.after || (s.tags[fleet.TagQuarantine] == "boot: x" && s.tags[fleet.TagRolledBack] != "") != c.tag {
					t.Errorf("%v, %+v, %v", p.Err, o, s.tags)
				}
			})
		})
	}
}

// TestClonesTest: a clone's own test runs once, and decides by how its container ended.
func TestClonesTest(t *testing.T) {
	denied := &fleet.Error{Op: "start", Kind: fleet.KindDenied, Err: errors.New("quota")}
	for name, c := range map[string]struct {
		fails  error
		state  cluster.JobState
		result prove.Result
		why    string
		gate   string
		lines  int
		err    bool
	}{
		"runs":                  {state: cluster.JobState{Exists: true}, result: prove.Waits, why: "a passed the gates, and its test runs"},
		"passed":                {state: cluster.JobState{Exists: true, Done: true, Ran: true}, result: prove.Passed},
		"failed":                {state: cluster.JobState{Exists: true, Done: true, Ran: true, ExitCode: 3, Why: "Error", Output: []byte("one\n\ntwo\n")}, result: prove.Failed, gate: "test", why: "a failed its test (exit code 3, Error): two", lines: 2},
		"failed without output": {state: cluster.JobState{Exists: true, Done: true, Ran: true, ExitCode: 3}, result: prove.Failed, gate: "test", why: "a failed its test (exit code 3)"},
		"end was not seen":      {state: cluster.JobState{Exists: true, Done: true, Ran: true, ExitCode: -1, Why: "DeadlineExceeded"}, result: prove.Failed, gate: "test", why: "a failed its test (DeadlineExceeded)"},
		"never ran":             {state: cluster.JobState{Exists: true, Done: true, Why: "ErrImagePull"}, result: prove.NoResult, why: "a could not run its test: ErrImagePull"},
		"never ran, no reason":  {state: cluster.JobState{Exists: true, Done: true}, result: prove.NoResult, why: "a could not run its test: the pod ended without a container that ran"},
		"was deleted":           {result: prove.NoResult, why: "a has no result of its test: the pod was deleted before it ended"},
		"cannot be started":     {fails: denied, result: prove.NoResult, why: "a could not run its test: start: quota"},
		"API server is away":    {fails: &fleet.Error{Kind: fleet.KindTransient}, result: prove.Waits, why: "a passed the gates, and its test runs", err: true},
	} {
		k := &kube{fails: c.fails, state: c.state}
		x, _, _ := (&site{}).of(Version{Request: plan.Request{CanaryTest: "file"}}, k)
		x.judging.tested = map[string]prove.Finding{}
		all := []prove.Clone{{Instance: fleet.Instance{Name: "a"}, Node: &fleet.Node{Name: "node-a"}}, {Instance: fleet.Instance{Name: "b"}}}
		of := prove.Judgement{Findings: []prove.Finding{{Clone: "a", Result: prove.Passed}, {Clone: "b", Result: prove.Waits}}}
		_, first := x.test(t.Context(), all, of)
		for range 2 {
			if got, err := x.test(t.Context(), all, of); true {
				f := prove.Finding{}
				if err == nil {
					f = got.Findings[0]
				}
				if (err != nil) != c.err || (first != nil) != c.err || !c.err && (f.Result != c.result || f.Why != c.why || f.Gate != c.gate || len(f.Lines) != c.lines || f.Clone != "a" || got.Findings[1].Result != prove.Waits) {
					t.Errorf("%s: %+v, %v", name, got, err)
				}
			}
			if c.result != prove.Waits {
				k.state = cluster.JobState{} // who deletes a pod that ended takes no result away
			}
		}
		if want := map[bool]int{true: 3, false: 1}[c.err]; k.started != want || k.log[0] != "{file node-a "+string(poolID)+" c}" {
			t.Errorf("%s: started %d times, %q", name, k.started, k.log)
		}
	}
	x, _, _ := (&site{}).of(Version{}, &kube{})
	if got, err := x.test(t.Context(), nil, prove.Judgement{Finding: prove.Finding{Result: prove.Passed}}); err != nil || got.Result != prove.Passed {
		t.Errorf("without a test: %+v, %v", got, err)
	}
}

// TestInspected: what the donor's disk shows of clones, before the donor is touched.
func TestInspected(t *testing.T) {
	pool := fleet.Pool{Model: fleet.Model{Extensions: []fleet.Extension{{Name: "cse", Publisher: "p", Type: "CustomScript", HasProtectedSettings: true}}}}
	stays := plan.Request{Extensions: plan.ExtensionRule{None: true}}
	for name, c := range map[string]struct {
		of      Version
		report  wire.GeneralizeReport
		out     string
		code    string
		problem bool
	}{
		"customData on the disk":      {},
		"customData cannot be read":   {report: wire.GeneralizeReport{Unsaved: []string{"customData: x"}}, code: "CanaryCannotBoot"},
		"not read, but known":         {of: Version{CustomData: "a"}, report: wire.GeneralizeReport{Unsaved: []string{"customData: x"}}},
		"not read, and optional":      {of: Version{Request: plan.Request{CanaryIfPossible: true}}, report: wire.GeneralizeReport{Unsaved: []string{"customData: x"}}, out: "no canary: which customData"},
		"extension has none":          {of: Version{LearnsOriginal: true, Request: stays}, report: wire.GeneralizeReport{NoProtected: []string{"p.CustomScript"}}},
		"not learned from this donor": {of: Version{Request: stays}, report: wire.GeneralizeReport{NoProtected: []string{"p.CustomScript"}}, code: "CanaryNeedsExtension"},
		"nothing on the disk":         {of: Version{LearnsOriginal: true, Request: stays}, code: "CanaryNeedsExtension"},
	} {
		x, o, notes := (&site{pool: pool}).of(c.of, &kube{})
		problems, err := x.Inspected(t.Context(), c.report)
		codes := strings.Join(fleet.Each(problems, func(p fleet.Problem) string { return p.Code }), " ")
		if err != nil || codes != c.code || !strings.HasPrefix(o.NoCanary, c.out) || (len(*notes) > 0) != (c.out != "") {
			t.Errorf("%s: %v, %v, %+v, %q", name, problems, err, o, *notes)
		}
	}
}
