package fleet

import (
	"strings"
	"testing"
)

func TestParseStatusCode(t *testing.T) {
	for code, want := range map[string][3]string{
		"":                            {},
		"odd":                         {},
		"ProvisioningState/Succeeded": {"", "succeeded", ""},
		"ProvisioningState/failed/OSProvisioningTimedOut": {"", "failed", "OSProvisioningTimedOut"},
		"ProvisioningState/failed/-1":                     {"", "failed", "-1"},
		"PowerState/running":                              {"", "running", ""},
		"ComponentStatus/StdOut/succeeded":                {"StdOut", "succeeded", ""},
		"componentStatus/kubelet/Failed/7":                {"kubelet", "failed", "7"},
		"ComponentStatus/a/b/transitioning":               {"a/b", "transitioning", ""},
		"ComponentStatus/7/succeeded":                     {"7", "succeeded", ""},
		"ComponentStatus/succeeded":                       {"", "succeeded", ""},
		"ComponentStatus/":                                {},
	} {
		name, state, reason := ParseStatusCode(code)
		if got := [3]string{name, state, reason}; got != want {
			t.Errorf("%q: %q, want %q", code, got, want)
		}
	}
}

func FuzzParseStatusCode(f *testing.F) {
	f.Add("ComponentStatus/kubelet/failed/7")
	f.Add("ProvisioningState/failed/x/y")
	f.Add("ComponentStatus///")
	f.Fuzz(func(t *testing.T, code string) {
		name, state, reason := ParseStatusCode(code)
		if state != strings.ToLower(state) || strings.Contains(state, "/") {
			t.Errorf("%q: state %q", code, state)
		}
		for _, part := range []string{name, reason} {
			if !strings.Contains(code, part) {
				t.Errorf("%q has no %q", code, part)
			}
		}
	})
}
