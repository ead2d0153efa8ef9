package main

import (
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
	"unicode/utf8"

	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/wire"
)

// exitDeadline is wait's exit code where time was up; others are the failing
// program's own, or exitFailed.
const exitDeadline = 124

const waitHelp = `Usage: ortet-node wait [FLAGS]

Waits until this boot succeeded or failed, and prints the verdict: if it failed,
the reason, who can fix it, and the log lines that prove it. A stored verdict of
this boot for the same question is printed at once, unless it was TimedOut; with
--again only if it was Succeeded.

Exit codes:
  0    succeeded, also with errors that were ignored
  124  deadline exceeded
  64   wrong usage
  else the exit code of the program that failed, or 1 if it is unknown

Flags:
`

// waitFlags is the command line.
type waitFlags struct {
	bootstrap.Options
	output         string
	again, verbose bool
	toAdmission
}

func (f *waitFlags) define(fs *flag.FlagSet) {
	f.Options = bootstrap.Defaults()
	fs.Var((*duration)(&f.Deadline), "deadline", "longest `TIME` to wait")
	fs.StringVar(&f.Sentinel, "sentinel", f.Sentinel, "`PATH` of Cluster API's sentinel file, or none (default the path of its contract, if something on the node writes it)")
	fs.Func("unit", "systemd `UNIT`, on Windows a service, that must be active; repeatable or comma-separated", func(s string) error {
		for name := range strings.SplitSeq(s, ",") {
			f.Units = append(f.Units, strings.TrimSpace(name))
		}
		return nil
	})
	fs.Func("kubelet", "require a healthy kubelet: `auto|yes|no`; auto: if the node has a unit or service that runs one", func(s string) error {
		f.Kubelet = bootstrap.Kubelet(s)
		if s == "" {
			return errors.New("want auto, yes or no")
		}
		return nil
	})
	fs.Func("node", "required state of the Node in the cluster: `ready|registered|no`; ignored if no kubelet is required", func(s string) error {
		f.Node = bootstrap.Node(s)
		if s == "" {
			return errors.New("want ready, registered or no")
		}
		return nil
	})
	fs.Var((*duration)(&f.Settle), "settle", "`TIME` that the kubelet must be healthy without a restart")
	fs.Var((*duration)(&f.Grace), "grace", "longest `TIME` after the end of the boot until the kubelet is healthy, and again until --node is reached")
	fs.BoolVar(&f.again, "again", false, "judge again a boot that failed, for example after a repair by hand; the new verdict is reported again")
	fs.StringVar(&f.Root, "root", "", "`DIR` used as the node's root; for tests")
	fs.StringVar(&f.State, "state", "", "`FILE` in which the verdict is stored (default /var/lib/ortet/verdict.json, on Windows C:\\ProgramData\\Ortet\\verdict.json)")
	fs.StringVar(&f.Console, "console", f.Console, "serial console `DEVICE` on which the verdict is printed; empty for none")
	fs.StringVar(&f.ReportURL, "report-url", "", "HTTPS `URL` to which the verdict is posted")
	fs.StringVar(&f.CAFile, "report-ca", "", "PEM `FILE` of the CAs trusted for --report-url (default the system's)")
	f.toAdmission.define(fs)
	fs.StringVar(&f.output, "o", "text", "output format `text|json`")
	fs.BoolVar(&f.verbose, "verbose", false, "log every observation")
}

