package architecture

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestVulncheck: what hack/vulncheck.sh makes of each end of govulncheck. A database
// that does not answer is no success that nobody sees.
func TestVulncheck(t *testing.T) {
	for _, c := range []struct {
		name, tool string
		fails      bool
		says       string
	}{
		{"nothing found", "echo No vulnerabilities found.", false, "no known vulnerability is reached"},
		{"found", "echo 'Vulnerability #1: GO-2026-0001'; exit 3", true, "GO-2026-0001"},
		{"unreachable", "echo 'govulncheck: fetching vulnerabilities: 503'; exit 1", false, "NOT RUN"},
		{"behind a proxy", "echo 'proxyconnect tcp: dial tcp 192.0.2.1:3128: connection refused'; exit 1", false, "NOT RUN"},
		{"silent", "exec sleep 60", false, "NOT RUN"},
		{"does not build", "echo 'loading packages: undefined: x'; exit 1", true, "undefined: x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tool := filepath.Join(t.TempDir(), "govulncheck")
			// A process that another test starts now would have it open for writing: it could not be run.
			syscall.ForkLock.RLock()
			err := os.WriteFile(tool, []byte("#!/bin/sh\n"+c.tool+"\n"), 0o700)
			syscall.ForkLock.RUnlock()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "../../hack/vulncheck.sh", tool, t.TempDir())
			if c.name == "silent" { // the others end by themselves, however late
				cmd.Env = append(os.Environ(), "VULNCHECK_TIMEOUT=1s")
			}
			out, err := cmd.CombinedOutput()
			if (err != nil) != c.fails || !strings.Contains(string(out), c.says) {
				t.Errorf("%v, want a failure: %t, and %q:\n%s", err, c.fails, c.says, out)
			}
		})
	}
}
