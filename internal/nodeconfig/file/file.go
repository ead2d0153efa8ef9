// Package file reads nodeconfig.yaml, and reports all that is wrong with it by line and
// field: before a push, since nodes can only refuse or restore.
package file

import (
	"crypto/ed25519"
	"fmt"
	"strings"
	"time"

	"github.com/ortet/ortet/docs/schema"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/redact"
	"github.com/ortet/ortet/internal/yamlfile"
)

// APIVersion and Kind are those of nodeconfig.yaml.
const (
	APIVersion = "ortet.io/v1alpha1"
	Kind       = "NodeConfig"
)

// Parse reads nodeconfig.yaml and checks all rules that need neither a node nor a
// cluster. name is the file's, for messages. The error is a *yamlfile.InvalidError.
func Parse(name string, data []byte) (nodeconfig.Config, error) {
	return ParseAt(name, data, time.Now())
}

// ParseAt is Parse at a time, by which certificates are judged.
func ParseAt(name string, data []byte, now time.Time) (nodeconfig.Config, error) {
	p := parser{yamlfile.New(yamlfile.Form{
		Name: "nodeconfig.yaml", Thing: "configuration", Schema: schema.NodeConfig,
		Create: "give apiVersion " + APIVersion + ", kind " + Kind + " and spec",
	})}
	var read struct {
		Spec nodeconfig.Config `json:"spec"`
	}
	if p.Decode(data, &read) {
		c := read.Spec
		p.files(c.Files)
		p.units(c.Units)
		p.sysctls(c.Sysctls)
		p.kubelet(c.Kubelet)
		p.mirrors(c.RegistryMirrors)
		p.certificates(c.CACertificates, now)
		p.secrets(c)
		p.size(c)
	}
	if err := p.Err(name); err != nil {
		return nodeconfig.Config{}, err
	}
	return read.Spec, nil
}

// A parser checks the rules of nodeconfig.yaml that its schema cannot say.
type parser struct{ *yamlfile.Parser }

// secrets refuses what looks like one: every process of a machine can read userData. The
// problem never shows the value.
func (p parser) secrets(c nodeconfig.Config) {
	find := func(field, path, content string, offsets bool) {
		for _, hit := range redact.Find(redact.Piece{Path: strings.TrimPrefix(path, "/"), Data: []byte(content), Whole: true}) {
			cause := "looks like a secret (rule " + hit.Rule + "), and every process of a machine can read userData; deliver it another way, such as a Kubernetes Secret"
			if offsets {
				p.AtOffset(field, hit.From, cause)
			} else {
				p.At(field, cause)
			}
		}
	}
	for i, f := range c.Files {
		find(fmt.Sprintf("spec.files[%d].content", i), f.Path, f.Content, true)
	}
	for i, u := range c.Units {
		at, path := fmt.Sprintf("spec.units[%d]", i), unitFolder+u.Name
		find(at+".content", path, u.Content, true)
		for j, d := range u.DropIns {
			find(fmt.Sprintf("%s.dropIns[%d].content", at, j), path+".d/"+d.Name, d.Content, true)
		}
	}
	for name, value := range c.Sysctls {
		find(yamlfile.Join("spec.sysctls", name), sysctlFile, name+" = "+value, false)
	}
	texts("spec.kubelet", "", c.Kubelet, func(field, name, text string) {
		find(field, kubeletFile, name+": "+text, false)
	})
	for i, m := range c.RegistryMirrors {
		for j, endpoint := range m.Endpoints {
			find(fmt.Sprintf("spec.registryMirrors[%d].endpoints[%d]", i, j), mirrorFolder+"hosts.toml", endpoint, false)
		}
	}
}

// texts yields all texts in a value, each with its field and the name that it has there.
func texts(at, name string, value any, yield func(field, name, text string)) {
	switch v := value.(type) {
	case string:
		yield(at, name, v)
	case []any:
		for i, item := range v {
			texts(fmt.Sprintf("%s[%d]", at, i), name, item, yield)
		}
	case map[string]any:
		for name, field := range v {
			texts(yamlfile.Join(at, name), name, field, yield)
		}
	}
}

// size refuses what would not fit into userData once it is signed.
func (p parser) size(c nodeconfig.Config) {
	if _, err := Size(c); err != nil {
		_, cause, _ := strings.Cut(err.Error(), ": ")
		p.At("spec", cause+"; shorten it, or have nodes fetch large files")
	}
}

// Size is how much of userData a configuration takes at most, in bytes of base64: with a
// long pool id, which packs badly, and two accepted keys.
func Size(c nodeconfig.Config) (int, error) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	public := key.Public().(ed25519.PublicKey)
	next := ed25519.NewKeyFromSeed(public)
	random := fmt.Sprintf("%x", ed25519.Sign(next, nil))
	userData, err := nodeconfig.Document{
		Pool:       "/subscriptions/" + random[:36] + "/resourcegroups/" + random[36:] + "/providers/microsoft.compute/virtualmachinescalesets/" + random[:64],
		Generation: 1 << 40,
		Keys:       []nodeconfig.PublicKey{nodeconfig.PublicKeyOf(public), nodeconfig.PublicKeyOf(next.Public().(ed25519.PublicKey))},
		Config:     c,
	}.Sign(key)
	return len(userData), err
}
