// Package recipe renders a cluster: two ARM templates, and in them the cloud-init
// documents of its machines. All of it is a pure function of cluster.yaml and of a
// few facts, so the same file gives the same bytes.
//
// Nothing that it renders is secret: no token, no key of storage, and not the hash of
// the cluster's CA, which is made at the server's first boot.
package recipe

import "github.com/ortet/ortet/internal/k3s"

// DeploymentName is the name of the deployment in both groups. It is fixed: ARM
// refuses a second one of the same name while one runs, which is the lock.
const DeploymentName = "ortet"

// Tags of what a cluster is made of. Azure's tag names cannot hold "/".
const (
	TagCluster = "ortet.io_cluster" // the cluster's name: groups and resources
	TagRole    = "ortet.io_role"    // storage, compute: groups; server, pool: machines
	TagRecipe  = "ortet.io_recipe"  // server VM: digest of what only another VM changes, such as customData and image
	// Pool: what cluster.yaml said when it was last applied, "count=2 size=… image=DIGEST cloudinit=DIGEST";
	// server VM: what it was made with and can do, "mount=data reboot=false tailnet=true".
	TagApplied    = "ortet.io_applied"
	TagCAHash     = "ortet.io_ca-hash"      // server VM, written by itself: of the admission server's CA
	TagSSHHostKey = "ortet.io_ssh-host-key" // server VM, written by itself: "ssh-ed25519 AAAA…"
	TagBoot       = "ortet.io_boot"         // server VM, written by itself: state of its boot, or why it failed; BootReady at its end
	TagSettings   = "ortet.io_settings"     // server VM, written by itself: digest of the settings that it runs by
	TagK3s        = "ortet.io_k3s"          // server VM, written by itself, and state disk, written by up: version of k3s
	TagDatastore  = "ortet.io_datastore"    // server VM, written by itself: damage of SQLite's file, and which copy serves
	TagCerts      = "ortet.io_certificates" // server VM, written by itself: when the first of k3s's certificates ends, "2027-11-29T09:00:00Z"
	// What the server writes of itself in a tailnet, empty without access.tailscale: tailscaled's
	// state ("Running", "NeedsLogin") or why it has none, its name and address there, and when its
	// node key ends ("" is never).
	TagTailnet        = "ortet.io_tailnet"
	TagTailnetName    = "ortet.io_tailnet-name"
	TagTailnetAddress = "ortet.io_tailnet-address"
	TagTailnetExpiry  = "ortet.io_tailnet-key-expiry"

	TagRanges = "ortet.io_ranges" // state disk: address ranges of pods and Services that its datastore has
)

// More tags, and values of TagRole.
const (
	TagRenew   = "ortet.io_renew"   // state disk: pools whose agents are of a cluster that is gone, with commas
	TagWhy     = "ortet.io_why"     // backup: why Ortet made it by itself
	TagScaled  = "ortet.io_scaled"  // pool: number of agents that ortet cluster scale gave it last, until cluster.yaml changes it
	TagStopped = "ortet.io_stopped" // server VM, pool: Stopped when ortet cluster stop deallocated it
	RoleBackup = "backup"
	Stopped    = "yes"
)

// Tags of a restore: which backup, and the name of the backup of what was before it. The
// storage group has both until the restore is done. The name is another one for each
// restore, so a state disk that has it was made by that restore.
const (
	TagRestore       = "ortet.io_restore"
	TagRestoreBefore = "ortet.io_restore-before"
)

// RuleDescription is the description of security rules made of spec.access.rules: once they
// are not in the file any more, up deletes them, and not those of others.
const RuleDescription = "access.rules of cluster.yaml"

// Values of TagTailnet of a server that is logged in. The second is boot.py's own: the coordination
// server does not answer tailscaled, or an admin removed the server there.
const (
	TailnetRunning   = "Running"
	TailnetOutOfSync = "OutOfSync"
)

