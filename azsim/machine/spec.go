package machine

import "encoding/json"

// The parts of an OCI runtime configuration that a machine needs. Names are
// those of the OCI runtime specification.
type (
	ociSpec struct {
		Version  string     `json:"ociVersion"`
		Process  ociProcess `json:"process"`
		Root     ociRoot    `json:"root"`
		Hostname string     `json:"hostname"`
		Mounts   []ociMount `json:"mounts"`
		Hooks    ociHooks   `json:"hooks"`
		Linux    ociLinux   `json:"linux"`
	}
	ociHooks struct {
		StartContainer []ociHook `json:"startContainer"`
	}
	ociHook struct {
		Path string   `json:"path"`
		Args []string `json:"args"`
		Env  []string `json:"env,omitempty"`
	}
	ociProcess struct {
		Terminal     bool            `json:"terminal"`
		ConsoleSize  *ociSize        `json:"consoleSize,omitempty"`
		User         ociUser         `json:"user"`
		Args         []string        `json:"args"`
		Env          []string        `json:"env"`
		Cwd          string          `json:"cwd"`
		Capabilities ociCapabilities `json:"capabilities"`
	}
	ociSize struct {
		Height uint `json:"height"`
		Width  uint `json:"width"`
	}
	ociUser struct {
		UID uint32 `json:"uid"`
		GID uint32 `json:"gid"`
	}
	ociCapabilities struct {
		Bounding  []string `json:"bounding"`
		Effective []string `json:"effective"`
		Permitted []string `json:"permitted"`
	}
	ociRoot struct {
		Path string `json:"path"`
	}
	ociMount struct {
		Destination string   `json:"destination"`
		Type        string   `json:"type"`
		Source      string   `json:"source"`
		Options     []string `json:"options,omitempty"`
	}
	ociLinux struct {
		Namespaces  []ociNamespace `json:"namespaces"`
		Resources   ociResources   `json:"resources"`
		CgroupsPath string         `json:"cgroupsPath"`
	}
	ociNamespace struct {
		Type string `json:"type"`
		Path string `json:"path,omitempty"`
	}
	ociResources struct {
		Devices []ociDeviceRule `json:"devices"`
	}
	ociDeviceRule struct {
		Allow  bool   `json:"allow"`
		Access string `json:"access"`
	}
)

// capabilities are those that an operating system's first process has. Not
// CAP_SYS_RESOURCE: hosts that are containers or small VMs themselves often
// lack it, and asking for what the host lacks fails the start.
var capabilities = []string{
	"CAP_AUDIT_CONTROL", "CAP_AUDIT_READ", "CAP_AUDIT_WRITE", "CAP_BLOCK_SUSPEND", "CAP_BPF",
	"CAP_CHECKPOINT_RESTORE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER",
	"CAP_FSETID", "CAP_IPC_LOCK", "CAP_IPC_OWNER", "CAP_KILL", "CAP_LEASE", "CAP_LINUX_IMMUTABLE",
	"CAP_MAC_ADMIN", "CAP_MAC_OVERRIDE", "CAP_MKNOD", "CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE",
	"CAP_NET_BROADCAST", "CAP_NET_RAW", "CAP_PERFMON", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP",
	"CAP_SETUID", "CAP_SYSLOG", "CAP_SYS_ADMIN", "CAP_SYS_BOOT", "CAP_SYS_CHROOT", "CAP_SYS_MODULE",
	"CAP_SYS_NICE", "CAP_SYS_PACCT", "CAP_SYS_PTRACE", "CAP_SYS_RAWIO", "CAP_SYS_TIME",
	"CAP_SYS_TTY_CONFIG", "CAP_WAKE_ALARM",
}

// Where the platform's side of things appears in a machine. All of it is in
// memory or bound from the host: nothing of it gets onto the disk.
const (
	platformFolder = "/run/platform"
	seedFolder     = platformFolder + "/seed"
	shareFolder    = platformFolder + "/shares"
	disks          = platformFolder + "/dev" // nodes and links, as udev makes them
	bootID         = platformFolder + "/boot_id"
	productUUID    = platformFolder + "/product_uuid"
	notifySocket   = "@platform-ready" // abstract, so of the network namespace
)

