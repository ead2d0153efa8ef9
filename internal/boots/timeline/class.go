package timeline

import "strings"

// A Rule classes the work of some spans, with the reason.
type Rule struct {
	// Match is a span's ID ("unit/kubelet.service", "cloud-init/modules-final/..."),
	// in which "*" stands for anything; "_" and "-" are one.
	Match string
	Kind  Kind // "": any
	Class Class
	Why   string
	Do    string // what to change; "" where nothing can be said in general
}

// Rules are the classes: the first that matches counts. What none matches is node
// preparation, since nothing shows that it is the same on every node.
func Rules() []Rule { return rules }

// The table is read only.
var rules = []Rule{
	// Azure, firmware, kernel, systemd.
	{"azure/*", "", Platform, "Azure's own work", ""},
	{"machine/*", "", Platform, "firmware, boot loader, kernel and initrd", ""},
	{"systemd/*", "", Platform, "systemd's own work: its security policies, generators and the loading of units", ""},
	{"cluster/*", "", Platform, "the control plane's", ""},
	{"clock/*", "", Platform, "the setting of a clock", ""},

	// The kubelet and what it needs of each node.
	{"unit/kubelet.service", "", Node, "the kubelet registers this node", ""},
	{"unit/k3s*.service", "", Node, "the kubelet registers this node", ""},
	{"unit/rke2*.service", "", Node, "the kubelet registers this node", ""},
	{"kubelet/*", "", Node, "the kubelet registers this node", ""},
	{"unit/ortet*", "", Node, "this node's identity, credentials and report", ""},
	{"unit/containerd.service", "", Node, "containers run on each node", ""},
	{"unit/docker.service", "", Node, "containers run on each node", ""},
	{"unit/docker.socket", "", Node, "containers run on each node", ""},
	{"unit/crio.service", "", Node, "containers run on each node", ""},

	// Images.
	{"*pull*", KindPull, Base, "an image of the same digest is the same on every node", "pull it into the image's containerd store, in the namespace k8s.io, before the image is captured"},

	// cloud-init's stages as wholes.
	{"unit/cloud-init-local.service", "", Node, "it reads this machine's own instance data and configures its network", ""},
	{"unit/cloud-init.service", "", Node, "it reads this machine's user data, and sets its host name, users and keys", ""},
	{"unit/cloud-init-network.service", "", Node, "it reads this machine's user data, and sets its host name, users and keys", ""},
	{"unit/cloud-init-main.service", "", Node, "the process of all of cloud-init's stages", ""},
	{"unit/cloud-init-hotplugd*", "", Node, "devices that come and go", ""},
	{"unit/cloud-config.service", "", Base, "its modules set up what is the same on every node: repositories, locale, time servers, what runcmd says", "do this in the image, and leave the modules out of cloud_config_modules in /etc/cloud/cloud.cfg.d"},
	{"unit/cloud-final.service", "", Base, "its modules install packages and run scripts, which are the same on every node", "do this in the image, and leave the modules out of cloud_final_modules in /etc/cloud/cloud.cfg.d; the kubelet need not wait for it"},
	{"unit/cloud-config.target", "", Base, "it only orders what comes after cloud-init's stages", "order what needs no cloud-init after network-online.target instead"},
	{"unit/cloud-init.target", "", Base, "it only orders what comes after cloud-init's stages", "order what needs no cloud-init after network-online.target instead"},

	// cloud-init's modules. Those of a machine's identity first.
	{"cloud-init/*set-hostname*", "", Node, "this machine's name", ""},
	{"cloud-init/*update-hostname*", "", Node, "this machine's name", ""},
	{"cloud-init/*update-etc-hosts*", "", Node, "this machine's name", ""},
	{"cloud-init/*config-ssh*", "", Node, "this machine's host keys", ""},
	{"cloud-init/*users-groups*", "", Node, "users that the model of the machine names", ""},
	{"cloud-init/*set-passwords*", "", Node, "users that the model of the machine names", ""},
	{"cloud-init/*keys-to-console*", "", Base, "nobody reads a node's console for its host keys", "leave the module out"},
	{"cloud-init/*ssh-authkey-fingerprints*", "", Base, "nobody reads a node's console for its users' keys", "leave the module out"},
	{"cloud-init/*growpart*", "", Node, "this machine's disk", ""},
	{"cloud-init/*resizefs*", "", Node, "this machine's disk", ""},
	{"cloud-init/*disk-setup*", "", Node, "this machine's disks", ""},
	{"cloud-init/*config-mounts*", "", Node, "this machine's disks", ""},
	{"cloud-init/*write-files*", "", Node, "files of this machine's user data", ""},
	{"cloud-init/*seed-random*", "", Node, "this machine's entropy", ""},
	{"cloud-init/*package*update*upgrade*", "", Base, "packages are the same on every node", "install them in the image, and take packages, package_update and package_upgrade out of the user data"},
	{"cloud-init/*package*", "", Base, "packages are the same on every node", "install them in the image"},
	{"cloud-init/*config-apt*", "", Base, "package sources are the same on every node", "write them into the image, and set apt: {preserve_sources_list: true}"},
	{"cloud-init/*yum*", "", Base, "package sources are the same on every node", "write them into the image"},
	{"cloud-init/*zypper*", "", Base, "package sources are the same on every node", "write them into the image"},
	{"cloud-init/*snap*", "", Base, "packages are the same on every node", "install them in the image, or remove snapd"},
	{"cloud-init/*config-ntp*", "", Base, "time servers are the same on every node", "configure chrony in the image"},
	{"cloud-init/*timezone*", "", Base, "the same on every node", "set it in the image"},
	{"cloud-init/*locale*", "", Base, "the same on every node", "generate it in the image"},
	{"cloud-init/*keyboard*", "", Base, "the same on every node", "set it in the image"},
	{"cloud-init/*ca-certs*", "", Base, "the same on every node, unless the user data says other", "install them in the image"},
	{"cloud-init/*grub-dpkg*", "", Base, "the same on every node", "leave the module out"},
	{"cloud-init/*ubuntu-*", "", Base, "the same on every node", "leave the module out, or attach the image"},
	{"cloud-init/*landscape*", "", Base, "the same on every node", "configure it in the image"},
	{"cloud-init/*puppet*", "", Base, "configuration management belongs before the image is captured", "run it on the image"},
	{"cloud-init/*chef*", "", Base, "configuration management belongs before the image is captured", "run it on the image"},
	{"cloud-init/*salt*", "", Base, "configuration management belongs before the image is captured", "run it on the image"},
	{"cloud-init/*ansible*", "", Base, "configuration management belongs before the image is captured", "run it on the image"},
	{"cloud-init/*runcmd*", "", Base, "commands that are the same on every node", "run them in the image, and keep in the user data only what names this node"},
	{"cloud-init/*bootcmd*", "", Base, "commands that are the same on every node", "run them in the image, or make a unit of them"},
	{"cloud-init/*scripts*", "", Base, "scripts that are the same on every node", "run them in the image, and keep in the user data only what names this node"},
	{"cloud-init/*power-state*", "", Base, "an image needs no restart", "take power_state out of the user data"},
	{"cloud-init/*phone-home*", "", Base, "the report of `ortet-node` says more", "take phone_home out of the user data"},
	{"cloud-init/*final-message*", "", Base, "nobody reads it", "leave the module out"},
	{"cloud-init/*install-hotplug*", "", Base, "the same on every node", "leave the module out"},
	{"cloud-init/modules-config", "", Base, "its modules set up what is the same on every node", "do this in the image"},
	{"cloud-init/modules-final", "", Base, "its modules install packages and run scripts, which are the same on every node", "do this in the image"},
	{"cloud-init/*", "", Node, "cloud-init reads and applies this machine's own instance data", ""},

	// AKS's scripts.
	{"aks/*configurekubelet*", "", Node, "the kubelet's configuration of this node", ""},
	{"aks/*ensurekubelet*", "", Node, "the kubelet of this node", ""},
	{"aks/*kubelet*serving*", "", Node, "certificates of this node", ""},
	{"aks/*bootstrap*token*", "", Node, "credentials of this node", ""},
	{"aks/*secure*tls*", "", Node, "credentials of this node", ""},
	{"aks/*retrievecmd*", "", Node, "this node's configuration", ""},
	{"aks/*wait*apt*", "", Base, "nothing locks dpkg where nothing is installed at boot", "install what is needed in the image, and mask apt-daily.service and unattended-upgrades"},
	{"aks/*install*", "", Base, "the same on every node of the pool", "install it in the image"},
	{"aks/*ensure*", "", Base, "the same on every node of the pool", "configure and enable it in the image"},
	{"aks/*config*", "", Base, "the same on every node of the pool", "configure it in the image"},
	{"aks/*gpu*", "", Base, "drivers are the same on every node of the pool", "install them in the image"},
	{"aks/*pull*", "", Base, "an image of the same digest is the same on every node", "pull it into the image"},
	{"aks/*cleanup*", "", Base, "the same on every node of the pool", "clean up in the image"},
	{"aks/*outbound*", "", Base, "the kubelet finds out itself whether it reaches its API server", "leave the check out"},
	{"aks/*logrotate*", "", Base, "the same on every node of the pool", "configure it in the image"},
	{"aks/*", "", Base, "a script's task: the same on every node of the pool, unless it writes what names this node", "do it in the image"},

	// ortet-boot, on machines of ortet cluster.
	{"ortet-boot/waiting for the nvidia driver", "", Base, driverWhy, driverDo},
	{"ortet-boot/installing nvidia's container toolkit", "", Base, "packages are the same on every node", driverDo},
	{"ortet-boot/*", "", Node, "this machine's part of its cluster", ""},

	// The agent and its extensions.
	{"cse/*", "", Base, "a script extension does on each node what the image can hold", "run the script when the image is made, and leave to boot what names this node"},
	{"aks-provision/cse", "", Base, "a script extension does on each node what the image can hold", "run the script when the image is made, and leave to boot what names this node"},
	{"aks-provision/*", "", Platform, "a moment that AKS's scripts noted", ""},
	{"waagent/extension/*customscript*", "", Base, "a script extension does on each node what the image can hold", "run the script when the image is made, and leave to boot what names this node"},
	{"waagent/extension/*nvidiagpudriver*", "", Base, driverWhy, driverDo},
	{"waagent/extension/*", "", Platform, "an extension that the model names", ""},
	{"waagent/*", "", Platform, "Azure's agent", ""},
	{"network/*", "", Node, "a node's address comes from the network", ""},
	{"kernel/*", "", Platform, "the kernel's", ""},
	{"apt/*", "", Base, "nothing locks dpkg where nothing is installed at boot", "install what is needed in the image, and mask apt-daily.service, apt-daily-upgrade.service and unattended-upgrades.service"},
	{"unit/walinuxagent*.service", "", Platform, "Azure's agent", ""},
	{"unit/waagent*.service", "", Platform, "Azure's agent", ""},
	{"unit/hv-*", "", Platform, "Hyper-V's services", ""},
	{"unit/hyperv*", "", Platform, "Hyper-V's services", ""},

	// Units that do at boot what an image can have done.
	{"unit/apt-daily*", "", Base, "packages are the same on every node", "mask apt-daily.timer and apt-daily-upgrade.timer in the image"},
	{"unit/unattended-upgrades.service", "", Base, "packages are the same on every node", "mask it in the image, and take upgrades with a new image"},
	{"unit/dnf-makecache*", "", Base, "packages are the same on every node", "mask it in the image"},
	{"unit/packagekit*", "", Base, "packages are the same on every node", "mask it in the image"},
	{"unit/snapd*", "", Base, "packages are the same on every node", "remove snapd from the image, or mask snapd.seeded.service"},
	{"unit/snap.lxd*", "", Base, "a node needs no LXD", "remove lxd from the image"},
	{"unit/snap-*", "", Base, "packages are the same on every node", "remove snapd from the image"},
	{"unit/lxd*", "", Base, "a node needs no LXD", "remove lxd from the image"},
	{"unit/plymouth*", "", Base, "nobody sees a node's screen", "remove plymouth from the image"},
	{"unit/ephemeral-disk-warning.service", "", Base, "nobody reads the warning on a node", "mask it in the image"},
	{"unit/motd*", "", Base, "nobody logs in to a node to read it", "mask it in the image"},
	{"unit/man-db*", "", Base, "nobody reads manuals on a node", "mask it in the image"},
	{"unit/ldconfig.service", "", Base, "the libraries are the image's", "run it when the image is made, and mask it"},
	{"unit/systemd-hwdb-update.service", "", Base, "the database is the image's", "run `systemd-hwdb update` when the image is made"},
	{"unit/systemd-journal-catalog-update.service", "", Base, "the catalogue is the image's", "run `journalctl --update-catalog` when the image is made"},
	{"unit/update*certs*", "", Base, "the same on every node, unless the user data says other", "install the certificates in the image"},
	{"unit/ca-certificates*", "", Base, "the same on every node, unless the user data says other", "install the certificates in the image"},
	{"unit/apparmor.service", "", Base, "its profiles are the image's, and compiled once", "compile them when the image is made (/var/cache/apparmor)"},
	{"unit/e2scrub*", "", Base, "a node's disk is new", "mask it in the image"},
	{"unit/fwupd*", "", Base, "a virtual machine has no firmware to update", "mask it in the image"},
	{"unit/modemmanager*", "", Base, "a virtual machine has no modem", "mask it in the image"},
	{"unit/multipathd*", "", Base, "Azure's disks have one path", "mask it in the image, unless disks of others are attached"},
	{"unit/open-iscsi*", "", Base, "a node needs it only where its volumes are iSCSI", "mask it in the image"},
	{"unit/lvm2-monitor.service", "", Base, "a node needs it only where it has LVM", "mask it in the image"},
	{"unit/secureboot-db.service", "", Base, "the same on every node", "mask it in the image"},
	{"unit/grub-*", "", Base, "the same on every node", "mask it in the image"},
	{"unit/dpkg-db-backup*", "", Base, "packages are the same on every node", "mask it in the image"},
	{"unit/logrotate.service", "", Base, "a new node has no logs to rotate", "mask it until the node runs"},
	{"unit/accounts-daemon.service", "", Base, "nobody logs in to a node", "remove it from the image"},
	{"unit/polkit.service", "", Base, "nobody logs in to a node", "remove it from the image"},
	{"unit/udisks2.service", "", Base, "nobody mounts disks by hand on a node", "mask it in the image"},

	// Ordering only, and early userspace.
	{"unit/*.target", "", Platform, "it only orders others", ""},
	{"unit/*.slice", "", Platform, "systemd's own", ""},
	{"unit/*.socket", "", Platform, "systemd listens for it", ""},
	{"unit/*.timer", "", Platform, "systemd's own", ""},
	{"unit/*.path", "", Platform, "systemd's own", ""},
	{"unit/*.device", "", Platform, "the kernel finds it", ""},
	{"unit/*.mount", "", Platform, "this machine's disks", ""},
	{"unit/*.automount", "", Platform, "this machine's disks", ""},
	{"unit/*.swap", "", Platform, "this machine's disks", ""},
	{"unit/systemd-networkd-wait-online.service", "", Node, "a node's address comes from the network", onlineSooner},
	{"unit/networkmanager-wait-online.service", "", Node, "a node's address comes from the network", onlineSooner},
	{"unit/systemd-*", "", Platform, "systemd's own services", ""},
	{"unit/initrd-*", "", Platform, "the initrd", ""},
	{"unit/dracut-*", "", Platform, "the initrd", ""},
	{"unit/kmod-*", "", Platform, "the kernel's modules", ""},
	{"unit/modprobe@*", "", Platform, "the kernel's modules", ""},
	{"unit/dbus*", "", Platform, "the message bus", ""},
	{"unit/chrony*", "", Node, "this machine's clock", ""},
	{"unit/ssh*", "", Node, "host keys are this machine's", ""},
}

