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

// simulatedCaptures is how many are played, 70 ms each.
const simulatedCaptures = 200

// simulated measures what a capture costs in virtual time: the workflow, Azure's
// SDK, client-go, the simulated Azure and the API server in memory, all on one
// core, by the processor's time. The play is a test, since virtual time is a
// test's: see docs/reference/simulation.md.
func simulated(ctx context.Context, _ options) (_ []figure, err error) {
	dir, err := os.MkdirTemp("", "ortet-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program := filepath.Join(dir, "simulate.test")
	if _, err := output(exec.CommandContext(ctx, "go", "test", "-c", "-o", program, "./test/simulate")); err != nil {
		return nil, err
	}
	play := exec.CommandContext(ctx, program, "-test.run=^TestPace$", "-test.v", "-test.timeout=5m", fmt.Sprintf("-pace=%d", simulatedCaptures))
	play.Dir = filepath.Join("test", "simulate")
	play.Env = append(os.Environ(), "GOMAXPROCS=1")
	said, err := output(play)
	if err != nil {
		return nil, err
	}
	var pace, azure, kube float64
	for line := range strings.Lines(said) {
		if !strings.Contains(line, "captures a second") {
			continue
		}
		if _, err = fmt.Sscanf(line, "%f captures a second of CPU; %f requests to Azure and %f to Kubernetes each", &pace, &azure, &kube); err != nil {
			return nil, fmt.Errorf("read %q: %w", line, err)
		}
	}
	if pace == 0 {
		return nil, fmt.Errorf("TestPace printed no pace:\n%s", said)
	}
	return []figure{
		atLeast("pace", pace, "captures/s", 10),
		free("requests", azure+kube, ""),
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
