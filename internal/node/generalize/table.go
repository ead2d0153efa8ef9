package generalize

// Action is what a Row does with each path that it matches.
type Action string

const (
	// Remove removes the path and all below it.
	Remove Action = "remove"
	// Shred overwrites the files with zeros before removing them, since a
	// snapshot copies freed blocks too. What is large and no key is removed only,
	// and its blocks are given back to the disk at the end.
	Shred Action = "shred"
	// Truncate keeps the file, with its owner and mode, and empties it.
	Truncate Action = "empty"
	// ShredIf shreds the path where the row's condition holds.
	ShredIf Action = "shred if"
	// Edit changes what the row's What says.
	Edit Action = "edit"
)

// Row is one line of the list: what is done to which paths, and why.
type Row struct {
	Group  string
	Path   string // absolute; path.Match patterns in any component
	Action Action
	What   string    // what an Edit does, or the condition of a ShredIf
	Why    string    // what goes wrong when it stays
	When   Bootstrap // "" always, else only with this bootstrap
	Last   bool      // only after the scan: the run itself reads it
	edit   editor
	lines  donorLines // of an Edit that drops lines, in place of edit
	cond   condition
}

// Groups of the table, in its order.
const (
	groupOS      = "OS identity"
	groupNetwork = "Network identity"
	groupCloud   = "cloud-init and the Azure agent"
	groupKube    = "Kubernetes"
	groupK3s     = "k3s and RKE2"
	groupImages  = "Container runtimes (images stay)"
	groupGPU     = "NVIDIA GPUs (driver and modules stay)"
	groupHygiene = "Hygiene"
	groupCaches  = "Caches of package managers"
	groupAgents  = "Identities of other agents"
)

// What the rows of donorOptions do.
const (
	dropsOptions = "drop `node-name`, `node-ip` and `node-external-ip` with the donor's name or addresses"
	whyOptions   = "a clone would register as the donor; without them the host name and the addresses of the machine count"
)

