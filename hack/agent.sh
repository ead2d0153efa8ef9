#!/bin/sh
# agent.sh OUT [VERSION] builds ortet-node for GOOS and GOARCH as it is shipped, with
# the Makefile's flags, so that nothing is compiled twice. Symbols are left out: the
# agent is on every node and in the VM extension's package. agent.sh --check FILE only
# refuses one that is too large.
set -eu
[ $# -ge 1 ] || { echo "usage: agent.sh OUT [VERSION] | --check FILE" >&2; exit 64; }
if [ "$1" = --check ]; then
	out=$2
else
	out=$(realpath -m -- "$1")
	cd "$(dirname "$0")/.."
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${2:-dev}" -o "$out" ./cmd/ortet-node
fi

most=$((12 * 1024 * 1024))
size=$(stat -c %s "$out")
[ "$size" -le "$most" ] || { echo "agent.sh: $out has $size bytes, more than $most" >&2; exit 1; }
