package elastic_test

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/ortet/ortet/internal/elastic"
)

const schemaFile = "../../docs/schema/cluster.v1alpha1.json"

var update = flag.Bool("update", false, "write docs/schema/cluster.v1alpha1.json")

func TestPublishedSchemaIsCurrent(t *testing.T) {
	if *update {
		if err := os.WriteFile(schemaFile, elastic.Schema(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	published, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(published, elastic.Schema()) {
		t.Errorf("%s is not what Schema returns; run go test ./internal/elastic -run Schema -update", schemaFile)
	}
}

// bySchema validates YAML by the published schema.
func bySchema(t *testing.T, text []byte) error {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := yaml.Unmarshal(text, &value); err != nil {
		return err
	}
	return s.Validate(value)
}
