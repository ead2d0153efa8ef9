//go:build e2e

package nodeconfig_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/nodeconfig"
)

// cloud-init reads userData where a scale set has no customData.
func TestCloudInitSchema(t *testing.T) {
	program, err := exec.LookPath("cloud-init")
	if err != nil {
		t.Skip("cloud-init is not installed (apt-get install cloud-init)")
	}
	// Long lines, and what YAML or a header could stumble over.
	c := nodeconfig.Config{Files: []nodeconfig.File{{Path: "/etc/motd", Content: strings.Repeat("#cloud-config\n- : {\t\x00ü\n", 500)}}}
	userData, err := nodeconfig.Document{Pool: "/subscriptions/s/p", Generation: 1, Config: c}.Sign(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}
	text, err := base64.StdEncoding.DecodeString(userData)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "userdata")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), program, "schema", "--config-file", file).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Valid") || strings.Contains(strings.ToLower(string(out)), "warning") {
		t.Errorf("%v: %s", err, out)
	}
}
