package bootstrap

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/verdict"
)

// script is a journalctl of the test's own.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journalctl")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestJournals(t *testing.T) {
	logs := journals(t.Context(), script(t, `for last; do :; done; echo "[1.0] of $last"; printf 'bell \007\n'`), time.Minute, []verdict.Unit{{Name: "a.service"}, {Name: "b.service", Missing: true}})
	var all []string
	for _, l := range logs {
		all = append(all, l.Source+": "+strings.Join(l.Lines, "|"))
	}
	want := "journal kubelet.service: [1.0] of --unit=kubelet.service|bell ?\njournal containerd.service: [1.0] of --unit=containerd.service|bell ?\njournal a.service: [1.0] of --unit=a.service|bell ?\njournal kernel: [1.0] of --dmesg|bell ?"
	if got := strings.Join(all, "\n"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// What cannot be had is no failure: no program, one that fails, one that writes
// without end, one that hangs.
func TestJournalsThatMisbehave(t *testing.T) {
	if logs := journals(t.Context(), "", time.Minute, nil); logs != nil {
		t.Errorf("%v", logs)
	}
	if logs := journals(t.Context(), "/no/journalctl", time.Minute, nil); len(logs) != 0 {
		t.Errorf("%v", logs)
	}
	if logs := journals(t.Context(), script(t, "echo half; exit 3"), time.Minute, nil); len(logs) != 3 {
		t.Errorf("%v", logs)
	}
	l := journal(t.Context(), script(t, "yes 0123456789 | head -c 20000000"), time.Minute, "x", "y")
	if len(l.Lines) == 0 || len(l.Lines) > maxTailRows || !l.Cut {
		t.Errorf("%d lines, cut %v", len(l.Lines), l.Cut)
	}
	begun := time.Now()
	journal(t.Context(), script(t, "sleep 15 & sleep 15"), time.Second, "x", "y")
	if took := time.Since(begun); took > 12*time.Second {
		t.Errorf("a journalctl that hangs held us for %s", took)
	}
}
