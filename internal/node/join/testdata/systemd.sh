#!/bin/bash
# systemd.sh boots systemd from the lab's disk image in a container with the shipped
# units, a kubelet that does nothing, and Azure and an admission server in one
# process beside it. It prints what is seen on the way, one fact a line.
#
#   systemd.sh IMAGE AGENT WORLD WORKFOLDER NAME
set -euo pipefail
image=$1 agent=$2 world=$3 work=$4 name=$5
deploy=$(cd "$(dirname "$0")/../../../../deploy/systemd" && pwd)
. "$(dirname "$0")/../../../../hack/lab/systemd.sh"

unpack pool100000A
units=$root/etc/systemd/system
mkdir -p "$units/kubelet.service.d"
install -m 755 "$agent" "$root/usr/local/bin/ortet-node"
install -m 755 "$world" "$root/usr/local/bin/world"
for unit in ortet-join ortet-leave ortet-left ortet-events; do
	install -m 644 "$deploy/$unit.service" "$units/"
	ln -s "../$unit.service" "$units/multi-user.target.wants/"
done
install -m 644 "$deploy/kubelet.service.d/20-ortet.conf" "$units/kubelet.service.d/"
rm -f "$root"/usr/lib/systemd/system/kubelet.service.d/*
cat >"$units/kubelet.service" <<'UNIT'
[Unit]
Wants=network-online.target
After=network-online.target
[Service]
ExecStart=/usr/bin/kubelet
Restart=always
RestartSec=1
UNIT
ln -s ../kubelet.service "$units/multi-user.target.wants/"
cat >"$root/usr/bin/kubelet" <<'PROGRAM'
#!/bin/sh
echo "kubelet $*" >>/var/log/facts
exec sleep infinity
PROGRAM
chmod 755 "$root/usr/bin/kubelet"
# The platform: up before anything of ours, and until the machine is off.
cat >"$units/world.service" <<'UNIT'
[Unit]
DefaultDependencies=no
After=local-fs.target
Before=network-online.target
Wants=network-online.target
[Service]
Type=oneshot
RemainAfterExit=yes
Environment=ORTET_TEST_WORLD=1
ExecStartPre=/bin/ip link set lo up
ExecStartPre=/bin/ip addr add 169.254.169.254/32 dev lo
ExecStart=/bin/sh -c 'setsid /usr/local/bin/world -test.run=^TestServe$ -test.timeout=10m >/var/log/world 2>&1 & until test -e /run/world; do sleep 0.1; done'
KillMode=none
UNIT
ln -s ../world.service "$units/multi-user.target.wants/"

# until waits for what the rest of its arguments say, for a minute.
until_() {
	local i
	for ((i = 0; i < 600; i++)); do
		if "$@" >/dev/null 2>&1; then return; fi
		sleep 0.1
	done
	echo "not within a minute: $*"
	{ inside systemctl list-jobs; inside systemctl status ortet-join kubelet world ortet-leave ortet-left; cat "$root/var/log/world" "$root/var/log/facts"; } >&2 || true
	exit 1
}
state() { inside systemctl show --property=ActiveState --value "$1"; }
is() { [ "$(state "$1")" = "$2" ]; }
off() { # ends the machine and waits until it is off
	inside systemctl "$1" >/dev/null 2>&1 || true
	until_ sh -c "! runc --root '$work/runc' state '$name' 2>/dev/null | grep -q running"
	runc --root "$work/runc" delete -f "$name"
}

# A machine that nobody admits yet.
mkdir -p "$root/etc/ortet"
touch "$root/etc/ortet/refuse"
boot
until_ grep -q refused "$root/var/log/facts"
echo "refused: join $(state ortet-join.service), kubelet $(state kubelet.service), sysinit $(state sysinit.target)"
pid=$(inside systemctl show --property=MainPID --value ortet-join.service)
inside kill -9 "$pid"
rm "$root/etc/ortet/refuse"
until_ is kubelet.service active
echo "admitted: join $(state ortet-join.service), multi-user $(state multi-user.target)"
echo "files: $(cd "$root" && stat -c '%n %a' etc/kubernetes/bootstrap-kubelet.conf var/lib/ortet/identity.json | tr '\n' ' ')"
echo restart >>"$root/var/log/facts"
off reboot
# It comes back while nobody admits.
touch "$root/etc/ortet/refuse"
boot
until_ is kubelet.service active
echo "back: join $(state ortet-join.service)"
rm "$root/etc/ortet/refuse"
until_ is ortet-leave.service active
until_ is ortet-left.service active
inside systemctl restart ortet-leave.service ortet-left.service
until_ is kubelet.service active
echo power-off >>"$root/var/log/facts"
off poweroff
grep -v refused "$root/var/log/facts"
grep -o '"state": "[a-z]*"' "$root/var/lib/ortet/identity.json"

# A machine that is evicted while nobody admits it yet.
: >"$root/var/log/facts"
echo /v1/join >"$root/etc/ortet/refuse"
boot
until_ grep -q 'refused /v1/join' "$root/var/log/facts"
cat >"$root/etc/ortet/scheduled" <<JSON
{"DocumentIncarnation":2,"Events":[{"EventId":"E1","EventType":"Preempt","EventStatus":"Scheduled","Resources":["pool1_10"],"NotBefore":"$(date --utc --date '30 seconds' +'%a, %d %b %Y %H:%M:%S GMT')"}]}
JSON
until_ grep -q acknowledged "$root/var/log/facts"
echo "evicted: kubelet $(state kubelet.service), join $(state ortet-join.service)"
rm "$root/etc/ortet/refuse"
inside systemctl --no-block start kubelet.service
until_ is ortet-join.service activating
sleep 4 # longer than it pauses between its first tries
echo "started again: kubelet $(state kubelet.service), join $(state ortet-join.service), admitted $(grep -c '^/v1/join' "$root/var/log/facts" || true) times"
inside rm /run/ortet/leaving
until_ is kubelet.service active
echo "released: join $(state ortet-join.service)"
grep -v refused "$root/var/log/facts"
# An agent that ends is looked at again: with a good certificate nobody is asked; where
# its token ended before it was used it gets another.
kill_kubelet() {
	local before after
	before=$(inside systemctl show --property=MainPID --value kubelet.service)
	inside kill -9 "$before"
	until_ kubelet_after "$before"
}
kubelet_after() {
	after=$(inside systemctl show --property=MainPID --value kubelet.service)
	[ "$after" != 0 ] && [ "$after" != "$1" ] && is kubelet.service active
}
kill_kubelet
echo "once more: admitted $(grep -c '^/v1/join' "$root/var/log/facts" || true) times"
rm "$root/etc/kubernetes/kubelet.conf"
sed -i 's/"tokenEnds": "[^"]*"/"tokenEnds": "2026-01-01T00:00:00Z"/' "$root/var/lib/ortet/identity.json"
kill_kubelet
echo "without a certificate: admitted $(grep -c '^/v1/join' "$root/var/log/facts" || true) times"
# Settings that cannot be used, of its own and of the server.
echo '{"reboot":1}' >"$root/etc/ortet/events.json"
inside systemctl restart ortet-events.service >/dev/null 2>&1 || true
until_ is ortet-events.service failed
sleep 5
echo "wrong settings: events $(state ortet-events.service), started again $(inside systemctl show --property=NRestarts --value ortet-events.service) times"
rm "$root/etc/ortet/events.json"
echo '{}' >"$root/etc/ortet/join.json"
inside systemctl start ortet-events.service
echo "no server: events $(state ortet-events.service), $(inside systemctl show --property=StatusText --value ortet-events.service | grep -o 'without an admission server')"
