package recipe_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

// newReadyServer has booted, and published that it is ready.
func newReadyServer(t *testing.T, change func(*k3s.Cluster)) *world {
	t.Helper()
	w := newWorld(t)
	w.install("server", change)
	w.put(w.root+"/etc/ssh/ssh_host_ed25519_key.pub", "ssh-ed25519 AAAAhost root@server\n", 0o644)
	w.boot()
	w.boot("publish")
	if got := w.tag(recipe.TagBoot); got != recipe.BootReady {
		t.Fatalf("boot tag is %q", got)
	}
	w.forget()
	return w
}

// forget forgets the commands so far.
func (w *world) forget() { w.put(w.root+"/commands", "", 0o644) }

// newer has the mirror serve another k3s, and the settings name it.
func (w *world) newer(path string) func(*k3s.Cluster) {
	w.files[path] = "#!/bin/sh\n# newer" + program
	return func(c *k3s.Cluster) {
		c.Spec.Artifacts.K3s = k3s.Artifact{URL: w.url + path, SHA256: sha256Of(w.files[path])}
	}
}

// wantRestarts: these units, once each, and no other.
func (w *world) wantRestarts(units ...string) {
	w.t.Helper()
	var got []string
	commands := w.read("/commands")
	for l := range strings.Lines(commands) {
		if rest, is := strings.CutPrefix(strings.TrimSpace(l), "systemctl try-restart --no-block "); is {
			got = append(got, strings.Fields(rest)...)
		} else if strings.Contains(l, "restart ") {
			got = append(got, l)
		}
	}
	if !slices.Equal(got, units) {
		w.t.Errorf("restarts %v, want %v:\n%s", got, units, commands)
	}
}

func (w *world) wantSettings() {
	w.t.Helper()
	if got, want := w.tag(recipe.TagSettings), sha256Of(string(w.data))[:16]; got != want || w.tag(recipe.TagBoot) != recipe.BootReady {
		w.t.Errorf("tag settings is %q, want %q, and boot %q", got, want, w.tag(recipe.TagBoot))
	}
}

// publishing runs publish until the boot tag has this text, calls then, and awaits its end.
func (w *world) publishing(text string, then func()) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 3*time.Minute)
	defer cancel()
	wait := w.start(ctx, "publish")
	eventually(w.t, "the tag has "+text, func() bool { return strings.Contains(w.tag(recipe.TagBoot), text) })
	then()
	if out, err := wait(); err != nil {
		w.t.Fatalf("%v: %s", err, out)
	}
}

func TestAnotherK3sInPlace(t *testing.T) {
	t.Parallel()
	w := newReadyServer(t, nil)
	w.install("server", w.newer("/newer"))
	w.boot("publish")
	if w.read("/usr/local/bin/k3s") != w.files["/newer"] {
		t.Error("k3s is the earlier one")
	}
	w.wantRestarts("k3s.service")
	w.wantSettings()
	w.forget()
	w.boot("publish")
	w.wantRestarts()
	if got := w.count("GET /newer"); got != 1 {
		t.Errorf("k3s was fetched %d times", got)
	}
}

func TestWrongDigestInPlace(t *testing.T) {
	t.Parallel()
	w := newReadyServer(t, nil)
	before := w.read("/usr/local/bin/k3s")
	earlier, newer := w.data, w.newer("/newer")
	w.install("server", func(c *k3s.Cluster) {
		newer(c)
		c.Spec.Artifacts.Ortet.SHA256 = sha256Of("another")
	})
	old := time.Now().Add(-21 * time.Minute)
	token := w.root + "/run/ortet/admission/token"
	if err := os.Chtimes(token, old, old); err != nil {
		t.Fatal(err)
	}
	w.publishing("applying the settings: fetching ortet: checksum of "+w.url+"/ortet does not match", func() {
		if w.read("/usr/local/bin/k3s") != before {
			t.Error("k3s was swapped")
		}
		w.wantRestarts()
		if i, err := os.Stat(token); err != nil || i.ModTime().Equal(old) {
			t.Errorf("%v: admission's token was not renewed", err)
		}
		n := w.count("GET /ortet")
		eventually(t, "it is tried again", func() bool { return w.count("GET /ortet") > n+1 })
		if got := w.count("GET /newer"); got != 1 {
			t.Errorf("k3s was fetched %d times while ortet's digest is wrong", got)
		}
		w.install("server", newer)
	})
	w.wantRestarts("k3s.service")
	w.wantSettings()
	w.setData(earlier)
	w.forget()
	w.boot("publish")
	if w.read("/usr/local/bin/k3s") != before {
		t.Error("k3s is not the earlier one, which the settings name again")
	}
	w.wantRestarts("k3s.service")
}

