#!/usr/bin/env bash
# run.sh is `make lab`: every test that needs root on Debian, real machines among
# them. It builds what is missing, shows progress, and ends with the test
# runner's own closing lines and the list of what did not run. It exits 0 when
# nothing failed. GOTESTSUM is the program that prints the results, RESULTS the file that
# keeps their JSON.
#
#   hack/lab/run.sh                 everything
#   hack/lab/run.sh --machines      without what needs root but no machine, for those
#                                   who ran make test as root, without three tests of
#                                   the lab itself, which other tests use, and without those
#                                   of the canary, of packages, of explain, of rollout, of fresh donors, of GPUs and of tunings, for their minutes: what CI runs
#   hack/lab/run.sh --elastic       ortet cluster on real machines (make elastic)
#   hack/lab/run.sh --one NAME      TestNAMECapture of test/lab, in any letter case (make lab LAB=NAME)
#   hack/lab/run.sh -run REGEXP     those tests; any flag of `go test` will do
set -euo pipefail
cd "$(dirname "$0")/../.."

export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath"
packages=(
	./internal/node/extension
	./internal/node/join
	./azsim/machine
	./hack/lab
	./test/lab
)
units=()
at_once=1 # packages
# These need neither root nor machines: make e2e has them.
skip='^(TestWindowsUnderWine|TestAzureAgentRunsTheExtension)$'
if [ "${1:-}" = --elastic ]; then
	shift
	packages=(./test/elastic)
elif [ "${1:-}" = --one ]; then
	packages=(./test/lab)
	go test -tags e2e -list "(?i)^Test${2}Capture\$" ./test/lab | grep ^Test >/dev/null || { echo "lab: LAB=$2: there is no such test in test/lab" >&2; exit 2; }
	set -- -run "(?i)^Test${2}Capture\$" "${@:3}"
elif [ "${1:-}" = --machines ]; then
	shift
	units=(./internal/node/config/apply "${packages[@]:0:2}")
	packages=("${packages[@]:2}")
	# Machines mostly wait: those of azsim/machine run beside those of test/lab.
	at_once=2
	# make elastic's machines run the same k3s, and those of test/lab join and run pods.
	skip="${skip%)\$}|TestK3sOnRealMachines|TestMachinesJoinAndRunPods|TestCollectorIsInNobodysWay|TestCanaryOnRealMachines|TestCanaryTest|TestK3sCapture|TestPackagesOnRealMachines|TestExplainOnRealMachines|TestRolloutOnRealMachines|TestFreshOnRealMachines|TestGPUOnRealMachines|TestTuneOnRealMachines)\$"
else
	packages=(./internal/node/... ./cmd/ortet-node "${packages[@]:2}")
fi
began=$(date +%s)
say() { printf '\n== %s (%d s)\n' "$*" "$(($(date +%s) - began))"; }

if [ "$(id -u)" != 0 ] || [ ! -e /etc/debian_version ]; then
	echo "lab: NOT RUN: real machines need root on Debian" >&2
	exit 1
fi
missing=()
for p in $(sed -e 's/#.*//' hack/lab/packages.txt); do
	dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
done
if [ ${#missing[@]} -gt 0 ]; then
	echo "lab: NOT RUN: packages are missing: apt-get install ${missing[*]}" >&2
	exit 1
fi

# A machine has some ten inotify instances, its kubelet's not counted, and root has 128 by default.
instances=/proc/sys/fs/inotify/max_user_instances
[ "$(cat "$instances")" -ge 1024 ] || echo 1024 >"$instances"

work=$(mktemp -d)
# A test that is killed cannot clean up after itself.
finish() {
	local status=$?
	rm -rf "$work"
	if [ $status != 0 ]; then
		go run ./hack/lab/clean || echo "lab: something may be left on this host; see above" >&2
	fi
}
trap finish EXIT
trap 'exit 130' INT TERM

say "control plane, helm, the machines' disk image"
controlplane=$(hack/controlplane/build.sh)/controlplane
hack/helm/build.sh >/dev/null
go run ./hack/lab/images --out "$work/images"
ORTET_LAB_IMAGE=$(hack/lab/rootfs.sh --controlplane "$controlplane" --images "$work/images")
export ORTET_LAB_IMAGE ORTET_LAB=1
# What a killed run left would cost this one memory and processors.
go run ./hack/lab/clean

say "compiling tests"
go list -tags e2e -deps -test -export "${packages[@]}" "${units[@]}" >/dev/null

say "tests"
results=${RESULTS:-$work/results}
# JSON comes as it is written, also of two packages at once.
run() {
	"$GOTESTSUM" --format standard-verbose --jsonfile "$1" -- -tags e2e -count=1 -timeout 60m "${@:2}" 2>&1 |
		grep --line-buffered -v -E '^=== (RUN|PAUSE|CONT|NAME)|^ +--- PASS|no test files'
}
[ ${#units[@]} = 0 ] || run "$results.units" -p 1 -run 'UnderSystemd$' "${units[@]}"
# Flags of a test's own, as -outage, are known after the packages alone.
run "$results" -p "$at_once" -skip "$skip" "${packages[@]}" "$@"
