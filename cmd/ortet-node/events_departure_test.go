//go:build !windows

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/node/join"
	"github.com/ortet/ortet/internal/wire"
)

// systemctl is one that notes what it is asked, and answers with a code.
func systemctl(t *testing.T, code string) (asked func() string) {
	t.Helper()
	dir := t.TempDir()
	note := filepath.Join(dir, "asked")
	script := "#!/bin/sh\necho \"$@\" >> " + note + "\necho 'it is so' >&2\nexit " + code + "\n"
	if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() string {
		text, err := os.ReadFile(note)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "; ")
	}
}

func TestUnitsAreOrdered(t *testing.T) {
	for _, c := range []struct {
		what, code string
		fails      bool
	}{
		{"stop", "0", false}, {"restart", "0", false},
		{"stop", "5", false}, // there is no such unit: it stands still
		{"restart", "5", true}, {"stop", "1", true},
	} {
		asked := systemctl(t, c.code)
		order := join.StopUnit
		if c.what == "restart" {
			order = join.RestartUnit
		}
		err := order(t.Context(), "kubelet.service")
		if (err != nil) != c.fails || c.fails && !strings.Contains(err.Error(), "it is so") {
			t.Errorf("%s answered %s: %v", c.what, c.code, err)
		}
		if got := asked(); got != "--no-ask-password "+c.what+" kubelet.service" {
			t.Errorf("asked %s", got)
		}
	}
}

// departing is a machine's departure, with no server, and no time for a second try.
func departing(t *testing.T, distribution string) (d departure, held func() bool) {
	t.Helper()
	root := t.TempDir()
	c, err := join.NewClient(join.Settings{Servers: []string{"https://127.0.0.1:1"}, CAHash: "sha256:" + strings.Repeat("0a", 32), Distribution: distribution}, join.Options{Root: root, Metadata: "http://127.0.0.1:1",
		Wait: func(context.Context, time.Duration) error { return context.DeadlineExceeded }})
	if err != nil {
		t.Fatal(err)
	}
	return newDeparture(c, distribution), func() bool {
		_, err := os.Lstat(filepath.Join(root, join.LeavingFile))
		return err == nil
	}
}

// Who does not stand still is not told to have left: its Node would come back.
func TestAgentThatDoesNotStop(t *testing.T) {
	systemctl(t, "1")
	d, held := departing(t, wire.K3s)
	if err := d.Depart(t.Context(), "Preempt"); err == nil || !strings.Contains(err.Error(), "k3s-agent.service") || !held() {
		t.Errorf("%v; held: %v", err, held())
	}
}

// Who leaves stops its agent, and then what would have it join; nothing of it joins
// after that.
func TestDepartEndsAJoin(t *testing.T) {
	asked := systemctl(t, "0")
	d, held := departing(t, wire.Kubelet)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if err := d.Depart(ctx, "Preempt"); err == nil {
		t.Error("told nobody, and that is no error")
	}
	const want = "--no-ask-password stop kubelet.service; --no-ask-password stop ortet-join.service"
	if got := asked(); !strings.HasPrefix(got, want) || !held() {
		t.Errorf("asked %q, want %q…; held: %v", got, want, held())
	}
}

// A machine that stays after all joins, and then its agent starts.
func TestRejoin(t *testing.T) {
	for distribution, unit := range map[string]string{wire.Kubelet: "kubelet.service", wire.K3s: "k3s-agent.service", wire.RKE2: "rke2-agent.service"} {
		asked := systemctl(t, "0")
		d, held := departing(t, distribution)
		if err := errors.Join(d.Hold(), d.Rejoin(t.Context())); err != nil || held() {
			t.Errorf("%v; held: %v", err, held())
		}
		if got, want := asked(), "--no-ask-password restart ortet-join.service; --no-ask-password restart "+unit; got != want {
			t.Errorf("asked %q, want %q", got, want)
		}
	}
}
