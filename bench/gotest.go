package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// goBenchmark is a benchmark of package testing in this folder, of which times are run.
func goBenchmark(name string, times int) benchmark {
	return func(ctx context.Context, o options) ([]figure, error) {
		bin, err := filepath.Abs(o.bin)
		if err != nil {
			return nil, err
		}
		return inTests("-run=^$", "-bench=^"+name+"$", fmt.Sprintf("-benchtime=%dx", times), "./bench", "-bin="+bin, fmt.Sprintf("-disk=%d", o.disk))(ctx, o)
	}
}

// figureLine is a figure as figure.line writes it, also where the columns are aligned with spaces.
var figureLine = regexp.MustCompile(`(?m)[\w-]+/([\w-]+)(?:\t| {2,})(\S+)(?:\t| {2,})([^\t\n]*?)(?:\t| {2,})(?:-|(>=)?([\d.e+]+))(?:\t| {2,})(?:ok|over|-)`)

// inTests is a benchmark whose figures tests print, since virtual time and the lab are a test's.
func inTests(args ...string) benchmark {
	return shownTests(io.Discard, args...)
}

// shownTests is inTests that also copies what the tests print, as it comes.
func shownTests(to io.Writer, args ...string) benchmark {
	return func(ctx context.Context, _ options) ([]figure, error) {
		cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-count=1", "-v", "-timeout=30m"}, args...)...)
		var all bytes.Buffer
		cmd.Stdout = io.MultiWriter(&all, to)
		cmd.Stderr = cmd.Stdout
		err := cmd.Run()
		out := all.Bytes()
		var figures []figure
		for _, m := range figureLine.FindAllStringSubmatch(string(out), -1) {
			f := figure{name: m[1], unit: strings.TrimSpace(m[3])}
			var problem error
			f.value, problem = strconv.ParseFloat(m[2], 64)
			if err = errors.Join(err, problem); m[5] != "" {
				f.limit = upper
				if m[4] != "" {
					f.limit = lower
				}
				f.bound, problem = strconv.ParseFloat(m[5], 64)
				err = errors.Join(err, problem)
			}
			figures = append(figures, f)
		}
		if err == nil && len(figures) == 0 {
			err = errors.New("no figures were printed")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w:\n%s", strings.Join(cmd.Args, " "), err, out[max(0, len(out)-2000):])
		}
		return figures, nil
	}
}

// bootCollect measures this host; where systemd has not started it, a machine of the lab, by its
// test, in some two minutes.
func bootCollect(ctx context.Context, o options) ([]figure, error) {
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		return goBenchmark("BenchmarkBootCollect", 15)(ctx, o)
	}
	figures, err := onMachines(ctx, o, io.Discard, "-run=^TestCollectorIsInNobodysWay$", "./test/lab", "-pairs=8")
	if err != nil {
		err = fmt.Errorf("this host was not started by systemd, so that a machine of the lab is measured, which needs root on Debian: %w", err)
	}
	return figures, err
}

// onMachines is shownTests of the lab.
func onMachines(ctx context.Context, o options, to io.Writer, args ...string) ([]figure, error) {
	if err := os.Setenv("ORTET_LAB", "1"); err != nil {
		return nil, err
	}
	return shownTests(to, append([]string{"-tags=e2e"}, args...)...)(ctx, o)
}

// cloneBoot boots real machines for half an hour and more, and shows on standard error how far it is.
func cloneBoot(ctx context.Context, o options) ([]figure, error) {
	if o.rounds < 1 {
		return nil, fmt.Errorf("-rounds %d: boot each kind at least once", o.rounds)
	}
	figures, err := onMachines(ctx, o, os.Stderr, "-run=^TestCloneBoot$", "-timeout=2h", "./test/lab",
		fmt.Sprintf("-rounds=%d", o.rounds), fmt.Sprintf("-cores=%d", o.cores))
	if err != nil {
		err = fmt.Errorf("machines of the lab need root on Debian, and the packages in hack/lab/packages.txt: %w", err)
	}
	return figures, err
}

func agentSize(_ context.Context, o options) ([]figure, error) {
	info, err := os.Stat(filepath.Join(o.bin, "ortet-node"))
	if err != nil {
		return nil, err
	}
	return []figure{atMost("stripped", float64(info.Size())/(1<<20), "MiB", 12)}, nil
}
