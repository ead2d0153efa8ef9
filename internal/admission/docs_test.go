package admission_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/admission"
)

var update = flag.Bool("update", false, "rewrite the table of docs/reference/admission.md")

// docs/reference/admission.md lists every reason as the code has it.
func TestDocsListReasons(t *testing.T) {
	const file, begin, end = "../../docs/reference/admission.md", "<!-- reasons -->\n", "<!-- /reasons -->"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(text), begin)
	table, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no table between %s and %s", file, begin, end)
	}
	var want strings.Builder
	want.WriteString("| reason | status | final | told | what to do |\n|---|---|---|---|---|\n")
	for _, m := range admission.Reasons() {
		final := ""
		if m.Final {
			final = "yes"
		}
		fmt.Fprintf(&want, "| %s | %d | %s | %s | %s |\n", m.Reason, m.Status, final, m.Told, m.Remedy)
	}
	if table == want.String() {
		return
	}
	if !*update {
		t.Fatalf("%s is not what the code says; run go test ./internal/admission -run TestDocs -update", file)
	}
	if err := os.WriteFile(file, []byte(before+begin+want.String()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Each reason stands in the catalogue once, and can be an answer.
func TestReasonsAreComplete(t *testing.T) {
	seen := map[admission.Reason]bool{}
	for _, m := range admission.Reasons() {
		if seen[m.Reason] || m.Status < 400 || m.Status > 599 || m.Told == "" || m.Remedy == "" || len(m.Reason) > 64 {
			t.Errorf("%+v", m)
		}
		seen[m.Reason] = true
	}
	source, err := os.ReadFile("reason.go")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(source)) {
		if fields := strings.Fields(line); len(fields) == 4 && fields[1] == "Reason" && fields[2] == "=" {
			if reason := admission.Reason(strings.Trim(fields[3], `"`)); !seen[reason] {
				t.Errorf("%s has no meaning", reason)
			}
		}
	}
}
