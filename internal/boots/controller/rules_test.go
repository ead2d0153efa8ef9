package controller

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the documentation's tables again")

const permissionsDoc = "../../../docs/reference/kubernetes-permissions.md"

// The documentation says what the code does.
func TestRulesAreDocumented(t *testing.T) {
	data, err := os.ReadFile(permissionsDoc)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- controller -->\n", "<!-- controller end -->"
	head, rest, ok := strings.Cut(string(data), begin)
	_, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s: no place for the controller's rules", permissionsDoc)
	}
	var b strings.Builder
	b.WriteString("| where | resource | verbs | what for | needed |\n|---|---|---|---|---|\n")
	for _, r := range Rules("ortet-system") {
		where, resource := "whole cluster", r.Resource
		if r.Namespace != "" {
			where = "`" + r.Namespace + "`"
		}
		if r.Group != "" {
			resource += "." + r.Group
		}
		if len(r.Names) > 0 {
			resource += " named " + strings.Join(r.Names, ", ")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", where, resource, strings.Join(r.Verbs, ", "), r.Why, r.Needed)
	}
	want := head + begin + b.String() + end + tail
	if want == string(data) {
		return
	}
	if !*update {
		t.Fatalf("%s is not what the code needs: run go test ./internal/boots/controller -run Documented -update", permissionsDoc)
	}
	if err := os.WriteFile(permissionsDoc, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
