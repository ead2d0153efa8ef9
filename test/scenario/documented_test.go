package scenario

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

const document = "../../docs/simulation.md"

// The documentation says what the tables say. With the argument "update" the
// test writes its tables again.
func TestTextIsDocumented(t *testing.T) {
	data, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	want := string(data)
	for name, table := range map[string]string{"settings": settingsTable(), "happenings": happeningsTable()} {
		head, rest, ok := strings.Cut(want, "<!-- "+name+" -->\n")
		_, tail, end := strings.Cut(rest, "<!-- end -->")
		if !ok || !end {
			t.Fatalf("%s: no place for %s", document, name)
		}
		want = head + "<!-- " + name + " -->\n" + table + "<!-- end -->" + tail
	}
	if want == string(data) {
		return
	}
	if !slices.Contains(flag.Args(), "update") {
		t.Fatalf("%s is not what can be said: run go test ./test/scenario -run Documented -args update", document)
	}
	if err := os.WriteFile(document, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The example parses, and is printed as it is written.
func TestDocumentedExample(t *testing.T) {
	data, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "\n```\n#")
	example, _, ok := strings.Cut("#"+rest, "```")
	if !ok {
		t.Fatalf("%s: no example", document)
	}
	if got := parse(t, example).String(); got != example {
		t.Errorf("the example is printed as\n%s", got)
	}
	data, err = os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, line := range strings.Split(string(data), "\n") {
		if line, ok := strings.CutPrefix(line, "//\t"); ok {
			b.WriteString(line + "\n")
		}
	}
	if got := parse(t, b.String()).String(); got != b.String() {
		t.Errorf("the example of the package's documentation is printed as\n%s", got)
	}
}

func settingsTable() string {
	var b strings.Builder
	b.WriteString("| line | setting | value | default | |\n|---|---|---|---|---|\n")
	rows(&b, "pool", poolSettings())
	rows(&b, "donor", donorSettings())
	rows(&b, Capture, captureSettings())
	rows(&b, Rollback, rollbackSettings())
	rows(&b, "chance", chanceSettings())
	rows(&b, "expect", expectSettings())
	return b.String()
}

func rows[T any](b *strings.Builder, line string, settings []setting[T]) {
	for _, s := range settings {
		def := "`" + s.def + "`"
		switch {
		case s.must:
			def = "required"
		case s.def == "":
			def = ""
		}
		value := s.allowed
		if s.flag {
			value = "flag"
		}
		fmt.Fprintf(b, "| %s | `%s` | %s | %s | %s |\n", line, s.key, value, def, s.does)
		line = ""
	}
}

func happeningsTable() string {
	var b strings.Builder
	b.WriteString("| | happening | where | |\n|---|---|---|---|\n")
	group := map[kind]string{fault: "what the request meets", death: "what becomes of the process", world: "what others do just before"}
	for _, h := range happenings() {
		word := string(h.what)
		if len(h.args) > 0 {
			word += " " + h.usage()
		}
		where := strings.Join(h.methods, ", ")
		if len(h.sides) > 0 {
			where = strings.TrimSpace(strings.Join(h.sides, ", ") + " " + where)
		}
		var args []string
		for _, a := range h.args {
			if a.name != "WHO" {
				args = append(args, a.name+" "+a.allowed)
			}
		}
		does := h.does
		if len(args) > 0 {
			does += " (" + strings.Join(args, "; ") + ")"
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", group[h.kind], word, where, does)
		delete(group, h.kind)
	}
	return b.String()
}
