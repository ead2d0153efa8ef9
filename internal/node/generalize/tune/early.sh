# ortet capture --tune kubelet-early: ends once cloud-init's network stage has nothing to do that
# the kubelet needs. A machine of which that is not sure waits for that stage.
mark=/run/ortet/kubelet-early
[ ! -e $mark ] || exit 0 # once a boot

enough() {
	# cloud-init's local stage named this machine. A generalised disk has neither file.
	[ -s /var/lib/cloud/data/set-hostname ] || return 1
	[ "$(cat /proc/sys/kernel/hostname)" = "$(cat /etc/hostname)" ] || return 1
	# There is a name server: a pod keeps what it finds.
	grep -qs '^nameserver' /etc/resolv.conf || return 1
	[ ! -d /run/systemd/resolve ] || grep -qs '^nameserver' /run/systemd/resolve/resolv.conf || return 1
	# cloud-init will not make the root larger: the kubelet measures it once. 64 MiB may be left.
	# Of btrfs its partition is not known here.
	[ "$(stat -f -c %T /)" != btrfs ] || return 1
	part=/sys/dev/block/$(mountpoint -d /)
	disk=
	if [ -e "$part/partition" ]; then
		disk=$(basename "$(readlink -f "$part/..")")
		[ $(($(cat "$part/../size") - $(cat "$part/start") - $(cat "$part/size"))) -lt 131072 ] || return 1
	fi
	# There is no other disk: cloud-init mounts a temporary one, where pods may look for it.
	for at in /dev/sd* /dev/nvme*n*; do
		at=${at#/dev/}
		[ ! -e "/sys/class/block/$at" ] || [ -e "/sys/class/block/$at/partition" ] || [ "$at" = "$disk" ] || return 1
	done
}

# over succeeds when the network stage has ended or is not to run.
over() {
	jobs=$(systemctl show --property Job --value cloud-init.service cloud-init-network.service) || return 1
	case $jobs in *[1-9]*) return 1 ;; esac
}

until enough || over; do
	sleep 0.1
done
if [ ! -s /etc/hostname ]; then
	echo "cloud-init gave this machine no name: the kubelet does not start under another" >&2
	exit 1
fi
mkdir -p /run/ortet
: >$mark
