// Package port finds ports for what cannot be told to listen at any that is free.
package port

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
)

// Kernels give ports from 32768 on to whoever asks for any, Linux, or from 49152 on.
// Those below are shared out to processes, so that of two that run at the same time
// each has its own.
const (
	first     = 10000
	each      = 32
	processes = 700
)

// given counts what was given. It is a package variable because a Go test binary
// offers its tests nothing else to share.
var given atomic.Int32

// Loopback returns an address on loopback with a port that Free gives.
func Loopback(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(Free(t)))
}

// Free returns a port at which nothing listens, on no address, and that goes to nobody
// else while the test begins to listen there.
func Free(t testing.TB) int {
	t.Helper()
	var last error
	for range each {
		port := first + os.Getpid()%processes*each + int(given.Add(1))%each
		l, err := net.Listen("tcp", ":"+strconv.Itoa(port))
		if err != nil {
			last = err
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return port
	}
	t.Fatal(fmt.Errorf("no port is free: %w", last))
	return 0
}
