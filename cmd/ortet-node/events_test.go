package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/node/events"
	"github.com/ortet/ortet/internal/node/join"
	"github.com/ortet/ortet/test/syncbuffer"
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
	broken := t.TempDir()
	keepSettings(t, broken, `{"distribution":"kubelet"}`)
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
		"as few as none are":   {[]string{"--root", broken}, exitOK, "without an admission server"},
		"of the server, wrong": {[]string{"--root", broken, "--join-settings", "/etc/ortet/join.json"}, exitUsage, "0 servers"},
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

// keepSettings are the admission server's below a root.
func keepSettings(t *testing.T, root, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(root, "etc/ortet"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, join.SettingsFile), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The admission server's settings come late, are broken, and are mended: the daemon
// goes on with what there is, and says so.
func TestEventsGoesOnWithoutAServer(t *testing.T) {
	azure := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/metadata/scheduledevents") {
			_, _ = io.WriteString(w, `{"DocumentIncarnation":1,"Events":[]}`)
		} else {
			_, _ = io.WriteString(w, "pool1_3")
		}
	}))
	defer azure.Close()
	root := t.TempDir()
	metrics := filepath.Join(root, "x.prom")
	t.Setenv("NOTIFY_SOCKET", "")
	ctx, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	var errs syncbuffer.Buffer
	code := make(chan int, 1)
	go func() {
		code <- runEvents(ctx, []string{"--root", root, "--metadata-service", azure.URL, "--metrics-file", metrics}, stdio{out: io.Discard, err: &errs})
	}()
	const good = `{"servers":["https://127.0.0.1:1"],"caHash":"sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a","distribution":"kubelet"}`
	for i, c := range []struct{ settings, server, says string }{
		{"", "0", "there is no /etc/ortet/join.json"}, {good, "1", ""}, {`{"servers":[],`, "0", "unexpected EOF"}, {good, "1", ""}, {`{"servers":[]}`, "0", "0 servers"},
	} {
		if c.settings != "" {
			keepSettings(t, root, c.settings)
		}
		for {
			text, _ := os.ReadFile(metrics)
			if strings.Contains(string(text), "\nortet_events_server "+c.server+"\n") && strings.Contains(string(text), "\nortet_events_up 1\n") && strings.Contains(errs.String(), c.says) {
				break
			}
			select {
			case <-ctx.Done():
				t.Fatalf("%d: not within a minute: %s\n%s", i, text, errs.String())
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	end()
	if got := <-code; got != exitOK {
		t.Errorf("exit %d", got)
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
