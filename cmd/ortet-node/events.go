package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/node/events"
	"github.com/ortet/ortet/internal/node/join"
)

const eventsSettings = "/etc/ortet/events.json"

const eventsHelp = `Usage: ortet-node events [FLAGS]

Watches Azure's scheduled events for this machine. Before an event the node is
removed from load balancers, cordoned and drained within the time left; then the
event is acknowledged. Runs until SIGTERM; the next run resumes unfinished work.

Settings are read from ` + eventsSettings + ` and the admission server's from
` + join.SettingsFile + `, if they exist; flags override them. Without
an admission server, or with invalid settings for it (logged), the node drains
itself with the kubelet's credentials, and leave means drain. Changed settings
of the admission server are loaded again.

Exit codes: 0 ended by a signal; 64 wrong usage or settings.

Flags:
`

// eventsFlags is the command line.
type eventsFlags struct {
	file, joinFile, root, state string
	metadata                    string
	rules                       map[events.Type]events.Rule
	freeze, ahead               int
	metrics, webhook, webhookCA string
	verbose                     bool

	settings events.Settings
	server   events.Server
	without  string // why there is no server, "" where there is one
	log      *slog.Logger
}

func (f *eventsFlags) define(fs *flag.FlagSet) {
	f.rules = map[events.Type]events.Rule{}
	fs.StringVar(&f.file, "config", "", "settings `FILE` (default "+eventsSettings+")")
	fs.StringVar(&f.joinFile, "join-settings", "", "settings `FILE` of the admission server (default "+join.SettingsFile+")")
	rule := func(set func(r *events.Rule, value string)) func(string) error {
		return func(s string) error {
			t, value, ok := strings.Cut(s, "=")
			if !ok || value == "" {
				return errors.New("want TYPE=VALUE")
			}
			r := f.rules[events.Type(t)]
			set(&r, value)
			f.rules[events.Type(t)] = r
			return nil
		}
	}
	fs.Func("action", "action before events of a type, `TYPE=leave|drain|cordon|ignore`; repeatable (default leave for Preempt and Terminate, drain for Reboot and Redeploy, cordon for Freeze)",
		rule(func(r *events.Rule, value string) { r.Do = events.Do(value) }))
	fs.Func("acknowledge", "acknowledge events of a type after the action, `TYPE=alone|always|never`; alone: if they name no other machine; repeatable (default alone if the node is drained, else never)",
		rule(func(r *events.Rule, value string) { r.Acknowledge = events.Acknowledge(value) }))
	fs.IntVar(&f.freeze, "ignore-freeze-below", events.DefaultIgnoreFreezeBelow, "limit in `SECONDS` below which a Freeze is only logged")
	fs.IntVar(&f.ahead, "ahead", events.DefaultAhead, "start the action this many `SECONDS` before an event that is announced earlier")
	fs.StringVar(&f.metrics, "metrics-file", "", "metrics `FILE`, ending in .prom, for node-exporter's textfile collector")
	fs.StringVar(&f.webhook, "webhook", "", "HTTPS `URL` to which every action is posted as JSON")
	fs.StringVar(&f.webhookCA, "webhook-ca", "", "PEM `FILE` of the CAs trusted for --webhook (default the system's)")
	fs.StringVar(&f.state, "state", "", "`FILE` in which unfinished work is stored (default "+events.StateFile+")")
	fs.StringVar(&f.root, "root", "", "`DIR` used as the node's root; for tests")
	metadataFlag(fs, &f.metadata)
	fs.BoolVar(&f.verbose, "verbose", false, "log every observation")
}

