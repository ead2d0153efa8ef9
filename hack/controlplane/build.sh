#!/bin/sh
# Builds etcd, the Kubernetes control plane, the kubelet, kube-proxy, kubeadm, kubectl
# and the lab's k3s as one binary into a cache folder outside the checkout, once per
# version of its inputs, and prints that folder's path on standard output.
#
#   build.sh          build if need be, then print the folder
#   build.sh --path   print the folder; exit 3 if it is not built yet
#
# The folder holds `controlplane` and a link of each component's name to it.
# ORTET_CACHE moves the cache; default: $XDG_CACHE_HOME/ortet or ~/.cache/ortet.
set -eu

version=1.36.3
components='etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubeadm kubectl k3s'

cd "$(dirname "$0")"

say() { printf '%s\n' "controlplane: $*" >&2; }

digest() {
	if command -v sha256sum >/dev/null 2>&1; then sha256sum; else shasum -a 256; fi
}

command -v go >/dev/null 2>&1 || { say "go is not on PATH; install the Go that go.mod names"; exit 1; }

go=$(go env GOVERSION)
arch=$(go env GOARCH)
os=$(go env GOOS)
key=$({ cat go.mod go.sum main.go build.sh; find k3s -type f ! -name '*_test.go' | LC_ALL=C sort | xargs cat; echo "$go $os $arch"; } | digest | cut -c1-16)
cache=${ORTET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ortet}
folder=$cache/controlplane-$key

if [ -x "$folder/controlplane" ]; then
	printf '%s\n' "$folder"
	exit 0
fi
if [ "${1:-}" = --path ]; then
	say "not built yet ($folder); run: make controlplane"
	exit 3
fi

mkdir -p "$cache"
temporary=
building=
cleanup() {
	if [ -n "$building" ]; then kill "$building" 2>/dev/null || true; fi
	if [ -n "$temporary" ]; then rm -rf "$temporary"; fi
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# One build at a time: two would fight for the same processors. The rename below
# is atomic, so where flock is missing a second build is only a waste.
if command -v flock >/dev/null 2>&1; then
	exec 9>"$cache/controlplane.lock"
	if ! flock -n 9; then
		say "another build is running; waiting for it"
		flock 9
	fi
	if [ -x "$folder/controlplane" ]; then
		printf '%s\n' "$folder"
		exit 0
	fi
fi

temporary=$(mktemp -d "$cache/controlplane-$key.XXXXXX")
chmod 755 "$temporary"
log=$temporary/build.log

say "building Kubernetes $version and etcd, once; cold, this takes about ten minutes on two processors"
CGO_ENABLED=0
export CGO_ENABLED
# The output of -v is one line per package as it begins to compile; those that
# Go's own cache holds are never named, so the count may end below the total.
total=$(go list -deps . 2>"$log" | wc -l | tr -d ' ') || { cat "$log" >&2; exit 1; }
[ "$total" -gt 0 ] || { cat "$log" >&2; say "go list failed"; exit 1; }

prefix=k8s.io/component-base/version
major=${version%%.*}
minor=${version#*.}
minor=${minor%%.*}
: >"$log"
go build -v -trimpath -buildvcs=false -ldflags "-s -w \
-X $prefix.gitVersion=v$version \
-X $prefix.gitMajor=$major \
-X $prefix.gitMinor=$minor" \
	-o "$temporary/controlplane" . 2>"$log" 9>&- &
building=$!

started=$(date +%s)
spoken=$started
while kill -0 "$building" 2>/dev/null; do
	sleep 1
	now=$(date +%s)
	done_=$(wc -l <"$log" | tr -d ' ')
	line="$((now - started)) s, $done_ of at most $total packages compiled"
	if [ -t 2 ]; then
		printf '\r\033[Kcontrolplane: %s' "$line" >&2
	elif [ $((now - spoken)) -ge 30 ]; then
		say "$line"
		spoken=$now
	fi
done
if [ -t 2 ]; then printf '\r\033[K' >&2; fi
status=0
wait "$building" || status=$?
building=
if [ "$status" -ne 0 ]; then
	# Package names are progress, not news; what is left is what went wrong.
	grep -E '^#|[: ]' "$log" | tail -n 40 >&2 || true
	say "go build failed with status $status"
	exit 1
fi
rm -f "$log"
for name in $components; do
	ln -s controlplane "$temporary/$name"
done
if ! mv -T "$temporary" "$folder" 2>/dev/null; then
	# A build that held no lock was faster, or mv knows no -T.
	[ -x "$folder/controlplane" ] || mv "$temporary" "$folder"
fi
say "built in $(($(date +%s) - started)) s"
printf '%s\n' "$folder"
