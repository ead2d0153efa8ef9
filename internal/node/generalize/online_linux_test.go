package generalize

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ortet/ortet/internal/wire"
)

const dpkgStatus = "Package: bash\nStatus: install ok installed\n\nPackage: kubelet\nStatus: hold ok %s\n"

// A node whose packages are half done is not copied while it runs, and neither is a copy
// of one made an image.
func TestHalfAPackage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, text string
		refused    string // "" for a disk that can be captured
	}{
		"all installed":       {"var/lib/dpkg/status", fmt.Sprintf(dpkgStatus, "installed"), ""},
		"configuration files": {"var/lib/dpkg/status", fmt.Sprintf(dpkgStatus, "config-files"), ""},
		"unpacked":            {"var/lib/dpkg/status", fmt.Sprintf(dpkgStatus, "unpacked"), "package kubelet is unpacked"},
		"half configured":     {"var/lib/dpkg/status", fmt.Sprintf(dpkgStatus, "half-configured"), "package kubelet is half-configured"},
		"interrupted":         {"var/lib/dpkg/updates/0001", "", "dpkg has not ended"},
		"no dpkg":             {"etc/motd", "hello", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for what, change := range map[string]func(*Options){
				"flush":      func(o *Options) { o.Flush, o.DryRun, o.Now = true, true, time.Now },
				"inspection": func(o *Options) { o.Inspect, o.Flush, o.DryRun, o.Now = true, true, true, time.Now },
				"copy":       func(o *Options) { o.Online = time.Now() },
			} {
				d := newDonor(t).capz()
				d.write(map[string]string{c.file: c.text})
				r := d.run(func(o *Options) { accept(o); change(o) })
				if c.refused == "" {
					wantOutcome(t, r, wire.Generalized)
					continue
				}
				wantOutcome(t, r, wire.DiskRefused)
				if !strings.Contains(r.Message, c.refused) || !strings.Contains(r.Message, "--online") {
					t.Errorf("%s: %s", what, r.Message)
				}
			}
			d := newDonor(t).capz()
			d.write(map[string]string{c.file: c.text})
			wantOutcome(t, d.run(accept), wire.Generalized) // of a donor that was stopped
		})
	}
}

// holdLock is a package manager, in a process of its own, until its input ends.
func holdLock(t *testing.T, name string) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		t.Fatal(err)
	}
	fmt.Println("locked")
	_, _ = os.Stdin.Read(make([]byte, 1))
}

func TestLockedPackages(t *testing.T) {
	t.Parallel()
	if name := os.Getenv("ORTET_TEST_LOCK"); name != "" {
		holdLock(t, name)
		return
	}
	for _, file := range []string{"var/lib/dpkg/lock-frontend", "var/lib/dpkg/lock", "var/lib/rpm/.rpm.lock", "usr/lib/sysimage/rpm/.rpm.lock"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			d := newDonor(t).capz()
			d.write(map[string]string{file: ""})
			flush := func(o *Options) { accept(o); o.Flush, o.DryRun, o.Now = true, true, time.Now }
			wantOutcome(t, d.run(flush), wire.Generalized)
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLockedPackages$")
			cmd.Env = append(os.Environ(), "ORTET_TEST_LOCK="+filepath.Join(d.dir, file))
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(out).ReadString('\n'); line != "locked\n" {
				t.Fatal(line, err)
			}
			r := d.run(flush)
			_ = in.Close()
			_ = cmd.Wait()
			wantOutcome(t, r, wire.DiskRefused)
			if !strings.Contains(r.Message, "/"+file+" is locked") {
				t.Error(r.Message)
			}
			wantOutcome(t, d.run(flush), wire.Generalized)
		})
	}
}

// What a flush reports begins before it, and the copy's report names files that are empty
// and were written just before: not older ones, and not
// those that generalising removes or empties.
func TestFlushAndEmptied(t *testing.T) {
	t.Parallel()
	d := newDonor(t).capz()
	before := time.Now()
	paths := d.paths()
	r := d.run(func(o *Options) { o.Flush, o.DryRun, o.Now = true, true, time.Now })
	wantOutcome(t, r, wire.Generalized)
	if r.Flushed.Before(before.Add(-time.Millisecond)) || r.Flushed.After(time.Now()) {
		t.Errorf("flushed at %s", r.Flushed)
	}
	if after := d.paths(); len(after) != len(paths) {
		t.Errorf("a flush changed the disk: %d paths, were %d", len(after), len(paths))
	}
	at := r.Flushed
	for file, age := range map[string]time.Duration{"etc/app/lost": time.Second, "srv/renamed": 50 * time.Second, "etc/app/old": time.Hour, "var/lib/systemd/timers/stamp-logrotate.timer": time.Second,
		"var/lib/waagent/Incarnation": time.Second} {
		d.write(map[string]string{file: ""})
		if err := os.Chtimes(filepath.Join(d.dir, file), at.Add(-age), at.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	d.write(map[string]string{"etc/app/whole": "x"})
	r = d.run(func(o *Options) { accept(o); o.Online = at })
	wantOutcome(t, r, wire.Generalized)
	slices.Sort(r.Emptied)
	for _, want := range []string{"/etc/app/lost", "/srv/renamed"} {
		if !slices.Contains(r.Emptied, want) {
			t.Errorf("%s is not among %v", want, r.Emptied)
		}
	}
	for _, other := range []string{"/etc/app/old", "/etc/app/whole", "/var/lib/systemd/timers/stamp-logrotate.timer", "/var/lib/waagent/Incarnation", "/var/log/wtmp", "/var/log/waagent.log"} {
		if slices.Contains(r.Emptied, other) {
			t.Errorf("%s is among %v", other, r.Emptied)
		}
	}
}
