package architecture

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
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

// longLines are how many lines over 140 columns, tabs as 4, each room has without tests: none
// may get more. Where lines were broken, the number here is lowered.
var longLines = map[string]int{
	"internal/operator":              1,
	"internal/image/capture/fresh":   0,
	"internal/image/capture/version": 3,
	"internal/image/capture/report":  6,
	"internal/image/capture/model":   9,
	"internal/image/capture/donor":   11,
	"internal/image/capture/canary":  11,
	"internal/cluster/conversion":    3,
	"internal/cluster/apierror":      3,
	"internal/boots/survey":          13,
	"internal/boots/assess":          2,
	"azsim":                          452,
	"azsim/metadata":                 3,
	"bench":                          38,
	"cmd/azsim":                      8,
	"cmd/ortet":                      1,
	"cmd/ortet-node":                 22,
	"hack":                           41,
	"hack/pictures":                  24,
	"internal/admission":             76,
	"internal/admission/attest":      2,
	"internal/admission/kube":        47,
	"internal/azure":                 15,
	"internal/azure/arm":             33,
	"internal/azure/credential":      4,
	"internal/boots/controller":      19,
	"internal/boots/explain":         33,
	"internal/boots/timeline":        81,
	"internal/boots/timeline/source": 32,
	"internal/boots/verdict":         157,
	"internal/cli":                   160,
	"internal/cluster":               71,
	"internal/cluster/kube":          35,
	"internal/fleet":                 9,
	"internal/image/auto":            4,
	"internal/image/capture":         26,
	"internal/image/donors":          4,
	"internal/image/plan":            42,
	"internal/image/prove":           3,
	"internal/image/rollback":        10,
	"internal/image/watch":           6,
	"internal/journal":               2,
	"internal/k3s":                   6,
	"internal/k3s/agents":            7,
	"internal/k3s/lifecycle":         99,
	"internal/k3s/recipe":            16,
	"internal/node":                  234,
	"internal/nodeconfig":            12,
	"internal/nodeconfig/file":       10,
	"internal/nodeconfig/push":       32,
	"internal/redact":                145,
	"internal/wire":                  4,
	"internal/workflow":              2,
	"internal/yamlfile":              2,
	"test":                           22,
	"test/kubesim":                   53,
	"test/kubesim/serve":             2,
	"test/serverboot":                3,
}

// A line that does not fit the window is read by nobody. controller-gen reads a marker from one line.
func TestLinesGetNoLonger(t *testing.T) {
	rooms := rooms(t)
	count := map[string]int{}
	sources(t, rooms, func(room, path, text string) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		for line := range strings.Lines(text) {
			if strings.HasPrefix(strings.TrimSpace(line), "// +kubebuilder:") {
				continue
			}
			if utf8.RuneCountInString(strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", "    ")) > 140 {
				count[room]++
			}
		}
	})
	for _, room := range slices.Sorted(maps.Keys(rooms)) {
		switch n, most := count[room], longLines[room]; {
		case n > most:
			t.Errorf("%s has %d lines of Go over 140 columns, %d are allowed: break %d", room, n, most, n-most)
		case n < most:
			t.Errorf("%s has %d lines of Go over 140 columns, fewer than the %d of longLines: write %d there", room, n, most, n)
		}
	}
	for room := range longLines {
		if rooms[room] == nil {
			t.Errorf("longLines has %s, which is no room", room)
		}
	}
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
