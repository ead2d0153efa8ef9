package k3s

import (
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/ortet/ortet/internal/yamlfile"
)

// rules checks what the schema cannot say. The defaults are set.
func (p parser) rules(c *Cluster) {
	s := &c.Spec
	if strings.EqualFold(s.Groups.Storage, s.Groups.Compute) {
		p.At("spec.groups.compute", "is the same group as spec.groups.storage, which outlives it; use two")
	}
	if b := s.Backup; b != nil {
		for name, group := range map[string]string{"storage": s.Groups.Storage, "compute": s.Groups.Compute} {
			if strings.EqualFold(b.Group, group) {
				p.At("spec.backup.group", "is the same group as spec.groups."+name+", which ortet cluster down deletes; use another")
			}
		}
		if b.Region == s.Location {
			p.At("spec.backup.region", "is the same region as spec.location; use another, or leave it out")
		}
	}
	p.image("spec.image", s.Image)
	p.image("spec.server.image", s.Server.Image)
	p.k3s("spec.server.k3s", s.Server.K3s, nil)
	for name, a := range s.Artifacts.all() {
		if a != nil {
			p.artifact("spec.artifacts."+name+".url", a.URL)
		}
	}
	p.toolkit(s.Artifacts.ContainerToolkit)
	p.manifests(s.Manifests)
	names, agents := map[string]string{"server": "the server"}, 0
	for i, pool := range s.Pools {
		at := fmt.Sprintf("spec.pools[%d]", i)
		if other := names[pool.Name]; other != "" {
			p.At(at+".name", fmt.Sprintf("%q is the name of %s already; use another", pool.Name, other))
		}
		names[pool.Name] = at
		p.pool(at, pool)
		if pool.ScaleBy == Pods && s.Options.ClusterAutoscaler == "" {
			p.At(at+".scaleBy", "needs cluster-autoscaler; give its image, IMAGE@sha256:DIGEST, in spec.options.clusterAutoscaler")
		}
		p.gpu(at, pool, s)
		for _, n := range []*int{pool.Count, pool.Max} {
			if n != nil {
				agents += *n
			}
		}
	}
	p.network(&s.Network, agents)
	if !slices.Contains(s.Storage.Shares, s.Storage.Mount) {
		p.At("spec.storage.mount", fmt.Sprintf("%q is not among spec.storage.shares (%s); use one of them, or add it", s.Storage.Mount, strings.Join(s.Storage.Shares, ", ")))
	}
	p.access(&s.Access)
	p.ways(s)
	p.accessRules(s)
}

func (p parser) image(at string, i Image) {
	switch {
	case i.ID != "" && i != Image{ID: i.ID}:
		p.At(at, "has an id and a Marketplace image; keep id, or publisher, offer, sku and version")
	case i.ID == "" && (i.Publisher == "" || i.Offer == "" || i.SKU == ""):
		p.At(at, "is incomplete; give publisher, offer and sku, or id")
	}
}

func (p parser) artifact(at, text string) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "file" && u.Host == "":
		p.At(at, yamlfile.Quote(text)+" is not a URL; use https://HOST/PATH, http://HOST/PATH or file:///srv/PATH")
	case u.User != nil || u.Query().Has("sig"):
		p.At(at, "has a password or a signature in it, which everybody on a machine could read; use a URL without, or file:///srv/PATH on the share")
	case u.Scheme == "file" && (path.Clean(u.Path) != u.Path || u.RawQuery != "" || u.Fragment != ""):
		p.At(at, yamlfile.Quote(text)+" is not a file of the share; use file:///srv/PATH, without .. and ?")
	}
}

var deb = regexp.MustCompile(`^[a-z0-9][A-Za-z0-9+.~_%-]*\.deb$`)

// toolkit checks Debian packages, which machines keep by the names of their files.
func (p parser) toolkit(all []Artifact) {
	names := map[string]bool{}
	for i, a := range all {
		at, name := fmt.Sprintf("spec.artifacts.containerToolkit[%d].url", i), FileOf(a.URL)
		if !deb.MatchString(name) {
			p.At(at, yamlfile.Quote(name)+" is not the file of a Debian package; use a URL that ends with NAME.deb")
		} else if names[name] {
			p.At(at, yamlfile.Quote(name)+" is in the list already; delete one of them")
		}
		names[name] = true
	}
}

// gpu checks that there is what pods need to get a pool's GPUs.
func (p parser) gpu(at string, pool Pool, s *Spec) {
	if pool.GPU == nil {
		return
	}
	for label, value := range gpuLabels() {
		if is := pool.Labels[label]; is != value {
			p.At(at+".labels["+label+"]", fmt.Sprintf("is %q, but gpu gives Nodes %q; delete this label", is, value))
		}
	}
	at += ".gpu"
	if pool.GPU.Driver != InImage && len(s.Artifacts.ContainerToolkit) == 0 {
		p.At(at+".driver", "needs NVIDIA's container toolkit; add spec.artifacts.containerToolkit, "+
			"the block that ortet cluster artifacts --container-toolkit FILE prints, or use driver: image")
	}
	if s.Options.DevicePlugin == "" {
		p.At(at, "needs NVIDIA's device plugin; give its image, IMAGE@sha256:DIGEST, in spec.options.devicePlugin")
	}
}

