//go:build !windows

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

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

// Who does not stand still is not told to have left: its Node would come back.
func TestAgentThatDoesNotStop(t *testing.T) {
	systemctl(t, "1")
	d := newDeparture(nil, wire.K3s) // nobody is told
	if err := d.Depart(t.Context(), "Preempt"); err == nil || !strings.Contains(err.Error(), "k3s-agent.service") {
		t.Error(err)
	}
}

// A machine that stays after all joins, and then its agent starts.
func TestRejoin(t *testing.T) {
	for distribution, unit := range map[string]string{wire.Kubelet: "kubelet.service", wire.K3s: "k3s-agent.service", wire.RKE2: "rke2-agent.service"} {
		asked := systemctl(t, "0")
		if err := newDeparture(&join.Client{}, distribution).Rejoin(t.Context()); err != nil {
			t.Error(err)
		}
		if got, want := asked(), "--no-ask-password restart ortet-join.service; --no-ask-password restart "+unit; got != want {
			t.Errorf("asked %q, want %q", got, want)
		}
	}
}
