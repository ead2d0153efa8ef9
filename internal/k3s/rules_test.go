package k3s_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/yamlfile"
)

// rules is a file's text before storage, with these rules.
func rules(all ...string) string {
	return "  access: {rules: [" + strings.Join(all, ", ") + "]}\n  storage:\n"
}

var ones = strings.Repeat("1", 64)

// edits replace text of minimal.
var edits = []struct {
	old, new string
	want     string // all lines, without "cluster.yaml:"
}{
	// Names.
	{"name: demo", "name: Demo", `4: metadata.name: "Demo" is not valid; use a letter a-z, then a-z, 0-9 and -, with no - at the end`},
	{"name: demo", "name: a-name-that-is-too-long", `4: metadata.name: "a-name-that-is-too-long" has length 23; use 1 to 20 characters`},
	{"name: demo", "name: 12", `4: metadata.name: is a number; put it in quotes: "12"`},
	{"name: demo", "name: yes", ``}, // YAML 1.2: text
	{"name: demo", "name:", `4: metadata.name: is empty; give a value, or delete the line`},
	{"westeurope", "West Europe", `6: spec.location: "West Europe" is not valid; use a region's short name, such as westeurope (az account list-locations)`},
	{"name: agents", "name: pool-1", `12: spec.pools[0].name: "pool-1" is not valid; use a letter a-z, then a-z and 0-9`},
	{"name: agents", "name: averylongname", `12: spec.pools[0].name: "averylongname" has length 13; use 1 to 9 characters`},
	{"name: agents", "name: server", `12: spec.pools[0].name: "server" is the name of the server already; use another`},
	{"  storage:\n", "  - name: agents\n    count: 1\n  storage:\n", `14: spec.pools[1].name: "agents" is the name of spec.pools[0] already; use another`},
	{"demo12345", "demo_1", `15: spec.storage.account: "demo_1" is not valid; use lower-case letters and digits`},
	{"demo12345", strings.Repeat("a", 25), `15: spec.storage.account: "aaaaaaaaaaaaaaaaaaaaaaaaa" has length 25; use 3 to 24 characters`},
	{"    account", "    mount: home\n    account", `15: spec.storage.mount: "home" is not among spec.storage.shares (config, data, registry); use one of them, or add it`},
	{"    account", "    shares: [data, data]\n    account", `15: spec.storage.shares[1]: "data" is in the list already; delete one of them`},
	{"    account", "    shares: []\n    account", `15: spec.storage.shares: has length 0; use 1 to 50 items`},
	{"  artifacts", "  groups: {storage: x., compute: ok}\n  artifacts", `7: spec.groups.storage: "x." is not valid; use a resource group's name: letters, digits, and _ ( ) - . but no . at the end`},
	{"  artifacts", "  groups: {storage: same, compute: Same}\n  artifacts", `7: spec.groups.compute: is the same group as spec.groups.storage, which outlives it; use two`},

	{"  artifacts", "  manifests:\n  - {name: app, url: 'http://h/a', sha256: \"" + ones + "\"}\n  - {name: app, url: 'file:///srv/../a', sha256: \"" + ones + "\"}\n  artifacts",
		"9: spec.manifests[1].name: \"app\" is the name of spec.manifests[0] already; use another\n" +
			"9: spec.manifests[1].url: \"file:///srv/../a\" is not a file of the share; use file:///srv/PATH, without .. and ?"},
	{"  artifacts", "  manifests: [{name: admission, url: 'http://h/a', sha256: \"" + ones + "\"}]\n  artifacts",
		`7: spec.manifests[0].name: "admission" is the name of a manifest of Ortet's own already; use another`},
	{"  artifacts", "  manifests: [{name: ../a, url: 'http://h/a', sha256: \"" + ones + "\"}]\n  artifacts",
		`7: spec.manifests[0].name: "../a" is not valid; use a-z, 0-9 and -, with no - at either end`},

	{"  storage:\n", "  access: {tailscale: {tags: [k3s-x], loginServer: headscale, hostname: A}}\n  storage:\n",
		"14: spec.access.tailscale.hostname: \"A\" is not valid; use a-z, 0-9 and -, with no - at either end\n" +
			"14: spec.access.tailscale.loginServer: \"headscale\" is not valid; use https://HOST\n" +
			"14: spec.access.tailscale.tags[0]: \"k3s-x\" is not valid; use tag:NAME, as in the tailnet's policy"},
	{"  storage:\n", "  access: {tailscale: {}}\n  storage:\n",
		"14: spec.access.tailscale: needs Tailscale's programs; add spec.artifacts.tailscale, the block that ortet cluster artifacts --tailscale FILE prints"},

	{"  storage:\n", "  network: {outbound: addresses}\n  access: {publicAddress: none}\n  storage:\n",
		"15: spec.access.publicAddress: none leaves the server no way out, since spec.network.outbound: addresses has no NAT gateway; use static, or outbound: gateway"},
	{"  storage:\n", "  access: {publicAddress: none, ssh: [10.0.0.0/8], api: [10.0.0.0/8, 11.0.0.0/8]}\n  storage:\n",
		"14: spec.access.publicAddress: none needs another way to the server; add spec.access.tailscale, or have private ranges alone in spec.access.ssh and spec.access.api"},
	{"  storage:\n", "  access: {publicAddress: none, ssh: [10.0.0.0/8, 192.168.7.1], api: []}\n  storage:\n", ""},

	{"count: 2", "count: 2\n    gpu: {}", "14: spec.pools[0].gpu: needs NVIDIA's device plugin; give its image, IMAGE@sha256:DIGEST, in spec.options.devicePlugin\n" +
		"14: spec.pools[0].gpu.driver: needs NVIDIA's container toolkit; add spec.artifacts.containerToolkit, " +
		"the block that ortet cluster artifacts --container-toolkit FILE prints, or use driver: image"},
	{"count: 2", "count: 2\n    gpu: {driver: image}\n  options: {devicePlugin: 'r.example/p@sha256:" + ones + "'}", ""},
	{"count: 2", "count: 2\n    gpu: {driver: image}\n    labels: {nvidia.com/gpu.present: \"false\"}\n    taints: [\"nvidia.com/gpu=x:NoSchedule\"]\n  options: {devicePlugin: 'r.example/p@sha256:" + ones + "'}",
		`15: spec.pools[0].labels[nvidia.com/gpu.present]: is "false", but gpu gives Nodes "true"; delete this label`},
	{"count: 2", "count: 2\n    gpu: {driver: nouveau}", `14: spec.pools[0].gpu.driver: "nouveau" is not known; use extension, image, none`},
	{"  artifacts:\n", "  artifacts:\n    containerToolkit: [{url: 'http://h/a', sha256: \"" + ones + "\"}, {url: 'http://h/b.deb', sha256: \"" + ones + "\"}, {url: 'http://i/b.deb?x', sha256: \"" + ones + "\"}]\n",
		"8: spec.artifacts.containerToolkit[0].url: \"a\" is not the file of a Debian package; use a URL that ends with NAME.deb\n" +
			"8: spec.artifacts.containerToolkit[2].url: \"b.deb\" is in the list already; delete one of them"},

	// Structure.
	{"kind: Cluster", "kind: Cluster\nkind: Cluster", `3: invalid YAML: mapping key "kind" already defined at line 2; check indentation and quotes`},
	{"v1alpha1", "v2", `1: apiVersion: "ortet.io/v2" is not known; use ortet.io/v1alpha1`},
	{"  location: westeurope\n", "", `6: spec.location: is missing; add it`},
	{"    count: 2", "    size: Standard_D2s_v5\n    colour: blue\n    count: 2",
		`14: spec.pools[0].colour: unknown field; use one of count, diskGB, diskType, evictionPolicy, gpu, image, k3s, labels, max, min, name, priority, scaleBy, scaleInPolicy, size, taints, zones`},
	{"count: 2", "count: two", `13: spec.pools[0].count: is text; give a whole number`},
	{"count: 2", "count: 2.5", `13: spec.pools[0].count: is a number; give a whole number`},
	{"count: 2", "count: -1", `13: spec.pools[0].count: -1 is out of range; use 0 to 1000`},
	{"count: 2", "count: [2]", `13: spec.pools[0].count: is a list; give a whole number`},
	{"count: 2", "count: 2\n    zones: [1]", `14: spec.pools[0].zones[0]: is a number; put it in quotes: "1"`},
	{"count: 2", "count: 2\n    zones: [\"4\"]", `14: spec.pools[0].zones[0]: "4" is not known; use 1, 2, 3`},
	{"count: 2", "count: 2\n    zones: [\"1\", \"1\"]", `14: spec.pools[0].zones[1]: "1" is in the list already; delete one of them`},
	{"count: 2", "count: &n 2\n    min: *n", `13: spec.pools[0].count: is set beside min or max; keep count, or min and max`},
	{"count: 2", "count: 2\n    size: &s Large\n  - name: b\n    count: 2\n    size: *s", "14: spec.pools[0].size: \"Large\" is not valid; use a VM size as Azure spells it, such as Standard_D2s_v5\n" +
		"17: spec.pools[1].size: \"Large\" is not valid; use a VM size as Azure spells it, such as Standard_D2s_v5"},
	{"westeurope", "2026-01-02", `6: spec.location: is of type !!timestamp, or has a name that is not text; put it in quotes`},
	{"kind: Cluster", "kind: [", `2: invalid YAML: did not find expected ',' or ']'; check indentation and quotes`},
	{"    account: demo12345\n", "    account: demo12345\n---\na: b\n", `16: second document; keep one cluster in a file`},
	{"    account: demo12345\n", "    account: demo12345\n  options: {scratch: 1, swapGB: 65}\n",
		"16: spec.options.scratch: is a number; give true or false\n16: spec.options.swapGB: 65 is out of range; use 0 to 64"},

	// Pools.
	{"count: 2", "count: 2\n    size: D2s", `14: spec.pools[0].size: "D2s" is not valid; use a VM size as Azure spells it, such as Standard_D2s_v5`},
	{"count: 2", "count: 2\n    priority: Low", `14: spec.pools[0].priority: "Low" is not known; use Spot, Regular`},
	{"count: 2", "count: 2\n    priority: Regular\n    evictionPolicy: Delete", `15: spec.pools[0].evictionPolicy: is for priority Spot only; delete it, or use priority: Spot`},
	{"count: 2", "count: 2\n    max: 3", `13: spec.pools[0].count: is set beside min or max; keep count, or min and max`},
	{"count: 2", "max: 3", `12: spec.pools[0]: has no number of agents; give count, or min and max`},
	{"count: 2", "min: 4\n    max: 3", `13: spec.pools[0].min: 4 is larger than max, 3; swap them`},
	{"count: 2", "count: 2\n    labels: {\"a b\": c}", `14: spec.pools[0].labels[a b]: "a b" is not a label's key: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]'); correct it`},
	{"count: 2", "count: 2\n    labels: {node-role.kubernetes.io/worker: \"\"}", `14: spec.pools[0].labels[node-role.kubernetes.io/worker]: node-role.kubernetes.io/ is Kubernetes' own, and a kubelet may not set it; use a prefix of your own, or node.kubernetes.io/`},
	{"count: 2", "count: 2\n    taints: [a=b]", `14: spec.pools[0].taints[0]: "a=b" is not a taint; use KEY=VALUE:EFFECT with EFFECT NoSchedule, PreferNoSchedule or NoExecute`},
	{"count: 2", "count: 2\n    taints: [\"a=b:NoSchedule\", \"a=c:NoSchedule\"]", `14: spec.pools[0].taints[1]: a:NoSchedule is in the list already; delete one of them`},
	{"count: 2", "count: 2\n    image: {publisher: Debian}", `14: spec.pools[0].image: is incomplete; give publisher, offer and sku, or id`},
	{"count: 2", "count: 2\n    image: {id: /images/x}", `14: spec.pools[0].image.id: "/images/x" is not valid; use /subscriptions/ID/resourceGroups/GROUP/providers/Microsoft.Compute/galleries/GALLERY/images/IMAGE, with or without /versions/1.2.3`},

	// Artifacts.
	{"https://example.org/k3s", "ftp://example.org/k3s", `8: spec.artifacts.k3s.url: "ftp://example.org/k3s" is not valid; use https://, http:// or file:///srv/ (the share) with a path`},
	{"https://example.org/k3s", "https://a.blob.core.windows.net/k3s?sig=abc", `8: spec.artifacts.k3s.url: has a password or a signature in it, which everybody on a machine could read; use a URL without, or file:///srv/PATH on the share`},
	{"file:///srv/ortet", "file:///srv/../etc/passwd", `9: spec.artifacts.ortet.url: "file:///srv/../etc/passwd" is not a file of the share; use file:///srv/PATH, without .. and ?`},
	{"ortetNode: {url: \"http://10.0.0.1:8000/ortet-node\", sha256: \"" + zeros, "ortetNode: {url: \"http://10.0.0.1:8000/ortet-node\", sha256: \"ABC", `10: spec.artifacts.ortetNode.sha256: "ABC" is not valid; use 64 hex digits in lower case, as sha256sum prints them`},

	// Ranges.
	{"  pools:\n", "  network: {addressSpace: 10.42.0.0/15, servers: 10.42.0.0/24, agents: 10.42.1.0/24}\n  pools:\n",
		"11: spec.network.pods: 10.42.0.0/16 overlaps spec.network.addressSpace, 10.42.0.0/15; use ranges that do not overlap\n" +
			"11: spec.network.services: 10.43.0.0/16 overlaps spec.network.addressSpace, 10.42.0.0/15; use ranges that do not overlap"},
	{"  pools:\n", "  network: {addressSpace: 10.20.0.0/16}\n  pools:\n",
		"11: spec.network.agents: 10.16.16.0/20 is not in spec.network.addressSpace, 10.20.0.0/16; give a range within\n" +
			"11: spec.network.servers: 10.16.0.0/24 is not in spec.network.addressSpace, 10.20.0.0/16; give a range within"},
	{"  pools:\n", "  network: {servers: 10.16.0.1/24}\n  pools:\n", `11: spec.network.servers: 10.16.0.1/24 is not the start of its range; use 10.16.0.0/24`},
	{"  pools:\n", "  network: {servers: 10.16.0.0/29}\n  pools:\n", `11: spec.network.servers: /29 is out of range; use /8 to /28`},
	{"  pools:\n", "  network: {servers: 10.16.16.0/24}\n  pools:\n", `11: spec.network.agents: 10.16.16.0/20 overlaps spec.network.servers, 10.16.16.0/24; use ranges that do not overlap`},
	{"  pools:\n", "  network: {pods: 169.254.0.0/17}\n  pools:\n", `11: spec.network.pods: 169.254.0.0/17 overlaps 169.254.0.0/16, which is reserved; use another range`},
	{"  pools:\n", "  network: {pods: 168.63.0.0/16}\n  pools:\n", `11: spec.network.pods: 168.63.0.0/16 overlaps 168.63.129.16/32, which is reserved; use another range`},
	{"  pools:\n", "  network: {services: 11.0.0.0/25}\n  pools:\n", `11: spec.network.services: /25 is out of range; use /12 to /24`},
	{"  pools:\n", "  network: {services: \"fd00::/112\"}\n  pools:\n", `11: spec.network.services: "fd00::/112" is not valid; use an IPv4 range, such as 10.16.0.0/16`},
	{"  pools:\n  - name: agents\n    count: 2", "  network: {agents: 10.16.16.0/28, pods: 11.0.0.0/23}\n  pools:\n  - name: agents\n    count: 12",
		"11: spec.network.agents: 10.16.16.0/28 has 11 addresses for 12 agents; use a larger range\n" +
			"11: spec.network.pods: 11.0.0.0/23 has a /24 for 1 agents of 12; use a larger range"},

	{"  pools:\n", "  network: {outbound: none}\n  pools:\n", `11: spec.network.outbound: "none" is not known; use gateway, addresses`},

	// Access.
	{"  storage:\n", "  access: {user: root}\n  storage:\n", `14: spec.access.user: root is refused by Azure or is a system user; use another, such as ortet`},
	{"  storage:\n", "  access: {sshPort: 6443}\n  storage:\n", `14: spec.access.sshPort: 6443 is a port of the cluster itself; use another, such as 22`},
	{"  storage:\n", "  access: {sshPort: 0}\n  storage:\n", `14: spec.access.sshPort: 0 is out of range; use 1 to 65535`},
	{"  storage:\n", "  access: {ssh: [me]}\n  storage:\n", `14: spec.access.ssh[0]: "me" is not a source; use own, cloudflare, any, or an address or range such as 192.0.2.0/24`},
	{"  storage:\n", "  access: {api: [192.0.2.1/24]}\n  storage:\n", `14: spec.access.api[0]: 192.0.2.1/24 is not the start of its range; use 192.0.2.0/24`},
	// Rules of security groups.
	{"  storage:\n", rules("{name: mqtt, priority: 300, protocol: Tcp, ports: [\"8883\", \"9000-9100\"], from: [own, 192.0.2.0/24], to: servers}",
		"{name: quic, priority: 301, protocol: Udp, ports: [\"443\"], from: [any], to: servers}",
		"{name: mqtt, priority: 300, protocol: Tcp, ports: [\"443\", \"6443\"], from: [any], to: agents}"), ``},
	{"  storage:\n", rules("{name: VXLAN, priority: 300, protocol: Tcp, ports: [\"81\"], from: [any], to: servers}"), `14: spec.access.rules[0].name: "VXLAN" is a rule of Ortet's own; use another name`},
	{"  storage:\n", rules("{name: a, priority: 300, protocol: Tcp, ports: [\"81\"], from: [any], to: servers}", "{name: A, priority: 300, protocol: Tcp, ports: [\"82\"], from: [any], to: servers}"),
		"14: spec.access.rules[1].name: \"A\" is the name of another rule to servers; use another name\n" +
			"14: spec.access.rules[1].priority: 300 is the priority of another rule to servers; use another"},
	{"  storage:\n", rules("{name: a, priority: 299, protocol: tcp, ports: [\"0x1\"], from: [any], to: pods}"), "14: spec.access.rules[0].ports[0]: \"0x1\" is not valid; use a port or a range, such as 8000-8100\n" +
		"14: spec.access.rules[0].priority: 299 is out of range; use 300 to 3999\n" +
		"14: spec.access.rules[0].protocol: \"tcp\" is not known; use Tcp, Udp, *\n" +
		"14: spec.access.rules[0].to: \"pods\" is not known; use servers, agents"},
	{"  storage:\n", rules("{name: a, priority: 300, protocol: Tcp, ports: [\"81\"], from: [me, \"2001:db8::1\"], to: servers}"),
		"14: spec.access.rules[0].from[0]: \"me\" is not a source; use own, cloudflare, any, or an address or range such as 192.0.2.0/24\n" +
			"14: spec.access.rules[0].from[1]: \"2001:db8::1\" is of IPv6, and the cluster's network is of IPv4; delete it"},
	{"  storage:\n", rules("{name: a, priority: 300, protocol: \"*\", ports: [\"8000-9000\", \"8472\", \"0\", \"9-8\", \"70000\"], from: [any], to: servers}"),
		"14: spec.access.rules[0].ports[0]: 8000-9000 has port 8443, for which Ortet has a rule; leave it out, and use access.ssh, access.api or access.ingress\n" +
			"14: spec.access.rules[0].ports[1]: 8472 has port 8472, for which Ortet has a rule; leave it out, and use access.ssh, access.api or access.ingress\n" +
			"14: spec.access.rules[0].ports[2]: \"0\" is not a port or a range of ports; use 1 to 65535, such as 8000-8100\n" +
			"14: spec.access.rules[0].ports[3]: \"9-8\" is not a port or a range of ports; use 1 to 65535, such as 8000-8100\n" +
			"14: spec.access.rules[0].ports[4]: \"70000\" is not a port or a range of ports; use 1 to 65535, such as 8000-8100"},
	{"  storage:\n", rules("{name: a, priority: 300, protocol: Tcp, ports: [\"22\", \"340\", \"80\"], from: [any], to: agents}"),
		"14: spec.access.rules[0].ports[0]: 22 has port 22, for which Ortet has a rule; leave it out, and use access.ssh, access.api or access.ingress\n" +
			"14: spec.access.rules[0].ports[1]: 340 has port 340, for which Ortet has a rule; leave it out, and use access.ssh, access.api or access.ingress"},
	{"  storage:\n", "  packages: [g++, nfs-common, x-, --help, g++]\n  storage:\n",
		"14: spec.packages[2]: \"x-\" is not valid; use the name of a Debian package, such as nfs-common\n" +
			"14: spec.packages[3]: \"--help\" is not valid; use the name of a Debian package, such as nfs-common\n" +
			"14: spec.packages[4]: \"g++\" is in the list already; delete one of them"},
	// cluster-autoscaler.
	{"count: 2", "min: 0\n    max: 3\n    scaleBy: pods", `15: spec.pools[0].scaleBy: needs cluster-autoscaler; give its image, IMAGE@sha256:DIGEST, in spec.options.clusterAutoscaler`},
	{"count: 2", "count: 2\n    scaleBy: cpu", `14: spec.pools[0].scaleBy: is for min and max; delete it, or give min and max in place of count`},
	{"    count: 2\n", "    min: 0\n    max: 0\n    scaleBy: pods\n    evictionPolicy: Delete\n  options: {clusterAutoscaler: \"a@sha256:" + strings.Repeat("1", 64) + "\"}\n",
		`14: spec.pools[0].max: is 0, which cluster-autoscaler does not take; give 1 or more, or count: 0`},
	{"    count: 2\n", "    min: 0\n    max: 3\n    scaleBy: pods\n    evictionPolicy: Deallocate\n  options: {clusterAutoscaler: \"a@sha256:" + strings.Repeat("1", 64) + "\"}\n",
		`16: spec.pools[0].evictionPolicy: keeps evicted machines, which cluster-autoscaler counts; use Delete, and it makes others`},
	{"  storage:\n", "  options: {clusterAutoscaler: \"registry.example/cluster-autoscaler:v1.36.0\"}\n  storage:\n",
		`14: spec.options.clusterAutoscaler: "registry.example/cluster-autoscaler:v1.36.0" is not valid; use IMAGE@sha256:DIGEST, such as registry.example/cluster-autoscaler@sha256:…, with 64 hex digits`},
	// Options of k3s.
	{"count: 2", "count: 2\n    k3s: {kubelet-arg: [max-pods=60, v=2], debug: true, max: 3}", ``},
	{"count: 2", "count: 2\n    k3s: {node-label: [a=b], node-taint: a, token-file: /t, t: x, \"kubelet-arg+\": [a]}",
		"14: spec.pools[0].k3s.node-label: is set by Ortet; delete it: use labels of the pool\n" +
			"14: spec.pools[0].k3s.node-taint: is set by Ortet; delete it: use taints of the pool\n" +
			"14: spec.pools[0].k3s.t: \"t\" is not an option; use its name in k3s's config.yaml, such as kubelet-arg\n" +
			"14: spec.pools[0].k3s.token-file: is set by Ortet; delete it: k3s makes it\n" +
			"14: spec.pools[0].k3s[kubelet-arg+]: \"kubelet-arg+\" is not an option; use its name in k3s's config.yaml, such as kubelet-arg"},
	{"  pools:\n", "  server: {k3s: {node-taint: [a=b:NoSchedule], cluster-cidr: 10.0.0.0/8, datastore-endpoint: x, server-url: y}}\n  pools:\n",
		"11: spec.server.k3s.cluster-cidr: is set by Ortet; delete it: use spec.network.pods\n" +
			"11: spec.server.k3s.datastore-endpoint: is set by Ortet; delete it: the datastore is on the state disk"},
	{"  pools:\n", "  server: {k3s: {disable: {traefik: true}, kubelet-arg: [[a]], debug: }}\n  pools:\n",
		"11: spec.server.k3s.debug: is empty; give a value, or delete the line\n" +
			"11: spec.server.k3s.disable: is a mapping; give true or false, a number, text, a list\n" +
			"11: spec.server.k3s.kubelet-arg[0]: is a list; give true or false, a number, text"},
	{"  storage:\n", "  protect: \"yes\"\n  storage:\n", `14: spec.protect: is text; give true or false`},

	{"  storage:\n", "  options: {timeZone: \"$(reboot)\"}\n  storage:\n", `14: spec.options.timeZone: "$(reboot)" is not valid; use a name such as UTC or Europe/Lisbon`},
}

