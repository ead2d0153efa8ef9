// Command ortet-node is Ortet's agent on a node: small, static, and usable
// before anything else runs.
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
	code := run(ctx, os.Args[1:], stdio{out: os.Stdout, err: os.Stderr})
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, std stdio) int {
	if len(args) > 0 {
		for _, c := range commands() {
			if c.name == args[0] {
				return c.run(ctx, args[1:], std)
			}
		}
		if args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
			usage(std.out)
			return exitOK
		}
		return wrongUsage(std, "", fmt.Errorf("unknown command %q: want %s", args[0], commandNames()))
	}
	usage(std.err)
	return exitUsage
}