// complete reads the settings and puts the flags that were given over them.
func (f *eventsFlags) complete(given *flag.FlagSet) error {
	path := cmp.Or(f.file, bootstrap.Under(f.root, eventsSettings))
	s, err := events.LoadSettings(path)
	if err != nil && (f.file != "" || !errors.Is(err, fs.ErrNotExist)) {
		return err
	}
	if s.Rules == nil {
		s.Rules = map[events.Type]events.Rule{}
	}
	for t, r := range f.rules {
		whole := s.Rules[t]
		if r.Do != "" {
			whole.Do = r.Do
		}
		if r.Acknowledge != "" {
			whole.Acknowledge = r.Acknowledge
		}
		s.Rules[t] = whole
	}
	given.Visit(func(g *flag.Flag) {
		switch g.Name {
		case "ignore-freeze-below":
			s.IgnoreFreezeBelow = &f.freeze
		case "ahead":
			s.Ahead = f.ahead
		case "metrics-file":
			s.MetricsFile = f.metrics
		case "webhook":
			s.Webhook = f.webhook
		case "webhook-ca":
			s.WebhookCA = f.webhookCA
		}
	})
	f.settings = s
	return s.Validate()
}

// serverFile is where the admission server's settings are.
func (f *eventsFlags) serverFile() string {
	if f.joinFile == "" {
		return join.SettingsFile
	}
	return f.joinFile
}

// admission finds the admission server. A machine may have none; an error is that its
// settings cannot be used, so that there is none either.
func (f *eventsFlags) admission() error {
	f.server, f.without = nil, "there is no "+f.serverFile()
	s, err := join.ReadSettings(f.root, f.serverFile())
	if f.joinFile == "" && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var client *join.Client
	if err == nil {
		client, err = join.NewClient(s, join.Options{Root: f.root, Metadata: f.metadata, Log: f.log})
	}
	if err != nil {
		err = fmt.Errorf("the admission server's settings in %s: %w", f.serverFile(), err)
		f.without = err.Error()
		return err
	}
	f.server, f.without = newDeparture(client, s.Distribution), ""
	return nil
}

// stamp tells one state of a file from another.
func stamp(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return "" // not there, as far as anybody could read it
	}
	return fmt.Sprint(info.ModTime().UnixNano(), info.Size())
}

func runEvents(ctx context.Context, args []string, std stdio) int {
	var f eventsFlags
	fs := flagsOf("events")
	f.define(fs)
	seen := ""
	if code, ok := parse(fs, eventsHelp, args, std, func() error { return nil }, func() (err error) {
		level := slog.LevelInfo
		if f.verbose {
			level = slog.LevelDebug
		}
		f.log = slog.New(slog.NewTextHandler(std.err, &slog.HandlerOptions{Level: level}))
		if f.joinFile, err = fromHere(f.root, f.joinFile); err != nil {
			return err
		}
		seen = stamp(bootstrap.Under(f.root, f.serverFile()))
		err = f.admission()
		if f.joinFile == "" {
			err = nil // what can be done without is done, and said below
		}
		return errors.Join(f.complete(fs), err)
	}); !ok {
		return code
	}
	f.state = cmp.Or(f.state, bootstrap.Under(f.root, events.StateFile))
	tell := events.Notifier(os.Getenv("NOTIFY_SOCKET"))
	for {
		f.watch(ctx, seen, tell)
		if ctx.Err() != nil {
			return exitOK
		}
		f.log.Info("the admission server's settings have changed")
		seen = stamp(bootstrap.Under(f.root, f.serverFile()))
		_ = f.admission() // watch says what there is not
	}
}

// watch runs the daemon until it is told to end, or the admission server's settings
// are others than those seen.
func (f *eventsFlags) watch(ctx context.Context, seen string, tell func(string)) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	status := "STATUS=Watching scheduled events"
	if f.without != "" {
		status += " without an admission server: " + strings.ReplaceAll(f.without, "\n", "; ")
		f.log.Warn("without an admission server: the node drains itself, and leave is drain", "why", f.without)
	}
	_, vmID, bootID := bootstrap.Identify(f.root)
	events.Run(ctx, events.Options{
		Settings: f.settings, State: f.state, VMID: vmID, BootID: bootID, Metadata: events.Metadata(f.metadata), Server: f.server, Log: f.log,
		Kubernetes: bootstrap.APIServer(f.root).Ask,
		Ready:      func() { tell("READY=1\n" + status) },
		Alive: func() {
			tell("WATCHDOG=1")
			if stamp(bootstrap.Under(f.root, f.serverFile())) != seen {
				end()
			}
		},
	})
}
