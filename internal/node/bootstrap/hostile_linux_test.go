package bootstrap

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ortet/ortet/internal/wire"
)

// Whatever cloud-init's files hold, that they are there decides, and a verdict is
// given. Each is put in the place of status.json, result.json and the logs.
func TestHostileFiles(t *testing.T) {
	t.Parallel()
	plain := func(content string) func(root, string) {
		return func(r root, path string) { r.write(path, content) }
	}
	for name, put := range map[string]func(root, string){
		"empty":        plain(""),
		"truncated":    plain(`{"v1":{"datasource":"DataSourceAz`),
		"binary":       plain("\x7fELF\x00\xff\xfe\x1b[2J" + strings.Repeat("\x00\x90", 4000)),
		"endless line": plain(strings.Repeat("x", 3<<20)),
		"deep":         plain(strings.Repeat(`{"v1":`, 200_000)),
		"a GB": func(r root, path string) {
			r.write(path, "begin\n")
			if err := os.Truncate(r.path(path), 1<<30); err != nil {
				r.t.Fatal(err)
			}
		},
		"a link out of the folder": func(r root, path string) {
			r.write("/root/secret", "not to be read: s3cr3t")
			r.link(r.path("/root/secret"), path)
		},
		"a link to itself": func(r root, path string) { r.link(r.path(path), path) },
		"a directory":      func(r root, path string) { r.folder(path) },
		"a FIFO": func(r root, path string) {
			r.folder(path[:strings.LastIndex(path, "/")])
			if err := unix.Mkfifo(r.path(path), 0o600); err != nil {
				r.t.Fatal(err)
			}
		},
		"without permission": func(r root, path string) {
			r.write(path, "x")
			if err := os.Chmod(r.path(path), 0); err != nil {
				r.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoot(t)
			for _, path := range []string{runPath + "status.json", runPath + "result.json", outputLog, "/var/log/cloud-init.log", provisionFile[:len("/var/log/azure")] + "/cluster-provision.log"} {
				put(r, path)
				if name == "a link out of the folder" {
					if err := os.Remove(r.path("/root/secret")); err != nil {
						t.Fatal(err)
					}
				}
			}
			if name == "a link out of the folder" {
				r.write("/root/secret", "not to be read: s3cr3t")
			}
			v := r.wait(r.options())
			if v.Outcome != wire.Failed || v.Reason == "" {
				t.Errorf("%+v, want it Failed: there is a result, and no sentinel", v)
			}
			if strings.Contains(fmt.Sprintf("%+v", v), "s3cr3t") {
				t.Error("a file outside of the folder is quoted")
			}
		})
	}
	for name, put := range map[string]func(root){
		"a truncated provision.json": func(r root) { r.write(provisionFile, `{"ExitCode":"5`) },
		"provision.json is a FIFO": func(r root) {
			r.folder("/var/log/azure/aks")
			if err := unix.Mkfifo(r.path(provisionFile), 0o600); err != nil {
				r.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoot(t)
			put(r)
			o := r.options()
			o.Deadline = 30 * time.Millisecond
			if v := r.wait(o); v.Outcome != wire.TimedOut {
				t.Errorf("%+v", v)
			}
		})
	}
}

// Whatever stands where the kubelet's credentials should, nobody is asked then, and
// nothing is held against a node whose kubelet is healthy.
func TestHostileCredentials(t *testing.T) {
	t.Parallel()
	var healthy atomic.Bool
	healthy.Store(true)
	address := kubelet(t, &healthy)
	s := newAPIServer(t)
	s.answer.Store(nodeReady)
	for name, put := range map[string]func(r root, path string){
		"empty":     func(r root, path string) { r.write(path, "") },
		"binary":    func(r root, path string) { r.write(path, "\x7fELF\x00\xff"+strings.Repeat("\x00\x90", 4000)) },
		"truncated": func(r root, path string) { r.write(path, "-----BEGIN CERTIFICATE-----\nMIIB") },
		"endless":   func(r root, path string) { r.write(path, strings.Repeat("x", 900<<10)) },
		"deep":      func(r root, path string) { r.write(path, strings.Repeat("[", 500<<10)) },
		"a GB": func(r root, path string) {
			r.write(path, "clusters:\n")
			if err := os.Truncate(r.path(path), 1<<30); err != nil {
				r.t.Fatal(err)
			}
		},
		"a directory": func(r root, path string) { r.folder(path) },
		"a FIFO": func(r root, path string) {
			if err := unix.Mkfifo(r.path(path), 0o600); err != nil {
				r.t.Fatal(err)
			}
		},
		"a link to itself": func(r root, path string) { r.link(r.path(path), path) },
	} {
		for _, path := range []string{"/etc/kubernetes/kubelet.conf", "/etc/kubernetes/pki/ca.crt", "/var/lib/kubelet/pki/kubelet-client-current.pem"} {
			t.Run(name+" "+path, func(t *testing.T) {
				t.Parallel()
				r := newRoot(t)
				s.login(r, "system:node:pool1000003")
				if err := os.Remove(r.path(path)); err != nil {
					t.Fatal(err)
				}
				put(r, path)
				r.write(sentinelPath, "")
				r.write("/etc/systemd/system/kubelet.service", "[Service]\n")
				o := r.options()
				o.Kubelet, o.Settle = KubeletAuto, time.Millisecond
				if v := r.withKubelet(o, address); v.Outcome != wire.Succeeded {
					t.Errorf("%+v", v)
				}
			})
		}
	}
}

