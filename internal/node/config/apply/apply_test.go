package apply

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/wire"
)

func yes() *bool { v := true; return &v }
func no() *bool  { v := false; return &v }

func motd(text string) nodeconfig.Config {
	return nodeconfig.Config{Files: []nodeconfig.File{{Path: "/etc/motd", Content: text}}}
}

func kubelet(pods int) nodeconfig.Config {
	return nodeconfig.Config{Kubelet: map[string]any{"maxPods": pods}}
}

const kubeletFile = DefaultKubeletConfigDir + "/90-ortet.conf"

func TestFileIsWrittenWithoutRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	start := w.now
	w.good(1, motd("one\n"))
	if w.read("/etc/motd") != "one\n" || !w.now.Equal(start) {
		t.Errorf("%q after %s", w.read("/etc/motd"), w.now.Sub(start))
	}
	w.good(1, motd("one\n"))
	w.good(2, motd("one\n"))
	w.good(3, nodeconfig.Config{})
	if got := w.read("/etc/motd"); got != "" {
		t.Errorf("an omitted file stays: %q", got)
	}
}

func TestFileRestartsItsUnitsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner := ""
	if os.Geteuid() == 0 { // others neither set nor see owners, and write the file at each document
		owner = "www:www"
	}
	c := func(text string) nodeconfig.Config {
		return nodeconfig.Config{Files: []nodeconfig.File{
			{Path: "/etc/nginx/a.conf", Content: text, Owner: owner, Mode: "0640", Restart: []string{"nginx"}},
			{Path: "/etc/nginx/b.conf", Content: text, Restart: []string{"nginx.service", "backup.service"}},
		}}
	}
	start := w.now
	w.good(1, c("one"), "restart nginx.service") // backup.service does not run
	if waited := w.now.Sub(start); waited < stable || waited > 2*stable {
		t.Errorf("waited %s", waited)
	}
	w.good(2, c("one"))
	w.good(3, nodeconfig.Config{}, "restart nginx.service")
	if set, _, err := w.store.Current(); err != nil || len(set) > 0 {
		t.Errorf("%v: kept: %v", err, set)
	}
}

func TestOwnerIsOfTheMachinesFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := motd("x")
	c.Files[0].Owner = "www:34"
	w.good(1, c)
	set, _, err := w.store.Current()
	if err != nil || len(set) != 1 {
		t.Fatal(err, set)
	}
	if e := set[0]; e.UID != 33 || e.GID != 34 || e.Mode != 0o644 {
		t.Errorf("%+v", e)
	}
	c.Files[0].Owner = "absent:root"
	w.bad(2, c, wire.ConfigurationFailed, wire.ReasonInvalid, "/etc/motd", `no user "absent"`)
}

func TestDeniedPathsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := os.Symlink("/etc/ortet", filepath.Join(w.root, "etc/link")); err != nil {
		t.Fatal(err)
	}
	w.write("/etc/ortet/config.json", "{}")
	for _, name := range []string{"/etc/machine-id", "/etc/ssh/ssh_host_rsa_key", "/etc/ortet/config.json", "/etc/link/new/config.json", "/var/lib/ortet/x", "/proc/sys/x", "/run/x", "/dev/null",
		"/etc/kubernetes/kubelet.conf", "/etc/../etc/motd", "etc/motd"} {
		log := w.bad(1, nodeconfig.Config{Files: []nodeconfig.File{{Path: name}}}, wire.ConfigurationFailed, wire.ReasonInvalid, name)
		w.did(log)
	}
	w.good(1, nodeconfig.Config{Files: []nodeconfig.File{{Path: "/etc/sudoers.d/ops"}}})
}

