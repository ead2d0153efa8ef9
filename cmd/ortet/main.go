// Command ortet captures the OS disk of a node that works and makes it the
// recipe for its pool's new nodes.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/ortet/ortet/internal/cli"
)

// version is set when it is built.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Run(ctx, os.Args[1:], cli.Process{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Version: version, Restore: stop,
	})
	stop()
	os.Exit(code)
}
