package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/node/config/apply"
	"github.com/ortet/ortet/internal/node/config/files"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/wire"
)

const (
	configApplies = 20 // after the first
	configFiles   = 6
)

// configVirtual measures what takes minutes or an hour, in virtual time: a thousand
// writes of userData within the limits, and an agent that has nothing to do but watch.
// It reads the logs of two tests, since virtual time is a test's.
func configVirtual(ctx context.Context, _ options) ([]figure, error) {
	said, err := output(exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-run=^(TestLimitResourcesThousandPuts|TestWatchBreaksAndComesBack)$", "./internal/azure", "./internal/node/config"))
	if err != nil {
		return nil, err
	}
	var took, expected string
	var reads, watches float64
	for line := range strings.Lines(said) {
		_, line, _ = strings.Cut(line, ".go:")
		_, line, _ = strings.Cut(strings.TrimSpace(line), ": ")
		switch {
		case strings.HasPrefix(line, "1000 PUTs took "):
			_, err = fmt.Sscanf(line, "1000 PUTs took %s of virtual time; expected %s", &took, &expected)
		case strings.HasSuffix(line, " in an idle hour"):
			_, err = fmt.Sscanf(line, "%f readings and %f watches in an idle hour", &reads, &watches)
		}
		if err != nil {
			return nil, fmt.Errorf("read %q: %w", line, err)
		}
	}
	puts, err := time.ParseDuration(took)
	least, problem := time.ParseDuration(expected)
	if err = errors.Join(err, problem); err != nil || watches == 0 {
		return nil, fmt.Errorf("the tests log no figures: %w\n%s", err, said)
	}
	return []figure{
		free("1000-puts", puts.Seconds(), "s of virtual time"),
		free("1000-puts-expected", least.Seconds(), "s of virtual time"),
		// With the request at the start.
		atMost("metadata-idle-hour", reads, "requests", 8),
	}, nil
}

// configApply applies documents that change six files and two sysctls, and restart
// nothing, by the agent's own store and applier, on this machine's disk.
func configApply(ctx context.Context, _ options) (_ []figure, err error) {
	root, err := os.MkdirTemp("", "ortet-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	disk, err := files.OS(root)
	if err != nil {
		return nil, err
	}
	store, err := files.Open(disk)
	if err != nil {
		return nil, err
	}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	applier := apply.New(apply.Options{Root: root, Files: store, System: calmSystem{}, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	var each, used []time.Duration
	for generation := int64(1); generation <= configApplies+1; generation++ {
		d := nodeconfig.Document{Pool: configPool, Generation: generation, Config: nodeconfig.Config{Sysctls: map[string]string{
			"net.core.somaxconn": fmt.Sprint(1000 + generation), "vm.max_map_count": fmt.Sprint(300000 + generation),
		}}}
		for i := range configFiles {
			d.Config.Files = append(d.Config.Files, nodeconfig.File{Path: fmt.Sprintf("/etc/example/%d.conf", i), Content: strings.Repeat(fmt.Sprintf("generation: %d\n", generation), 100)})
		}
		record, err := d.Sign(key)
		if err != nil {
			return nil, err
		}
		before, began := processCPU(), time.Now()
		answer := applier.Apply(ctx, d, record)
		took, cpu := time.Since(began), processCPU()-before
		if answer.State != wire.ConfigurationApplied || answer.Generation != generation {
			return nil, fmt.Errorf("apply generation %d: %+v", generation, answer)
		}
		if generation > 1 { // the first makes files, all others change them
			each, used = append(each, took), append(used, cpu)
		}
	}
	return []figure{
		atMost("apply-median", float64(percentile(each, 50).Microseconds())/1000, "ms", 300),
		free("apply-most", float64(percentile(each, 100).Microseconds())/1000, "ms"),
		free("apply-cpu-median", float64(percentile(used, 50).Microseconds())/1000, "ms"),
	}, nil
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
