package main

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/node/config"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/wire"
)

// From userData to files, and back to what was there before, by the commands alone.
func TestConfigurationOfOneFile(t *testing.T) {
	key := ed25519.NewKeyFromSeed([]byte(strings.Repeat("k", ed25519.SeedSize)))
	root, userData := t.TempDir(), ""
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	settings, err := json.Marshal(config.Settings{Keys: []nodeconfig.PublicKey{nodeconfig.PublicKeyOf(key.Public().(ed25519.PublicKey))}})
	if err != nil {
		t.Fatal(err)
	}
	write(config.SettingsFile, string(settings))
	write("/etc/motd", "of the image\n")
	write("/var/lib/ortet/identity.json", "{}")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := json.NewEncoder(w).Encode(map[string]any{"userData": userData, "virtualMachineScaleSet": map[string]string{"id": "/subscriptions/S/p"}}); err != nil {
			t.Error(err)
		}
	}))
	defer s.Close()
	for _, c := range []struct {
		generation int64
		config     nodeconfig.Config
		motd       string
	}{
		{1, nodeconfig.Config{Files: []nodeconfig.File{{Path: "/etc/motd", Content: "of the document\n"}}}, "of the document\n"},
		{2, nodeconfig.Config{}, "of the image\n"},
	} {
		if userData, err = (nodeconfig.Document{Pool: "/subscriptions/s/p", Generation: c.generation, Config: c.config}).Sign(key); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		if code := runConfig(t.Context(), []string{"boot", "--root", root, "--metadata-service", s.URL}, stdio{out: &out, err: &errs}); code != exitOK {
			t.Fatalf("exit %d", code)
		}
		text, err := os.ReadFile(filepath.Join(root, "etc/motd"))
		if err != nil || string(text) != c.motd {
			t.Fatalf("generation %d: %q, %v: %s", c.generation, text, err, errs.String())
		}
		if code := runConfig(t.Context(), []string{"show", "-o", "json", "--root", root}, stdio{out: &out, err: &errs}); code != exitOK {
			t.Fatalf("exit %d: %s", code, errs.String())
		}
		var a wire.ConfigurationAnswer
		if err := json.Unmarshal(out.Bytes(), &a); err != nil || a.State != wire.ConfigurationApplied || a.Generation != c.generation {
			t.Fatalf("%v: %s%s", err, out.String(), errs.String())
		}
	}
}
