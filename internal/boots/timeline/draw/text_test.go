package draw

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/wire"
)

var update = flag.Bool("update", false, "rewrite what is in testdata")

// golden compares with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (-update rewrites it); now it is:\n%s", file, got)
	}
}

func text(t testing.TB, of timeline.Timeline, to Terminal) string {
	t.Helper()
	var b bytes.Buffer
	if err := Text(&b, of, to); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestText(t *testing.T) {
	for name, sample := range samples(t) {
		golden(t, name+".txt", []byte(text(t, sample, Terminal{})))
		golden(t, name+".ascii.txt", []byte(text(t, sample, Terminal{ASCII: true, Width: 100})))
	}
}

// Whatever the width and the boot, no line is wider, and nothing but colours
// controls the terminal.
func TestTextFits(t *testing.T) {
	all := samples(t)
	all["large"] = large(400)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, width := range []int{-1, 1, 40, 41, 59, 60, 80, 81, 132, 400, 1 << 40} {
			for _, ascii := range []bool{false, true} {
				for _, color := range []bool{false, true} {
					checkText(t, name, all[name], Terminal{Width: width, ASCII: ascii, Color: color})
				}
			}
		}
	}
}

func checkText(t testing.TB, name string, of timeline.Timeline, to Terminal) {
	t.Helper()
	out := text(t, of, to)
	if !utf8.ValidString(out) {
		t.Fatalf("%s is not UTF-8", name)
	}
	if to.Color {
		for _, code := range []string{"0", "1", "2", "31", "33", "34", "36"} {
			out = strings.ReplaceAll(out, "\x1b["+code+"m", "")
		}
	}
	p := newPage(to)
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		if n := p.columns(line); n > p.Width {
			t.Fatalf("%s at %+v: %d columns: %s", name, to, n, line)
		}
		for _, r := range line {
			if !unicode.IsPrint(r) || (to.ASCII && r > unicode.MaxASCII) {
				t.Fatalf("%s at %+v: %U in %q", name, to, r, line)
			}
		}
	}
}

// Waits of some milliseconds that follow upon each other are one line, also in a
// boot that is short; what is longer has lines of its own.
func TestShortWaitsAreFolded(t *testing.T) {
	of := timeline.Timeline{Version: timeline.Version, Node: "n", OriginIs: "userspace started", EndIs: "startup finished", End: 1_200_000, Complete: true}
	at := wire.Micros(0)
	step := func(took wire.Micros, name string, wait bool) {
		s := timeline.Step{Start: at, End: at + took, Span: "unit/" + name, Name: name, Class: timeline.Node}
		if wait {
			s.Span, s.Class, s.Wait = "", timeline.Waiting, &timeline.Wait{Before: "unit/" + name, Hidden: true}
		}
		of.Path = append(of.Path, s)
		at += took
	}
	for range 20 {
		step(7_000, "a.service", true)
		step(8_000, "a.service", false)
	}
	step(200_000, "b.service", true)
	step(700_000, "b.service", false)
	_, path, _ := strings.Cut(text(t, of, Terminal{ASCII: true}), "Critical path")
	if lines := strings.Count(path, "\n"); lines != 6 || !strings.Contains(path, "40 short steps") || !strings.Contains(path, "200ms") || strings.Count(path, "(systemd-analyze") != 1 {
		t.Errorf("%d lines:\n%s", lines, path)
	}
}