// systemd reads units and generators from more folders than those of spec.units.
func TestHoleUnitsOutsideOfSpecUnits(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{
		"/etc/systemd/system.control/ortet-node.service.d/50-exec.conf", "/etc/systemd/system.control/kubelet.service", "/etc/systemd/system.attached/x.service",
		"/etc/systemd/system-generators/x", "/etc/systemd/system-environment-generators/x", "/etc/systemd/user-generators/x", "/etc/systemd/user-environment-generators/x",
		"/usr/local/lib/systemd/system-generators/x", "/usr/local/lib/systemd/user/x.service",
		"/etc/systemd/user/x.service", "/etc/xdg/systemd/user/x.service", "/usr/local/share/systemd/user/x.service", "/usr/share/systemd/user/x.service",
		"/root/.config/systemd/user/x.service", "/root/.config/systemd/user.control/x.service", "/root/.local/share/systemd/user/x.service", "/home/a/.config/systemd/user/x.service", "/home/a/.local/share/systemd/user/x.service",
		"/etc/init.d/x", "/etc/rc.local", "/etc/rc3.d/S01x", "/etc/extensions/x/usr/lib/systemd/system/x.service", "/var/lib/extensions/x/usr/bin/runc", "/var/lib/confexts/x/etc/systemd/system/x.service",
		"/run/systemd/system.control/x.service", "/run/systemd/transient/x.service", "/run/systemd/generator.early/x.service", "/var/run/systemd/system/x.service",
	} {
		w.did(w.bad(1, nodeconfig.Config{Files: []nodeconfig.File{{Path: name}}}, wire.ConfigurationFailed, wire.ReasonInvalid, name))
	}
	w.good(1, nodeconfig.Config{Files: []nodeconfig.File{{Path: "/etc/systemd/system.conf.d/10-limits.conf"}, {Path: "/etc/systemd/journald.conf.d/10-size.conf"}}})
}

func TestUnitOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := func(content string) nodeconfig.Config {
		return nodeconfig.Config{Units: []nodeconfig.Unit{{Name: "hello.service", Enabled: yes(), Started: yes(), Content: content}}}
	}
	one := "[Service]\nExecStart=/bin/hello\n[Install]\nWantedBy=multi-user.target\nAlias=hallo.service\n"
	w.good(1, c(one), "daemon-reload", "restart hello.service")
	for _, link := range []string{"multi-user.target.wants/hello.service", "hallo.service"} {
		if got := w.read("/etc/systemd/system/" + link); got != "-> /etc/systemd/system/hello.service" {
			t.Errorf("%s: %q", link, got)
		}
	}
	w.good(2, c(one))
	w.good(3, c("# two\n"+one), "daemon-reload", "restart hello.service")
	w.units["hello.service"].active = "inactive"
	w.good(4, c("# two\n"+one), "start hello.service")
	w.good(5, nodeconfig.Config{}, "daemon-reload", "stop hello.service")
	if got := w.read("/etc/systemd/system/multi-user.target.wants/hello.service"); got != "" {
		t.Errorf("its link stays: %q", got)
	}
}

func TestDropInsAndStateOfTheImagesUnits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := nodeconfig.Config{Units: []nodeconfig.Unit{
		{Name: "nginx.service", Started: yes(), DropIns: []nodeconfig.DropIn{{Name: "10-memory.conf", Content: "[Service]\nMemoryMax=1G\n"}}},
		{Name: "backup.service", Started: yes(), Enabled: yes()},
	}}
	w.good(1, c, "daemon-reload", "restart nginx.service", "start backup.service")
	if got := w.read("/etc/systemd/system/multi-user.target.wants/backup.service"); got != "-> /lib/systemd/system/backup.service" {
		t.Errorf("link: %q", got)
	}
	c.Units[0].Started, c.Units[1].Enabled = no(), no()
	w.good(2, c, "daemon-reload", "stop nginx.service")
	if got := w.read("/etc/systemd/system/multi-user.target.wants/backup.service"); got != "" {
		t.Errorf("link: %q", got)
	}
	// nginx.service ran before the first document, backup.service did not.
	w.good(3, nodeconfig.Config{}, "daemon-reload", "stop backup.service", "restart nginx.service")
}

// As nodeconfig.Changes says.
func TestEnabledAloneRestartsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	unit := func(enabled *bool) nodeconfig.Config {
		return nodeconfig.Config{Units: []nodeconfig.Unit{{Name: "nginx.service", Enabled: enabled, Started: yes()}}}
	}
	w.good(1, unit(yes()), "daemon-reload")
	w.good(2, unit(no()), "daemon-reload")
	w.good(3, unit(nil))
}

func TestOneshotRunsOnceForEachChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := func(drop string) nodeconfig.Config {
		return nodeconfig.Config{Units: []nodeconfig.Unit{{Name: "once.service", Started: yes(), DropIns: []nodeconfig.DropIn{{Name: "a.conf", Content: drop}}}}}
	}
	w.good(1, nodeconfig.Config{Units: []nodeconfig.Unit{{Name: "once.service", Started: yes()}}}, "start once.service")
	w.good(2, c("one"), "daemon-reload", "restart once.service")
	w.good(3, c("one"))
	w.good(4, nodeconfig.Config{}, "daemon-reload")
}

func TestKubeletAndContainerdRestartLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	drop := []nodeconfig.DropIn{{Name: "10-x.conf", Content: "[Service]\nNice=1\n"}}
	w.good(1, nodeconfig.Config{
		Kubelet: map[string]any{"maxPods": 50},
		Units: []nodeconfig.Unit{{Name: "kubelet.service", Started: yes(), DropIns: drop}, {Name: "containerd.service", Started: yes(), DropIns: drop},
			{Name: "nginx.service", Started: yes(), DropIns: drop}},
		Sysctls: map[string]string{"net.core.somaxconn": "4096"},
		Files:   []nodeconfig.File{{Path: "/etc/x", Restart: []string{"nginx", "kubelet"}}},
	}, "daemon-reload", "sysctl net.core.somaxconn=4096", "restart nginx.service", "restart containerd.service", "restart kubelet.service")
}

func TestSysctlsGoBackToTheirValue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := func(values ...string) nodeconfig.Config {
		m := map[string]string{}
		for i := 0; i < len(values); i += 2 {
			m[values[i]] = values[i+1]
		}
		return nodeconfig.Config{Sysctls: m}
	}
	w.good(1, c("net.core.somaxconn", "4096", "net.ipv4.tcp_rmem", "4096 131072 6291456"), "sysctl net.core.somaxconn=4096")
	if got := w.read("/etc/sysctl.d/90-ortet.conf"); !strings.Contains(got, "net.core.somaxconn = 4096\n") {
		t.Errorf("%q", got)
	}
	w.good(2, c("net.core.somaxconn", "8192"), "sysctl net.core.somaxconn=8192")
	w.good(3, c(), "sysctl net.core.somaxconn=128")
	w.bad(4, c("net.core.somaxcon", "1"), wire.ConfigurationFailed, wire.ReasonInvalid, "net.core.somaxcon")
}

func TestKubeletDropIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.good(1, kubelet(50), "restart kubelet.service")
	if got := w.read(kubeletFile); !strings.Contains(got, `"kind": "KubeletConfiguration"`) || !strings.Contains(got, `"maxPods": 50`) {
		t.Errorf("%s", got)
	}
	w.bad(2, nodeconfig.Config{Kubelet: map[string]any{"cpuManagerPolicy": "static"}}, wire.ConfigurationFailed, wire.ReasonInvalid, "cpuManagerPolicy")
}

func TestRegistryMirrorNeedsNoRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.good(1, nodeconfig.Config{RegistryMirrors: []nodeconfig.RegistryMirror{{Registry: "docker.io", Endpoints: []string{"https://mirror.example", "https://harbor.example/v2/hub"}}}})
	want := header + "server = \"https://registry-1.docker.io\"\n\n[host.\"https://mirror.example\"]\n  capabilities = [\"pull\", \"resolve\"]\n" +
		"\n[host.\"https://harbor.example/v2/hub\"]\n  capabilities = [\"pull\", \"resolve\"]\n  override_path = true\n"
	if got := w.read("/etc/containerd/certs.d/docker.io/hosts.toml"); got != want {
		t.Errorf("%s", got)
	}
}

func TestUnhealthyKubeletIsRestored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.good(1, kubelet(50), "restart kubelet.service")
	w.fails["kubelet.service"] = w.has(kubeletFile, "51")
	start := w.now
	log := w.bad(2, kubelet(51), wire.ConfigurationFailed, wire.ReasonUnhealthy, "kubelet.service", "its log: kubelet.service says")
	w.did(log, "restart kubelet.service", "restart kubelet.service")
	if !strings.Contains(w.read(kubeletFile), "50") || w.units["kubelet.service"].active != "active" || w.now.Sub(start) > DefaultDeadline+time.Minute {
		t.Errorf("%s after %s", w.read(kubeletFile), w.now.Sub(start))
	}
	if got, _ := w.apply(1, kubelet(50)); got.State != wire.ConfigurationApplied || got.Generation != 1 {
		t.Errorf("%+v", got)
	}
}

func TestSecretsOfLogsAreNotShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fails["kubelet.service"] = w.has(kubeletFile, "51")
	got, _ := w.apply(1, kubelet(51))
	if !strings.Contains(got.Message, "password=") || len(got.Message) > 1<<10 || strings.Contains(got.Message, "hunter2") {
		t.Errorf("%s", got.Message)
	}
}