func (p parser) manifests(all []Manifest) {
	names := map[string]string{"admission": "a manifest of Ortet's own"} // ortet-admission.yaml
	for i, m := range all {
		at := fmt.Sprintf("spec.manifests[%d]", i)
		if other := names[m.Name]; other != "" {
			p.At(at+".name", fmt.Sprintf("%q is the name of %s already; use another", m.Name, other))
		}
		names[m.Name] = at
		p.artifact(at+".url", m.URL)
	}
}

var option = regexp.MustCompile(`^[a-z][a-z0-9-]*[a-z0-9]$`) // longer than k3s's abbreviations, -t of --token

// ownOptions are those of k3s that are not for cluster.yaml, and what is in their place.
// An end of "-*" is for all that begin so.
var ownOptions = map[string]string{ // #nosec G101 -- names of options
	"token-*": "k3s makes it", "agent-token-*": "k3s makes it", "datastore-*": "the datastore is on the state disk",
	"server": "agents join by admission", "node-name": "it is the machine's", "node-ip": "it is the machine's",
	"data-dir": "the state disk is mounted there", "config": "put its options here", "tls-san": "it has the server's addresses and name",
	"cluster-init": "the cluster has one server", "cluster-reset-*": "it is no setting",
	"cluster-cidr": "use spec.network.pods", "service-cidr": "use spec.network.services", "https-listen-port": "it is 6443",
	"write-kubeconfig-*": "use ortet cluster kubeconfig",
}

// k3s checks options of k3s; own are more that Ortet sets.
func (p parser) k3s(at string, options K3s, own map[string]string) {
	for key := range options {
		instead := own[key]
		for name, text := range ownOptions {
			if all, family := strings.CutSuffix(name, "-*"); key == name || family && (key == all || strings.HasPrefix(key, all+"-")) {
				instead = text
			}
		}
		if instead != "" {
			p.At(yamlfile.Join(at, key), "is set by Ortet; delete it: "+instead)
		} else if !option.MatchString(key) {
			p.At(yamlfile.Join(at, key), yamlfile.Quote(key)+" is not an option; use its name in k3s's config.yaml, such as kubelet-arg")
		}
	}
}

var (
	taint = regexp.MustCompile(`^([^=:]+)(?:=([^=:]*))?:(NoSchedule|PreferNoSchedule|NoExecute)$`)
	// The API server refuses a Node whose kubelet sets labels of Kubernetes' own, but for
	// some (admission plug-in NodeRestriction, KEP 279).
	reserved   = regexp.MustCompile(`^(.*\.)?(kubernetes|k8s)\.io/`)
	unreserved = regexp.MustCompile(`^(.*\.)?(node|kubelet)\.kubernetes\.io/|^topology\.kubernetes\.io/(region|zone)$`)
)

func (p parser) pool(at string, pool Pool) {
	if pool.Priority == Regular && pool.EvictionPolicy != "" {
		p.At(at+".evictionPolicy", "is for priority Spot only; delete it, or use priority: Spot")
	}
	least, most := pool.Min != nil, pool.Max != nil
	switch {
	case pool.Count != nil && (least || most):
		p.At(at+".count", "is set beside min or max; keep count, or min and max")
	case pool.Count == nil && !(least && most):
		p.At(at, "has no number of agents; give count, or min and max")
	case least && *pool.Min > *pool.Max:
		p.At(at+".min", fmt.Sprintf("%d is larger than max, %d; swap them", *pool.Min, *pool.Max))
	}
	switch {
	case pool.ScaleBy != "" && pool.Count != nil:
		p.At(at+".scaleBy", "is for min and max; delete it, or give min and max in place of count")
	case pool.ScaleBy == Pods && most && *pool.Max == 0:
		p.At(at+".max", "is 0, which cluster-autoscaler does not take; give 1 or more, or count: 0")
	case pool.ScaleBy == Pods && pool.EvictionPolicy == Deallocate:
		p.At(at+".evictionPolicy", "keeps evicted machines, which cluster-autoscaler counts; use Delete, and it makes others")
	case pool.ScaleBy == Pods && len(pool.Labels)+len(pool.Taints) > 30:
		p.At(at, fmt.Sprintf("has %d labels and taints, each of which is a tag for cluster-autoscaler; Azure has room for 30", len(pool.Labels)+len(pool.Taints)))
	}
	p.image(at+".image", pool.Image)
	p.k3s(at+".k3s", pool.K3s, map[string]string{"node-label": "use labels of the pool", "node-taint": "use taints of the pool"})
	for key, value := range pool.Labels {
		at := at + ".labels[" + key + "]"
		if problems := validation.IsQualifiedName(key); problems != nil {
			p.At(at, yamlfile.Quote(key)+" is not a label's key: "+problems[0]+"; correct it")
		} else if prefix := reserved.FindString(key); prefix != "" && !unreserved.MatchString(key) {
			p.At(at, prefix+" is Kubernetes' own, and a kubelet may not set it; use a prefix of your own, or node.kubernetes.io/")
		} else if problems := validation.IsValidLabelValue(value); problems != nil {
			p.At(at, yamlfile.Quote(value)+" is not a label's value: "+problems[0]+"; correct it")
		}
	}
	seen := map[string]bool{}
	for i, text := range pool.Taints {
		at, m := fmt.Sprintf("%s.taints[%d]", at, i), taint.FindStringSubmatch(text)
		if m == nil {
			p.At(at, yamlfile.Quote(text)+" is not a taint; use KEY=VALUE:EFFECT with EFFECT NoSchedule, PreferNoSchedule or NoExecute")
		} else if problems := slices.Concat(validation.IsQualifiedName(m[1]), validation.IsValidLabelValue(m[2])); problems != nil {
			p.At(at, yamlfile.Quote(text)+" is not a taint: "+problems[0]+"; correct it")
		} else if key := m[1] + ":" + m[3]; seen[key] {
			p.At(at, key+" is in the list already; delete one of them")
		} else {
			seen[key] = true
		}
	}
}

