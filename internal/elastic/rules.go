package elastic

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// rules checks what concerns more than one field, and what a pattern cannot say. The
// defaults are set.
func (d *decoder) rules(c *Cluster) {
	s := &c.Spec
	if strings.EqualFold(s.Groups.Storage, s.Groups.Compute) {
		d.at("spec.groups.compute", "is the same group as spec.groups.storage, which outlives it; use two")
	}
	d.image("spec.image", s.Image)
	d.image("spec.server.image", s.Server.Image)
	d.artifact("spec.artifacts.k3s", &s.Artifacts.K3s)
	d.artifact("spec.artifacts.images", s.Artifacts.Images)
	d.artifact("spec.artifacts.ortet", &s.Artifacts.Ortet)
	d.artifact("spec.artifacts.ortetNode", &s.Artifacts.OrtetNode)

	names, agents := map[string]int{"server": -1}, 0
	for i := range s.Pools {
		p, at := &s.Pools[i], fmt.Sprintf("spec.pools[%d]", i)
		if other, taken := names[p.Name]; taken && other < 0 {
			d.at(at+".name", `"server" is the server's name; use another`)
		} else if taken {
			d.at(at+".name", fmt.Sprintf("%q is the name of spec.pools[%d] already; use another", p.Name, other))
		}
		names[p.Name] = i
		d.pool(at, p)
		agents += p.largest()
	}
	d.network(&s.Network, agents)

	d.unique("spec.storage.shares", s.Storage.Shares)
	if !slices.Contains(s.Storage.Shares, s.Storage.Mount) {
		d.at("spec.storage.mount", fmt.Sprintf("%q is not among spec.storage.shares (%s); use one of them, or add it",
			s.Storage.Mount, strings.Join(s.Storage.Shares, ", ")))
	}
	d.access(&s.Access)
}

// largest is the most agents that a pool may have by cluster.yaml.
func (p *Pool) largest() int {
	switch {
	case p.Count != nil:
		return *p.Count
	case p.Max != nil:
		return *p.Max
	}
	return 0
}

func (d *decoder) image(at string, i Image) {
	market := i.Publisher != "" || i.Offer != "" || i.SKU != ""
	switch {
	case i.ID != "" && (market || i.Version != ""):
		d.at(at, "has an id and a Marketplace image; keep id, or publisher, offer, sku and version")
	case i.ID == "" && (i.Publisher == "" || i.Offer == "" || i.SKU == ""):
		d.at(at, "is incomplete; give publisher, offer and sku, or id")
	}
}

func (d *decoder) artifact(at string, a *Artifact) {
	if a == nil {
		return
	}
	at += ".url"
	u, err := url.Parse(a.URL)
	switch {
	case err != nil || u.Scheme != "file" && u.Host == "":
		d.at(at, quote(a.URL)+" is not a URL; use https://HOST/PATH, http://HOST/PATH or file:///srv/PATH")
	case u.User != nil || u.Query().Has("sig"):
		d.at(at, "has a password or a signature in it, which everybody on a machine could read; use a URL without, or file:///srv/PATH on the share")
	case u.Scheme == "file" && (path.Clean(u.Path) != u.Path || u.RawQuery != "" || u.Fragment != ""):
		d.at(at, quote(a.URL)+" is not a file of the share; use file:///srv/PATH, without .. and ?")
	}
}

var (
	// B-series and promotional sizes have no Spot (Azure, "Use Azure Spot Virtual
	// Machines", limitations).
	noSpot = regexp.MustCompile(`^Standard_B[0-9]|_Promo$`)
	taint  = regexp.MustCompile(`^([^=:]+)(?:=([^=:]*))?:(NoSchedule|PreferNoSchedule|NoExecute)$`)
)

