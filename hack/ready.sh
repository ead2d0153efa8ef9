#!/usr/bin/env bash
# Says in one sentence what `make test` lacks on this machine, before Go says it once for
# each package.
set -euo pipefail
cd "$(dirname "$0")/.."

refuse() { echo "make test: $*" >&2; exit 1; }

dir=${GOTMPDIR:-${TMPDIR:-/tmp}}
# go links and runs tests there; what they write at once is about a gigabyte.
probe=$(mktemp -p "$dir" ready.XXXXXX 2>/dev/null) || refuse "cannot write to $dir: set TMPDIR to a folder with 2 GB"
trap 'rm -f "$probe"' EXIT
free=$(df -Pm "$dir" | awk 'NR == 2 { print $4 }')
[ "$free" -ge 2000 ] || refuse "$dir has only $free MB left: set TMPDIR to a folder with 2 GB"
printf '#!/bin/sh\n' >"$probe"
chmod +x "$probe"
"$probe" 2>/dev/null || refuse "cannot run programs from $dir (is it mounted noexec?): set TMPDIR to another folder"
# The path of a Unix socket has at most 107 bytes, and tests have theirs below their own folders.
temporary=${TMPDIR:-/tmp}
[ ${#temporary} -le 40 ] || refuse "TMPDIR=$temporary is too long for the sockets of tests: set it to a path of at most 40 characters"
said=$(go list -deps -test ./... 2>&1 >/dev/null) ||
	refuse "Go cannot load this module; it needs a network the first time, and a cache that it may write: $(grep -v '^go: downloading' <<<"$said" | head -n 1)"
