package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// TestImage: the image runs as no root, and the documents beside it name that
// image, its binaries, and a module that is known to be in them.
func TestImage(t *testing.T) {
	folder := t.TempDir()
	program := filepath.Join(folder, "image")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build a binary to pack: %v\n%s", err, out)
	}
	archive := filepath.Join(folder, "image.tar")
	if err := write(archive, "localhost/ortet:dev", "test", runtime.GOARCH, []string{program}); err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(archive, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != user {
		t.Errorf("the image runs as %q, want %s", config.Config.User, user)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}

	var bill spdxDocument
	read(t, archive+".spdx.json", &bill)
	ids := map[string]bool{bill.ID: true}
	found := false
	for _, p := range bill.Packages {
		if ids[p.ID] {
			t.Errorf("two packages have the id %s", p.ID)
		}
		ids[p.ID] = true
		found = found || strings.HasPrefix(p.Name, "github.com/google/go-containerregistry") && p.Version != "" && strings.Contains(p.Comment, "h1:")
	}
	if !found {
		t.Error("the bill of materials lacks a module of the binary, with its version and sum")
	}
	for _, r := range bill.Relationships {
		if !ids[r.From] || !ids[r.To] {
			t.Errorf("%s %s %s: one of the two is not in the document", r.From, r.Type, r.To)
		}
	}

	var origin statement
	read(t, archive+".intoto.json", &origin)
	if len(origin.Subject) != 1 || origin.Subject[0].Digest["sha256"] != digest.Hex {
		t.Errorf("the statement is of %+v, want the image with digest %s", origin.Subject, digest)
	}
	if origin.Predicate.Definition.Internal["image"]["go"] != runtime.Version() {
		t.Errorf("the statement has the build settings %+v, want Go %s", origin.Predicate.Definition.Internal, runtime.Version())
	}
}

func read(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}
