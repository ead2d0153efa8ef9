package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// simulatedCaptures is how many are played, 40 ms each.
const simulatedCaptures = 200

// simulated measures what a capture costs in virtual time: the engine, Azure's
// SDK, client-go, the simulated Azure and the API server in memory, all on one
// core, by the processor's time. The play is a test, since virtual time is a
// test's: see docs/simulation.md.
func simulated(ctx context.Context, _ options) (_ []figure, err error) {
	dir, err := os.MkdirTemp("", "ortet-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program := filepath.Join(dir, "play.test")
	if _, err := output(exec.CommandContext(ctx, "go", "test", "-c", "-o", program, "./test/scenario/play")); err != nil {
		return nil, err
	}
	play := exec.CommandContext(ctx, program, "-test.run=^TestPace$", "-test.v", "-test.timeout=5m", fmt.Sprintf("-pace=%d", simulatedCaptures))
	play.Dir = filepath.Join("test", "scenario", "play")
	play.Env = append(os.Environ(), "GOMAXPROCS=1")
	said, err := output(play)
	if err != nil {
		return nil, err
	}
	var pace, all, azure, kube float64
	for line := range strings.Lines(said) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "simulated-captures "):
			_, err = fmt.Sscanf(line, "simulated-captures %f a second of CPU", &pace)
		case strings.HasPrefix(line, "requests-per-capture "):
			_, err = fmt.Sscanf(line, "requests-per-capture %f: %f to Azure, %f to Kubernetes", &all, &azure, &kube)
		}
		if err != nil {
			return nil, fmt.Errorf("read %q: %w", line, err)
		}
	}
	if pace == 0 || all == 0 {
		return nil, fmt.Errorf("the play says neither pace nor requests:\n%s", said)
	}
	return []figure{
		atLeast("pace", pace, "captures/s", 20),
		free("requests", all, ""),
		free("azure-requests", azure, ""),
		free("kubernetes-requests", kube, ""),
	}, nil
}

// output runs a command and gives what it prints; what it complains of is in the
// error.
func output(cmd *exec.Cmd) (string, error) {
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w:\n%s%s", strings.Join(cmd.Args, " "), err, out.String(), complaint.String())
	}
	return out.String(), nil
}
