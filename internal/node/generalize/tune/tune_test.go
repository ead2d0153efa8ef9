package tune_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/node/generalize/tune"
	"github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/wire"
)

// Files of distributions as far as tunings read them, from the packages cloud-init 22.4 (Debian 12),
// 24.4 (Ubuntu 24.04, RHEL 9), 24.3 (Azure Linux 3), openssh-server and containerd.
const (
	debianCloud = "users:\n   - default\ndisable_root: true\npreserve_hostname: false\n\ncloud_init_modules:\n - migrator\n - seed_random\n - bootcmd\n - write-files\n - growpart\n - resizefs\n - disk_setup\n - mounts\n - set_hostname\n - update_hostname\n - update_etc_hosts\n - ca-certs\n - rsyslog\n - users-groups\n - ssh\n\ncloud_config_modules:\n - ssh-import-id\n - locale\n - set-passwords\n"
	ubuntuCloud = "users:\n  - default\ndisable_root: true\npreserve_hostname: false\n\n# The modules that run in the 'init' stage\ncloud_init_modules:\n  - seed_random\n  - bootcmd\n  - write_files\n  - growpart\n  - resizefs\n  - disk_setup\n  - mounts\n  - set_hostname\n  - update_hostname\n  - update_etc_hosts\n  - ca_certs\n  - rsyslog\n  - users_groups\n  - ssh\n  - set_passwords\n\n# The modules that run in the 'config' stage\ncloud_config_modules:\n  - wireguard\n  - snap\n  - ssh_import_id\n"
	azureCloud  = "users:\n  - default\ndisable_root: true\nssh_deletekeys: true\nssh_genkeytypes: ['rsa', 'ecdsa', 'ed25519']\nsyslog_fix_perms: ~\ncloud_init_modules:\n  - seed_random\n  - users_groups\n  - ssh\ncloud_config_modules:\n  - ssh_import_id\n"
	rhelCloud   = "users:\n  - default\ndisable_root: true\nssh_deletekeys: true\nssh_genkeytypes: ~\nsyslog_fix_perms: ~\ncloud_init_modules:\n  - seed_random\n  - users_groups\n  - ssh\ncloud_config_modules:\n  - ssh_import_id\n"
	debianUnit  = "[Unit]\nDescription=containerd container runtime\nDocumentation=https://containerd.io\nAfter=network.target local-fs.target\n\n[Service]\nExecStartPre=-/sbin/modprobe overlay\nExecStart=/usr/bin/containerd\nType=notify\nDelegate=yes\nKillMode=process\nRestart=always\n\n[Install]\nWantedBy=multi-user.target\n"
	dockerUnit  = "[Unit]\nDescription=containerd container runtime\nAfter=network.target dbus.service local-fs.target\n\n[Service]\nExecStartPre=-/sbin/modprobe overlay\nExecStart=/usr/bin/containerd\nType=notify\n"
	debianSSHD  = "Include /etc/ssh/sshd_config.d/*.conf\n#Port 22\n#HostKey /etc/ssh/ssh_host_rsa_key\n#HostKey /etc/ssh/ssh_host_ed25519_key\nKbdInteractiveAuthentication no\nUsePAM yes\n"
)

func debian() map[string]string {
	return map[string]string{"etc/cloud/cloud.cfg": debianCloud, "etc/cloud/cloud.cfg.d/05_logging.cfg": "_log:\n - &log_base |\n   [loggers]\n",
		"etc/ssh/sshd_config": debianSSHD, "lib/systemd/system/containerd.service": debianUnit, "etc/containerd/config.toml": "version = 2\n",
		"var/lib/cloud/instance/user-data.txt": "#cloud-config\nruncmd:\n- kubeadm join\n", "etc/default/grub": "GRUB_CMDLINE_LINUX=\"console=ttyS0\"\n", "etc/systemd/system/sshd.service": "[Unit]\n"}
}

func ubuntu() map[string]string {
	f := debian()
	delete(f, "lib/systemd/system/containerd.service")
	maps.Copy(f, map[string]string{"etc/cloud/cloud.cfg": ubuntuCloud, "usr/lib/systemd/system/containerd.service": dockerUnit,
		"etc/cloud/cloud.cfg.d/90_dpkg.cfg": "datasource_list: [ Azure ]\n"})
	return f
}

func azureLinux() map[string]string {
	return map[string]string{"etc/systemd/system/sshd.service": "[Unit]\n", "etc/cloud/cloud.cfg": azureCloud, "usr/lib/systemd/system/containerd.service": dockerUnit,
		"etc/ssh/sshd_config": "HostKey /etc/ssh/ssh_host_rsa_key\nHostKey /etc/ssh/ssh_host_ecdsa_key\nHostKey /etc/ssh/ssh_host_ed25519_key\n"}
}

