#!/bin/bash
# overlay.sh makes another disk image out of one of rootfs.sh's: the same disk,
# with a folder's files copied over its root file system. It plays the part of
# whoever bakes something into an image.
set -euo pipefail

[ $# = 3 ] || { echo "usage: overlay.sh DISK FOLDER OUT" >&2; exit 64; }
disk=$1 folder=$2 out=$3

mnt='' loop=''
finish() {
	if [ -n "$mnt" ]; then
		if mountpoint -q "$mnt"; then umount "$mnt" || umount -l "$mnt"; fi
		rmdir "$mnt"
	fi
	if [ -n "$loop" ]; then losetup -d "$loop"; fi
	rm -f "$out.part"
}
trap finish EXIT
trap 'exit 130' INT TERM

cp --sparse=always --reflink=auto "$disk" "$out.part"
read -r start sectors <<<"$(partx --noheadings --raw --output START,SECTORS --nr 1 "$out.part")"
# An offset rather than partition scanning: it works where /dev is not the
# kernel's own.
loop=$(losetup --find --show --offset "$((start * 512))" --sizelimit "$((sectors * 512))" "$out.part")
mnt=$(mktemp -d)
mount "$loop" "$mnt"
cp -R --no-preserve=ownership "$folder/." "$mnt/"
umount "$mnt"
losetup -d "$loop"
loop=''
mv "$out.part" "$out"
