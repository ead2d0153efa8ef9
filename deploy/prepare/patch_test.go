package prepare

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The script runs the package manager that is there, and says by its exit code whether a restart is needed.
func TestPatch(t *testing.T) {
	for name, c := range map[string]struct {
		programs map[string]string // what each does beside being logged
		code     int
		ran      string
	}{
		"apt":                {map[string]string{"apt-get": ""}, 0, "apt-get"},
		"apt fails":          {map[string]string{"apt-get": "exit 100"}, 100, "apt-get"},
		"dnf":                {map[string]string{"dnf": ""}, 0, "dnf"},
		"dnf, a new kernel":  {map[string]string{"dnf": "", "needs-restarting": "exit 1"}, 10, "dnf"},
		"dnf, no new kernel": {map[string]string{"dnf": "", "needs-restarting": ""}, 0, "dnf"},
		"tdnf before dnf":    {map[string]string{"tdnf": "", "dnf": "exit 1"}, 0, "tdnf"},
		"zypper":             {map[string]string{"zypper": ""}, 0, "zypper"},
		"zypper, restart":    {map[string]string{"zypper": `[ "$2" != update ] || exit 102`}, 10, "zypper"},
		"zypper, itself":     {map[string]string{"zypper": `if [ "$2" = update ] && ! [ -e $AT/once ]; then : >$AT/once; exit 103; fi`}, 0, "zypper"},
		"zypper fails":       {map[string]string{"zypper": `[ "$2" != update ] || exit 8`}, 1, "zypper"},
		"none":               {nil, 1, "no package manager was found"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := os.Stat("/run/reboot-required"); err == nil {
				t.Skip("this machine has to restart")
			}
			at := t.TempDir()
			for _, tool := range []string{"ls"} {
				path, err := exec.LookPath(tool)
				if err == nil {
					err = os.Symlink(path, filepath.Join(at, tool))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for program, does := range c.programs {
				text := "#!/bin/sh\necho " + program + " \"$@\"\n" + does + "\n"
				if err := os.WriteFile(filepath.Join(at, program), []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command("/bin/sh", "-c", Patch)
			cmd.Env = []string{"PATH=" + at, "AT=" + at}
			out, err := cmd.CombinedOutput()
			code := 0
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				code = exit.ExitCode()
			} else if err != nil {
				t.Fatal(err)
			}
			if code != c.code || !strings.HasPrefix(string(out), c.ran) {
				t.Errorf("exit %d, want %d; it printed %q, want %s", code, c.code, out, c.ran)
			}
		})
	}
}
