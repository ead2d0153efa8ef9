package model

import (
	"context"
	"sync"
	"testing"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/workflow"
)

// TestCustomData replaces the model's customData only by what the version needs.
func TestCustomData(t *testing.T) {
	baked := plan.Request{Bootstrap: plan.BootstrapBaked}
	for name, c := range map[string]struct {
		of         Target
		last, kept string // SHA-256 of what Ortet gave the model, and of what is saved
		want       string // "" leaves the model's
		fails      bool
	}{
		"never set, version needs its own": {of: Target{CustomData: "a"}, kept: "a"},
		"version needs none":               {of: Target{}, last: "a", kept: "a"},
		"another was set":                  {of: Target{CustomData: "a"}, last: "b", kept: "a", want: "a"},
		"set again after a crash":          {of: Target{CustomData: "a"}, last: "a", kept: "a", want: "a"},
		"set, and not kept any more":       {of: Target{CustomData: "a"}, last: "a"},
		"another was set, and not kept":    {of: Target{CustomData: "a"}, last: "b", fails: true},
		"baked":                            {of: Target{Request: baked, CustomData: "a"}, kept: plan.NoopSHA256, want: plan.NoopSHA256},
		"baked before":                     {of: Target{CustomData: plan.NoopSHA256}, kept: plan.NoopSHA256, want: plan.NoopSHA256},
	} {
		var mu sync.Mutex
		m := Model{Of: func() Target { return c.of }, Inherited: workflow.PartOf(&mu, &plan.Inherited{LastCustomData: c.last}),
			CustomData: func(_ context.Context, sha string) (fleet.Secret, error) {
				if sha != c.kept {
					return fleet.Secret{}, &fleet.Error{Op: "get secret", Kind: fleet.KindNotFound}
				}
				return fleet.NewSecret(sha), nil
			}}
		got, err := m.customData(t.Context())
		is := got == nil && c.want == "" || got != nil && got.Reveal() == c.want
		if c.fails != fleet.Is(err, fleet.KindInvalid) || err == nil && !is {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
