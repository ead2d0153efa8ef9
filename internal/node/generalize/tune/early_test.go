package tune_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/wire"
)

const (
	ours      = "etc/systemd/system/"
	kubeadm   = "[Unit]\nDescription=kubelet: The Kubernetes Node Agent\nDocumentation=https://kubernetes.io/docs/\nWants=network-online.target\nAfter=network-online.target\n\n[Service]\nExecStart=/usr/bin/kubelet\nRestart=always\nStartLimitInterval=0\nRestartSec=10\n\n[Install]\nWantedBy=multi-user.target\n"
	kubeadm10 = "# Note: This dropin only works with kubeadm and kubelet v1.11+\n[Service]\nEnvironment=\"KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf\"\nEnvironment=\"KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml\"\nEnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\nEnvironmentFile=-/etc/default/kubelet\nExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS\n"

	earlyHead = `
[Unit]
Wants=network-online.target
After=cloud-init-local.service network.target nss-lookup.target systemd-resolved.service
After=systemd-networkd-wait-online.service NetworkManager-wait-online.service networking.service

`
	// Of Debian's cloud-init 22.4; later ones and Ubuntu's have another name.
	debianStage = "[Unit]\nDescription=Initial cloud-init job (metadata service crawler)\nDefaultDependencies=no\nWants=cloud-init-local.service\nWants=sshd.service\nAfter=cloud-init-local.service\nAfter=systemd-networkd-wait-online.service\nBefore=network-online.target\nBefore=sshd.service\nBefore=sysinit.target\nBefore=shutdown.target\nConflicts=shutdown.target\n\n[Service]\nType=oneshot\nExecStart=/usr/bin/cloud-init init\n"
	earlyTail   = `
[Unit]
After=containerd.service
RequiresMountsFor=/var/lib/kubelet /var/lib/containerd /var/log

[Service]
TimeoutStartSec=infinity
ExecStartPre=/bin/sh /etc/ortet/kubelet-early.sh
`
)

func earlyOf(at, text string) string {
	return "# ortet capture --tune kubelet-early: a copy of /" + at + " that does not wait for cloud-init's network stage." + earlyHead + text
}

// node adds a kubelet of kubeadm's package to a tree, where the distribution has its units.
func node(f map[string]string, units string) map[string]string {
	maps.Copy(f, map[string]string{
		units + "kubelet.service": kubeadm, "usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf": kubeadm10, units + "cloud-init-local.service": "[Unit]\nBefore=network-pre.target\n",
		ours + "multi-user.target.wants/kubelet.service": "", "var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\nshutdownGracePeriod: 0s\nshutdownGracePeriodCriticalPods: 0s\n",
		"etc/fstab":                  "# /etc/fstab\nUUID=1 / ext4 rw,discard,errors=remount-ro,x-systemd.growfs 0 1\nUUID=2 /boot/efi vfat defaults 0 0\n/dev/sda3 /var xfs defaults 0 0\n",
		units + "cloud-init.service": "[Unit]\nBefore=network-online.target\n",
		units + "z.timer":            "[Unit]\nBefore=shutdown.target\n",
	})
	return f
}

// staged adds the network stage of Debian and Ubuntu.
func staged(f map[string]string, at string) map[string]string {
	delete(f, "lib/systemd/system/cloud-init.service")
	delete(f, "usr/lib/systemd/system/cloud-init.service")
	return and(f, at, debianStage)
}

// admitted adds what of deploy/systemd the machine joins with.
func admitted(t *testing.T, f map[string]string, enabled ...string) map[string]string {
	t.Helper()
	for _, unit := range []string{"ortet-join", "ortet-metadata-guard", "ortet-left", "ortet-config-boot", "ortet-config-recover", "ortet-leave"} {
		text, err := os.ReadFile("../../../../deploy/systemd/" + unit + ".service")
		if err != nil {
			t.Fatal(err)
		}
		f["usr/lib/systemd/system/"+unit+".service"] = string(text)
	}
	for _, unit := range enabled {
		f[ours+"multi-user.target.wants/"+unit+".service"] = ""
	}
	text, err := os.ReadFile("../../../../deploy/systemd/kubelet.service.d/20-ortet.conf")
	if err != nil {
		t.Fatal(err)
	}
	return and(f, ours+"kubelet.service.d/20-ortet.conf", string(text))
}

