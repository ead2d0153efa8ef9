package prepare

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// apt-get itself, with packages and repositories of its own: what it does where it cannot update its lists.
func TestPatchByApt(t *testing.T) {
	if _, err := exec.LookPath("apt-get"); err != nil {
		t.Skip("NOT RUN: apt-get is not installed on this host")
	}
	for name, c := range map[string]struct {
		source string // %s is the folder
		locked bool   // by another process, until the script has seen it
		code   int
		says   string
	}{
		"up to date":               {"file:%s/repository", false, 0, "0 upgraded"},
		"no repository is reached": {"http://127.0.0.1:1%s", false, 100, "E: Failed to fetch http://127.0.0.1:1"},
		"the lists are locked":     {"file:%s/repository", true, 0, "0 upgraded"},
	} {
		t.Run(name, func(t *testing.T) {
			at := t.TempDir()
			for _, d := range []string{"etc/apt.conf.d", "etc/preferences.d", "state/lists/partial", "cache/archives/partial", "log", "repository", "bin"} {
				if err := os.MkdirAll(filepath.Join(at, d), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for path, text := range map[string]string{
				"status": "", "repository/Packages": "",
				"apt.conf":         fmt.Sprintf(`Dir "%s/"; Dir::Etc "etc"; Dir::State "state"; Dir::State::status "%[1]s/status"; Dir::Cache "cache"; Dir::Log "log"; APT::Sandbox::User "root"; Acquire::Retries "0";`, at),
				"etc/sources.list": fmt.Sprintf("deb [trusted=yes] "+c.source+" ./\n", at),
				"bin/sleep":        "#!/bin/sh\nexec /bin/sleep 0.1\n",
			} {
				if err := os.WriteFile(filepath.Join(at, path), []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			lock, err := os.Create(filepath.Join(at, "state/lists/lock"))
			if err == nil && c.locked {
				err = syscall.FcntlFlock(lock.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK})
			}
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Close()
			cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", Patch)
			cmd.Env = []string{"PATH=" + filepath.Join(at, "bin") + ":" + os.Getenv("PATH"), "APT_CONFIG=" + filepath.Join(at, "apt.conf")}
			var out strings.Builder
			read, write := io.Pipe()
			cmd.Stdout, cmd.Stderr = write, write
			go func() { _ = write.CloseWithError(cmd.Run()) }()
			for lines := bufio.NewScanner(read); lines.Scan(); {
				out.WriteString(lines.Text() + "\n")
				if strings.Contains(lines.Text(), "Could not get lock") {
					_ = lock.Close() // unlocks it
				}
			}
			_, err = read.Read(nil)
			code := 0
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				code = exit.ExitCode()
			}
			if code != c.code || !strings.Contains(out.String(), c.says) || c.locked != strings.Contains(out.String(), "Could not get lock") {
				t.Errorf("exit %d, want %d; it printed %q, want %q", code, c.code, out.String(), c.says)
			}
		})
	}
}