func TestParseReportsLineFieldAndCause(t *testing.T) {
	for _, e := range edits {
		if !strings.Contains(minimal, e.old) {
			t.Fatalf("minimal has no %q", e.old)
		}
		_, err := k3s.Parse("cluster.yaml", []byte(strings.Replace(minimal, e.old, e.new, 1)))
		got := ""
		if err != nil {
			got = strings.ReplaceAll(err.Error(), "cluster.yaml:", "")
		}
		if got != e.want {
			t.Errorf("%q:\n got %s\nwant %s", e.new, got, e.want)
		}
	}
}

func TestParseReportsAllProblemsUpToTwenty(t *testing.T) {
	var pools strings.Builder
	for i := range 15 {
		fmt.Fprintf(&pools, "  - name: P%d\n    count: x\n", i)
	}
	_, err := k3s.Parse("c.yaml", []byte(strings.Replace(minimal, "  - name: agents\n    count: 2\n", pools.String(), 1)))
	if err == nil {
		t.Fatal("no error")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 21 || lines[20] != "c.yaml: 10 more problems are not shown" {
		t.Errorf("%d lines, the last is %q", len(lines), lines[len(lines)-1])
	}
	var invalid *yamlfile.InvalidError
	if !errors.As(err, &invalid) || len(invalid.Problems) != 30 || invalid.Problems[1].Field != "spec.pools[0].count" {
		t.Errorf("error is %#v", err)
	}
}

func TestParseRefusesWholeFiles(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "c.yaml:1: file is empty; make one with ortet cluster init",
		"# nothing\n":                "c.yaml:1: file is empty; make one with ortet cluster init",
		strings.Repeat(" ", 1<<20+1): "c.yaml:1: file is larger than 1 MiB; shorten it",
		"text":                       "c.yaml:1: is text; give a mapping",
		"a: &a [*a]":                 "invalid YAML: anchor 'a' value contains itself",
		"\ta: b":                     "c.yaml:1: invalid YAML: found character that cannot start any token, such as a tab; check indentation and quotes",
	} {
		if _, err := k3s.Parse("c.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: error is %v, not %s", text, err, want)
		}
	}
	for _, text := range []string{"\ufeff" + minimal, strings.ReplaceAll(minimal, "\n", "\r\n")} {
		if _, err := k3s.Parse("c.yaml", []byte(text)); err != nil {
			t.Error(err)
		}
	}
}

