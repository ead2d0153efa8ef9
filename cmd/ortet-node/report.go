package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/node/boot"
	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/wire"
)

const reportHelp = `Usage: ortet-node report [FLAGS]

Collects a report of this boot's timeline: from systemd's units, its journal,
cloud-init, the Azure agent, extensions, AKS, the kubelet and containerd. It is
stored in /var/lib/ortet/boots/BOOTID.json, the newest five; 'ortet boot' shows
it. Missing sources are listed in the report and are no error.

Exit codes: 0 done; 64 wrong usage; 1 the report could not be stored, or not be
sent as requested.

Flags:
`

// reportFlags is the command line.
type reportFlags struct {
	boot.Options
	output, out, reportURL, ca, state string
	annotate, verbose                 bool
	wait                              time.Duration
	toAdmission
}

func (f *reportFlags) define(fs *flag.FlagSet) {
	f.Metadata = boot.MetadataAuto
	fs.StringVar(&f.output, "o", "text", "output format `text|json`; text is a summary")
	fs.StringVar(&f.Root, "root", "", "`DIR` used as the node's root; with any but / only files are read")
	fs.StringVar(&f.out, "out", "", "`FILE` in which the report is stored, or none (default /var/lib/ortet/boots/BOOTID.json)")
	fs.BoolVar(&f.annotate, "annotate", false, "write the report to this node's own Node, with the kubelet's credentials, as annotation "+wire.BootAnnotation)
	fs.StringVar(&f.reportURL, "report-url", "", "HTTPS `URL` to which the report is posted")
	fs.StringVar(&f.ca, "report-ca", "", "PEM `FILE` of the CAs trusted for --report-url (default the system's)")
	f.toAdmission.define(fs)
	fs.Var((*duration)(&f.wait), "wait", "longest `TIME` to wait first, until the boot is complete and has a verdict")
	fs.StringVar(&f.state, "state", "", "`FILE` of the verdict to wait for (default as in 'ortet-node wait')")
	fs.Func("metadata", "query Azure's metadata service for the image: `auto|yes|no`; auto: if the firmware is Azure's (default auto)", func(s string) error {
		f.Metadata = boot.Metadata(s)
		if !slices.Contains([]boot.Metadata{boot.MetadataAuto, boot.MetadataYes, boot.MetadataNo}, f.Metadata) {
			return errors.New("want auto, yes or no")
		}
		return nil
	})
	fs.BoolVar(&f.verbose, "verbose", false, "log what is read, and how long it takes")
}

func (f *reportFlags) validate() error {
	var problems []error
	if f.output != "text" && f.output != "json" {
		problems = append(problems, fmt.Errorf("-o %q: want text or json", f.output))
	}
	if f.reportURL != "" {
		problems = append(problems, bootstrap.CheckURL(f.reportURL))
	}
	if f.wait < 0 {
		problems = append(problems, errors.New("--wait has to be 0 or more"))
	}
	return errors.Join(problems...)
}

func runReport(ctx context.Context, args []string, std stdio) int {
	var f reportFlags
	fs := flagsOf("report")
	f.define(fs)
	if code, ok := parse(fs, reportHelp, args, std, f.validate); !ok {
		return code
	}
	level := slog.LevelWarn
	if f.verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(std.err, &slog.HandlerOptions{Level: level}))
	if f.wait > 0 {
		boot.Await(ctx, f.Options, f.state, f.wait, log)
	}
	if err := ctx.Err(); err != nil {
		_, _ = fmt.Fprintf(std.err, "ortet-node report: stopped before the report was made: %v\n", err)
		return exitFailed
	}
	r := boot.Collect(ctx, f.Options, time.Now(), log)
	text, err := boot.Encode(r)
	if err != nil {
		_, _ = fmt.Fprintf(std.err, "ortet-node report: %v\n", err)
		return exitFailed
	}
	if f.output == "json" {
		_, err = std.out.Write(text)
	} else {
		_, err = io.WriteString(std.out, reportText(r))
	}
	if err != nil {
		err = fmt.Errorf("printing the report: %w", err)
	}
	err = errors.Join(err, f.handOn(ctx, r, text))
	c := boot.Used()
	log.Info("cost", "cpu", c.CPU, "childrensCPU", c.ChildrenCPU, "peak", c.Peak, "childrensPeak", c.ChildrenPeak)
	if err != nil {
		_, _ = fmt.Fprintf(std.err, "ortet-node report: %v\n", err)
		return exitFailed
	}
	return exitOK
}

