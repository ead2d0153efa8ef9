package architecture

import (
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// ours finds paths of the project: one of its top folders and a slash, at the beginning of a
// word, after the dots of a relative path, or after the module's or the repository's name.
var ours = regexp.MustCompile(`(?:^|[^\w./…-]|(?:^|[^\w/.])(?:\.{1,2}/)+|github\.com/ortet/ortet/(?:blob/main/)?)` +
	`((?:\.ci|azsim|bench|charts|cmd|deploy|docs|hack|internal|test)/[\w./-]*)([*{<$%]?)`)

// selector is what follows a package where a comment names a thing of it.
var selector = regexp.MustCompile(`\.[A-Z]\w*$`)

// notHere are paths that are named and have no file, each with its reason.
var notHere = map[string]string{
	"internal/boots/verdict/testdata/InotifyLimitReached.txt": "the reader of the recipe in CONTRIBUTING.md writes it",
}

// paths calls f with each path of the project that a text names, up to what a program or a
// person puts in: of internal/*.go with internal.
func paths(text string, f func(path string)) {
	for _, m := range ours.FindAllStringSubmatch(text, -1) {
		p := strings.TrimRight(m[1], ".-")
		if m[2] != "" {
			p = p[:strings.LastIndex(p, "/")]
		}
		f(path.Clean(p))
	}
}

// What a doc, a message, a comment, a chart, a script or a unit names is there. The changelog
// and the records of decisions name what was there then; testdata is what programs printed.
func TestPathsResolve(t *testing.T) {
	there, n := map[string]bool{}, 0
	files := tracked(t)
	for _, f := range files {
		for ; f != "."; f = path.Dir(f) {
			there[f] = true
		}
	}
	for _, f := range files {
		text := read(t, f)
		if f == "CHANGELOG.md" || strings.HasPrefix(f, "docs/design/") || strings.Contains(f, "/testdata/") || !utf8.ValidString(text) {
			continue
		}
		paths(text, func(p string) {
			n++
			if !there[p] && !there[selector.ReplaceAllString(p, "")] && notHere[p] == "" {
				t.Errorf("%s names %s, which is not there (write another project's path with its name before: containerd/docs/hosts.md)", f, p)
			}
		})
	}
	if n < 1000 {
		t.Errorf("found only %d paths: does this test still see them?", n)
	}
}

func TestPathsOfOthersAreNotOurs(t *testing.T) {
	for text, want := range map[string]string{
		"see `internal/node/…`, and docs/README.md.":                 "internal/node docs/README.md",
		"https://github.com/ortet/ortet/blob/main/docs/README.md":    "docs/README.md",
		"(../../docs/README.md#see) ./internal/... hack/{lab,demo}/": "docs/README.md internal hack",
		"internal/wire.BootReport":                                   "internal/wire.BootReport",
		"https://kubernetes.io/docs/tasks, containerd/docs/hosts.md": "",
		"/etc/test/a, unit-test/a, $URL/azsim/faults":                "",
	} {
		var got []string
		paths(text, func(p string) { got = append(got, p) })
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", text, got, want)
		}
	}
}

// Every page lies in the folder of its kind, and has its line in the index.
func TestPagesAreInTheIndex(t *testing.T) {
	index, n := read(t, "docs/README.md"), 0
	kind := regexp.MustCompile(`^docs/((?:tutorials|how-to|reference|explanation)/[a-z-]+\.md)$`)
	for _, page := range tracked(t, "docs/*.md") {
		if page == "docs/README.md" || strings.HasPrefix(page, "docs/design/") {
			continue
		}
		n++
		if m := kind.FindStringSubmatch(page); m == nil || !strings.Contains(index, "]("+m[1]+")") {
			t.Errorf("%s lies in no folder of a kind, or docs/README.md does not link it", page)
		}
	}
	if n < 20 {
		t.Errorf("found only %d pages", n)
	}
}
