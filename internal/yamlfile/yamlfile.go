// Package yamlfile reads a YAML file that a published JSON schema describes, and reports
// all that is wrong with it by line and field.
package yamlfile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"go.yaml.in/yaml/v3"
)

const (
	maxBytes = 1 << 20 // of a file
	maxShown = 20      // problems
)

// A Problem is one thing that is wrong with a file.
type Problem struct {
	Line  int    `json:"line"`            // 1 is the first
	Field string `json:"field,omitempty"` // "spec.pools[1].size"
	Cause string `json:"cause"`           // what is wrong; what to do
}

// An InvalidError is all that is wrong with a file, in the order of lines.
type InvalidError struct {
	Name     string // of the file
	Problems []Problem
}

// Error is a line for each problem, and shows at most 20.
func (e *InvalidError) Error() string {
	var lines []string
	for _, p := range e.Problems[:min(maxShown, len(e.Problems))] {
		cause := p.Cause
		if p.Field != "" {
			cause = p.Field + ": " + cause
		}
		lines = append(lines, fmt.Sprintf("%s:%d: %s", e.Name, p.Line, cause))
	}
	if more := len(e.Problems) - maxShown; more > 0 {
		lines = append(lines, fmt.Sprintf("%s: %d more problems are not shown", e.Name, more))
	}
	return strings.Join(lines, "\n")
}

// A Form is what a file has to be.
type Form struct {
	Name   string // "cluster.yaml", for messages
	Thing  string // of which a file has one: "cluster"
	Create string // what to do where the file is empty: "make one with ortet cluster init"
	Schema []byte // draft 2020-12; patternErrorMessage says what a pattern wants
}

// A Parser reads one file, and collects its problems.
type Parser struct {
	form     Form
	doc      yaml.Node
	problems []Problem
	reported map[string]bool // fields
}

// New makes a Parser for one file.
func New(form Form) *Parser { return &Parser{form: form, reported: map[string]bool{}} }

// Err is an *InvalidError that has all problems so far, or nil. name is the file's.
func (p *Parser) Err(name string) error {
	if len(p.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(p.problems, func(a, b Problem) int { return cmp.Or(a.Line-b.Line, strings.Compare(a.Field, b.Field)) })
	return &InvalidError{name, p.problems}
}

func (p *Parser) add(line int, field, cause string) {
	p.problems = append(p.problems, Problem{line, field, cause})
}

// At adds a problem of a field, if it has none yet. The line of a field that is missing
// is its parent's. It is for use after Decode gave true.
func (p *Parser) At(field, cause string) {
	if !p.reported[field] {
		p.reported[field] = true
		p.add(p.line(field), field, cause)
	}
}

// AtOffset adds a problem of a byte of a field's text, one for each line.
func (p *Parser) AtOffset(field string, offset int, cause string) {
	n := p.node(field)
	line := n.Line
	if n.Kind == yaml.ScalarNode && n.Style&yaml.LiteralStyle != 0 && offset <= len(n.Value) {
		line += 1 + strings.Count(n.Value[:offset], "\n")
	}
	if key := fmt.Sprintf("%s:%d", field, line); !p.reported[field] && !p.reported[key] {
		p.reported[key] = true
		p.add(line, field, cause)
	}
}

var plain = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// Join is the name of a field or item in another: a.b, a[0], or a[b.c] where the name
// has other characters than letters, digits, _ and -.
func Join(field, name string) string {
	if _, err := strconv.Atoi(name); err == nil || !plain.MatchString(name) || strings.HasSuffix(field, ".labels") {
		return field + "[" + name + "]"
	}
	return strings.TrimPrefix(field+"."+name, ".")
}

var step = regexp.MustCompile(`[^.\[\]]+|\[[^\]]*\]`)

// line is a field's, which is that of its name; a mapping or list below has a later one.
func (p *Parser) line(field string) int {
	steps := step.FindAllString(field, -1)
	if len(steps) > 0 {
		in, name := p.node(strings.Join(steps[:len(steps)-1], ".")), strings.Trim(steps[len(steps)-1], "[]")
		for j := 0; in.Kind == yaml.MappingNode && j < len(in.Content); j += 2 {
			if in.Content[j].Value == name {
				return in.Content[j].Line
			}
		}
	}
	return p.node(field).Line
}

// node finds a field, or its nearest parent that is in the file.
func (p *Parser) node(field string) *yaml.Node {
	n := p.doc.Content[0]
	for _, name := range step.FindAllString(field, -1) {
		in := n
		if in.Kind == yaml.AliasNode {
			in = in.Alias
		}
		name = strings.Trim(name, "[]")
		i, err := strconv.Atoi(name)
		if in.Kind == yaml.MappingNode {
			i, err = -1, nil
			for j := 0; j < len(in.Content); j += 2 {
				if in.Content[j].Value == name {
					i = j + 1
				}
			}
		}
		if err != nil || i < 0 || i >= len(in.Content) {
			break
		}
		n = in.Content[i]
	}
	return n
}

// Decode reads a file that the schema accepts. It gives false where a problem was found.
func (p *Parser) Decode(data []byte, into any) bool {
	p.decode(data, into)
	return len(p.problems) == 0
}

func (p *Parser) decode(data []byte, into any) {
	if len(data) > maxBytes {
		p.add(1, "", "file is larger than 1 MiB; shorten it")
		return
	}
	var value any
	from := yaml.NewDecoder(bytes.NewReader(data))
	err := from.Decode(&p.doc)
	if errors.Is(err, io.EOF) {
		p.add(1, "", "file is empty; "+p.form.Create)
		return
	}
	if err == nil {
		err = p.doc.Decode(&value)
	}
	if err == nil {
		var second yaml.Node
		if err = from.Decode(&second); err == nil {
			p.add(second.Line, "", "second document; keep one "+p.form.Thing+" in a file")
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		p.syntax(err.Error())
		return
	}
	compiled, doc, err := compile(p.form.Schema)
	if err != nil {
		p.add(1, "", "cannot read the schema of "+p.form.Name+": "+err.Error())
		return
	}
	var invalid *jsonschema.ValidationError
	if errors.As(compiled.Validate(value), &invalid) {
		p.report(invalid, doc)
		return
	}
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		p.add(1, "", "cannot decode file: "+err.Error())
	}
}

var (
	yamlError = regexp.MustCompile(`^yaml: (?:unmarshal errors:\s*)?(?:line (\d+): )?`)
	// fromParser are errors in which the library counts lines from 0.
	fromParser = regexp.MustCompile(`^did not find expected (<|'|key|node|-)`)
)

func (p *Parser) syntax(text string) {
	line := 0
	if m := yamlError.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text, _, _ = strings.Cut(text[len(m[0]):], "\n")
	}
	if line > 0 && fromParser.MatchString(text) {
		line++
	}
	if strings.HasPrefix(text, "found character that cannot start any token") {
		text += ", such as a tab"
	}
	p.add(max(1, line), "", "invalid YAML: "+text+"; check indentation and quotes")
}

