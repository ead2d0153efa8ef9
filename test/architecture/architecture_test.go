// Package architecture tests the rules of ARCHITECTURE.md: who may import whom,
// what the agent depends on, that every folder says what lives there.
package architecture

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/ortet/ortet"

var update = flag.Bool("update", false, "rewrite the agent's dependency list")

// rooms reads which of our own packages each room may import from ARCHITECTURE.md. A room
// is a path prefix, the longest that matches counts; names below internal stand without it.
func rooms(t *testing.T) map[string][]string {
	t.Helper()
	name := regexp.MustCompile("^`([a-z0-9/-]+)`$")
	all := map[string][]string{}
	for line := range strings.Lines(section(t, "ARCHITECTURE.md", "rooms")) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		room := name.FindStringSubmatch(strings.TrimSpace(cells[0]))
		if len(cells) != 3 || room == nil {
			continue
		}
		all[room[1]] = []string{}
		for cell := range strings.SplitSeq(strings.TrimSpace(cells[2]), ", ") {
			if cell == "–" {
				continue
			}
			of := name.FindStringSubmatch(cell)
			if of == nil {
				t.Errorf("ARCHITECTURE.md: %q in the row of %s is not a name", cell, room[1])
				continue
			}
			path := of[1]
			if _, err := os.Stat("../../internal/" + path); err == nil {
				path = "internal/" + path
			}
			all[room[1]] = append(all[room[1]], path)
		}
	}
	for room, may := range all {
		for _, path := range append([]string{room}, may...) {
			if _, err := os.Stat("../../" + path); err != nil {
				t.Errorf("ARCHITECTURE.md, in the row of %s: there is no %s", room, path)
			}
		}
	}
	return all
}

// mayNot lists what a room may not import although its row's prefix allows it.
var mayNot = map[string][]string{
	"internal/cli":        {"internal/node"},
	"cmd/ortet":           {"internal/node"},
	"internal/image/plan": {"internal/fleet/"},
	"internal/azure":      {"internal/workflow"},
}

type pkg struct {
	ImportPath   string
	Dir          string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Standard     bool
	Module       *struct{ Path string }
}

func list(t *testing.T, env []string, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-e", "-json=ImportPath,Dir,Imports,TestImports,XTestImports,Standard,Module"}, args...)...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v\n%s", args, err, stderr.String())
	}
	var all []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func roomOf(path string, rooms map[string][]string) (room string) {
	for r := range rooms {
		if within(path, []string{r}) && len(r) > len(room) {
			room = r
		}
	}
	return room
}

func within(path string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool {
		return path == p || strings.HasPrefix(path, strings.TrimSuffix(p, "/")+"/")
	})
}

func TestImportsRespectRooms(t *testing.T) {
	rooms, used := rooms(t), map[string]bool{}
	for _, p := range list(t, nil, "./...") {
		path := strings.TrimPrefix(p.ImportPath, module+"/")
		room := roomOf(path, rooms)
		if room == "" {
			t.Errorf("%s lies in no room: give it a row in ARCHITECTURE.md", path)
			continue
		}
		for _, imported := range p.Imports {
			ours, ok := strings.CutPrefix(imported, module+"/")
			if !ok || within(ours, []string{room}) {
				continue
			}
			if !within(ours, rooms[room]) || within(ours, mayNot[room]) {
				t.Errorf("%s imports %s: the room %s may import only %v", path, ours, room, rooms[room])
			}
			for _, may := range rooms[room] {
				used[room+" "+may] = used[room+" "+may] || within(ours, []string{may})
			}
		}
	}
	for room, all := range rooms {
		for _, may := range all {
			if !used[room+" "+may] {
				t.Errorf("ARCHITECTURE.md: %s may import %s, and does not", room, may)
			}
		}
	}
}

// A port must not know its adapters, and only main wires them.
func TestPortsDoNotKnowAdapters(t *testing.T) {
	for _, p := range list(t, nil, "./internal/...") {
		path := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, imported := range p.Imports {
			ours, _ := strings.CutPrefix(imported, module+"/")
			for port, adapter := range map[string]string{"internal/azure": "internal/azure/arm", "internal/cluster": "internal/cluster/kube", "internal/admission": "internal/admission/kube"} {
				if within(ours, []string{adapter}) && !within(path, []string{adapter, "internal/cli"}) {
					t.Errorf("%s imports the adapter %s; it may know the port %s only", path, ours, port)
				}
			}
		}
	}
}

