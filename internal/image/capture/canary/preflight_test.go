package canary_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture/canary"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/workflow"
)

const pool = fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/pool1")

// A cloud has no canary yet unless it says so, and quotas of which some is used.
type cloud struct {
	azure.Cloud
	canary *fleet.Pool
	fails  error               // to read the canary
	denied map[string]error    // by resource; nil: it may not do all of what is asked for
	usages map[string][2]int64 // used of the limit
}

func (c cloud) Pool(context.Context, fleet.ResourceID) (fleet.Pool, error) {
	if c.canary != nil {
		return *c.canary, nil
	}
	return fleet.Pool{}, cmp.Or(c.fails, error(&fleet.Error{Op: "get scale set", Kind: fleet.KindNotFound}))
}

func (c cloud) Denied(_ context.Context, on fleet.ResourceID, all []string) ([]string, error) {
	if err, is := c.denied[string(on)]; is {
		return all, err
	}
	return nil, nil
}

func (c cloud) Usages(context.Context, string, string) (map[string]fleet.Usage, error) {
	all := map[string]fleet.Usage{}
	for name, u := range c.usages {
		all[name] = fleet.Usage{Used: u[0], Limit: u[1]}
	}
	return all, nil
}

// TestProblems refuses what no clone can be given, or leaves an optional canary out.
func TestProblems(t *testing.T) {
	sealed := fleet.Pool{ID: pool, Model: fleet.Model{Extensions: []fleet.Extension{{Name: "cse", Type: "CustomScript", HasProtectedSettings: true}}}}
	stays := plan.ExtensionRule{None: true}
	for name, c := range map[string]struct {
		pool fleet.Pool
		of   canary.Version
		want string // a problem's code
		out  bool   // the canary is left out
	}{
		"customData is known":            {fleet.Pool{ID: pool}, canary.Version{CustomData: "abc"}, "", false},
		"new nodes get none":             {fleet.Pool{ID: pool}, canary.Version{NoCustomData: true}, "", false},
		"customData is not known":        {fleet.Pool{ID: pool}, canary.Version{}, "CanaryCannotBoot", false},
		"not known, and optional":        {fleet.Pool{ID: pool}, canary.Version{Request: plan.Request{CanaryIfPossible: true}}, "", true},
		"system-assigned identity only":  {fleet.Pool{ID: pool, SystemIdentity: true}, canary.Version{NoCustomData: true}, "CanaryIdentity", false},
		"extension that is deleted":      {sealed, canary.Version{NoCustomData: true}, "", false},
		"extension that stays and joins": {sealed, canary.Version{NoCustomData: true, Request: plan.Request{Extensions: stays}}, "CanaryNeedsExtension", false},
		"more clones than allowed":       {fleet.Pool{ID: pool}, canary.Version{NoCustomData: true, Request: plan.Request{Canary: 99}}, "BadNumber", false},
		"soak of an hour":                {fleet.Pool{ID: pool}, canary.Version{NoCustomData: true, Request: plan.Request{CanarySoak: time.Hour}}, "BadNumber", false},
	} {
		var mu sync.Mutex
		var outcome canary.Outcome
		c.of.Pool, c.of.Request.Canary = pool, max(c.of.Request.Canary, 1)
		x := canary.Canary{Cloud: cloud{}, Outcome: workflow.PartOf(&mu, &outcome), Of: func() canary.Version { return c.of },
			CustomData: func(context.Context, string) (fleet.Secret, error) { return fleet.Secret{}, nil },
			Sizes:      func(context.Context, fleet.Pool, ...string) map[string]fleet.SizeInfo { return nil }}
		problems := x.Problems(t.Context(), c.pool, plan.ResumePlan{From: plan.AtGeneralized}, func(string, ...any) {})
		found := slices.ContainsFunc(problems, func(p fleet.Problem) bool { return p.Code == c.want })
		if found != (c.want != "") || (outcome.NoCanary != "") != c.out || c.want == "" && len(problems) > 0 {
			t.Errorf("%s: problems %v, left out %q", name, problems, outcome.NoCanary)
		}
	}
}

