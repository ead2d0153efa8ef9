package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ortet/ortet/internal/wire"
)

// asAgent makes the test's binary the agent itself.
const asAgent = "ORTET_TEST_AS_AGENT"

func TestMain(m *testing.M) {
	if os.Getenv(asAgent) != "" {
		main()
	}
	os.Exit(m.Run())
}

// However the agent ends, the disk is not left mounted, and the same command
// again finishes.
func TestDiskIsGivenBackWhateverHappens(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: a real disk needs root, for loop devices and mounts")
	}
	for _, tool := range []string{"losetup", "mkfs.ext4", "e2fsck"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("NOT TESTED: %s is not installed", tool)
		}
	}
	for _, c := range []struct {
		name   string
		signal syscall.Signal
		code   int
	}{{"SIGTERM", syscall.SIGTERM, exitFailed}, {"SIGKILL", syscall.SIGKILL, -1}} {
		t.Run(c.name, func(t *testing.T) {
			loop := realDisk(t)
			code, report := agent(t, loop, c.signal)
			for try := 1; code == exitOK && try < 10; try++ {
				t.Log("it had ended before it was killed")
				loop = realDisk(t)
				code, report = agent(t, loop, c.signal)
			}
			if code != c.code {
				t.Fatalf("exit %d, want %d (%+v)", code, c.code, report)
			}
			if c.signal == syscall.SIGTERM && (report == nil || report.Outcome != wire.GeneralizeFailed) {
				t.Errorf("report %+v, want Failed", report)
			}
			// The kernel takes a killed process's namespace apart a moment later.
			for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
				fd, err := unix.Open(loop, unix.O_RDONLY|unix.O_EXCL, 0)
				if err == nil {
					_ = unix.Close(fd)
					break
				}
				if time.Now().After(end) {
					t.Fatalf("%s is still mounted: %v", loop, err)
				}
			}
			code, report = agent(t, loop, 0)
			if code != exitOK || report == nil || !report.Resumed {
				t.Fatalf("again: exit %d, %+v", code, report)
			}
			if out, err := exec.Command("e2fsck", "-f", "-n", loop).CombinedOutput(); err != nil {
				t.Errorf("afterwards: %v: %s", err, out)
			}
		})
	}
}

// realDisk is a loop device with a donor's ext4, large enough to be scanned for
// a while.
func realDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	content := filepath.Join(dir, "tree")
	smallTree(t, content)
	if err := os.MkdirAll(filepath.Join(content, "srv"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(content, "srv/large"), []byte(strings.Repeat("nothing to see here\n", 48<<20/20)), 0o600); err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(dir, "image")
	if out, err := exec.Command("mkfs.ext4", "-q", "-d", content, image, "80M").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command("losetup", "-f", "--show", image).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	loop := strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("losetup", "-d", loop).Run() })
	return loop
}

// agent runs the agent on a host whose LUN 0 is the loop device, and sends it
// the signal once it has begun to change the disk. A host's /dev and its tools are this machine's own.
func agent(t *testing.T, loop string, signal syscall.Signal) (int, *wire.GeneralizeReport) {
	t.Helper()
	host := t.TempDir()
	for _, dir := range []string{"dev/disk/azure/scsi1", "mnt", "proc", "sys", "usr/sbin"} {
		if err := os.MkdirAll(filepath.Join(host, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(loop, &st); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(filepath.Join(host, "dev/disk/azure/scsi1/lun0"), st.Mode, int(st.Rdev)); err != nil {
		t.Fatal(err)
	}
	// The binds live in a namespace of the agent's parent, a shell.
	script := `set -e
mount --make-rprivate /
for d in proc sys; do mount --rbind /$d "$HOST/$d"; done
for d in usr bin sbin lib lib64 etc; do [ -e /$d ] || continue; mkdir -p "$HOST/$d"; mount --bind /$d "$HOST/$d"; done
exec "$@"`
	args := append([]string{"-c", script, "sh", "/proc/self/exe"}, flags("--lun", "0", "--host", host, "--wait", "5s")...)
	args[3] = executable(t)
	cmd := exec.Command("sh", args...)
	cmd.Env = append(os.Environ(), "HOST="+host, asAgent+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var report *wire.GeneralizeReport
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, wire.MaxLine)
	for lines.Scan() {
		l, err := wire.ParseGeneralizeLine(lines.Bytes())
		if err != nil {
			t.Errorf("%v: %s", err, lines.Text())
		}
		report = l.Report
		if signal != 0 && strings.HasPrefix(l.Progress, "removing the donor") {
			if err := cmd.Process.Signal(signal); err != nil {
				t.Errorf("signalling: %v", err)
			}
		}
	}
	err = cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if t.Failed() || (cmd.ProcessState.ExitCode() != exitOK && signal == 0) {
		t.Logf("%s", said.String())
	}
	return cmd.ProcessState.ExitCode(), report
}

func executable(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
