// Command demo shows one capture from end to end, on this machine and without
// root: a Kubernetes API server in memory, or with CONTROLPLANE=real Kubernetes' own
// programs; a simulated Azure whose pool has hollow nodes; and the real ortet. With -keep it makes that world and keeps it for the
// user's own commands until Ctrl-C. It cleans up after itself, also after Ctrl-C.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	keep := flag.Bool("keep", false, "keep the world for commands of one's own, until Ctrl-C")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "demo: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	// A terminal or a pipe that is closed ends it, too. The second Ctrl-C ends it at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Stdout, os.Getenv("CONTROLPLANE"), *keep)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}
