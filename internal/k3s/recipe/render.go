package recipe

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/internal/k3s"
)

//go:embed storage.yaml compute.yaml roles.yaml
var templates embed.FS

// Render makes the templates and the cloud-config documents of a cluster, whose
// defaults are set and whose rules are checked.
func Render(c *k3s.Cluster, f Facts) (*Documents, error) {
	address, err := ServerAddress(c)
	if err != nil {
		return nil, err
	}
	r := &renderer{Cluster: c, Facts: f, ServerAddress: address, packed: map[string]file{}}
	d := &Documents{CloudInit: map[string][]byte{}, Pools: map[string]k3s.Pool{}, Lowered: map[string]int{}, Evicted: map[string]int{}}
	if d.CloudInit[ServerName], err = r.serverDocument(); err != nil {
		return nil, err
	}
	if d.Settings, err = r.serverSettings(); err != nil {
		return nil, err
	}
	d.SettingsDigest = Digest(d.Settings)
	d.Applied = Applied{Fields: c.Fields(), CloudInit: map[string]string{}, Settings: d.SettingsDigest}
	d.Applied.Fields["spec.access.sshKey"] = k3s.Fingerprint(f.SSHPublicKey)
	for _, p := range c.Spec.Pools {
		if d.CloudInit[p.Name], err = r.agentDocument(&p); err != nil {
			return nil, err
		}
		d.Applied.CloudInit[p.Name] = Digest(append(d.CloudInit[p.Name], k3s.Fingerprint(f.SSHPublicKey)...))
	}
	server := c.Spec.Server
	made, err := json.Marshal([]any{d.CloudInit[ServerName], server.Image, server.DiskGB, server.DiskType, c.Spec.Access.User})
	if err != nil {
		return nil, fmt.Errorf("encode the server's recipe: %w", err)
	}
	d.ServerRecipe = Digest(made)
	r.Documents = d
	if r.Access, err = r.access(); err != nil {
		return nil, err
	}
	if d.Storage, err = r.deployment("storage.yaml", c.Spec.Groups.Storage, object{"stateExists": f.StateExists}, "account"); err != nil {
		return nil, err
	}
	if err := r.settlePools(); err != nil {
		return nil, err
	}
	d.Compute, err = r.deployment("compute.yaml", c.Spec.Groups.Compute,
		object{"sshPublicKey": f.SSHPublicKey, "capacity": r.Capacity, "serverExists": f.ServerExists, "applied": r.records()}, "group", "server")
	return d, err
}

// records are the record of this deployment, and that of the last one that succeeded: if
// this one fails halfway, some pools are as they were then.
func (r *renderer) records() []Applied {
	all := []Applied{r.Documents.Applied}
	if before := r.Facts.Applied; before != nil {
		all = append(all, *before)
	}
	return all
}

// Digest names content: the value of TagSettings of a server with these settings.
func Digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])[:16]
}

type object = map[string]any

// A renderer is what the templates take their values from.
type renderer struct {
	*k3s.Cluster
	Facts
	*Documents
	ServerAddress string
	Access        []access
	Pools         []pool
	Capacity      object // by pool
	Roles         []Grant
	packed        map[string]file // by content
	zip           *gzip.Writer
}