// TestPreflight refuses a canary that Azure would not let live, or that would say nothing of the pool's
// nodes, before the donor is touched; what may be read the next time is none of its reasons.
func TestPreflight(t *testing.T) {
	const subnet = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/n"
	denied, down := &fleet.Error{Op: "read", Kind: fleet.KindDenied}, &fleet.Error{Op: "read", Kind: fleet.KindTransient}
	join := fleet.Pool{Joins: []fleet.Join{{Resource: subnet, Action: "join"}}}
	own := fleet.Pool{SystemIdentity: true, Joins: []fleet.Join{{Resource: "/identity", Action: azure.AssignIdentity}}}
	for name, c := range map[string]struct {
		pool  fleet.Pool
		of    canary.Version
		cloud cloud
		lost  error // to read customData
		codes string
		notes string // part of them
		early bool   // the donor's disk is still to be inspected
	}{
		"nothing against it":                    {notes: "the canary takes 1 × D2 for about 3 minutes, 2 vCPUs; in use are 4 of 6 dv5 and 4 of 10 cores"},
		"soak":                                  {of: canary.Version{Request: plan.Request{CanarySoak: 90 * time.Second}}, notes: "for about 5 minutes"},
		"longest soak, and most clones":         {of: canary.Version{Request: plan.Request{CanarySoak: plan.MaxSoak, Canary: fleet.MaxCanary}}, cloud: cloud{usages: map[string][2]int64{}}, notes: fmt.Sprintf("takes %d × D2", fleet.MaxCanary)},
		"no room in the family's quota":         {cloud: cloud{usages: map[string][2]int64{"dv5": {5, 6}, "cores": {5, 99}}}, codes: "CanaryQuota"},
		"no room in the region's":               {cloud: cloud{usages: map[string][2]int64{"dv5": {4, 6}, "cores": {9, 10}}}, codes: "CanaryQuota"},
		"quota of spot machines":                {pool: fleet.Pool{Spot: true}, cloud: cloud{usages: map[string][2]int64{"dv5": {6, 6}, "lowprioritycores": {0, 2}}}, notes: "in use are 0 of 2 lowPriorityCores"},
		"one size of a mix has room":            {pool: fleet.Pool{Sizes: []string{"D2", "E4"}}, cloud: cloud{usages: map[string][2]int64{"dv5": {6, 6}, "ev5": {0, 4}, "cores": {0, 10}}}, notes: "takes 1 × D2 or E4 for about 3 minutes, 2 or 4 vCPUs; in use are 6 of 6 dv5 and 0 of 10 cores and 0 of 4 ev5"},
		"the other size has room":               {pool: fleet.Pool{Sizes: []string{"D2", "E4"}}, cloud: cloud{usages: map[string][2]int64{"dv5": {0, 6}, "ev5": {4, 4}}}, notes: "in use are 0 of 6 dv5 and 4 of 4 ev5"},
		"size that is not known":                {pool: fleet.Pool{Size: "X9"}, notes: "whether the quota of vCPUs has room could not be read"},
		"may not do what making it needs":       {cloud: cloud{denied: map[string]error{string(pool.Group()): nil}}, codes: "AzureDenied"},
		"what it may is not known":              {cloud: cloud{denied: map[string]error{string(pool.Group()): down}}, codes: "Unreadable AzureDenied"},
		"may not join the subnet":               {pool: join, cloud: cloud{denied: map[string]error{subnet: nil}}, codes: "AzureDenied"},
		"joins the subnet":                      {pool: join},
		"has an identity of its own besides":    {pool: own, notes: "the clones have the pool's user-assigned identities, and not its system-assigned one"},
		"name of 64 characters":                 {pool: fleet.Pool{ID: pool + fleet.ResourceID(strings.Repeat("x", 52))}},
		"name of 65 characters":                 {pool: fleet.Pool{ID: pool + fleet.ResourceID(strings.Repeat("x", 53))}, codes: "CanaryName"},
		"a scale set of others has its name":    {cloud: cloud{canary: &fleet.Pool{}}, codes: "ForeignScaleSet"},
		"that of an earlier capture":            {cloud: cloud{canary: &fleet.Pool{Tags: map[string]string{fleet.TagCanary: "2026-01-02T03:04:05Z"}, ID: fleet.CanaryOf(pool)}}},
		"may not read its scale set":            {cloud: cloud{fails: denied}, codes: "Unreadable"},
		"its scale set may be read later":       {cloud: cloud{fails: down}, codes: "Unreadable"},
		"customData is not kept":                {of: canary.Version{CustomData: "abc"}, lost: &fleet.Error{Kind: fleet.KindNotFound}, codes: "CanaryCannotBoot"},
		"not kept, and on the disk perhaps":     {of: canary.Version{CustomData: "abc"}, lost: &fleet.Error{Kind: fleet.KindNotFound}, early: true},
		"Secrets may not be read":               {of: canary.Version{CustomData: "abc"}, lost: denied, codes: "Unreadable"},
		"customData is not known, and the disk": {of: canary.Version{CustomData: "none"}, early: true},
		"optional, and may not be made":         {of: canary.Version{Request: plan.Request{CanaryIfPossible: true}}, pool: join, cloud: cloud{denied: map[string]error{subnet: nil}}, notes: "no canary: these credentials may not do join"},
		"optional, and may not be read":         {of: canary.Version{Request: plan.Request{CanaryIfPossible: true}}, cloud: cloud{fails: denied}, notes: "no canary: it cannot be read"},
		"optional, and may be read later":       {of: canary.Version{Request: plan.Request{CanaryIfPossible: true}}, cloud: cloud{fails: down}, codes: "Unreadable"},
	} {
		var mu sync.Mutex
		var outcome canary.Outcome
		var notes []string
		c.pool.ID, c.of.Pool, c.of.Request.Canary = cmp.Or(c.pool.ID, pool), pool, max(c.of.Request.Canary, 1)
		if c.pool.Size = cmp.Or(c.pool.Size, "D2"); c.cloud.usages == nil {
			c.cloud.usages = map[string][2]int64{"dv5": {4, 6}, "cores": {4, 10}}
		}
		if c.of.NoCustomData = c.of.CustomData == ""; c.of.CustomData == "none" {
			c.of.CustomData = ""
		}
		x := canary.Canary{Cloud: c.cloud, Outcome: workflow.PartOf(&mu, &outcome), Of: func() canary.Version { return c.of },
			CustomData: func(context.Context, string) (fleet.Secret, error) { return fleet.Secret{}, c.lost },
			Sizes: func(context.Context, fleet.Pool, ...string) map[string]fleet.SizeInfo {
				return map[string]fleet.SizeInfo{"d2": {VCPUs: 2, Family: "dv5"}, "e4": {VCPUs: 4, Family: "ev5"}}
			}}
		resume := plan.ResumePlan{From: plan.AtGeneralized}
		if c.early {
			resume.From = plan.AtSnapshot
		}
		problems := x.Problems(t.Context(), c.pool, resume, func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) })
		codes := strings.Join(fleet.Each(problems, func(p fleet.Problem) string { return p.Code }), " ")
		if codes != c.codes || !strings.Contains(strings.Join(notes, "\n"), c.notes) || c.pool.SystemIdentity != strings.Contains(strings.Join(notes, "\n"), "system-assigned") {
			t.Errorf("%s: problems %v; notes %q", name, problems, notes)
		}
	}
}

