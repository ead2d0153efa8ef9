package renew_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/azsim"
)

// While an upgrade that Azure could not do is tried again, for up to an hour, the rollout shows why.
func TestUpgradeThatIsTriedAgain(t *testing.T) {
	play(t, 2, func(w *world) {
		if err := w.azure.AddFault(azsim.Fault{Path: "/manualupgrade$", Count: 3, Effect: azsim.EffectFailAtEnd, Status: http.StatusInternalServerError}); err != nil {
			t.Fatal(err)
		}
		r, err := w.rollout(w.Context(), request())
		shown := slices.ContainsFunc(w.lines, func(l string) bool { return strings.HasPrefix(l, "progress pool1: retry for up to 1h0m0s: upgrade") })
		if err != nil || len(r.Renewed) != 2 || !shown {
			t.Errorf("shown: %t; %+v, %v\n%s", shown, r, err, strings.Join(w.lines, "\n"))
		}
	})
}
