package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ortet/ortet/azsim"
)

// tracked lists the files that belong to the project: in git or about to be.
func tracked(t *testing.T, patterns ...string) []string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"}, patterns...)...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list the project's files: %v", err)
	}
	var files []string
	for _, f := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		if info, err := os.Stat(filepath.Join("../..", f)); err == nil && info.Mode().IsRegular() {
			files = append(files, f)
		}
	}
	if len(files) == 0 {
		t.Fatalf("no files match %v", patterns)
	}
	return files
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	notSlug = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// anchors returns those that a page's headings have on GitHub.
func anchors(text string) []string {
	var all []string
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		slug := notSlug.ReplaceAllString(strings.ToLower(strings.TrimSpace(h[1])), "")
		all = append(all, strings.ReplaceAll(slug, " ", "-"))
	}
	return all
}

func TestLinksResolve(t *testing.T) {
	for _, page := range tracked(t, "*.md") {
		if strings.Contains(page, "/testdata/") {
			continue // what a test reads is nobody's documentation
		}
		text := fence.ReplaceAllString(read(t, page), "")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			u, err := url.Parse(m[1])
			if err != nil {
				t.Errorf("%s: link %s: %v", page, m[1], err)
				continue
			}
			if u.Scheme != "" || u.Host != "" {
				continue
			}
			target := page
			if u.Path != "" {
				target = filepath.Join(filepath.Dir(page), u.Path)
			}
			if _, err := os.Stat(filepath.Join("../..", target)); err != nil {
				t.Errorf("%s links %s, which is not there", page, m[1])
			} else if u.Fragment != "" && !slices.Contains(anchors(read(t, target)), u.Fragment) {
				t.Errorf("%s links %s, which has no such heading", page, m[1])
			}
		}
	}
}

// What is true of one computer alone must not get into the project.
func TestNothingNamesThisComputer(t *testing.T) {
	checkout, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	private := map[string]string{checkout: "the checkout's own path"}
	if home, err := os.UserHomeDir(); err == nil && len(home) > 1 {
		private[filepath.Join(home, ".cache")] = "a user's cache"
		private[filepath.Join(home, "go")+"/"] = "a user's Go folder"
	}
	if out, err := exec.Command("go", "env", "GOPROXY").Output(); err == nil {
		for _, p := range strings.FieldsFunc(strings.TrimSpace(string(out)), func(r rune) bool { return r == ',' || r == '|' }) {
			if u, err := url.Parse(p); err == nil && u.Hostname() != "" && u.Hostname() != "localhost" && u.Hostname() != "127.0.0.1" {
				private[u.Hostname()] = "a registry's host"
			}
		}
	}
	for _, f := range tracked(t) {
		text := read(t, f)
		for name, what := range private {
			if strings.Contains(text, name) {
				t.Errorf("%s names %s: %s", f, name, what)
			}
		}
	}
}

