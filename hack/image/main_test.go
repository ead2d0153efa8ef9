package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// TestImage: the image runs as no root, and the documents beside it name that
// image, its binaries, and a module that is known to be in them.
func TestImage(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(folder, "image")
	if err := os.Symlink(own, program); err != nil {
		t.Fatal(err)
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
	if config.Architecture != runtime.GOARCH || len(origin.Subject) != 1 || origin.Subject[0].Digest["sha256"] != digest.Hex {
		t.Errorf("the statement is of %+v, want the image with digest %s", origin.Subject, digest)
	}
	if origin.Predicate.Definition.Internal["image"]["go"] != runtime.Version() {
		t.Errorf("the statement has the build settings %+v, want Go %s", origin.Predicate.Definition.Internal, runtime.Version())
	}
}

// TestIndex: one index of both architectures, the same for the same binaries, with its
// name where containerd and skopeo read it; the documents cover both.
func TestIndex(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	var platforms []string
	for _, arch := range []string{"amd64", "arm64"} {
		platforms = append(platforms, "linux/"+arch+"="+filepath.Join(folder, arch))
		build(t, filepath.Join(folder, arch, "ortet"), arch)
		if err := os.Link(filepath.Join(folder, arch, "ortet"), filepath.Join(folder, arch, "ortet-node")); err != nil {
			t.Fatal(err)
		}
	}
	archive, second := filepath.Join(folder, "1.tar"), filepath.Join(folder, "2.tar")
	for _, out := range []string{archive, second} {
		if err := writeIndex(out, "registry.example/ortet", "v1.2.3", platforms); err != nil {
			t.Fatal(err)
		}
		slices.Reverse(platforms)
	}
	for _, kind := range []string{"", ".spdx.json", ".intoto.json"} {
		one, err := os.ReadFile(archive + kind)
		if err != nil {
			t.Fatal(err)
		}
		two, err := os.ReadFile(second + kind)
		if err != nil || !bytes.Equal(one, two) {
			t.Errorf("two archives%s of the same binaries differ (%v)", kind, err)
		}
	}

	unpacked := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "tar", "-xf", archive, "-C", unpacked).CombinedOutput(); err != nil {
		t.Fatalf("unpack: %v\n%s", err, out)
	}
	outer, err := layout.ImageIndexFromPath(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := outer.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	entry := entries.Manifests[0]
	if a := entry.Annotations; len(entries.Manifests) != 1 || a["io.containerd.image.name"] != "registry.example/ortet:v1.2.3" || a["org.opencontainers.image.ref.name"] != "v1.2.3" {
		t.Errorf("the layout has the entries %+v", entries.Manifests)
	}
	index, err := outer.ImageIndex(entry.Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	digests := []string{entry.Digest.Hex}
	var archs []string
	for _, m := range manifest.Manifests {
		if m.ArtifactType != "" {
			t.Errorf("%s has the artifact type %s: skopeo drops it, and copies to another digest", m.Platform, m.ArtifactType)
		}
		image, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		archs = append(archs, m.Platform.String(), config.OS+"/"+config.Architecture)
		digests = append(digests, m.Digest.Hex)
	}
	if got := strings.Join(archs, " "); got != "linux/amd64 linux/amd64 linux/arm64 linux/arm64" {
		t.Errorf("platforms of manifests and configs are %s", got)
	}

	var bill spdxDocument
	read(t, archive+".spdx.json", &bill)
	text := fmt.Sprintf("%+v", bill)
	for _, want := range append([]string{"Name:linux/amd64/ortet ", "Name:linux/arm64/ortet-node "}, digests...) {
		if !strings.Contains(text, want) {
			t.Errorf("the bill of materials lacks %q: %s", want, text)
		}
	}
	var origin statement
	read(t, archive+".intoto.json", &origin)
	var subjects []string
	for _, s := range origin.Subject {
		subjects = append(subjects, s.Digest["sha256"])
	}
	if !slices.Equal(subjects, digests) {
		t.Errorf("the statement is of %q, want the index and both images %q", subjects, digests)
	}
	if settings := origin.Predicate.Definition.Internal["linux/arm64/ortet"]; settings["GOARCH"] != "arm64" {
		t.Errorf("the statement has for linux/arm64/ortet %v", settings)
	}
}

// What is built for another architecture would not start on the node.
func TestBinaryOfAnotherArchitectureIsRefused(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	program := filepath.Join(folder, "ortet")
	build(t, program, "arm64")
	for _, err := range []error{
		write(filepath.Join(folder, "image.tar"), "localhost/ortet:dev", "test", "amd64", []string{program}),
		writeIndex(filepath.Join(folder, "image.tar"), "localhost/ortet", "test", []string{"linux/amd64=" + folder}),
	} {
		if err == nil || !strings.Contains(err.Error(), "built for linux/arm64, not linux/amd64") {
			t.Errorf("got %v", err)
		}
	}
}

// build makes a program to pack.
func build(t *testing.T, program, arch string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./testdata/program")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build a binary to pack: %v\n%s", err, out)
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