// A boot by settings that are wrong goes on with corrected ones.
func TestSettingsAreCorrectedDuringABoot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.install("server", func(c *k3s.Cluster) { c.Spec.Artifacts.K3s.SHA256 = sha256Of("another") })
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	wait := w.start(ctx)
	eventually(t, "the tag has the reason", func() bool { return strings.HasPrefix(w.tag(recipe.TagBoot), "fetching k3s: checksum of ") })
	w.install("server", nil)
	if out, err := wait(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := w.read("/run/ortet/settings"); got != sha256Of(string(w.data))[:16] {
		t.Errorf("the boot applied %q", got)
	}
}

// A boot that began with earlier settings applies the new ones afterwards, in place.
func TestSettingsChangeDuringABoot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.install("server", nil)
	w.put(w.root+"/etc/ssh/ssh_host_ed25519_key.pub", "ssh-ed25519 AAAAhost root@server\n", 0o644)
	// The guard starts after the settings were read.
	w.program(w.programs+"/systemctl", `echo "systemctl $*" >>"$ORTET_ROOT/commands"
case "$*" in "start ortet-metadata-guard"*) while [ ! -e "$ORTET_ROOT/go" ]; do sleep 0.01; done ;; esac`)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	wait := w.start(ctx)
	eventually(t, "the boot starts the guard", func() bool { return w.tag(recipe.TagBoot) == "starting the metadata guard" })
	w.install("server", w.newer("/newer"))
	w.put(w.root+"/go", "", 0o644)
	if out, err := wait(); err != nil || w.count("GET /newer") != 0 {
		t.Fatalf("%v: %s", err, out)
	}
	w.forget()
	w.boot("publish")
	w.wantSettings()
	if !strings.Contains(w.read("/commands"), "systemctl try-restart --no-block k3s.service\n") {
		t.Errorf("k3s was not restarted:\n%s", w.read("/commands"))
	}
}

// Whatever ends an application of settings between a change and its restart: the restart comes.
func TestInterruptedSettingsStillRestart(t *testing.T) {
	t.Parallel()
	for name, interrupt := range map[string]func(w *world, earlier []byte){
		"killed":       func(*world, []byte) {},
		"changed back": func(w *world, earlier []byte) { w.setData(earlier) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newReadyServer(t, nil)
			earlier := w.data
			w.install("server", w.newer("/newer"))
			// The address is asked for after k3s was swapped.
			const address = testGroup + "Microsoft.Network/publicIPAddresses/server"
			w.mu.Lock()
			w.files[address] = "no JSON"
			w.mu.Unlock()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			wait := w.start(ctx, "publish")
			eventually(t, "the tag has the reason", func() bool { return strings.Contains(w.tag(recipe.TagBoot), "writing k3s's settings: ") })
			cancel()
			_, _ = wait()
			if w.read("/usr/local/bin/k3s") != w.files["/newer"] {
				t.Fatal("k3s was not swapped")
			}
			w.wantRestarts()
			interrupt(w, earlier)
			w.mu.Lock()
			delete(w.files, address)
			want := w.files["/newer"]
			if name == "changed back" {
				want = w.files["/k3s"]
			}
			w.mu.Unlock()
			w.boot("publish")
			if w.read("/usr/local/bin/k3s") != want {
				t.Error("k3s is not that of the settings")
			}
			w.wantRestarts("k3s.service")
			w.wantSettings()
		})
	}
}

// A k3s that does not start is corrected by the next settings.
func TestSettingsAreCorrectedWhileK3sDoesNotStart(t *testing.T) {
	t.Parallel()
	w := newReadyServer(t, nil)
	w.node("False", "this-boot", 0)
	w.publishing("Node server is not Ready in this boot", func() {
		w.install("server", w.newer("/newer"))
		w.node("False", "this-boot", 0)
		eventually(t, "the newer k3s is there", func() bool { return w.read("/usr/local/bin/k3s") == w.files["/newer"] })
		w.node("True", "this-boot", 0)
	})
	w.wantRestarts("k3s.service")
	w.wantSettings()
}

// A pool that comes together with new settings is admitted.
func TestPoolComesWithOtherSettings(t *testing.T) {
	t.Parallel()
	w := newReadyServer(t, nil)
	w.mu.Lock()
	w.pools = append(w.pools, "more")
	w.mu.Unlock()
	w.install("server", w.newer("/newer"))
	w.boot("publish")
	w.wantRestarts("k3s.service", "ortet-admission.service")
}

func TestUserDataThatIsNotOurs(t *testing.T) {
	t.Parallel()
	const want = "userData of VM server is not that of cluster demo"
	for name, data := range map[string]string{"no JSON": "#!/bin/sh", "a list": "[]", "another cluster's": `{"cluster": "other"}`, "nothing": "", "no base64": "raw"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newReadyServer(t, nil)
			ours := w.data
			w.mu.Lock()
			w.raw = name == "no base64"
			w.mu.Unlock()
			set := func(data string, raw bool) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.data, w.raw = []byte(data), raw
			}
			set(data, name == "no base64")
			w.publishing(want, func() { set(string(ours), false) })
			w.wantSettings()
			w.wantRestarts()
			set(data, name == "no base64")
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			wait := w.start(ctx)
			eventually(t, "the tag has the reason", func() bool { return strings.Contains(w.tag(recipe.TagBoot), "reading the settings: "+want) })
			set(string(ours), false)
			if out, err := wait(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		})
	}
}

