//go:build unix

package bootstrap

import "syscall"

// openFlags keep an open from waiting on a FIFO or making a terminal the
// process's own.
const openFlags = syscall.O_NONBLOCK | syscall.O_NOCTTY

// defaultState is where the verdict is kept, below the node's root.
const defaultState = "/var/lib/ortet/verdict.json"

// spareState is where it is kept where that has no room; it is lost in a reboot.
const spareState = "/run/ortet/verdict.json"

// errRefused means that no process listens on a port.
const errRefused = syscall.ECONNREFUSED
