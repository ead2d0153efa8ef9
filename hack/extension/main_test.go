package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestPackageIsTheSameEachTime(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "ortet-node")
	var packed [2][]byte
	for i := range packed {
		if err := os.WriteFile(program, []byte("\x7fELF program"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(program, time.Time{}, time.Unix(int64(1e9*(i+1)), 0)); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(dir, "out.zip")
		if err := write(out, "../../deploy/extension/linux/HandlerManifest.json", program); err != nil {
			t.Fatal(err)
		}
		var err error
		if packed[i], err = os.ReadFile(out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(packed[0], packed[1]) {
		t.Error("two packages of the same program differ")
	}
	archive, err := zip.NewReader(bytes.NewReader(packed[0]), int64(len(packed[0])))
	if err != nil {
		t.Fatal(err)
	}
	modes := map[string]os.FileMode{}
	for _, f := range archive.File {
		modes[f.Name] = f.Mode()
	}
	if len(modes) != 2 || modes["bin/ortet-node"] != 0o755 || modes["HandlerManifest.json"] != 0o644 {
		t.Errorf("it holds %v", modes)
	}
}

func TestNothingIsLeftOfAPackageThatFailed(t *testing.T) {
	dir := t.TempDir()
	if err := write(filepath.Join(dir, "out.zip"), "none", "none"); err == nil {
		t.Error("a package of nothing")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// Each manifest runs the program where its package has it.
func TestManifests(t *testing.T) {
	for system, program := range map[string]string{"linux": "bin/ortet-node", "windows": `bin\ortet-node.exe`} {
		text, err := os.ReadFile("../../deploy/extension/" + system + "/HandlerManifest.json")
		if err != nil {
			t.Fatal(err)
		}
		var all []struct {
			Version  float64
			Manifest map[string]any `json:"handlerManifest"`
		}
		if err := json.Unmarshal(text, &all); err != nil || len(all) != 1 {
			t.Fatalf("%s: %v: %s", system, err, text)
		}
		for _, verb := range []string{"install", "uninstall", "update", "enable", "disable"} {
			if got := all[0].Manifest[verb+"Command"]; got != program+" extension "+verb {
				t.Errorf("%s: %sCommand is %v", system, verb, got)
			}
		}
		// See the package doc of internal/node/extension.
		if all[0].Manifest["reportHeartbeat"] != false || all[0].Manifest["supportsMultipleExtensions"] != false || !strings.EqualFold(all[0].Manifest["updateMode"].(string), "UpdateWithInstall") {
			t.Errorf("%s: %v", system, all[0].Manifest)
		}
	}
}