func rhel() map[string]string {
	f := azureLinux()
	maps.Copy(f, map[string]string{"etc/cloud/cloud.cfg": rhelCloud, "etc/crypto-policies/config": "DEFAULT\n"})
	return f
}

// flatcar is the root partition: /usr lies on another, and no cloud-init runs.
func flatcar() map[string]string {
	return map[string]string{"etc/flatcar/update.conf": "GROUP=stable\n", "etc/systemd/system/kubelet.service": "[Unit]\n"}
}

func and(f map[string]string, path, text string) map[string]string {
	f[path] = text
	return f
}

func disk(t *testing.T, files map[string]string) *tree.Tree {
	t.Helper()
	dir := t.TempDir()
	put(t, dir, files)
	d, err := tree.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// content is every file and link of a tree, byte by byte, and every folder.
func content(t *testing.T, d *tree.Tree) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(d.Dir(), func(at string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		text := "folder"
		if e.Type().IsRegular() {
			data, err := os.ReadFile(at)
			if err != nil {
				return err
			}
			text = string(data)
		}
		all[strings.TrimPrefix(at, d.Dir()+"/")] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// tuned checks and applies.
func tuned(t *testing.T, d *tree.Tree, keeps bool, names ...string) (problems, kept []string) {
	t.Helper()
	p, problems, err := tune.Check(d, names, keeps)
	if err != nil {
		t.Fatal(err)
	}
	if len(problems) > 0 {
		return problems, nil
	}
	if err := p.Apply("c-1"); err != nil {
		t.Fatal(err)
	}
	return nil, p.Kept
}

const (
	keyFile  = "etc/cloud/cloud.cfg.d/zz-ortet-ssh-host-key.cfg"
	unitFile = "etc/systemd/system/containerd.service.d/90-ortet-runtime-early.conf"
)

// A tuning adds its file and the list, changes no other byte, and the next capture leaves nothing of it.
func TestTuningsAddAndLeaveNothing(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		names []string
	}{
		"Debian":                 {debian(), wire.RecommendedTunings()},
		"Ubuntu":                 {ubuntu(), wire.RecommendedTunings()},
		"Azure Linux":            {azureLinux(), []string{wire.TuneRuntimeEarly}},
		"RHEL":                   {rhel(), []string{wire.TuneRuntimeEarly}},
		"Flatcar, nothing":       {flatcar(), nil},
		"key types of user data": {and(debian(), "var/lib/cloud/instance/cloud-config.txt", "#cloud-config\nssh_genkeytypes: [rsa]\npackages: [x]\n"), wire.RecommendedTunings()}, // baked: no clone gets it
	} {
		t.Run(name, func(t *testing.T) {
			d := disk(t, c.files)
			before := content(t, d)
			want := maps.Clone(before)
			for generation := range 5 {
				if problems, kept := tuned(t, d, false, c.names...); problems != nil || kept != nil {
					t.Fatalf("generation %d: refused %q, kept %q", generation, problems, kept)
				}
				now := content(t, d)
				for path, text := range before {
					if now[path] != text {
						t.Errorf("generation %d changed /%s", generation, path)
					}
				}
				for name, path := range map[string]string{wire.TuneSSHHostKey: keyFile, wire.TuneRuntimeEarly: unitFile} {
					if _, there := now[path]; there != slices.Contains(c.names, name) {
						t.Errorf("generation %d: /%s there: %t", generation, path, there)
					}
				}
			}
			if problems, kept := tuned(t, d, false); problems != nil || kept != nil {
				t.Fatalf("refused %q, kept %q", problems, kept)
			}
			if now := content(t, d); !maps.Equal(now, want) {
				t.Errorf("captured again without --tune: %v, want %v", slices.Sorted(maps.Keys(now)), slices.Sorted(maps.Keys(want)))
			}
		})
	}
}

func TestTuningsAreRefused(t *testing.T) {
	const drop = "etc/systemd/system/containerd.service.d/10-disk.conf"
	const userData = "var/lib/cloud/instance/user-data.txt"
	both := func(text ...string) []string { return text }
	for name, c := range map[string]struct {
		files map[string]string
		says  []string // of each reason, in order
	}{
		"Azure Linux":             {azureLinux(), both("ssh-host-key: /etc/cloud/cloud.cfg:5: ssh_genkeytypes:: the host keys are chosen there already")},
		"RHEL":                    {rhel(), both("ssh-host-key: /etc/cloud/cloud.cfg:5: ssh_genkeytypes:")},
		"Flatcar":                 {flatcar(), both("runtime-early: /usr/lib/systemd/system/containerd.service: is not on this disk", "ssh-host-key: /etc/cloud/cloud.cfg: cloud-init's module ssh does not run")},
		"module is out":           {and(debian(), "etc/cloud/cloud.cfg.d/50.cfg", "cloud_init_modules: [users-groups, ssh-import-id]\n"), both("ssh-host-key: /etc/cloud/cloud.cfg.d/50.cfg: cloud-init's module ssh")},
		"cloud-init is off":       {and(debian(), "etc/cloud/cloud-init.disabled", ""), both("/etc/cloud/cloud-init.disabled: cloud-init does not run")},
		"keys of user data":       {and(debian(), userData, "#cloud-config\nssh_keys:\n  rsa_private: SECRET\n"), both("/" + userData + ":2: ssh_keys:: the host keys are chosen there already")},
		"sshd with RSA alone":     {and(debian(), "etc/ssh/sshd_config", "Port 22\nHostKey /etc/ssh/ssh_host_rsa_key\n"), both("/etc/ssh/sshd_config:2: HostKey /etc/ssh/ssh_host_rsa_key: sshd would have no host key")},
		"sshd without Ed25519":    {and(debian(), "etc/ssh/sshd_config.d/10.conf", "HostKeyAlgorithms rsa-sha2-512\n"), both("/etc/ssh/sshd_config.d/10.conf:1: HostKeyAlgorithms rsa-sha2-512: it leaves Ed25519 out")},
		"sshd takes it away":      {and(debian(), "etc/ssh/sshd_config.d/10.conf", "HostKeyAlgorithms -ssh-ed25519\n"), both("it leaves Ed25519 out")},
		"FIPS":                    {and(debian(), "etc/default/grub", "A=1\nGRUB_CMDLINE_LINUX=\"fips=1\"\n"), both("/etc/default/grub:2: fips=1: FIPS mode knows no Ed25519")},
		"FIPS policy":             {and(debian(), "etc/crypto-policies/config", "FIPS\n"), both("/etc/crypto-policies/config:1: FIPS")},
		"unit ordered":            {and(debian(), drop, "[Unit]\nAfter=cloud-config.target\n"), both("runtime-early: /" + drop + ":2: After=cloud-config.target: somebody ordered it")},
		"unit prepared":           {and(debian(), drop, "[Service]\nExecStartPre=/opt/mkdisk --token SECRET\n"), both("/" + drop + ":2: ExecStartPre=/opt/mkdisk: what it needs is not known")},
		"store elsewhere":         {and(debian(), "etc/containerd/config.toml", "version = 2\nroot = \"/mnt/containers\"\n"), both(`/etc/containerd/config.toml:2: root = "/mnt/containers": the store may lie`)},
		"snapshotter":             {and(debian(), "etc/containerd/config.toml", "version = 2\n  snapshotter = \"devmapper\"\n"), both("/etc/containerd/config.toml:2")},
		"imports":                 {and(debian(), "etc/containerd/config.toml", "imports = [\"/etc/containerd/conf.d/*.toml\"]\n"), both("/etc/containerd/config.toml:1")},
		"user data has packages":  {and(debian(), userData, "#cloud-config\npackages: [nfs-common]\n"), both("/" + userData + ":2: packages:: clones run it again")},
		"user data names it":      {and(debian(), userData, "#!/bin/sh\nTOKEN=SECRET systemctl restart containerd\n"), both("/" + userData + ":2: containerd: clones run it again")},
		"somebody's file":         {and(debian(), keyFile, "ssh_genkeytypes: [ecdsa]\n"), both("ssh-host-key: /"+keyFile+": is there, and is not what a capture added", keyFile+":1: ssh_genkeytypes:")},
		"several reasons at once": {and(and(debian(), drop, "[Unit]\nAfter=network-online.target\n"), "etc/system-fips", ""), both("runtime-early: /"+drop+":2", "ssh-host-key: /etc/system-fips")},
	} {
		t.Run(name, func(t *testing.T) {
			d := disk(t, c.files)
			before := content(t, d)
			problems, _ := tuned(t, d, true, wire.RecommendedTunings()...)
			ok := len(problems) == len(c.says)
			for i := range min(len(problems), len(c.says)) {
				ok = ok && strings.Contains(problems[i], c.says[i]) && strings.HasPrefix(problems[i], "--tune ") && !strings.Contains(problems[i], "SECRET")
			}
			if !ok {
				t.Errorf("refused with\n%s\nwant\n%s", strings.Join(problems, "\n"), strings.Join(c.says, "\n"))
			}
			if !maps.Equal(before, content(t, d)) {
				t.Error("the disk was changed")
			}
		})
	}
}

// What somebody changed stays, is named, and refuses the tuning that would write it.
func TestChangedFileStays(t *testing.T) {
	d := disk(t, debian())
	tuned(t, d, false, wire.RecommendedTunings()...)
	put(t, d.Dir(), map[string]string{keyFile: "ssh_genkeytypes: [ecdsa] # mine\n"})
	if problems, _ := tuned(t, d, false, wire.TuneSSHHostKey); len(problems) == 0 || !strings.Contains(problems[0], "/"+keyFile+": is there") {
		t.Errorf("a tuning over a person's file: %q", problems)
	}
	problems, kept := tuned(t, d, false, wire.TuneRuntimeEarly)
	now := content(t, d)
	if problems != nil || !slices.Equal(kept, []string{"/" + keyFile}) || now[keyFile] != "ssh_genkeytypes: [ecdsa] # mine\n" || now[unitFile] == "" {
		t.Errorf("refused %q, kept %q, %v", problems, kept, now[keyFile])
	}
}

// The list is the donor's word: it has no other file removed, and read.
func TestListIsNotBelieved(t *testing.T) {
	sum := func(text string) string { s := sha256.Sum256([]byte(text)); return hex.EncodeToString(s[:]) }
	list := func(version int, tuning, path, text string) string {
		out, err := json.Marshal(map[string]any{"version": version, "capture": "c", "files": []map[string]string{{"tuning": tuning, "path": path, "sha256": sum(text)}}})
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	good := list(1, wire.TuneSSHHostKey, keyFile, "x")
	for name, c := range map[string]struct {
		text  string
		links map[string]string
		says  string
	}{
		"another path":      {text: list(1, wire.TuneSSHHostKey, "etc/ssh/sshd_config", debianSSHD), says: `names "etc/ssh/sshd_config" of "ssh-host-key", which no tuning adds`},
		"another's path":    {text: list(1, wire.TuneRuntimeEarly, keyFile, "x"), says: "which no tuning adds"},
		"another unit":      {text: list(1, wire.TuneKubeletEarly, "etc/systemd/system/sshd.service", "[Unit]\n"), says: "which no tuning adds"},
		"dots":              {text: list(1, wire.TuneSSHHostKey, "etc/cloud/cloud.cfg.d/../cloud.cfg.d/zz-ortet-ssh-host-key.cfg", "x"), says: "which no tuning adds"},
		"absolute":          {text: list(1, wire.TuneSSHHostKey, "/"+keyFile, "x"), says: "which no tuning adds"},
		"a newer version":   {text: list(2, wire.TuneSSHHostKey, keyFile, "x"), says: "has version 2, and only 1 is known"},
		"another's fields":  {text: strings.Replace(good, `"capture"`, `"donor"`, 1), says: "is cut or no list"},
		"cut":               {text: good[:len(good)/2], says: "is cut or no list"},
		"two":               {text: good + good, says: "is cut or no list"},
		"empty":             {text: "", says: "is cut or no list"},
		"10 MB":             {text: strings.Repeat(" ", 10<<20) + good, says: "larger than its bound"},
		"a link":            {text: good, links: map[string]string{keyFile: "../../ssh/sshd_config"}, says: "names /" + keyFile + ", which is no regular file"},
		"a link on the way": {text: list(1, wire.TuneRuntimeEarly, unitFile, "x"), links: map[string]string{filepath.Dir(unitFile): "../../ssh"}, says: "reached by a link"},
		"itself a link":     {links: map[string]string{tune.List: "../ssh/sshd_config"}, says: "is no regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			files := debian()
			put := map[string]string{"etc/ssh/90-ortet-runtime-early.conf": "x"}
			if c.links[tune.List] == "" {
				put[tune.List] = c.text
			}
			maps.Copy(files, put)
			d := disk(t, files)
			for at, to := range c.links {
				at = filepath.Join(d.Dir(), at)
				if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(to, at); err != nil {
					t.Fatal(err)
				}
			}
			before := content(t, d)
			for _, names := range [][]string{nil, wire.RecommendedTunings()} {
				problems, _ := tuned(t, d, false, names...)
				if len(problems) != 1 || !strings.Contains(problems[0], c.says) {
					t.Errorf("%v: refused with %q, want %q", names, problems, c.says)
				}
			}
			if !maps.Equal(before, content(t, d)) {
				t.Error("the disk was changed")
			}
		})
	}
}

// A run that was killed anywhere is repeated.
func TestRepeatedRun(t *testing.T) {
	for _, lost := range []string{keyFile, unitFile} {
		t.Run(fmt.Sprint("without ", lost), func(t *testing.T) {
			d := disk(t, debian())
			tuned(t, d, false, wire.RecommendedTunings()...)
			want := content(t, d)
			if err := os.Remove(filepath.Join(d.Dir(), lost)); err != nil {
				t.Fatal(err)
			}
			if problems, kept := tuned(t, d, false, wire.RecommendedTunings()...); problems != nil || kept != nil || !maps.Equal(want, content(t, d)) {
				t.Errorf("refused %q, kept %q", problems, kept)
			}
		})
	}
}