// literals calls f with every string constant of a folder's code and what it is
// the value of: a composite literal's field, an argument, a constant.
func literals(t *testing.T, folder string, f func(parents []ast.Node, value string)) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join("../..", folder), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		var parents []ast.Node
		ast.Inspect(file, func(n ast.Node) bool {
			if n == nil {
				parents = parents[:len(parents)-1]
				return true
			}
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if value, err := strconv.Unquote(lit.Value); err == nil {
					f(parents, value)
				}
			}
			parents = append(parents, n)
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// problemCode is how reasons to refuse are spelled.
var problemCode = regexp.MustCompile(`^[A-Z][a-zA-Z]{3,}$`)

// stepID is how the ids of steps and undos are named, of parts of a workflow too.
var stepID = regexp.MustCompile(`^([sS]tep|[uU]ndo)`)

// Whoever is refused finds the code, and whoever sees a step its meaning.
func TestProblemsAndStepsAreDocumented(t *testing.T) {
	const pages = "docs/reference/capture.md, fresh-donor.md or rollback.md"
	page := read(t, "docs/reference/capture.md") + read(t, "docs/reference/fresh-donor.md") + read(t, "docs/reference/rollback.md")
	codes, steps := 0, 0
	step := func(parents []ast.Node, value string) {
		id, ok := parents[len(parents)-1].(*ast.ValueSpec) // stepDrain = "drain"
		if !ok || len(id.Names) != 1 || !stepID.MatchString(id.Names[0].Name) {
			return
		}
		steps++
		if !strings.Contains(page, "`"+value+"`") {
			t.Errorf("no page of %s names the step %s", pages, value)
		}
	}
	code := func(parents []ast.Node, value string) {
		switch p := parents[len(parents)-1].(type) {
		case *ast.KeyValueExpr: // Problem{Code: "…"}
			if key, ok := p.Key.(*ast.Ident); !ok || key.Name != "Code" {
				return
			}
		case *ast.CallExpr: // add(on, "Code", …), refuse(…)
			name, ok := p.Fun.(*ast.Ident)
			if !ok {
				if sel, isSel := p.Fun.(*ast.SelectorExpr); isSel {
					name, ok = sel.Sel, true
				}
			}
			if !ok || !slices.Contains([]string{"add", "refuse", "problem"}, name.Name) {
				return
			}
		default:
			return
		}
		if !problemCode.MatchString(value) {
			return
		}
		codes++
		if !strings.Contains(page, "`"+value+"`") {
			t.Errorf("no page of %s has the problem %s", pages, value)
		}
	}
	for _, room := range []string{"internal/image/capture", "internal/image/rollback"} {
		literals(t, room, step)
	}
	for _, room := range []string{"internal/image/plan", "internal/workflow", "internal/image/capture", "internal/image/rollback"} {
		literals(t, room, code)
	}
	if codes < 30 || steps < 30 {
		t.Errorf("found only %d codes and %d steps in the code: does this test still see them?", codes, steps)
	}
}

var yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")

func TestAzsimIsDocumented(t *testing.T) {
	page := read(t, "docs/reference/azsim.md")
	block := yamlBlock.FindStringSubmatch(page)
	if block == nil {
		t.Fatal("docs/reference/azsim.md has no example of a spec")
	}
	spec, err := azsim.ParseSpec([]byte(block[1]))
	if err != nil {
		t.Fatalf("the spec in docs/reference/azsim.md: %v", err)
	}
	var server azsim.Server
	defer server.Close()
	if err := spec.Apply(&server); err != nil {
		t.Fatal(err)
	}
	if err := server.Create(t.Context(), spec); err != nil {
		t.Errorf("the spec in docs/reference/azsim.md: %v", err)
	}
	effects := 0
	literals(t, "azsim", func(parents []ast.Node, value string) {
		if p, ok := parents[len(parents)-1].(*ast.ValueSpec); ok && len(p.Names) == 1 && strings.HasPrefix(p.Names[0].Name, "Effect") {
			effects++
			if !strings.Contains(page, "`"+value+"`") {
				t.Errorf("docs/reference/azsim.md does not tell of the fault %s", value)
			}
		}
	})
	if effects < 10 {
		t.Errorf("found only %d effects in the code: does this test still see them?", effects)
	}
}

// Each promise in docs/reference/security.md names its tests, and each test that a page names exists.
func TestPromisesHaveTheirTests(t *testing.T) {
	page := read(t, "docs/reference/security.md")
	_, promises, ok := strings.Cut(page, "\n## Promises\n")
	promises, _, closed := strings.Cut(promises, "\n## ")
	if !ok || !closed {
		t.Fatal("docs/reference/security.md has no promises")
	}
	declared := map[string]bool{}
	test := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(t \*testing\.T\)`)
	for _, file := range tracked(t, "*_test.go") {
		for _, found := range test.FindAllStringSubmatch(read(t, file), -1) {
			declared[found[1]] = true
		}
	}
	rows := 0
	row := regexp.MustCompile("^\\| .+ \\| `Test[A-Za-z0-9]+`(, `Test[A-Za-z0-9]+`)* \\|$")
	for line := range strings.Lines(promises) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| ") || line == "| promise | test |" {
			continue
		}
		rows++
		if !row.MatchString(line) {
			t.Errorf("a promise without its tests: %s", line)
		}
	}
	if rows < 30 {
		t.Errorf("%d promises", rows)
	}
	name := regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	for _, file := range tracked(t, "docs/*.md") {
		for _, found := range name.FindAllStringSubmatch(read(t, file), -1) {
			if !declared[found[1]] {
				t.Errorf("there is no %s, which %s names", found[1], file)
			}
		}
	}
}