// BootReady is the value of TagBoot of a server whose Node is Ready in this boot.
const BootReady = "ready"

// Facts are what rendering needs besides the file.
type Facts struct {
	// SSHPublicKey is the line of an authorized_keys file.
	SSHPublicKey string
	// OwnAddresses are what k3s.Own stands for.
	OwnAddresses []string
	Subscription string // its id
	// StateExists leaves the state disk out of the storage template: what a disk was made
	// of cannot be changed.
	StateExists bool
	// Renew are the pools that were there when the state disk was lost: the value of
	// TagRenew of the disk that is made.
	Renew []string
	// ServerExists leaves the server's VM out of the compute template: its customData
	// cannot be changed (409 PropertyChangeNotAllowed), and ARM would try.
	ServerExists bool
	// ServerKey is the public key that the server's VM was made with; "" is not known.
	ServerKey string
	// SSHPorts are the ports that the rules of SSH open now, by security group. A deployment
	// opens them too, since machines listen on a new port only later.
	SSHPorts map[string][]string
	// NoPublicAddress says that the server has given its public address up: the template has
	// neither an address nor rules of sources in the internet.
	NoPublicAddress bool
	// Sources are the ranges that the rules of access have now, by "ssh", "api" and "ingress",
	// which stay open until the server's other way was checked.
	Sources map[string][]string
	// Live are the pools' scale sets that exist, by name.
	Live map[string]Live
	// Applied is the record of the last deployment that succeeded, or nil.
	Applied *Applied
}

// An Applied is the record of a cluster.yaml in parameter "applied" of the compute
// deployment, which Azure keeps: what the fields were is not read from machines.
type Applied struct {
	Fields    map[string]string `json:"fields"`    // k3s.Cluster.Fields, with the SSH key's fingerprint
	CloudInit map[string]string `json:"cloudInit"` // digests by pool, as in TagApplied
	Settings  string            `json:"settings"`  // digest of the server's userData
}

// Documents are a rendered cluster.
type Documents struct {
	Storage Deployment
	Compute Deployment
	// CloudInit are the cloud-config documents, "server" and one for each pool by its
	// name, as they are in the compute template's customData.
	CloudInit map[string][]byte
	// Applied is the record of these documents.
	Applied Applied
	// Pools are as the template has them, with what they keep; Count is the number of agents
	// that the pool is to have in the end, nil where Azure scales. Fewer than it has now are
	// not in the template, since Azure would delete agents undrained: Lowered has them by pool.
	Pools   map[string]k3s.Pool
	Lowered map[string]int
	// Evicted is by pool how many agents it lacks by evictions, which the template makes again.
	Evicted map[string]int
	// Kept is by pool what its scale set keeps although the file says otherwise: "size
	// Standard_D4s_v5", "image agents/2026.11.21". The number of instances is not among them.
	Kept map[string][]string
	// ServerRecipe is the value of TagRecipe of a server made by these documents.
	ServerRecipe string
	// Settings is what the server's VM has as userData, JSON, which boot.py applies while
	// the server runs; SettingsDigest is the value of TagSettings then.
	Settings       []byte
	SettingsDigest string
}

// A Deployment is a template with its parameters' values, and the group it is for.
type Deployment struct {
	Group      string
	Template   map[string]any
	Parameters map[string]any // name to value, without ARM's {"value": …} around it
}

// ServerName and PoolNames are as ARM has them.
const (
	ServerName     = "server"       // VM, interface, address
	ServerIdentity = "ortet-server" // user-assigned identity, in the storage group
	AgentIdentity  = "ortet-agent"  // user-assigned identity, in the storage group
	// AutoscalerIdentity is cluster-autoscaler's on the server, in the storage group.
	AutoscalerIdentity = "ortet-autoscaler"
	VNetName           = "ortet" // compute group
	StateDisk          = "state" // managed disk, in the storage group: the server's state, which outlives its VM
)
