package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/boots/timeline/draw"
)

func newBoot(o *options) *cobra.Command {
	c := &cobra.Command{
		Use:   "boot",
		Short: "Show where the time of node boots went",
		Long: `boot shows where the time of a node's boot went, from the request for its machine
to its first pod: what ran, what waited for what, and what to move into the image.

Nodes report their boots (ortet-node report), and ortet controller stores the
reports by image version. boot analyze needs neither: it reads files copied from a
machine.`,
	}
	c.AddCommand(newBootShow(o), newBootDiff(o), newBootStats(o), newBootAnalyze(o))
	return c
}

// takesForms gives a command forms of its result besides those of every command. "text" is "table" in other words.
func (o *options) takesForms(c *cobra.Command, more ...string) {
	forms := append([]string{"table", "json", "yaml"}, more...)
	want := strings.Join(forms[:len(forms)-1], ", ") + " or " + forms[len(forms)-1]
	c.Flags().StringVarP(&o.output, "output", "o", "table", "output `FORMAT`: "+want)
	c.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		form := o.output
		if form == "text" {
			form = "table"
		}
		if !slices.Contains(forms, form) {
			return usagef("-o %s: want %s", form, want)
		}
		o.output = "table" // the rest is as with any command
		err := o.complete()
		o.output = form
		if err != nil {
			return err
		}
		return o.limit(c)
	}
}

// drawFlags are those of commands that show boots.
type drawFlags struct {
	out  string
	otlp string
	boot string
}

func (f *drawFlags) add(c *cobra.Command, boot string) {
	p := c.Flags()
	p.StringVar(&f.out, "out", "", "output `FILE` (default: standard output)")
	p.StringVar(&f.otlp, "otlp", "", "`URL` of an OTLP/HTTP collector that also gets the boot as a trace, such as http://localhost:4318")
	p.StringVar(&f.boot, "boot", "", boot)
}

// result calls write with where the result goes: standard output, or a file that is
// there whole or not at all. The file gets the permissions that the user's umask
// leaves of 0644: it names hosts and images, and no secrets.
func (o *options) result(file string, write func(io.Writer) error) (err error) {
	if file == "" {
		return write(o.process.Out)
	}
	fail := func(err error) error { return fmt.Errorf("write the result to %s: %w", file, err) }
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		if info.IsDir() {
			return fail(errors.New("it is a directory"))
		}
		// A device or a pipe is not replaced.
		f, err := os.OpenFile(file, os.O_WRONLY, 0)
		if err != nil {
			return fail(err)
		}
		return errors.Join(write(f), f.Close())
	}
	temporary := filepath.Join(filepath.Dir(file), fmt.Sprintf(".%s.%d", filepath.Base(file), os.Getpid()))
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fail(err)
	}
	defer func() {
		if err != nil {
			if gone := os.Remove(temporary); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
				err = errors.Join(err, gone)
			}
		}
	}()
	if err := errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		return fail(err)
	}
	if err := os.Rename(temporary, file); err != nil {
		return fail(err)
	}
	return nil
}

// terminal is what text is drawn for.
func (o *options) terminal(w io.Writer) draw.Terminal {
	columns := columnsOf(w)
	locale := ""
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		locale = cmp.Or(locale, o.process.Getenv(name))
	}
	locale = strings.ToUpper(locale)
	return draw.Terminal{Width: cmp.Or(columns, resultWidth), Color: columns > 0 && o.process.Getenv("NO_COLOR") == "" && o.process.Getenv("TERM") != "dumb",
		ASCII: !strings.Contains(locale, "UTF-8") && !strings.Contains(locale, "UTF8")}
}

// writeYAML writes JSON as YAML.
func writeYAML(w io.Writer, text []byte) error {
	text, err := yaml.JSONToYAML(text)
	if err != nil {
		return fmt.Errorf("write the result as YAML: %w", err)
	}
	_, err = w.Write(text)
	return err
}

// draw shows one boot in the form that -o asks for.
func (o *options) draw(ctx context.Context, f drawFlags, t timeline.Timeline) error {
	if (o.output == "html" || o.output == "svg") && f.out == "" && columnsOf(o.process.Out) > 0 {
		return usagef("-o %s is nothing for a terminal: name a file with --out, or redirect it", o.output)
	}
	if f.otlp != "" {
		if err := (draw.Collector{URL: f.otlp}).Send(ctx, t); err != nil {
			return err
		}
		fmt.Fprintf(o.process.Err, "The boot of %s was sent as a trace.\n", first(t.Node, "the machine"))
	}
	return o.result(f.out, func(w io.Writer) error {
		switch o.output {
		case "json":
			return draw.JSON(w, t)
		case "yaml":
			var b bytes.Buffer
			if err := draw.JSON(&b, t); err != nil {
				return err
			}
			return writeYAML(w, b.Bytes())
		case "html":
			return draw.HTML(w, t)
		case "svg":
			return draw.SVG(w, t)
		}
		return draw.Text(w, t, o.terminal(w))
	})
}
