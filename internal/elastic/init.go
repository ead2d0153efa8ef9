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
	if len(s.Pools) == 0 {
		three := 3
		s.Pools = []Pool{{Name: "agents", Count: &three}}
	}
	if s.Artifacts == (Artifacts{}) {
		none := func(file string) Artifact { return Artifact{"https://example.org/" + file, noDigest} }
		s.Artifacts = Artifacts{K3s: none("k3s"), Ortet: none("ortet"), OrtetNode: none("ortet-node")}
	}
	d := Cluster{Metadata: Metadata{o.Name}, Spec: Spec{Pools: []Pool{{}}}}
	d.SetDefaults()
	text := render(o.Name, s, d.Spec)
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

// writer writes fields with their documentation as comments.
type writer struct{ bytes.Buffer }

// field writes a field, or its default as a comment if value is zero. key is that of
// the table of fields.
func (w *writer) field(indent int, key string, value, otherwise any) {
	space, name := strings.Repeat(" ", indent), key[strings.IndexByte(key, '.')+1:]
	fmt.Fprintf(w, "%s# %s\n", space, fields[key].doc)
	if reflect.ValueOf(value).IsZero() {
		fmt.Fprintf(w, "%s# %s: %s\n", space, name, inline(otherwise))
	} else {
		fmt.Fprintf(w, "%s%s: %s\n", space, name, inline(value))
	}
}

// image writes an image block; the zero one is a comment.
func (w *writer) image(indent int, i, otherwise Image) {
	space := strings.Repeat(" ", indent)
	if i == (Image{}) {
		i, space = otherwise, space+"# "
	}
	fmt.Fprintf(w, "%simage: %s\n", space, inline(i))
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

func render(name string, s, d Spec) []byte {
	w := new(writer)
	fmt.Fprintf(w, `# A k3s cluster on Azure, for ortet cluster. Comments such as # diskGB: 32 are
# defaults and examples; remove the # to change them, then run
# ortet cluster validate.
apiVersion: %s
kind: %s
metadata:
`, APIVersion, Kind)
	w.field(2, "Metadata.name", name, "")
	w.WriteString("spec:\n")
	w.field(2, "Spec.location", s.Location, "")
	if s.Groups != (Groups{}) {
		w.WriteString("  groups:\n")
		w.field(4, "Groups.storage", s.Groups.Storage, d.Groups.Storage)
		w.field(4, "Groups.compute", s.Groups.Compute, d.Groups.Compute)
	} else {
		fmt.Fprintf(w, "  # Resource groups.\n  # groups: {storage: %s, compute: %s}\n", d.Groups.Storage, d.Groups.Compute)
	}
	fmt.Fprintf(w, "  # %s\n  # Or {id: /subscriptions/…/galleries/GALLERY/images/IMAGE}.\n", fields["Spec.image"].doc)
	w.image(2, s.Image, d.Image)

	fmt.Fprintf(w, "\n  # %s\n", fields["Spec.artifacts"].doc)
	if s.Artifacts.Placeholders() != nil {
		w.WriteString("  # These are placeholders. Replace them by the block that ortet cluster artifacts DIR prints.\n")
	}
	w.Write(ArtifactsBlock(s.Artifacts))

	fmt.Fprintf(w, "\n  # %s\n", fields["Spec.network"].doc)
	if s.Network != (Network{}) {
		fmt.Fprintf(w, "  network: %s\n", inline(s.Network))
	} else {
		fmt.Fprintf(w, "  # network: %s\n", inline(d.Network))
	}

	fmt.Fprintf(w, "\n  # %s\n", fields["Spec.server"].doc)
	server := s.Server
	if server == (Server{}) {
		server.Size = d.Server.Size
	}
	w.WriteString("  server:\n")
	w.field(4, "Server.size", server.Size, d.Server.Size)
	w.field(4, "Server.diskGB", server.DiskGB, d.Server.DiskGB)
	w.field(4, "Server.diskType", server.DiskType, d.Server.DiskType)
	w.image(4, server.Image, d.Image)

	fmt.Fprintf(w, "\n  # %s Each item is a pool.\n  pools:\n", fields["Spec.pools"].doc)
	for _, p := range s.Pools {
		w.pool(p, d.Pools[0])
	}

	w.WriteString("\n  # What outlives compute: the storage account and its file shares.\n  storage:\n")
	w.field(4, "Storage.account", s.Storage.Account, "")
	w.field(4, "Storage.existing", s.Storage.Existing, true)
	w.field(4, "Storage.shares", s.Storage.Shares, d.Storage.Shares)
	w.field(4, "Storage.mount", s.Storage.Mount, d.Storage.Mount)

	a := s.Access
	if reflect.ValueOf(a).IsZero() {
		a.SSH = d.Access.SSH
	}
	fmt.Fprintf(w, "\n  # %s\n  access:\n", fields["Spec.access"].doc)
	w.field(4, "Access.user", a.User, d.Access.User)
	w.field(4, "Access.sshPort", a.SSHPort, d.Access.SSHPort)
	w.field(4, "Access.sshKey", a.SSHKey, d.Access.SSHKey)
	w.field(4, "Access.ssh", a.SSH, d.Access.SSH)
	w.field(4, "Access.api", a.API, d.Access.API)
	w.field(4, "Access.ingress", a.Ingress, []string{Cloudflare})
	w.field(4, "Access.fail2ban", a.Fail2ban, true)

	fmt.Fprintf(w, "\n  # %s\n", fields["Spec.options"].doc)
	w.WriteString("  options:\n")
	w.field(4, "Options.privateRegistry", s.Options.PrivateRegistry, true)
	w.field(4, "Options.swapGB", &s.Options.SwapGB, 0) // always, so that the block is not empty
	w.field(4, "Options.scratch", s.Options.Scratch, true)
	w.field(4, "Options.timeZone", s.Options.TimeZone, "UTC")
	w.field(4, "Options.rebootAfterUpdates", s.Options.RebootAfterUpdates, true)
	return w.Bytes()
}

func (w *writer) pool(p, d Pool) {
	fmt.Fprintf(w, "  # %s\n  - name: %s\n", fields["Pool.name"].doc, scalar(p.Name))
	w.field(4, "Pool.size", p.Size, defaultSize)
	w.field(4, "Pool.count", p.Count, 3)
	w.field(4, "Pool.min", p.Min, 1)
	w.field(4, "Pool.max", p.Max, 5)
	w.field(4, "Pool.priority", p.Priority, d.Priority)
	w.field(4, "Pool.evictionPolicy", p.EvictionPolicy, d.EvictionPolicy)
	w.field(4, "Pool.zones", p.Zones, []string{"1"})
	w.field(4, "Pool.scaleInPolicy", p.ScaleInPolicy, d.ScaleInPolicy)
	w.field(4, "Pool.diskGB", p.DiskGB, d.DiskGB)
	w.field(4, "Pool.diskType", p.DiskType, d.DiskType)
	w.image(4, p.Image, d.Image)
	w.field(4, "Pool.labels", p.Labels, map[string]string{"example.org/tier": "batch"})
	w.field(4, "Pool.taints", p.Taints, []string{"example.org/tier=batch:NoSchedule"})
}
