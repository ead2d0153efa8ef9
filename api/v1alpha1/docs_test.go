package v1alpha1_test

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite the tables of docs/reference/scalesetpool.md")

const page = "../../docs/reference/scalesetpool.md"

// A schema is what is read of the CRD's.
type schema struct {
	Type        string             `json:"type"`
	Description string             `json:"description"`
	Properties  map[string]*schema `json:"properties"`
	Items       *schema            `json:"items"`
	Required    []string           `json:"required"`
	Default     any                `json:"default"`
	Minimum     *float64           `json:"minimum"`
	Maximum     *float64           `json:"maximum"`
	MaxLength   *int               `json:"maxLength"`
	MaxItems    *int               `json:"maxItems"`
	Enum        []string           `json:"enum"`
	ListType    string             `json:"x-kubernetes-list-type"`
	IntOrString bool               `json:"x-kubernetes-int-or-string"`
	Rules       []struct {
		Rule, Message string
	} `json:"x-kubernetes-validations"`
}

type column struct{ Name, Description, JSONPath string }

// definition returns the schema of the CRD's only version, and its columns.
func definition(t *testing.T) (*schema, []column) {
	t.Helper()
	text, err := os.ReadFile("../../charts/ortet/files/ortet.io_scalesetpools.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				AdditionalPrinterColumns []column
				Schema                   struct{ OpenAPIV3Schema *schema }
			}
		}
	}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	if n := len(crd.Spec.Versions); n != 1 {
		t.Fatalf("the CRD has %d versions; this test knows one", n)
	}
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema, crd.Spec.Versions[0].AdditionalPrinterColumns
}

// visit calls f with each field below s, parents first, in the order of the alphabet.
func (s *schema) visit(path string, f func(path string, required bool, field *schema)) {
	for _, name := range sortedKeys(s.Properties) {
		field, at := s.Properties[name], strings.TrimPrefix(path+"."+name, ".")
		f(at, slices.Contains(s.Required, name), field)
		if field.Items != nil {
			field.Items.visit(at+"[]", f)
		}
		field.visit(at, f)
	}
}

func sortedKeys[V any](m map[string]V) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// fields is a table of the fields below s.
func fields(s *schema) string {
	var b strings.Builder
	b.WriteString("| field | type | meaning |\n|---|---|---|\n")
	s.visit("", func(path string, required bool, field *schema) {
		if strings.HasPrefix(path, "conditions[]") {
			return
		}
		kind := field.Type
		switch {
		case field.IntOrString:
			kind = "integer or string"
		case field.Items != nil:
			kind = "list"
		}
		if required {
			kind += ", required"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", path, kind, oneLine(field.Description))
	})
	return b.String()
}

// A constant is one of conditions.go, with its comment and the comment of its group.
type constant struct{ group, value, comment string }

// constants are those whose name begins with prefix.
func constants(t *testing.T, prefix string) (all []constant) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "conditions.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		group, is := d.(*ast.GenDecl)
		if !is {
			continue
		}
		for _, s := range group.Specs {
			v, is := s.(*ast.ValueSpec)
			if !is || !strings.HasPrefix(v.Names[0].Name, prefix) {
				continue
			}
			literal, is := v.Values[0].(*ast.BasicLit)
			if !is {
				t.Fatalf("%s is no string", v.Names[0])
			}
			value, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			comment := oneLine(v.Doc.Text())
			comment = strings.TrimLeft(strings.TrimPrefix(comment, v.Names[0].Name), ": ")
			all = append(all, constant{group.Doc.Text(), value, comment})
		}
	}
	return all
}

func tables(t *testing.T) map[string]string {
	t.Helper()
	root, printed := definition(t)
	columns := "| column | shows | field |\n|---|---|---|\n"
	for _, c := range printed {
		columns += fmt.Sprintf("| %s | %s | `%s` |\n", strings.ToUpper(c.Name), c.Description, strings.TrimPrefix(c.JSONPath, "."))
	}
	conditions := "| type | meaning |\n|---|---|\n"
	for _, c := range constants(t, "Condition") {
		conditions += fmt.Sprintf("| `%s` | %s |\n", c.value, strings.TrimPrefix(c.comment, "is "))
	}
	reasons := "| type | reason | status and meaning |\n|---|---|---|\n"
	for _, c := range constants(t, "Reason") {
		_, kind, _ := strings.Cut(c.group, "Reasons of ")
		kind, _, _ = strings.Cut(kind, ".")
		reasons += fmt.Sprintf("| %s | `%s` | %s |\n", cmp.Or(kind, "?"), c.value, c.comment)
	}
	return map[string]string{
		"spec": fields(root.Properties["spec"]), "status": fields(root.Properties["status"]),
		"columns": columns, "conditions": conditions, "reasons": reasons,
	}
}

// The page's tables are what the types say.
func TestReferenceIsOfTheTypes(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	is := string(text)
	for name, table := range tables(t) {
		begin, end := "<!-- "+name+" -->\n", "<!-- end -->"
		before, rest, found := strings.Cut(is, begin)
		_, after, closed := strings.Cut(rest, end)
		if !found || !closed {
			t.Fatalf("%s has no %q with %q after it", page, begin, end)
		}
		is = before + begin + table + end + after
	}
	if is == string(text) {
		return
	}
	if !*update {
		t.Fatalf("%s is not what api/v1alpha1 and the CRD say; run go test ./api/... -update, and commit it", page)
	}
	if err := os.WriteFile(page, []byte(is), 0o644); err != nil {
		t.Fatal(err)
	}
}

// kubectl explain shows each description as it is broken here, after four spaces, and no defaults.
func TestDescriptionsReadWell(t *testing.T) {
	root, _ := definition(t)
	root.visit("", func(path string, _ bool, field *schema) {
		if !strings.HasPrefix(path, "spec.") && !strings.HasPrefix(path, "status.") || strings.HasPrefix(path, "status.conditions[]") {
			return
		}
		if field.Description == "" {
			t.Errorf("%s has no description", path)
		}
		for line := range strings.Lines(field.Description) {
			if n := len(strings.TrimSuffix(line, "\n")); n > 76 {
				t.Errorf("%s: %d columns of description, which kubectl explain breaks after 76: %s", path, n, line)
			}
		}
		switch d := field.Default.(type) {
		case nil, bool, map[string]any:
		default:
			if says := fmt.Sprintf("Default %v.", d); d != "Default" && !strings.Contains(oneLine(field.Description), says) {
				t.Errorf("%s: the description lacks %q", path, says)
			}
		}
	})
}

// An object that is too large, or a list that two writers merge wrongly, is refused by the schema.
func TestSpecIsBounded(t *testing.T) {
	root, _ := definition(t)
	root.Properties["spec"].visit("spec", func(path string, _ bool, field *schema) {
		bounded := func(at string, s *schema) {
			if s.Type == "string" && s.MaxLength == nil && len(s.Enum) == 0 || s.Type == "integer" && (s.Minimum == nil || s.Maximum == nil) {
				t.Errorf("%s has no bounds", at)
			}
		}
		bounded(path, field)
		if field.Items != nil {
			bounded(path+"[]", field.Items)
			if field.MaxItems == nil || field.ListType == "" {
				t.Errorf("%s needs MaxItems and listType", path)
			}
		}
	})
}
