package elastic

import (
	"bytes"
	"cmp"
	"encoding/json"
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

	"github.com/ortet/ortet/docs/schema"
)

const (
	maxBytes = 1 << 20 // of cluster.yaml
	maxShown = 20      // problems
)

// A Problem is one thing that is wrong with cluster.yaml.
type Problem struct {
	Line  int    `json:"line"`            // 1 is the first
	Field string `json:"field,omitempty"` // "spec.pools[1].size"
	Cause string `json:"cause"`           // what is wrong; what to do
}

// An InvalidError is all that is wrong with cluster.yaml, in the order of lines.
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

// Parse reads cluster.yaml, sets its defaults and checks all rules that need no
// network. name is the file's, for messages. The error is an *InvalidError.
func Parse(name string, data []byte) (*Cluster, error) {
	p, c := parser{nodes: map[string]*yaml.Node{}, reported: map[string]bool{}}, new(Cluster)
	if doc := p.document(data); doc != nil {
		value := p.value(doc, "")
		p.validate(value)
		if len(p.problems) == 0 {
			p.decode(value, c)
		}
	}
	if len(p.problems) == 0 {
		c.SetDefaults()
		p.rules(c)
	}
	if len(p.problems) > 0 {
		slices.SortStableFunc(p.problems, func(a, b Problem) int { return cmp.Or(a.Line-b.Line, strings.Compare(a.Field, b.Field)) })
		return nil, &InvalidError{name, p.problems}
	}
	return c, nil
}

type parser struct {
	nodes    map[string]*yaml.Node // by field
	reported map[string]bool       // fields
	problems []Problem
}

func (p *parser) add(line int, field, cause string) {
	p.problems = append(p.problems, Problem{line, field, cause})
}

// at adds a problem of a field, if it has none yet. The line of a field that is missing
// is its parent's.
func (p *parser) at(field, cause string) {
	if p.reported[field] {
		return
	}
	p.reported[field] = true
	f := field
	for f != "" && p.nodes[f] == nil {
		f = f[:max(0, strings.LastIndexAny(f, ".["))]
	}
	p.add(max(1, p.nodes[f].Line), field, cause)
}

func (p *parser) document(data []byte) *yaml.Node {
	if len(data) > maxBytes {
		p.add(1, "", "file is larger than 1 MiB; shorten it")
		return nil
	}
	from := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	err := from.Decode(&doc)
	if err == io.EOF {
		p.add(1, "", "file is empty; make one with ortet cluster init")
		return nil
	}
	if err == nil {
		if err = from.Decode(&second); err == nil {
			p.add(second.Line, "", "second document; keep one cluster in a file")
		}
	}
	if err != nil && err != io.EOF {
		p.syntax(err.Error())
		return nil
	}
	return doc.Content[0]
}

var (
	yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)
	// fromParser are errors in which the library counts lines from 0.
	fromParser = regexp.MustCompile(`^did not find expected (<|'|key|node|-)`)
)

func (p *parser) syntax(text string) {
	m := yamlError.FindStringSubmatch(text)
	if m == nil {
		m = []string{"", ""}
	}
	text = text[len(m[0]):]
	line, err := strconv.Atoi(m[1])
	if err == nil && fromParser.MatchString(text) {
		line++
	}
	p.add(max(1, line), "", "invalid YAML: "+text+"; check indentation and quotes")
}

// join is the name of a field or item in another.
func join(field, name string) string {
	if _, err := strconv.Atoi(name); err == nil || strings.HasSuffix(field, ".labels") {
		return field + "[" + name + "]"
	}
	return strings.TrimPrefix(field+"."+name, ".")
}

// value is what a node holds, as a JSON decoder would give it.
func (p *parser) value(n *yaml.Node, field string) (v any) {
	p.nodes[field] = n
	switch {
	case n.Kind == yaml.SequenceNode:
		list := []any{}
		for i, item := range n.Content {
			list = append(list, p.value(item, join(field, strconv.Itoa(i))))
		}
		return list
	case n.Kind == yaml.MappingNode:
		fields, lines := map[string]any{}, map[string]int{}
		for i := 0; i < len(n.Content); i += 2 {
			name := n.Content[i]
			if name.ShortTag() != "!!str" && name.ShortTag() != "!!merge" {
				p.add(name.Line, field, "has "+kindOf(name)+" as a name; use text")
			} else if first := lines[name.Value]; first > 0 {
				p.add(name.Line, join(field, name.Value), fmt.Sprintf("is set already in line %d; delete one of them", first))
			} else {
				lines[name.Value] = name.Line
				fields[name.Value] = p.value(n.Content[i+1], join(field, name.Value))
			}
		}
		return fields
	case n.Kind == yaml.AliasNode:
		p.at(field, "is the alias *"+n.Value+"; write its value out")
	case n.ShortTag() == "!!float":
		return 0.5 // no field takes a fraction
	case !slices.Contains([]string{"!!str", "!!int", "!!bool", "!!null"}, n.ShortTag()) || n.Decode(&v) != nil:
		p.at(field, "is "+kindOf(n)+"; put it in quotes")
	}
	return v
}

