package main

import (
	"bufio"
	"bytes"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// exports gives the compiled form of every package, for the type checker.
func exports(t *testing.T, root string) types.Importer {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./internal/...", "./cmd/...")
	cmd.Dir = root
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list the packages: %v", err)
	}
	files := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		path, file, _ := strings.Cut(lines.Text(), " ")
		files[path] = file
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
}

// TestEachMutantCompiles: a bug that no longer applies, or does not compile,
// would count as found, and shows nothing.
func TestEachMutantCompiles(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	all, err := load("planted")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("no bug is planted")
	}
	imports := exports(t, root)
	names := map[string]bool{}
	for _, m := range all {
		t.Run(m.name, func(t *testing.T) {
			if names[m.name] {
				t.Errorf("two planted bugs have the name %s", m.name)
			}
			names[m.name] = true
			files, err := m.apply(root)
			if err != nil {
				t.Fatal(err)
			}
			for _, folder := range folders(files) {
				compile(t, imports, root, folder, files)
			}
		})
	}
}

// folders are those of the files.
func folders(files map[string]string) []string {
	set := map[string]bool{}
	for file := range files {
		set[filepath.Dir(file)] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// compile type-checks the package in a folder, with changed files in place.
func compile(t *testing.T, imports types.Importer, root, folder string, changed map[string]string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	var files []*ast.File
	for _, path := range paths {
		name := filepath.Join(folder, filepath.Base(path))
		built, err := build.Default.MatchFile(filepath.Join(root, folder), filepath.Base(path))
		if err != nil {
			t.Fatal(err)
		}
		if !built || strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, isChanged := changed[name]
		if !isChanged {
			read, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text = string(read)
		}
		f, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	checker := types.Config{Importer: imports}
	if _, err := checker.Check(folder, set, files, nil); err != nil {
		t.Error(err)
	}
}

var seedFound = regexp.MustCompile(`^seed \d+: `)

func TestParse(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"no reason":    {"file a.go\n<<<<\na\n====\nb\n>>>>\n", "a comment"},
		"no change":    {"# why\nfile a.go\n", "at least one change"},
		"no file":      {"# why\n<<<<\na\n====\nb\n>>>>\n", "line 2"},
		"no end":       {"# why\nfile a.go\n<<<<\na\n====\nb\n", "has no"},
		"no middle":    {"# why\nfile a.go\n<<<<\na\n>>>>\n", "line 5"},
		"outside":      {"# why\nfile ../a.go\n<<<<\na\n====\nb\n>>>>\n", "outside"},
		"a stray line": {"# why\nfile a.go\nhello\n", "line 3"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parse(tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("parse(%q): %v, want an error with %q", tt.text, err, tt.want)
			}
		})
	}
	m, err := parse("# why\n# so\nfile a.go\n<<<<\na\n\tb\n====\n>>>>\n")
	if err != nil || m.why != "why so" || len(m.changes) != 1 || m.changes[0] != (change{"a.go", "a\n\tb", ""}) {
		t.Errorf("parse gives %+v, %v", m, err)
	}
}

func TestApplyWantsTheTextOnce(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "a.go"), []byte("one two two"), 0o600); err != nil {
		t.Fatal(err)
	}
	plant := func(old string) (map[string]string, error) {
		return mutant{name: "x", changes: []change{{"a.go", old, "new"}}}.apply(root)
	}
	if files, err := plant("one"); err != nil || files["a.go"] != "new two two" {
		t.Errorf("apply gives %v, %v", files, err)
	}
	for _, old := range []string{"two", "three", ""} {
		if _, err := plant(old); err == nil {
			t.Errorf("a change of %q, which does not stand there once, is applied", old)
		}
	}
}
