#!/bin/bash
# systemd.sh boots systemd from the lab's disk image in a container without a
# network, has our extension enabled there in a scope of its own, as the Azure agent
# does, kills what waits, and then lets the bootstrap succeed. It prints what is
# seen on the way, one fact a line.
#
#   systemd.sh IMAGE PROGRAM WORKFOLDER NAME
set -euo pipefail
image=$1 program=$2 work=$3 name=$4
deploy=$(cd "$(dirname "$0")/../../../../deploy" && pwd)
folder=/var/lib/waagent/Ortet.Node.Linux-1.0.0
. "$(dirname "$0")/../../../../hack/lab/systemd.sh"

unpack extension

# The handler as the agent unpacks it, and the baked unit. Without cloud-init
# nothing but the sentinel says that the boot is over.
mkdir -p "$root$folder"/{bin,config,status}
install -m 755 "$program" "$root$folder/bin/ortet-node"
install -m 755 "$program" "$root/usr/local/bin/ortet-node"
install -m 644 "$deploy/extension/linux/HandlerManifest.json" "$root$folder/"
install -D -m 644 "$deploy/systemd/ortet-wait.service" "$root/etc/systemd/system/ortet-wait.service"
ln -s ../ortet-wait.service "$root/etc/systemd/system/multi-user.target.wants/"
cat >"$root$folder/HandlerEnvironment.json" <<JSON
[{"name":"Ortet.Node.Linux","version":1.0,"handlerEnvironment":{"logFolder":"/var/log/azure/Ortet.Node.Linux","configFolder":"$folder/config","statusFolder":"$folder/status","heartbeatFile":"$folder/heartbeat.log"}}]
JSON
echo '{"runtimeSettings":[{"handlerSettings":{"publicSettings":{"deadline":"10m","kubelet":"no"}}}]}' >"$root$folder/config/0.settings"

boot
booted
echo "multi-user.target $state"
echo "baked unit $(inside systemctl is-active ortet-wait.service)"

# pid is the process that waits, once it is another than $1.
pid() {
	local p i
	for ((i = 0; i < 300; i++)); do
		p=$(sed -n 's/.*"pid":\([0-9]*\).*/\1/p' "$root$folder/waiter.json" 2>/dev/null || true)
		if [ -n "$p" ] && [ "$p" != "$1" ]; then break; fi
		sleep 0.1
	done
	echo "$p"
}
inside sh -c "ConfigSequenceNumber=0 systemd-run --quiet --scope --unit=enable_x --slice=azure-vmextensions-ortet.slice $folder/bin/ortet-node extension enable" >/dev/null
first=$(pid 0)
echo "control group $(inside sed -n 's/.*:name=systemd:\|^0:://p' "/proc/$first/cgroup" | sort -u)"
inside systemctl stop azure-vmextensions-ortet.slice
echo "after the agent's slice was stopped $(inside systemctl is-active ortet-extension-0.service)"
inside kill -9 "$first"
second=$(pid "$first")
echo "after a kill $([ "$second" != "$first" ] && inside systemctl is-active ortet-extension-0.service)"
inside sh -c 'mkdir -p /run/cluster-api && touch /run/cluster-api/bootstrap-success.complete'
for ((i = 0; i < 300; i++)); do
	status=$(sed 's/.*"status":{"status":"\([a-z]*\)".*/\1/' "$root$folder/status/0.status")
	if [ "$status" = success ]; then break; fi
	sleep 0.1
done
echo "status $status"
