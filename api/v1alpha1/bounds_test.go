package v1alpha1_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/api/v1alpha1"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/donors"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/watch"
	"github.com/ortet/ortet/internal/wire"
)

// hms is a duration as the schema has it: 2m, 744h.
func hms(d time.Duration) string {
	s := d.String()
	s = strings.TrimSuffix(s, "0s")
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// What the schema takes and sets is what the command line does.
func TestBoundsAreTheCommandLines(t *testing.T) {
	root, _ := definition(t)
	at := func(path string) *schema {
		t.Helper()
		s := root.Properties["spec"]
		for name := range strings.SplitSeq(path, ".") {
			if s = s.Properties[name]; s == nil {
				t.Fatalf("the CRD has no spec.%s", path)
			}
		}
		return s
	}
	request := capture.Request{}.WithDefaults()
	for _, c := range []struct {
		path, what string
		got, want  any
	}{
		{"capture.history", "default", at("capture.history").Default, request.History},
		{"capture.gracePeriod", "default", at("capture.gracePeriod").Default, hms(request.GracePeriod)},
		{"capture.acceptSecrets", "maximum", *at("capture.acceptSecrets").MaxItems, wire.MaxAcceptedSecrets},
		{"canary.clones", "default", at("canary.clones").Default, plan.DefaultCanary},
		{"canary.clones", "maximum", *at("canary.clones").Maximum, fleet.MaxCanary},
		{"canary.soak", "default", at("canary.soak").Default, hms(request.CanarySoak)},
		{"watch.nodes", "default", at("watch.nodes").Default, watch.DefaultNodes},
		{"watch.nodes", "maximum", *at("watch.nodes").Maximum, watch.MaxNodes},
		{"watch.duration", "default", at("watch.duration").Default, hms(watch.DefaultFor)},
	} {
		if fmt.Sprint(c.got) != fmt.Sprint(c.want) {
			t.Errorf("spec.%s has the %s %v, and the command line %v", c.path, c.what, c.got, c.want)
		}
	}
	for path, bounds := range map[string][]time.Duration{
		"canary.soak":    {plan.MaxSoak},
		"watch.duration": {watch.MinFor, watch.MaxFor},
	} {
		for _, d := range bounds {
			if s := at(path); !strings.Contains(s.Rules[0].Rule, "duration('"+hms(d)+"')") {
				t.Errorf("spec.%s is not bounded by the command line's %s: %s", path, hms(d), s.Rules[0].Rule)
			}
		}
	}
	var rules []string
	for _, r := range donors.Rules() {
		if r.Ours {
			rules = append(rules, r.Name)
		}
	}
	if skipped := at("donors.skipRules"); !slices.Equal(skipped.Items.Enum, rules) || *skipped.MaxItems != len(rules) {
		t.Errorf("spec.donors.skipRules takes %d of %q; the rules that may be skipped are %q", *skipped.MaxItems, skipped.Items.Enum, rules)
	}
}

// The operator takes the values of an enum in lower case as those of the command line.
func TestEnumsAreTheCommandLines(t *testing.T) {
	for is, want := range map[string]string{
		string(v1alpha1.BootstrapKeep): plan.BootstrapKeep, string(v1alpha1.BootstrapBaked): plan.BootstrapBaked,
		string(v1alpha1.BadNodesCordon): watch.Cordon, string(v1alpha1.BadNodesDelete): watch.Delete,
		string(v1alpha1.BadNodesLeave): watch.Leave,
	} {
		if strings.ToLower(is) != want {
			t.Errorf("%s is not the command line's %s", is, want)
		}
	}
}
