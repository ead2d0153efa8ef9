package recipe

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/ortet/ortet/internal/elastic"
)

// Render makes the templates and the cloud-config documents of a cluster, whose
// defaults are set and whose rules are checked.
func Render(c *elastic.Cluster, f Facts) (*Documents, error) {
	r := &renderer{c: c, facts: f}
	documents := map[string][]byte{}
	server, err := r.serverDocument()
	if err != nil {
		return nil, err
	}
	documents[ServerName] = server
	for i := range c.Spec.Pools {
		p := &c.Spec.Pools[i]
		if documents[p.Name], err = r.agentDocument(p); err != nil {
			return nil, err
		}
	}
	sum := sha256.Sum256(server)
	d := &Documents{Storage: r.storage(), CloudInit: documents, ServerRecipe: hex.EncodeToString(sum[:])[:16]}
	if d.Compute, err = r.compute(documents, d.ServerRecipe); err != nil {
		return nil, err
	}
	for _, one := range []*Deployment{&d.Storage, &d.Compute} {
		if one.Template, err = normal(one.Template); err != nil {
			return nil, err
		}
		if one.Parameters, err = normal(one.Parameters); err != nil {
			return nil, err
		}
	}
	return d, nil
}

type renderer struct {
	c     *elastic.Cluster
	facts Facts
}

// tagged marks a resource as part of the cluster.
func (r *renderer) tagged(resource object) object {
	resource["tags"] = object{TagCluster: r.c.Metadata.Name}
	return resource
}

// tag adds a tag to a resource that tagged has marked.
func tag(resource object, name, value string) {
	if tags, ok := resource["tags"].(object); ok {
		tags[name] = value
	}
}
