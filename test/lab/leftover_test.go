//go:build e2e && linux

package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/azsim/machine"
)

// leftovers lists what machines in a folder have made on the host: mounts, loop
// devices, network namespaces and devices, control groups, containers, processes.
func leftovers(dir string) (found []string, err error) {
	// Not the test's context, which has ended when clean-ups run.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	prefix := machine.Prefix(dir)
	mentions := func(what, text, part string) {
		for line := range strings.Lines(text) {
			if strings.Contains(line, part) {
				found = append(found, what+": "+strings.TrimSpace(line))
			}
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	mentions("mount", string(mounts), dir)
	for what, argv := range map[string][]string{
		"network namespace": {"ip", "netns", "list"},
		"network device":    {"ip", "-oneline", "link"},
		"route":             {"ip", "-oneline", "route"},
	} {
		out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("%v: %w: %s", argv, err, out)
		}
		mentions(what, string(out), prefix)
	}
	for what, f := range map[string]struct{ pattern, part string }{
		"loop device": {"/sys/block/loop*/loop/backing_file", dir},
		"process":     {"/proc/[0-9]*/cmdline", dir},
	} {
		files, err := filepath.Glob(f.pattern)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				continue // gone meanwhile
			}
			mentions(what+" "+file, strings.ReplaceAll(string(content), "\x00", " "), f.part)
		}
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/" + prefix, "/sys/fs/cgroup/" + prefix, filepath.Join(dir, "runc", "*")} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		found = append(found, files...)
	}
	return found, nil
}

func assertNothingLeft(t *testing.T, dir string) {
	t.Helper()
	found, err := leftovers(dir)
	if err != nil {
		t.Error(err)
	}
	for _, f := range found {
		t.Errorf("left behind: %s", f)
	}
}

// assertLeftoversAreSeen is for a time at which machines run: what is then found
// nowhere would be missed in the end too.
func assertLeftoversAreSeen(t *testing.T, dir string) {
	t.Helper()
	found, err := leftovers(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"mount:", "loop device ", "network namespace:", "network device:", "route:", "/sys/fs/cgroup/", dir + "/runc/"} {
		if !slices.ContainsFunc(found, func(f string) bool { return strings.HasPrefix(f, kind) }) {
			t.Errorf("machines run, and nothing of the kind %q is found", kind)
		}
	}
}
