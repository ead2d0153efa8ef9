package azsim

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var updateDocs = flag.Bool("update", false, "rewrite the table of operations in docs/reference/azsim.md")

const sdkOfCompute = "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

// An sdkOperation is a request of a client of the SDK: "GET", and its path with {parameters}.
type sdkOperation struct{ client, method, path string }

// sdkOperations reads the requests that the module's clients make.
func sdkOperations(t *testing.T, module string) (all []sdkOperation) {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "*_client.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no clients in %s: %v", dir, err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			f, isFunc := d.(*ast.FuncDecl)
			if !isFunc || f.Recv == nil || !strings.HasSuffix(f.Name.Name, "CreateRequest") {
				continue
			}
			o := sdkOperation{client: strings.TrimSuffix(f.Recv.List[0].Type.(*ast.StarExpr).X.(*ast.Ident).Name, "Client")}
			ast.Inspect(f, func(n ast.Node) bool {
				switch x := n.(type) {
				case *ast.BasicLit:
					if text, err := strconv.Unquote(x.Value); err == nil && strings.HasPrefix(text, "/") && o.path == "" {
						o.path = text
					}
				case *ast.SelectorExpr:
					if name, is := strings.CutPrefix(x.Sel.Name, "Method"); is {
						o.method = strings.ToUpper(name)
					}
				}
				return true
			})
			all = append(all, o)
		}
	}
	return all
}

var parameter = regexp.MustCompile(`\{(\w+)\}`)

// serves reports whether azsim has a handler for the request.
func serves(t *testing.T, s *Server, o sdkOperation) bool {
	t.Helper()
	path := parameter.ReplaceAllStringFunc(o.path, func(p string) string {
		switch p {
		case "{subscriptionId}":
			return DefaultSubscription
		case "{location}":
			return DefaultLocation
		}
		return "1"
	})
	r, err := http.NewRequest(o.method, "https://azsim"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &call{s: s, r: r}
	return c.route() == nil
}

var tableOfOperations = regexp.MustCompile(`\| client of armcompute \| served \|\n(\|.*\n)+`)

// usedByOrtet are the clients of what Ortet's captures, rollbacks and clusters ask for or make.
var usedByOrtet = []string{"DiskEncryptionSets", "Disks", "Galleries", "GalleryImages", "GalleryImageVersions", "ResourceSKUs", "Snapshots", "SoftDeletedResource",
	"Usage", "VirtualMachineExtensions", "VirtualMachines", "VirtualMachineScaleSetExtensions", "VirtualMachineScaleSets", "VirtualMachineScaleSetVMs"}

// The page of azsim says how many operations of the SDK's clients it serves.
func TestOperationsAreDocumented(t *testing.T) {
	const page = "../docs/reference/azsim.md"
	s := &Server{}
	defer s.Close()
	newBench(t, s, "").disk("d", 8)
	var served, of, othersServed, others int
	ours, oursOf := map[string]int{}, map[string]int{}
	for _, o := range sdkOperations(t, sdkOfCompute) {
		has := 0
		if serves(t, s, o) {
			has = 1
		}
		if of, served = of+1, served+has; slices.Contains(usedByOrtet, o.client) {
			ours[o.client], oursOf[o.client] = ours[o.client]+has, oursOf[o.client]+1
		} else {
			othersServed, others = othersServed+has, others+1
		}
	}
	var b strings.Builder
	var whole, part []string
	for _, client := range usedByOrtet {
		if ours[client] == oursOf[client] {
			whole = append(whole, client)
		} else {
			part = append(part, fmt.Sprintf("%s %d of %d", client, ours[client], oursOf[client]))
		}
	}
	fmt.Fprintf(&b, "| client of armcompute | served |\n|---|---|\n| %s | all |\n| %s | |\n", strings.Join(whole, ", "), strings.Join(part, ", "))
	fmt.Fprintf(&b, "| others | %d of %d |\n| together | %d of %d |\n", othersServed, others, served, of)
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if *updateDocs {
		text = tableOfOperations.ReplaceAllLiteral(text, []byte(b.String()))
		if err := os.WriteFile(page, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(string(text), b.String()) {
		t.Errorf("%s does not have the operations that azsim serves; write them by -args -update:\n%s", page, b.String())
	}
}