func without(f map[string]string, path string) map[string]string {
	delete(f, path)
	return f
}

var early = []string{wire.TuneKubeletEarly, wire.TuneRuntimeEarly}

// The tuning adds copies of units and its gate, changes no other byte, and leaves nothing.
func TestKubeletEarlyAddsAndLeavesNothing(t *testing.T) {
	const lib, usr = "lib/systemd/system/", "usr/lib/systemd/system/"
	copied := strings.Replace(kubeadm, "\nAfter", "\n# After", 1)
	stage := func(at string) string {
		return "# ortet capture --tune kubelet-early: a copy of /" + at + " that is not before sysinit.target.\n" + strings.Replace(debianStage, "Before=sysinit", "# Before=sysinit", 1)
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  map[string]string
	}{
		"Debian":      {staged(node(debian(), lib), lib+"cloud-init.service"), map[string]string{"kubelet.service": earlyOf(lib+"kubelet.service", copied) + earlyTail, "cloud-init.service": stage(lib + "cloud-init.service")}},
		"Ubuntu":      {and(and(staged(node(ubuntu(), usr), usr+"cloud-init-network.service"), ours+"snap.lxd.activate.service", "[Unit]\nAfter=network.target\n"), ours+"multi-user.target.wants/snap.lxd.activate.service", ""), map[string]string{"kubelet.service": earlyOf(usr+"kubelet.service", copied) + earlyTail, "cloud-init-network.service": stage(usr + "cloud-init-network.service")}},
		"Azure Linux": {node(azureLinux(), usr), map[string]string{"kubelet.service": earlyOf(usr+"kubelet.service", copied) + earlyTail}},
		"RHEL, SELinux permissive": {and(node(rhel(), usr), "etc/selinux/config", "SELINUX=permissive\n"),
			map[string]string{"kubelet.service": earlyOf(usr+"kubelet.service", copied) + earlyTail}},
		"kubeadm's drop-in in /etc": {and(and(without(node(debian(), lib), "usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf"), ours+"kubelet.service.d/10-kubeadm.conf", kubeadm10), ours+"kubelet.service.d/20.conf", "[Unit]\nAfter=containerd.service\nRequires=containerd.service\n"),
			map[string]string{"kubelet.service": earlyOf(lib+"kubelet.service", copied) + earlyTail}},
		"a unit that is early itself": {and(and(node(debian(), lib), ours+"prepare.service", "[Unit]\nAfter=network.target cloud-init-local.service systemd-networkd-wait-online.service\nBefore=kubelet.service\n"), ours+"kubelet.service.requires/prepare.service", ""),
			map[string]string{"kubelet.service": earlyOf(lib+"kubelet.service", copied) + earlyTail}},
		"a late unit that is off": {and(node(debian(), lib), lib+"prepare.service", "[Unit]\nAfter=network-online.target\nBefore=kubelet.service\n[Install]\nWantedBy=multi-user.target\n"),
			map[string]string{"kubelet.service": earlyOf(lib+"kubelet.service", copied) + earlyTail}},
		"admission": {admitted(t, node(ubuntu(), usr), "ortet-metadata-guard", "ortet-left", "ortet-leave", "ortet-config-boot"), map[string]string{"kubelet.service": earlyOf(usr+"kubelet.service", copied) + earlyTail,
			"ortet-join.service": "Requires=sysinit.target\nAfter=sysinit.target ortet-metadata-guard.service\nBefore=kubelet.service", "ortet-left.service": "\nAfter=sysinit.target ortet-join.service\nBefore=kubelet.service",
			"ortet-config-boot.service": "\nAfter=sysinit.target ortet-config-recover.service ortet-boot.service ortet-join.service\nBefore=kubelet.service"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := disk(t, c.files)
			before := content(t, d)
			for generation := range 5 {
				if problems, kept := tuned(t, d, false, early...); problems != nil || kept != nil {
					t.Fatalf("generation %d: refused %q, kept %q", generation, problems, kept)
				}
				now := content(t, d)
				for path, text := range before {
					if now[path] != text {
						t.Errorf("generation %d changed /%s", generation, path)
					}
				}
				for unit, want := range c.want {
					got := now[ours+unit]
					exact := strings.HasPrefix(want, "# ortet")
					if exact && got != want || !strings.Contains(got, want) || !exact && !strings.Contains(got, earlyHead) {
						t.Errorf("generation %d: %s is\n%s\nwant\n%s", generation, unit, got, want)
					}
				}
				if added := len(now) - len(before); added != len(c.want)+5 || now["etc/ortet/kubelet-early.sh"] == "" {
					t.Errorf("generation %d added %d files and folders", generation, added)
				}
			}
			if problems, kept := tuned(t, d, false); problems != nil || kept != nil || !maps.Equal(content(t, d), before) {
				t.Errorf("captured again without it: refused %q, kept %q, left %v", problems, kept, slices.Sorted(maps.Keys(content(t, d))))
			}
		})
	}
}

