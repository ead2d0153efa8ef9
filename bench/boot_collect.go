package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const collectRuns = 15

// bootCollect is what it costs a node to collect its boot's times: processor time
// and memory of the agent, and apart of systemctl and journalctl, which it runs. What systemd
// takes to answer is not in it. This host is the node; where systemd has not
// started it, a machine of the lab is, by its test, which also tells how much later
// its node was Ready.
func bootCollect(ctx context.Context, o options) ([]figure, error) {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return collectInLab(ctx)
	}
	var costs []collectCost
	for range collectRuns {
		cmd := exec.CommandContext(ctx, filepath.Join(o.bin, "ortet-node"), "report", "--verbose", "-o", "json", "--out", "none", "--metadata", "no")
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Run(); err != nil {
			return nil, fmt.Errorf("%w: %s", err, said.Bytes())
		}
		c, err := parseCost(said.String())
		if err != nil {
			return nil, err
		}
		costs = append(costs, c)
	}
	return collectFigures(costs), nil
}

// labFigure is a line of the lab's test: name, value, unit, bound.
var labFigure = regexp.MustCompile(`boot-collect/(\S+) +(\S+) +(\S+) +(\S+) +(?:ok|over|-)`)

// collectInLab runs the lab's test, in some two minutes; from the checkout, as
// root on Debian.
func collectInLab(ctx context.Context) ([]figure, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-timeout=15m", "-run=^TestCollectorIsInNobodysWay$", "./test/lab", "-pairs=8")
	cmd.Env = append(os.Environ(), "ORTET_LAB=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("this host was not started by systemd, so that a machine of the lab is measured, which needs root on Debian: %w: %s", err, out[max(0, len(out)-2000):])
	}
	var figures []figure
	for _, m := range labFigure.FindAllStringSubmatch(string(out), -1) {
		value, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return nil, err
		}
		f := free(m[1], value, m[3])
		if bound, err := strconv.ParseFloat(m[4], 64); err == nil {
			f = atMost(m[1], value, m[3], bound)
		}
		figures = append(figures, f)
	}
	if len(figures) == 0 {
		return nil, fmt.Errorf("the lab's test gave no figures: %s", out[max(0, len(out)-2000):])
	}
	return figures, nil
}

// collectCost is what `ortet-node report --verbose` says that it took.
type collectCost struct {
	cpu, children      time.Duration
	peak, childrenPeak float64 // bytes
}

func parseCost(log string) (c collectCost, err error) {
	_, line, ok := strings.Cut(log, "msg=cost ")
	if !ok {
		return c, fmt.Errorf("ortet-node report does not say what it took: %s", log)
	}
	line, _, _ = strings.Cut(line, "\n")
	for pair := range strings.FieldsSeq(line) {
		key, value, _ := strings.Cut(pair, "=")
		var problem error
		switch key {
		case "cpu":
			c.cpu, problem = time.ParseDuration(value)
		case "childrensCPU":
			c.children, problem = time.ParseDuration(value)
		case "peak":
			c.peak, problem = strconv.ParseFloat(value, 64)
		case "childrensPeak":
			c.childrenPeak, problem = strconv.ParseFloat(value, 64)
		}
		err = errors.Join(err, problem)
	}
	return c, err
}

// collectFigures are the medians of processor time, and the most memory.
func collectFigures(costs []collectCost) []figure {
	median := func(of func(collectCost) float64) float64 {
		var all []float64
		for _, c := range costs {
			all = append(all, of(c))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	most := func(of func(collectCost) float64) float64 {
		highest := 0.0
		for _, c := range costs {
			highest = max(highest, of(c))
		}
		return highest
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return []figure{
		atMost("cpu", median(func(c collectCost) float64 { return ms(c.cpu + c.children) }), "ms", 150),
		free("cpu-agent", median(func(c collectCost) float64 { return ms(c.cpu) }), "ms"),
		free("cpu-programs", median(func(c collectCost) float64 { return ms(c.children) }), "ms"),
		atMost("resident", most(func(c collectCost) float64 { return (c.peak + c.childrenPeak) / (1 << 20) }), "MiB", 25),
		free("resident-agent", most(func(c collectCost) float64 { return c.peak / (1 << 20) }), "MiB"),
		free("resident-programs", most(func(c collectCost) float64 { return c.childrenPeak / (1 << 20) }), "MiB"),
	}
}
