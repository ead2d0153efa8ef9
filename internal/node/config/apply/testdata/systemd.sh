#!/bin/bash
# systemd.sh runs a test program on a machine that is nothing but a real systemd.
#
#   systemd.sh IMAGE PROGRAM WORKFOLDER NAME
set -euo pipefail
image=$1 program=$2 work=$3 name=$4
. "$(dirname "$0")/../../../../../hack/lab/systemd.sh"

unpack machine
install -m 755 "$program" "$root/usr/local/bin/machine.test"
boot
booted
[ "$state" = active ] || { echo "multi-user.target $state" >&2; exit 1; }
timeout 120 runc --root "$work/runc" exec --env ORTET_TEST_MACHINE=1 "$name" /usr/local/bin/machine.test -test.run '^TestOnMachine$'
