package canary_test

import (
	"context"
	"slices"
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

// A cloud has no canary yet, and shows no usages.
type cloud struct{ azure.Cloud }

func (cloud) Pool(context.Context, fleet.ResourceID) (fleet.Pool, error) {
	return fleet.Pool{}, &fleet.Error{Op: "get scale set", Kind: fleet.KindNotFound}
}

func (cloud) Denied(context.Context, fleet.ResourceID, []string) ([]string, error) { return nil, nil }

func (cloud) Usages(context.Context, string, string) (map[string]fleet.Usage, error) { return nil, nil }

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
