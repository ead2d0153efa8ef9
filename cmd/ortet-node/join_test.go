package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// settled writes settings for a server below a root of their own.
func settled(t *testing.T, server string) (root string) {
	t.Helper()
	root = t.TempDir()
	text, err := json.Marshal(map[string]any{"servers": []string{server}, "caHash": "sha256:" + strings.Repeat("0a", 32), "distribution": "kubelet", "callbackPort": 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "etc/ortet"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "etc/ortet/join.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestJoinExitCodes(t *testing.T) {
	stranger := httptest.NewUnstartedServer(http.NotFoundHandler())
	stranger.Config.ErrorLog = nil
	stranger.StartTLS()
	defer stranger.Close()
	// Azure has an address of the test's own.
	var asked atomic.Int32
	azure := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		http.Error(w, "{}", http.StatusTeapot)
	}))
	defer azure.Close()
	root := settled(t, stranger.URL)
	damaged := settled(t, stranger.URL)
	if err := os.WriteFile(filepath.Join(damaged, "etc/ortet/join.json"), []byte(`{"server":"https://x"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "join.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct {
		args []string
		code int
		said string
	}{
		"an empty file":       {[]string{"join", "--settings", file("")}, exitUsage, "join.json: it is empty"},
		"a path of a place":   {[]string{"join", "--settings", file(`{"kubelet":{"clientCA":"x"}}`)}, exitUsage, `a path "x" as clientCA of kubelet`},
		"no such port":        {[]string{"join", "--root", root, "--server", "https://a:99999"}, exitUsage, `a server "https://a:99999", want a port`},
		"nowhere to call":     {[]string{"join", "--root", root, "--callback-port", "70000"}, exitUsage, "a callbackPort of 70000, want 1 to 65535"},
		"no settings":         {[]string{"join", "--root", t.TempDir()}, exitUsage, "there is no /etc/ortet/join.json: write it, docs/reference/ortet-node-join.md lists"},
		"no settings, a flag": {[]string{"leave", "--root", t.TempDir(), "--server", "https://x"}, exitUsage, "of flags alone, since there is no /etc/ortet/join.json: a caHash"},
		"a file that is gone": {[]string{"join", "--root", root, "--settings", "/etc/none.json"}, exitUsage, "settings: /etc/none.json: no such file"},
		"gone with its place": {[]string{"join", "--settings", "/none/none.json"}, exitUsage, "settings: /none/none.json: no such file"},
		"an unknown setting":  {[]string{"join", "--root", damaged}, exitUsage, `"server"`},
		"a flag is wrong":     {[]string{"join", "--root", root, "--server", "http://x", "--distribution", "k8s"}, exitUsage, "unknown distribution"},
		"deadline below 0":    {[]string{"join", "--root", root, "--deadline", "-1s"}, exitUsage, "--deadline"},
		"once":                {[]string{"join", "--root", root, "--once", "--metadata-service", azure.URL}, exitFailed, "418"},
		"a deadline":          {[]string{"join", "--root", root, "--deadline", "300ms", "--metadata-service", azure.URL}, exitDeadline, "the deadline of 300ms has passed; the last try: asking Azure who this machine is: "},
		"leave without cause": {[]string{"leave", "--root", root, "--cause", "two words"}, exitUsage, "a cause"},
		"leave for no time":   {[]string{"leave", "--root", root, "--within", "0s"}, exitUsage, "--within 0s: want 1s to 15m"},
		"leave what":          {[]string{"leave", "--root", root, "--only", "all"}, exitUsage, "--only"},
		"stay and go":         {[]string{"leave", "--root", root, "--only", "left", "--stay"}, exitUsage, "contradict"},
		"leave and come back": {[]string{"leave", "--root", root, "--back", "--stay"}, exitUsage, "contradict"},
		"nobody to undo it":   {[]string{"leave", "--root", root, "--back", "--within", "1s", "--metadata-service", azure.URL}, exitFailed, "not all was done: "},
		"nobody to leave":     {[]string{"leave", "--root", root, "--stay", "--within", "1s", "--metadata-service", azure.URL}, exitFailed, "not all was done: draining: "},
	} {
		t.Run(name, func(t *testing.T) {
			var out, said bytes.Buffer
			code := run(context.Background(), c.args, stdio{out: &out, err: &said})
			if code != c.code || !strings.Contains(said.String(), c.said) {
				t.Errorf("exit %d, want %d; %q is to be in: %s", code, c.code, c.said, said.String())
			}
		})
	}
	var said bytes.Buffer
	if code := run(context.Background(), []string{"report", "--root", root, "--out", "none", "--metadata", "no", "--report-admission", "--metadata-service", azure.URL}, stdio{out: io.Discard, err: &said}); code != exitFailed || !strings.Contains(said.String(), "telling the admission server: ") || asked.Load() < 4 {
		t.Errorf("a report that could not be told: exit %d: %s; Azure was asked %d times", code, said.String(), asked.Load())
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if code := run(ctx, []string{"join", "--root", root, "--metadata-service", azure.URL}, stdio{out: io.Discard, err: io.Discard}); code != exitFailed {
		t.Errorf("interrupted: exit %d", code)
	}
}

// What is missing is not told beside what is misspelt: it may be what was meant.
func TestSettingsComeAfterFlags(t *testing.T) {
	for _, args := range [][]string{{"join"}, {"leave"}, {"events", "--join-settings", "/none.json"}} {
		var said bytes.Buffer
		want := "ortet-node " + args[0] + ": flag provided but not defined: -foo\nSee 'ortet-node " + args[0] + " --help'.\n"
		if code := run(t.Context(), append(args, "--root", t.TempDir(), "--foo"), stdio{out: io.Discard, err: &said}); code != exitUsage || said.String() != want {
			t.Errorf("%v: exit %d: %s", args, code, said.String())
		}
	}
}

// A file on the command line is found where a shell finds it.
func TestSettingsFromHere(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("mine.json", []byte(`{"servers":[],"distribution":"k8s"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"join", "--settings", "mine.json"}, {"leave", "--settings", "mine.json"}, {"events", "--join-settings", "mine.json"}} {
		var said bytes.Buffer
		if code := run(t.Context(), args, stdio{out: io.Discard, err: &said}); code != exitUsage || !strings.Contains(said.String(), `unknown distribution "k8s"`) {
			t.Errorf("%v: exit %d: %s", args, code, said.String())
		}
	}
}