func TestExamplesAreValid(t *testing.T) {
	files, err := filepath.Glob("../../deploy/cluster/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k3s.Parse(file, text); err != nil {
			t.Error(err)
		}
	}
}

func TestSourcesByFamily(t *testing.T) {
	for _, test := range []struct {
		list, own []string
		v4, v6    []string
	}{
		{[]string{"own", "192.0.2.1"}, []string{"198.51.100.7", "2001:db8::/64"}, []string{"192.0.2.1/32", "198.51.100.7/32"}, []string{"2001:db8::/64"}},
		{[]string{"any", "own", "10.0.0.0/8"}, []string{"192.0.2.1"}, []string{"0.0.0.0/0"}, []string{"::/0"}},
		{[]string{"10.0.0.0/8", "10.1.0.0/16", "10.0.0.0/8"}, nil, []string{"10.0.0.0/8"}, nil},
		{nil, nil, nil, nil},
	} {
		v4, v6, err := k3s.Sources(test.list, test.own)
		if err != nil || !reflect.DeepEqual(v4, test.v4) || !reflect.DeepEqual(v6, test.v6) {
			t.Errorf("%q: %q %q %v", test.list, v4, v6, err)
		}
	}
	v4, v6, err := k3s.Sources([]string{"cloudflare"}, nil)
	if len(v4) != 15 || len(v6) != 7 || err != nil {
		t.Errorf("Cloudflare: %d %d %v", len(v4), len(v6), err)
	}
	for _, own := range [][]string{nil, {"me"}} {
		if _, _, err := k3s.Sources([]string{"own"}, own); err == nil || !strings.Contains(err.Error(), "cannot expand source own: ") {
			t.Errorf("error is %v", err)
		}
	}
}

// FuzzParse: no input panics.
func FuzzParse(f *testing.F) {
	f.Add([]byte(minimal))
	for _, e := range edits {
		f.Add([]byte(strings.Replace(minimal, e.old, e.new, 1)))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := k3s.Parse("c.yaml", text)
		if (c == nil) == (err == nil) {
			t.Fatalf("cluster %v, error %v", c, err)
		}
		if err != nil && err.Error() == "" {
			t.Fatal("an error without a cause")
		}
	})
}
