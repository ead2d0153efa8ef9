package cli

import (
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/plan"
)

// What a capture prints of new nodes is what it added, not what this command's flag says.
func TestOutcomeNewNodesArePrintedFromTheResult(t *testing.T) {
	r := capture.Result{Pool: pool1, Version: pool1.Child("versions", "2026.11.28"), Resumed: true}
	var text strings.Builder
	if writeCapture(&text, r); strings.Contains(text.String(), "ew node:") || strings.Contains(text.String(), "it came up") {
		t.Errorf("no nodes were added: %s", text.String())
	}
	r.NewNodes = []plan.NewNode{{Instance: "pool1_4", Node: "pool1000004", Ready: true}, {Instance: "pool1_5", Why: "it has no Node"}}
	writeCapture(&text, r)
	for _, want := range []string{"New nodes:", "pool1000004: Ready", "pool1_5: not Ready when it was added: it has no Node"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing in: %s", want, text.String())
		}
	}
}
