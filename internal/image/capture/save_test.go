package capture_test

import (
	"slices"
	"testing"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/wire"
)

// TestUnsaved names the protected settings that are deleted and were not saved.
func TestUnsaved(t *testing.T) {
	const handler, lost = "Microsoft.Azure.Extensions.CustomScript", "protected settings of extension cse: the donor's disk has none of them"
	cse := plan.OriginalExtension{Extension: fleet.Extension{Name: "cse", Publisher: "Microsoft.Azure.Extensions", Type: "CustomScript",
		HasProtectedSettings: true}}
	known, plain := cse, cse
	known.ProtectedSHA256, plain.HasProtectedSettings = "abc", false
	failed := []string{"protected settings of " + handler + ": no key"}
	for name, c := range map[string]struct {
		e      plan.OriginalExtension
		stays  bool
		report wire.GeneralizeReport
		want   []string
	}{
		"nothing on the disk": {e: cse, want: []string{lost}},
		"saved": {e: cse, report: wire.GeneralizeReport{Saved: []wire.SealedItem{{Kind: wire.ProtectedSettings,
			Name: handler, SHA256: "abc"}}}},
		"saved by an earlier capture": {e: known},
		"has none":                    {e: cse, report: wire.GeneralizeReport{NoProtected: []string{handler}}},
		"not decrypted":               {e: cse, report: wire.GeneralizeReport{Unsaved: failed}, want: failed},
		"type without protected ones": {e: plain},
		"extension that stays":        {e: cse, stays: true},
		"customData that cannot be read": {e: known, report: wire.GeneralizeReport{Unsaved: []string{"customData: x"}},
			want: []string{"customData: x"}},
	} {
		toDelete := []string{"cse"}
		if c.stays {
			toDelete = nil
		}
		if got := capture.Unsaved(plan.Original{Extensions: []plan.OriginalExtension{c.e}}, toDelete, c.report); !slices.Equal(got,
			c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
