#!/bin/sh
# Builds Tailscale's programs, packed as Tailscale's own archive of static binaries, and a
# coordination server, into the cache, once per version. Prints the folder's path:
# tailscale_VERSION_ARCH.tgz, tailscale, tailscaled, tailnet.
set -eu
cd "$(dirname "$0")"
cache=${ORTET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ortet}
key=$({ cat go.mod go.sum build.sh main.go; go version; } | sha256sum | cut -c1-16)
out=$cache/tailnet-$key
if [ ! -x "$out/tailnet" ]; then
	echo "building Tailscale's programs, once (some minutes)" >&2
	version=$(go list -m -f '{{.Version}}' tailscale.com)
	version=${version#v}
	mkdir -p "$cache"
	part=$(mktemp -d "$cache/tailnet-part.XXXXXX")
	trap 'rm -rf "$part"' EXIT
	trap 'exit 130' INT TERM
	name=tailscale_${version}_$(go env GOARCH)
	mkdir "$part/$name"
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X tailscale.com/version.longStamp=$version -X tailscale.com/version.shortStamp=$version" \
		-o "$part/$name/" tailscale.com/cmd/tailscale tailscale.com/cmd/tailscaled >&2
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$part/tailnet" . >&2
	tar -C "$part" -czf "$part/$name.tgz" "$name"
	mv "$part/$name"/* "$part/"
	rmdir "$part/$name"
	chmod 755 "$part"
	[ -x "$out/tailnet" ] || mv "$part" "$out"
fi
echo "$out"
