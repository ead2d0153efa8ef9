#!/bin/bash
# systemd.sh boots systemd from the lab's disk image in a container without a
# network, has our extension enabled there in a scope of its own, as the Azure agent
# does, kills what waits, and then lets the bootstrap succeed. It prints what is
# seen on the way, one fact a line. Called with unshare -m, so that no mount of its
# outlives it.
#
#   systemd.sh IMAGE PROGRAM WORKFOLDER NAME
set -euo pipefail
image=$1 program=$2 work=$3 name=$4
deploy=$(cd "$(dirname "$0")/../../../../deploy" && pwd)
folder=/var/lib/waagent/Ortet.Node.Linux-1.0.0

inside() { timeout 30 runc --root "$work/runc" exec "$name" "$@"; }
finish() {
	runc --root "$work/runc" delete -f "$name" 2>/dev/null || true
	umount "$work/bundle/rootfs" "$work/upper" "$work/lower" 2>/dev/null || true
}
trap finish EXIT
trap 'exit 130' INT TERM

mkdir -p "$work"/{lower,upper,bundle/rootfs}
read -r start sectors <<<"$(partx --noheadings --raw --output START,SECTORS --nr 1 "$image")"
mount -o "ro,loop,noload,offset=$((start * 512)),sizelimit=$((sectors * 512))" "$image" "$work/lower"
mount -t tmpfs -o size=200m tmpfs "$work/upper"
mkdir "$work/upper/new" "$work/upper/work"
mount -t overlay -o "lowerdir=$work/lower,upperdir=$work/upper/new,workdir=$work/upper/work" overlay "$work/bundle/rootfs"
root=$work/bundle/rootfs

# The handler as the agent unpacks it, and the baked unit. Without cloud-init
# nothing but the sentinel says that the boot is over.
mkdir -p "$root$folder"/{bin,config,status} "$root/usr/local/bin" "$root/etc/cloud"
touch "$root/etc/cloud/cloud-init.disabled"
install -m 755 "$program" "$root$folder/bin/ortet-node"
install -m 755 "$program" "$root/usr/local/bin/ortet-node"
install -m 644 "$deploy/extension/linux/HandlerManifest.json" "$root$folder/"
install -D -m 644 "$deploy/systemd/ortet-wait.service" "$root/etc/systemd/system/ortet-wait.service"
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
ln -s ../ortet-wait.service "$root/etc/systemd/system/multi-user.target.wants/"
cat >"$root$folder/HandlerEnvironment.json" <<JSON
[{"name":"Ortet.Node.Linux","version":1.0,"handlerEnvironment":{"logFolder":"/var/log/azure/Ortet.Node.Linux","configFolder":"$folder/config","statusFolder":"$folder/status","heartbeatFile":"$folder/heartbeat.log"}}]
JSON
echo '{"runtimeSettings":[{"handlerSettings":{"publicSettings":{"deadline":"10m","kubelet":"no"}}}]}' >"$root$folder/config/0.settings"

cat >"$work/bundle/config.json" <<'JSON'
{"ociVersion":"1.0.2","hostname":"extension","root":{"path":"rootfs"},
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
caps=$(printf '"CAP_%s",' CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP NET_ADMIN NET_BIND_SERVICE SYS_CHROOT SYS_PTRACE SYS_ADMIN SYS_NICE MKNOD AUDIT_WRITE SETFCAP)
sed -i "s/CAPS/[${caps%,}]/g" "$work/bundle/config.json"
runc --root "$work/runc" run --no-pivot --detach --bundle "$work/bundle" "$name" </dev/null >"$work/console" 2>&1 || { cat "$work/console" >&2; exit 1; }

for ((i = 0; i < 600; i++)); do
	state=$(inside systemctl is-active multi-user.target 2>/dev/null) && break
	sleep 0.1
done
echo "multi-user.target $state"
echo "baked unit $(inside systemctl is-active ortet-wait.service)"

# pid is the process that waits, once it is another than $1.
pid() {
	local p i
	for ((i = 0; i < 300; i++)); do
		p=$(sed -n 's/.*"pid":\([0-9]*\).*/\1/p' "$root$folder/waiter.json" 2>/dev/null || true)
		if [ -n "$p" ] && [ "$p" != "$1" ]; then break; fi
		sleep 0.1
	done
	echo "$p"
}
inside sh -c "ConfigSequenceNumber=0 systemd-run --quiet --scope --unit=enable_x --slice=azure-vmextensions-ortet.slice $folder/bin/ortet-node extension enable" >/dev/null
first=$(pid 0)
echo "control group $(inside sed -n 's/.*:name=systemd:\|^0:://p' "/proc/$first/cgroup" | sort -u)"
inside systemctl stop azure-vmextensions-ortet.slice
echo "after the agent's slice was stopped $(inside systemctl is-active ortet-extension-0.service)"
inside kill -9 "$first"
second=$(pid "$first")
echo "after a kill $([ "$second" != "$first" ] && inside systemctl is-active ortet-extension-0.service)"
inside sh -c 'mkdir -p /run/cluster-api && touch /run/cluster-api/bootstrap-success.complete'
for ((i = 0; i < 300; i++)); do
	status=$(sed 's/.*"status":{"status":"\([a-z]*\)".*/\1/' "$root$folder/status/0.status")
	if [ "$status" = success ]; then break; fi
	sleep 0.1
done
echo "status $status"
