package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const collectRuns = 15

// bootCollect is what it costs a node to collect its boot's times: processor time
// and memory of the agent, and apart of journalctl, which it runs. What systemd
// takes to answer is not in it. This host is the node; where systemd has not
// started it, the lab's test of boots prints the same lines of a machine.
func bootCollect(ctx context.Context, o options) ([]figure, error) {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return nil, errors.New("this host was not started by systemd, so it has nothing to collect: 'hack/lab/run.sh -run TestCollectorIsInNobodysWay' measures it on a machine that was")
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
		free("cpu-journalctl", median(func(c collectCost) float64 { return ms(c.children) }), "ms"),
		atMost("resident", most(func(c collectCost) float64 { return (c.peak + c.childrenPeak) / (1 << 20) }), "MiB", 25),
		free("resident-agent", most(func(c collectCost) float64 { return c.peak / (1 << 20) }), "MiB"),
		free("resident-journalctl", most(func(c collectCost) float64 { return c.childrenPeak / (1 << 20) }), "MiB"),
	}
}
