package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/node/join"
)

const joinHelp = `Usage: ortet-node join [FLAGS]

Prepares this machine to join the cluster: removes an identity that a copied
disk brought along, proves the machine's own to the admission server, and writes
the settings with which the kubelet, k3s or RKE2 joins. Retries until it
succeeds, and logs why. On a node that has joined before it exits at once,
without a request.

Settings are read from ` + join.SettingsFile + ` if it exists; flags override
it.

Exit codes: 0 done; 64 wrong usage or settings; 124 deadline exceeded; 1 else.

Flags:
`

// joinFlags is the command line of join and leave.
type joinFlags struct {
	file, root string
	metadata   string
	given      join.Settings
	verbose    bool

	settings join.Settings
}

func (f *joinFlags) define(fs *flag.FlagSet) {
	fs.StringVar(&f.file, "settings", "", "settings `FILE` (default "+join.SettingsFile+")")
	fs.Func("server", "`URL` of the admission server; repeatable", func(s string) error {
		f.given.Servers = append(f.given.Servers, s)
		return nil
	})
	fs.StringVar(&f.given.CAHash, "ca-hash", "", "hash of the public key of the admission servers' CA, `sha256:HEX`")
	fs.StringVar(&f.given.Distribution, "distribution", "", "agent that joins: `kubelet|k3s|rke2`")
	fs.StringVar(&f.root, "root", "", "`DIR` used as the node's root; for tests")
	metadataFlag(fs, &f.metadata)
	fs.BoolVar(&f.verbose, "verbose", false, "log every observation")
}

// metadataFlag lets a test have a metadata service of its own.
func metadataFlag(fs *flag.FlagSet, service *string) {
	fs.StringVar(service, "metadata-service", "", "`URL` of Azure's metadata service; for tests")
}

// fromHere is a file that the command line names, as seen from the node's root: of
// this system's it is where a shell would find it.
func fromHere(root, file string) (string, error) {
	if root != "" || file == "" {
		return file, nil
	}
	return filepath.Abs(file)
}

// complete reads the settings and puts the flags over them.
func (f *joinFlags) complete() error {
	file, err := fromHere(f.root, f.file)
	if err != nil {
		return err
	}
	file = cmp.Or(file, join.SettingsFile)
	s, err := join.ReadSettings(f.root, file)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && (f.file != "" || !missing) {
		return err
	}
	if missing && len(f.given.Servers) == 0 && f.given.CAHash == "" && f.given.Distribution == "" {
		return fmt.Errorf("there is no %s: write it, docs/reference/ortet-node-join.md lists what goes into it; "+
			"or give --server, --ca-hash and --distribution", file)
	}
	if len(f.given.Servers) > 0 {
		s.Servers = f.given.Servers
	}
	if f.given.CAHash != "" {
		s.CAHash = f.given.CAHash
	}
	if f.given.Distribution != "" {
		s.Distribution = f.given.Distribution
	}
	if f.given.CallbackPort != 0 {
		s.CallbackPort = f.given.CallbackPort
	}
	if f.settings, err = s.Complete(); err != nil && missing {
		return fmt.Errorf("the settings, of flags alone, since there is no %s: %w", file, err)
	} else if err != nil {
		return fmt.Errorf("the settings, of %s and flags: %w", file, err)
	}
	return nil
}

func (f *joinFlags) client(std stdio) (*join.Client, error) {
	level := slog.LevelInfo
	if f.verbose {
		level = slog.LevelDebug
	}
	return join.NewClient(f.settings, join.Options{Root: f.root, Metadata: f.metadata, Log: slog.New(slog.NewTextHandler(std.err, &slog.HandlerOptions{Level: level}))})
}

func runJoin(ctx context.Context, args []string, std stdio) int {
	var f joinFlags
	var deadline time.Duration
	var once bool
	fs := flagsOf("join")
	f.define(fs)
	fs.IntVar(&f.given.CallbackPort, "callback-port", 0, fmt.Sprintf("`PORT` on which the server's callback is answered (default %d)", join.DefaultCallbackPort))
	fs.Var((*duration)(&deadline), "deadline", "longest `TIME` to retry; 0: no limit")
	fs.BoolVar(&once, "once", false, "try once, without retries")
	if code, ok := parse(fs, joinHelp, args, std, func() error {
		problem := onLinux()
		if deadline < 0 {
			problem = errors.Join(problem, errors.New("--deadline has to be 0 or more"))
		}
		return problem
	}, f.complete); !ok {
		return code
	}
	c, err := f.client(std)
	if err != nil {
		return failed(std, "join", err)
	}
	if deadline > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, deadline, fmt.Errorf("the deadline of %s has passed", deadline))
		defer stop()
	}
	err = c.Join(ctx, once)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		_ = failed(std, "join", err)
		return exitDeadline
	}
	return failed(std, "join", err)
}

// onLinux: the agents that join are set up by systemd's units and files below /etc.
func onLinux() error {
	if runtime.GOOS == "windows" {
		return errors.New("this is for nodes that run Linux")
	}
	return nil
}

// failed says what went wrong.
func failed(std stdio, command string, err error) int {
	_, _ = fmt.Fprintf(std.err, "ortet-node %s: %s\n", command, strings.ReplaceAll(err.Error(), "\n", "; "))
	return exitFailed
}

// toAdmission is a report's way to the admission server.
type toAdmission struct {
	wanted  bool
	service string // the metadata service
}

func (a *toAdmission) define(fs *flag.FlagSet) {
	fs.BoolVar(&a.wanted, "report-admission", false, "also report to the admission server of "+join.SettingsFile+", with the same proof as a join; for a node that cannot reach the API server")
	metadataFlag(fs, &a.service)
}

// tell tells it where that is wanted.
func (a *toAdmission) tell(ctx context.Context, root, path string, what any) error {
	if !a.wanted {
		return nil
	}
	s, err := join.ReadSettings(root, join.SettingsFile)
	var c *join.Client
	if err == nil {
		c, err = join.NewClient(s, join.Options{Root: root, Metadata: a.service})
	}
	var text []byte
	if err == nil {
		text, err = json.Marshal(what)
	}
	if err == nil {
		err = c.Report(ctx, path, text)
	}
	if err != nil {
		return fmt.Errorf("telling the admission server: %w", err)
	}
	return nil
}
