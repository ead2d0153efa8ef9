package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// Exit codes that every subcommand shares. A subcommand's own are in its file.
const (
	exitOK     = 0
	exitFailed = 1 // something went wrong; run it again or look
	exitUsage  = 64
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
		{"wait", "wait until this boot succeeded or failed, and print why", runWait},
		{"report", "collect a report of where the time of this boot went", runReport},
		{"events", "drain or leave before Azure's scheduled events", runEvents},
		{"extension", "commands of the Azure VM extension", runExtension},
		{"config", "apply the configuration in this machine's userData", runConfig},
		{"join", "prove this machine's identity, and write kubelet settings", runJoin},
		{"leave", "drain this node, stop its kubelet, and delete its Node", runLeave},
		{"generalize", "remove a node's identity from a copy of its disk", runGeneralize},
		{"patch", "update a node's packages before its disk is captured", runPatch},
		{"version", "show the version of this program", runVersion},
	}
}

// commandNames is "wait, report or join".
func commandNames() string {
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// flagsOf makes a command's flags; parse says what is wrong with them.
func flagsOf(name string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	return fs
}

// flagTable is the flags with what they mean, as wide as a terminal.
func flagTable(fs *flag.FlagSet) string {
	var names, texts []string
	width := 0
	fs.VisitAll(func(f *flag.Flag) {
		value, text := flag.UnquoteUsage(f)
		name := "-" + f.Name
		if len(f.Name) > 1 {
			name = "-" + name
		}
		name = strings.TrimSpace(name + " " + value)
		if value != "" && f.DefValue != "" && !strings.Contains(text, "(default ") {
			text += " (default " + f.DefValue + ")"
		}
		names, texts = append(names, name), append(texts, text)
		width = max(width, utf8.RuneCountInString(name))
	})
	var b strings.Builder
	for i, name := range names {
		wrap(&b, fmt.Sprintf("  %-*s  ", width, name), texts[i])
	}
	return b.String()
}

// duration is a flag's value.
type duration time.Duration

// String and Set make it a flag.Value.
func (d *duration) String() string { return time.Duration(*d).String() }

func (d *duration) Set(text string) error {
	t, err := time.ParseDuration(text)
	if err != nil {
		return errors.New("want a time such as 90s or 20m")
	}
	*d = duration(t)
	return nil
}

// parse reads a command line that has flags only, and then has it checked; settings
// come after, where nothing is wrong so far: what they lack may be in a flag that was
// misspelt. Where ok is false it has told all that is wrong, or the help, and code is
// what to exit with.
func parse(fs *flag.FlagSet, help string, args []string, std stdio, check func() error, settings ...func() error) (code int, ok bool) {
	var problems []error
	for len(args) > 0 {
		// It ends at each mistake.
		err := fs.Parse(args)
		if errors.Is(err, flag.ErrHelp) {
			_, _ = io.WriteString(std.out, help+flagTable(fs))
			return exitOK, false
		}
		args = fs.Args()
		if err == nil && len(args) > 0 {
			err, args = fmt.Errorf("unexpected argument %q", args[0]), args[1:]
		}
		problems = append(problems, err)
	}
	err := errors.Join(append(problems, check())...)
	for i := 0; i < len(settings) && err == nil; i++ {
		err = settings[i]()
	}
	if err != nil {
		return wrongUsage(std, fs.Name(), err), false
	}
	return exitOK, true
}

// wrongUsage says what is wrong with a command line, and where to read on. The
// help itself would be between that and the prompt.
func wrongUsage(std stdio, command string, err error) int {
	command = strings.TrimSpace("ortet-node " + command)
	_, _ = fmt.Fprintf(std.err, "%s: %v\nSee '%s --help'.\n", command, err, command)
	return exitUsage
}

func usage(w io.Writer) {
	_, _ = fmt.Fprint(w, "Usage: ortet-node COMMAND [FLAGS]\n\nCommands:\n")
	for _, c := range commands() {
		_, _ = fmt.Fprintf(w, "  %-12s %s\n", c.name, c.summary)
	}
	_, _ = fmt.Fprint(w, "\nortet-node COMMAND --help shows the flags and exit codes of a command.\n")
}
