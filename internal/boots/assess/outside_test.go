package assess

import (
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// A verdict from outside says nothing of what only the node knows: without a Node and
// without evidence the cause is unknown, and the console's last lines are shown.
func TestOutsideClaimsNothing(t *testing.T) {
	const login = "[    6.310441] systemd[1]: Reached target multi-user.target.\r\n\r\nUbuntu 24.04 LTS pool1000003 ttyS0\r\n\r\n"
	for name, c := range map[string]struct {
		change func(*fleet.Boot)
		serial string
		shows  string
	}{
		"an empty console":       {func(*fleet.Boot) {}, "", "nothing was read of its serial console"},
		"without a console":      {func(b *fleet.Boot) { b.Console = false }, "", "nothing was read of its serial console"},
		"a console that is well": {func(*fleet.Boot) {}, login, "Ubuntu 24.04 LTS pool1000003 ttyS0"},
		"AKS's script succeeded": {saying("Microsoft.Azure.Extensions.CustomScript", "ProvisioningState/succeeded", `Enable succeeded: {"ExitCode": "0", "Output": "x", "Error": ""}`), login, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := Assess(aBoot(c.change), nil, []byte(c.serial), Assessment{}, noon.Add(12*time.Minute), Deadlines{})
			if a.State != TimedOut || a.Reason() != wire.ReasonUnknown || a.Owner() != "" {
				t.Errorf("%s, %s, owner %q", a.State, a.Reason(), a.Owner())
			}
			text := a.ConditionMessage()
			for _, claim := range []string{"kubelet", "cloud-init", "sentinel", "does not know the node", "journal"} {
				if strings.Contains(text, claim) {
					t.Errorf("it claims to know of %s: %s", claim, text)
				}
			}
			if !strings.Contains(text, c.shows) {
				t.Errorf("it does not show %q: %s", c.shows, text)
			}
			if c.serial == "" {
				return
			}
			if v := a.Verdict.Evidence; len(v) == 0 || !strings.Contains(strings.Join(v[0].Lines, "\n"), "Reached target") {
				t.Errorf("the console's last lines are not evidence: %+v", v)
			}
		})
	}
}
