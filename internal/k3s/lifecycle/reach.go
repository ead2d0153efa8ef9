package lifecycle

import (
	"regexp"
	"slices"
	"strings"
)

// What a change of a field reaches.
const (
	ReachServer    = "server"             // while it runs
	ReachNewServer = "server, made again" // its VM, which nothing but ortet cluster replace server changes
	ReachPool      = "scale set"          // of a pool
	ReachAgents    = "agents"             // their cloud-init document: new ones, present ones after a reimage
	ReachNetwork   = "network"
	ReachStorage   = "storage"
	ReachNothing   = "nothing"
	ReachRefused   = "refused" // plan and up refuse the change
)

// An Effect is what a change of a field does, and when.
type Effect struct {
	Reaches string   `json:"reaches"`
	Pools   []string `json:"pools,omitempty"` // of scale sets and agents
	When    string   `json:"when"`            // "by this up"
	Loses   string   `json:"loses,omitempty"` // what goes away meanwhile or for good
	Then    string   `json:"then,omitempty"`  // the command after up that finishes the change
}

// A Reach is the effects of a field of cluster.yaml and of the fields in it.
type Reach struct {
	Field   string // "spec.pools[].labels"
	Effects []Effect
}

const (
	byUp    = "by this up"
	newOnes = "new agents by this up, present ones by a reimage"
	reimage = "ortet cluster reimage POOL --outdated"
)