// handOn keeps a report and gives it to whom it was asked for. Each way is taken
// whatever became of the others.
func (f *reportFlags) handOn(ctx context.Context, r wire.BootReport, text []byte) error {
	var problems []error
	switch f.out {
	case "none":
	case "":
		_, err := boot.Keep(f.Root, r.BootID, text)
		problems = append(problems, err)
	default:
		if err := bootstrap.Keep(f.out, text); err != nil {
			problems = append(problems, fmt.Errorf("keeping the report in %s: %w", f.out, err))
		}
	}
	if f.annotate {
		problems = append(problems, boot.Annotate(ctx, f.Root, r))
	}
	if f.reportURL != "" {
		if err := bootstrap.Post(ctx, f.reportURL, f.ca, text); err != nil {
			problems = append(problems, err)
		}
	}
	problems = append(problems, f.tell(ctx, f.Root, wire.BootPath, json.RawMessage(text)))
	return errors.Join(problems...)
}

// slowest is how many units a summary tells of.
const slowest = 8

// reportText is a summary for a person.
func reportText(r wire.BootReport) string {
	var b strings.Builder
	field := func(name, text string) {
		if text != "" {
			wrap(&b, fmt.Sprintf("%-9s", name), text)
		}
	}
	field("node", r.Node)
	field("boot", r.BootID)
	field("image", r.Image)
	field("start", startText(r.System))
	units := slices.Clone(r.Units)
	slices.SortStableFunc(units, func(a, b wire.BootUnit) int { return int(took(b) - took(a)) })
	for i, u := range units[:min(len(units), slowest)] {
		name := ""
		if i == 0 {
			name = "slowest"
		}
		if took(u) > 0 {
			wrap(&b, fmt.Sprintf("%-9s", name), fmt.Sprintf("%9s %s", seconds(took(u)), u.Name))
		}
	}
	field("told", fmt.Sprintf("%d units, %d spans", len(r.Units), len(r.Spans)))
	for _, s := range r.Sources {
		if s.State != wire.SourceRead {
			field(string(s.State), strings.TrimSuffix(s.Name+": "+s.Detail, ": "))
		}
	}
	return b.String()
}

// took is how long a unit took to start, as systemd-analyze counts it.
func took(u wire.BootUnit) wire.Micros {
	switch {
	case u.Activated >= u.Activating && u.Activating > 0:
		return u.Activated - u.Activating
	case u.Deactivated >= u.Activating && u.Activating > 0:
		return u.Deactivated - u.Activating
	}
	return 0
}

func seconds(t wire.Micros) string { return fmt.Sprintf("%.3f s", t.Duration().Seconds()) }

func startText(s wire.SystemTimes) string {
	var parts []string
	part := func(name string, t wire.Micros) {
		if t > 0 {
			parts = append(parts, seconds(t)+" "+name)
		}
	}
	if s.Began() == 0 {
		part("firmware", s.Firmware-s.Loader)
		part("loader", s.Loader)
		if s.InitRD > 0 {
			part("kernel", s.InitRD)
			part("initrd", s.Userspace-s.InitRD)
		} else {
			part("kernel", s.Userspace)
		}
	}
	if s.Finish == 0 {
		return strings.Join(append(parts, "userspace has not finished"), ", ")
	}
	part("userspace", s.Finish-s.Userspace)
	return strings.Join(parts, ", ")
}
