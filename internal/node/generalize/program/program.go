// Package program is ortet-node generalize as a function: its flags, the disk that they
// name, and what it prints. The simulation of captures runs it in the pods that it plays.
package program

import (
	"context"
	"crypto/ecdh"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/node/generalize"
	"github.com/ortet/ortet/internal/wire"
)

// Exit codes, by the report's outcome. They are stable.
const (
	ExitGeneralized  = 0 // Generalized
	ExitFailed       = 1 // Failed: something went wrong; run it again or look
	ExitSecretsFound = 3 // SecretsFound: the report's findings say what
	ExitDiskRefused  = 4 // DiskRefused: nothing was changed
)

// Flags is the command line, still unchecked.
type Flags struct {
	root, host, controller  string
	lun                     int
	capture, donor, at      string
	bootstrap, sealTo       string
	addresses               []netip.Addr
	accept, dryRun, inspect bool
	flush                   bool
	online                  time.Time
	acceptSecrets           []string
	removeSecrets, images   bool
	tune                    []string
	wait                    time.Duration
	verbose                 bool
}

// Define adds the flags to a set.
func (f *Flags) Define(fs *flag.FlagSet) {
	fs.StringVar(&f.root, "root", "", "`DIR` at which the disk is mounted already")
	fs.IntVar(&f.lun, "lun", -1, "LUN `N` of the data disk on the host")
	fs.StringVar(&f.host, "host", "/", "`DIR` of the host's root")
	fs.StringVar(&f.controller, "controller", "auto", "controller of the disk, `auto|scsi|nvme`")
	f.wait = 2 * time.Minute
	fs.Func("wait", "longest `TIME` to wait for the disk (default 2m0s)", func(s string) (err error) {
		if f.wait, err = time.ParseDuration(s); err != nil {
			return errors.New("want a time such as 90s or 20m")
		}
		return nil
	})
	fs.StringVar(&f.capture, "capture", "", "`NAME` of the capture")
	fs.StringVar(&f.donor, "donor", "", "name of the donor `NODE`")
	fs.StringVar(&f.at, "at", "", "start time of the capture, `RFC3339`")
	fs.StringVar(&f.bootstrap, "bootstrap", string(generalize.Keep), "how clones join, `keep|baked`: by customData again, or by what is on the disk")
	fs.StringVar(&f.sealTo, "seal-to", "", "X25519 public key that encrypts saved data, `BASE64`")
	fs.Func("donor-address", "`IP` address of the donor; repeatable or comma-separated", func(s string) error {
		for p := range strings.SplitSeq(s, ",") {
			a, err := netip.ParseAddr(strings.TrimSpace(p))
			if err != nil {
				return err
			}
			f.addresses = append(f.addresses, a)
		}
		return nil
	})
	fs.BoolVar(&f.accept, "accept-pool-credentials", false, "accept the credentials that all nodes of the pool share")
	fs.Func("accept-secret", "`PATH` of another secret to accept, or of a folder, ending in /; repeatable", func(s string) error {
		f.acceptSecrets = append(f.acceptSecrets, s)
		return nil
	})
	fs.BoolVar(&f.removeSecrets, "remove-secrets", false, "delete files with other secrets, unless nodes need them to boot")
	fs.BoolVar(&f.images, "scan-images", false, "search container image layers for all kinds of secrets, not only for the node's own")
	fs.Func("tune", "`NAMES` of what to add so that clones are Ready sooner, separated by commas: "+wire.TuneRecommended+", "+
		strings.Join(wire.Tunings(), ", "), func(s string) (err error) {
		f.tune, err = wire.ParseTunings(wire.SplitTunings(s))
		return err
	})
	fs.BoolVar(&f.dryRun, "dry-run", false, "change nothing; report what would be removed, and the secrets found")
	fs.BoolVar(&f.inspect, "inspect", false, "inspect the root of a running node: change nothing; report blockers, within limits of time, files and bytes")
	fs.BoolVar(&f.flush, "flush", false, "write what a running node has in memory to its disk, whose root is at --root, before a snapshot of it: change nothing")
	fs.Func("online", "`RFC3339` time at which the running donor's disk was flushed: refuse half a package, report files that may have lost their content", func(s string) (err error) {
		f.online, err = time.Parse(time.RFC3339, s)
		return err
	})
	fs.BoolVar(&f.verbose, "verbose", false, "log every removed path")
}

// Options checks the flags and says all that is wrong at once.
func (f *Flags) Options() (generalize.Options, error) {
	o := generalize.Options{
		Capture: f.capture, Donor: f.donor, DonorAddresses: f.addresses,
		AcceptPoolCredentials: f.accept, AcceptSecrets: f.acceptSecrets, RemoveSecrets: f.removeSecrets, ScanImages: f.images, Bootstrap: generalize.Bootstrap(f.bootstrap), DryRun: f.dryRun || f.inspect || f.flush, Inspect: f.inspect,
		Flush: f.flush, Online: f.online, Now: time.Now, Tune: f.tune,
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
	if f.flush && f.root == "" {
		problems = append(problems, errors.New("--flush wants --root"))
	}
	if f.controller != "auto" && f.controller != "scsi" && f.controller != "nvme" {
		problems = append(problems, fmt.Errorf("--controller %q: want auto, scsi or nvme", f.controller))
	}
	return o, errors.Join(append(problems, o.Validate())...)
}

// Run works on the disk that the flags name, prints progress and the report as lines of
// JSON on out and its log on errOut, and returns the exit code.
func Run(ctx context.Context, f Flags, o generalize.Options, out, errOut io.Writer) int {
	level := slog.LevelInfo
	if f.verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(errOut, &slog.HandlerOptions{Level: level}))
	lines := json.NewEncoder(out)
	progress := func(text string) {
		if err := lines.Encode(wire.GeneralizeLine{Progress: text}); err != nil {
			log.Warn("cannot write progress", "error", err)
		}
	}
	report, manifest := generalizeDisk(ctx, f, o, progress, log)
	if manifest != nil {
		if err := lines.Encode(wire.GeneralizeLine{Manifest: manifest}); err != nil {
			log.Warn("cannot write the manifest", "error", err)
		}
	}
	if err := lines.Encode(wire.GeneralizeLine{Report: &report}); err != nil {
		log.Error("cannot write the report", "error", err)
		return ExitFailed
	}
	return exitOf(report.Outcome)
}

func exitOf(outcome wire.GeneralizeOutcome) int {
	switch outcome {
	case wire.Generalized:
		return ExitGeneralized
	case wire.SecretsFound:
		return ExitSecretsFound
	case wire.DiskRefused:
		return ExitDiskRefused
	default:
		return ExitFailed
	}
}
