package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/node/config/files"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/wire"
)

// pendingAt leaves an application open at a root.
func pendingAt(t *testing.T, root string) {
	t.Helper()
	record, err := nodeconfig.Document{Pool: "/p", Generation: 1}.Sign(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}
	machine, err := files.OS(root)
	if err != nil {
		t.Fatal(err)
	}
	store, err := files.Open(machine)
	if err == nil {
		_, err = store.Begin(nil, []byte(record))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestConfigCommandLine(t *testing.T) {
	for name, c := range map[string]struct {
		args    []string
		pending bool
		broken  bool
		code    int
		says    string
	}{
		"nothing":                  {code: exitUsage, says: "want recover, boot, run or show"},
		"another command":          {args: []string{"apply"}, code: exitUsage, says: "want recover, boot, run or show"},
		"help":                     {args: []string{"--help"}, says: "recover  restore the files"},
		"a command's help":         {args: []string{"boot", "--help"}, says: "--metadata-service URL"},
		"another flag":             {args: []string{"recover", "--metadata-service", "x"}, code: exitUsage, says: "metadata-service"},
		"recover without journal":  {args: []string{"recover"}},
		"recover":                  {args: []string{"recover"}, pending: true, says: "restored the files"},
		"recover fails":            {args: []string{"recover"}, broken: true, code: exitFailed, says: "open store"},
		"boot never fails":         {args: []string{"boot", "--metadata-service", "http://127.0.0.1:1"}, says: "read userData"},
		"boot over an application": {args: []string{"boot"}, pending: true, says: "an application is open"},
		"boot without a store":     {args: []string{"boot"}, broken: true, says: "open store"},
		"run ends by its context":  {args: []string{"run", "--metadata-service", "http://127.0.0.1:1"}},
		"show":                     {args: []string{"show"}, says: "NoDocument"},
		"show in another format":   {args: []string{"show", "-o", "yaml"}, code: exitUsage, says: "want text or json"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			if len(c.args) > 0 && c.args[0] == "run" {
				cancel()
			}
			defer cancel()
			args, root := c.args, t.TempDir()
			if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
				args = append([]string{args[0], "--root", root}, args[1:]...)
			}
			if c.pending {
				pendingAt(t, root)
			}
			if c.broken {
				if err := os.WriteFile(filepath.Join(root, "var"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out, errs bytes.Buffer
			code := runConfig(ctx, args, stdio{out: &out, err: &errs})
			if said := out.String() + errs.String(); code != c.code || !strings.Contains(said, c.says) {
				t.Errorf("exit %d, %q; want %d, %q", code, said, c.code, c.says)
			}
		})
	}
}

func TestConfigShowAsJSON(t *testing.T) {
	var out, errs bytes.Buffer
	code := runConfig(t.Context(), []string{"show", "-o", "json", "--root", t.TempDir()}, stdio{out: &out, err: &errs})
	var a wire.ConfigurationAnswer
	if err := json.Unmarshal(out.Bytes(), &a); err != nil || code != exitOK || a.State != wire.ConfigurationWaiting {
		t.Errorf("exit %d, %v: %s%s", code, err, out.String(), errs.String())
	}
}
