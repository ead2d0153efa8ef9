package verdict

import "strings"

// A rule assigns a reason to a line: all of all, one of any, none of not, and next in the
// line after it. The text is in lower case, as the programs write it.
type rule struct {
	reason string
	in     kind // whose logs
	all    string
	any    []string
	not    []string
	next   string
	rank   rank // where it is another than the reason's
	when   when
}

// when restricts a rule to a state of the boot.
type when uint8

const (
	always when = iota
	joined      // only where the bootstrap succeeded: before that it is usual
	early       // only where cloud-init did not come beyond its stage init
	quotes      // only where a text is quotes: elsewhere it is usual for a while
	warns       // only of an error that cloud-init logged and went on after: a warning is no reason
)

const scripts = output | provision | elsewhere | cloudInit

// tools are programs that the scripts of nodes call, in a shell's message that they are
// missing.
var tools = [...]string{
	"crictl: command not found", "crictl: not found", "ctr: command not found", "ctr: not found", "kubectl: command not found", "kubectl: not found",
	"oras: command not found", "oras: no such file or directory", "conntrack: command not found", "conntrack: not found",
	"iptables: command not found", "iptables: not found", "systemctl: not found", "systemctl: command not found", "jq: command not found", "jq: not found", "curl: command not found", "curl: not found",
}

var notOnPath = [...]string{"executable file not found in $path", "executable file not found in %path%"}

var k3sConfig = [...]string{"flag provided but not defined", "--server is required", "--token is required", "server is required", "failed to parse config"}

// aptUnreachable is how apt ends a line "Failed to fetch URL" whose host it did not reach.
// Others mean that a file is missing, forbidden or not what was announced.
var aptUnreachable = [...]string{
	"could not connect to", "unable to connect to", "cannot initiate the connection to", "could not create a socket for", "could not resolve '",
	"connection failed", "connection timed out", "connection refused", "connection reset", "could not handshake", "error reading from server",
}

