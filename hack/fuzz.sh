#!/usr/bin/env bash
# Runs every fuzzer of this module for a while, one after the other, and prints
# a line for each; fails if one fails. What a failing fuzzer found it leaves in
# its package's testdata/fuzz: mend it, and keep the file.
#
#   hack/fuzz.sh [seconds [pattern]]     pattern: of "folder:FuzzName"
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-10}
pattern=${2:-.}
# The same flags as in the Makefile, so that nothing is compiled twice.
export CGO_ENABLED=0
case " ${GOFLAGS:-} " in *' -trimpath '*) ;; *) export GOFLAGS="${GOFLAGS:-} -trimpath" ;; esac

log=$(mktemp)
trap 'rm -f "$log"' EXIT

failed=0 count=0
while IFS=: read -r file name; do
	folder=$(dirname "$file")
	grep -qE -- "$pattern" <<<"$folder:$name" || continue
	count=$((count + 1))
	if go test -run '^$' -fuzz "^$name\$" -fuzztime "${seconds}s" -fuzzminimizetime 2s -parallel 1 \
		-timeout "$((seconds + 600))s" "./$folder" >"$log" 2>&1; then
		last=$(grep -oE 'execs: [0-9]+' "$log" | tail -n 1 || true)
		total=$(grep -oE 'total: [0-9]+' "$log" | tail -n 1 || true)
		printf 'ok    %-28s %-22s %s inputs, %s kept\n' "$folder" "$name" "${last#execs: }" "${total#total: }"
	else
		failed=$((failed + 1))
		printf 'FAIL  %-28s %s\n' "$folder" "$name"
		sed 's/^/      /' "$log"
	fi
done < <(git ls-files --cached --others --exclude-standard '*_test.go' |
	xargs grep -E '^func Fuzz[A-Za-z0-9_]*\(' /dev/null |
	sed -E 's/^([^:]+):func (Fuzz[A-Za-z0-9_]*)\(.*/\1:\2/' | sort -t: -k1,1 -k2,2)

echo "$count fuzzers, $failed failed"
[ "$failed" -eq 0 ] && [ "$count" -gt 0 ]
