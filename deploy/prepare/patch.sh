#!/bin/sh
# Installs what the package manager of this machine has newer, and keeps what it is told to hold.
# Exit codes: 0 done; 10 done, and a restart is needed; any other failed.
set -eu
export LC_ALL=C DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a

has() { command -v "$1" >/dev/null 2>&1; }
kernels() { ls /lib/modules 2>/dev/null || :; }

before=$(kernels)
restart=
if has apt-get; then
	set -- -y -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold
	# A machine may update itself at its first boot: the timeout is for dpkg's lock, and not for that of
	# the lists. Without the error mode, apt-get ends with 0 where it reached no repository. With a
	# terminal, dpkg prints its progress.
	until text=$(apt-get "$@" -o APT::Update::Error-Mode=any update 2>&1); do
		echo "$text"
		case $text in *"Could not get lock "*) sleep 5 ;; *) exit 100 ;; esac
	done
	echo "$text"
	apt-get "$@" upgrade --with-new-pkgs
elif has zypper; then
	zypper --non-interactive refresh
	for try in 1 2; do
		code=0
		zypper --non-interactive update --auto-agree-with-licenses || code=$?
		case $code in
		0) break ;;
		102) restart=yes && break ;;
		103) ;; # zypper updated itself, and wants to be run again
		*) exit 1 ;;
		esac
	done
elif has tdnf; then
	tdnf -y --refresh update
elif has dnf; then
	dnf -y --refresh upgrade
else
	echo "no package manager was found: looked for apt-get, zypper, tdnf and dnf"
	exit 1
fi

# needs-restarting, of yum-utils, ends with 1 for a restart.
if [ -e /run/reboot-required ] || [ "$(kernels)" != "$before" ] || { has needs-restarting && ! needs-restarting -r >/dev/null; }; then
	restart=yes
fi
[ -z "$restart" ] || exit 10
