package patch

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The mark counts on the node, also where its var/run is an absolute link.
func TestRestartRequired(t *testing.T) {
	root := t.TempDir()
	for _, d := range []string{"run", "var"} {
		if err := os.Mkdir(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/run", filepath.Join(root, "var/run")); err != nil {
		t.Fatal(err)
	}
	if is, err := RestartRequired(root); is || err != nil {
		t.Errorf("without a mark: %t, %v", is, err)
	}
	if err := os.WriteFile(filepath.Join(root, "run/reboot-required"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if is, err := RestartRequired(root); !is || err != nil {
		t.Errorf("with a mark: %t, %v", is, err)
	}
}

// A root without a shell, as of a distribution that cannot be patched, is an error that names it.
func TestRunNeedsAShell(t *testing.T) {
	root := t.TempDir()
	var out bytes.Buffer
	if _, err := Run(t.Context(), root, &out); err == nil || !strings.Contains(err.Error(), "patch the node at "+root) {
		t.Errorf("%v", err)
	}
}