// TestSkip makes a canary of a version that none of its clones has proved yet.
func TestSkip(t *testing.T) {
	made := func(state, tag string) *fleet.ImageVersion {
		return &fleet.ImageVersion{ProvisioningState: state, Tags: map[string]string{fleet.TagCanary: tag}}
	}
	asked := plan.Request{Canary: 1}
	for name, c := range map[string]struct {
		outcome canary.Outcome
		request plan.Request
		there   *fleet.ImageVersion
		inModel bool
		want    string
	}{
		"no version yet":               {request: asked},
		"not asked for":                {want: "not requested"},
		"left out":                     {request: asked, outcome: canary.Outcome{NoCanary: "x"}, want: "it cannot be made"},
		"goes live already":            {request: asked, there: made(plan.Succeeded, ""), inModel: true, want: "the model uses the version"},
		"is built":                     {request: asked, there: made("Creating", "2026-01-02"), inModel: true},
		"proved":                       {request: asked, there: made(plan.Succeeded, "2026-01-02T03:04:05Z"), want: "clones of it came up"},
		"without a judgement":          {request: asked, there: made(plan.Succeeded, plan.Unjudged)},
		"of a capture without canary":  {request: asked, there: made(plan.Succeeded, "")},
		"Failed, of an earlier canary": {request: asked, there: made(plan.Failed, "2026-01-02T03:04:05Z")},
	} {
		if got := c.outcome.Skip(c.request, c.there, c.inModel); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestEnded says what becomes of a version whose canary failed.
func TestEnded(t *testing.T) {
	for _, c := range []struct{ step, quarantine, want string }{
		{canary.StepCanary, "", "the model was not changed, and 2026.1.2 is kept"},
		{canary.StepJudge, "", "the model was not changed, and 2026.1.2 is kept"},
		{canary.StepJudge, "no Node", "the model was not changed, and 2026.1.2 stays, quarantined"},
		{"version", "", ""},
	} {
		var mu sync.Mutex
		x := canary.Canary{Outcome: workflow.PartOf(&mu, &canary.Outcome{Quarantine: c.quarantine}), Of: func() canary.Version { return canary.Version{ID: "/versions/2026.1.2"} }}
		if got := x.Ended(c.step); got != c.want {
			t.Errorf("%s: %q, want %q", c.step, got, c.want)
		}
	}
}
