// Command demo shows one capture from end to end, on this machine and without
// root: a real Kubernetes control plane, a simulated Azure whose pool has hollow
// nodes, and the real ortet. It cleans up after itself, also after Ctrl-C.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}
