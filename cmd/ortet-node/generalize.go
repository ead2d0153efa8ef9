package main

import (
	"context"
	"crypto/ecdh"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/node/generalize"
	"github.com/ortet/ortet/internal/wire"
)

// Exit codes of generalize, by the report's outcome. They are stable.
const (
	exitFailed       = 1 // Failed: something went wrong; run it again or look
	exitSecretsFound = 3 // SecretsFound: the report's findings say what
	exitDiskRefused  = 4 // DiskRefused: nothing was changed
)

const generalizeHelp = `Usage: ortet-node generalize --root DIR FLAGS
       ortet-node generalize --lun N --host DIR FLAGS

Removes from a copy of a donor's OS disk what makes it that node, and scans it
for secrets. Never run it on the disk of a node that is to live on. Standard
output carries JSON lines: progress, and last the report.

Exit codes: 0 generalized; 1 failed; 3 secrets found; 4 disk refused, nothing
changed; 64 wrong usage.

Flags:
`

// generalizeFlags is the command line, still unchecked.
type generalizeFlags struct {
	root, host, controller  string
	lun                     int
	capture, donor, at      string
	bootstrap, sealTo       string
	addresses               []netip.Addr
	accept, dryRun, inspect bool
	acceptSecrets           []string
	removeSecrets, images   bool
	wait                    time.Duration
	verbose                 bool
}

func (f *generalizeFlags) define(fs *flag.FlagSet) {
	fs.StringVar(&f.root, "root", "", "work on the tree at `DIR`, a disk that is mounted already")
	fs.IntVar(&f.lun, "lun", -1, "find the data disk at LUN `N` of the host")
	fs.StringVar(&f.host, "host", "/", "the host's root is `DIR`")
	fs.StringVar(&f.controller, "controller", "auto", "the disk's controller, `auto|scsi|nvme`")
	f.wait = 2 * time.Minute
	fs.Var((*duration)(&f.wait), "wait", "wait for `TIME` for the disk to show up")
	fs.StringVar(&f.capture, "capture", "", "`NAME` of the capture")
	fs.StringVar(&f.donor, "donor", "", "the donor's `NODE` name")
	fs.StringVar(&f.at, "at", "", "when the capture was begun, `RFC3339`")
	fs.StringVar(&f.bootstrap, "bootstrap", string(generalize.Keep), "how clones join, `keep|baked`: customData runs again, or by what is on the disk")
	fs.StringVar(&f.sealTo, "seal-to", "", "X25519 public key, `BASE64`, to seal saved data to")
	fs.Func("donor-address", "an `IP` address of the donor; may be repeated or comma-separated", func(s string) error {
		for p := range strings.SplitSeq(s, ",") {
			a, err := netip.ParseAddr(strings.TrimSpace(p))
			if err != nil {
				return err
			}
			f.addresses = append(f.addresses, a)
		}
		return nil
	})
	fs.BoolVar(&f.accept, "accept-pool-credentials", false, "let credentials pass that all nodes of the pool share")
	fs.Func("accept-secret", "let another secret pass at `PATH`, a file or a folder that ends in /; may be repeated", func(s string) error {
		f.acceptSecrets = append(f.acceptSecrets, s)
		return nil
	})
	fs.BoolVar(&f.removeSecrets, "remove-secrets", false, "delete files with other secrets, where the node does not need them to boot")
	fs.BoolVar(&f.images, "scan-images", false, "search image layers for all kinds of secrets, not for the node's own only")
	fs.BoolVar(&f.dryRun, "dry-run", false, "change nothing; report what would be removed and found")
	fs.BoolVar(&f.inspect, "inspect", false, "the tree is the root of a running node: change nothing; report what a copy of its disk would be refused for, with limits on time, files and bytes")
	fs.BoolVar(&f.verbose, "verbose", false, "log every path that is removed")
}

// options checks the flags and says all that is wrong at once.
func (f *generalizeFlags) options() (generalize.Options, error) {
	o := generalize.Options{
		Capture: f.capture, Donor: f.donor, DonorAddresses: f.addresses,
		AcceptPoolCredentials: f.accept, AcceptSecrets: f.acceptSecrets, RemoveSecrets: f.removeSecrets, ScanImages: f.images, Bootstrap: generalize.Bootstrap(f.bootstrap), DryRun: f.dryRun || f.inspect, Inspect: f.inspect,
	}
	var problems []error
	if f.at != "" {
		at, err := time.Parse(time.RFC3339, f.at)
		if err != nil {
			problems = append(problems, fmt.Errorf("--at %q: want RFC 3339", f.at))
		}
		o.At = at
	}
	if f.sealTo != "" {
		raw, err := base64.StdEncoding.DecodeString(f.sealTo)
		if err == nil {
			o.SealTo, err = ecdh.X25519().NewPublicKey(raw)
		}
		if err != nil {
			problems = append(problems, errors.New("--seal-to: want 32 bytes of X25519 public key in base64"))
		}
	}
	if (f.root == "") == (f.lun < 0) {
		problems = append(problems, errors.New("want one of --root and --lun"))
	}
	if f.controller != "auto" && f.controller != "scsi" && f.controller != "nvme" {
		problems = append(problems, fmt.Errorf("--controller %q: want auto, scsi or nvme", f.controller))
	}
	return o, errors.Join(append(problems, o.Validate())...)
}

func runGeneralize(ctx context.Context, args []string, std stdio) int {
	var f generalizeFlags
	fs := flagsOf("generalize")
	f.define(fs)
	var o generalize.Options
	// On standard output there are JSON lines only.
	if code, ok := parse(fs, generalizeHelp, args, stdio{out: std.err, err: std.err}, func() (err error) {
		o, err = f.options()
		return err
	}); !ok {
		return code
	}
	level := slog.LevelInfo
	if f.verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(std.err, &slog.HandlerOptions{Level: level}))
	lines := json.NewEncoder(std.out)
	progress := func(text string) {
		if err := lines.Encode(wire.GeneralizeLine{Progress: text}); err != nil {
			log.Warn("cannot write progress", "error", err)
		}
	}
	report := generalizeDisk(ctx, f, o, progress, log)
	if err := lines.Encode(wire.GeneralizeLine{Report: &report}); err != nil {
		log.Error("cannot write the report", "error", err)
		return exitFailed
	}
	return exitOf(report.Outcome)
}

func exitOf(outcome wire.GeneralizeOutcome) int {
	switch outcome {
	case wire.Generalized:
		return exitOK
	case wire.SecretsFound:
		return exitSecretsFound
	case wire.DiskRefused:
		return exitDiskRefused
	default:
		return exitFailed
	}
}