func TestNodeWithoutNewHeartbeatIsRestored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.silent = w.has(kubeletFile, "51")
	start := w.now
	w.bad(1, kubelet(51), wire.ConfigurationFailed, wire.ReasonUnhealthy, "within 2m0s", "heartbeat")
	if waited := w.now.Sub(start); waited < DefaultDeadline || w.read(kubeletFile) != "" {
		t.Errorf("after %s: %q", waited, w.read(kubeletFile))
	}
	w.silent, w.onWait = nil, func() { w.ready = !w.has(kubeletFile, "52")() }
	w.bad(2, kubelet(52), wire.ConfigurationFailed, wire.ReasonUnhealthy, "not Ready")
}

func TestFailedUnitRestoresAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := nodeconfig.Config{
		Sysctls: map[string]string{"net.core.somaxconn": "4096"},
		Units:   []nodeconfig.Unit{{Name: "hello.service", Started: yes(), Content: "[Service]\nExecStart=/bin/false\n"}},
		Files:   []nodeconfig.File{{Path: "/etc/nginx.conf", Content: "x", Restart: []string{"nginx"}}},
	}
	w.fails["hello.service"] = func() bool { return true }
	log := w.bad(1, c, wire.ConfigurationFailed, wire.ReasonUnhealthy, "hello.service restarted 3 times")
	w.did(log, "daemon-reload", "sysctl net.core.somaxconn=4096", "restart hello.service", "restart nginx.service",
		"daemon-reload", "sysctl net.core.somaxconn=128", "stop hello.service", "restart nginx.service")
	if w.read("/etc/nginx.conf") != "" || w.read("/etc/systemd/system/hello.service") != "" {
		t.Error("files stay")
	}
	// A restart that systemd refuses ends what comes after it.
	w = newWorld(t)
	w.fails["hello.service"] = func() bool { return true }
	w.deny[Restart] = errors.New("job failed")
	log = w.bad(1, c, wire.ConfigurationFailed, wire.ReasonApply, "hello.service: job failed")
	w.did(log, "daemon-reload", "sysctl net.core.somaxconn=4096", "restart hello.service", "daemon-reload", "sysctl net.core.somaxconn=128")
}

func TestFailedRestoreSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	broken := false
	w.fails["kubelet.service"] = func() bool { broken = broken || w.has(kubeletFile, "51")(); return broken }
	w.bad(1, kubelet(51), wire.ConfigurationFailed, wire.ReasonRestoreFailed, "cannot restore")
	w = newWorld(t)
	w.fails["kubelet.service"], w.store.restoreError = w.has(kubeletFile, "51"), errors.New("disk is read-only")
	w.bad(1, kubelet(51), wire.ConfigurationFailed, wire.ReasonRestoreFailed, "disk is read-only")
}

func TestNodeThatWasNotReadyIsNotTouched(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ready = false
	w.did(w.bad(1, kubelet(50), wire.ConfigurationWaiting, wire.ReasonNodeNotReady, "not Ready"))
	if w.read(kubeletFile) != "" {
		t.Error("the file was written")
	}
	w.ready = true
	w.good(1, kubelet(50), "restart kubelet.service")
}