// What a pool with gpu.driver extension does at each boot, and how to do it once.
const (
	driverWhy = "Azure's extension installs the NVIDIA driver, which is the same on every node of the pool"
	driverDo  = "install it once: `ortet capture NODE`, then the pool's new image and gpu: {driver: image} in cluster.yaml"
)

// onlineSooner is what to do where it takes seconds until the network is there.
const onlineSooner = "wait only for the interface that the node needs (systemd-networkd-wait-online --interface=eth0, RequiredForOnline=no for others), and see how long DHCP takes"

// unclassified is the rule for the rest.
var unclassified = Rule{Match: "*", Class: Node, Why: "nothing shows that it is the same on every node"}

// classOf is the rule for a span; known means that it is one of the table.
func classOf(id string, kind Kind) (rule *Rule, known bool) {
	id = plainID(id)
	for i := range rules {
		r := &rules[i]
		if r.Match[0] != '*' && (id == "" || r.Match[0] != id[0]) {
			continue // nearly all
		}
		if (r.Kind == "" || r.Kind == kind) && matches(r.Match, id) {
			return r, true
		}
	}
	return &unclassified, false
}

// rule is the rule for an item.
func (b *boot) rule(i int32) *Rule {
	it := &b.items[i]
	if it.rule == nil {
		it.rule, _ = classOf(it.id, it.kind)
	}
	return it.rule
}

// plainID is an ID in the form of rules: in lower case, "_" as "-", and without the number
// of a repeated one.
func plainID(id string) string {
	if i := strings.LastIndexByte(id, '#'); i > 0 && !strings.HasPrefix(id, unitPrefix) {
		id = id[:i]
	}
	return strings.ReplaceAll(strings.ToLower(id), "_", "-")
}

// matches reports whether s matches a pattern in which "*" stands for anything.
func matches(pattern, s string) bool {
	for {
		star := strings.IndexByte(pattern, '*')
		if star < 0 {
			return s == pattern
		}
		if !strings.HasPrefix(s, pattern[:star]) {
			return false
		}
		s, pattern = s[star:], pattern[star+1:]
		next := strings.IndexByte(pattern, '*')
		if next < 0 {
			return strings.HasSuffix(s, pattern)
		}
		at := strings.Index(s, pattern[:next])
		if at < 0 {
			return false
		}
		s = s[at:]
	}
}
