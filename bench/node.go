package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	nodeRuns    = 200
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
func startWaiter(ctx context.Context, bin string) (_ *waiter, err error) {
	dir, err := os.MkdirTemp("", "ortet-bench-")
	if err != nil {
		return nil, err
	}
	w := &waiter{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	for _, folder := range []string{"run/cluster-api", "run/cloud-init", "var/lib/cloud/data", "var/lib/ortet", "var/log"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			return nil, err
		}
	}
	output := strings.Repeat("[kubelet-start] Waiting for the kubelet to perform the TLS Bootstrap\n", 2000) +
		"error execution phase preflight: couldn't validate the identity of the API Server: could not find a JWS signature in the cluster-info ConfigMap for token ID \"abcdef\"\n"
	if err := os.WriteFile(filepath.Join(dir, "var/log/cloud-init-output.log"), []byte(output), 0o600); err != nil {
		return nil, err
	}
	w.cmd = exec.CommandContext(ctx, filepath.Join(bin, "ortet-node"), "wait", "--root", dir, "--kubelet", "no", "--console", "", "--verbose")
	said, err := w.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "msg=waiting") {
			go func() { _, _ = io.Copy(io.Discard, said) }() // it ends with the process
			return w, nil
		}
	}
	return nil, fmt.Errorf("ortet-node wait ended before it waited: %w", errors.Join(lines.Err(), w.cmd.Wait()))
}

func (w *waiter) close() error {
	var err error
	if w.cmd != nil && w.cmd.Process != nil && w.cmd.ProcessState == nil {
		err = w.cmd.Process.Kill()
		_ = w.cmd.Wait() // it was killed
	}
	return errors.Join(err, os.RemoveAll(w.dir))
}

// write makes a file as cloud-init does, by a rename.
func (w *waiter) write(name, content string) error {
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// verdictAfter is how long it takes from the files' being there until the verdict
// is, by the kernel's notification of it.
func (w *waiter) verdictAfter(ctx context.Context, outcome string, files [][2]string) (took time.Duration, err error) {
	folder := filepath.Join(w.dir, "var/lib/ortet")
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, watcher.Close()) }()
	if err := watcher.Add(folder); err != nil {
		return 0, err
	}
	var begun time.Time
	for _, f := range files {
		if err := w.write(f[0], f[1]); err != nil {
			return 0, err
		}
		begun = time.Now()
	}
	late := time.NewTimer(nodeTimeout)
	defer late.Stop()
	verdict := filepath.Join(folder, "verdict.json")
	for {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-late.C:
			return 0, fmt.Errorf("no verdict within %s", nodeTimeout)
		case e := <-watcher.Events:
			if e.Name != verdict || !e.Has(fsnotify.Create) {
				continue
			}
			took := time.Since(begun)
			text, err := os.ReadFile(verdict)
			if err == nil && !strings.Contains(string(text), `"outcome": "`+outcome+`"`) {
				err = fmt.Errorf("want the outcome %s: %.300s", outcome, text)
			}
			return took, err
		}
	}
}

// latency is the 99th of 100 of nodeRuns verdicts, and their median.
func latency(ctx context.Context, o options, outcome string, bound float64, files [][2]string) ([]figure, error) {
	var all []time.Duration
	for range nodeRuns {
		w, err := startWaiter(ctx, o.bin)
		if err != nil {
			return nil, err
		}
		took, err := w.verdictAfter(ctx, outcome, files)
		if err := errors.Join(err, w.close()); err != nil {
			return nil, err
		}
		all = append(all, took)
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return []figure{
		free("p50", ms(percentile(all, 50)), "ms"),
		atMost("p99", ms(percentile(all, 99)), "ms", bound),
	}, nil
}

// bootstrapVerdict is from the sentinel to the verdict's file.
func bootstrapVerdict(ctx context.Context, o options) ([]figure, error) {
	return latency(ctx, o, "Succeeded", 20, [][2]string{{"run/cluster-api/bootstrap-success.complete", "success\n"}})
}

// bootstrapFailure is from a result.json that tells of a failed runcmd to the
// verdict's file. CAPZ's own detector takes 300 s.
func bootstrapFailure(ctx context.Context, o options) ([]figure, error) {
	const failed = `["('scripts_user', RuntimeError('Runparts: 1 failures (runcmd) in 1 attempted commands'))"]`
	return latency(ctx, o, "Failed", 1000, [][2]string{
		{"run/cloud-init/status.json", `{"v1":{"datasource":"DataSourceAzure","stage":null,"modules-final":{"errors":` + failed + `,"recoverable_errors":{},"start":7.5,"finished":9.5}}}`},
		{"run/cloud-init/result.json", `{"v1":{"datasource":"DataSourceAzure","errors":` + failed + `}}`},
	})
}

func agentSize(_ context.Context, o options) ([]figure, error) {
	info, err := os.Stat(filepath.Join(o.bin, "ortet-node"))
	if err != nil {
		return nil, err
	}
	return []figure{atMost("stripped", float64(info.Size())/(1<<20), "MiB", 12)}, nil
}

// agentWaiting is what an agent costs that waits: memory, and how often it is
// woken.
func agentWaiting(ctx context.Context, o options) (_ []figure, err error) {
	w, err := startWaiter(ctx, o.bin)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	settle := time.NewTimer(time.Second)
	defer settle.Stop()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-settle.C:
	}
	pid := w.cmd.Process.Pid
	before, err := switches(pid)
	if err != nil {
		return nil, err
	}
	settle.Reset(wakeupsOver)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-settle.C:
	}
	after, err := switches(pid)
	if err != nil {
		return nil, err
	}
	resident, err := statusField(fmt.Sprintf("/proc/%d/status", pid), "VmRSS:")
	if err != nil {
		return nil, err
	}
	return []figure{
		atMost("resident", float64(resident)/1024, "MiB", 12),
		// Below one in ten seconds is none: the Go runtime looks for garbage every two
		// minutes.
		atMost("wakeups", float64(after-before)/wakeupsOver.Seconds(), "1/s", 0.1),
	}, nil
}

// switches is how often a process's threads have given up the processor.
func switches(pid int) (int, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(tasks) == 0 {
		return 0, fmt.Errorf("no threads of process %d: %w", pid, err)
	}
	sum := 0
	for _, t := range tasks {
		n, err := statusField(t, "voluntary_ctxt_switches:")
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

func statusField(path, name string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, name)
}
