#!/bin/sh
# Runs before ortet-node is removed (deb: remove; rpm: 0) or upgraded (deb: upgrade;
# rpm: 1). A removal stops and disables its units.
set -e
case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac
for drop_in in kubelet k3s-agent rke2-agent; do
	file=/etc/systemd/system/$drop_in.service.d/20-ortet.conf
	[ ! -e "$file" ] || echo "ortet-node: warning: $file keeps $drop_in from starting without ortet-join; remove it" >&2
done
command -v systemctl >/dev/null || exit 0
units=$(cd /usr/lib/systemd/system && ls -d ortet-*.path ortet-*.service)
# shellcheck disable=SC2086
if [ -d /run/systemd/system ]; then
	systemctl --no-reload disable --now $units || :
else
	systemctl disable $units || :
fi