// Whatever answers in the API server's place, there is a verdict in time.
func TestHostileAPIServer(t *testing.T) {
	t.Parallel()
	var healthy atomic.Bool
	healthy.Store(true)
	address := kubelet(t, &healthy)
	for name, serve := range map[string]http.HandlerFunc{
		"garbage": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("\x00\xff{")) },
		"endless": func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write(bytes.Repeat([]byte("{"), 64<<10)); err != nil {
					return
				}
			}
		},
		"hangs up": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"an escape": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte(`{"kind":"Status","message":"\u001b[2J\nnext"}`))
		},
		"redirects": func(w http.ResponseWriter, q *http.Request) {
			http.Redirect(w, q, "https://elsewhere.example/", http.StatusFound)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newAPIServer(t)
			s.server.Config.Handler = serve
			r := newRoot(t)
			s.login(r, "system:node:pool1000003")
			r.write(sentinelPath, "")
			r.write("/etc/systemd/system/kubelet.service", "[Service]\n")
			o := r.options()
			o.Kubelet, o.Settle, o.Grace = KubeletAuto, time.Millisecond, time.Millisecond
			v := r.withKubelet(o, address)
			if v.Outcome != wire.Failed || len(v.Evidence) == 0 {
				t.Errorf("%+v", v)
			}
			if err := v.Validate(); err != nil {
				t.Error(err)
			}
			r.nothingRuns()
		})
	}
}

// Logs that are written, cut and exchanged while they are read give what of them
// could be had.
func TestLogsThatAreRewritten(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	r.write(outputLog, "begin\n")
	stop := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			var err error
			switch i % 4 {
			case 0:
				err = os.WriteFile(r.path(outputLog), bytes.Repeat([]byte("line\n"), 60_000), 0o600)
			case 1:
				err = os.Truncate(r.path(outputLog), 3)
			case 2:
				err = os.Rename(r.path(outputLog), r.path(outputLog)+".1")
			case 3:
				err = os.Symlink(r.path(outputLog), r.path(outputLog))
				if err == nil {
					err = os.Remove(r.path(outputLog))
				}
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range 20 {
		r.write("/proc/sys/kernel/random/boot_id", fmt.Sprintf("%08d-1111-1111-1111-111111111111\n", i))
		if i == 0 {
			r.write(runPath+"result.json", `{"v1":{"datasource":null,"errors":[]}}`)
		}
		if v := r.wait(r.options()); v.Outcome != wire.Failed || v.Reason != "SentinelMissing" {
			t.Errorf("%+v", v)
		}
	}
	close(stop)
	writing.Wait()
}

// A log of a gigabyte costs no more than its end.
func TestTailOfAHugeLog(t *testing.T) {
	r := newRoot(t)
	r.write(outputLog, "begin\n")
	f, err := os.OpenFile(r.path(outputLog), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("\nthe last line\n"), 1<<30); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	var before, after unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &before); err != nil {
		t.Fatal(err)
	}
	l, err := tail(r.path(outputLog), outputLog)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Getrusage(unix.RUSAGE_SELF, &after); err != nil {
		t.Fatal(err)
	}
	if !l.Cut || len(l.Lines) == 0 || l.Lines[len(l.Lines)-1] != "the last line" {
		t.Errorf("cut %v, %d lines", l.Cut, len(l.Lines))
	}
	if kib := after.Maxrss - before.Maxrss; kib > 64<<10 {
		t.Errorf("reading it took %d KiB", kib)
	}
}

