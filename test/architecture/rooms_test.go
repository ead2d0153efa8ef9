package architecture

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sources calls f with each Go file of the repository and its room, those of the modules in
// hack and test too.
func sources(t *testing.T, rooms map[string][]string, f func(room, path, text string)) {
	t.Helper()
	const root = "../.."
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		text, err := os.ReadFile(path)
		path, _ = strings.CutPrefix(filepath.ToSlash(path), root+"/")
		f(roomOf(path, rooms), path, string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestRooms prints the rooms of ARCHITECTURE.md with their lines of Go without tests and the
// rooms that each imports. Rooms that import each other in a circle are one room: it fails.
func TestRooms(t *testing.T) {
	rooms := rooms(t)
	imports, edges := map[string]map[string]bool{}, 0
	for _, p := range list(t, nil, "./...") {
		from := roomOf(strings.TrimPrefix(p.ImportPath, module+"/"), rooms)
		for _, imported := range p.Imports {
			ours, ok := strings.CutPrefix(imported, module+"/")
			to := roomOf(ours, rooms)
			if !ok || to == from || imports[from][to] {
				continue
			}
			if imports[from] == nil {
				imports[from] = map[string]bool{}
			}
			imports[from][to] = true
			edges++
		}
	}
	lines, tests := map[string]int{}, map[string]int{}
	sources(t, rooms, func(room, path, text string) {
		of := lines
		if strings.HasSuffix(path, "_test.go") {
			of = tests
		}
		top, _, _ := strings.Cut(path, "/")
		for _, sum := range []string{room, "all of " + top, "all"} {
			of[sum] += strings.Count(text, "\n")
		}
	})
	internal := 0
	for _, room := range slices.Sorted(maps.Keys(rooms)) {
		if strings.HasPrefix(room, "internal/") {
			internal++
		}
		t.Logf("%6d lines  %-29s %2d imports: %s", lines[room], room, len(imports[room]), strings.Join(slices.Sorted(maps.Keys(imports[room])), " "))
	}
	cycles := circles(imports)
	for _, c := range cycles {
		t.Errorf("these rooms import each other, so none of them can be understood alone: %s", strings.Join(c, " "))
	}
	t.Logf("%d rooms, %d of them in internal; %d imports from room to room; %d cycles; %d lines without tests (internal %d, azsim %d), %d of tests",
		len(rooms), internal, edges, len(cycles), lines["all"], lines["all of internal"], lines["all of azsim"], tests["all"])
}

// circles lists the sets of two or more rooms each of which imports the others, directly or
// not.
func circles(imports map[string]map[string]bool) (all [][]string) {
	reach := map[string]map[string]bool{}
	for from := range imports {
		reach[from] = map[string]bool{}
		for next := []string{from}; len(next) > 0; next = next[1:] {
			for to := range imports[next[0]] {
				if !reach[from][to] {
					reach[from][to] = true
					next = append(next, to)
				}
			}
		}
	}
	for _, from := range slices.Sorted(maps.Keys(reach)) {
		var circle []string
		for to := range reach[from] {
			if reach[to][from] {
				circle = append(circle, to)
			}
		}
		if slices.Sort(circle); len(circle) > 0 && circle[0] == from {
			all = append(all, circle)
		}
	}
	return all
}

// Rooms that import each other by way of a third are found too, once.
func TestCirclesAreFound(t *testing.T) {
	imports := map[string]map[string]bool{"a": {"b": true}, "b": {"c": true}, "c": {"b": true, "d": true}, "d": {"e": true}, "f": {"a": true}}
	if got := circles(imports); len(got) != 1 || !slices.Equal(got[0], []string{"b", "c"}) {
		t.Errorf("circles are %v, want b and c once", got)
	}
}