func (d *decoder) pool(at string, p *Pool) {
	if p.Priority == Spot && noSpot.MatchString(p.Size) {
		d.at(at+".size", p.Size+" has no Spot in Azure; use a size such as "+defaultSize+", or priority: Regular")
	}
	if p.Priority == Regular && p.EvictionPolicy != "" {
		d.at(at+".evictionPolicy", "is for priority Spot only; delete it, or use priority: Spot")
	}
	ranged := p.Min != nil || p.Max != nil
	switch {
	case p.Count != nil && ranged:
		d.at(at+".count", "is set beside min or max; keep count, or min and max")
	case p.Count == nil && (p.Min == nil || p.Max == nil):
		d.at(at, "has no number of agents; give count, or min and max")
	case ranged && *p.Min > *p.Max:
		d.at(at+".min", fmt.Sprintf("%d is larger than max, %d; swap them", *p.Min, *p.Max))
	}
	d.unique(at+".zones", p.Zones)
	d.image(at+".image", p.Image)
	for _, key := range slices.Sorted(maps.Keys(p.Labels)) {
		value, at := p.Labels[key], at+".labels["+key+"]"
		if problems := validation.IsQualifiedName(key); problems != nil {
			d.at(at, quote(key)+" is not a label's key: "+problems[0]+"; correct it")
		} else if why := reserved(key); why != "" {
			d.at(at, why)
		}
		if problems := validation.IsValidLabelValue(value); problems != nil {
			d.at(at, quote(value)+" is not a label's value: "+problems[0]+"; correct it")
		}
	}
	seen := map[string]bool{}
	for i, text := range p.Taints {
		at := fmt.Sprintf("%s.taints[%d]", at, i)
		m := taint.FindStringSubmatch(text)
		if m == nil {
			d.at(at, quote(text)+" is not a taint; use KEY=VALUE:EFFECT with EFFECT NoSchedule, PreferNoSchedule or NoExecute")
			continue
		}
		problems := slices.Concat(validation.IsQualifiedName(m[1]), validation.IsValidLabelValue(m[2]))
		if problems != nil {
			d.at(at, quote(text)+" is not a taint: "+problems[0]+"; correct it")
		}
		if key := m[1] + ":" + m[3]; seen[key] {
			d.at(at, key+" is in the list already; delete one of them")
		} else {
			seen[key] = true
		}
	}
}

// nodeLabels are those of Kubernetes' own namespaces that a kubelet may set (KEP 279,
// and IsKubeletLabel of k8s.io/kubelet). What kubelet or Azure's topology decides is
// not among them.
var nodeLabels = []string{
	"topology.kubernetes.io/region", "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type",
}

// reserved says why a kubelet may not give its Node a label, "" if it may: the API
// server refuses the Node otherwise (admission plug-in NodeRestriction).
func reserved(key string) string {
	prefix, _, ok := strings.Cut(key, "/")
	if !ok || slices.Contains(nodeLabels, key) {
		return ""
	}
	for _, domain := range []string{"node.kubernetes.io", "kubelet.kubernetes.io"} {
		if prefix == domain || strings.HasSuffix(prefix, "."+domain) {
			return ""
		}
	}
	for _, domain := range []string{"kubernetes.io", "k8s.io"} {
		if prefix == domain || strings.HasSuffix(prefix, "."+domain) {
			return prefix + "/ is Kubernetes' own, and a kubelet may not set it; use a prefix of your own, or node.kubernetes.io/"
		}
	}
	return ""
}

func (d *decoder) unique(at string, list []string) {
	for i, item := range list {
		if slices.Contains(list[:i], item) {
			d.at(fmt.Sprintf("%s[%d]", at, i), fmt.Sprintf("%q is in the list already; delete one of them", item))
		}
	}
}

// Ranges that a cluster cannot use: link-local with the metadata service, and Azure's
// address of DNS, DHCP and health probes (Azure, "What is IP address 168.63.129.16").
var forbidden = []netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("168.63.129.16/32"),
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("224.0.0.0/3"), netip.MustParsePrefix("0.0.0.0/8"),
}

