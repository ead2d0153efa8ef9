package explain

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// aliased reports whether a YAML has aliases: each is read as a copy of what it names, so
// that 1 MiB becomes gigabytes. kubectl writes none.
func aliased(text []byte) bool {
	var doc yaml.Node
	return yaml.Unmarshal(text, &doc) == nil && hasAlias(&doc)
}

func hasAlias(n *yaml.Node) bool {
	return n.Kind == yaml.AliasNode || slices.ContainsFunc(n.Content, hasAlias)
}
