package events

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Whoever is told something finds it in the documentation.
func TestToldIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/reference/events.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, h := range metricHelp() {
		if !strings.Contains(page, "`"+h[0]+"`") {
			t.Errorf("docs/reference/events.md does not tell of %s", h[0])
		}
	}
	code, err := os.ReadFile("decide.go")
	if err != nil {
		t.Fatal(err)
	}
	reasons := regexp.MustCompile(`h\.notice\((?:true|false), "([A-Za-z%]+)"`).FindAllStringSubmatch(string(code), -1)
	if len(reasons) < 9 {
		t.Fatalf("only %d reasons", len(reasons))
	}
	for _, r := range reasons {
		if name := strings.Replace(r[1], "%s", "T", 1); !strings.Contains(page, "`"+name+"`") {
			t.Errorf("docs/reference/events.md does not tell of %s", name)
		}
	}
}
