#!/bin/bash
# waagent.sh prints a folder from which Python can import the Azure Linux Agent's
# own code (azurelinuxagent), as Debian packages it. It is unpacked, not installed:
# installed it would take this host over. It is kept in
# ${ORTET_CACHE:-${XDG_CACHE_HOME:-~/.cache}/ortet}, by its version.
set -euo pipefail

if [ ! -e /etc/debian_version ]; then
	echo "waagent.sh: the agent is taken from Debian's packages, and this is not Debian" >&2
	exit 69
fi
cache=${ORTET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ortet}
packages=(waagent python3-distro)
version=$(apt-cache policy "${packages[0]}" | sed -n 's/^ *Candidate: //p')
if [ -z "$version" ] || [ "$version" = "(none)" ]; then
	echo "waagent.sh: apt knows no package ${packages[0]}: run apt-get update" >&2
	exit 69
fi
out=$cache/waagent-${version//[^0-9A-Za-z.+~-]/_}
if [ ! -d "$out/usr/lib/python3/dist-packages/azurelinuxagent" ]; then
	mkdir -p "$cache"
	work=$(mktemp -d "$cache/waagent-work.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	(cd "$work" && apt-get download -qq -o APT::Sandbox::User=root "${packages[@]}" >&2)
	mkdir "$work/root"
	for p in "$work"/*.deb; do dpkg-deb -x "$p" "$work/root"; done
	rm -rf "$out"
	mv "$work/root" "$out"
fi
echo "$out/usr/lib/python3/dist-packages"
