package k3s

import (
	"github.com/ortet/ortet/docs/schema"
	"github.com/ortet/ortet/internal/yamlfile"
)

// Parse reads cluster.yaml, sets its defaults and checks all rules that need no
// network. name is the file's, for messages. The error is a *yamlfile.InvalidError.
func Parse(name string, data []byte) (*Cluster, error) {
	p := parser{yamlfile.New(yamlfile.Form{
		Name: "cluster.yaml", Thing: "cluster", Create: "make one with ortet cluster init", Schema: schema.Cluster,
	})}
	c := new(Cluster)
	if p.Decode(data, c) {
		c.SetDefaults()
		p.rules(c)
	}
	if err := p.Err(name); err != nil {
		return nil, err
	}
	return c, nil
}

// A parser checks the rules of cluster.yaml.
type parser struct{ *yamlfile.Parser }
