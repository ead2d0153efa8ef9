package draw

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/boots/timeline/source"
	"github.com/ortet/ortet/internal/wire"
)

const schemas = "../../../../docs/schema/"

func schema(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	s, err := c.Compile(schemas + name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func valid(t *testing.T, s *jsonschema.Schema, text []byte) error {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(value)
}

func jsonOf(t testing.TB, of timeline.Timeline) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := JSON(&b, of); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestJSONIsOfItsSchema(t *testing.T) {
	s := schema(t, "timeline.json")
	all := samples(t)
	all["large"], all["zero"] = large(400), timeline.Timeline{Version: timeline.Version}
	for name, sample := range all {
		text := jsonOf(t, sample)
		if name == "hostile" { // its kinds are none; what can be said is that it comes back
			var back timeline.Timeline
			if err := json.Unmarshal(text, &back); err != nil {
				t.Error(err)
			}
			continue
		}
		if err := valid(t, s, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name != "large" && name != "zero" {
			golden(t, name+".json", text)
		}
	}
	// The schema can also say no.
	for _, change := range [][2]string{{`"version": 1`, `"version": 2`}, {`"class": "node"`, `"class": "nothing"`}, {`"complete": true`, `"completed": true`}, {`"startUsec": 0`, `"startUsec": 0.5`}} {
		text := bytes.Replace(jsonOf(t, all["k3s"]), []byte(change[0]), []byte(change[1]), 1)
		if valid(t, s, text) == nil {
			t.Errorf("%s is accepted", change[1])
		}
	}
}

func TestBootReportIsOfItsSchema(t *testing.T) {
	s := schema(t, "boot-report.json")
	full := wire.BootReport{
		Version: wire.BootReportVersion, Node: "n", VMID: "v", BootID: "b", Image: "i", At: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
		Clocks:  []wire.ClockReading{{Monotonic: 1, Wall: 2}},
		System:  wire.SystemTimes{Firmware: 1, Loader: 1, InitRD: 1, Userspace: 1, Finish: 9, SoftReboot: 3, Container: true},
		Units:   []wire.BootUnit{{Name: "a.service", Activating: 1, Activated: 2, Deactivating: 3, Deactivated: 4, Grain: 1000, After: []string{"b.service"}, TriggeredBy: []string{"a.socket"}, Result: "exit-code", Restarts: 1, Skipped: true, Oneshot: true}},
		Spans:   []wire.BootSpan{{Source: "cloud-init", Name: "init", Clock: wire.ClockWall, Start: 1, End: 2, Open: true, Grain: 1000, Unit: "a.service", Parent: "p", Result: "FAIL", Detail: "d"}},
		Sources: []wire.BootSource{{Name: "waagent", Path: "/var/log/waagent.log", State: wire.SourceOther, Detail: "d"}},
	}
	for name, r := range map[string]wire.BootReport{"full": full, "empty": {Version: wire.BootReportVersion}} {
		if err := r.Validate(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := valid(t, s, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	bad := full
	bad.Sources = []wire.BootSource{{Name: "waagent", State: "lost"}}
	text, err := json.Marshal(bad)
	if err != nil {
		t.Fatal(err)
	}
	if valid(t, s, text) == nil || bad.Validate() == nil {
		t.Error("a state that is none is accepted")
	}
}

// What is made of logs is of the schema too, and is drawn as it should.
func TestBuiltTimelines(t *testing.T) {
	s := schema(t, "timeline.json")
	n := 0
	read := func(pattern string, reader func(io.Reader, source.Options) []wire.BootReport) {
		t.Helper()
		files, err := filepath.Glob("../source/testdata/" + pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no %s: %v", pattern, err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range reader(bytes.NewReader(content), source.Options{}) {
				n++
				of := timeline.Build(r, timeline.Cloud{Pool: "p"})
				if err := valid(t, s, jsonOf(t, of)); err != nil {
					t.Errorf("%s: %v", file, err)
				}
				checkText(t, file, of, Terminal{})
				checkPage(t, of)
				checkPicture(t, of)
			}
		}
	}
	read("*.md", source.CriticalChains)
	read("journal*.export", source.Journal)
	read("cloud-init*.log", source.CloudInitLog)
	if n < 5 {
		t.Errorf("only %d boots", n)
	}
}

// Each field of the types is in the schema and the other way round, each of the
// schema's is described, and what is never left out is required.
func TestSchemasNameEachField(t *testing.T) {
	for file, of := range map[string]any{"timeline.json": timeline.Timeline{}, "boot-report.json": wire.BootReport{}} {
		text, err := os.ReadFile(schemas + file)
		if err != nil {
			t.Fatal(err)
		}
		var root node
		if err := json.Unmarshal(text, &root); err != nil {
			t.Fatal(err)
		}
		compare(t, file, reflect.TypeOf(of), root, root)
		if file == "timeline.json" {
			var stages []string
			for _, s := range timeline.AllStages() {
				stages = append(stages, string(s))
			}
			if got := root.Defs["stage"].Enum; !slices.Equal(got, stages) {
				t.Errorf("the schema's stages are %v, there are %v", got, stages)
			}
		}
	}
}

// node is a piece of a schema.
type node struct {
	Ref         string          `json:"$ref"`
	Type        string          `json:"type"`
	Description string          `json:"description"`
	Required    []string        `json:"required"`
	Enum        []string        `json:"enum"`
	Additional  *bool           `json:"additionalProperties"`
	Properties  map[string]node `json:"properties"`
	Items       *node           `json:"items"`
	Defs        map[string]node `json:"$defs"`
}

func compare(t *testing.T, at string, of reflect.Type, n, root node) {
	t.Helper()
	if name, ok := strings.CutPrefix(n.Ref, "#/$defs/"); ok {
		if n, ok = root.Defs[name]; !ok {
			t.Errorf("%s: no definition %s", at, name)
			return
		}
	}
	if n.Description == "" && n.Items == nil && at[len(at)-1] != ']' {
		t.Errorf("%s is not described", at)
	}
	switch {
	case of.Kind() == reflect.Pointer:
		compare(t, at, of.Elem(), n, root)
	case of.Kind() == reflect.Slice:
		if n.Type != "array" || n.Items == nil {
			t.Errorf("%s is no array in the schema", at)
			return
		}
		compare(t, at+"[]", of.Elem(), *n.Items, root)
	case of == reflect.TypeFor[time.Time]():
		if n.Type != "string" {
			t.Errorf("%s is a time and %s in the schema", at, n.Type)
		}
	case of.Kind() == reflect.Struct:
		if n.Additional == nil || *n.Additional {
			t.Errorf("%s may hold what is not named", at)
		}
		var fields, required []string
		for i := range of.NumField() {
			f := of.Field(i)
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			fields = append(fields, name)
			if options == "" {
				required = append(required, name)
			}
			if p, ok := n.Properties[name]; ok {
				compare(t, at+"."+name, f.Type, p, root)
			}
		}
		slices.Sort(fields)
		slices.Sort(required)
		if got := slices.Sorted(maps.Keys(n.Properties)); !slices.Equal(got, fields) {
			t.Errorf("%s: the schema has %v, the type %v", at, got, fields)
		}
		if got := slices.Sorted(slices.Values(n.Required)); !slices.Equal(got, required) {
			t.Errorf("%s: the schema requires %v, the type always writes %v", at, got, required)
		}
	default:
		want := map[reflect.Kind]string{reflect.String: "string", reflect.Bool: "boolean", reflect.Int: "integer", reflect.Int64: "integer"}[of.Kind()]
		if n.Type != "" && n.Type != want {
			t.Errorf("%s is %s in the schema, and %s", at, n.Type, of.Kind())
		}
	}
}