// forbidden are ranges that a cluster cannot use: link-local with the metadata service,
// and Azure's address of DNS, DHCP and health probes (Azure, "What is IP address
// 168.63.129.16").
var forbidden = []netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("168.63.129.16/32"),
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("224.0.0.0/3"), netip.MustParsePrefix("0.0.0.0/8"),
}

func (p parser) network(n *Network, agents int) {
	const in = "spec.network."
	ranges := map[string]netip.Prefix{}
	for _, r := range []struct {
		name, text        string
		shortest, longest int
	}{
		{"addressSpace", n.AddressSpace, 8, 28}, {"pods", n.Pods, 8, 23}, {"services", n.Services, 12, 24},
		{"servers", n.Servers, 8, 28}, {"agents", n.Agents, 8, 28},
	} {
		at := in + r.name
		q, err := netip.ParsePrefix(r.text)
		reserved := slices.IndexFunc(forbidden, q.Overlaps)
		switch {
		case err != nil:
			p.At(at, yamlfile.Quote(r.text)+" is not valid; use an IPv4 range, such as 10.16.0.0/16")
		case q != q.Masked():
			p.At(at, fmt.Sprintf("%s is not the start of its range; use %s", q, q.Masked()))
		case q.Bits() < r.shortest || q.Bits() > r.longest:
			p.At(at, fmt.Sprintf("/%d is out of range; use /%d to /%d", q.Bits(), r.shortest, r.longest))
		case reserved >= 0:
			p.At(at, fmt.Sprintf("%s overlaps %s, which is reserved; use another range", q, forbidden[reserved]))
		default:
			ranges[r.name] = q
		}
	}
	if len(ranges) < 5 {
		return
	}
	for _, pair := range [][2]string{{"addressSpace", "pods"}, {"addressSpace", "services"}, {"pods", "services"}, {"servers", "agents"}} {
		if a, b := ranges[pair[0]], ranges[pair[1]]; a.Overlaps(b) {
			p.At(in+pair[1], fmt.Sprintf("%s overlaps %s, %s; use ranges that do not overlap", b, in+pair[0], a))
		}
	}
	for _, name := range []string{"servers", "agents"} {
		if space, q := ranges["addressSpace"], ranges[name]; space.Bits() > q.Bits() || !space.Contains(q.Addr()) {
			p.At(in+name, fmt.Sprintf("%s is not in spec.network.addressSpace, %s; give a range within", q, space))
		}
	}
	// Azure keeps five addresses of each subnet; a Node, and the server too, has a /24 of pods.
	if q := ranges["agents"]; agents > 1<<(32-q.Bits())-5 {
		p.At(in+"agents", fmt.Sprintf("%s has %d addresses for %d agents; use a larger range", q, 1<<(32-q.Bits())-5, agents))
	}
	if q := ranges["pods"]; agents > 1<<(24-q.Bits())-1 {
		p.At(in+"pods", fmt.Sprintf("%s has a /24 for %d agents of %d; use a larger range", q, 1<<(24-q.Bits())-1, agents))
	}
}

func (p parser) access(a *Access) {
	lists := map[string][]string{"ssh": a.SSH, "api": a.API, "ingress": a.Ingress}
	if slices.Equal(a.API, a.SSH) {
		delete(lists, "api") // its default
	}
	for name, sources := range lists {
		for i, source := range sources {
			p.source(fmt.Sprintf("spec.access.%s[%d]", name, i), source)
		}
	}
}

func (p parser) source(at, source string) {
	if _, err := prefixOf(source); err != nil && !slices.Contains([]string{Own, Cloudflare, Any}, source) {
		p.At(at, err.Error())
	}
}
