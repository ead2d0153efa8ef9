package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/boots/timeline/draw"
	"github.com/ortet/ortet/internal/boots/timeline/source"
	"github.com/ortet/ortet/internal/wire"
)

// mostFiles bounds what one command reads.
const mostFiles = 1000

func newBootAnalyze(o *options) *cobra.Command {
	var f drawFlags
	c := &cobra.Command{
		Use:   "analyze FILE...",
		Short: "Show the timeline of boots from files copied from a machine",
		Long: `analyze reads files copied from a machine, and needs neither cluster nor cloud.
Their names do not matter. It reads, among others (docs/reference/boot.md):

  - reports of ortet-node report
  - output of systemctl show, and of systemd-analyze plot --json, dump or
    critical-chain
  - exports of the journal
  - cloud-init.log and waagent.log

"-" is standard input. Several files of one machine are merged by boot.`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usagef("name files of a machine, or - for standard input")
			case len(args) > mostFiles:
				return usagef("%d files, and %d are read at most", len(args), mostFiles)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			reports, err := interruptible(cmd.Context(), func() ([]wire.BootReport, error) { return o.readBoots(args) })
			if err != nil {
				return err
			}
			return o.analyze(cmd.Context(), f, reports)
		},
	}
	f.add(c, "`BOOT` to show if the files contain several: its number, its id, or a prefix of the id")
	o.takesForms(c, "html", "svg")
	return c
}

// readBoots reads files. What is none that tells of a boot is named, and an error
// where nothing else is there.
func (o *options) readBoots(names []string) ([]wire.BootReport, error) {
	var all []wire.BootReport
	var unknown []error
	stdin := false
	for _, name := range names {
		reports, err := o.readBootFile(name, &stdin)
		switch {
		case errors.Is(err, source.ErrUnknown):
			unknown = append(unknown, err)
			continue
		case err != nil:
			return nil, err
		}
		all = append(all, reports...)
	}
	if len(all) == 0 {
		return nil, refuseFile(strings.Join(names, ", "), errors.Join(unknown...))
	}
	for _, err := range unknown {
		paragraph(o.process.Err, columnsOf(o.process.Err), "note: ", "  ", err.Error())
	}
	return source.Join(all...), nil
}

func (o *options) readBootFile(name string, stdin *bool) (reports []wire.BootReport, err error) {
	err = o.withFile(name, stdin, func(name string, r io.Reader) (err error) {
		reports, err = source.Read(name, r, source.Options{})
		return err
	})
	return reports, err
}

// withFile reads a file, or standard input, which can be read once. It refuses what cannot be
// opened.
func (o *options) withFile(name string, stdin *bool, read func(name string, r io.Reader) error) (err error) {
	if name == "-" {
		if *stdin {
			return usagef("standard input can be read once")
		}
		*stdin = true
		return read("standard input", onlyReader{o.process.In})
	}
	f, err := os.Open(name)
	if err != nil {
		return refuseFile(name, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if info, err := f.Stat(); err != nil || info.IsDir() {
		if err == nil {
			err = fmt.Errorf("%s is a directory: name files", name)
		}
		return refuseFile(name, err)
	}
	return read(name, f)
}

// onlyReader hides that standard input may be a file that others read on.
type onlyReader struct{ io.Reader }

// analyze shows boots: all of them, or the one that is named.
func (o *options) analyze(ctx context.Context, f drawFlags, reports []wire.BootReport) error {
	all := make([]timeline.Timeline, 0, len(reports))
	for _, r := range reports {
		all = append(all, timeline.Build(r, timeline.Cloud{Image: r.Image, VMID: r.VMID}))
	}
	if known := slices.ContainsFunc(all, func(t timeline.Timeline) bool { return !t.Nothing() }); !known {
		text := "the files have no time of any event of a boot"
		for _, r := range reports {
			for _, s := range r.Sources {
				text += fmt.Sprintf("\n%s (%s): %s", s.Path, s.Name, cmp.Or(s.Detail, string(s.State)))
			}
		}
		return errors.New(text)
	}
	if f.boot != "" {
		one, err := oneBoot(all, f.boot)
		if err != nil {
			return err
		}
		all = []timeline.Timeline{one}
	}
	one := len(all) == 1
	switch {
	case !one && (o.output == "html" || o.output == "svg" || f.otlp != ""):
		return fmt.Errorf("the files tell of %d boots, and one can be shown in this form: choose it with --boot\n%s", len(all), strings.TrimRight(bootList(all), "\n"))
	case one && o.output != "json" && o.output != "yaml":
		return o.draw(ctx, f, all[0])
	case one && f.otlp != "":
		if err := (draw.Collector{URL: f.otlp}).Send(ctx, all[0]); err != nil {
			return err
		}
	}
	return o.result(f.out, func(w io.Writer) error {
		if o.output == "json" || o.output == "yaml" { // always a list: how many there are is not known before
			text, err := json.MarshalIndent(all, "", "  ")
			if err != nil {
				return err
			}
			if o.output == "yaml" {
				return writeYAML(w, text)
			}
			_, err = w.Write(append(text, '\n'))
			return err
		}
		fmt.Fprintf(w, "%d boots:\n", len(all))
		for line := range strings.Lines(bootList(all)) {
			paragraph(w, o.terminal(w).Width, line[:5], "     ", line[5:])
		}
		for i, t := range all {
			fmt.Fprintf(w, "\n--- boot %d of %d ---\n", i+1, len(all))
			if err := draw.Text(w, t, o.terminal(w)); err != nil {
				return err
			}
		}
		return nil
	})
}

// oneBoot finds the boot that is named by its number or its id.
func oneBoot(all []timeline.Timeline, name string) (timeline.Timeline, error) {
	if n, err := strconv.Atoi(name); err == nil && n >= 1 && n <= len(all) {
		return all[n-1], nil
	}
	for _, t := range all {
		if t.BootID != "" && strings.HasPrefix(strings.ToLower(t.BootID), strings.ToLower(name)) {
			return t, nil
		}
	}
	return timeline.Timeline{}, refuse("BootNotFound", "boot "+name, "no boot "+name+" is in the files; there are "+strings.Join(strings.Fields(bootList(all)), " "), "name one of these with --boot")
}

func bootList(all []timeline.Timeline) string {
	var b strings.Builder
	for i, t := range all {
		began := "at a time that is not known"
		if !t.KernelStart.IsZero() {
			began = t.KernelStart.UTC().Format("2006-01-02 15:04:05Z")
		}
		line := fmt.Sprintf("%3d  %s, %s", i+1, began, draw.Duration(t.Total()))
		if t.Node != "" {
			line += ", " + t.Node
		}
		if t.BootID != "" {
			line += ", boot id " + t.BootID
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}
