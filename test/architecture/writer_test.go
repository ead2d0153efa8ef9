package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// writers names the files that may change something in Azure by other ways than
// azure.Writer, azure.MergeTags and the runner's steps, and what: none is a write of a scale
// set or of its instances without a wait for other operations.
var writers = map[string]string{
	"internal/admission/capacity.go":      "sets a capacity after azure.Rest, and follows it from round to round",
	"internal/image/renew/turn.go":        "notes that azure.Writer sends a change",
	"internal/k3s/lifecycle/deploy.go":    "deployments, which wait until their scale sets are not updating",
	"internal/k3s/lifecycle/down.go":      "resource groups",
	"internal/k3s/lifecycle/plan.go":      "deployments/whatIf",
	"internal/k3s/lifecycle/preflight.go": "resource groups, deployments/validate",
	"internal/k3s/lifecycle/server.go":    "the server's virtual machine, its state disk and backups; deletion of roles and autoscale settings",
}

// TestHole08OneWriterOfScaleSets: scale sets and their instances are written by
// azure.Writer and by the runner of steps (workflow), through the adapter alone.
func TestHole08OneWriterOfScaleSets(t *testing.T) {
	found := map[string]bool{}
	for _, root := range []string{"internal", "cmd"} {
		err := filepath.WalkDir(filepath.Join("../..", root), func(path string, d fs.DirEntry, err error) error {
			name := filepath.ToSlash(strings.TrimPrefix(path, "../../"))
			switch {
			case err != nil:
				return err
			case d.IsDir() && slices.Contains([]string{"azsim", "internal/azure", "internal/workflow", "internal/node"}, name):
				return filepath.SkipDir
			case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				method, ok := call.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				args := len(call.Args)
				switch verb := method.Sel.Name; {
				case strings.HasPrefix(verb, "NewVirtualMachineScaleSet"):
					t.Errorf("%s uses %s: only internal/azure/arm writes scale sets by the SDK", name, verb)
				case verb == "Begin" && args == 2, verb == "Send" && args >= 6, verb == "SendAndWait":
					if found[name] = true; writers[name] == "" {
						t.Errorf("%s changes Azure by %s: use azure.Writer, or name the file in writers and say why", name, verb)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range writers {
		if !found[name] {
			t.Errorf("%s changes nothing in Azure: remove it from writers", name)
		}
	}
}