func (p *parser) decode(value any, c *Cluster) {
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, c)
	}
	if err != nil {
		p.add(1, "", "cannot decode file: "+err.Error())
	}
}

// validate checks a value by the published schema.
func (p *parser) validate(value any) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema.Cluster))
	compiler := jsonschema.NewCompiler()
	const name = "cluster.json"
	if err == nil {
		err = compiler.AddResource(name, doc)
	}
	compiled, err2 := compiler.Compile(name)
	if err != nil || err2 != nil {
		p.add(1, "", fmt.Sprintf("cannot read the schema of cluster.yaml: %v %v", err, err2))
		return
	}
	if invalid, ok := compiled.Validate(value).(*jsonschema.ValidationError); ok {
		p.report(invalid, doc)
	}
}

// report adds a problem for each error of the schema that has no cause of its own.
func (p *parser) report(e *jsonschema.ValidationError, doc any) {
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
		field = join(field, name)
	}
	n := p.nodes[field]
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			p.at(join(field, name), "is missing; add it")
		}
	case *kind.AdditionalProperties:
		known, _ := at["properties"].(map[string]any)
		for _, name := range k.Properties {
			p.at(join(field, name), "unknown field; use one of "+strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	case *kind.Type:
		p.at(field, wrongType(n, k.Want[0]))
	case *kind.UniqueItems:
		item := join(field, strconv.Itoa(max(k.Duplicates[0], k.Duplicates[1])))
		p.at(item, quote(p.nodes[item].Value)+" is in the list already; delete one of them")
	case *kind.Enum:
		p.at(field, quote(n.Value)+" is not known; use "+strings.Join(strings.Fields(strings.Trim(fmt.Sprint(at["enum"]), "[]")), ", "))
	case *kind.MinItems, *kind.MaxItems:
		p.at(field, fmt.Sprintf("has %d items; use %v to %v", len(n.Content), at["minItems"], at["maxItems"]))
	case *kind.Minimum, *kind.Maximum:
		p.at(field, fmt.Sprintf("%s is out of range; use %v to %v", n.Value, at["minimum"], at["maximum"]))
	case *kind.Not:
		p.at(field, fmt.Sprintf("%s %v", n.Value, at["errorMessage"]))
	default: // pattern and lengths
		switch length := len([]rune(n.Value)); {
		case length == 0:
			p.at(field, "is empty; give a value, or delete the line")
		case at["maxLength"] == nil || fmt.Sprint(e.ErrorKind.KeywordPath()) == "[pattern]":
			p.at(field, fmt.Sprintf("%s is not valid; %v", quote(n.Value), at["patternErrorMessage"]))
		default:
			p.at(field, fmt.Sprintf("%s has %d characters; use %v to %v", quote(n.Value), length, at["minLength"], at["maxLength"]))
		}
	}
}

func wrongType(n *yaml.Node, want string) string {
	switch {
	case n.ShortTag() == "!!null":
		return "is empty; give a value, or delete the line"
	case want == "string" && n.Kind == yaml.ScalarNode:
		return "is " + kindOf(n) + `; put it in quotes: "` + n.Value + `"`
	}
	return "is " + kindOf(n) + "; give " + map[string]string{
		"string": "text", "integer": "a whole number", "boolean": "true or false", "array": "a list", "object": "fields, each with its name",
	}[want]
}

// kindOf is what a node is, for messages.
func kindOf(n *yaml.Node) string {
	tag := n.ShortTag()
	words := map[string]string{"!!map": "a mapping", "!!seq": "a list", "!!str": "text", "!!int": "a number", "!!float": "a number", "!!bool": "true or false"}
	if words[tag] == "" {
		return "of type " + tag
	}
	return words[tag]
}

func quote(s string) string {
	if r := []rune(s); len(r) > 60 {
		s = string(r[:60]) + "…"
	}
	return strconv.Quote(s)
}
