package recipe_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/k3s/recipe"
)

func TestPermissionsAreDocumented(t *testing.T) {
	const page, begin, end = "../../../docs/reference/azure-permissions.md", "<!-- cluster -->\n", "<!-- end -->"
	var b strings.Builder
	b.WriteString("| identity | on | role |\n|---|---|---|\n")
	for _, g := range recipe.Grants("NAME") {
		fmt.Fprintf(&b, "| `%s` | %s | *%s* `%s` |\n", g.Identity, g.Scope, g.Role.Name, g.Role.ID)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, some := strings.Cut(string(text), begin)
	has, after, ended := strings.Cut(rest, end)
	if !some || !ended {
		t.Fatalf("%s has no table between %q and %q", page, begin, end)
	}
	if updating() {
		if err := os.WriteFile(page, []byte(before+begin+b.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if has != b.String() {
		t.Errorf("%s has\n%s\nwant\n%s", page, has, b.String())
	}
}
