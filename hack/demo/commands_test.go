//go:build e2e

package main

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/test/syncbuffer"
)

// TestCommands runs the commands of README's "Use it" and of the first hour's page as they
// are printed, in the playgrounds that they are for, and finds each line that the page shows
// below them. It needs the programs in bin/, which make build makes.
func TestCommands(t *testing.T) {
	t.Chdir("../..")
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, use, found := strings.Cut(string(readme), "\n## Use it\n")
	if !found {
		t.Fatal("README.md has no section \"Use it\"")
	}
	use, _, _ = strings.Cut(use, "\n## ")
	page, err := os.ReadFile("docs/tutorials/first-hour.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []struct{ name, page string }{
		{"README", "```sh\nmake playground\n```\n" + use},
		{"first-hour", string(page)},
	} {
		t.Run(text.name, func(t *testing.T) {
			r := &reader{t: t}
			for _, b := range blocks(t, text.page) {
				r.block(b)
			}
			if r.ran < 8 {
				t.Errorf("%d commands ran", r.ran)
			}
			t.Logf("%d commands ran, %d are marked as not for the playground", r.ran, r.marked)
		})
	}
}

// A fenced block of a page.
type fenced struct {
	kind  string
	lines []string
}

func blocks(t *testing.T, page string) (all []fenced) {
	t.Helper()
	for _, b := range regexp.MustCompile("(?ms)^ *```([^\n]*)\n(.*?)^ *```$").FindAllStringSubmatch(page, -1) {
		all = append(all, fenced{b[1], strings.Split(strings.TrimSuffix(strings.ReplaceAll(b[2], "\\\n", " "), "\n"), "\n")})
	}
	if strings.Count(page, "```") != 2*len(all) {
		t.Errorf("%d blocks are read of %d fences", len(all), strings.Count(page, "```"))
	}
	return all
}

// mark begins the reason for which a block, or the command before it, is not run.
var mark = regexp.MustCompile(`(?i)# not in the playground: \S+`)

// A reader types what a page says.
type reader struct {
	t           *testing.T
	env         string   // the playground's file
	set         []string // variables of the shell
	out         string   // what the last block printed
	ran, marked int
}

func (r *reader) block(b fenced) {
	switch {
	case b.kind == "":
		r.shown(b.lines)
	case b.kind != "sh":
		r.t.Errorf("a block of kind %q is not run: make it sh, or mark it:\n%s", b.kind, strings.Join(b.lines, "\n"))
	case strings.HasPrefix(b.lines[0], "#") && mark.MatchString(b.lines[0]):
		r.marked++
		r.out = ""
	default:
		r.out = ""
		for _, line := range b.lines {
			r.command(strings.TrimSpace(line))
		}
	}
}

var (
	assigns = regexp.MustCompile(`^[A-Z_]+=`)
	exits   = regexp.MustCompile(`# exit code (\d)`)
)

func (r *reader) command(line string) {
	switch {
	case line == "" || strings.HasPrefix(line, "#"):
	case mark.MatchString(line):
		r.marked++
	case assigns.MatchString(line):
		r.set = append(r.set, line)
	case strings.HasPrefix(line, "make playground"):
		r.playground(strings.Contains(line, "BAD=1"))
	case strings.HasPrefix(line, ". /"): // its name is another each time
	default:
		if r.env == "" {
			r.t.Fatalf("%s: no playground was started before it", line)
		}
		want := 0
		if m := exits.FindStringSubmatch(line); m != nil {
			want, _ = strconv.Atoi(m[1])
		}
		ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Minute)
		defer cancel()
		began := time.Now()
		shell := exec.CommandContext(ctx, "sh", "-c", ". "+r.env+"\n"+strings.Join(r.set, "\n")+"\n"+line)
		text, _ := shell.CombinedOutput() // its exit code is looked at
		code := shell.ProcessState.ExitCode()
		r.t.Logf("%6.1f s  exit %d  %s", time.Since(began).Seconds(), code, line)
		if code != want {
			r.t.Fatalf("%s: exit code %d, want %d:\n%s", line, code, want, text)
		}
		r.out += string(text)
		r.ran++
	}
}

// playground starts one, which ends with the test.
func (r *reader) playground(bad bool) {
	var out syncbuffer.Buffer
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, &out, plot{keep: true, bad: bad}) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("the playground ended with %v", err)
		}
	})
	for !strings.Contains(out.String(), "kubectl get nodes") {
		select {
		case err := <-ended:
			ended <- nil
			r.t.Fatalf("the playground ended: %v\n%s", err, out.String())
		case <-time.After(100 * time.Millisecond):
		}
	}
	r.out = out.String()
	_, invited, _ := strings.Cut(r.out, "yours until Ctrl-C")
	for line := range strings.Lines(invited) {
		if file, found := strings.CutPrefix(line, ". "); found {
			r.env = strings.TrimSpace(file)
		} else if n := len(strings.TrimSpace(line)); n > 60 {
			r.t.Errorf("a terminal of 60 columns breaks %q", line)
		}
	}
	if r.env == "" {
		r.t.Fatalf("no file to read in\n%s", r.out)
	}
}

var (
	spans  = regexp.MustCompile(`\b(\d+(\.\d+)?(ms|d|h|m|s))+\b`)
	digits = regexp.MustCompile(`\d+`)
	gaps   = regexp.MustCompile(` {2,}|[─-▟]+`)
)

// plain leaves out what is another each time: durations, times, dates and widths.
func plain(line string) string {
	line = digits.ReplaceAllString(spans.ReplaceAllString(line, "T"), "0")
	return strings.TrimSpace(gaps.ReplaceAllString(line, " "))
}

// shown finds lines in what the last block printed, in their order. "…" stands for anything.
func (r *reader) shown(lines []string) {
	rest := strings.Split(r.out, "\n")
	for _, want := range lines {
		parts := strings.Split(plain(want), "…")
		for i, part := range parts {
			parts[i] = regexp.QuoteMeta(part)
		}
		is := regexp.MustCompile("^" + strings.Join(parts, ".*") + "$")
		for len(rest) > 0 && !is.MatchString(plain(rest[0])) {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			r.t.Errorf("the page shows %q, which was not printed there:\n%s", want, r.out)
			return
		}
		rest = rest[1:]
	}
}
