//go:build linux

package lab

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/azsim/machine"
)

// assertNothingLeft looks for what machines make on the host: mounts, loop
// devices, network namespaces and devices, control groups, containers.
func assertNothingLeft(t *testing.T, dir string) {
	t.Helper()
	// Not the test's context, which has ended when clean-ups run.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	prefix := machine.Prefix(dir)
	mentions := func(what, text, part string) {
		for line := range strings.Lines(text) {
			if strings.Contains(line, part) {
				t.Errorf("left behind: %s: %s", what, strings.TrimSpace(line))
			}
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	mentions("mount", string(mounts), dir)
	for what, argv := range map[string][]string{
		"network namespace": {"ip", "netns", "list"},
		"network device":    {"ip", "-oneline", "link"},
		"route":             {"ip", "-oneline", "route"},
	} {
		out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
		if err != nil {
			t.Errorf("%v: %v: %s", argv, err, out)
		}
		mentions(what, string(out), prefix)
	}
	loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range loops {
		file, err := os.ReadFile(l)
		if err != nil {
			continue // detached meanwhile
		}
		mentions("loop device", string(file), dir)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/" + prefix, "/sys/fs/cgroup/" + prefix, filepath.Join(dir, "runc", "*")} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			t.Errorf("left behind: %s", f)
		}
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		line, err := os.ReadFile(p)
		if err != nil {
			continue // ended meanwhile
		}
		mentions("process "+filepath.Base(filepath.Dir(p)), strings.ReplaceAll(string(line), "\x00", " "), dir)
	}
}
