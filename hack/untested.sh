#!/usr/bin/env bash
# Prints "PACKAGE TEST" for each test that was skipped in all of the runs whose JSON is given.
#
#   untested.sh RESULTS...           all of them
#   untested.sh --run RESULTS...     runs them, with the programs of this machine; GOTESTSUM
#                                    prints the results, RESULTS is the file that keeps them
#   untested.sh --check RESULTS...   those that hack/untested.txt does not name; exits 1 if any
set -euo pipefail
cd "$(dirname "$0")/.."

do=print
case $1 in --*) do=${1#--}; shift ;; esac
tests() { sed -nE 's/.*"Action":"'"$1"'","Package":"([^"]*)","Test":"([^"]*)".*/\1 \2/p' "${@:2}" | LC_ALL=C sort -u; }
untested=$(LC_ALL=C comm -23 <(tests skip "$@") <(tests pass "$@"))
[ -n "$untested" ] || exit 0
case $do in
print) printf '%s\n' "$untested" ;;
run)
	names=$(cut -d' ' -f2 <<<"$untested" | cut -d/ -f1 | sort -u | paste -sd'|')
	mapfile -t packages < <(cut -d' ' -f1 <<<"$untested" | sort -u)
	# A test whose name is that of a skipped one elsewhere runs again, which does no harm.
	exec "$GOTESTSUM" --format pkgname --format-hide-empty-pkg --jsonfile "$RESULTS" -- \
		-timeout 30m -count=1 -run "^($names)\$" "${packages[@]}"
	;;
check)
	unknown=$(grep -vxFf <(sed 's/ *#.*//' hack/untested.txt | grep .) <<<"$untested") || exit 0
	printf 'No run tested these. Install what they need (hack/packages.txt, hack/fresh/commands.txt), or name them in hack/untested.txt with a reason:\n%s\n' "$unknown" >&2
	exit 1
	;;
esac
