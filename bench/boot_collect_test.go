package main

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"
)

// costLine is what `ortet-node report --verbose` says that it took.
var costLine = regexp.MustCompile(`msg=cost cpu=(\S+) childrensCPU=(\S+) peak=(\d+) childrensPeak=(\d+)`)

// BenchmarkBootCollect is what it costs a node to collect its boot's times: processor time
// and memory of the agent, and apart of systemctl and journalctl, which it runs. What systemd
// takes to answer is not in it. This host is the node. Its figures are the medians of processor
// time in ms, and the most memory in MiB.
func BenchmarkBootCollect(b *testing.B) {
	var both, agent, programs, resident, residentAgent, residentPrograms []float64
	for b.Loop() {
		out, err := exec.CommandContext(b.Context(), filepath.Join(*bin, "ortet-node"), "report", "--verbose", "-o", "json", "--out", "none", "--metadata", "no").CombinedOutput()
		m := costLine.FindSubmatch(out)
		if err != nil || m == nil {
			b.Fatalf("ortet-node report does not report its cost: %v: %s", err, out)
		}
		var v [4]float64
		for i := range v {
			if i < 2 {
				var d time.Duration
				d, err = time.ParseDuration(string(m[1+i]))
				v[i] = float64(d.Microseconds()) / 1000
			} else {
				v[i], err = strconv.ParseFloat(string(m[1+i]), 64)
				v[i] /= 1 << 20
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		both, agent, programs = append(both, v[0]+v[1]), append(agent, v[0]), append(programs, v[1])
		resident, residentAgent, residentPrograms = append(resident, v[2]+v[3]), append(residentAgent, v[2]), append(residentPrograms, v[3])
	}
	report(b, "boot-collect",
		atMost("cpu", percentile(both, 50), "ms", 150),
		free("cpu-agent", percentile(agent, 50), "ms"),
		free("cpu-programs", percentile(programs, 50), "ms"),
		atMost("resident", slices.Max(resident), "MiB", 25),
		free("resident-agent", slices.Max(residentAgent), "MiB"),
		free("resident-programs", slices.Max(residentPrograms), "MiB"),
	)
}
