package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/node/config"
	"github.com/ortet/ortet/internal/node/config/apply"
	"github.com/ortet/ortet/internal/node/config/files"
	"github.com/ortet/ortet/internal/node/events"
	"github.com/ortet/ortet/internal/wire"
)

const configHelp = `Usage: ortet-node config recover|boot|run|show [FLAGS]

Applies the configuration that 'ortet config push' wrote into this machine's
userData, and reports the result at its own Node.

  recover  restore the files that an interrupted application changed
  boot     apply the configuration before the agents start, within 10 seconds
  run      follow the userData until SIGTERM
  show     print what this node has, from its files

The public keys that sign accepted documents are in ` + config.SettingsFile + `.

'ortet-node config COMMAND --help' shows the flags and exit codes of a command.
`

// bootWithin bounds config boot: the kubelet waits for it.
const bootWithin = 10 * time.Second

// configFlags is the command line of each of its commands.
type configFlags struct {
	root, metadata, output string
	verbose                bool
}

func runConfig(ctx context.Context, args []string, std stdio) int {
	helps := map[string]string{
		"recover": "Restores the files that an interrupted application changed, before the agents\nstart. Without a journal it does nothing.\n\nExit codes: 0 done, or nothing to do; 1 failed; 64 wrong usage.\n",
		"boot":    "Reads the userData once and applies its document before the agents start. The\nhealth is judged later, by 'ortet-node config run'.\n\nExit codes: 0 always, so that the boot goes on; 64 wrong usage.\n",
		"run":     "Keeps the machine as its userData says, and reports at its own Node. Runs until\nSIGTERM.\n\nExit codes: 0 ended by a signal; 1 the node's store cannot be opened; 64 wrong\nusage.\n",
		"show":    "Prints the generation, the state and the drift of this node, from its files.\n\nExit codes: 0 done; 1 failed; 64 wrong usage.\n",
	}
	if len(args) == 0 || helps[args[0]] == "" {
		if len(args) > 0 && (args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
			_, _ = io.WriteString(std.out, configHelp)
			return exitOK
		}
		return wrongUsage(std, "config", errors.New("want recover, boot, run or show"))
	}
	var f configFlags
	fs := flagsOf("config " + args[0])
	f.define(fs, args[0])
	help := "Usage: ortet-node config " + args[0] + " [FLAGS]\n\n" + helps[args[0]] + "\nFlags:\n"
	code, ok := parse(fs, help, args[1:], std, func() error {
		if f.output != "" && f.output != "text" && f.output != "json" {
			return fmt.Errorf("-o %s: want text or json", f.output)
		}
		return nil
	})
	if !ok {
		return code
	}
	level := slog.LevelInfo
	if f.verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(std.err, &slog.HandlerOptions{Level: level}))
	err := f.run(ctx, args[0], std, log)
	if err != nil {
		log.Error("ortet-node config "+args[0], "error", err)
	}
	if err != nil && args[0] != "boot" {
		return exitFailed
	}
	return exitOK
}

func (f *configFlags) define(fs *flag.FlagSet, command string) {
	fs.StringVar(&f.root, "root", "", "`DIR` used as the node's root; for tests")
	if command == "boot" || command == "run" {
		metadataFlag(fs, &f.metadata)
	}
	if command == "show" {
		fs.StringVar(&f.output, "o", "text", "output format `text|json`")
	}
	fs.BoolVar(&f.verbose, "verbose", false, "log every observation")
}

func (f *configFlags) run(ctx context.Context, command string, std stdio, log *slog.Logger) error {
	settings, err := config.LoadSettings(f.root)
	if err != nil {
		log.Error("no document will be accepted", "error", err)
	}
	machine, err := files.OS(cmp.Or(f.root, bootstrap.DefaultRoot()))
	if err != nil {
		return err
	}
	store, err := files.Open(machine)
	if err != nil {
		return err
	}
	node := bootstrap.APIServer(f.root)
	applier := apply.New(apply.Options{
		Root: cmp.Or(f.root, bootstrap.DefaultRoot()), Files: store, System: apply.Machine(), KubeletConfigDir: settings.KubeletConfigDir,
		Heartbeat: config.Heartbeat(node, time.Now), Now: time.Now, Log: log, Boot: command == "boot",
	})
	o := config.Options{Root: f.root, Metadata: cmp.Or(f.metadata, bootstrap.MetadataService), Store: store, Applier: applier, Kubernetes: node, Now: time.Now, Log: log}
	switch command {
	case "recover":
		restored, err := config.Recover(ctx, f.root, store, applier)
		if err == nil && restored {
			log.Info("restored the files that an interrupted application had changed")
		}
		return err
	case "boot":
		ctx, cancel := context.WithTimeout(ctx, bootWithin)
		defer cancel()
		answer, ok, err := config.Boot(ctx, o)
		if err == nil && ok {
			log.Info("configuration", "state", answer.State, "reason", answer.Reason, "generation", answer.Generation, "wanted", answer.Wanted, "message", answer.Message)
		}
		return err
	case "run":
		notify := events.Notifier(os.Getenv("NOTIFY_SOCKET"))
		o.Ready = func() { notify("READY=1\nSTATUS=Following the userData") }
		config.Run(ctx, o)
		return nil
	}
	answer, err := config.Show(o)
	if err != nil {
		return err
	}
	if f.output == "json" {
		return json.NewEncoder(std.out).Encode(answer)
	}
	return printConfiguration(std.out, answer)
}

// printConfiguration is an answer for a person.
func printConfiguration(w io.Writer, a wire.ConfigurationAnswer) error {
	var b strings.Builder
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-12s%s\n", name, value)
		}
	}
	row("Generation", fmt.Sprint(a.Generation))
	row("Digest", a.Digest)
	if a.Wanted != a.Generation {
		row("Wanted", fmt.Sprint(a.Wanted))
	}
	row("State", string(a.State))
	row("Reason", a.Reason)
	row("Message", a.Message)
	row("Drift", strings.Join(a.Drift, ", "))
	_, err := io.WriteString(w, b.String())
	return err
}
