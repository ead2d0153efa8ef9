package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/k3s/lifecycle"
)

// restore and backup --delete take the names of the list.
func TestBackupNamesAreWhole(t *testing.T) {
	const name = "a-name-of-20-letters-20261129-120150-germanywestcentral"
	var out strings.Builder
	writeBackups(&out, []lifecycle.Backup{{Name: name, K3s: "v1.36.3+k3s1", SizeGB: 8, State: "Succeeded", Why: "before another k3s"}}, time.Time{})
	if !strings.Contains(out.String(), name) {
		t.Errorf("no %s in\n%s", name, out.String())
	}
}