// A changed copy keeps the whole tuning: the kubelet's unit starts the gate.
func TestChangedCopyKeepsItsGate(t *testing.T) {
	const unit, gate = ours + "kubelet.service", "etc/ortet/kubelet-early.sh"
	d := disk(t, node(debian(), "lib/systemd/system/"))
	tuned(t, d, false, early...)
	put(t, d.Dir(), map[string]string{unit: content(t, d)[unit] + "Environment=MINE=1\n"})
	problems, kept := tuned(t, d, false)
	now := content(t, d)
	if problems != nil || !slices.Equal(kept, []string{"/" + gate, "/" + unit}) || now[gate] == "" || now[unitFile] != "" {
		t.Errorf("refused %q, kept %q, the gate: %q", problems, kept, now[gate])
	}
}

// A copy of what is an alias would be a second kubelet. /lib may be a link to /usr/lib, and no file
// is named twice for it.
func TestKubeletEarlyFollowsLinks(t *testing.T) {
	const usr, drop = "usr/lib/systemd/system/", "usr/lib/systemd/system/kubelet.service.d/30.conf"
	d := disk(t, without(and(and(node(debian(), usr), usr+"kubelet-1.36.service", kubeadm), drop, "[Unit]\nAfter=mnt-x.mount\n"), usr+"kubelet.service"))
	if err := errors.Join(os.Mkdir(filepath.Join(d.Dir(), "mnt"), 0o755), os.RemoveAll(filepath.Join(d.Dir(), "lib")),
		os.Rename(filepath.Join(d.Dir(), "var/lib/kubelet"), filepath.Join(d.Dir(), "mnt/kubelet"))); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"lib": "usr/lib", "var/lib/kubelet": "/mnt/kubelet", usr + "kubelet.service": "kubelet-1.36.service"} {
		if err := os.Symlink(to, filepath.Join(d.Dir(), link)); err != nil {
			t.Fatal(err)
		}
	}
	problems, _ := tuned(t, d, false, wire.TuneKubeletEarly)
	want := []string{usr + "kubelet.service: is a link to /" + usr + "kubelet-1.36.service", "/" + drop + ":2: After=mnt-x.mount", "/var/lib/kubelet: is reached by a link to /mnt/kubelet"}
	if !slices.EqualFunc(problems, want, strings.Contains) {
		t.Errorf("refused with\n%s", strings.Join(problems, "\n"))
	}
}

