#!/bin/sh
# Builds helm, which the tests install our charts with, into the cache, once
# per version. Prints its path.
set -eu
cd "$(dirname "$0")"
cache=${ORTET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ortet}
key=$({ cat go.mod go.sum build.sh; go version; } | sha256sum | cut -c1-16)
out=$cache/helm-$key
if [ ! -x "$out/helm" ]; then
	echo "building helm, once (some minutes)" >&2
	mkdir -p "$out"
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=36 -X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor=36' -o "$out/helm.$$" helm.sh/helm/v3/cmd/helm >&2
	mv "$out/helm.$$" "$out/helm"
fi
ln -sfn "$out" "$cache/helm"
echo "$out/helm"