func TestFilesOfTheSettings(t *testing.T) {
	t.Parallel()
	w := newReadyServer(t, func(c *k3s.Cluster) { c.Spec.Options.PrivateRegistry = true })
	const registries = "/etc/rancher/k3s/registries.yaml"
	w.read(registries)
	w.install("server", nil)
	w.boot("publish")
	if _, err := os.Stat(w.root + registries); err == nil {
		t.Error("a file that left the list is there")
	}
	w.wantRestarts("k3s.service")
	w.forget()

	w.put(w.root+"/usr/share/zoneinfo/Europe/Vienna", "", 0o644)
	w.install("server", func(c *k3s.Cluster) { c.Spec.Options.TimeZone = "Europe/Vienna" })
	w.boot("publish")
	if zone, err := os.Readlink(w.root + "/etc/localtime"); err != nil || zone != "/usr/share/zoneinfo/Europe/Vienna" || w.read("/etc/timezone") != "Europe/Vienna\n" {
		t.Errorf("the time zone is %q (%v)", zone, err)
	}
	w.wantRestarts()
	w.wantSettings()
}

// sshd started before the boot wrote its port.
func TestBootRestartsWhatReadItsFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.install("server", func(c *k3s.Cluster) { c.Spec.Access.SSHPort = 2222 })
	w.boot()
	for _, want := range []string{"systemctl daemon-reload\n", " ssh.service ssh.socket\n"} {
		if !strings.Contains(w.read("/commands"), want) {
			t.Errorf("commands lack %q:\n%s", want, w.read("/commands"))
		}
	}
}

func TestServerThatIsNotReady(t *testing.T) {
	t.Parallel()
	for name, is := range map[string]func(*world){
		"Node not Ready":                func(w *world) { w.node("False", "this-boot", 0) },
		"Node of an earlier boot":       func(w *world) { w.node("True", "earlier", 0) },
		"old Lease":                     func(w *world) { w.node("True", "this-boot", 60) },
		"Lease of before k3s restarted": func(w *world) { w.node("True", "this-boot", 35); w.startK3s() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newReadyServer(t, nil)
			is(w)
			w.publishing("Node server is not Ready in this boot", func() { w.node("True", "this-boot", 0) })
			w.wantSettings()
		})
	}
}

func TestStoppedServerIsNotReady(t *testing.T) {
	t.Parallel()
	w := newReadyServer(t, nil)
	w.stay = true
	var pid int
	w.started = func(p int) { pid = p }
	wait := w.start(t.Context(), "publish")
	patch := "GET " + testVM
	before := w.count(patch)
	eventually(t, "publish has looked", func() bool { return w.count(patch) > before })
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if out, err := wait(); err != nil || w.tag(recipe.TagBoot) != "stopped" {
		t.Errorf("%v: boot tag is %q\n%s", err, w.tag(recipe.TagBoot), out)
	}
}

// After an upgrade the Node is Ready before its kubelet reports the new version.
func TestOutcomeReadyIsOfTheNewVersion(t *testing.T) {
	t.Parallel()
	w := newReadyServer(t, nil)
	w.put(w.root+"/version", "k3s version v1.36.4+k3s1 (36645e73)\ngo version go1.25.1\n", 0o644)
	w.publishing("Node server reports v1.36.3+k3s1, and k3s is v1.36.4+k3s1", func() {
		w.put(w.root+"/version", "k3s version v1.36.3+k3s1 (36645e73)\n", 0o644)
	})
}

// The server reports its settings when sshd listens on their port, and not before.
func TestOutcomeReadyWhenSSHListens(t *testing.T) {
	t.Parallel()
	w := newReadyServer(t, func(c *k3s.Cluster) { c.Spec.Access.SSHPort = 2222 })
	w.listens("0016")
	w.publishing("sshd does not listen on port 2222 yet", func() { w.listens("08AE") })
}

// The server reports when the first of k3s's certificates ends.
func TestOutcomeCertificatesEnd(t *testing.T) {
	t.Parallel()
	w := newReadyServer(t, nil)
	for name, end := range map[string]string{"server/tls/serving-kube-apiserver.crt": "Nov  9 09:00:00 2027 GMT", "agent/client-kubelet.crt": "Dec 29 09:00:00 2026 GMT"} {
		w.put(w.root+"/var/lib/rancher/k3s/"+name, end, 0o600)
	}
	w.put(w.root+"/var/lib/rancher/k3s/server/tls/server-ca.crt", "Nov 25 09:00:00 2036 GMT", 0o600)
	w.program(w.programs+"/openssl", `for file; do :; done; echo "notAfter=$(cat "$file")"`)
	w.boot("publish")
	if got := w.tag(recipe.TagCerts); got != "2026-12-29T09:00:00Z" {
		t.Errorf("tag %s is %q", recipe.TagCerts, got)
	}
}