// Table returns the whole list in the order in which it is worked off, but
// that Last rows follow after the scan. It is documentation as much as code:
// docs/reference/generalize.md is written from it.
func Table() []Row {
	return []Row{
		// A clone that shares machine-id shares journal directories, DHCP
		// client ids and systemd's own ids with the donor.
		{Group: groupOS, Path: "/etc/machine-id", Action: Truncate, Last: true,
			Why: "two nodes with one machine-id share DHCP client ids and journals; missing or \"uninitialized\" would count as a first boot, and unit presets would be applied again"},
		{Group: groupOS, Path: "/var/lib/dbus/machine-id", Action: ShredIf, What: "it is a regular file", Last: true, cond: isRegular,
			Why: "systemd takes the machine-id from it when /etc/machine-id is empty, and the duplicate is back"},
		{Group: groupOS, Path: "/etc/hostname", Action: Shred, Last: true,
			Why: "a clone would ask DHCP and DNS for the donor's name before it gets its own"},
		{Group: groupOS, Path: "/etc/hosts", Action: Edit, What: "drop the donor's names and addresses", edit: dropDonorFromHosts,
			Why: "a clone would resolve the donor's name to itself"},
		{Group: groupOS, Path: "/var/lib/systemd/random-seed", Action: Shred, Why: "clones would start from the same entropy"},
		{Group: groupOS, Path: "/boot/efi/loader/random-seed", Action: Shred, Why: "clones would start from the same entropy"},
		{Group: groupOS, Path: "/efi/loader/random-seed", Action: Shred, Why: "clones would start from the same entropy"},
		{Group: groupOS, Path: "/boot/loader/random-seed", Action: Shred, Why: "clones would start from the same entropy"},
		{Group: groupOS, Path: "/var/lib/systemd/credential.secret", Action: Shred, Last: true, Why: "systemd's credentials of one host could be opened on every clone"},
		{Group: groupOS, Path: "/etc/ssh/ssh_host_*", Action: Shred, Last: true, Why: "whoever holds one clone could pose as any other; cloud-init or sshd's unit makes new ones"},

		{Group: groupNetwork, Path: "/var/lib/dhcp/*", Action: Remove, Why: "the donor's leases name its address"},
		{Group: groupNetwork, Path: "/var/lib/dhclient/*", Action: Remove, Why: "the donor's leases name its address"},
		{Group: groupNetwork, Path: "/var/lib/dhcpcd/*", Action: Remove, Why: "the donor's leases and DUID"},
		{Group: groupNetwork, Path: "/var/lib/dhcpcd5/*", Action: Remove, Why: "the donor's leases and DUID"},
		{Group: groupNetwork, Path: "/etc/dhcpcd.duid", Action: Remove, Why: "the donor's DHCP unique id"},
		{Group: groupNetwork, Path: "/var/lib/NetworkManager/*.lease", Action: Remove, Why: "the donor's leases"},
		{Group: groupNetwork, Path: "/var/lib/NetworkManager/secret_key", Action: Shred, Why: "stable connection and interface ids are derived from it"},
		{Group: groupNetwork, Path: "/var/lib/systemd/network/*", Action: Remove, Why: "leases kept by systemd-networkd"},
		{Group: groupNetwork, Path: "/etc/udev/rules.d/70-persistent-net.rules", Action: Remove, Why: "binds interface names to the donor's MAC"},
		{Group: groupNetwork, Path: "/etc/udev/rules.d/75-persistent-net-generator.rules", Action: ShredIf, What: "it holds a MAC", cond: holdsMAC, Why: "binds interface names to the donor's MAC"},
		{Group: groupNetwork, Path: "/etc/netplan/50-cloud-init.yaml", Action: Remove, Why: "holds the donor's MAC; cloud-init writes it for each instance"},
		{Group: groupNetwork, Path: "/etc/netplan/90-hotplug-azure.yaml", Action: ShredIf, What: "it holds a MAC", cond: holdsMAC, Why: "holds the donor's MAC"},
		{Group: groupNetwork, Path: "/etc/systemd/network/10-cloud-init-*.network", Action: ShredIf, What: "it holds a MAC", cond: holdsMAC, Why: "matches the donor's MAC only"},
		{Group: groupNetwork, Path: "/etc/systemd/network/10-netplan-*", Action: ShredIf, What: "it holds a MAC", cond: holdsMAC, Why: "matches the donor's MAC only"},
		{Group: groupNetwork, Path: "/etc/network/interfaces.d/50-cloud-init*", Action: ShredIf, What: "it holds a MAC", cond: holdsMAC, Why: "matches the donor's MAC only"},
		{Group: groupNetwork, Path: "/etc/NetworkManager/system-connections/cloud-init-*.nmconnection", Action: ShredIf, What: "it holds a MAC", cond: holdsMAC, Why: "matches the donor's MAC only"},
		{Group: groupNetwork, Path: "/etc/sysconfig/network-scripts/ifcfg-*", Action: Edit, What: "drop HWADDR and UUID", edit: dropHWAddr, Why: "the interface would not come up with another MAC"},

		{Group: groupCloud, Path: "/var/lib/cloud/*", Action: Shred, Last: true, Why: "cloud-init would hold the clone for the donor, and its previous host name would deregister the donor's DNS record"},
		{Group: groupCloud, Path: "/etc/sudoers.d/90-cloud-init-users", Action: Edit, What: "drop repeated lines", edit: dropRepeated,
			Why: "cloud-init adds the same rules at each first boot, so with each generation"},
		{Group: groupCloud, Path: "/run/cloud-init/*", Action: Remove, Why: "what cloud-init knew of the donor, where /run is kept on the disk"},
		{Group: groupCloud, Path: "/var/lib/waagent/ovf-env.xml", Action: Shred, Last: true, Why: "holds customData and may hold the admin password"},
		{Group: groupCloud, Path: "/var/lib/waagent/CustomData", Action: Shred, Last: true, Why: "customData may hold join secrets"},
		{Group: groupCloud, Path: "/var/lib/waagent/*/config/*.settings", Action: Shred, Last: true, Why: "extension settings of the donor"},
		{Group: groupCloud, Path: "/var/lib/waagent/*.prv", Action: Shred, Last: true, Why: "private keys that decrypt protected settings"},
		{Group: groupCloud, Path: "/var/lib/waagent/*.crt", Action: Shred, Last: true, Why: "certificates of the donor"},
		{Group: groupCloud, Path: "/var/lib/waagent/Certificates.*", Action: Shred, Last: true, Why: "certificates with keys, as the platform delivered them"},
		{Group: groupCloud, Path: "/var/lib/waagent/*.p7m", Action: Shred, Why: "certificates with keys, as the platform delivered them"},
		{Group: groupCloud, Path: "/var/lib/waagent/*.pem", Action: Shred, Last: true, Why: "the agent's transport key and certificate, among others"},
		{Group: groupCloud, Path: "/var/lib/waagent/Incarnation", Action: Remove, Why: "the donor's goal state"},
		{Group: groupCloud, Path: "/var/lib/waagent/SharedConfig.xml", Action: Remove, Why: "the donor's place in its deployment"},
		{Group: groupCloud, Path: "/var/lib/waagent/HostingEnvironmentConfig.xml", Action: Remove, Why: "the donor's place in its deployment"},
		{Group: groupCloud, Path: "/var/lib/waagent/GoalState*.xml", Action: Remove, Why: "the donor's goal state"},
		{Group: groupCloud, Path: "/var/lib/waagent/ExtensionsConfig*.xml", Action: Shred, Why: "the donor's extensions with their settings"},
		{Group: groupCloud, Path: "/var/lib/waagent/VmSettings*.json", Action: Shred, Why: "the donor's extensions with their settings"},
		{Group: groupCloud, Path: "/var/lib/waagent/fast_track.json", Action: Remove, Why: "the donor's goal state"},
		{Group: groupCloud, Path: "/var/lib/waagent/published_hostname", Action: Remove, Why: "the agent would publish the donor's name"},
		{Group: groupCloud, Path: "/var/lib/waagent/provisioned", Action: Remove, Why: "an agent that provisions would hold the clone for done"},
		{Group: groupCloud, Path: "/var/lib/waagent/waagent_status*.json", Action: Remove, Why: "the donor's status"},
		{Group: groupCloud, Path: "/var/lib/waagent/history/*", Action: Shred, Why: "old goal states with settings"},
		{Group: groupCloud, Path: "/var/lib/waagent/events/*", Action: Remove, Why: "the donor's telemetry"},
		{Group: groupCloud, Path: "/var/lib/waagent/*/status/*.status", Action: Remove, Why: "an extension would report the donor's success as its own"},
		{Group: groupCloud, Path: "/var/lib/waagent/*/config/HandlerStatus", Action: Remove, Why: "an extension would report the donor's success as its own"},
		{Group: groupCloud, Path: "/var/lib/waagent/*/HandlerStatus", Action: Remove, Why: "an extension would report the donor's success as its own"},
		{Group: groupCloud, Path: "/var/lib/waagent/*/mrseq", Action: Remove, Why: "an extension would hold its settings for done and not run"},
		{Group: groupCloud, Path: "/var/lib/waagent/*/events/*", Action: Remove, Why: "the donor's telemetry"},
		{Group: groupCloud, Path: "/var/lib/waagent/custom-script/download/*", Action: Shred, Why: "scripts and their output, which may hold secrets"},
		{Group: groupCloud, Path: "/var/lib/waagent/run-command/download/*", Action: Shred, Why: "scripts and their output, which may hold secrets"},
		{Group: groupCloud, Path: "/var/lib/azure/*", Action: Remove, Why: "per-VM state of provisioning agents"},
		{Group: groupCloud, Path: "/var/lib/azure-init/*", Action: Remove, Why: "per-VM provisioning marks"},

		{Group: groupKube, Path: "/etc/kubernetes/*.conf", Action: ShredIf, What: "it is a kubeconfig of a node's identity", Last: true, cond: isNodeKubeconfig,
			Why: "a clone that holds it can act as the donor's Node; a bootstrap kubeconfig stays"},
		{Group: groupKube, Path: "/etc/kubernetes/*kubeconfig*", Action: ShredIf, What: "it is a kubeconfig of a node's identity", Last: true, cond: isNodeKubeconfig, Why: "as above"},
		{Group: groupKube, Path: "/var/lib/kubelet/*kubeconfig*", Action: ShredIf, What: "it is a kubeconfig of a node's identity", Last: true, cond: isNodeKubeconfig, Why: "as above"},
		{Group: groupKube, Path: "/var/lib/kubelet/*.conf", Action: ShredIf, What: "it is a kubeconfig of a node's identity", Last: true, cond: isNodeKubeconfig, Why: "as above"},
		{Group: groupKube, Path: "/root/.kube/config", Action: ShredIf, What: "it is a kubeconfig of a node's identity", Last: true, cond: isNodeKubeconfig, Why: "as above"},
		{Group: groupKube, Path: "/home/*/.kube/config", Action: ShredIf, What: "it is a kubeconfig of a node's identity", Last: true, cond: isNodeKubeconfig, Why: "as above"},
		{Group: groupKube, Path: "/root/.kube/cache", Action: Remove, Why: "discovery caches"},
		{Group: groupKube, Path: "/var/lib/kubelet/pki/*", Action: Shred, Last: true, Why: "the kubelet's client and serving keys"},
		{Group: groupKube, Path: "/etc/kubernetes/bootstrap-kubelet.conf", Action: ShredIf, What: "kubeadm joined the node", When: Keep, cond: joinedByKubeadm,
			Why: "kubeadm join refuses a node that has it, and brings its own"},
		{Group: groupKube, Path: "/etc/kubernetes/pki/ca.crt", Action: ShredIf, What: "kubeadm joined the node", When: Keep, cond: joinedByKubeadm,
			Why: "kubeadm join refuses a node that has it, and fetches it anew"},
		{Group: groupKube, Path: "/var/lib/kubelet/kubeadm-flags.env", Action: ShredIf, What: "kubeadm joined the node", When: Keep, cond: joinedByKubeadm,
			Why: "may name the donor; kubeadm join writes it"},
		{Group: groupKube, Path: bootstrapKubeconfig, Action: ShredIf, What: "ortet-node join wrote it", cond: joinedByOrtet,
			Why: "its token was the donor's; a clone asks for its own"},
		{Group: groupKube, Path: "/etc/kubernetes/.*.ortet", Action: Shred, Why: "a kubeconfig with a token that ortet-node join was writing when it was killed"},
		{Group: groupKube, Path: "/var/lib/kubelet/pods/*", Action: Remove, Last: true, Why: "volumes of the donor's pods"},
		{Group: groupKube, Path: "/var/lib/kubelet/plugins/*", Action: Remove, Why: "sockets and mounts of the donor's drivers; they are registered anew"},
		{Group: groupKube, Path: "/var/lib/kubelet/plugins_registry/*", Action: Remove, Why: "sockets of drivers that do not run yet"},
		{Group: groupKube, Path: "/var/lib/kubelet/device-plugins/*", Action: Remove, Why: "device allocations of the donor's pods"},
		{Group: groupKube, Path: "/var/lib/kubelet/checkpoints/*", Action: Remove, Why: "the donor's dynamic configuration"},
		{Group: groupKube, Path: "/var/lib/kubelet/pod-resources/*", Action: Remove, Why: "the donor's socket"},
		{Group: groupKube, Path: "/var/lib/kubelet/cpu_manager_state", Action: Remove, Why: "the kubelet refuses to start where the CPUs differ"},
		{Group: groupKube, Path: "/var/lib/kubelet/memory_manager_state", Action: Remove, Why: "the kubelet refuses to start where the memory differs"},
		{Group: groupKube, Path: "/var/lib/kubelet/dra_manager_state", Action: Remove, Why: "claims of the donor's pods"},
		{Group: groupKube, Path: "/var/lib/kubelet/*_pods_state", Action: Remove, Why: "resources allocated to the donor's pods"},
		{Group: groupKube, Path: "/var/lib/kubelet/pod_status_manager_state", Action: Remove, Why: "resources allocated to the donor's pods"},
		{Group: groupKube, Path: "/var/lib/cni/networks/*", Action: Remove, Why: "addresses reserved for the donor's pods"},
		{Group: groupKube, Path: "/var/lib/cni/results/*", Action: Remove, Why: "network results of the donor's pods"},
		{Group: groupKube, Path: "/var/lib/cni/cache/*", Action: Remove, Why: "network results of the donor's pods"},
		{Group: groupKube, Path: "/var/lib/cni/flannel/*", Action: Remove, Why: "network results of the donor's pods"},
		{Group: groupKube, Path: "/var/lib/calico/nodename", Action: Remove, Why: "Calico would act under the donor's name"},
		{Group: groupKube, Path: "/etc/cni/net.d/*kubeconfig*", Action: Shred, Last: true, Why: "a service account token of the donor's CNI pod, which writes it anew"},
		{Group: groupKube, Path: "/var/lib/weave/*", Action: Remove, Why: "Weave's peer name and data"},
		{Group: groupKube, Path: "/var/run/azure-vnet*.json", Action: Remove, Why: "Azure CNI's state of the donor's pods"},
		{Group: groupKube, Path: "/var/lib/azure-network/*", Action: Remove, Why: "Azure CNI's state of the donor's pods"},
		{Group: groupKube, Path: "/var/log/pods/*", Action: Remove, Why: "logs of the donor's pods"},
		{Group: groupKube, Path: "/var/log/containers/*", Action: Remove, Why: "links to logs of the donor's pods"},

		{Group: groupK3s, Path: "/etc/rancher/node/*", Action: Shred, Last: true, Why: "the node password: the server refuses a name with another password, and a clone could act as the donor"},
		{Group: groupK3s, Path: "/var/lib/rancher/*/agent/*.key", Action: Shred, Last: true, Why: "the agent's client and serving keys"},
		{Group: groupK3s, Path: "/var/lib/rancher/*/agent/*.crt", Action: Shred, Last: true, Why: "the agent's certificates; fetched anew with the token"},
		{Group: groupK3s, Path: "/var/lib/rancher/*/agent/*.kubeconfig", Action: Shred, Why: "kubeconfigs of the donor's identity; written anew"},
		{Group: groupK3s, Path: "/etc/rancher/*/config.yaml.d/" + ortetDropIn, Action: Remove, Why: "names the donor; ortet-node join writes it on each node"},
		{Group: groupK3s, Path: "/etc/rancher/*/config.yaml.d/.*.ortet", Action: Remove, Why: "as above, where it was killed"},
		{Group: groupK3s, Path: "/etc/rancher/*/.*.ortet", Action: Shred, Why: "what ortet-node join was writing when it was killed"},
		{Group: groupK3s, Path: "/etc/rancher/*/config.yaml", Action: Edit, What: dropsOptions, lines: donorOptions, Why: whyOptions},
		{Group: groupK3s, Path: "/etc/rancher/*/config.yaml.d/*.yaml", Action: Edit, What: dropsOptions, lines: donorOptions, Why: whyOptions},
		{Group: groupK3s, Path: "/etc/rancher/*/config.yaml.d/*.yml", Action: Edit, What: dropsOptions, lines: donorOptions, Why: whyOptions},
		{Group: groupK3s, Path: "/etc/systemd/system/k3s*.service.env", Action: Edit, What: "drop `K3S_NODE_NAME` with the donor's name", lines: donorVariables, Why: "as above"},
		{Group: groupK3s, Path: "/etc/default/rke2-*", Action: Edit, What: "drop `RKE2_NODE_NAME` with the donor's name", lines: donorVariables, Why: "as above"},
		// RKE2's pkg/executor/staticpod removes it before its agent starts, and writes it for
		// that Node. Others in this folder, and in k3s's, are the user's.
		{Group: groupK3s, Path: "/var/lib/rancher/rke2/agent/pod-manifests/kube-proxy.yaml", Action: Remove, Why: "names the donor; RKE2 writes it at each start"},
		{Group: groupK3s, Path: "/var/lib/rancher/*/agent/containerd/*.log*", Action: Remove, Why: "logs of the donor's containerd"},
		{Group: groupK3s, Path: "/var/lib/rancher/*/agent/pod-manifests/.cache", Action: Remove, Why: "the donor's static pods"},
		{Group: groupK3s, Path: "/var/lib/rancher/*/agent/logs/*", Action: Remove, Why: "the donor's logs"},

		{Group: groupImages, Path: "/", Action: Edit, What: "containerd: drop containers, sandboxes, leases and their writable snapshots; keep images, layers and committed snapshots", edit: cleanContainerd,
			Why: "a runtime would try to bring the donor's pods back, and their writable layers may hold secrets; the pre-pulled images are the point"},
		{Group: groupImages, Path: "/", Action: Edit, What: "Docker: drop containers, their writable layers and volumes; keep images", edit: cleanDocker, Why: "as above"},
		{Group: groupImages, Path: "/", Action: Edit, What: "CRI-O: drop containers and their writable layers; keep images", edit: cleanCRIO, Why: "as above"},
		{Group: groupImages, Path: "/var/lib/docker/engine-id", Action: Remove, Why: "Docker's identity"},
		{Group: groupImages, Path: "/etc/docker/key.json", Action: Shred, Why: "Docker's identity key"},
		{Group: groupImages, Path: "/var/lib/docker/swarm", Action: Shred, Why: "Swarm's node key"},
		{Group: groupImages, Path: "/var/lib/dockershim/sandbox/*", Action: Remove, Why: "sandboxes of the donor's pods"},
		{Group: groupImages, Path: "/run/containerd/*", Action: Remove, Why: "runtime state, where /run is kept on the disk"},

		// nvidia-container-toolkit's deployments/systemd/nvidia-cdi-refresh.service, from 1.18 on.
		{Group: groupGPU, Path: "/etc/cdi/*", Action: ShredIf, What: whatCDI, cond: madeByToolkit,
			Why: "names the donor's GPUs by their UUIDs, and the files of the driver of then; where nothing makes it again it stays"},
		{Group: groupGPU, Path: "/run/cdi/*", Action: ShredIf, What: whatCDI, cond: madeByToolkit,
			Why: "as above, where /run is kept on the disk"},
		{Group: groupGPU, Path: "/run/nvidia-persistenced/*", Action: Remove,
			Why: "socket and process id of the donor's persistence daemon, where /run is kept on the disk; it has no other state"},

		{Group: groupHygiene, Path: "/var/log/journal/*", Action: Remove, Why: "the donor's journal, kept under its machine-id, would pile up with each generation"},
		{Group: groupHygiene, Path: "/var/log", Action: Edit, What: "remove rotated logs, empty the others, keep ancestry.log", edit: emptyLogs, Why: "logs name the donor and may hold secrets"},
		{Group: groupHygiene, Path: "/var/lib/ortet/boots/*", Action: Remove, Why: "reports of the donor's boots, which name it"},
		{Group: groupHygiene, Path: "/var/lib/ortet/events.json", Action: Remove, Why: "what the donor did about Azure's events, which are not a clone's"},
		{Group: groupHygiene, Path: "/var/lib/ortet/verdict.json", Action: Remove, Why: "how the donor's boot ended, which is not a clone's"},
		{Group: groupHygiene, Path: "/var/lib/ortet/.*", Action: Remove, Why: "what ortet-node was writing when it was killed"},
		{Group: groupHygiene, Path: ortetRecord, Action: Remove, Last: true, Why: "says that the donor has joined from this disk; a clone has not"},
		{Group: groupHygiene, Path: "/run/ortet/*", Action: Remove, Why: "what ortet-node wrote for one boot, where /run is kept on the disk"},
		{Group: groupHygiene, Path: "/tmp/*", Action: Remove, Why: "left-overs of the donor"},
		{Group: groupHygiene, Path: "/tmp/.[!.]*", Action: Remove, Why: "left-overs of the donor"},
		{Group: groupHygiene, Path: "/var/tmp/*", Action: Remove, Why: "left-overs of the donor"},
		{Group: groupHygiene, Path: "/var/crash/*", Action: Remove, Why: "memory of the donor's processes"},
		{Group: groupHygiene, Path: "/var/lib/systemd/coredump/*", Action: Remove, Why: "memory of the donor's processes"},
		{Group: groupHygiene, Path: "/root/.*_history", Action: Shred, Why: "typed commands may hold secrets"},
		{Group: groupHygiene, Path: "/home/*/.*_history", Action: Shred, Why: "typed commands may hold secrets"},
		{Group: groupHygiene, Path: "/root/.ssh/authorized_keys", Action: Remove, Why: "keys of the scale set's profile are provisioned on each instance"},
		{Group: groupHygiene, Path: "/home/*/.ssh/authorized_keys", Action: Remove, Why: "keys of the scale set's profile are provisioned on each instance"},
		{Group: groupHygiene, Path: "/etc/fstab", Action: Edit, What: wipesSwap, edit: wipeSwapFiles, Why: "a swap file holds memory of the donor's processes"},
		{Group: groupHygiene, Path: "/etc/systemd/system/*.swap", Action: Edit, What: wipesSwap, edit: wipeSwapFiles, Why: "as above"},
		{Group: groupHygiene, Path: "/etc/systemd/system/*.swap.d/*.conf", Action: Edit, What: wipesSwap, edit: wipeSwapFiles, Why: "as above"},
		{Group: groupHygiene, Path: "/usr/local/lib/systemd/system/*.swap", Action: Edit, What: wipesSwap, edit: wipeSwapFiles, Why: "as above"},
		{Group: groupHygiene, Path: "/usr/lib/systemd/system/*.swap", Action: Edit, What: wipesSwap, edit: wipeSwapFiles, Why: "as above"},
		{Group: groupHygiene, Path: "/lib/systemd/system/*.swap", Action: Edit, What: wipesSwap, edit: wipeSwapFiles, Why: "as above"},

		// apt(8) "clean" and dnf's, tdnf's, zypper's and yum's "clean all" remove the same. The lists of
		// apt go too: they are fetched whole as soon as a release changes, and are most of a cache.
		{Group: groupCaches, Path: "/var/cache/apt/archives/*.deb", Action: Remove,
			Why: "packages that are installed; apt fetches them again, and they pile up with each generation"},
		{Group: groupCaches, Path: "/var/cache/apt/archives/partial/*", Action: Remove, Why: "downloads that did not end"},
		{Group: groupCaches, Path: "/var/cache/apt/*.bin", Action: Remove, Why: "made of the lists below; apt makes them again"},
		{Group: groupCaches, Path: "/var/lib/apt/lists/*_*", Action: Remove,
			Why: "indexes of repositories, old on a clone, which has to run apt-get update before it installs a package in any case"},
		{Group: groupCaches, Path: "/var/lib/apt/lists/partial/*", Action: Remove, Why: "downloads that did not end"},
		{Group: groupCaches, Path: "/var/cache/dnf/*", Action: Remove, Why: "packages and indexes; dnf fetches them again"},
		{Group: groupCaches, Path: "/var/cache/libdnf5/*", Action: Remove, Why: "as above, of dnf 5"},
		{Group: groupCaches, Path: "/var/cache/yum/*", Action: Remove, Why: "as above, of yum"},
		{Group: groupCaches, Path: "/var/cache/tdnf/*", Action: Remove, Why: "as above, of tdnf"},
		{Group: groupCaches, Path: "/var/cache/zypp/*", Action: Remove, Why: "as above, of zypper"},
		{Group: groupCaches, Path: "/var/cache/PackageKit/*", Action: Remove, Why: "as above, of PackageKit"},

		{Group: groupAgents, Path: "/etc/nvme/hostid", Action: Remove, Why: "NVMe targets tell hosts apart by it"},
		{Group: groupAgents, Path: "/etc/nvme/hostnqn", Action: Remove, Why: "NVMe targets tell hosts apart by it"},
		{Group: groupAgents, Path: "/etc/iscsi/initiatorname.iscsi", Action: Edit, What: "GenerateName=yes on Debian, else remove", edit: regenerateInitiator, Why: "iSCSI targets tell hosts apart by it; open-iscsi makes a new one at its start"},
		// OVS's ovs-ctl --system-id=random; two chassis of one id take each other's ports.
		{Group: groupAgents, Path: "/etc/openvswitch/system-id.conf", Action: Remove, Why: "OVN identifies a chassis by it; ovs-ctl makes a new one"},
		// Kilo's mesh.go, Flannel's WireGuard backend and Cilium's wireguard/types make a
		// key where none is; two peers of one key take each other's packets.
		{Group: groupAgents, Path: "/var/lib/kilo/key", Action: Shred, Why: "Kilo's WireGuard key of this node; it makes a new one"},
		{Group: groupAgents, Path: "/run/flannel/*", Action: Shred, Why: "Flannel's WireGuard key and subnet of this node, where /run is kept on the disk"},
		{Group: groupAgents, Path: "/run/cilium/state/*", Action: Shred, Why: "Cilium's WireGuard key and endpoints of this node, where /run is kept on the disk"},
		// Longhorn's node controller refuses disks that share a UUID.
		{Group: groupAgents, Path: "/var/lib/longhorn/longhorn-disk.cfg", Action: Remove, Why: "Longhorn refuses a disk whose UUID another node has, and makes a new one"},
		// Rancher's system-agent-install.sh keeps an id that is there, and asks the server by
		// it for a kubeconfig of this machine's plan.
		{Group: groupAgents, Path: "/etc/rancher/agent/cattle-id", Action: Shred, Why: "Rancher's id of this machine; its registration command makes a new one"},
		{Group: groupAgents, Path: "/var/lib/rancher/agent/rancher2_connection_info.json", Action: Shred, Why: "a clone would carry out Rancher's plans for the donor; its registration command fetches a new one"},
		// SPIRE's pkg/agent/storage and its disk key manager: attested again where they are missing.
		{Group: groupAgents, Path: "/var/lib/spire/agent/*", Action: Shred, Last: true, Why: "the SPIRE agent's key and SVID; it attests itself again"},
		{Group: groupAgents, Path: "/opt/spire/data/agent/*", Action: Shred, Last: true, Why: "as above"},
		// Teleport's issue 546: instances of one host_uuid take each other's sessions.
		{Group: groupAgents, Path: "/var/lib/teleport/host_uuid", Action: Shred, Why: "Teleport's identity of this host; it makes a new one"},
		{Group: groupAgents, Path: "/var/lib/teleport/proc", Action: Shred, Why: "Teleport's keys of this host; it joins again by the token or method of its configuration"},
		{Group: groupAgents, Path: "/var/lib/teleport/cache", Action: Remove, Why: "what Teleport's services of the donor had fetched"},
		// Netdata's "VM Templates and Clones": the status files bring the GUID back.
		{Group: groupAgents, Path: "/var/lib/netdata/registry/netdata.public.unique.id", Action: Shred, Why: "Netdata's GUID: its cloud and parents drop one of two nodes that share it"},
		{Group: groupAgents, Path: "/var/lib/netdata/status-netdata.json", Action: Remove, Why: "Netdata takes the GUID from it where the file above is missing"},
		{Group: groupAgents, Path: "/var/lib/netdata/cloud.d/*", Action: Shred, Last: true, Why: "Netdata's claim and key of this node; claim.conf claims a clone"},
		{Group: groupAgents, Path: "/var/cache/netdata/*", Action: Remove, Why: "metrics of the donor, and another copy of its GUID"},
		{Group: groupAgents, Path: "/opt/netdata/var/lib/netdata/registry/netdata.public.unique.id", Action: Shred, Why: "as above, of Netdata's static build"},
		{Group: groupAgents, Path: "/opt/netdata/var/lib/netdata/status-netdata.json", Action: Remove, Why: "as above"},
		{Group: groupAgents, Path: "/opt/netdata/var/lib/netdata/cloud.d/*", Action: Shred, Last: true, Why: "as above"},
		{Group: groupAgents, Path: "/opt/netdata/var/cache/netdata/*", Action: Remove, Why: "as above"},
		// Tailscale's "Node keys"; its state, log id and SSH host keys are all of one machine.
		{Group: groupAgents, Path: "/var/lib/tailscale/*", Action: Shred, Why: "Tailscale's machine and node key: two machines of one key drop each other; a clone logs in by an auth key"},
		// ZeroTier's documentation: devices of one identity fight over its address.
		{Group: groupAgents, Path: "/var/lib/zerotier-one/identity.*", Action: Shred, Why: "ZeroTier's identity; it makes a new one, and keeps the networks"},
		{Group: groupAgents, Path: "/var/lib/zerotier-one/authtoken.secret", Action: Shred, Why: "the token of ZeroTier's local API; it makes a new one"},
		// Consul's issues 4741 and 13037, and Nomad's client.go, which makes new ids. Consul
		// reads its gossip keys from serf/*.keyring alone where "encrypt" was given once.
		{Group: groupAgents, Path: "/opt/consul/node-id", Action: Remove, Why: "Consul refuses a node whose id another one has; it makes a new one"},
		{Group: groupAgents, Path: "/opt/consul/serf/*.snapshot", Action: Remove, Why: "the donor's view of Consul's members"},
		{Group: groupAgents, Path: "/var/lib/consul/node-id", Action: Remove, Why: "Consul refuses a node whose id another one has; it makes a new one"},
		{Group: groupAgents, Path: "/var/lib/consul/serf/*.snapshot", Action: Remove, Why: "the donor's view of Consul's members"},
		{Group: groupAgents, Path: "/opt/nomad/data/client/*", Action: Shred, Why: "Nomad's ids and state of this client; it makes new ones"},
		{Group: groupAgents, Path: "/opt/nomad/client/*", Action: Shred, Why: "as above"},
		{Group: groupAgents, Path: "/var/lib/nomad/client/*", Action: Shred, Why: "as above"},
		// osquery and Fleet's orbit enrol where no node key is; Fleet takes hosts of one key for one.
		{Group: groupAgents, Path: "/var/osquery/osquery.db", Action: Shred, Why: "osquery's node key and id; it enrols again by the enrol secret"},
		{Group: groupAgents, Path: "/opt/orbit/osquery.db", Action: Shred, Why: "as above"},
		{Group: groupAgents, Path: "/opt/orbit/secret-orbit-node-key.txt", Action: Shred, Why: "orbit's node key; it enrols again by the enrol secret"},
		// Wazuh's agentd.c enrols where no key is; the manager takes agents of one key for one.
		{Group: groupAgents, Path: "/var/ossec/etc/client.keys", Action: Shred, Why: "the Wazuh agent's id and key; it enrols again"},
		// The Elastic Agent's DaemonSet enrols by its environment where no fleet.enc is.
		{Group: groupAgents, Path: "/var/lib/elastic-agent-managed/*", Action: Shred, Why: "the enrolment of the Elastic Agent's pod; it enrols again"},
		{Group: groupAgents, Path: "/var/lib/*beat/meta.json", Action: Remove, Why: "a beat's id; it makes a new one"},
		// Datadog's agent makes both where they are missing.
		{Group: groupAgents, Path: "/etc/datadog-agent/auth_token", Action: Shred, Why: "the token of the Datadog agent's local API; it makes a new one"},
		{Group: groupAgents, Path: "/etc/datadog-agent/ipc_cert.pem", Action: Shred, Why: "the key of the Datadog agent's local API; it makes a new one"},
		// Splunk's clone-prep-clear-config removes it.
		{Group: groupAgents, Path: "/opt/splunkforwarder/etc/instance.cfg", Action: Remove, Why: "the Splunk forwarder's GUID; it makes a new one"},
		// The vendors' guides to images of Dynatrace's OneAgent, Qualys, Nessus, Red Hat
		// Insights and Landscape.
		{Group: groupAgents, Path: "/var/lib/dynatrace/oneagent/agent/config/ruxithost.id", Action: Remove, Why: "OneAgent's host id; it makes a new one"},
		{Group: groupAgents, Path: "/etc/qualys/hostid", Action: Remove, Why: "the Qualys agent's host id; it asks for a new one"},
		{Group: groupAgents, Path: "/etc/tenable_tag", Action: Remove, Why: "the Nessus agent's id; it makes a new one"},
		{Group: groupAgents, Path: "/opt/nessus_agent/var/nessus/uuid", Action: Remove, Why: "as above"},
		{Group: groupAgents, Path: "/etc/insights-client/machine-id", Action: Remove, Why: "Red Hat Insights' id of this host; it makes a new one"},
		{Group: groupAgents, Path: "/var/lib/landscape/client/broker.bpickle*", Action: Shred, Why: "Landscape's secure id of this computer"},
		{Group: groupAgents, Path: "/opt/CrowdStrike/falconstore*", Action: Shred, Why: "Falcon's agent id"},
		{Group: groupAgents, Path: "/etc/opt/microsoft/azuremonitoragent/config-cache/*", Action: Shred, Why: "the Azure Monitor agent's configuration and keys for the donor"},
		{Group: groupAgents, Path: "/etc/opt/microsoft/omsagent/*/certs/*", Action: Shred, Why: "the Log Analytics agent's key"},
		{Group: groupAgents, Path: "/var/opt/azcmagent/certs/*", Action: Shred, Why: "Azure Arc's key"},
		{Group: groupAgents, Path: "/var/lib/ubuntu-advantage/private/*", Action: Shred, Why: "Ubuntu Pro's machine token; images that include Pro attach by themselves"},
		{Group: groupAgents, Path: "/etc/pki/consumer/*", Action: Shred, Why: "the subscription's identity of this host"},
		{Group: groupAgents, Path: "/etc/salt/minion_id", Action: Remove, Why: "the minion's identity"},
		{Group: groupAgents, Path: "/etc/salt/pki/minion/*", Action: Shred, Last: true, Why: "the minion's key"},
		{Group: groupAgents, Path: "/etc/chef/client.pem", Action: Shred, Last: true, Why: "the client's key"},
		{Group: groupAgents, Path: "/etc/cinc/client.pem", Action: Shred, Last: true, Why: "the client's key"},
		// Puppet's agent makes a key and asks for a certificate where its ssl folder is empty.
		{Group: groupAgents, Path: "/etc/puppetlabs/puppet/ssl/*", Action: Shred, Last: true, Why: "the Puppet agent's key and certificate; it asks for new ones"},
		{Group: groupAgents, Path: "/var/lib/puppet/ssl/*", Action: Shred, Last: true, Why: "as above"},
	}
}
