package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const packedImage = "registry.example/team/ortet@sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"

// filesIn returns the files of a package.
func filesIn(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(zipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(text)
	}
}

func TestPackagesNameVersionAndImage(t *testing.T) {
	type values struct {
		Image struct{ Repository, Tag, Digest string }
		Ortet struct{ Image string }
	}
	for _, image := range []string{packedImage, ""} {
		first, second := t.TempDir(), t.TempDir()
		for _, out := range []string{first, second} {
			if err := packAll(out, "v1.2.3", image, []string{"../../charts/ortet", "../../charts/vmss-prototype/"}); err != nil {
				t.Fatal(err)
			}
		}
		for _, chart := range []string{"ortet", "vmss-prototype"} {
			one, err := os.ReadFile(filepath.Join(first, chart+"-1.2.3.tgz"))
			if err != nil {
				t.Fatal(err)
			}
			two, err := os.ReadFile(filepath.Join(second, chart+"-1.2.3.tgz"))
			if err != nil || !bytes.Equal(one, two) {
				t.Errorf("two packages of %s differ (%v)", chart, err)
			}
			files := filesIn(t, filepath.Join(first, chart+"-1.2.3.tgz"))
			var meta struct{ Name, Version, AppVersion string }
			if err := yaml.Unmarshal([]byte(files[chart+"/Chart.yaml"]), &meta); err != nil || meta.Name != chart || meta.Version != "1.2.3" || meta.AppVersion != "1.2.3" {
				t.Errorf("%s: Chart.yaml has %+v (%v)", chart, meta, err)
			}
			var v values
			if err := yaml.Unmarshal([]byte(files[chart+"/values.yaml"]), &v); err != nil {
				t.Fatal(err)
			}
			var want values
			if repository, digest, ok := strings.Cut(image, "@"); ok && chart == "ortet" {
				want.Image.Repository, want.Image.Digest = repository, digest
			} else {
				want.Ortet.Image = image
			}
			if v != want {
				t.Errorf("%s with image %q: the values name %+v", chart, image, v)
			}
			// All else is as in the folder, comments and order of lines included.
			changed := 0
			for name, text := range files {
				source, err := os.ReadFile("../../charts/" + name)
				if err != nil {
					t.Fatal(err)
				}
				was, is := strings.Split(string(source), "\n"), strings.Split(text, "\n")
				if len(was) != len(is) {
					t.Fatalf("%s has %d lines, its source %d", name, len(is), len(was))
				}
				for i := range is {
					if was[i] != is[i] {
						changed++
					}
				}
			}
			edited := map[string]int{"ortet": 4, "vmss-prototype": 3}[chart]
			if image == "" {
				edited = 2
			}
			if changed != edited {
				t.Errorf("%s with image %q: %d lines differ from its source, want %d", chart, image, changed, edited)
			}
			if files[chart+"/values.schema.json"] == "" || files[chart+"/templates/NOTES.txt"] == "" {
				t.Errorf("%s lacks files: %q", chart, slices.Sorted(maps.Keys(files)))
			}
		}
	}
}

func TestHelmignore(t *testing.T) {
	chart := filepath.Join(t.TempDir(), "ortet")
	for name, text := range map[string]string{
		".helmignore": "# comment\n*.bak\nnotes/\n/ci/values.yaml\n",
		"Chart.yaml":  "name: ortet\nversion: 0.1.0 # the tag's\nappVersion: \"0.1.0\"\n", "values.yaml": "image: {}\n",
		"a.bak": "", "templates/b.bak": "", "notes/c": "", "ci/values.yaml": "", "templates/notes.yaml": "",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(chart, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(chart, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := t.TempDir()
	if err := packAll(out, "1.0.0-rc.1", "", []string{chart}); err != nil {
		t.Fatal(err)
	}
	files := filesIn(t, filepath.Join(out, "ortet-1.0.0-rc.1.tgz"))
	if got := strings.Join(slices.Sorted(maps.Keys(files)), " "); got != "ortet/.helmignore ortet/Chart.yaml ortet/templates/notes.yaml ortet/values.yaml" {
		t.Errorf("packed: %s", got)
	}
	if got := files["ortet/Chart.yaml"]; got != "name: ortet\nversion: \"1.0.0-rc.1\" # the tag's\nappVersion: \"1.0.0-rc.1\"\n" {
		t.Errorf("Chart.yaml is\n%s", got)
	}
	if err := os.WriteFile(filepath.Join(chart, ".helmignore"), []byte("!a.bak\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := packAll(out, "1.0.0", "", []string{chart}); err == nil || !strings.Contains(err.Error(), `pattern "!a.bak" is not supported`) {
		t.Errorf("got %v", err)
	}
}

func TestChartsRefuse(t *testing.T) {
	for says, args := range map[string][3]string{
		"tag the commit as vMAJOR.MINOR.PATCH": {"2ad2160", "", "../../charts/ortet"},
		"want REPOSITORY@sha256:DIGEST":        {"1.0.0", "registry.example/ortet:v1", "../../charts/ortet"},
		"no Chart.yaml or no values.yaml":      {"1.0.0", "", "../../charts/testdata"},
		"no value is known to name the image":  {"1.0.0", packedImage, "../../charts/testdata"},
		"pack chart testdata/none: ":           {"1.0.0", "", "testdata/none"},
	} {
		out := t.TempDir()
		err := packAll(out, args[0], args[1], []string{args[2]})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: got %v, want %q", args, err, says)
		}
		if entries, err := os.ReadDir(out); err != nil || len(entries) > 0 {
			t.Errorf("%v: left %v (%v)", args, entries, err)
		}
	}
}