func TestKubeletEarlyIsRefused(t *testing.T) {
	const lib = "lib/systemd/system/"
	const drop = ours + "kubelet.service.d/30.conf"
	base := func(path, text string) map[string]string { return and(node(debian(), lib), path, text) }
	for name, c := range map[string]struct {
		files map[string]string
		says  []string
	}{
		"Flatcar":                  {flatcar(), []string{"/" + ours + "kubelet.service: has no Restart=always", "cloud-init-local.service: is not on this disk", "/" + ours + "kubelet.service: is there, and is not what a capture added"}},
		"RHEL, SELinux":            {and(node(rhel(), "usr/"+lib), "etc/selinux/config", "# x\nSELINUX=enforcing\n"), []string{"/etc/selinux/config:2: SELINUX=enforcing: "}},
		"no kubelet":               {debian(), []string{"/usr/lib/systemd/system/kubelet.service: is not on this disk"}},
		"own copy":                 {base(ours+"kubelet.service", kubeadm), []string{"/" + ours + "kubelet.service: is there"}},
		"a drop-in orders it":      {base(drop, "[Unit]\nAfter=mnt-data.mount\n"), []string{"/" + drop + ":2: After=mnt-data.mount: somebody ordered it"}},
		"its unit is ordered":      {base(lib+"kubelet.service", strings.Replace(kubeadm, "After=", "After=cloud-config.target cloud-init.service ", 1)), []string{"cloud-config.target: is before the kubelet", "/" + lib + "cloud-init.service: is before the kubelet"}},
		"a late unit before it":    {and(base(lib+"prepare.service", "[Unit]\nAfter=network-online.target\nBefore=kubelet.service\n"), ours+"multi-user.target.wants/prepare.service", ""), []string{"/" + lib + "prepare.service: is before the kubelet"}},
		"a late unit by a drop-in": {and(and(base(lib+"prepare.service", "[Unit]\n"), ours+"prepare.service.d/x.conf", "[Unit]\nBefore=foo.service kubelet.service\n"), lib+"multi-user.target.wants/prepare.service", ""), []string{"/" + lib + "prepare.service: is before the kubelet"}},
		"a vendor's late unit":     {and(base(lib+"prepare.service", "[Unit]\nAfter=network-online.target\nBefore=ortet-config-boot.service\n[Install]\n"), lib+"multi-user.target.wants/prepare.service", ""), []string{"/" + lib + "prepare.service: is before the kubelet"}},
		"a late unit by two lines": {and(base(lib+"prepare.service", "[Unit]\nAfter=network-online.target\nBefore=foo.service \\\n  kubelet.service\n"), ours+"multi-user.target.wants/prepare.service", ""), []string{"/" + lib + "prepare.service: is before the kubelet"}},
		"a late unit of another":   {base(lib+"prepare.service", "[Unit]\nAfter=network-online.target\nBefore=kubelet.service\n"), []string{"/" + lib + "prepare.service: is before the kubelet"}},
		"a late template":          {and(base(lib+"prepare@.service", "[Unit]\nAfter=network-online.target\nBefore=kubelet.service\n[Install]\n"), ours+"multi-user.target.wants/prepare@sdc.service", ""), []string{"/" + lib + "prepare@.service: is before the kubelet"}},
		"an instance it is after":  {and(base(lib+"kubelet.service", strings.Replace(kubeadm, "After=", "After=prepare@sdc.service ", 1)), lib+"prepare@.service", "[Unit]\nAfter=network-online.target\n"), []string{"/" + lib + "prepare@.service: is before the kubelet"}},
		"a template came after it": {and(and(staged(node(debian(), lib), lib+"cloud-init.service"), ours+"mine@.service", "[Service]\nExecStart=/opt/x %i\n"), ours+"multi-user.target.wants/mine@a.service", ""), []string{"/" + ours + "mine@.service: came after cloud-init's network stage"}},
		"a vendor's drop-in":       {base(lib+"kubelet.service.d/30.conf", "[Unit]\nAfter=containerd.service mnt-data.mount\n"), []string{"/" + lib + "kubelet.service.d/30.conf:2: After=containerd.service mnt-data.mount: somebody ordered it"}},
		"the join's unit in /etc":  {base(ours+"ortet-join.service", "[Unit]\nAfter=network-online.target\n"), []string{"/" + ours + "ortet-join.service: is there, and is not what a capture added: move it to /usr/local/lib/systemd/system"}},
		"a late unit it is after":  {and(base(lib+"kubelet.service", strings.Replace(kubeadm, "After=", "After=docker.service ", 1)), lib+"docker.service", "[Unit]\nAfter=network-online.target\n"), []string{"/" + lib + "docker.service: is before the kubelet"}},
		"a line that goes on":      {base(lib+"kubelet.service", strings.Replace(kubeadm, "After=", "After=\\\n", 1)), []string{"/usr/lib/systemd/system/\\: is before the kubelet"}},
		"a unit came after it":     {and(and(staged(node(debian(), lib), lib+"cloud-init.service"), ours+"mine.service", "[Service]\nExecStart=/opt/x\n"), ours+"multi-user.target.wants/mine.service", ""), []string{"/" + ours + "mine.service: came after cloud-init's network stage"}},
		"prepared":                 {base(drop, "[Service]\nExecStartPre=/opt/mkdisk --token SECRET\n"), []string{"/" + drop + ":2: ExecStartPre=/opt/mkdisk: what it needs is not known"}},
		"gate taken away":          {base(drop, "[Service]\nExecStartPre=\n"), []string{"/" + drop + ":2: ExecStartPre=: "}},
		"never again":              {base(lib+"kubelet.service", strings.Replace(kubeadm, "Restart=always\n", "", 1)), []string{"has no Restart=always"}},
		"folder elsewhere":         {base("etc/default/kubelet", "KUBELET_EXTRA_ARGS=--root-dir=/mnt/kubelet\n"), []string{"/etc/default/kubelet:1: --root-dir=/mnt/kubelet: "}},
		"folder of sysconfig":      {base("etc/sysconfig/kubelet", "KUBELET_EXTRA_ARGS=\"--v=2 --root-dir /mnt/kubelet\"\n"), []string{"/etc/sysconfig/kubelet:1: --root-dir /mnt/kubelet: "}},
		"folder of kubeadm":        {base("var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\"--root-dir=/mnt/kubelet\"\n"), []string{"/var/lib/kubelet/kubeadm-flags.env:1: --root-dir=/mnt/kubelet: "}},
		"disks of cloud.cfg":       {base("etc/cloud/cloud.cfg.d/50.cfg", "swap:\n  size: 1\ndisk_setup:\n  x: y\nfs_setup: []\nca_certs:\n  trusted: []\nmanage_resolv_conf: true\nfqdn: a.b\n"), []string{"50.cfg:1: swap:", "50.cfg:3: disk_setup:", "50.cfg:5: fs_setup", "50.cfg:6: ca_certs:", "50.cfg:8: manage_resolv_conf: true", "50.cfg:9: fqdn"}},
		"mounts that come late":    {base("etc/fstab", "UUID=1 / ext4 defaults 0 1\nUUID=3 /var/lib/kubelet xfs noauto 0 0\nUUID=4 /var/lib/containerd xfs defaults,x-systemd.automount 0 0\n"), []string{"/etc/fstab:2: noauto: ", "/etc/fstab:3: x-systemd.automount: "}},
		"cloud-init is off":        {base("etc/cloud/cloud-init.disabled", ""), []string{"/etc/cloud/cloud-init.disabled: cloud-init does not run"}},
		"mounts of cloud.cfg":      {base("etc/cloud/cloud.cfg.d/50.cfg", "a: b\nmounts:\n- [ephemeral0, /var/lib/containerd]\n"), []string{"/etc/cloud/cloud.cfg.d/50.cfg:2: mounts:: cloud-init's network stage does it"}},
		"commands of cloud.cfg":    {base("etc/cloud/cloud.cfg.d/50.cfg", "bootcmd: [SECRET]\nmanage_etc_hosts: false\nwrite_files: []\n"), []string{"50.cfg:1: bootcmd:: cloud", "50.cfg:3: write_files"}},
		"host names":               {base("etc/cloud/cloud.cfg.d/50.cfg", "manage_etc_hosts: true\n"), []string{"50.cfg:1: manage_etc_hosts: true"}},
		"temporary disk":           {base("etc/fstab", "UUID=1 / ext4 defaults 0 1\n/dev/disk/cloud/azure_resource-part1\t/mnt\tauto\tdefaults,nofail,x-systemd.requires=cloud-init.service,_netdev,password=SECRET,comment=cloudconfig\t0\t2\n"), []string{"/etc/fstab:2: nofail: it may be mounted"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := disk(t, c.files)
			before := content(t, d)
			problems, _ := tuned(t, d, false, wire.TuneKubeletEarly)
			ok := len(problems) == len(c.says)
			for i := range min(len(problems), len(c.says)) {
				ok = ok && strings.Contains(problems[i], c.says[i]) && strings.HasPrefix(problems[i], "--tune kubelet-early: /") && !strings.Contains(problems[i], "SECRET")
			}
			if !ok {
				t.Errorf("refused with\n%s\nwant\n%s", strings.Join(problems, "\n"), strings.Join(c.says, "\n"))
			}
			if len(problems) > 0 && !maps.Equal(before, content(t, d)) {
				t.Error("the disk was changed")
			}
		})
	}
}

