#!/usr/bin/env bash
# Finds the tests that only the build tag e2e compiles on this system, so that no
# list of them is kept by hand.
#
#   hack/e2e.sh [FLAG...]   run them; any flag of `go test` will do
#   hack/e2e.sh --count     print how many `make test` leaves out
#
# GOTESTSUM is the program that prints the results, RESULTS the file that keeps their JSON.
set -euo pipefail
cd "$(dirname "$0")/.."

# The same flags as in the Makefile, so that nothing is compiled twice.
export CGO_ENABLED=0
case " ${GOFLAGS:-} " in *' -trimpath '*) ;; *) export GOFLAGS="${GOFLAGS:-} -trimpath" ;; esac

# test_files prints "PACKAGE FILE" of each test file.
test_files() {
	go list "$@" -f '{{range .TestGoFiles}}{{$.ImportPath}} {{$.Dir}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$.ImportPath}} {{$.Dir}}/{{.}}{{"\n"}}{{end}}' ./... | grep . | LC_ALL=C sort
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
test_files >"$work/untagged"
test_files -tags e2e >"$work/all"
LC_ALL=C comm -13 "$work/untagged" "$work/all" >"$work/tagged"
cut -d' ' -f2- "$work/tagged" | xargs -d '\n' grep -HoE '^func Test[^a-z(][A-Za-z0-9_]*\(t ' >"$work/tests"
# These two mostly wait: they begin first, and take no processor from the others.
waits='/(test/e2e|hack/demo)$'
all=$(cut -d' ' -f1 "$work/tagged" | uniq)
mapfile -t packages < <(grep -E "$waits" <<<"$all"; grep -vE "$waits" <<<"$all")

if [ "${1:-}" = --count ]; then
	echo "$(wc -l <"$work/tests") tests in ${#packages[@]} packages not run; \`make e2e\` runs them"
	exit
fi
# Untagged tests of these packages ran in make test; one whose name is that of a
# tagged test elsewhere runs again, which does no harm.
names=$(sed -E 's/.*:func ([A-Za-z0-9_]+)\(.*/\1/' "$work/tests" | LC_ALL=C sort -u | paste -sd'|')
"$GOTESTSUM" --format pkgname --format-hide-empty-pkg --jsonfile "${RESULTS:-$work/results}" -- \
	-tags e2e -p $(($(nproc) + 1)) -timeout 40m -run "^($names)\$" "$@" "${packages[@]}"
