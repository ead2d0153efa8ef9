package elastic

import (
	"bytes"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// InitOptions are what a new cluster.yaml is made from. What Spec does not set is
// written as a comment with its default.
type InitOptions struct {
	Name string
	// Spec needs no more than Location. Without pools one pool "agents" of 3 Spot
	// machines is written, without artifacts placeholders.
	Spec Spec
	// Random makes up the storage account's name if Spec has none: crypto/rand.Reader.
	Random io.Reader
}

// Init writes a cluster.yaml with comments that explain each field. The error of
// options that are not valid is Parse's.
func Init(o InitOptions) ([]byte, error) {
	s := o.Spec
	if s.Storage.Account == "" {
		account, err := accountName(o.Name, o.Random)
		if err != nil {
			return nil, err
		}
		s.Storage.Account = account
	}
	three, one, five := 3, 1, 5
	if len(s.Pools) == 0 {
		s.Pools = []Pool{{Name: "agents", Count: &three}}
	}
	if s.Artifacts == (Artifacts{}) {
		none := func(file string) Artifact { return Artifact{"https://example.org/" + file, noDigest} }
		s.Artifacts = Artifacts{K3s: none("k3s"), Ortet: none("ortet"), OrtetNode: none("ortet-node")}
	}

	// Defaults, and examples of what has none, for comments.
	d := Cluster{Metadata: Metadata{o.Name}, Spec: Spec{Pools: []Pool{{
		Count: &three, Min: &one, Max: &five, Zones: []string{"1"},
		Labels: map[string]string{"example.org/tier": "batch"}, Taints: []string{"example.org/tier=batch:NoSchedule"},
	}}}}
	d.SetDefaults()
	d.Spec.Access.Ingress = []string{Cloudflare}
	// A block needs one field that is not a comment.
	set(&s.Server.Size, d.Spec.Server.Size)
	set(&s.Options.TimeZone, "UTC")
	if s.Access.SSH == nil {
		s.Access.SSH = d.Spec.Access.SSH
	}

	w := new(writer)
	w.WriteString("# Comments such as # diskGB: 32 are defaults and examples. Remove the # to change\n# them, then run ortet cluster validate.\n")
	w.object(0, reflect.ValueOf(Cluster{APIVersion, Kind, d.Metadata, s}), reflect.ValueOf(d))
	text := w.Bytes()
	if s.Artifacts.Placeholders() != nil {
		text = bytes.Replace(text, []byte("\n  artifacts:\n"), []byte("\n  # These are placeholders: put the block in their place.\n  artifacts:\n"), 1)
	}
	if _, err := Parse("cluster.yaml", text); err != nil {
		return nil, err
	}
	return text, nil
}

// accountName is of the cluster's name and 10 random characters.
func accountName(name string, random io.Reader) (string, error) {
	if random == nil {
		return "", errors.New("cannot make up a storage account's name: no source of randomness; give the name")
	}
	raw := make([]byte, 10)
	if _, err := io.ReadFull(random, raw); err != nil {
		return "", fmt.Errorf("cannot make up a storage account's name: %w", err)
	}
	prefix := strings.ReplaceAll(name, "-", "")
	return prefix[:min(14, len(prefix))] + strings.ToLower(base32.StdEncoding.EncodeToString(raw))[:10], nil
}

// writer writes fields of cluster.yaml, with their documentation as comments.
type writer struct {
	bytes.Buffer
	plain bool // without documentation
}

// object writes the fields of a struct. What v does not set is a comment with d's value.
func (w *writer) object(indent int, v, d reflect.Value) {
	space := strings.Repeat(" ", indent)
	for i := range v.NumField() {
		name, _ := jsonField(v.Type().Field(i))
		f, otherwise := reflect.Indirect(v.Field(i)), reflect.Indirect(d.Field(i))
		block := f.Kind() == reflect.Struct && !f.IsZero() && f.Type() != reflect.TypeFor[Image]()
		if doc := fields[v.Type().Name()+"."+name].doc; !w.plain && indent > 0 {
			if indent == 2 && i > 0 {
				w.WriteByte('\n')
			}
			fmt.Fprintf(w, "%s# %s\n", space, doc)
		}
		switch {
		case block:
			fmt.Fprintf(w, "%s%s:\n", space, name)
			in := &writer{plain: w.plain || name == "artifacts"}
			if !otherwise.IsValid() {
				otherwise = reflect.Zero(f.Type())
			}
			in.object(indent+2, f, otherwise)
			w.Write(in.Bytes())
		case name == "pools":
			fmt.Fprintf(w, "%s%s:\n", space, name)
			for i := range f.Len() {
				item := new(writer)
				item.object(indent+2, f.Index(i), otherwise.Index(0))
				w.Write(bytes.Replace(item.Bytes(), []byte(space+"  name:"), []byte(space+"- name:"), 1))
			}
		case f.IsValid() && (v.Field(i).Kind() == reflect.Pointer || !f.IsZero()):
			fmt.Fprintf(w, "%s%s: %s\n", space, name, inline(f.Interface()))
		case !w.plain:
			fmt.Fprintf(w, "%s# %s: %s\n", space, name, inline(otherwise.Interface()))
		}
	}
}

// inline is a value in YAML's flow style, or JSON's, which is YAML too.
func inline(value any) string {
	switch v := value.(type) {
	case string:
		return scalar(v)
	case []string:
		items := make([]string, len(v))
		for i, s := range v {
			items[i] = scalar(s)
			if strings.ContainsAny(s, ",[]{}") {
				items[i] = quote(s)
			}
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	out, _ := json.Marshal(value) // numbers, switches, and maps of strings: cannot fail
	return string(out)
}

func scalar(s string) string {
	out, err := yaml.Marshal(s)
	if text := strings.TrimSpace(string(out)); err == nil && !strings.Contains(text, "\n") {
		return text
	}
	out, _ = json.Marshal(s)
	return string(out)
}
