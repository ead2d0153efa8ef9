#!/bin/sh
# Builds NVIDIA's container runtime and nvidia-ctk, packed as a Debian package, into the cache,
# once per version. Prints the package's path. They need cgo, so their C library is this host's.
set -eu
cd "$(dirname "$0")"
cache=${ORTET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ortet}
key=$({ cat go.mod go.sum build.sh; go version; } | sha256sum | cut -c1-16)
out=$cache/toolkit-$key.deb
if [ ! -e "$out" ]; then
	echo "building NVIDIA's container toolkit, once (a minute)" >&2
	module=github.com/NVIDIA/nvidia-container-toolkit
	version=$(go list -m -f '{{.Version}}' $module)
	mkdir -p "$cache"
	part=$(mktemp -d "$cache/toolkit-part.XXXXXX")
	trap 'rm -rf "$part"' EXIT
	trap 'exit 130' INT TERM
	chmod 755 "$part"
	mkdir -p "$part/DEBIAN" "$part/usr/bin"
	# NVML is not linked, but loaded where there is one. Source: its Makefile.
	CGO_ENABLED=1 CGO_CFLAGS='-O2 -Wno-deprecated-declarations' go build -trimpath -ldflags "-s -w '-extldflags=-Wl,--export-dynamic -Wl,--unresolved-symbols=ignore-in-object-files -Wl,-z,lazy' -X $module/internal/info.version=${version#v}" \
		-o "$part/usr/bin/" $module/cmd/nvidia-container-runtime $module/cmd/nvidia-ctk >&2
	printf 'Package: nvidia-container-toolkit\nVersion: %s-1\nArchitecture: %s\nMaintainer: lab <lab@ortet.invalid>\nDescription: NVIDIA container toolkit, built by the lab\n' \
		"${version#v}" "$(go env GOARCH)" >"$part/DEBIAN/control"
	dpkg-deb --root-owner-group -b "$part" "$part.deb" >&2
	mv "$part.deb" "$out"
fi
echo "$out"
