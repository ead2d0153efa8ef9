#!/bin/sh
# agent.sh builds ortet-node for GOOS and GOARCH as it is shipped. It is on every
# node and in an extension's package, so it is built for size: without symbols,
# and without inlining, which takes a tenth off it. What it does is wait for
# others; where that costs it time, `make bench` would tell.
set -eu
[ $# -ge 1 ] || { echo "usage: agent.sh OUT [VERSION]" >&2; exit 64; }
out=$(realpath -m -- "$1")
cd "$(dirname "$0")/.."
CGO_ENABLED=0 go build -trimpath -gcflags=all=-l -ldflags "-s -w -X main.version=${2:-dev}" -o "$out" ./cmd/ortet-node

# It has to stay small with all that it will do.
most=$((12 * 1000 * 1000))
size=$(stat -c %s "$out")
[ "$size" -le "$most" ] || { echo "agent.sh: $out has $size bytes, more than $most" >&2; exit 1; }
