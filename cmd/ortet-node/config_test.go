package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/node/config"
	"github.com/ortet/ortet/internal/node/config/files"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/wire"
)

// emptyMachine has no configuration, and a journal that recovery ends.
type emptyMachine struct{ pending bool }

func (emptyMachine) Current() (files.Set, []byte, error) { return nil, nil, nil }
func (m emptyMachine) Pending() ([]byte, bool, error) {
	record, err := nodeconfig.Document{Pool: "/p", Generation: 1}.Sign(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	return []byte(record), m.pending, err
}
func (emptyMachine) Drift() ([]string, error) { return nil, nil }
func (emptyMachine) Forget() error            { return nil }
func (emptyMachine) Apply(context.Context, nodeconfig.Document, string) wire.ConfigurationAnswer {
	return wire.ConfigurationAnswer{}
}
func (m emptyMachine) Recover(context.Context) (bool, error) { return m.pending, nil }
func (emptyMachine) Settle(context.Context) (wire.ConfigurationAnswer, bool) {
	return wire.ConfigurationAnswer{}, false
}

func TestConfigCommandLine(t *testing.T) {
	for name, c := range map[string]struct {
		args    []string
		pending bool
		broken  error
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
		"recover fails":            {args: []string{"recover"}, broken: errors.New("disk full"), code: exitFailed, says: "disk full"},
		"boot never fails":         {args: []string{"boot", "--metadata-service", "http://127.0.0.1:1"}, says: "read userData"},
		"boot over an application": {args: []string{"boot"}, pending: true, says: "an application is open"},
		"boot without a store":     {args: []string{"boot"}, broken: errors.New("disk full"), says: "disk full"},
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
			args := c.args
			if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
				args = append([]string{args[0], "--root", t.TempDir()}, args[1:]...)
			}
			var out, errs bytes.Buffer
			code := configCommand(ctx, args, stdio{out: &out, err: &errs}, func(m configMachine) (config.Store, config.Applier, error) {
				if m.kubeletConfigDir != config.DefaultKubeletConfigDir || m.boot != (c.args[0] == "boot") {
					t.Errorf("%+v", m)
				}
				return emptyMachine{c.pending}, emptyMachine{c.pending}, c.broken
			})
			if said := out.String() + errs.String(); code != c.code || !strings.Contains(said, c.says) {
				t.Errorf("exit %d, %q; want %d, %q", code, said, c.code, c.says)
			}
		})
	}
}

func TestConfigShowAsJSON(t *testing.T) {
	var out, errs bytes.Buffer
	code := configCommand(t.Context(), []string{"show", "-o", "json", "--root", t.TempDir()}, stdio{out: &out, err: &errs}, func(configMachine) (config.Store, config.Applier, error) {
		return emptyMachine{}, emptyMachine{}, nil
	})
	var a wire.ConfigurationAnswer
	if err := json.Unmarshal(out.Bytes(), &a); err != nil || code != exitOK || a.State != wire.ConfigurationWaiting {
		t.Errorf("exit %d, %v: %s%s", code, err, out.String(), errs.String())
	}
}
