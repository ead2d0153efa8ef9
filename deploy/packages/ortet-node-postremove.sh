#!/bin/sh
# Runs after ortet-node was removed, upgraded or purged. A purge (deb) deletes its
# settings and what it wrote; rpm knows no purge, and leaves both.
set -e
[ ! -d /run/systemd/system ] || systemctl daemon-reload || :
[ "$1" = purge ] || exit 0
rm -f /etc/ortet/config.json /etc/ortet/events.json /etc/ortet/join.json
rmdir /etc/ortet 2>/dev/null || :
rm -rf /var/lib/ortet