func TestMachinesThatAreNotPrepared(t *testing.T) {
	t.Parallel()
	mirror := nodeconfig.Config{RegistryMirrors: []nodeconfig.RegistryMirror{{Registry: "docker.io", Endpoints: []string{"https://mirror.example"}}}}
	ca := nodeconfig.Config{CACertificates: []nodeconfig.CACertificate{{Name: "corp", PEM: certificate(t, true, time.Hour)}}}
	remove := func(name string) func(w *world) {
		return func(w *world) {
			if err := os.RemoveAll(filepath.Join(w.root, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		prepare func(w *world)
		config  nodeconfig.Config
		says    string
	}{
		"no folder":          {remove(DefaultKubeletConfigDir), kubelet(50), "--config-dir=" + DefaultKubeletConfigDir},
		"no flag":            {func(w *world) { w.command = []string{"kubelet"} }, kubelet(50), "runs without --config-dir"},
		"no config_path":     {func(w *world) { w.write("/etc/containerd/config.toml", "version = 2\n") }, mirror, "config_path"},
		"no containerd file": {remove("/etc/containerd"), mirror, "config_path"},
		"not Debian":         {remove(updateCA), ca, "ca-certificates"},
		"k3s before 1.32":    {func(w *world) { w.write("/etc/systemd/system/k3s-agent.service", "") }, kubelet(50), "1.32"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c.prepare(w)
			w.did(w.bad(1, c.config, wire.ConfigurationRefused, wire.ReasonNotPrepared, c.says))
		})
	}
	w := newWorld(t)
	w.command = []string{"kubelet", "--config-dir", DefaultKubeletConfigDir + "/"}
	w.good(1, kubelet(50), "restart kubelet.service")
}

func TestK3s(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("/etc/systemd/system/k3s-agent.service", "")
	w.write("/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/00-k3s-defaults.conf", "")
	w.units["k3s-agent.service"] = &unit{active: "active"}
	c := kubelet(50)
	c.RegistryMirrors = []nodeconfig.RegistryMirror{{Registry: "_default", Endpoints: []string{"https://mirror.example"}}}
	w.silent = func() bool { return false }
	w.onWait = func() { w.heartbeat = w.now }
	w.good(1, c, "restart k3s-agent.service")
	if got := w.read("/etc/rancher/k3s/registries.yaml"); !strings.Contains(got, `"*"`) {
		t.Errorf("%s", got)
	}
	if !strings.Contains(w.read("/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/90-ortet.conf"), "50") {
		t.Error("no drop-in")
	}
	c.RegistryMirrors[0].Registry = "docker.io"
	w.good(2, c, "restart k3s-agent.service")

	w = newWorld(t)
	w.write("/etc/systemd/system/k3s-agent.service", "")
	w.write("/etc/rancher/k3s/registries.yaml", "mirrors: {}\n")
	c.Kubelet = nil
	w.bad(1, c, wire.ConfigurationRefused, wire.ReasonNotPrepared, "join.json")
}

func TestFolderWhereAFileShouldBe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("/etc/motd/x", "")
	w.did(w.bad(1, motd("x"), wire.ConfigurationFailed, wire.ReasonApply, "/etc/motd"))
}

func TestBootLeavesHealthToSettle(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		w := newWorld(t)
		w.boot, w.ready = true, false
		for _, name := range []string{"kubelet.service", "containerd.service"} {
			w.units[name].active = "inactive"
		}
		w.fails["kubelet.service"] = func() bool { return fails && w.has(kubeletFile, "50")() }
		c := kubelet(50)
		c.Units = []nodeconfig.Unit{{Name: "backup.service", Started: yes()}}
		got, log := w.apply(1, c)
		w.did(log, "start backup.service (no wait)")
		if got.State != wire.ConfigurationApplying || w.read(kubeletFile) == "" || !w.pending() {
			t.Fatalf("%+v", got)
		}
		w.boot, w.log = false, nil
		began := w.now.Add(5 * time.Minute) // the join took long
		w.onWait = func() {
			if u := w.units["kubelet.service"]; u.active == "inactive" && !w.now.Before(began) {
				*u = unit{active: "active", since: w.now}
				w.run("kubelet.service")
				w.ready = true
			}
		}
		got, open := w.applier().Settle(t.Context())
		if fails {
			w.did(w.log, "stop backup.service", "restart kubelet.service")
			if !open || got.State != wire.ConfigurationFailed || got.Reason != wire.ReasonUnhealthy || got.Wanted != 1 || w.read(kubeletFile) != "" {
				t.Errorf("%+v", got)
			}
			continue
		}
		w.did(w.log)
		if !open || got.State != wire.ConfigurationApplied || got.Generation != 1 || w.pending() {
			t.Errorf("%+v", got)
		}
		if _, open := w.applier().Settle(t.Context()); open {
			t.Error("settled twice")
		}
	}
}

func TestFailureAtBootIsRestoredAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.boot, w.deny[Start] = true, errors.New("no such job")
	w.units["kubelet.service"].active = "inactive"
	c := kubelet(50)
	c.Units = []nodeconfig.Unit{{Name: "backup.service", Started: yes()}}
	w.did(w.bad(1, c, wire.ConfigurationFailed, wire.ReasonApply, "no such job"), "start backup.service (no wait)")
	if w.read(kubeletFile) != "" || w.pending() {
		t.Error("nothing was restored")
	}
}

// containerd starts before the configuration is read, and would run without its drop-in.
func TestContainerdThatRunsAtBootIsRestarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.boot = true
	w.units["kubelet.service"].active = "inactive"
	got, log := w.apply(1, nodeconfig.Config{
		Units:          []nodeconfig.Unit{{Name: "containerd.service", Started: yes(), DropIns: []nodeconfig.DropIn{{Name: "10-proxy.conf", Content: "[Service]\nEnvironment=HTTPS_PROXY=http://proxy\n"}}}},
		CACertificates: []nodeconfig.CACertificate{{Name: "corp", PEM: certificate(t, true, time.Hour)}},
	})
	w.did(log, "daemon-reload", "update-ca-certificates", "restart containerd.service (no wait)")
	if got.State != wire.ConfigurationApplying {
		t.Errorf("%+v", got)
	}
}

