package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
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
	run           func(ctx context.Context, args []string, std stdio) int
}

// commands is the table of subcommands; each has a file of its own.
func commands() []command {
	return []command{
		{"wait", "wait until it is known whether this node came up, and say why not", runWait},
		{"extension", "the commands of the Azure VM extension", runExtension},
		{"generalize", "remove a node's identity from a copy of its disk", runGeneralize},
	}
}

// flagsOf makes a command's flags, whose help is told on standard error.
func flagsOf(name, help string, std stdio) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(std.err)
	fs.Usage = func() {
		_, _ = io.WriteString(std.err, help)
		fs.PrintDefaults()
	}
	return fs
}

// parse reads a command line. Where ok is false it has told what is wrong, or
// the help, and code is what to exit with.
func parse(fs *flag.FlagSet, args []string) (code int, ok bool) {
	switch err := fs.Parse(args); {
	case err == nil:
		return exitOK, true
	case errors.Is(err, flag.ErrHelp):
		return exitOK, false
	}
	return exitUsage, false
}

func usage(w io.Writer) {
	_, _ = fmt.Fprint(w, "Usage: ortet-node COMMAND [FLAGS]\n\nCommands:\n")
	for _, c := range commands() {
		_, _ = fmt.Fprintf(w, "  %-12s %s\n", c.name, c.summary)
	}
	_, _ = fmt.Fprint(w, "\nortet-node COMMAND --help tells a command's flags and exit codes.\n")
}
