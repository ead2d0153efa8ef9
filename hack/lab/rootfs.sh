#!/bin/bash
# rootfs.sh builds the disk image from which the lab's machines are made, and
# prints its path. It plays the part of a marketplace image: a GPT disk with a
# BIOS boot partition, an EFI system partition and an ext4 root, holding an
# installed but unconfigured node. What makes it a node of a pool comes by
# custom data (pool.go), as in Azure.
#
# Two things are kept in ${ORTET_CACHE:-${XDG_CACHE_HOME:-~/.cache}/ortet}, each
# under a hash of all that goes into it: the installed packages, which take
# minutes, and the image, which takes seconds. A second run only prints the path.
set -euo pipefail
export LC_ALL=C DEBIAN_FRONTEND=noninteractive

usage() {
	cat >&2 <<'USAGE'
usage: rootfs.sh --controlplane FILE --images DIR [--size GB] [--mirror URL]
  --controlplane  the multi-call binary that hack/controlplane/build.sh builds; it becomes the kubelet and kubeadm
  --images        folder of OCI tarballs (hack/lab/images) to be preloaded
  --size          size of the disk in GB; 4 unless told
  --mirror        Debian mirror; the host's own unless told
Needs root on Debian, and the packages in packages.txt.
USAGE
	exit 64
}

here=$(cd "$(dirname "$0")" && pwd)
cache=${ORTET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ortet}
suite=bookworm
controlplane='' images='' size=4
mirror=$(sed -nE 's/^URIs: *([^ ]+).*/\1/p; s/^deb +(\[[^]]*\] +)?([^ ]+) .*/\2/p' \
	/etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2>/dev/null | grep -m1 -v security || true)
while [ $# -gt 0 ]; do
	case $1 in
	--controlplane) controlplane=${2:-}; shift 2 || usage ;;
	--images) images=${2:-}; shift 2 || usage ;;
	--size) size=${2:-}; shift 2 || usage ;;
	--mirror) mirror=${2:-}; shift 2 || usage ;;
	*) usage ;;
	esac
done
[ -n "$controlplane" ] && [ -n "$images" ] || usage
[ -n "$mirror" ] || { echo "rootfs.sh: no Debian mirror in apt's sources: name one with --mirror URL" >&2; exit 66; }
[ -x "$controlplane" ] || { echo "rootfs.sh: $controlplane is no program: build it with hack/controlplane/build.sh" >&2; exit 66; }
[ "$(id -u)" = 0 ] || { echo "rootfs.sh: needs root, to install packages into a root file system and to mount it" >&2; exit 77; }
for tool in debootstrap sfdisk partx mkfs.ext4 mkfs.vfat losetup; do
	command -v "$tool" >/dev/null || { echo "rootfs.sh: $tool is missing: apt-get install $(grep -v '^#' "$here/packages.txt" | tr '\n' ' ')" >&2; exit 69; }
done

began=$(date +%s)
say() { printf '%4ds  %s\n' "$(($(date +%s) - began))" "$*" >&2; }
hash() { sha256sum | cut -c1-16; }

mkdir -p "$cache"
exec 9>"$cache/rootfs.lock"
flock 9

# discard takes away a work folder with all that is mounted in it.
discard() {
	local work=$1 m l
	for m in "$work"/mnt/run "$work"/mnt/proc "$work"/mnt "$work"/tree/proc; do
		if mountpoint -q "$m"; then umount "$m" || umount -l "$m"; fi
	done
	for l in $(losetup --noheadings --output NAME --associated "$work/disk.raw" 2>/dev/null); do
		losetup -d "$l" || true
	done
	rm -rf --one-file-system "$work"
}
# Whatever happens, nothing stays mounted and no half-made tree stays. What a
# killed run left is nobody's, since this one holds the lock.
for old in "$cache"/rootfs-work.*; do
	if [ -d "$old" ]; then discard "$old"; fi
done
work=$(mktemp -d "$cache/rootfs-work.XXXXXX")
trap 'discard "$work"' EXIT
trap 'exit 130' INT TERM

wanted=$(grep -v '^#' "$here/rootfs-packages.txt")
packages_key=$(printf '%s\n' 1 "$suite" "$(dpkg --print-architecture)" "$mirror" $wanted | hash)
packages=$cache/rootfs-packages-$packages_key.tar

