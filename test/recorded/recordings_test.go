package recorded

import (
	"cmp"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

var (
	update = flag.Bool("update", false, "rewrite testdata/table.txt")
	one    = flag.String("session", "", "replay this session only, and print all differences with values")
	list   = flag.Bool("list", false, "print each kind of difference with its number and an example, with values")
)

const golden = "testdata/table.txt"

// azsim answers as Azure did as often as the table says.
func TestRecordings(t *testing.T) {
	sessions, hash := recordings(t)
	if *one != "" {
		n := slices.IndexFunc(sessions, func(s *session) bool { return s.Name == *one })
		if n < 0 {
			t.Fatalf("no session %q among %d", *one, len(sessions))
		}
		for _, r := range played(t, sessions[n]) {
			printResult(t, r)
		}
		return
	}
	all := make([][]*result, len(sessions))
	t.Run("sessions", func(t *testing.T) {
		for n, s := range sessions {
			t.Run(s.Source+"/"+s.Name, func(t *testing.T) {
				t.Parallel()
				all[n] = played(t, s)
			})
		}
	})
	if t.Failed() {
		return
	}
	if *list {
		t.Log("\n" + examples(slices.Concat(all...)))
	}
	got := table(len(sessions), hash, slices.Concat(all...))
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(want), "content "+hash) {
		t.Skipf("%s is of other recordings: its comparison is NOT RUN\n%s", golden, got)
	}
	if got != string(want) {
		t.Errorf("azsim answers otherwise than %s says: compare, and accept it by -args -update\n%s", golden, changedLines(string(want), got))
	}
	t.Log("\n" + got)
}

func played(t *testing.T, s *session) (results []*result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if results, err = replay(s); err != nil {
			t.Errorf("session %s: %v", s.Name, err)
		}
	})
	return results
}

func printResult(t *testing.T, r *result) {
	t.Helper()
	lines := []string{r.category.String() + "  " + r.request + "  " + r.typ}
	for _, d := range r.differences {
		line := "    " + d.detail
		if d.excused != "" {
			line += " (no difference: " + d.excused + ")"
		}
		lines = append(lines, line)
	}
	if r.detail != "" {
		lines = append(lines, "    azsim: "+r.detail)
	}
	t.Log(strings.Join(lines, "\n"))
}

// changedLines lists the lines that only one of two texts has.
func changedLines(want, got string) string {
	var out []string
	before, after := strings.Split(want, "\n"), strings.Split(got, "\n")
	for _, line := range before {
		if !slices.Contains(after, line) {
			out = append(out, "- "+line)
		}
	}
	for _, line := range after {
		if !slices.Contains(before, line) {
			out = append(out, "+ "+line)
		}
	}
	return strings.Join(out, "\n")
}

func cacheFolder() (string, error) {
	if named := os.Getenv("ORTET_CACHE"); named != "" {
		return named, nil
	}
	base, err := os.UserCacheDir()
	return filepath.Join(cmp.Or(base, os.TempDir()), "ortet"), err
}