func compile(schema []byte) (compiled *jsonschema.Schema, doc any, err error) {
	if doc, err = jsonschema.UnmarshalJSON(bytes.NewReader(schema)); err != nil {
		return nil, nil, err
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("file.json", doc); err != nil {
		return nil, nil, err
	}
	compiled, err = compiler.Compile("file.json")
	return compiled, doc, err
}

// typeNames are JSON's types in YAML's words.
var typeNames = map[string]string{
	"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false", "array": "a list", "object": "a mapping",
}

// report adds a problem for each error of the schema that has no cause of its own.
func (p *Parser) report(e *jsonschema.ValidationError, doc any) {
	for _, cause := range e.Causes {
		p.report(cause, doc)
	}
	if len(e.Causes) > 0 {
		return
	}
	// The part of the schema that refuses.
	_, pointer, _ := strings.Cut(e.SchemaURL, "#/")
	at, _ := doc.(map[string]any)
	for name := range strings.SplitSeq(pointer, "/") {
		if next, ok := at[name].(map[string]any); ok {
			at = next
		}
	}
	field := ""
	for _, name := range e.InstanceLocation {
		field = Join(field, name)
	}
	n := p.node(field)
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			p.At(Join(field, name), "is missing; add it")
		}
	case *kind.AdditionalProperties:
		known, _ := at["properties"].(map[string]any)
		for _, name := range k.Properties {
			p.At(Join(field, name), "unknown field; use one of "+strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	case *kind.Type:
		switch {
		case k.Got == "null":
			p.At(field, "is empty; give a value, or delete the line")
		case k.Want[0] == "string" && n.Kind == yaml.ScalarNode:
			p.At(field, "is "+typeNames[k.Got]+`; put it in quotes: "`+n.Value+`"`)
		default:
			var want []string
			for _, name := range k.Want {
				want = append(want, typeNames[name])
			}
			p.At(field, "is "+typeNames[k.Got]+"; give "+strings.Join(want, ", "))
		}
	case *kind.InvalidJsonValue:
		p.At(field, "is of type "+n.ShortTag()+", or has a name that is not text; put it in quotes")
	case *kind.UniqueItems:
		item := Join(field, strconv.Itoa(max(k.Duplicates[0], k.Duplicates[1])))
		p.At(item, Quote(p.node(item).Value)+" is in the list already; delete one of them")
	case *kind.Enum:
		p.At(field, Quote(n.Value)+" is not known; use "+strings.Join(strings.Fields(strings.Trim(fmt.Sprint(at["enum"]), "[]")), ", "))
	case *kind.Not:
		p.At(field, fmt.Sprintf("%s %v", n.Value, at["errorMessage"]))
	case *kind.MinItems, *kind.MaxItems:
		p.At(field, fmt.Sprintf("has length %d; use %v to %v items", len(n.Content), at["minItems"], at["maxItems"]))
	case *kind.Minimum, *kind.Maximum:
		p.At(field, fmt.Sprintf("%s is out of range; use %v to %v", n.Value, at["minimum"], at["maximum"]))
	case *kind.MinLength, *kind.MaxLength:
		if n.Value == "" {
			p.At(field, "is empty; give a value, or delete the line")
		}
		p.At(field, fmt.Sprintf("%s has length %d; use %v to %v characters", Quote(n.Value), len([]rune(n.Value)), at["minLength"], at["maxLength"]))
	default: // pattern
		p.At(field, fmt.Sprintf("%s is not valid; %v", Quote(n.Value), at["patternErrorMessage"]))
	}
}

// Quote quotes a value, and cuts it at 60 characters.
func Quote(s string) string {
	if r := []rune(s); len(r) > 60 {
		s = string(r[:60]) + "…"
	}
	return strconv.Quote(s)
}
