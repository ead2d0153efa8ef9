package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/node/events"
)

// playEvents runs the command until it has begun, without a machine around it.
func playEvents(t *testing.T, args ...string) (code int, said string) {
	t.Helper()
	ended, end := context.WithCancel(t.Context())
	end()
	var out, errs bytes.Buffer
	code = runEvents(ended, append([]string{"--root", t.TempDir()}, args...), stdio{out: &out, err: &errs})
	return code, out.String() + errs.String()
}

func TestEventsCommandLine(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "settings.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"as installed":         {nil, exitOK, ""},
		"with everything":      {[]string{"--action", "Freeze=ignore", "--acknowledge", "Reboot=always", "--metrics-file", filepath.Join(t.TempDir(), "x.prom"), "--webhook", "https://hooks.example/x"}, exitOK, ""},
		"help":                 {[]string{"--help"}, exitOK, "--acknowledge TYPE=alone|always|never"},
		"a type of nobody's":   {[]string{"--action", "Nap=leave"}, exitUsage, `unknown type "Nap"`},
		"no action":            {[]string{"--action", "Reboot"}, exitUsage, "want TYPE=VALUE"},
		"another action":       {[]string{"--action", "Reboot=sleep"}, exitUsage, `action "sleep"`},
		"a webhook in clear":   {[]string{"--webhook", "http://hooks.example/x"}, exitUsage, "want https"},
		"settings unknown":     {[]string{"--config", file(`{"reboot":1}`)}, exitUsage, "unknown field"},
		"settings missing":     {[]string{"--config", "/nowhere.json"}, exitUsage, "no such file"},
		"no admission server":  {[]string{"--join-settings", "/nowhere.json"}, exitUsage, "no such file"},
		"an argument too many": {[]string{"now"}, exitUsage, `unexpected argument "now"`},
	} {
		t.Run(name, func(t *testing.T) {
			code, said := playEvents(t, c.args...)
			if code != c.code || !strings.Contains(said, c.says) {
				t.Errorf("%d, want %d: %s", code, c.code, said)
			}
		})
	}
}

// Flags go before the file, and what they leave out stays.
func TestEventsFlagsGoFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "settings.json")
	if err := os.WriteFile(path, []byte(`{"events":{"Reboot":{"action":"cordon","acknowledge":"never"}},"aheadSeconds":60,"ignoreFreezeBelowSeconds":3}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var f eventsFlags
	fs := flagsOf("events")
	f.define(fs)
	if err := fs.Parse([]string{"--config", path, "--action", "Reboot=leave", "--ignore-freeze-below", "0"}); err != nil {
		t.Fatal(err)
	}
	if err := f.complete(fs); err != nil {
		t.Fatal(err)
	}
	if r := f.settings.Rules[events.Reboot]; r.Do != events.Leave || r.Acknowledge != events.Never || f.settings.Ahead != 60 || *f.settings.IgnoreFreezeBelow != 0 {
		t.Errorf("%+v", f.settings)
	}
}