in_tree() { chroot "$work/tree" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@"; }

install_packages() {
	local tree=$work/tree log=$work/install.log
	say "installing Debian $suite from $mirror (once; usually 2 to 4 minutes)"
	debootstrap --variant=minbase "$suite" "$tree" "$mirror" >"$log" 2>&1 ||
		{ tail -20 "$log" >&2; return 1; }
	say "base system installed; now the node's packages"
	# No service may start in the tree, and documentation is no use there.
	printf '#!/bin/sh\nexit 101\n' >"$tree/usr/sbin/policy-rc.d"
	chmod 755 "$tree/usr/sbin/policy-rc.d"
	printf 'path-exclude=/usr/share/%s/*\n' doc man locale info lintian >"$tree/etc/dpkg/dpkg.cfg.d/lab"
	echo force-unsafe-io >>"$tree/etc/dpkg/dpkg.cfg.d/lab"
	cp --remove-destination /etc/resolv.conf "$tree/etc/resolv.conf"
	cp /etc/hosts "$tree/etc/hosts"
	if compgen -G '/etc/apt/apt.conf.d/*proxy*' >/dev/null; then cp /etc/apt/apt.conf.d/*proxy* "$tree/etc/apt/apt.conf.d/"; fi
	mount -t proc proc "$tree/proc"
	# cloud-init and python3-cryptography depend on each other in a circle, which
	# debootstrap cannot order and apt can.
	in_tree apt-get update >>"$log" 2>&1 || { tail -20 "$log" >&2; return 1; }
	# shellcheck disable=SC2086 # a list of names
	in_tree apt-get install -y --no-install-recommends $wanted >>"$log" 2>&1 || { tail -20 "$log" >&2; return 1; }
	in_tree apt-get clean
	umount "$tree/proc"
	rm -rf "$tree"/var/lib/apt/lists/* "$tree"/usr/share/{doc,man,locale,info}/* "$tree/usr/sbin/policy-rc.d" \
		"$tree"/etc/apt/apt.conf.d/*proxy* "$tree"/var/cache/debconf/*-old "$tree"/var/log/*.log "$tree"/var/log/apt
	say "packing the installed tree ($(du -sm "$tree" | cut -f1) MB)"
	tar -C "$tree" --numeric-owner --xattrs -cf "$packages.part" .
	mv "$packages.part" "$packages"
	rm -rf --one-file-system "$tree"
}
[ -f "$packages" ] || install_packages

# Everything beneath goes into the key, this script too.
image_key=$( {
	printf '%s\n' "$packages_key" "$size"
	sha256sum <"$0"
	sha256sum <"$controlplane"
	(cd "$here/rootfs" && find . -type f -print0 | sort -z | xargs -0 sha256sum)
	(cd "$images" && find . -name '*.tar' -print0 | sort -z | xargs -0 --no-run-if-empty sha256sum)
} | hash)
out=$cache/rootfs-$image_key
if [ -f "$out/disk.raw" ]; then
	touch "$out/disk.raw"
	echo "$out/disk.raw"
	exit 0
fi

say "making the disk ($size GB)"
disk=$work/disk.raw
truncate -s "${size}G" "$disk"
# Partition numbers and kinds as on the Debian and Ubuntu images of Azure.
sfdisk --quiet "$disk" <<'PARTITIONS'
label: gpt
14 : start=2048, size=4MiB, type=21686148-6449-6E6F-744E-656564454649
15 : size=60MiB, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B
1 : type=0FC63DAF-8483-4772-8E79-3D69D8477DE4
PARTITIONS
part() { # its start and size in bytes
	local start sectors
	read -r start sectors <<<"$(partx --noheadings --raw --output START,SECTORS --nr "$1" "$disk")"
	echo "$((start * 512)) $((sectors * 512))"
}
read -r efi_at efi_size <<<"$(part 15)"
read -r root_at root_size <<<"$(part 1)"
truncate -s "$efi_size" "$work/efi.raw"
mkfs.vfat -F 16 -n UEFI "$work/efi.raw" >/dev/null
dd if="$work/efi.raw" of="$disk" bs=1M seek="$((efi_at >> 20))" conv=notrunc,sparse status=none
# An offset rather than partition scanning: it works where /dev is not the
# kernel's own.
loop=$(losetup --find --show --offset "$root_at" --sizelimit "$root_size" "$disk")
mkfs.ext4 -q -L cloudimg-rootfs -E nodiscard "$loop"
mnt=$work/mnt
mkdir "$mnt"
mount "$loop" "$mnt"

say "unpacking the installed tree"
tar -C "$mnt" --numeric-owner --xattrs -xf "$packages"

say "adding the kubelet and the platform's settings"
cp -R --no-preserve=ownership "$here/rootfs/." "$mnt/"
install -m 755 "$controlplane" "$mnt/usr/local/bin/kubelet"
ln -s kubelet "$mnt/usr/local/bin/kubectl"
ln -s kubelet "$mnt/usr/local/bin/kubeadm"
cat >"$mnt/etc/fstab" <<'FSTAB'
LABEL=cloudimg-rootfs / ext4 defaults,errors=remount-ro 0 1
FSTAB
ln -sfn ../run/systemd/resolve/resolv.conf "$mnt/etc/resolv.conf"
printf '127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n' >"$mnt/etc/hosts"
mkdir -p "$mnt/var/log/journal" "$mnt/etc/kubernetes" "$mnt/var/lib/kubelet"
# Installed is not configured: what runs on a node is the pool's to say.
chroot "$mnt" systemctl --quiet disable containerd.service kubelet.service node-preparation.service 2>/dev/null || true
# Timers that would reach out to package mirrors.
chroot "$mnt" systemctl --quiet mask apt-daily.timer apt-daily-upgrade.timer

# What the machine gets at its first boot may not come with the image.
rm -f "$mnt"/etc/ssh/ssh_host_* "$mnt/etc/hostname" "$mnt/var/lib/dbus/machine-id" "$mnt/var/lib/systemd/random-seed"
: >"$mnt/etc/machine-id"
ln -s /etc/machine-id "$mnt/var/lib/dbus/machine-id"
rm -rf "$mnt"/var/lib/cloud/* "$mnt"/var/cache/apt/* "$mnt"/tmp/*

# The image store is filled by containerd itself, in the tree.
preload() {
	local pid
	mkdir -p "$mnt/run/images"
	mount -t proc proc "$mnt/proc"
	mount -t tmpfs tmpfs "$mnt/run"
	mkdir "$mnt/run/images"
	cp "$images"/*.tar "$mnt/run/images/"
	printf 'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n' >"$mnt/run/config.toml"
	chroot "$mnt" containerd --config /run/config.toml --log-level error >"$work/containerd.log" 2>&1 &
	pid=$!
	local ok=0
	for _ in $(seq 100); do
		if chroot "$mnt" ctr version >/dev/null 2>&1; then ok=1; break; fi
		sleep 0.1
	done
	if [ $ok = 1 ]; then
		for t in "$mnt"/run/images/*.tar; do
			chroot "$mnt" ctr -n k8s.io images import "/run/images/${t##*/}" >&2 || ok=0
		done
	fi
	kill "$pid"
	wait "$pid" || true
	umount "$mnt/run" "$mnt/proc"
	if [ $ok = 0 ]; then cat "$work/containerd.log" >&2; return 1; fi
}
if compgen -G "$images/*.tar" >/dev/null; then
	say "preloading container images"
	preload
fi

umount "$mnt"
losetup -d "$loop"
mkdir -p "$out"
mv "$disk" "$out/disk.raw.part"
mv "$out/disk.raw.part" "$out/disk.raw"
# Superseded ones are of no use; the two newest stay, for another checkout.
for kind in 'rootfs-*/disk.raw' 'rootfs-packages-*.tar'; do
	# shellcheck disable=SC2012,SC2086 # names of our own making
	(cd "$cache" && ls -1t $kind) | tail -n +3 | while read -r old; do rm -rf "$cache/${old%/disk.raw}"; done
done
say "done: $(du -sm "$out/disk.raw" | cut -f1) MB in a disk of $size GB"
echo "$out/disk.raw"
