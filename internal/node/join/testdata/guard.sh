#!/bin/sh
# Run in a network and mount namespace of its own: a host with the metadata service
# and the wire server as its own addresses, and a pod behind a bridge. $1 answers on
# ports of those; $2 is the folder of the rules. Each line says who reaches what.
set -eu
program=$1 rules=$2
ip link set lo up
ip addr add 169.254.169.254/32 dev lo
ip addr add 168.63.129.16/32 dev lo
ip link add cni0 type bridge
ip addr add 10.244.0.1/24 dev cni0
ip link set cni0 up
unshare --net sleep 60 &
pod=$!
"$program" & server=$!
trap 'kill $pod $server 2>/dev/null || true' EXIT
while [ "$(readlink "/proc/$pod/ns/net")" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
ip link add veth0 type veth peer name eth0
ip link set veth0 master cni0 up
ip link set eth0 netns "$pod"
in_pod() { nsenter --net="/proc/$pod/ns/net" "$@"; }
in_pod ip link set lo up
in_pod ip addr add 10.244.0.2/24 dev eth0
in_pod ip link set eth0 up
in_pod ip route add default via 10.244.0.1
reach() { timeout 1 bash -c "exec 3<>/dev/tcp/$1/$2 && read -r -t 1 line <&3 && [ \"\$line\" = hello ]" 2>/dev/null && echo yes || echo no; }
for i in 1 2 3 4 5 6 7 8 9 10; do [ "$(reach 169.254.169.254 80)" = yes ] && break; sleep 0.2; done
look() {
	for to in "169.254.169.254 80" "168.63.129.16 80" "168.63.129.16 32526" "168.63.129.16 53"; do
		# shellcheck disable=SC2086
		echo "$1: host $to: $(reach $to); pod $to: $(in_pod bash -c "$(cat <<EOF
timeout 1 bash -c 'exec 3<>/dev/tcp/${to% *}/${to#* } && read -r -t 1 line <&3 && [ "\$line" = hello ]' 2>/dev/null && echo yes || echo no
EOF
)")"
	done
}
look without
nft -f "$rules/ortet-metadata-guard.nft"
nft -f "$rules/ortet-metadata-guard.nft"
look with
[ "$(nft list tables | grep -c ortet_metadata_guard)" = 1 ]
nft delete table inet ortet_metadata_guard
look removed