// The gate lets a kubelet start before cloud-init's network stage only on a machine that needs
// nothing of it, and never under no name.
func TestKubeletEarlyGate(t *testing.T) {
	d := disk(t, node(debian(), "lib/systemd/system/"))
	tuned(t, d, false, early...)
	script := content(t, d)["etc/ortet/kubelet-early.sh"]
	named := map[string]string{"proc/sys/kernel/hostname": "clone\n", "etc/hostname": "clone\n", "var/lib/cloud/data/set-hostname": "{}\n", "etc/resolv.conf": "search x\nnameserver 168.63.129.16\n",
		"sys/dev/block/8:1/partition": "1\n", "sys/dev/block/8:1/start": "2048\n", "sys/dev/block/8:1/size": "1000000\n", "sys/dev/block/size": "1002100\n"}
	for name, c := range map[string]struct {
		more  map[string]string
		less  string
		asked int // how often after the jobs of the network stage; it has one twice
		fails bool
	}{
		"all is there":               {},
		"no name yet":                {less: "var/lib/cloud/data/set-hostname", asked: 3},
		"name did not take":          {more: map[string]string{"proc/sys/kernel/hostname": "localhost\n"}, asked: 3},
		"never a name":               {less: "etc/hostname", asked: 3, fails: true},
		"no resolver":                {less: "etc/resolv.conf", asked: 3},
		"resolved knows no server":   {more: map[string]string{"run/systemd/resolve/resolv.conf": "# No DNS servers known.\n"}, asked: 3},
		"resolved knows one":         {more: map[string]string{"run/systemd/resolve/resolv.conf": "nameserver 10.0.0.1\n"}},
		"the root grows":             {more: map[string]string{"sys/dev/block/size": "2000000\n"}, asked: 3},
		"a temporary disk":           {more: map[string]string{"dev/sdb": "", "sys/class/block/sdb/size": "1\n"}, asked: 3},
		"a temporary NVMe disk":      {more: map[string]string{"dev/nvme1n1": "", "sys/class/block/nvme1n1/size": "1\n"}, asked: 3},
		"a partition is no new disk": {more: map[string]string{"dev/sdb1": "", "sys/class/block/sdb1/partition": "1\n"}},
		"btrfs":                      {more: map[string]string{"btrfs": ""}, asked: 3},
		"a second start":             {less: "etc/resolv.conf", more: map[string]string{"run/ortet/kubelet-early": ""}},
		"systemd does not answer":    {less: "etc/resolv.conf", more: map[string]string{"mute": ""}, asked: 4},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			files := maps.Clone(named)
			delete(files, c.less)
			maps.Copy(files, c.more)
			files["bin/stat"] = "#!/bin/sh\nif [ -e $ROOT/btrfs ]; then echo btrfs; else echo xfs; fi\n"
			files["bin/mountpoint"] = "#!/bin/sh\necho 8:1\n"
			files["bin/systemctl"] = "#!/bin/sh\necho x >>$ROOT/asked\nn=$(wc -l <$ROOT/asked)\nif [ -e $ROOT/mute ]; then rm $ROOT/mute; exit 1; fi\nif [ $n -lt ${UNTIL:-3} ]; then echo; echo 108; fi\n"
			put(t, root, files)
			for _, p := range []string{"bin/mountpoint", "bin/stat", "bin/systemctl"} {
				if err := os.Chmod(filepath.Join(root, p), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			here := script
			for _, dir := range []string{"var", "proc", "etc", "run", "sys", "dev"} {
				for _, mark := range []string{" ", "'", `"`, "=", "(", ">", "#"} {
					here = strings.ReplaceAll(here, mark+"/"+dir+"/", mark+root+"/"+dir+"/")
				}
			}
			cmd := exec.CommandContext(t.Context(), "sh", "-c", here)
			cmd.Env = append(os.Environ(), "ROOT="+root, "PATH="+filepath.Join(root, "bin")+":"+os.Getenv("PATH"))
			if c.asked > 0 {
				cmd.Env = append(cmd.Env, fmt.Sprint("UNTIL=", c.asked))
			}
			out, err := cmd.CombinedOutput()
			asked, _ := os.ReadFile(filepath.Join(root, "asked"))
			if n := strings.Count(string(asked), "x"); n != c.asked || (err != nil) != c.fails || c.fails != strings.Contains(string(out), "no name") {
				t.Errorf("asked %d times, %v, %s; want %d, failure %t", n, err, out, c.asked, c.fails)
			}
			if _, err := os.Stat(filepath.Join(root, "run/ortet/kubelet-early")); (err != nil) != c.fails {
				t.Errorf("the mark of this boot: %v", err)
			}
		})
	}
	if out, err := exec.CommandContext(t.Context(), "sh", "-n", "-c", script).CombinedOutput(); err != nil {
		t.Error(fmt.Errorf("%w: %s", err, out))
	}
}
