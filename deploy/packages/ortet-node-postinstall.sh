#!/bin/sh
# Runs after ortet-node was installed (deb: configure; rpm: 1) or upgraded (deb:
# configure and the earlier version; rpm: 2). No unit is enabled or started.
set -e
# An image that is built in a chroot has no systemd.
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
case "$1:$2" in
configure:?* | 2:*)
	# These two run for as long as the machine does; the others get the new program at
	# their next start.
	systemctl try-restart ortet-config.service ortet-events.service || :
	;;
esac