// Kubernetes' and Azure's SDKs stay in their adapters.
func TestSDKsStayInAdapters(t *testing.T) {
	allowed := map[string][]string{
		"k8s.io/client-go":               {"internal/cluster/kube", "internal/cluster/lead", "internal/operator/kube", "internal/boots/controller", "internal/admission/kube", "internal/cluster/clustertest", "azsim/hollow", "internal/nodeconfig/push", "internal/cli", "cmd/ortet", "test", "hack", "bench"},
		"k8s.io/kubectl":                 {"internal/cluster/kube"},
		"k8s.io/kubelet":                 {"internal/nodeconfig/file"},
		"sigs.k8s.io/controller-runtime": {"internal/boots/controller", "internal/operator", "test", "hack", "bench"},
		"github.com/Azure/azure-sdk":     {"internal/azure", "azsim", "internal/cli", "cmd/ortet", "test", "hack", "bench"},
	}
	for _, p := range list(t, nil, "./...") {
		path := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, imported := range p.Imports {
			for sdk, places := range allowed {
				if strings.HasPrefix(imported, sdk) && !within(path, places) {
					t.Errorf("%s imports %s, which belongs in %v", path, imported, places)
				}
			}
		}
	}
}

// The command line asks by the ports: typed clients are for completion alone, and a client is made
// only to be handed to an adapter. What judges boots links no client.
func TestCommandLineAsksByPorts(t *testing.T) {
	typed := regexp.MustCompile(`\.[A-Z][a-z]+V[0-9]+(alpha[0-9]+|beta[0-9]+)?\(\)|kubernetes\.(Interface|Clientset)\b`)
	files, err := filepath.Glob("../../internal/cli/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		used := typed.FindAllString(string(text), -1)
		if completes := filepath.Base(file) == "completion_values.go"; len(used) > 0 != completes && !strings.HasSuffix(file, "_test.go") {
			t.Errorf("%s has %q: only completion may use a typed client, and does", file, used)
		}
	}
	for _, room := range []string{"assess", "survey"} {
		for _, p := range list(t, nil, "-deps", "./internal/boots/"+room) {
			if strings.HasPrefix(p.ImportPath, "sigs.k8s.io/controller-runtime") || strings.HasPrefix(p.ImportPath, "k8s.io/client-go") {
				t.Errorf("internal/boots/%s links %s", room, p.ImportPath)
			}
		}
	}
}

// The agent runs on every node: what it is made of is a decision each time.
func TestAgentDependencies(t *testing.T) {
	seen := map[string]bool{}
	for _, target := range []string{"linux/amd64", "linux/arm64", "windows/amd64"} {
		goos, goarch, _ := strings.Cut(target, "/")
		for _, p := range list(t, []string{"GOOS=" + goos, "GOARCH=" + goarch, "CGO_ENABLED=0"}, "-deps", "./cmd/ortet-node") {
			if p.Standard || strings.HasPrefix(p.ImportPath, module) || p.Module == nil {
				continue
			}
			seen[p.Module.Path] = true
		}
	}
	var modules []string
	for m := range seen {
		modules = append(modules, m)
	}
	slices.Sort(modules)
	got := strings.Join(modules, "\n") + "\n"
	const golden = "testdata/agent-modules.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the agent's modules changed; if that is meant, run this test with -update.\nnow:\n%swanted:\n%s", got, want)
	}
}

func TestEveryFolderSaysWhatItIs(t *testing.T) {
	vague := []string{"util", "utils", "common", "helper", "helpers", "manager", "misc", "shared", "base"}
	for _, p := range list(t, nil, "./...") {
		path := strings.TrimPrefix(p.ImportPath, module+"/")
		if slices.Contains(vague, filepath.Base(path)) {
			t.Errorf("%s: name a package after what it is about", path)
		}
		documented, files := 0, 0
		entries, err := os.ReadDir(p.Dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.IsDir() || !strings.HasSuffix(e.Name(), ".go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, e.Name()), nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			files++
			if f.Doc != nil && len(strings.TrimSpace(f.Doc.Text())) > 20 {
				documented++
			}
		}
		if files > 0 && documented != 1 {
			t.Errorf("%s: %d files have a package doc; want exactly one", path, documented)
		}
	}
}

// mains parse, wire and exit; what they do lives in rooms.
func TestMainsAreShort(t *testing.T) {
	mains, err := filepath.Glob("../../cmd/*/main.go")
	if err != nil || len(mains) == 0 {
		t.Fatalf("no mains found: %v", err)
	}
	for _, m := range mains {
		text, err := os.ReadFile(m)
		if err != nil {
			t.Fatal(err)
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, m, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		code := fset.Position(f.End()).Line - fset.Position(f.Name.Pos()).Line
		if code > 40 {
			t.Errorf("%s has %d lines of code; a main has at most 40", m, code)
		}
	}
}

// Clocks are passed in where something is decided.
func TestDecisionsTakeTheTime(t *testing.T) {
	for _, room := range []string{"internal/image/plan", "internal/image/prove", "internal/fleet", "internal/schedule", "internal/workflow"} {
		err := filepath.WalkDir("../../"+room, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, call := range []string{"time.Now(", "time.Sleep(", "time.Since(", "time.Until(", "rand."} {
				if !strings.HasSuffix(path, "_test.go") && bytes.Contains(text, []byte(call)) {
					t.Errorf("%s calls %s…): pass it in", path, call)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
