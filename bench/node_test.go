package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	nodeTimeout = 20 * time.Second
	wakeupsOver = 10 * time.Second
)

// waiter is an `ortet-node wait` on a root of its own, past its first look.
type waiter struct {
	cmd *exec.Cmd
	dir string
}

// startWaiter begins one on a node that is still booting: cloud-init's and Cluster
// API's folders are there, and none of their files that decide.
func startWaiter(b *testing.B) waiter {
	b.Helper()
	dir, err := os.MkdirTemp(b.TempDir(), "")
	if err != nil {
		b.Fatal(err)
	}
	for _, folder := range []string{"run/cluster-api", "run/cloud-init", "var/lib/cloud/data", "var/lib/ortet", "var/log"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			b.Fatal(err)
		}
	}
	output := strings.Repeat("[kubelet-start] Waiting for the kubelet to perform the TLS Bootstrap\n", 2000) +
		"error execution phase preflight: couldn't validate the identity of the API Server: could not find a JWS signature in the cluster-info ConfigMap for token ID \"abcdef\"\n"
	if err := os.WriteFile(filepath.Join(dir, "var/log/cloud-init-output.log"), []byte(output), 0o600); err != nil {
		b.Fatal(err)
	}
	w := waiter{exec.CommandContext(b.Context(), filepath.Join(*bin, "ortet-node"), "wait", "--root", dir, "--kubelet", "no", "--console", "", "--verbose"), dir}
	said, err := w.cmd.StderrPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "msg=waiting") {
			go func() { _, _ = io.Copy(io.Discard, said) }() // it ends with the process
			return w
		}
	}
	b.Fatalf("ortet-node wait ended before it waited: %v, %v", lines.Err(), w.cmd.Wait())
	return w
}

func (w waiter) end() {
	_ = w.cmd.Process.Kill() // it may have ended
	_ = w.cmd.Wait()         // it was killed
}

// verdictAfter is how long it takes from the files' being there until the verdict
// is, by the kernel's notification of it.
func (w waiter) verdictAfter(b *testing.B, outcome string, files [][2]string) time.Duration {
	b.Helper()
	folder := filepath.Join(w.dir, "var/lib/ortet")
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		b.Fatal(err)
	}
	defer watcher.Close()
	if err := watcher.Add(folder); err != nil {
		b.Fatal(err)
	}
	var begun time.Time
	for _, f := range files { // made by a rename, as cloud-init does
		path := filepath.Join(w.dir, f[0])
		if err := os.WriteFile(path+".new", []byte(f[1]), 0o600); err != nil {
			b.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			b.Fatal(err)
		}
		begun = time.Now()
	}
	late := time.After(nodeTimeout)
	verdict := filepath.Join(folder, "verdict.json")
	for {
		select {
		case <-late:
			b.Fatalf("no verdict within %s", nodeTimeout)
		case e := <-watcher.Events:
			if e.Name != verdict || !e.Has(fsnotify.Create) {
				continue
			}
			took := time.Since(begun)
			text, err := os.ReadFile(verdict)
			if err != nil || !strings.Contains(string(text), `"outcome": "`+outcome+`"`) {
				b.Fatalf("want the outcome %s: %.300s, %v", outcome, text, err)
			}
			return took
		}
	}
}

// latency is the 99th of 100 of verdicts, and their median.
func latency(b *testing.B, name, outcome string, bound float64, files [][2]string) {
	b.Helper()
	var all []time.Duration
	for b.Loop() {
		w := startWaiter(b)
		all = append(all, w.verdictAfter(b, outcome, files))
		w.end()
	}
	report(b, name, free("p50", ms(percentile(all, 50)), "ms"), atMost("p99", ms(percentile(all, 99)), "ms", bound))
}

// BenchmarkBootstrapVerdict is from the sentinel to the verdict's file.
func BenchmarkBootstrapVerdict(b *testing.B) {
	latency(b, "bootstrap-verdict", "Succeeded", 20, [][2]string{{"run/cluster-api/bootstrap-success.complete", "success\n"}})
}

// BenchmarkBootstrapFailure is from a result.json that reports a failed runcmd to the
// verdict's file. CAPZ's own detector takes 300 s.
func BenchmarkBootstrapFailure(b *testing.B) {
	const failed = `["('scripts_user', RuntimeError('Runparts: 1 failures (runcmd) in 1 attempted commands'))"]`
	latency(b, "bootstrap-failure", "Failed", 1000, [][2]string{
		{"run/cloud-init/status.json", `{"v1":{"datasource":"DataSourceAzure","stage":null,"modules-final":{"errors":` + failed + `,"recoverable_errors":{},"start":7.5,"finished":9.5}}}`},
		{"run/cloud-init/result.json", `{"v1":{"datasource":"DataSourceAzure","errors":` + failed + `}}`},
	})
}

// BenchmarkAgentWaiting is what an agent costs that waits: memory, and how often it is
// woken.
func BenchmarkAgentWaiting(b *testing.B) {
	for b.Loop() {
		w := startWaiter(b)
		time.Sleep(time.Second) // until it has settled
		before := w.switches(b)
		time.Sleep(wakeupsOver)
		woken := w.switches(b) - before
		resident, err := statusOf(fmt.Sprint(w.cmd.Process.Pid), "VmRSS:")
		if err != nil {
			b.Fatal(err)
		}
		w.end()
		report(b, "agent-waiting",
			atMost("resident", float64(resident)/1024, "MiB", 12),
			// Below one in ten seconds is none: the Go runtime looks for garbage every two
			// minutes.
			atMost("wakeups", float64(woken)/wakeupsOver.Seconds(), "1/s", 0.1))
	}
}

// switches is how often the process's threads have given up the processor.
func (w waiter) switches(b *testing.B) (sum int64) {
	b.Helper()
	process := fmt.Sprint(w.cmd.Process.Pid)
	threads, err := os.ReadDir("/proc/" + process + "/task")
	if err != nil {
		b.Fatal(err)
	}
	for _, t := range threads {
		n, err := statusOf(process+"/task/"+t.Name(), "voluntary_ctxt_switches:")
		if err != nil {
			b.Fatal(err)
		}
		sum += n
	}
	return sum
}