func TestFileAloneIsKeptAtBoot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.boot = true
	w.good(1, motd("x"))
	w.good(1, motd("x"))
}

func TestEndedContextLeavesHealthToSettle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	w.onWait = cancel
	d := document(1, kubelet(50))
	if got := w.applier().Apply(ctx, d, w.record(d)); got.State != wire.ConfigurationApplying || !w.pending() {
		t.Fatalf("%+v", got)
	}
	w.onWait, w.log = nil, nil
	got, _ := w.applier().Settle(t.Context())
	if got.State != wire.ConfigurationApplied || len(w.log) > 0 {
		t.Errorf("%+v %v", got, w.log)
	}
}

// cut leaves an apply of generation 2 as a power cut does, after its activation began.
func cut(t *testing.T) *world {
	w := newWorld(t)
	c := kubelet(50)
	c.Sysctls = map[string]string{"net.core.somaxconn": "4096"}
	w.good(1, c, "sysctl net.core.somaxconn=4096", "restart kubelet.service")
	c = kubelet(51)
	c.CACertificates = []nodeconfig.CACertificate{{Name: "corp", PEM: certificate(t, true, time.Hour)}}
	c.Sysctls = map[string]string{"net.core.somaxconn": "8192", "net.ipv4.tcp_rmem": "1 2 3"}
	c.Units = []nodeconfig.Unit{{Name: "nginx.service", DropIns: []nodeconfig.DropIn{{Name: "a.conf"}}}}
	func() {
		defer func() { _ = recover() }()
		w.onWait = func() { panic("power cut") }
		w.apply(2, c)
	}()
	w.onWait, w.log = nil, nil
	if !w.pending() {
		t.Fatal("nothing was cut")
	}
	return w
}

func TestRecoverGoesBackWithoutRestarts(t *testing.T) {
	w := cut(t)
	restored, err := w.applier().Recover(t.Context())
	if err != nil || !restored || !strings.Contains(w.read(kubeletFile), "50") {
		t.Errorf("%v %v %s", restored, err, w.read(kubeletFile))
	}
	w.did(w.log, "update-ca-certificates", "daemon-reload")
	if restored, err := w.applier().Recover(t.Context()); restored || err != nil {
		t.Errorf("again: %v %v", restored, err)
	}
	if got, open := w.applier().Settle(t.Context()); open {
		t.Errorf("%+v", got)
	}
}

// The agent is killed while it restores: the files are back, and the kubelet still runs
// with the ones that failed.
func TestSettleEndsARestoreThatWasCut(t *testing.T) {
	t.Parallel()
	for _, refused := range []error{nil, errors.New("job failed")} {
		w := newWorld(t)
		w.good(1, kubelet(50), "restart kubelet.service")
		w.deny[Restart] = refused
		func() {
			defer func() { _ = recover() }()
			w.fails["kubelet.service"] = func() bool { return true }
			w.store.restored = func() { panic("killed") }
			w.apply(2, kubelet(51))
		}()
		delete(w.fails, "kubelet.service")
		delete(w.deny, Restart)
		if w.log = nil; !strings.Contains(w.read(kubeletFile), "50") {
			t.Fatal("the files were not restored")
		}
		w.store.restored = nil
		got, open := w.applier().Settle(t.Context())
		if !open || got.Reason != wire.ReasonInterrupted || got.Generation != 1 || got.Wanted != 2 {
			t.Errorf("%+v", got)
		}
		w.did(w.log, "restart kubelet.service")
		if got, open := w.applier().Settle(t.Context()); open {
			t.Errorf("%+v", got)
		}
	}
}

func TestSettleRestoresWhatWasCutBeforeItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.good(1, kubelet(50), "restart kubelet.service")
	func() {
		defer func() { _ = recover() }()
		w.fails["kubelet.service"] = func() bool { panic("killed") }
		w.apply(2, kubelet(51))
	}()
	delete(w.fails, "kubelet.service")
	w.log = nil
	got, open := w.applier().Settle(t.Context())
	if !open || got.State != wire.ConfigurationFailed || got.Reason != wire.ReasonInterrupted || got.Generation != 1 || got.Wanted != 2 || !strings.Contains(w.read(kubeletFile), "50") {
		t.Errorf("%+v", got)
	}
	w.did(w.log, "restart kubelet.service")
}
