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

// documented is the golden table as the page has it: used and wanted types by the share of
// their requests that is the same, without consequences.
func documented(golden string) string {
	known, _, _ := strings.Cut(golden, "\n"+strings.ToUpper(unwantedGroup.String()))
	bands := [...]struct {
		from  int
		title string
		types []string
	}{{100, "100 %", nil}, {95, "95 to 99 %", nil}, {0, "less", nil}}
	for _, m := range rowOfTable.FindAllStringSubmatch(known, -1) {
		var requests, same, outside int
		if _, err := fmt.Sscan(strings.Join(m[2:], " "), &requests, &same, &outside); err != nil {
			continue
		}
		requests -= outside
		for i := range bands {
			if 100*same < bands[i].from*requests {
				continue
			}
			text := fmt.Sprintf("%s %d", strings.TrimPrefix(m[1], "Microsoft."), requests)
			if bands[i].from == 0 {
				text = fmt.Sprintf("%s %d of %d", strings.TrimPrefix(m[1], "Microsoft."), same, requests)
			}
			bands[i].types = append(bands[i].types, text)
			break
		}
	}
	var b strings.Builder
	b.WriteString("| the same | types, with their requests |\n|---|---|\n")
	for i := range bands {
		fmt.Fprintf(&b, "| %s | %s |\n", bands[i].title, strings.Join(bands[i].types, ", "))
	}
	return b.String()
}

var tableOfPage = regexp.MustCompile(`\| the same \| types, with their requests \|\n(\|.*\n)+`)

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
