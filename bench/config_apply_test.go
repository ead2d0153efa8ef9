package main

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/node/config/apply"
	"github.com/ortet/ortet/internal/node/config/files"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/wire"
)

const configFiles = 6

// BenchmarkConfigApply applies documents that change six files and two sysctls, and restart
// nothing, by the agent's own store and applier, on this machine's disk.
func BenchmarkConfigApply(b *testing.B) {
	root := b.TempDir()
	disk, err := files.OS(root)
	if err != nil {
		b.Fatal(err)
	}
	store, err := files.Open(disk)
	if err != nil {
		b.Fatal(err)
	}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		b.Fatal(err)
	}
	applier := apply.New(apply.Options{Root: root, Files: store, System: calmSystem{}, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	var each, used []time.Duration
	generation := int64(0)
	for b.Loop() {
		generation++
		d := nodeconfig.Document{Pool: configPool, Generation: generation, Config: nodeconfig.Config{Sysctls: map[string]string{
			"net.core.somaxconn": fmt.Sprint(1000 + generation), "vm.max_map_count": fmt.Sprint(300000 + generation),
		}}}
		for i := range configFiles {
			d.Config.Files = append(d.Config.Files, nodeconfig.File{Path: fmt.Sprintf("/etc/example/%d.conf", i), Content: strings.Repeat(fmt.Sprintf("generation: %d\n", generation), 100)})
		}
		record, err := d.Sign(key)
		if err != nil {
			b.Fatal(err)
		}
		before, began := processCPU(b), time.Now()
		answer := applier.Apply(b.Context(), d, record)
		took, cpu := time.Since(began), processCPU(b)-before
		if answer.State != wire.ConfigurationApplied || answer.Generation != generation {
			b.Fatalf("apply generation %d: %+v", generation, answer)
		}
		if generation > 1 { // the first makes files, all others change them
			each, used = append(each, took), append(used, cpu)
		}
	}
	report(b, "config",
		atMost("apply-median", ms(percentile(each, 50)), "ms", 300),
		free("apply-most", ms(percentile(each, 100)), "ms"),
		free("apply-cpu-median", ms(percentile(used, 50)), "ms"),
	)
}

// A calmSystem is a machine that does all at once, and whose sysctls are never as wanted.
type calmSystem struct{}

var _ apply.System = calmSystem{}

// Verify complains of nothing.
func (calmSystem) Verify(context.Context, string, []string) ([]string, error) { return nil, nil }

// Reload and the following do nothing.
func (calmSystem) Reload(context.Context) error                            { return nil }
func (calmSystem) Control(context.Context, apply.Verb, string, bool) error { return nil }
func (calmSystem) Journal(context.Context, string) []string                { return nil }
func (calmSystem) Sysctl(string) (string, error)                           { return "0", nil }
func (calmSystem) SetSysctl(string, string) error                          { return nil }
func (calmSystem) UpdateCACertificates(context.Context) error              { return nil }
func (calmSystem) Command(context.Context, string) ([]string, error)       { return nil, nil }
func (calmSystem) Healthz(context.Context, int) error                      { return nil }
func (calmSystem) Wait(context.Context, time.Duration) error               { return nil }
func (calmSystem) Unit(context.Context, string) (s apply.UnitState, err error) {
	return apply.UnitState{Active: "active"}, nil
}
