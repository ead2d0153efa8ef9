// Command demo shows one capture from end to end, on this machine and without
// root: a Kubernetes API server in memory, or with CONTROLPLANE=real Kubernetes' own
// programs; a simulated Azure whose pool has hollow nodes; and the real ortet. With -keep it
// makes that world and keeps it for the user's own commands until Ctrl-C: its nodes report a
// recorded boot, and with BAD set the image of one of them breaks. With CLUSTER set it is
// an Azure with nothing in it, for ortet cluster. It cleans up after itself, also after
// Ctrl-C.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

func main() {
	keep := flag.Bool("keep", false, "keep the world for commands of one's own, until Ctrl-C")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "demo: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	// A terminal that is closed ends it, too. The second Ctrl-C ends it at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	pipes := make(chan os.Signal, 1)
	signal.Notify(pipes, syscall.SIGPIPE)
	go func() {
		for range pipes {
			if closed(os.Stdout) {
				stop()
			}
		}
	}()
	play := run
	if *keep && os.Getenv("CLUSTER") != "" {
		play = elastic
	}
	err := play(ctx, os.Stdout, plot{controlPlane: os.Getenv("CONTROLPLANE"), canary: os.Getenv("CANARY"), bad: os.Getenv("BAD") != "", fresh: os.Getenv("FRESH") != "", pool: os.Getenv("POOL"), keep: *keep})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// closed reports whether the reader of a pipe has gone. A connection that its peer
// reset raises SIGPIPE as well, once a program listens to it (os/signal's doc).
func closed(pipe *os.File) bool {
	fds := []unix.PollFd{{Fd: int32(pipe.Fd())}}
	_, err := unix.Poll(fds, 0)
	return err == nil && fds[0].Revents&unix.POLLERR != 0
}