// deployment fills in a template, with the roles of these scopes.
func (r *renderer) deployment(name, group string, parameters object, scopes ...string) (Deployment, error) {
	r.Roles = slices.DeleteFunc(Grants(r.ScaledByPods()...), func(g Grant) bool {
		return !slices.Contains(scopes, g.Scope) && !(g.Pool() != "" && slices.Contains(scopes, scopeGroup))
	})
	d := Deployment{Group: group, Parameters: parameters}
	t, err := template.New(name).Funcs(template.FuncMap{
		"json": inJSON, "rule": rule, "image": image, "count": fileCount,
		"join":       func(all []string) string { return strings.Join(all, ",") },
		"list":       func(all ...string) []string { return all },
		"customData": func(name string) string { return base64.StdEncoding.EncodeToString(r.CloudInit[name]) },
		"settings":   func() string { return base64.StdEncoding.EncodeToString(r.Settings) },
	}).ParseFS(templates, "roles.yaml", name)
	if err != nil {
		return d, fmt.Errorf("cannot parse the templates: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, r); err != nil {
		return d, fmt.Errorf("cannot fill in template %s: %w", name, err)
	}
	if err := yaml.UnmarshalStrict(b.Bytes(), &d.Template); err != nil {
		return d, fmt.Errorf("cannot decode template %s: %w", name, err)
	}
	return d, nil
}

// inJSON is a value as JSON, which is YAML.
func inJSON(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}

// rule is a security rule that allows a protocol from sources to ports.
func rule(name string, priority int, protocol string, from, ports []string, description ...string) (string, error) {
	p := object{
		"priority": priority, "direction": "Inbound", "access": "Allow", "protocol": protocol,
		"sourceAddressPrefixes": from, "sourcePortRange": "*", "destinationAddressPrefix": "*", "destinationPortRanges": ports,
	}
	if len(description) > 0 {
		p["description"] = description[0]
	}
	return inJSON(object{"name": name, "properties": p})
}

// FileRules are the rules of spec.access.rules to servers or agents.
func (r *renderer) FileRules(to string) (rules []string, err error) {
	for _, a := range r.Spec.Access.Rules {
		if a.To != to {
			continue
		}
		from, _, err := k3s.Sources(a.From, r.OwnAddresses)
		if err == nil && len(from) == 0 {
			err = errors.New("no address of IPv4, which the cluster's network is of")
		}
		if err != nil {
			return nil, fmt.Errorf("sources of access.rules, rule %s: %w", a.Name, err)
		}
		text, err := rule(a.Name, a.Priority, a.Protocol, from, a.Ports, RuleDescription)
		if err != nil {
			return nil, err
		}
		rules = append(rules, text)
	}
	return rules, nil
}

// image is an imageReference.
func image(i, byDefault k3s.Image) (string, error) {
	if i == (k3s.Image{}) {
		i = byDefault
	}
	if i.ID != "" {
		return inJSON(object{"id": i.ID})
	}
	if i.Version == "" {
		i.Version = "latest"
	}
	return inJSON(object{"publisher": i.Publisher, "offer": i.Offer, "sku": i.SKU, "version": i.Version})
}

// Identities are the machines' managed identities.
func (r *renderer) Identities() []string { return append(r.ServerIdentities(), AgentIdentity) }

// ServerIdentities are those of the server's VM.
func (r *renderer) ServerIdentities() []string {
	if r.Spec.Options.ClusterAutoscaler != "" {
		return []string{ServerIdentity, AutoscalerIdentity}
	}
	return []string{ServerIdentity}
}

// Subnets are all of the cluster.
func (r *renderer) Subnets() []string {
	return []string{r.Spec.Network.Servers, r.Spec.Network.Agents}
}

// NAT reports whether machines reach the internet by a NAT gateway.
func (r *renderer) NAT() bool { return r.Spec.Network.Outbound != k3s.Addresses }

// OpenSSH are the ports of SSH that a security group opens: that of all machines, and those
// that it opens now.
func (r *renderer) OpenSSH(group string) []string {
	all := slices.Sorted(slices.Values(append([]string{strconv.Itoa(r.Spec.Access.SSHPort)}, r.SSHPorts[group]...)))
	return slices.Compact(all)
}

// FromAgents are the server's ports that agents need.
func (r *renderer) FromAgents() []string {
	if r.Spec.Options.PrivateRegistry {
		return []string{"6443", "8443", registryPort}
	}
	return []string{"6443", "8443"}
}

// An access is a rule that opens ports of the server to the outside.
type access struct {
	Name        string
	Priority    int
	From, Ports []string
}

// access makes rules of spec.access; a rule cannot mix IPv4 and IPv6 prefixes.
func (r *renderer) access() (rules []access, err error) {
	a := r.Spec.Access
	for i, open := range []struct {
		name    string
		sources []string
		ports   []string
	}{{"ssh", a.SSH, r.OpenSSH(k3s.ToServers)}, {"api", a.API, []string{"6443"}}, {"ingress", a.Ingress, []string{"80", "443"}}} {
		v4, v6, err := k3s.Sources(slices.Concat(open.sources, r.Sources[open.name]), r.OwnAddresses)
		if err != nil {
			return nil, fmt.Errorf("sources of access.%s: %w", open.name, err)
		}
		if r.NoPublicAddress {
			v4, v6 = k3s.PrivateRanges(v4), k3s.PrivateRanges(v6)
		}
		if len(v4) > 0 {
			rules = append(rules, access{open.name + "-ipv4", 100 + 10*i, v4, open.ports})
		}
		if len(v6) > 0 {
			rules = append(rules, access{open.name + "-ipv6", 101 + 10*i, v6, open.ports})
		}
	}
	return rules, nil
}

// ServerAddress is the server's static private address: the tenth of its subnet, of
// which Azure keeps the first four.
func ServerAddress(c *k3s.Cluster) (string, error) {
	p, err := netip.ParsePrefix(c.Spec.Network.Servers)
	if err != nil {
		return "", fmt.Errorf("subnet of the server: %w", err)
	}
	a := p.Masked().Addr()
	for range 10 {
		a = a.Next()
	}
	return a.String(), nil
}
