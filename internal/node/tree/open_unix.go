//go:build unix

package tree

import "syscall"

// openFlags keep an open from following a last link, waiting on a FIFO, or
// making a terminal the process's own.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK | syscall.O_NOCTTY
