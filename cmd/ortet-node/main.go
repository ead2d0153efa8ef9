// Command ortet-node is Ortet's agent on a node: small, static, and of use
// where nothing else runs yet.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes that every subcommand shares. A subcommand's own are in its file.
const (
	exitOK    = 0
	exitUsage = 64
)

// stdio is where a command reads and writes.
type stdio struct {
	out, err io.Writer
}

// command is one subcommand.
type command struct {
	name, summary string
	run           func(ctx context.Context, args []string, io stdio) int
}

func commands() []command {
	return []command{
		{"generalize", "remove a node's identity from a copy of its disk", runGeneralize},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], stdio{out: os.Stdout, err: os.Stderr})
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, io stdio) int {
	if len(args) > 0 {
		for _, c := range commands() {
			if c.name == args[0] {
				return c.run(ctx, args[1:], io)
			}
		}
		if args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
			usage(io.out)
			return exitOK
		}
		_, _ = fmt.Fprintf(io.err, "ortet-node: unknown command %q\n\n", args[0])
	}
	usage(io.err)
	return exitUsage
}

func usage(w io.Writer) {
	_, _ = fmt.Fprint(w, "Usage: ortet-node COMMAND [FLAGS]\n\nCommands:\n")
	for _, c := range commands() {
		_, _ = fmt.Fprintf(w, "  %-12s %s\n", c.name, c.summary)
	}
	_, _ = fmt.Fprint(w, "\nortet-node COMMAND --help tells a command's flags and exit codes.\n")
}
