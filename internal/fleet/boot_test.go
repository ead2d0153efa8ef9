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

func TestBootBecameNode(t *testing.T) {
	const group = "/subscriptions/s/resourceGroups/G/providers/Microsoft.Compute/"
	for _, tc := range []struct {
		instance   ResourceID
		providerID string
		want       bool
	}{
		{group + "virtualMachineScaleSets/p/virtualMachines/3", "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/p/virtualMachines/3", true},
		{group + "virtualMachines/p_1c0ffee0", "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/p_1c0ffee0", true},
		{group + "virtualMachines/p_1c0ffee0", "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/p_1c0ffee1", false},
		{group + "virtualMachines/p_1c0ffee0", "", false},
		{"", "azure://", false},
	} {
		if got := (Boot{Instance: tc.instance}).Became(tc.providerID); got != tc.want {
			t.Errorf("%s, %s: %v", tc.instance, tc.providerID, got)
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