func (d *decoder) network(n *Network, agents int) {
	type named struct {
		at   string
		p    netip.Prefix
		ok   bool
		a, b int // shortest and longest prefix
	}
	list := []*named{
		{at: "addressSpace", a: 8, b: 28}, {at: "pods", a: 8, b: 23}, {at: "services", a: 12, b: 24},
		{at: "servers", a: 8, b: 28}, {at: "agents", a: 8, b: 28},
	}
	for i, text := range []string{n.AddressSpace, n.Pods, n.Services, n.Servers, n.Agents} {
		e := list[i]
		e.at = "spec.network." + e.at
		p, err := netip.ParsePrefix(text)
		if err != nil || !p.Addr().Is4() {
			d.at(e.at, quote(text)+" is not valid; use "+cidrWant)
			continue
		}
		e.p, e.ok = p.Masked(), true
		if p != e.p {
			d.at(e.at, fmt.Sprintf("%s is not the start of its range; use %s", p, e.p))
		}
		if p.Bits() < e.a || p.Bits() > e.b {
			d.at(e.at, fmt.Sprintf("/%d is out of range; use /%d to /%d", p.Bits(), e.a, e.b))
		}
		for _, f := range forbidden {
			if e.p.Overlaps(f) {
				d.at(e.at, fmt.Sprintf("%s overlaps %s, which is reserved; use another range", e.p, f))
			}
		}
	}
	apart := func(a, b *named) {
		if a.ok && b.ok && a.p.Overlaps(b.p) {
			d.at(b.at, fmt.Sprintf("%s overlaps %s, %s; use ranges that do not overlap", b.p, a.at, a.p))
		}
	}
	space, pods, services, servers, of := list[0], list[1], list[2], list[3], list[4]
	apart(space, pods)
	apart(space, services)
	apart(pods, services)
	apart(servers, of)
	for _, e := range list[3:] {
		if e.ok && space.ok && !(space.p.Bits() <= e.p.Bits() && space.p.Contains(e.p.Addr())) {
			d.at(e.at, fmt.Sprintf("%s is not in spec.network.addressSpace, %s; give a range within", e.p, space.p))
		}
	}
	// Azure keeps five addresses of each subnet; a Node has a /24 of pods.
	if room := 1<<(32-of.p.Bits()) - 5; of.ok && of.p.Bits() <= of.b && agents > room {
		d.at(of.at, fmt.Sprintf("%s has %d addresses for %d agents; use a larger range", of.p, room, agents))
	}
	if pods.ok && pods.p.Bits() <= pods.b {
		if room := 1<<(24-pods.p.Bits()) - 1; agents > room {
			d.at(pods.at, fmt.Sprintf("%s has a /24 for %d agents of %d; use a larger range", pods.p, room, agents))
		}
	}
}

// refusedUsers are Azure's disallowed names of administrators (VirtualMachine,
// osProfile.adminUsername) and the system users of Ubuntu and Debian.
var refusedUsers = strings.Fields(`administrator admin user user1 test user2 test1 user3 admin1 1 123 a actuser adm admin2
	aspnet backup console david guest john owner root server sql support support_388945a0 sys test2 test3 user4 user5 video
	daemon bin sync games man lp mail news uucp proxy www-data list irc nobody sshd syslog messagebus sudo`)

// usedPorts are those of the cluster on the server, besides SSH's.
var usedPorts = map[int]string{
	80: "ingress", 443: "ingress", 340: "admission", 5000: "the registry", 6443: "the API server", 8443: "admission",
	9100: "metrics", 10250: "the kubelet", 2379: "etcd", 2380: "etcd",
}

func (d *decoder) access(a *Access) {
	if slices.Contains(refusedUsers, a.User) {
		d.at("spec.access.user", fmt.Sprintf("%q is refused by Azure or is a system user; use another, such as ortet", a.User))
	}
	if what := usedPorts[a.SSHPort]; what != "" {
		d.at("spec.access.sshPort", fmt.Sprintf("%d is the port of %s; use another, such as 22", a.SSHPort, what))
	}
	for _, list := range []struct {
		at   string
		from []string
	}{{"ssh", a.SSH}, {"api", a.API}, {"ingress", a.Ingress}} {
		at := "spec.access." + list.at
		if d.lines[at] == 0 {
			continue // the default of another list, which is checked there
		}
		d.unique(at, list.from)
		for i, source := range list.from {
			if _, err := prefixOf(source); err != nil && !slices.Contains([]string{Own, Cloudflare, Any}, source) {
				d.at(fmt.Sprintf("%s[%d]", at, i), err.Error())
			}
		}
	}
}