// showProductUUID shows the VM's id where the firmware's is read: the kubelet reports it as
// the Node's systemUUID. A host without such firmware has no folder for it, and none can be
// made in sysfs: the classes of devices are then bound into a folder in memory, and it is there.
const showProductUUID = `set -e
id=/sys/class/dmi/id/product_uuid
if [ ! -e $id ]; then
	mkdir /run/class
	mount --bind /sys/class /run/class
	mount -t tmpfs -o mode=755,nosuid,nodev,noexec class /sys/class
	for c in /run/class/*; do
		mkdir "/sys/class/${c##*/}"
		mount --bind "$c" "/sys/class/${c##*/}"
	done
	umount /run/class
	rmdir /run/class
	mkdir -p ${id%/*}
	touch $id
	mount -o remount,bind,ro /sys/class
fi
mount --bind ` + productUUID + ` $id`

// A frame is what a machine's container is made from.
type frame struct {
	Root       string // the mounted root file system
	Platform   string // folder of the platform's files for this machine
	Shares     string // folder of all storage accounts' file shares
	Namespace  string // path of the network namespace
	CgroupPath string
}

// spec describes the machine's container to runc.
func (f frame) spec() ociSpec {
	return ociSpec{
		Version:  "1.0.2",
		Hostname: "localhost", // what the disk or the provisioning says comes later
		Root:     ociRoot{Path: f.Root},
		Process: ociProcess{
			Terminal:    true,
			ConsoleSize: &ociSize{Height: 50, Width: 160},
			// cloud-init takes the first process's arguments for the kernel's
			// command line in a container.
			Args: []string{"/lib/systemd/systemd", "ds=nocloud;s=file://" + seedFolder + "/"},
			// Not container_uuid: systemd would take the machine id from it,
			// and on Azure it comes from the disk.
			Env: []string{
				"container=oci",
				"NOTIFY_SOCKET=" + notifySocket,
				"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
				"TERM=linux",
			},
			Cwd:          "/",
			Capabilities: ociCapabilities{Bounding: capabilities, Effective: capabilities, Permitted: capabilities},
		},
		Mounts: []ociMount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "nodev", "mode=1777"}},
			{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
			// Read-only tells udev and systemd that the devices are not theirs
			// to manage; the host does that.
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
			{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", "rw"}},
			{Destination: "/run", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "mode=755"}},
			{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "mode=1777"}},
			{Destination: "/dev/kmsg", Type: "bind", Source: "/dev/null", Options: []string{"bind", "rw"}},
			{Destination: platformFolder, Type: "bind", Source: f.Platform, Options: []string{"bind", "ro", "nosuid", "nodev"}},
			{Destination: shareFolder, Type: "bind", Source: f.Shares, Options: []string{"bind", "rw", "nosuid", "nodev"}},
			{Destination: "/run/systemd/resolve/resolv.conf", Type: "bind", Source: f.Platform + "/resolv.conf", Options: []string{"bind", "ro"}},
		},
		// The kernel's boot id is the host's. Journal and kubelet tell boots apart
		// by it, so a machine gets one for each of its own. runc refuses mounts
		// in /proc but by a hook, which runs in the machine before systemd.
		Hooks: ociHooks{StartContainer: []ociHook{
			{Path: "/bin/mount", Args: []string{"mount", "--bind", bootID, "/proc/sys/kernel/random/boot_id"}},
			{Path: "/bin/cp", Args: []string{"cp", "--archive", disks + "/.", "/dev"}},
			{Path: "/bin/sh", Args: []string{"sh", "-c", showProductUUID}, Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}},
		}},
		Linux: ociLinux{
			Namespaces: []ociNamespace{
				{Type: "pid"}, {Type: "ipc"}, {Type: "uts"}, {Type: "mount"}, {Type: "cgroup"},
				{Type: "network", Path: f.Namespace},
			},
			CgroupsPath: f.CgroupPath,
			// Disks come and go while the machine runs, so their numbers are not known.
			Resources: ociResources{Devices: []ociDeviceRule{{Allow: true, Access: "rwm"}}},
		},
	}
}

// parseInitPID reads the first process's number from runc's state file; 0 where
// there is none.
func parseInitPID(state []byte) int {
	var s struct {
		PID int `json:"init_process_pid"`
	}
	if json.Unmarshal(state, &s) != nil {
		return 0
	}
	return s.PID
}
