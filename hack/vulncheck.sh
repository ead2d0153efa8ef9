#!/usr/bin/env bash
# Looks Ortet's modules up in Go's vulnerability database, with govulncheck.
#
#   vulncheck.sh TOOL MODULE-FOLDER...
#
# Exits with 1 where a vulnerability is reached by our code, or our code cannot be
# loaded. Where the database does not answer, nothing was checked: the last line says
# NOT RUN, and the exit code is 0, since a machine without access to it could not pass
# otherwise. VULNCHECK_TIMEOUT is for how long one folder may take; default 10m.
set -euo pipefail
tool=$1
shift
out=$(mktemp)
trap 'rm -f "$out"' EXIT
for folder in "$@"; do
	code=0
	(cd "$folder" && timeout "${VULNCHECK_TIMEOUT:-10m}" "$tool" ./...) >"$out" 2>&1 || code=$?
	case $code in
	0) echo "vulncheck: $folder: no known vulnerability is reached" ;;
	3)
		cat "$out"
		exit 1
		;;
	*)
		if [ "$code" = 124 ] || grep -qiE 'vuln\.go\.dev|fetching vulnerabilities|proxyconnect|dial tcp|TLS handshake timeout' "$out"; then
			tail -n 2 "$out"
			echo "vulncheck: NOT RUN: the database at vuln.go.dev does not answer"
			exit 0
		fi
		cat "$out"
		exit 1
		;;
	esac
done
