// Command charts packs Helm charts as `helm package` does, the same, bit for bit, for the
// same charts: with the version, and with the image by its digest as the default of the
// values that name one. It edits the text of Chart.yaml and values.yaml, so that the
// comments stay.
package main

import (
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/ortet/ortet/hack/reproducible"
)

func main() {
	out := flag.String("out", "dist", "folder to write the packages to")
	release := flag.String("version", "", "version of the charts and of Ortet, as of a tag: v1.2.3")
	image := flag.String("image", "", "default of the values that name Ortet's image, REPOSITORY@sha256:DIGEST; without it the charts name none")
	flag.Parse()
	if err := packAll(*out, *release, *image, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "charts:", err)
		os.Exit(1)
	}
}

func packAll(out, release, image string, charts []string) error {
	if len(charts) == 0 {
		return fmt.Errorf("no charts: name their folders")
	}
	if _, err := version.ParseSemantic(release); err != nil {
		return fmt.Errorf("read version %q: %w; tag the commit as vMAJOR.MINOR.PATCH", release, err)
	}
	release = strings.TrimPrefix(release, "v")
	if image != "" {
		if _, err := name.NewDigest(image, name.StrictValidation); err != nil {
			return fmt.Errorf("read image: %w; want REPOSITORY@sha256:DIGEST", err)
		}
	}
	for _, chart := range charts {
		files, err := filesOf(chart, release, image)
		if err != nil {
			return fmt.Errorf("pack chart %s: %w", chart, err)
		}
		path := filepath.Join(out, filepath.Base(chart)+"-"+release+".tgz")
		err = reproducible.Save(path, func(w io.Writer) error {
			zipped := gzip.NewWriter(w)
			return errors.Join(reproducible.Tar(zipped, files), zipped.Close())
		})
		if err != nil {
			return err
		}
		fmt.Println(path)
	}
	return nil
}

// filesOf returns the files of a chart with its version and image.
func filesOf(chart, release, image string) ([]reproducible.File, error) {
	ignored, err := ignoredBy(filepath.Join(chart, ".helmignore"))
	if err != nil {
		return nil, err
	}
	edits := map[string][]edit{
		"Chart.yaml":  {{"version", release}, {"appVersion", release}},
		"values.yaml": nil,
	}
	if image != "" {
		repository, digest, _ := strings.Cut(image, "@")
		edits["values.yaml"] = map[string][]edit{
			"ortet":          {{"image.repository", repository}, {"image.digest", digest}},
			"vmss-prototype": {{"ortet.image", image}},
		}[filepath.Base(chart)]
		if edits["values.yaml"] == nil {
			return nil, fmt.Errorf("no value is known to name the image")
		}
	}
	var files []reproducible.File
	tree := os.DirFS(chart)
	err = fs.WalkDir(tree, ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil || path == ".":
			return err
		case ignored(path, entry.IsDir()) && entry.IsDir():
			return fs.SkipDir
		case ignored(path, false) || entry.IsDir():
			return nil
		}
		content, err := fs.ReadFile(tree, path)
		if err != nil {
			return err
		}
		for _, e := range edits[path] {
			if content, err = e.apply(content); err != nil {
				return fmt.Errorf("edit %s: %w", path, err)
			}
		}
		delete(edits, path)
		files = append(files, reproducible.File{Name: filepath.Base(chart) + "/" + path, Mode: 0o644, Content: content})
		return nil
	})
	if err == nil && len(edits) > 0 {
		err = fmt.Errorf("no Chart.yaml or no values.yaml")
	}
	return files, err
}

// edit sets a scalar, named by the keys that lead to it.
type edit struct{ keys, value string }

// apply replaces the scalar where it stands in the text.
func (e edit) apply(text []byte) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	at := &document
	if len(at.Content) > 0 {
		at = at.Content[0]
	}
	for _, key := range strings.Split(e.keys, ".") {
		var next *yaml.Node
		for i := 0; at.Kind == yaml.MappingNode && i < len(at.Content); i += 2 {
			if at.Content[i].Value == key {
				next = at.Content[i+1]
			}
		}
		if next == nil {
			return nil, fmt.Errorf("no key %s", e.keys)
		}
		at = next
	}
	was := at.Value
	if at.Style == yaml.DoubleQuotedStyle {
		was = `"` + was + `"`
	}
	lines := strings.Split(string(text), "\n")
	line := lines[at.Line-1]
	rest, ok := strings.CutPrefix(line[at.Column-1:], was)
	if !ok || at.Kind != yaml.ScalarNode {
		return nil, fmt.Errorf("line %d: want %s as a plain or double-quoted scalar", at.Line, e.keys)
	}
	lines[at.Line-1] = line[:at.Column-1] + `"` + e.value + `"` + rest
	return []byte(strings.Join(lines, "\n")), nil
}

// ignoredBy returns whether a chart's .helmignore leaves a path out: a pattern without a
// slash matches names, with one whole paths, and a slash at its end folders only.
func ignoredBy(file string) (func(path string, folder bool) bool, error) {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var patterns []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if _, err := path.Match(line, ""); err != nil || strings.HasPrefix(line, "!") || strings.Contains(line, "**") {
			return nil, fmt.Errorf("read %s: pattern %q is not supported", file, line)
		}
		if line != "" && line[0] != '#' {
			patterns = append(patterns, line)
		}
	}
	return func(name string, folder bool) bool {
		for _, p := range patterns {
			p, onlyFolder := strings.CutSuffix(p, "/")
			subject := path.Base(name)
			if strings.Contains(p, "/") {
				subject, p = name, strings.TrimPrefix(p, "/")
			}
			if match, _ := path.Match(p, subject); match && (folder || !onlyFolder) {
				return true
			}
		}
		return false
	}, nil
}
