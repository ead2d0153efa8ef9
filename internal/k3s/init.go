package k3s

import (
	"bytes"
	_ "embed"
	"encoding/base32"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"

	"go.yaml.in/yaml/v3"
)

// noDigest stands for a digest that is not known yet.
var noDigest = strings.Repeat("0", 64)

//go:embed cluster.yaml.tmpl
var clusterText string

// render executes a template of cluster.yaml.tmpl.
func render(name string, data any) ([]byte, error) {
	t, err := template.New("cluster.yaml").Funcs(template.FuncMap{"inline": inline}).Parse(clusterText)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.ExecuteTemplate(&b, name, data)
	return b.Bytes(), err
}

// inline is a value in YAML's flow style.
func inline(value any) (string, error) {
	var n yaml.Node
	if err := n.Encode(value); err != nil {
		return "", err
	}
	n.Style |= yaml.FlowStyle
	out, err := yaml.Marshal(&n)
	return strings.TrimSpace(string(out)), err
}

// ArtifactsBlock is spec.artifacts of cluster.yaml, and spec.manifests if there are any,
// indented as they are there.
func ArtifactsBlock(a Artifacts, manifests []Manifest) ([]byte, error) {
	return render("blocks", Spec{Artifacts: a, Manifests: manifests})
}

// Placeholders are the names of artifacts whose digest is all zeros, as init writes
// it: a cluster cannot boot by them.
func (a Artifacts) Placeholders() (names []string) {
	for name, artifact := range a.all() {
		if artifact != nil && artifact.SHA256 == noDigest {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (a *Artifacts) all() map[string]*Artifact {
	all := map[string]*Artifact{"k3s": &a.K3s, "images": a.Images, "ortet": &a.Ortet, "ortetNode": &a.OrtetNode, "tailscale": a.Tailscale}
	for i := range a.ContainerToolkit {
		all[fmt.Sprintf("containerToolkit[%d]", i)] = &a.ContainerToolkit[i]
	}
	return all
}

// InitOptions are what a new cluster.yaml is made from.
type InitOptions struct {
	Name string
	// Spec needs no more than Location: what it does not set has its default. Without
	// pools there is one pool "agents" of 3 Spot machines, without artifacts there are
	// placeholders. Images by id, zones, labels, taints, options of k3s and manifests are not written.
	Spec Spec
	// Random makes up the storage account's name if Spec has none: crypto/rand.Reader.
	Random io.Reader
}

// Init writes a cluster.yaml with comments that explain each field. The error of
// options that are not valid is Parse's.
func Init(o InitOptions) ([]byte, error) {
	s := &o.Spec
	if s.Storage.Account == "" {
		account, err := accountName(o.Name, o.Random)
		if err != nil {
			return nil, err
		}
		s.Storage.Account = account
	}
	if len(s.Pools) == 0 {
		three := 3
		s.Pools = []Pool{{Name: "agents", Count: &three}}
	}
	if s.Artifacts.K3s == (Artifact{}) {
		none := func(file string) Artifact { return Artifact{"https://example.org/" + file, noDigest} }
		s.Artifacts = Artifacts{K3s: none("k3s"), Ortet: none("ortet"), OrtetNode: none("ortet-node")}
	}
	set(&s.Options.TimeZone, "UTC")
	c := Cluster{Metadata: Metadata{o.Name}, Spec: *s}
	c.SetDefaults()
	text, err := render("cluster.yaml", struct {
		Name string
		Spec Spec
	}{o.Name, c.Spec})
	if err != nil {
		return nil, fmt.Errorf("cannot write cluster.yaml: %w", err)
	}
	if _, err := Parse("cluster.yaml", text); err != nil {
		return nil, err
	}
	return text, nil
}

// accountName is of the cluster's name and 10 random characters.
func accountName(name string, random io.Reader) (string, error) {
	raw := make([]byte, 10)
	if _, err := io.ReadFull(random, raw); err != nil {
		return "", fmt.Errorf("cannot make up a storage account's name: %w", err)
	}
	prefix := strings.ReplaceAll(name, "-", "")
	return prefix[:min(14, len(prefix))] + strings.ToLower(base32.StdEncoding.EncodeToString(raw))[:10], nil
}