// rules is a read-only table.
var rules = [...]rule{
	// The machine.
	{reason: "DiskFull", in: anywhere, all: "no space left on device", not: []string{"inotify", "fsnotify", "cgroup", "watch", "rtnetlink", "semget", "shmget", "bpf"}},
	{reason: "DiskFull", in: anywhere, any: []string{"you don't have enough free space in /var", "there is not enough space on the disk"}},
	{reason: "OutOfMemory", in: kernel | elsewhere, all: "killed process", any: []string{"(kubelet)", "(containerd)", "(kubeadm)", "(k3s", "(rke2", "(runc)", "(cloud-init)", "(crio)", "(dockerd)"}, not: []string{"memory cgroup out of memory: killed process"}},
	{reason: "OutOfMemory", in: kernel | elsewhere, all: "memory cgroup out of memory: killed process", any: []string{"(kubelet)", "(containerd)", "(k3s-", "(rke2)", "(crio)", "(dockerd)"}}, // a container's limit kills its own runc
	{reason: "DiskErrors", in: kernel | elsewhere, any: []string{"i/o error, dev ", "buffer i/o error on dev"}, not: []string{"dev fd0", "dev sr0", "dev loop", "discard", "device fd0", "device sr0", "dev nbd", "dev rbd"}},
	{reason: "FilesystemReadOnly", in: kernel | elsewhere, any: []string{"remounting filesystem read-only", "filesystem has been shut down", "shutting down filesystem"}, not: []string{"(loop", "(nbd", "(rbd"}},
	{reason: "FilesystemCorrupt", in: kernel | elsewhere, any: []string{"run fsck manually", "unmount and run xfs_repair", "fsck failed with exit status 4", "fsck failed with error code 4"}},
	{reason: "FilesystemCorrupt", in: kernel | elsewhere, all: "ext4-fs (", any: []string{"): no journal found"}, not: []string{"(loop", "(nbd", "(rbd"}},
	{reason: "FilesystemUnsupported", in: kernel | elsewhere, any: []string{"superblock has unknown incompatible features", "couldn't mount because of unsupported optional features"}, not: []string{"(loop", "(nbd", "(rbd"}},
	{reason: "BootLoaderFailed", in: kernel | elsewhere, any: []string{"entering rescue mode...", "grub rescue>", "minimal bash-like line editing is supported", "no bootable device", "no bootable option or device was found"}},
	{reason: "RootNotFound", in: kernel | elsewhere, any: []string{"warning: could not boot", "does not exist.  dropping to a shell!", "does not exist. dropping to a shell!", "does not exist.  dropping to shell!", "vfs: cannot open root device", "don't know how to handle 'root=", "empty root= argument"}},
	{reason: "RootNotFound", in: kernel | elsewhere, all: " does not exist", any: []string{"warning: /dev/", "warning:  /dev/", `warning: "/dev/`, "alert! "}}, // dracut's, and initramfs-tools'
	{reason: "RootNotFound", in: kernel | elsewhere, all: "mount: /new_root: can't find "},
	{reason: "SwitchRootFailed", in: kernel | elsewhere, any: []string{"failed to switch root", "couldn't find specified ostree root", "no init found. try passing init= bootarg"}, not: []string{"systemd-shutdown"}},
	{reason: "SELinuxPolicyFailed", in: kernel | elsewhere, any: []string{"failed to load selinux policy", "initial selinux policy load failed"}},
	{reason: "IgnitionFailed", in: kernel | elsewhere, all: "ignition", any: []string{"ignition failed: ", "ignition has failed. please ensure", "failed to start ignition ("}},
	{reason: "FilesystemCorrupt", in: kernel | elsewhere, all: "fsck", any: []string{"bad magic number in super-block"}}, // resize2fs and tune2fs meet other file systems
	{reason: "KernelPanic", in: kernel | elsewhere, any: []string{"kernel panic - not syncing", "kernel panic-not syncing"}},
	{reason: "EmergencyMode", in: kernel | elsewhere, any: []string{"you are in emergency mode", "welcome to emergency mode!", "entering emergency mode. exit the shell"}},
	{reason: "DeviceMissing", in: anywhere &^ (runtime | kubelet | k3s), any: []string{"timed out waiting for device", ".device/start timed out"}},
	{reason: "DeviceMissing", in: scripts, all: "special device ", any: []string{"does not exist"}},
	{reason: "MountFailed", in: scripts, all: "mount: /", any: []string{"wrong fs type, bad option, bad superblock on", "unknown filesystem type '"}, not: []string{"/var/lib/kubelet/"}},
	{reason: "ClockWrong", in: scripts, all: "is not valid yet (invalid for another", rank: rankStep},
	{reason: "ClockWrong", in: scripts, all: "the certificate is not valid yet"}, // kubeadm

	// Network.
	{reason: "DHCPFailed", in: cloudInit | output | elsewhere, when: early, any: []string{"failed to obtain dhcp lease", "no dhcpoffers received", "failure to obtain dhcp lease", "failure to find dhcp interface", "failure to find primary dhcp interface"}},
	{reason: "NetworkNotOnline", in: elsewhere | kernel | cloudInit, when: early, any: []string{"timeout occurred while waiting for network connectivity", "timed out waiting for network connectivity"}},
	{reason: "NetworkNotOnline", in: elsewhere | kernel | cloudInit, when: early, rank: rankSign, any: []string{
		"failed to start wait for network to be configured", "failed to start systemd-networkd-wait", "failed to start network manager wait online", "failed to start networkmanager-wait",
		"-wait-online.service: failed with result", "job for systemd-networkd-wait-online.service failed"}},
	{reason: "IMDSUnreachable", in: cloudInit | output, when: early, all: "169.254.169.254", any: []string{"timed out", "connect timeout", "no route to host", "network is unreachable", "connection refused", "max retries exceeded"}},
	{reason: "IMDSUnreachable", in: cloudInit | output | elsewhere, when: early, any: []string{"connection timeout querying imds", "connection error querying imds", "unexpected error querying imds", "read timeout querying imds"}},
	{reason: "IMDSUnreachable", in: cloudInit | output | elsewhere, when: early, all: "=http error ", any: []string{" querying imds"}},
	{reason: "WireServerUnreachable", in: cloudInit | output | elsewhere, when: early, all: "168.63.129.16", any: []string{"timed out", "connect timeout", "no route to host", "network is unreachable", "connection refused", "max retries exceeded"}, not: []string{":53"}},
	{reason: "WireServerUnreachable", in: cloudInit | output | elsewhere, when: early, all: "protocol endpoint not found: wireprotocol, ", any: []string{"http get failed"}}, // to 2.2.13
	{reason: "DNSFailed", in: scripts, rank: rankStep, any: []string{"temporary failure in name resolution", "temporary failure resolving"}},
	{reason: "ProxyFailed", in: scripts, rank: rankStep, any: []string{"407 proxy authentication required", ": proxy authentication required", "proxy tunneling failed", "invalid response from proxy"}},

	// cloud-init.
	{reason: "DatasourceNotFound", in: cloudInit | output | elsewhere, any: []string{"datasourcenotfoundexception", "no instance datasource found", "did not find any data source", "no datasource found!", "cloudbaseinit.init [-] no metadata service found"}},
	{reason: "ProvisioningMediaFailed", in: cloudInit | output | elsewhere, when: early, any: []string{"brokenazuredatasource", "error parsing ovf-env.xml", "unexpected metadata parsing ovf-env.xml", "failed to read customdata while hascustomdata=true", "failed to get dvd device from", "failed to mount dvd device"}},
	{reason: "CloudInitDisabled", in: cloudInit | output | elsewhere | kernel, any: []string{"cloud-init is disabled", "cloud-init disabled by", "disabled by marker file", "disabled by kernel command line: cloud-init=disabled", "disabled by cloud-init-generator"}},
	{reason: "UserDataInvalid", in: cloudInit | output | elsewhere, any: []string{"failed loading yaml blob", "failed at merging in cloud config part"}},
	{reason: "UserDataSchemaInvalid", in: cloudInit, when: warns, any: []string{"invalid cloud-config provided", "cloud-config failed schema validation"}},
	{reason: "UserDataUnhandled", in: cloudInit | output | elsewhere, any: []string{"unhandled non-multipart", "userdatautils [-] unsupported user_data format"}},
	{reason: "NICSetupFailed", in: cloudInit | output, all: "[nic not present] cannot rename mac="},
	{reason: "BinaryMissing", in: cloudInit | output, when: early, all: "azure-proxy-agent not found"},
	{reason: "RuncmdFailed", in: cloudInit | output, all: "runparts: ", any: []string{" failures (runcmd"}},
	{reason: "UserScriptFailed", in: cloudInit | output, all: "runparts: ", any: []string{" failures (", " failures in "}, not: []string{"(runcmd"}},
	{reason: "RuncmdFailed", in: cloudInit | output, all: "failed running /var/lib/cloud/", any: []string{"/scripts/runcmd ["}},
	{reason: "UserScriptFailed", in: cloudInit | output, all: "failed to run module scripts", rank: rankStage - 1}, // runcmd's script is one of them
	{reason: "RuncmdFailed", in: cloudInit | output, any: []string{"failed to shellify"}, not: []string{"bootcmd"}},
	// 1001 to 1003 ask for a reboot.
	{reason: "UserScriptFailed", in: cloudInit, all: "cloudbaseinit.plugins.common.userdatautils", any: []string{"user_data script ended with return code: "}, not: []string{"return code: 0", "return code: 1001", "return code: 1002", "return code: 1003"}},
	{reason: "CloudbaseInitPluginFailed", in: cloudInit | elsewhere, all: "plugin '", any: []string{"failed with error"}},

	// Packages.
	{reason: "PackageNotFound", in: scripts, any: []string{"unable to locate package", "has no installation candidate", "unable to find a match", "no package matches", "(no such package)", "no provider of '"}},
	{reason: "PackageNotFound", in: scripts, when: quotes, any: []string{"no match for argument: kube"}},
	{reason: "PackageNotFound", in: scripts, all: "package '", any: []string{"' not found."}},                           // zypper
	{reason: "PackageNotFound", in: scripts, all: "no package ", any: []string{" available."}},                          // yum
	{reason: "PackageNotFound", in: scripts, all: "failed to resolve the transaction", next: "no match for argument: "}, // dnf 5; dnf 4 prints this also for a removal
	{reason: "PackageNotFound", in: scripts, all: "version '", any: []string{"' was not found"}},
	{reason: "PackageManagerBusy", in: scripts, any: []string{"could not get lock /var/lib/", "unable to acquire the dpkg frontend lock", "could not open lock file /var/lib/", "lock was locked by another process", "is locked by another process", "system management is locked by the application", "existing lock /var/run/yum.pid: another copy is running", "another app is currently holding the yum lock", "e: unable to lock directory /var/lib/"}, not: []string{"permission denied", "waiting for cache lock"}},
	{reason: "PackageSignatureInvalid", in: scripts, any: []string{"no_pubkey", "expkeysig", "the following signatures couldn't be verified", "gpg check failed", "gpg: can't check signature", "badsig ", "repomd.xml signature could not be verified", ".rpm is not signed", "gpg signature is not available", "gpg signature verification error",
		"are already installed but they are not correct for this package", "signature verification failed for file '"}},
	{reason: "DownloadRefused", in: scripts, all: "e: failed to fetch ", any: []string{"  404  not found", "  403  forbidden", "  401  unauthorized"}},
	{reason: "DownloadRefused", in: scripts, all: "status code: 40", any: []string{" for http"}},                                                                                                              // dnf
	{reason: "DownloadRefused", in: scripts, all: "[errno 14] http", any: []string{" error 40"}},                                                                                                              // yum
	{reason: "PackageRepositoryUnreachable", in: scripts, any: []string{"[errno 12] timeout on http", "14: curl#", "[errno 14] curl#6 ", "[errno 14] curl#7 ", "[errno 14] curl#28 ", "[errno 14] curl#35 "}}, // yum
	{reason: "PackageRepositoryUnreachable", in: scripts, all: "- curl error (", any: []string{"/repodata/", "mirrorlist", "metalink"}},                                                                       // dnf
	{reason: "PackageSignatureInvalid", in: scripts, all: "e: the repository '", any: []string{"' is not signed", "' is no longer signed"}},
	{reason: "PackageRepositoryUnreachable", in: scripts, all: "e: failed to fetch ", any: aptUnreachable[:]},
	{reason: "PackageRepositoryUnreachable", in: scripts, all: "w: failed to fetch ", any: aptUnreachable[:]},
	{reason: "PackageRepositoryUnreachable", in: scripts, all: "could not connect to ", any: []string{"), connection timed out", "). - connect ("}},
	{reason: "PackageRepositoryUnreachable", in: scripts, all: "unable to connect to ", any: []string{":http:", ":https:"}},
	{reason: "PackageRepositoryUnreachable", in: scripts, any: []string{"cannot prepare internal mirrorlist: curl error (", "cannot find a valid baseurl for repo"}}, // dnf and yum
	{reason: "PackageSignatureInvalid", in: scripts, all: "public key for ", any: []string{" is not installed"}},                                                     // yum and dnf
	{reason: "PackageRepositoryUnreachable", in: scripts, all: "curl error (", next: "cannot download repomd.xml"},                                                   // after a status code (404) the repository was reached

	// Programs and settings.
	{reason: "KubeletMissing", in: anywhere, any: []string{"to locate executable /usr/bin/kubelet", "to locate executable /usr/local/bin/kubelet", "to locate executable '/usr/bin/kubelet'", "to locate executable '/usr/local/bin/kubelet'", "kubelet: command not found", "kubelet: not found", "unit kubelet.service not found", "unit kubelet.service could not be found", "unit file kubelet.service does not exist", "kubelet service does not exist"}},
	{reason: "KubeletMissing", in: elsewhere, all: "kubelet.service: main process exited", any: []string{"status=203/exec"}}, // as ContainerdMissing where systemd logs it
	{reason: "ContainerdMissing", in: anywhere, any: []string{"to locate executable /usr/bin/containerd", "to locate executable /usr/local/bin/containerd", "to locate executable '/usr/bin/containerd'", "to locate executable '/usr/local/bin/containerd'", "containerd: command not found", "containerd: not found", "unit containerd.service not found", "unit containerd.service could not be found", "unit file containerd.service does not exist"}},
	{reason: "RuncMissing", in: anywhere, any: []string{`exec: "runc": executable file not found`, `exec: \"runc\": executable file not found`, "runc: command not found"}},
	{reason: "BinaryMissing", in: scripts, any: []string{
		"kubeadm: command not found", "kubeadm: not found", "/usr/bin/kubeadm: no such file", "/usr/local/bin/kubeadm: no such file",
		"k3s: command not found", "k3s: not found", "rke2: command not found", "rke2: not found"}},
	{reason: "BinaryMissing", in: provision, any: tools[:]},
	{reason: "BinaryMissing", in: scripts &^ provision, any: tools[:], rank: rankStep}, // a script may go on without
	{reason: "BinaryMissing", in: provision | runtime | kubelet | k3s, any: notOnPath[:], not: []string{`"runc"`, `runc\"`, "liveness", "readiness", "poststart", "prestop", "oci runtime"}},
	{reason: "BinaryMissing", in: scripts &^ provision, any: notOnPath[:], not: []string{`"runc"`, `runc\"`}, rank: rankStep},
	{reason: "BinaryWrongArchitecture", in: anywhere, any: []string{"exec format error", "cannot execute binary file"}, not: []string{"oci runtime", "pod="}},
	{reason: "SwapOn", in: kubelet | k3s | elsewhere | output, all: "running with swap on is not supported"},
	{reason: "KernelSettingMissing", in: scripts, all: "modprobe: fatal: module ", any: []string{"br_netfilter not found", "overlay not found", "ip_vs not found", "nf_conntrack not found"}, rank: rankStep},
	{reason: "KernelSettingMissing", in: scripts, all: "sysctl: cannot stat /proc/sys/net/", any: []string{"bridge-nf-call", "ip_forward"}, rank: rankStep},
	{reason: "KernelSettingMissing", in: scripts, any: []string{"contents are not set to 1", "bridge-nf-call-iptables does not exist"}},
	{reason: "MachineTooSmall", in: scripts, any: []string{"is less than the required 2", "is less than the minimum 1700 mb"}},
	{reason: "NotRoot", in: scripts, all: "user is not running as root"},
	{reason: "PortInUse", in: scripts, any: []string{"port 10250 is in use", "port 6443 is in use", "port 10259 is in use", "port 10257 is in use", "port 2379 is in use", "port 2380 is in use"}, not: []string{"[error "}}, // check knows what an earlier try left
	{reason: "CgroupsUnusable", in: kubelet | k3s | elsewhere, any: []string{"following cgroup subsystem not mounted", "failed to initialize top level qos containers", "mountpoint for cpu not found", "mountpoint for memory not found"}},
	{reason: "CgroupsUnusable", in: k3s | elsewhere, all: "failed to find ", any: []string{"memory cgroup", "cgroup (v2)"}},
	{reason: "CgroupV1Refused", in: kubelet | k3s, all: "cgroup v1", any: []string{"not run on a host using cgroup v1", `err="cgroup v1 detected`, "failed to run kubelet", "to an unsupported cgroup v1"}},
	{reason: "CgroupDriverMismatch", in: kubelet | k3s | runtime, all: "kubelet cgroup driver", any: []string{"is different from"}},
	{reason: "CgroupDriverMismatch", in: kubelet | k3s | runtime, any: []string{"expected cgroupspath to be of format", "but did not receive slice as parent", "cgroup-parent for systemd cgroup should be a valid slice"}},

	// Container runtime.
	{reason: "ContainerdConfigInvalid", in: runtime | output, any: []string{"containerd: failed to load toml", "failed to load toml:", "containerd: toml:", "invalid plugin config", "invalid disabled plugin uri", "invalid plugin key uri"}},
	{reason: "ContainerdConfigInvalid", in: runtime, all: "near line ", any: []string{"(last key parsed '"}}, // to 1.3
	{reason: "SnapshotterUnsupported", in: runtime | k3s, any: []string{"does not support d_type", "snapshotter cannot be enabled for"}},
	{reason: "ContainerdStateBroken", in: runtime | k3s, all: "failed to recover state: "},
	{reason: "ContainerRuntimeUnavailable", in: kubelet | k3s | elsewhere, all: "pleg was last seen active ", any: []string{"ago; threshold is"}, not: []string{"active 2562047h"}},
	{reason: "HNSNetworkFailed", in: anywhere, any: []string{"hnscall failed in win32", "error while gethnsnewtorkbyname("}},
	{reason: "ContainerRuntimeDisabled", in: anywhere, any: []string{"unknown service runtime.v1", "unknown service runtime.v1alpha2"}},
	{reason: "CNIPluginMissing", in: runtime | kubelet | k3s, all: "failed to find plugin ", any: []string{"in path"}},
	{reason: "CNIPluginMissing", in: kubelet | k3s | elsewhere, all: "could not locate kubenet required cni plugins"}, // to 1.23

	// GPUs. A node may join without: these are reasons only where nothing else is nearer to the cause.
	{reason: "GPUDriverRejected", in: scripts | kernel, all: "could not insert 'nvidia",
		any: []string{": key was rejected by service", ": required key not available"}},
	// programOf takes "kernel: " in it for the kernel's head.
	{reason: "GPUSetupFailed", in: scripts | kernel, rank: rankStep,
		all: "bad return status for module build on kernel: ", next: "consult /var/lib/dkms/nvidia"},
	{reason: "GPUSetupFailed", in: scripts, rank: rankStep,
		any: []string{"failed to initialize nvml: driver/library version mismatch", "couldn't communicate with the nvidia driver"}},
	{reason: "GPUSetupFailed", in: kernel | elsewhere, rank: rankStep,
		all: "nvrm: ", any: []string{"api mismatch: the client ", "system is not supported by "}},
	{reason: "GPUSetupFailed", in: runtime | kubelet | k3s, rank: rankStep,
		all: "no runtime for ", any: []string{`"nvidia" is configured`, `\"nvidia\" is configured`}},
	{reason: "GPUSetupFailed", in: anywhere, all: "extension 'nvidiagpudriverlinux'", any: []string{"installation failed. exit code "}},
	{reason: "GPUSetupFailed", in: scripts, any: []string{ // ortet-boot
		"no nvidia driver in kernel ", "extension nvidiagpudriverlinux reports error: ", "without which k3s has no runtime nvidia"}},
	// NVIDIA's catalogue of Xids has the machine be replaced, or the GPU be reset, for these.
	{reason: "GPUBroken", in: kernel | elsewhere, rank: rankStep,
		all: "nvrm: ", any: []string{"fallen off the bus", "): 48, ", "): 64, ", "): 79, ", "): 95, ", "): 140, "}},

	// kubeadm, where the text stands by itself.
	{reason: "BootstrapTokenUnknown", in: scripts, any: []string{"is invalid for this cluster", "could not find a jws signature in the cluster-info configmap"}},
	{reason: "BootstrapTokenSecretWrong", in: scripts, all: "failed to verify jws signature of received cluster info object"},
	{reason: "BootstrapTokenMalformed", in: scripts, all: "was not of the form", any: []string{"bootstrap token", "the token "}},
	{reason: "CAHashMismatch", in: scripts, all: "public key", any: []string{"are pinned", " not pinned"}},
	{reason: "ClusterInfoUnreadable", in: scripts, any: []string{`"cluster-info" not found`, `"cluster-info" is forbidden`, "key in the cluster-info configmap", "kubeconfig in the cluster-info configmap", "kubeconfig file in the cluster-info configmap", `"kubeadm-config" not found`, `"kubeadm-config" is forbidden`, `"kubelet-config" not found`, `"kubelet-config" is forbidden`}},
	{reason: "ClusterInfoUnreadable", in: scripts, all: `configmaps "kubelet-config-1.`, any: []string{"not found", "is forbidden"}}, // to 1.23
	{reason: "CertificateKeyExpired", in: scripts, all: `secret "kubeadm-certs"`, any: []string{"not found"}},
	{reason: "CertificateKeyExpired", in: scripts, all: "the secret does not include the required certificate or key"},
	{reason: "CertificateKeyWrong", in: scripts, any: []string{"error decoding certificate key", "error decoding secret data with provided key", "cipher: message authentication failed"}},
	{reason: "HostnameInvalid", in: kubelet | elsewhere, all: "must be a dns subdomain (", any: []string{"unable to register "}}, // to 1.3
	{reason: "HostnameInvalid", in: scripts | kubelet | k3s, all: "1123 subdomain must consist of", any: []string{"node", "hostname"}, not: []string{"pod="}},
	{reason: "KubeadmConfigInvalid", in: scripts, any: []string{"invalid discovery token ca certificate hash", "no joinconfiguration found in the supplied config", "no initconfiguration or clusterconfiguration kind was found", "your configuration file uses an old api spec", "can not mix '--config' with arguments", "[discovery.bootstraptoken: invalid value", "discovery: invalid value", "discovery.bootstraptoken", "controlplaneendpoint: invalid value", "must be a valid ip address or a valid rfc-1123 dns subdomain", "networking.podsubnet: invalid value", "noderegistration.crisocket: invalid value"}, not: []string{"was not of the form"}},
	{reason: "KubeadmConfigInvalid", in: scripts, all: "error: unknown flag: --", next: "to see the stack trace of this error"},
	{reason: "KubeadmConfigInvalid", in: scripts, all: "kubeadm.k8s.io", any: []string{"unknown apiversion", "unknown field", "strict decoding error", "no kind ", "is not supported"}, not: []string{"warning:", "] error unmarshaling configuration"}}, // kubeadm warns, and goes on
	{reason: "VersionSkew", in: scripts, any: []string{"this version of kubeadm only supports", "is lower than kubeadm can support", "the kubelet version is higher than the control plane version"}},
	{reason: "NodeExists", in: scripts, all: "a node with name ", any: []string{"already exists in the cluster"}},
	{reason: "KubeletStartTimeout", in: scripts, any: []string{"[kubelet-check] the kubelet is not healthy after", "failed while waiting for the kubelet to start", "[kubelet-check] it seems like the kubelet isn't running or healthy"}},
	{reason: "EtcdJoinFailed", in: scripts | k3s, any: []string{"can only promote a learner member", "too many learner members in cluster"}, rank: rankCause},
	{reason: "EtcdJoinFailed", in: k3s, all: "etcd cluster join failed: "},
	{reason: "TLSBootstrapTimeout", in: scripts, all: "failed while waiting for tls bootstrap"},
	{reason: "CSRNotApproved", in: kubelet | elsewhere, all: "but subject access review was not approved", any: []string{"nodeclient]"}}, // the controller manager
	{reason: "CSRNotApproved", in: kubelet | k3s, any: []string{"certificate request was not signed", "certificate signing request is denied", "certificate signing request is not approved", "certificate signing request failed, reason", "cannot create certificate signing request: timed out"}, not: []string{"kubelet-serving"}},

	// kubelet.
	{reason: "KubeletConfigMissing", in: kubelet, when: joined, all: "failed to load kubelet config file", any: []string{"no such file or directory", "cannot find the file"}, rank: rankCause},
	{reason: "KubeletConfigInvalid", in: kubelet | k3s, any: []string{"failed to load kubelet config file", "failed to validate kubelet configuration", "failed to load kubelet dropin file", "failed to merge kubelet configs", "-reserved value failed to parse", "invalid configuration: cgroups-per-qos", "strict decoding error: unknown field",
		`no kind "kubeletconfiguration" is registered`, `no kind \"kubeletconfiguration\" is registered`, `no kind "credentialproviderconfig" is registered`, `no kind \"credentialproviderconfig\" is registered`,
		"but it is only supported with cgroupv2", "is not a subset of online-cpus", "invalid node allocatable configuration", "reserved cgroup limits on", "could not restore state from checkpoint"}, not: []string{"no such file or directory", "cannot find the file", "falling back"}},
	{reason: "KubeletFlagUnknown", in: kubelet | k3s, all: "failed to parse kubelet flag"},
	{reason: "KubeletFlagUnknown", in: kubelet, any: []string{"unknown flag: --", "unknown shorthand flag"}},
	{reason: "FeatureGateUnknown", in: kubelet | k3s | output, any: []string{"unrecognized feature gate"}, not: []string{"feature_gate.go", "level=warn", "warning"}},
	{reason: "FeatureGateUnknown", in: kubelet, all: "unrecognized key: ", any: []string{"feature-gates"}}, // to 1.10
	{reason: "FeatureGateUnknown", in: kubelet | k3s, all: "cannot set feature gate", any: []string{"locked to"}},
	{reason: "NodeLabelsInvalid", in: kubelet | k3s, any: []string{"labels specified with --node-labels", "invalid node labels:"}, not: []string{" options.go:"}}, // which warns
	{reason: "NodeIPInvalid", in: kubelet | k3s, any: []string{"bad --node-ip", "not found in the host's network interfaces", "nodeip can't be ", "nodeip must be a valid ip"}},
	{reason: "CloudProviderInvalid", in: kubelet | k3s, any: []string{"unknown cloud provider", "built-in cloud providers are disabled", "could not init cloud provider"}},
	{reason: "CredentialProviderMissing", in: kubelet | k3s, all: "plugin binary ", any: []string{"did not exist"}},
	{reason: "KubeletBootstrapKubeconfigMissing", in: kubelet, when: joined, all: "unable to load bootstrap kubeconfig", any: []string{"no such file or directory", "cannot find the file"}, rank: rankEffect},
	{reason: "KubeconfigInvalid", in: kubelet | k3s, all: "invalid kubeconfig: ", not: []string{"no such file", "cannot find the file"}},
	{reason: "CSRPending", in: kubelet | k3s, all: "waiting for client certificate to be issued"},
	{reason: "DiskPressure", in: kubelet | k3s | elsewhere, all: "diskpressure", any: []string{"kubelethasdiskpressure"}},
	{reason: "DiskPressure", in: kubelet | k3s, all: "eviction manager: must evict pod(s) to reclaim", any: []string{"ephemeral-storage", "nodefs", "imagefs", "inodes", "containerfs"}},
	{reason: "NodeSilent", in: elsewhere, all: "kubelet stopped posting node status"},
	{reason: "KubeletCertificateExpired", in: kubelet | k3s, any: []string{"existing bootstrap client certificate is expired", "currently active client certificate has expired"}},
	{reason: "KubeletCertificateExpired", in: kubelet | k3s, all: "existing bootstrap client certificate in ", any: []string{"is expired"}},
	{reason: "KubeletCAMissing", in: kubelet, when: joined, all: "unable to load client ca file", rank: rankCause},
	{reason: "PortInUse", in: kubelet | k3s, all: "address already in use", any: []string{":10250", ":10248", ":10255"}},
	{reason: "CNINotReady", in: elsewhere, when: quotes, all: "networkready=false reason:networkpluginnotready"},
	{reason: "NodeNotReady", in: kubelet | k3s, when: joined, all: "node not becoming ready in time after startup"},

	// k3s and RKE2.
	{reason: "CAHashMismatch", in: k3s | elsewhere | output, all: "token ca hash does not match the cluster ca certificate hash"},
	{reason: "CAHashMismatch", in: k3s, all: "token does not match the server ", any: []string{" != "}}, // to 1.18
	{reason: "NodePasswordRejected", in: k3s | elsewhere | output, any: []string{"node password rejected", "node password not set", "unable to verify password for node", "unable to verify hash for node"}},
	{reason: "K3sTokenMalformed", in: k3s | output, any: []string{"failed to normalize token", "failed to normalize server token", "invalid token format", "token format is invalid", "invalid token ca hash length", "token must not be empty", "is not a valid token format", "token credentials are the wrong format"}},
	{reason: "K3sTokenRejected", in: k3s, all: "not authorized", any: []string{"https://", "agent config", `msg="not authorized"`, "server is not ready"}},
	{reason: "K3sTokenRejected", in: k3s, all: "bootstrap data already found and encrypted with different token"},
	{reason: "K3sConfigInvalid", in: k3s, any: k3sConfig[:], not: []string{"kubelet flag", "kubeadm"}},
	{reason: "K3sConfigInvalid", in: k3s, all: "critical configuration value mismatch between servers"},
	{reason: "NodeExists", in: k3s, all: "duplicate node name found, please use a unique name"},
	{reason: "K3sConfigInvalid", in: output, all: "level=fatal msg=", any: k3sConfig[:]}, // other programs have such flags
}

// matches reports whether a rule assigns its reason to a line, which next follows, both in
// lower case.
func (r *rule) matches(s, next string) bool {
	if !strings.Contains(s, r.all) || !strings.Contains(next, r.next) {
		return false
	}
	if len(r.any) > 0 && !hasAny(s, r.any...) {
		return false
	}
	return !hasAny(s, r.not...)
}