// Reaches is the table of all fields, with their order of schema/cluster.v1alpha1.json.
func Reaches() []Reach {
	server := func(loses string) Effect { return Effect{Reaches: ReachServer, When: byUp, Loses: loses} }
	again := Effect{Reaches: ReachNewServer, When: "when the server is made again", Loses: "API for some minutes", Then: "ortet cluster replace server"}
	agents := Effect{Reaches: ReachAgents, When: newOnes, Then: reimage}
	set := func(loses, then string) Effect {
		return Effect{Reaches: ReachPool, When: byUp, Loses: loses, Then: then}
	}
	at := func(what, when string) Effect { return Effect{Reaches: what, When: when} }
	network, refused := at(ReachNetwork, byUp), at(ReachRefused, "never")
	const login = "ortet cluster up --tailscale-key FILE"
	const restart = "API for some seconds, while k3s restarts"
	return []Reach{
		{"apiVersion", []Effect{at(ReachNothing, "never")}},
		{"kind", []Effect{at(ReachNothing, "never")}},
		{"metadata.name", []Effect{refused}},
		{"spec.location", []Effect{refused}},
		{"spec.groups", []Effect{refused}},
		{"spec.image", []Effect{at(ReachNothing, "as spec.server.image and spec.pools[].image")}},
		{"spec.artifacts.k3s", []Effect{server("API for some seconds, after a backup"), agents}},
		{"spec.artifacts.images", []Effect{server(restart), agents}},
		{"spec.artifacts.ortet", []Effect{server("admission of new agents for some seconds")}},
		{"spec.artifacts.ortetNode", []Effect{agents}},
		{"spec.artifacts.tailscale", []Effect{server("the tailnet's address for some seconds")}},
		{"spec.artifacts.containerToolkit[]", []Effect{agents}},
		{"spec.artifacts.version", []Effect{at(ReachNothing, "compared only: a lower version is refused")}},
		{"spec.network", []Effect{refused}},
		{"spec.server.size", []Effect{server("API for some minutes: the server restarts")}},
		{"spec.server.diskGB", []Effect{again}},
		{"spec.server.diskType", []Effect{again}},
		{"spec.server.image", []Effect{again}},
		{"spec.server.stateGB", []Effect{server("API for some minutes: the server is deallocated, its disk grows")}},
		{"spec.server.k3s", []Effect{server(restart)}},
		{"spec.pools[].name", []Effect{set("", "")}},
		{"spec.pools[].size", []Effect{set("", "ortet cluster resize POOL SIZE")}},
		{"spec.pools[].count", []Effect{set("", "")}},
		{"spec.pools[].min", []Effect{set("", "")}},
		{"spec.pools[].max", []Effect{set("", "")}},
		{"spec.pools[].scaleBy", []Effect{set("", "")}},
		{"spec.pools[].priority", []Effect{refused}},
		{"spec.pools[].evictionPolicy", []Effect{refused}},
		{"spec.pools[].zones", []Effect{refused}},
		{"spec.pools[].scaleInPolicy", []Effect{set("", "")}},
		{"spec.pools[].diskGB", []Effect{set("", reimage)}},
		{"spec.pools[].diskType", []Effect{refused}},
		{"spec.pools[].image", []Effect{set("", reimage)}},
		{"spec.pools[].labels", []Effect{agents}},
		{"spec.pools[].taints", []Effect{agents}},
		{"spec.pools[].gpu", []Effect{agents}},
		{"spec.pools[].k3s", []Effect{agents}},
		{"spec.storage.account", []Effect{refused}},
		{"spec.storage.existing", []Effect{at(ReachStorage, "from this up on: up and down leave an existing account as it is")}},
		{"spec.storage.shares", []Effect{at(ReachStorage, "by this up: new shares are made, others stay with their files")}},
		{"spec.storage.mount", []Effect{again, agents}},
		{"spec.access.user", []Effect{refused}},
		{"spec.access.sshPort", []Effect{server("the former port"), network, agents}},
		{"spec.access.sshKey", []Effect{server("the former key, and keys in ~/.ssh/authorized_keys of the server"),
			{Reaches: ReachAgents, When: newOnes + ": until then the former key opens them, so keep it", Then: reimage}}},
		{"spec.access.ssh", []Effect{network}},
		{"spec.access.api", []Effect{network}},
		{"spec.access.ingress", []Effect{network}},
		{"spec.access.fail2ban", []Effect{server("")}},
		{"spec.access.publicAddress", []Effect{{Reaches: ReachNetwork, When: byUp + ", after another way to the server was checked",
			Loses: "public address and its name, given back to Azure"}}},
		{"spec.access.tailscale.hostname", []Effect{server(restart)}},
		{"spec.access.tailscale.tags", []Effect{{Reaches: ReachServer, When: "with the next login", Then: login}}},
		{"spec.access.tailscale.loginServer", []Effect{{Reaches: ReachServer, When: "with the next login", Then: login}}},
		{"spec.access.rules[]", []Effect{network}},
		{"spec.options.privateRegistry", []Effect{server(restart), network, agents}},
		{"spec.options.swapGB", []Effect{at(ReachServer, "a first swap file by this up, another size with its next start"), agents}},
		{"spec.options.scratch", []Effect{agents}},
		{"spec.options.timeZone", []Effect{at(ReachServer, "by this up; a zone that is removed stays until another is set"), agents}},
		{"spec.options.rebootAfterUpdates", []Effect{again, agents}},
		{"spec.options.clusterAutoscaler", []Effect{at(ReachServer, "by this up; without it, kubectl -n kube-system delete deployment cluster-autoscaler")}},
		{"spec.options.devicePlugin", []Effect{at(ReachServer,
			"by this up; without it, kubectl -n kube-system delete daemonset nvidia-device-plugin")}},
		{"spec.manifests[]", []Effect{at(ReachServer, "by this up; what a removed entry made stays in the cluster")}},
		{"spec.packages", []Effect{at(ReachServer, "by this up; what leaves the list stays installed"), agents}},
		{"spec.backup", []Effect{at(ReachNothing, "by the next ortet cluster backup")}},
		{"spec.protect", []Effect{at(ReachNothing, "from now on: down and up --prune go by the file")}},
	}
}

var inBrackets = regexp.MustCompile(`\[[^\]]*\]`)

// reachOf returns the effects of a field by its path; nil is none known.
func reachOf(table []Reach, path string) []Effect {
	path = inBrackets.ReplaceAllString(path, "[]")
	i := slices.IndexFunc(table, func(r Reach) bool {
		rest, in := strings.CutPrefix(path, r.Field)
		return in && (rest == "" || rest[0] == '.')
	})
	if i < 0 {
		return nil
	}
	return table[i].Effects
}
