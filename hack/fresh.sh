#!/usr/bin/env bash
# fresh.sh is `make fresh`: `make test` in a new clone of HEAD, with the programs of
# hack/fresh/commands.txt and no others, an empty HOME and an empty TMPDIR. It fails if a
# test fails, or leaves something in TMPDIR.
#
#   hack/fresh.sh [--as USER] [PACKAGE...]
#
# --as USER, for root: as that user, with caches kept in /var/cache/ortet.
# GOTESTSUM is the program that prints the results, RESULTS the file that keeps their JSON.
set -euo pipefail
cd "$(dirname "$0")/.."

user=''
if [ "${1:-}" = --as ]; then
	user=$2
	shift 2
fi

# Short, since Unix sockets lie below it.
work=$(mktemp -d -p /tmp fresh.XXXX)
# go makes folders of its module cache unwritable.
trap 'chmod -R u+w "$work" 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
chmod 711 "$work"
mkdir "$work"/{bin,home,tmp}
chmod 1777 "$work/tmp"

[ -z "$(git status --porcelain)" ] || echo "make fresh tests HEAD: what is not committed is left out" >&2
git clone -q --no-hardlinks . "$work/clone"

as=()
cache=$(go env GOCACHE) modules=$(go env GOMODCACHE)
if [ -n "$user" ]; then
	kept=/var/cache/ortet/fresh-$user
	# Not what is in them: the user may have linked a file of another there.
	install -d -o "$user" -g "$(id -g "$user")" "$kept"/{build,modules}
	cache=$kept/build modules=$kept/modules
	# Git and go refuse a clone of another user.
	chown -R "$user:" "$work"/{clone,home}
	as=(setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups --no-new-privs)
fi

# The system's own before those that a caller put in front, as a version manager does.
search=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:$PATH
missing=()
while read -r package commands; do
	for command in $commands; do
		found=
		# The user may not reach the first of that name.
		while read -r path; do
			path=$(readlink -f "$path")
			if "${as[@]}" test -x "$path"; then
				found=$path
				break
			fi
		done < <(PATH=$search type -aP "$command")
		if [ -n "$found" ]; then ln -s "$found" "$work/bin/$command"; else missing+=("$command ($package)"); fi
	done
done < <(sed 's/#.*//' hack/fresh/commands.txt | grep .)
[ ${#missing[@]} = 0 ] || echo "not on this machine: ${missing[*]}" >&2

variables=(
	PATH="$work/bin" HOME="$work/home" TMPDIR="$work/tmp"
	GOTOOLCHAIN=local GOCACHE="$cache" GOMODCACHE="$modules"
)
for name in GOPROXY GOSUMDB GONOSUMDB GONOPROXY GOPRIVATE GOINSECURE GOFLAGS; do
	variables+=("$name=$(go env $name)")
done
for name in HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy SSL_CERT_FILE SSL_CERT_DIR ORTET_CACHE; do
	[ -z "${!name:-}" ] || variables+=("$name=${!name}")
done

status=0
"$GOTESTSUM" --raw-command --ignore-non-json-output-lines --format pkgname --format-hide-empty-pkg --jsonfile "${RESULTS:-$work/results}" -- \
	"${as[@]}" env -i -C "$work/clone" "${variables[@]}" make test TESTFLAGS='-timeout 30m -count=1 -json' ${1:+PKG="$*"} || status=$?

left=$(cd "$work/tmp" && find . -mindepth 1 -maxdepth 3)
if [ -n "$left" ]; then
	printf 'make fresh: FAILED: tests left in TMPDIR:\n%s\n' "$left" >&2
	exit 1
fi
exit "$status"
