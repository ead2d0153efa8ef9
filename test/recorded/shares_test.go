package recorded

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

const page = "../../docs/reference/azsim.md"

// rowOfTable is a type's row of the golden table: requests, and how many of them are the
// same and consequences, with the former rules only.
var rowOfTable = regexp.MustCompile(`(?m)^  ([A-Za-z.]+/\S+) +(\d+) +(\d+) .* (\d+) +\d+$`)

// documented is the golden table as the page has it: used and wanted types, their requests
// without consequences, and the share that is the same.
func documented(golden string) string {
	known, _, _ := strings.Cut(golden, "\n"+strings.ToUpper(unwantedGroup.String()))
	var b strings.Builder
	b.WriteString("| type | requests | the same |\n|---|---|---|\n")
	for _, m := range rowOfTable.FindAllStringSubmatch(known, -1) {
		var requests, same, outside int
		if _, err := fmt.Sscan(strings.Join(m[2:], " "), &requests, &same, &outside); err != nil {
			continue
		}
		requests -= outside
		fmt.Fprintf(&b, "| `%s` | %d | %.0f %% |\n", m[1], requests, 100*float64(same)/float64(max(1, requests)))
	}
	return b.String()
}

var tableOfPage = regexp.MustCompile(`\| type \| requests \| the same \|\n(\|.*\n)+`)

// The page of azsim gives the golden table's shares.
func TestSharesAreDocumented(t *testing.T) {
	table, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	want := documented(string(table))
	if *update {
		text = tableOfPage.ReplaceAllLiteral(text, []byte(want))
		if err := os.WriteFile(page, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(string(text), want) {
		t.Errorf("%s does not have the shares of %s; write them by -args -update:\n%s", page, golden, want)
	}
}