// A file that is rewritten in place again and again, while it is read, gives a
// verdict all the same, and no torn status once it is left alone.
func TestStatusThatIsRewritten(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	whole, err := os.ReadFile("testdata/status-25.1.json")
	if err != nil {
		t.Fatal(err)
	}
	r.folder(runPath)
	v := r.whileWaiting(r.options(), func() {
		for i := range 300 {
			text := whole
			if i%2 == 0 {
				text = bytes.Repeat([]byte("["), i)
			}
			if err := os.WriteFile(r.path(runPath+"status.json"), text, 0o600); err != nil {
				t.Error(err)
			}
		}
		r.write(runPath+"result.json", `{"v1":{"datasource":null,"errors":[]}}`)
	})
	if v.Outcome != wire.Failed || v.Module != "runcmd" {
		t.Errorf("%+v, want what the last status says", v)
	}
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("NOT RUN: a file system of its own needs root")
	}
	r := newRoot(t)
	r.folder("/var/lib/ortet")
	if err := unix.Mount("tmpfs", r.path("/var/lib/ortet"), "tmpfs", 0, "size=4k"); err != nil {
		if errors.Is(err, unix.EPERM) {
			t.Skip("NOT RUN: this root may not mount")
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(r.path("/var/lib/ortet"), 0); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(r.path("/var/lib/ortet/filler"), make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	r.write(sentinelPath, "")
	r.write("/console", "")
	o := r.options()
	o.Console = r.path("/console")
	v, err := Wait(t.Context(), o, quiet())
	if err != nil || v.Outcome != wire.Succeeded {
		t.Fatalf("%+v, %v", v, err)
	}
	if files, err := os.ReadDir(r.path("/var/lib/ortet")); err != nil || len(files) != 1 {
		t.Errorf("left behind: %v, %v", files, err)
	}
	said, err := os.ReadFile(r.path("/console"))
	if err != nil {
		t.Fatal(err)
	}
	if on, ok := wire.FindVerdict(said); !ok || on.Outcome != wire.Succeeded {
		t.Errorf("on the console: %q", said)
	}
	if spare, err := load(r.path(spareState)); err != nil || spare.Outcome != wire.Succeeded {
		t.Errorf("kept elsewhere: %+v, %v", spare, err)
	}
	// It is told again from there.
	if again, err := Wait(t.Context(), o, quiet()); err != nil || !again.At.Equal(v.At) {
		t.Errorf("again: %+v, %v", again, err)
	}
}

// A clock that jumps back changes no deadline, and an earlier verdict from the
// future is not taken for this boot's.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	future := wire.Verdict{Outcome: wire.Failed, Reason: wire.ReasonUnknown, BootID: bootB, At: time.Now().Add(1000 * time.Hour)}
	text, err := encode(kept{Verdict: future})
	if err != nil {
		t.Fatal(err)
	}
	r.write(defaultState, string(text))
	// By this clock the boot's stages lie in the future.
	r.write(runPath+"status.json", fmt.Sprintf(`{"v1":{"init":{"errors":[],"start":%d.5,"finished":%d}}}`, time.Now().Unix()+90_000, time.Now().Unix()+80_000))
	r.write(runPath+"result.json", `{"v1":{"datasource":null,"errors":[]}}`)
	r.write(sentinelPath, "")
	v := r.wait(r.options())
	if v.Outcome != wire.Succeeded || len(v.Stages) != 1 || v.Stages[0].End > 20_500+1 {
		t.Errorf("%+v", v)
	}
}

func TestConsoleThatTakesNothing(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	v := wire.Verdict{Outcome: wire.Succeeded, At: time.Now()}
	fifo := r.path("/console")
	if err := tellConsole(fifo, v); err == nil {
		t.Error("no console, and no error")
	}
	if _, err := os.Stat(fifo); err == nil {
		t.Error("a file was made for a console that is not there")
	}
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := tellConsole(fifo, v); err == nil {
		t.Error("nobody reads, and there is no error")
	}
	reader, err := os.OpenFile(fifo, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := reader.Close(); err != nil {
			t.Error(err)
		}
	}()
	raw, err := reader.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	full := error(nil)
	if err := raw.Write(func(fd uintptr) bool {
		for full == nil {
			_, full = unix.Write(int(fd), make([]byte, 4096)) // all or nothing
		}
		return true
	}); err != nil || !errors.Is(full, unix.EAGAIN) {
		t.Fatalf("the pipe is not full: %v, %v", full, err)
	}
	if err := tellConsole(fifo, v); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a full console: %v, want to give up", err)
	}
}

// A folder that is made anew at once may get the old one's inode number; its
// watch is another all the same.
func TestFolderIsReplacedAgainAndAgain(t *testing.T) {
	t.Parallel()
	for range 30 {
		r := newRoot(t)
		r.folder("/run/cluster-api")
		v := r.whileWaiting(r.options(), func() {
			for range 5 {
				if err := os.Remove(r.path("/run/cluster-api")); err != nil {
					t.Error(err)
				}
				r.folder("/run/cluster-api")
			}
			r.write(sentinelPath, "")
		})
		if v.Outcome != wire.Succeeded || v.At.IsZero() {
			t.Fatalf("%+v", v)
		}
	}
}