func runWait(ctx context.Context, args []string, std stdio) int {
	var f waitFlags
	fs := flagsOf("wait")
	f.define(fs)
	if code, ok := parse(fs, waitHelp, args, std, func() error {
		err := f.Validate()
		if f.output != "text" && f.output != "json" {
			err = errors.Join(err, fmt.Errorf("-o %q: want text or json", f.output))
		}
		return err
	}); !ok {
		return code
	}
	if f.again {
		f.After = time.Now()
	}
	level := slog.LevelWarn
	if f.verbose {
		level = slog.LevelDebug
	}
	v, err := bootstrap.Wait(ctx, f.Options, slog.New(slog.NewTextHandler(std.err, &slog.HandlerOptions{Level: level})))
	if err != nil {
		_, _ = fmt.Fprintf(std.err, "ortet-node wait: there is no verdict: %v\n", err)
		return exitFailed
	}
	if f.output == "json" {
		err = json.NewEncoder(std.out).Encode(v)
	} else {
		text := verdictText(v)
		if !isTerminal(std.out) {
			// For who runs this on a node from afar, such as CustomScript, of whose output
			// the first or last part is all that gets out.
			text = v.ConsoleLine() + "\n" + text
		}
		_, err = io.WriteString(std.out, text)
	}
	if err != nil {
		_, _ = fmt.Fprintf(std.err, "ortet-node wait: printing the verdict: %v\n", err)
	}
	if err := f.tell(ctx, f.Root, wire.VerdictPath, v); err != nil {
		_, _ = fmt.Fprintf(std.err, "ortet-node wait: %v\n", err)
	}
	return waitExit(v)
}

// isTerminal says whether a person looks at it.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// waitExit is the exit code of a verdict.
func waitExit(v wire.Verdict) int {
	switch {
	case v.Outcome == wire.Succeeded || v.Outcome == wire.Degraded:
		return exitOK
	case v.Outcome == wire.TimedOut:
		return exitDeadline
	case v.ExitCode != nil && *v.ExitCode > 0 && *v.ExitCode < 256:
		return *v.ExitCode
	default:
		return exitFailed
	}
}

// textWidth is how wide a verdict is printed for a person. JSON has the lines as
// they are.
const textWidth = 80

// verdictText is a verdict for a person.
func verdictText(v wire.Verdict) string {
	var b strings.Builder
	field := func(name, text string) {
		if text != "" {
			wrap(&b, fmt.Sprintf("%-9s", name), text)
		}
	}
	field("outcome", string(v.Outcome))
	field("reason", v.Reason)
	owner := strings.Trim(string(v.Owner)+", "+bootstrap.Confidence(v), ", ")
	if v.Outcome != wire.Succeeded && v.Retryable {
		owner = strings.TrimPrefix(owner+"; trying again may help", "; ")
	}
	field("owner", owner)
	var where []string
	for _, part := range []struct{ name, text string }{{"stage", v.Stage}, {"module", v.Module}, {"phase", v.Phase}} {
		if part.text != "" {
			where = append(where, part.name+" "+part.text)
		}
	}
	if v.ExitCode != nil {
		where = append(where, fmt.Sprintf("exit code %d", *v.ExitCode))
	}
	field("where", strings.Join(where, ", "))
	field("what", v.Message)
	field("do", v.Remedy)
	for _, s := range v.Ignored {
		field("ignored", s)
	}
	for _, e := range v.Evidence {
		more := ""
		if e.Cut {
			more = " (the end of it)"
		}
		_, _ = fmt.Fprintf(&b, "\n%s%s\n", e.Source, more)
		for _, line := range e.Lines {
			quote(&b, line)
		}
	}
	return b.String()
}

// wrap writes words in lines of textWidth, the first after a label, the others
// below its text.
func wrap(b *strings.Builder, label, text string) {
	b.WriteString(label)
	at := len(label)
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case at+1+n > textWidth:
			b.WriteString("\n" + strings.Repeat(" ", len(label)))
			at = len(label)
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	b.WriteByte('\n')
}

// quote writes a line as it is, broken where it is too long.
func quote(b *strings.Builder, line string) {
	indent := "  "
	for runes := []rune(line); ; {
		n := min(len(runes), textWidth-len(indent))
		b.WriteString(indent + string(runes[:n]) + "\n")
		if runes = runes[n:]; len(runes) == 0 {
			return
		}
		indent = "      "
	}
}
