# systemd.sh is sourced by tests of units: it boots systemd from the lab's disk image in a
# container without a network. They set image, work (a folder that does not exist yet) and
# name (of the container), and run within `unshare --mount`, so that no mount outlives them.
# shellcheck shell=bash

inside() { timeout 30 runc --root "$work/runc" exec "$name" "$@"; }
finish() {
	runc --root "$work/runc" delete -f "$name" 2>/dev/null || true
	umount "$work/bundle/rootfs" "$work/upper" "$work/lower" 2>/dev/null || true
}
trap finish EXIT
trap 'exit 130' INT TERM

# unpack mounts the image's root file system at $root, writable in memory, and describes
# the container of that host name. cloud-init does not run there.
unpack() {
	local start sectors caps
	mkdir -p "$work"/{lower,upper,bundle/rootfs}
	read -r start sectors <<<"$(partx --noheadings --raw --output START,SECTORS --nr 1 "$image")"
	mount -o "ro,loop,noload,offset=$((start * 512)),sizelimit=$((sectors * 512))" "$image" "$work/lower"
	mount -t tmpfs -o size=200m tmpfs "$work/upper"
	mkdir "$work/upper/new" "$work/upper/work"
	mount -t overlay -o "lowerdir=$work/lower,upperdir=$work/upper/new,workdir=$work/upper/work" overlay "$work/bundle/rootfs"
	root=$work/bundle/rootfs
	mkdir -p "$root/usr/local/bin" "$root/etc/cloud" "$root/etc/systemd/system/multi-user.target.wants"
	touch "$root/etc/cloud/cloud-init.disabled"
	caps=$(printf '"CAP_%s",' CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP NET_ADMIN NET_BIND_SERVICE SYS_CHROOT SYS_PTRACE SYS_ADMIN SYS_NICE SYS_BOOT MKNOD AUDIT_WRITE SETFCAP)
	sed "s/CAPS/[${caps%,}]/g; s/HOST/$1/" >"$work/bundle/config.json" <<'JSON'
{"ociVersion":"1.0.2","hostname":"HOST","root":{"path":"rootfs"},
"process":{"args":["/lib/systemd/systemd","--log-target=null"],"cwd":"/","env":["PATH=/usr/sbin:/usr/bin:/sbin:/bin","container=oci"],"user":{"uid":0,"gid":0},
"capabilities":{"bounding":CAPS,"effective":CAPS,"permitted":CAPS}},
"mounts":[{"destination":"/proc","type":"proc","source":"proc"},
{"destination":"/dev","type":"tmpfs","source":"tmpfs","options":["nosuid","mode=755","size=64k"]},
{"destination":"/dev/pts","type":"devpts","source":"devpts","options":["newinstance","ptmxmode=0666"]},
{"destination":"/dev/shm","type":"tmpfs","source":"tmpfs","options":["size=8m"]},
{"destination":"/sys","type":"sysfs","source":"sysfs","options":["nosuid","noexec","nodev"]},
{"destination":"/sys/fs/cgroup","type":"cgroup","source":"cgroup"},
{"destination":"/run","type":"tmpfs","source":"tmpfs","options":["mode=755","size=50m"]},
{"destination":"/tmp","type":"tmpfs","source":"tmpfs","options":["size=50m"]}],
"linux":{"namespaces":[{"type":"pid"},{"type":"ipc"},{"type":"uts"},{"type":"mount"},{"type":"cgroup"},{"type":"network"}],
"resources":{"devices":[{"allow":true,"access":"rwm"}]},"maskedPaths":[],"readonlyPaths":[]}}
JSON
}

# boot starts the machine.
boot() {
	runc --root "$work/runc" run --no-pivot --detach --bundle "$work/bundle" "$name" </dev/null >"$work/console" 2>&1 || { cat "$work/console" >&2; exit 1; }
}

# booted waits up to a minute for multi-user.target, whose state is in $state then.
booted() {
	local i
	for ((i = 0; i < 600; i++)); do
		state=$(inside systemctl is-active multi-user.target 2>/dev/null) && break
		sleep 0.1
	done
}
