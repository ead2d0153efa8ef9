package elastic

import (
	"bytes"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limits of cluster.yaml. The limit of values is of those after aliases are
// replaced, so that a small file cannot stand for a huge one.
const (
	maxBytes  = 1 << 20
	maxValues = 20_000
	maxShown  = 20
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
	var b strings.Builder
	for i, p := range e.Problems {
		if i == maxShown {
			fmt.Fprintf(&b, "\n%s: %d more problems are not shown", e.Name, len(e.Problems)-i)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s:%d: ", e.Name, p.Line)
		if p.Field != "" {
			b.WriteString(p.Field + ": ")
		}
		b.WriteString(p.Cause)
	}
	return b.String()
}

// Parse reads cluster.yaml, sets its defaults and checks all rules that need no
// network. name is the file's, for messages. The error is an *InvalidError.
func Parse(name string, data []byte) (*Cluster, error) {
	d := decoder{lines: map[string]int{}}
	c := d.file(data)
	if len(d.problems) == 0 {
		c.SetDefaults()
		d.rules(c)
	}
	if len(d.problems) > 0 {
		slices.SortStableFunc(d.problems, func(a, b Problem) int { return a.Line - b.Line })
		return nil, &InvalidError{name, d.problems}
	}
	return c, nil
}

type decoder struct {
	lines    map[string]int // of a field's path
	problems []Problem
	values   int
}

func (d *decoder) file(data []byte) *Cluster {
	c := new(Cluster)
	if len(data) > maxBytes {
		d.add(1, "", "file is larger than 1 MiB; shorten it")
		return c
	}
	from := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	if err := from.Decode(&doc); err != nil {
		if err == io.EOF {
			d.add(1, "", "file is empty; make one with ortet cluster init")
		} else {
			d.syntax(err)
		}
		return c
	}
	if err := from.Decode(&second); err == nil {
		d.add(second.Line, "", "second document; keep one cluster in a file")
	} else if err != io.EOF {
		d.syntax(err)
	}
	d.decode(doc.Content[0], reflect.ValueOf(c).Elem(), "", "")
	return c
}

// fromParser are errors in which the library counts lines from 0.
var fromParser = regexp.MustCompile(`^did not find expected (<|'|key|node|-)`)

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

func (d *decoder) syntax(err error) {
	text, line := err.Error(), 1
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = n
		}
		text = text[len(m[0]):]
		if m[1] != "" && fromParser.MatchString(text) {
			line++
		}
	}
	d.add(line, "", "invalid YAML: "+text+"; check indentation and quotes")
}

func (d *decoder) add(line int, path, cause string) {
	d.problems = append(d.problems, Problem{line, path, cause})
}

// at adds a problem of a field that may be missing: the line is then its parent's.
func (d *decoder) at(path, cause string) {
	line := 1
	for p := path; p != ""; p = p[:max(0, strings.LastIndexAny(p, ".["))] {
		if n := d.lines[p]; n > 0 {
			line = n
			break
		}
	}
	d.add(line, path, cause)
}

// decode sets v, whose key in fields is key.
func (d *decoder) decode(n *yaml.Node, v reflect.Value, path, key string) {
	f := fields[key]
	line := n.Line
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if path != "" {
		d.lines[path] = line
	}
	if d.values++; d.values > maxValues {
		if d.values == maxValues+1 {
			d.add(line, path, fmt.Sprintf("file has more than %d values; shorten it", maxValues))
		}
		return
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		d.add(line, path, "is empty; give a value, or delete the line")
		return
	}
	want := func(what string) {
		d.add(line, path, "is "+kind(n)+"; give "+what)
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Struct:
		if n.Kind != yaml.MappingNode {
			want("fields, each with its name")
			return
		}
		d.mapping(n, v, path, line)
	case reflect.Map:
		if n.Kind != yaml.MappingNode {
			want("names with values")
			return
		}
		v.Set(reflect.MakeMap(v.Type()))
		d.pairs(n, path, func(name string, _, value *yaml.Node) {
			item := reflect.New(v.Type().Elem()).Elem()
			d.decode(value, item, path+"["+name+"]", key+"[]")
			v.SetMapIndex(reflect.ValueOf(name), item)
		})
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			want("a list")
			return
		}
		if len(n.Content) < f.min || len(n.Content) > f.max {
			d.add(line, path, "has "+count(len(n.Content), "item")+"; use "+interval(f.min, f.max))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
		for i, item := range n.Content {
			d.decode(item, v.Index(i), fmt.Sprintf("%s[%d]", path, i), key+"[]")
		}
	case reflect.String:
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
			want("text")
			if n.Kind == yaml.ScalarNode {
				d.problems[len(d.problems)-1].Cause = "is " + kind(n) + `; put it in quotes: "` + n.Value + `"`
			}
			return
		}
		v.SetString(n.Value)
		if cause := f.check(n.Value); cause != "" {
			d.add(line, path, cause)
		}
	case reflect.Int:
		var i int
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || n.Decode(&i) != nil {
			want("a whole number")
			return
		}
		v.SetInt(int64(i))
		if i < f.min || i > f.max {
			d.add(line, path, fmt.Sprintf("%d is out of range; use %s", i, interval(f.min, f.max)))
		}
	case reflect.Bool:
		var b bool
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" || n.Decode(&b) != nil {
			want("true or false")
			return
		}
		v.SetBool(b)
	}
}

// pairs calls f for each name of a mapping, and refuses names that are there twice.
func (d *decoder) pairs(n *yaml.Node, path string, f func(name string, key, value *yaml.Node)) {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" && key.ShortTag() != "!!merge" {
			d.add(key.Line, path, "has "+kind(key)+" as a name; use text")
			continue
		}
		if first := seen[key.Value]; first > 0 {
			d.add(key.Line, join(path, key.Value), fmt.Sprintf("is set already in line %d; delete one of them", first))
			continue
		}
		seen[key.Value] = key.Line
		f(key.Value, key, n.Content[i+1])
	}
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, path string, line int) {
	t, found := v.Type(), map[string]bool{}
	byName := map[string]int{}
	var names []string
	for i := range t.NumField() {
		name, _ := jsonField(t.Field(i))
		byName[name] = i
		names = append(names, name)
	}
	d.pairs(n, path, func(name string, key, value *yaml.Node) {
		i, ok := byName[name]
		if !ok {
			cause := "unknown field; use one of " + strings.Join(names, ", ")
			if key.ShortTag() == "!!merge" {
				cause = "merge keys are not supported; write the values out"
			}
			d.add(key.Line, join(path, name), cause)
			return
		}
		found[name] = true
		d.decode(value, v.Field(i), join(path, name), t.Name()+"."+name)
	})
	for i := range t.NumField() {
		name, required := jsonField(t.Field(i))
		if required && !found[name] {
			d.add(max(1, line), join(path, name), "is missing; add it")
		}
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// kind is what a node is, for messages.
func kind(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.ShortTag() == "!!str":
		return "text"
	case n.ShortTag() == "!!int", n.ShortTag() == "!!float":
		return "a number"
	case n.ShortTag() == "!!bool":
		return "true or false"
	case n.ShortTag() == "!!null":
		return "empty"
	}
	return "of type " + n.ShortTag()
}

func quote(s string) string {
	if r := []rune(s); len(r) > 60 {
		s = string(r[:60]) + "…"
	}
	return strconv.Quote(s)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func interval(min, max int) string {
	if min == max {
		return strconv.Itoa(min)
	}
	return fmt.Sprintf("%d to %d", min, max)
}
