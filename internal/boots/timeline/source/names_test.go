package source

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every span that the readers make of testdata is of a source and a name that
// docs/reference/boot.md lists.
func TestNamesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/reference/boot.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string][]string{} // by source: its names
	for line := range strings.SplitSeq(string(text), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 6 {
			continue
		}
		source := strings.Trim(strings.TrimSpace(cells[1]), "`")
		for i, name := range strings.Split(cells[2], "`") {
			if i%2 == 1 {
				listed[source] = append(listed[source], name)
			}
		}
	}
	files, err := filepath.Glob("testdata/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if info, err := os.Stat(path); err != nil || info.IsDir() {
			continue
		}
		for _, r := range readFile(t, filepath.Base(path), Options{}) {
			for _, s := range r.Spans {
				found := false
				for _, name := range listed[s.Source] {
					fixed, _, open := strings.Cut(name, "<")
					// As many parts, of which the variable one may have more.
					found = found || s.Name == name || open && strings.HasPrefix(s.Name, fixed) && strings.Count(s.Name, "/") >= strings.Count(name, "/")
				}
				if !found {
					t.Errorf("%s: docs/reference/boot.md does not list %s of %s", path, s.Name, s.Source)
				}
			}
		}
	}
}
