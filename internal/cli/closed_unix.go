//go:build unix

package cli

import (
	"os"
	"os/signal"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// OnClosedPipe calls end when something is written to one of the files whose reader has gone;
// the write fails then, and the process goes on. A connection that its peer reset raises SIGPIPE
// as well, once a program listens to it (os/signal's doc).
func OnClosedPipe(end func(), files ...*os.File) {
	pipes := make(chan os.Signal, 1)
	signal.Notify(pipes, syscall.SIGPIPE)
	go func() {
		for range pipes {
			if slices.ContainsFunc(files, isClosedPipe) {
				end()
			}
		}
	}()
}

func isClosedPipe(f *os.File) bool {
	fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLOUT}}
	_, err := unix.Poll(fds, 0)
	return err == nil && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}
