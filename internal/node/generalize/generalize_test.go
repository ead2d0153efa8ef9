package generalize

import (
	"crypto/hpke"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/wire"
)

func wantOutcome(t *testing.T, r wire.GeneralizeReport, want wire.GeneralizeOutcome) {
	t.Helper()
	if r.Outcome != want {
		t.Fatalf("outcome %s (%s), want %s; findings %+v", r.Outcome, r.Message, want, r.Findings)
	}
}

// Each shape of node ends without its identity and with what its clones need.
func TestShapes(t *testing.T) {
	t.Parallel()
	common := []string{
		"var/lib/dbus/machine-id", "etc/hostname", "etc/ssh/ssh_host_ed25519_key", "etc/ssh/ssh_host_ed25519_key.pub",
		"etc/netplan/50-cloud-init.yaml", "etc/udev/rules.d/70-persistent-net.rules", "var/lib/systemd/random-seed",
		"var/lib/systemd/credential.secret", "boot/efi/loader/random-seed", "var/lib/dhcp/dhclient.eth0.leases", "var/lib/dhclient/x.lease",
		"var/lib/NetworkManager/a.lease", "var/lib/NetworkManager/secret_key", "var/lib/cloud/data/previous-hostname",
		"var/lib/cloud/instance/user-data.txt", "var/lib/cloud/sem/x", "var/lib/waagent/Incarnation", "var/lib/waagent/SharedConfig.xml",
		"var/lib/waagent/GoalState.1.xml", "var/lib/waagent/ExtensionsConfig.1.xml", "var/lib/waagent/published_hostname",
		"var/lib/waagent/fast_track.json", "var/lib/waagent/provisioned", "var/lib/waagent/history/a/GoalState.xml", "var/lib/waagent/events/1.tld",
		"var/lib/waagent/Certificates.p7m", "var/log/journal/" + donorMachine + "/a", "var/log/syslog.1", "var/log/dpkg.log.2.gz",
		"var/log/btmp-20260101", "var/log/pods/ns_pod_uid/c/0.log", "tmp/x", "tmp/.hidden", "var/tmp/y", "root/.bash_history",
		"home/azureuser/.bash_history", "home/azureuser/.ssh/authorized_keys", "root/.ssh/authorized_keys", "var/lib/cni/networks/cbr0/10.244.1.2",
		"var/lib/cni/results/x", "var/lib/cni/cache/results/x", "var/lib/calico/nodename", "etc/nvme/hostid", "etc/nvme/hostnqn",
	}
	kept := []string{
		"etc/machine-id", "etc/hosts", "etc/resolv.conf", "etc/os-release", "etc/netplan/90-hotplug-azure.yaml", "etc/ssh/sshd_config",
		"var/lib/waagent/WALinuxAgent-2.9/bin/a", "var/log/ancestry.log", "var/log/syslog", "usr/share/doc/openssl/test.key", "opt/cni/bin/bridge",
	}
	for _, c := range []struct {
		name       string
		make       func(*donor) *donor
		change     func(*Options)
		gone, kept []string
		joins      []string
		accepted   []string // rules
	}{
		{name: "CAPZ, customData kept", make: (*donor).capz,
			gone: []string{"etc/kubernetes/kubelet.conf", "etc/kubernetes/pki/ca.crt", "var/lib/kubelet/kubeadm-flags.env", "var/lib/kubelet/pki/kubelet.key",
				"var/lib/kubelet/pki/kubelet-client-current.pem", "var/lib/kubelet/cpu_manager_state", "var/lib/kubelet/pods/uid/volumes/x"},
			kept: []string{"var/lib/kubelet/config.yaml", "etc/kubernetes/manifests/.keep"}},
		{name: "TLS bootstrap, baked", make: (*donor).tlsBootstrap, change: func(o *Options) { accept(o); o.Bootstrap = Baked },
			gone: []string{"etc/kubernetes/kubelet.conf", "var/lib/kubelet/pki/kubelet-client-current.pem"}, kept: []string{"etc/kubernetes/bootstrap-kubelet.conf"},
			joins: []string{"/etc/kubernetes/bootstrap-kubelet.conf"}, accepted: []string{ruleKubecfgToken}},
		{name: "AKS Engine, baked", make: (*donor).aksEngine, change: func(o *Options) { accept(o); o.Bootstrap = Baked },
			kept:  []string{"var/lib/kubelet/kubeconfig", "etc/kubernetes/azure.json", "etc/kubernetes/certs/client.key"},
			joins: []string{"/var/lib/kubelet/kubeconfig"}, accepted: []string{ruleAzureJSON, rulePrivateKey}},
		{name: "k3s, baked", make: (*donor).k3s, change: func(o *Options) { accept(o); o.Bootstrap = Baked },
			gone: []string{"etc/rancher/node/password", "var/lib/rancher/k3s/agent/client-kubelet.crt", "var/lib/rancher/k3s/agent/client-kubelet.key",
				"var/lib/rancher/k3s/agent/kubelet.kubeconfig", "var/lib/rancher/k3s/agent/logs/kubelet-server.log"},
			kept:  []string{"var/lib/rancher/k3s/agent/images/airgap.tar", "etc/systemd/system/k3s-agent.service.env", "var/lib/rancher/k3s/agent/etc/k3s-agent-load-balancer.json"},
			joins: []string{"/etc/systemd/system/k3s-agent.service.env"}, accepted: []string{ruleK3sToken}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := c.make(newDonor(t))
			r := d.run(c.change)
			wantOutcome(t, r, wire.Generalized)
			paths := d.paths()
			for _, p := range slices.Concat(common, c.gone) {
				if paths[p] {
					t.Errorf("/%s is still there", p)
				}
			}
			for _, p := range slices.Concat(kept, c.kept) {
				if !paths[p] {
					t.Errorf("/%s is gone", p)
				}
			}
			if !slices.Equal(r.Joins, c.joins) {
				t.Errorf("joins %v, want %v", r.Joins, c.joins)
			}
			var rules []string
			for _, f := range r.Findings {
				rules = append(rules, f.Rule)
			}
			slices.Sort(rules)
			if rules = slices.Compact(rules); !slices.Equal(rules, c.accepted) {
				t.Errorf("accepted rules %v, want %v", rules, c.accepted)
			}
			if got := d.read("etc/machine-id"); got != "" {
				t.Errorf("machine-id %q, want it empty", got)
			}
			if got, want := d.read("etc/hosts"), "127.0.0.1 localhost\n::1 ip6-localhost # v6\n10.240.0.70 other\n"; got != want {
				t.Errorf("hosts %q, want %q", got, want)
			}
			if got := d.read("etc/sysconfig/network-scripts/ifcfg-eth0"); strings.Contains(got, "HWADDR") || !strings.Contains(got, "ONBOOT") {
				t.Errorf("ifcfg %q", got)
			}
			if got := d.read("etc/iscsi/initiatorname.iscsi"); got != "GenerateName=yes\n" {
				t.Errorf("initiator %q", got)
			}
			if got := d.read("swapfile"); strings.Contains(got, "donor's") || !strings.Contains(got, "SWAPSPACE2") {
				t.Error("the swap file still holds memory, or lost its header")
			}
			if got := d.read("var/log/syslog"); got != "" {
				t.Errorf("syslog %q, want it empty", got)
			}
			want := "2026-10-01T00:00:00Z pool1-vmss000001 earlier\n2026-11-21T03:04:05Z " + donorName + " c-1\n"
			if got := d.read("var/log/ancestry.log"); got != want {
				t.Errorf("ancestry %q, want %q", got, want)
			}
			if r.OS != "Debian GNU/Linux 12 (bookworm)" || r.Removed == 0 || r.Bytes == 0 {
				t.Errorf("report %+v", r)
			}
		})
	}
}

func TestTwiceIsOnce(t *testing.T) {
	t.Parallel()
	d := newDonor(t).capz()
	wantOutcome(t, d.run(nil), wire.Generalized)
	before, hosts := d.paths(), d.read("etc/hosts")
	r := d.run(nil)
	wantOutcome(t, r, wire.Generalized)
	if !r.Resumed || len(r.Unsaved) == 0 {
		t.Errorf("resumed %v, unsaved %v: a second run has to say that what was to be saved is gone", r.Resumed, r.Unsaved)
	}
	if after := d.paths(); len(after) != len(before) || d.read("etc/hosts") != hosts || strings.Count(d.read("var/log/ancestry.log"), "\n") != 2 {
		t.Errorf("the second run changed the disk: %v", after)
	}
}

// A run that was killed between overwriting and removing left zeros. The next removes them,
// also where it goes by what a file holds, saves none of them, and says what is lost.
func TestZerosOfAKilledRun(t *testing.T) {
	t.Parallel()
	d := newDonor(t).tlsBootstrap()
	d.write(map[string]string{"var/log/ancestry.log": "2026-11-21T03:04:05Z " + donorName + " c-1\n", "etc/systemd/network/10-netplan-eth0.network": "MACAddress=" + donorMAC + "\n"})
	gone := []string{"etc/hostname", "etc/kubernetes/kubelet.conf", "etc/systemd/network/10-netplan-eth0.network", "var/lib/cloud/instance/user-data.txt", "var/lib/kubelet/pki/kubelet-client-current.pem"}
	for _, at := range gone {
		d.write(map[string]string{at: strings.Repeat("\x00", len(d.read(at)))})
	}
	key := sealKey(t)
	r := d.run(func(o *Options) { accept(o); o.SealTo = key.PublicKey() })
	wantOutcome(t, r, wire.Generalized)
	for _, at := range gone {
		if _, err := os.Lstat(filepath.Join(d.dir, at)); !missing(err) {
			t.Errorf("%s: %v, want it gone", at, err)
		}
	}
	if len(r.Saved) != 0 || len(r.Unsaved) == 0 || !r.Resumed {
		t.Errorf("saved %d, unsaved %v, resumed %v", len(r.Saved), r.Unsaved, r.Resumed)
	}
}

// A run that ended at the scan has removed nothing that the next run reads.
func TestAfterARefusedScanNothingIsLost(t *testing.T) {
	t.Parallel()
	d := newDonor(t).aksEngine().azureAgent("#!/bin/sh\njoin\n", map[string]string{"script": "x"})
	key := sealKey(t)
	wantOutcome(t, d.run(func(o *Options) { o.SealTo = key.PublicKey() }), wire.SecretsFound)
	r := d.run(func(o *Options) { accept(o); o.SealTo = key.PublicKey() })
	wantOutcome(t, r, wire.Generalized)
	if len(r.Saved) != 2 || len(r.Unsaved) != 0 || !r.Resumed {
		t.Errorf("saved %d, unsaved %v, resumed %v", len(r.Saved), r.Unsaved, r.Resumed)
	}
}

func TestSaving(t *testing.T) {
	t.Parallel()
	const custom = "#!/bin/sh\nkubeadm join\n"
	d := newDonor(t).azureAgent(custom, map[string]string{"commandToExecute": "secret"})
	d.write(map[string]string{"var/lib/waagent/Microsoft.Azure.Monitor.Agent-1.0/config/0.settings": `{"runtimeSettings":[{"handlerSettings":{"publicSettings":{"a":1}}}]}`})
	key := sealKey(t)
	r := d.run(func(o *Options) { o.SealTo = key.PublicKey() })
	wantOutcome(t, r, wire.Generalized)
	if len(r.Saved) != 2 || len(r.Unsaved) != 0 {
		t.Fatalf("saved %+v, unsaved %v", r.Saved, r.Unsaved)
	}
	priv, err := hpke.NewDHKEMPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		kind       wire.SealedKind
		name, data string
	}{
		{wire.CustomData, "", custom},
		{wire.ProtectedSettings, "Microsoft.Azure.Extensions.CustomScript", `{"commandToExecute":"secret"}`},
	} {
		got := r.Saved[i]
		plain, err := hpke.Open(priv, hpke.HKDFSHA256(), hpke.AES256GCM(), []byte("ortet.io/saved/"+string(want.kind)+"/"+want.name), got.Sealed)
		if err != nil || string(plain) != want.data || got.Kind != want.kind || got.Name != want.name {
			t.Errorf("%s %q: %q, %v", got.Kind, got.Name, plain, err)
		}
		if sum := sha256.Sum256([]byte(want.data)); got.SHA256 != hex.EncodeToString(sum[:]) {
			t.Errorf("%s: hash %s", got.Kind, got.SHA256)
		}
	}
	for p := range d.paths() {
		if strings.HasSuffix(p, ".prv") || strings.HasSuffix(p, ".settings") || strings.HasSuffix(p, "mrseq") || strings.HasSuffix(p, "HandlerStatus") || strings.HasSuffix(p, "ovf-env.xml") {
			t.Errorf("/%s is still there", p)
		}
	}
	if len(r.NoProtected) != 1 || r.NoProtected[0] != "Microsoft.Azure.Monitor.Agent" {
		t.Errorf("without protected settings: %v", r.NoProtected)
	}
	if !d.paths()["var/lib/waagent/Microsoft.Azure.Extensions.CustomScript-2.1.10/bin/custom-script"] {
		t.Error("the extension's program is gone")
	}
}

func TestSavingWhatCannotBeSaved(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		prepare func(*donor)
		saved   int
		unsaved string
	}{
		{"the no-op is nothing to save", func(d *donor) { d.write(map[string]string{"var/lib/waagent/ovf-env.xml": ovf(noop)}) }, 0, ""},
		{"a cloud-config is more than the no-op", func(d *donor) {
			d.write(map[string]string{"var/lib/waagent/ovf-env.xml": ovf(noop + "runcmd: [kubeadm join]\n")})
		}, 1, ""},
		{"no customData at all", func(d *donor) {
			_ = os.Remove(filepath.Join(d.dir, "var/lib/cloud/instance/user-data.txt"))
		}, 0, ""},
		{"damaged XML, cloud-init has it", func(d *donor) { d.write(map[string]string{"var/lib/waagent/ovf-env.xml": "<Environment><CustomData>"}) }, 1, ""},
		{"CustomData still in base64", func(d *donor) { d.write(map[string]string{"var/lib/waagent/CustomData": "IyEvYmluL3NoCg=="}) }, 1, ""},
		{"settings without the certificate", func(d *donor) {
			d.azureAgent("x", nil)
			for _, p := range []string{"*.prv"} {
				found, _ := filepath.Glob(filepath.Join(d.dir, "var/lib/waagent", p))
				for _, f := range found {
					_ = os.Remove(f)
				}
			}
		}, 1, "is not on the disk"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newDonor(t)
			c.prepare(d)
			r := d.run(func(o *Options) { o.SealTo = sealKey(t).PublicKey() })
			wantOutcome(t, r, wire.Generalized)
			if len(r.Missing) != len(r.Unsaved) || len(r.Saved) != c.saved || !strings.Contains(strings.Join(r.Unsaved, "\n"), c.unsaved) || (c.unsaved == "") != (len(r.Unsaved) == 0) {
				t.Errorf("saved %d, unsaved %v", len(r.Saved), r.Unsaved)
			}
		})
	}
	d := newDonor(t)
	for i := range maxListed + 5 { // as a hostile disk has them
		d.write(map[string]string{fmt.Sprintf("var/lib/waagent/A\n%03d-1.0/config/0.settings", i): "{"})
	}
	r := d.run(nil)
	if r.Validate() != nil || len(r.Missing) != maxListed || r.Missing[0].Kind != wire.CustomData || strings.Contains(r.Missing[1].Name, "\n") {
		t.Errorf("%v: %d missing, first %+v", r.Validate(), len(r.Missing), r.Missing[:min(len(r.Missing), 2)])
	}
	r = newDonor(t).run(nil)
	if len(r.Saved) != 0 || len(r.Unsaved) != 1 || !slices.Equal(r.Missing, []wire.UnsavedItem{{Kind: wire.CustomData, Readable: true}}) {
		t.Errorf("without a key: saved %d, unsaved %v, missing %v", len(r.Saved), r.Unsaved, r.Missing)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		prepare func(*donor)
		change  func(*Options)
		want    string
	}{
		{"another node's disk", func(d *donor) { d.write(map[string]string{"etc/hostname": "pool1-vmss000004\n"}) }, nil, "is not " + donorName},
		{"nobody's disk", func(d *donor) {
			for _, p := range []string{"etc/hostname", "var/lib/cloud/data/previous-hostname", "var/lib/waagent/published_hostname"} {
				_ = os.Remove(filepath.Join(d.dir, p))
			}
		}, nil, "does not say whose"},
		{"no system", func(d *donor) { _ = os.Remove(filepath.Join(d.dir, "etc/os-release")) }, nil, "no operating system"},
		{"preserve_hostname", func(d *donor) {
			d.write(map[string]string{"etc/cloud/cloud.cfg.d/99.cfg": "preserve_hostname: true\n"})
		}, nil, "/etc/cloud/cloud.cfg.d/99.cfg"},
		{"a control plane", func(d *donor) { d.write(map[string]string{"etc/kubernetes/manifests/kube-apiserver.yaml": ""}) }, nil, "control plane"},
		{"a newest kernel without its driver", func(d *donor) { d.kernels("5.15.0-999", "5.15.0-1000") }, nil,
			"kernel 5.15.0-1000, the newest in /boot, has no NVIDIA driver, and kernel 5.15.0-999 has one: clones would boot without their GPUs; on the donor run 'dkms autoinstall -k 5.15.0-1000', or remove kernel 5.15.0-1000"},
		{"a newest kernel without its distribution's driver", func(d *donor) {
			d.kernels("5.15.0-9-azure", "5.15.0-10-azure")
			d.write(map[string]string{"var/lib/dpkg/info/linux-modules-nvidia-535-server-5.15.0-9-azure.list": ""})
		}, nil, "run 'apt-get install linux-modules-nvidia-535-server-5.15.0-10-azure', or"},
		{"a configuration that is half applied", func(d *donor) { d.write(map[string]string{"var/lib/ortet/config/journal.json": "{}"}) }, nil, "half applied"},
		{"baked without a way to join", func(*donor) {}, func(o *Options) { o.Bootstrap = Baked }, "could not join"},
		{"a donor that is no name", func(*donor) {}, func(o *Options) { o.Donor = "../x" }, "node name"},
		{"an ancestry of an earlier capture only", func(d *donor) {
			d.write(map[string]string{"etc/hostname": "x\n", "var/log/ancestry.log": "2026-10-01T00:00:00Z " + donorName + " earlier\n"})
		}, nil, "is not " + donorName},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newDonor(t)
			c.prepare(d)
			before := d.snapshot()
			r := d.run(c.change)
			wantOutcome(t, r, wire.DiskRefused)
			if !strings.Contains(r.Message, c.want) {
				t.Errorf("message %q, want %q", r.Message, c.want)
			}
			if after := d.snapshot(); after != before {
				t.Error("a refused disk was changed")
			}
		})
	}
}

func TestDryRunChangesNothing(t *testing.T) {
	t.Parallel()
	d := newDonor(t).capz()
	before := d.snapshot()
	r := d.run(func(o *Options) { o.DryRun = true })
	if !r.DryRun || r.Removed == 0 {
		t.Errorf("report %+v", r)
	}
	if d.snapshot() != before {
		t.Error("a dry run changed the disk")
	}
}

func inspecting(o *Options) { o.Inspect = true }

// unaccepted lists what a scan refuses, by rule and path.
func unaccepted(r wire.GeneralizeReport) (all []string) {
	for _, f := range r.Findings {
		if !f.Accepted {
			all = append(all, f.Rule+" "+f.Path)
		}
	}
	slices.Sort(all)
	return all
}

// An inspection of the running donor finds what the scan of the copy finds, and
// nothing of what generalising removes; it changes nothing.
func TestInspectionFindsWhatTheCopyWouldBeRefusedFor(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(d *donor){
		"kubeadm":       func(d *donor) { d.capz() },
		"AKS Engine":    func(d *donor) { d.aksEngine() },
		"TLS bootstrap": func(d *donor) { d.tlsBootstrap() },
		"k3s":           func(d *donor) { d.k3s() },
		"its name":      func(d *donor) { d.capz().write(map[string]string{"etc/app.conf": "host: " + donorName + "\n"}) },
		"a key's copy":  func(d *donor) { cert, key := d.nodeCertificate(); d.write(map[string]string{"srv/k.pem": cert + key}) },
		"running pods": func(d *donor) {
			d.capz().write(map[string]string{"var/lib/docker/containers/a/config.v2.json": "aadClientSecret: x"})
		},
		"customData": func(d *donor) { d.azureAgent("#!/bin/sh\nkubeadm join --token abcdef.0123456789abcdef\n", nil) },
		"swap and a log": func(d *donor) {
			d.write(map[string]string{"swapfile": strings.Repeat("\x00", 4096) + string(keyPEM(newKey(d.t))), "var/log/app": donorName})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDonor(t)
			prepare(d)
			before := d.snapshot()
			inspected := d.run(inspecting)
			accepted := d.run(func(o *Options) { inspecting(o); accept(o) })
			if d.snapshot() != before {
				t.Fatal("an inspection changed the disk")
			}
			if !inspected.DryRun || inspected.Removed != 0 || inspected.Partial || len(inspected.Saved) != 0 {
				t.Errorf("report %+v", inspected)
			}
			copied := d.run(nil)
			if got, want := unaccepted(inspected), unaccepted(copied); inspected.Outcome != copied.Outcome || !slices.Equal(got, want) {
				t.Errorf("the inspection: %s, %v\nthe copy's scan: %s, %v", inspected.Outcome, got, copied.Outcome, want)
			}
			if copied = d.run(accept); accepted.Outcome != copied.Outcome {
				t.Errorf("accepted, the inspection: %s; the copy's scan: %s", accepted.Outcome, copied.Outcome)
			}
		})
	}
	d := newDonor(t)
	d.write(map[string]string{"etc/cloud/cloud.cfg.d/99.cfg": "preserve_hostname: true\n"})
	wantOutcome(t, d.run(inspecting), wire.DiskRefused)
}

// An inspection ends at each of its limits, says so, and keeps what it found.
func TestInspectionIsBounded(t *testing.T) {
	t.Parallel()
	d := newDonor(t).aksEngine()
	d.write(map[string]string{"srv/large": strings.Repeat("x", 1<<20)})
	for i := range 100 {
		d.write(map[string]string{fmt.Sprintf("srv/%d", i): "x"})
	}
	for name, limits := range map[string]Limits{"bytes": {Bytes: 64 << 10}, "files": {Files: 60}, "time": {Time: 1}} {
		t.Run(name, func(t *testing.T) {
			r := d.run(func(o *Options) { inspecting(o); o.Limits = limits })
			if !r.Partial || r.Outcome == wire.GeneralizeFailed {
				t.Errorf("%s (%s), partial %t; want that it ended at its limit", r.Outcome, r.Message, r.Partial)
			}
			for _, f := range r.Findings {
				if f.Rule == ruleUnscanned || f.Rule == ruleUnreadable {
					t.Errorf("found %s at %s", f.Rule, f.Path)
				}
			}
			if name != "time" && len(r.Findings) == 0 {
				t.Error("what lies in /etc was not found before the limit")
			}
		})
	}
}

// snapshot is a hash over all paths, modes and contents.
func (d *donor) snapshot() string {
	d.t.Helper()
	h := sha256.New()
	paths := d.paths()
	names := make([]string, 0, len(paths))
	for p := range paths {
		names = append(names, p)
	}
	slices.Sort(names)
	for _, p := range names {
		info, err := os.Lstat(filepath.Join(d.dir, p))
		if err != nil {
			d.t.Fatal(err)
		}
		content := ""
		if info.Mode().IsRegular() {
			content = d.read(p)
		}
		_, _ = h.Write([]byte(p + info.Mode().String() + content + "\x00"))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Every row removes what it says: each of its paths is made, and is gone or
// empty afterwards.
func TestEveryRow(t *testing.T) {
	t.Parallel()
	d := newDonor(t)
	made := map[string]Row{}
	for _, row := range Table() {
		if row.Action == Edit || row.Action == ShredIf {
			continue // what they do depends on the content: see TestShapes
		}
		at := strings.TrimPrefix(strings.NewReplacer("*", "x", "[!.]", "y").Replace(row.Path), "/")
		content := "something"
		if at == "etc/hostname" {
			content = donorName
		}
		if info, err := os.Lstat(filepath.Join(d.dir, at)); err == nil && info.IsDir() {
			content, at = "in a folder that goes", at+"/file"
		}
		d.write(map[string]string{at: content})
		made[at] = row
	}
	wantOutcome(t, d.run(accept), wire.Generalized)
	for at, row := range made {
		info, err := os.Lstat(filepath.Join(d.dir, at))
		if row.Action == Truncate {
			if err != nil || info.Size() != 0 {
				t.Errorf("/%s: %v, want it empty", at, err)
			}
		} else if !missing(err) {
			t.Errorf("/%s (%s): %v, want it gone", at, row.Path, err)
		}
	}
	for _, row := range Table() {
		if row.Group == "" || row.Why == "" || !strings.HasPrefix(row.Path, "/") || (row.Action == Edit) != ((row.edit != nil) != (row.lines != nil)) || (row.Action == ShredIf) != (row.cond != nil) || (row.Action == Edit || row.Action == ShredIf) != (row.What != "") {
			t.Errorf("the row for %s is not complete", row.Path)
		}
	}
}

// What ortet-node join and events leave on a donor is nothing to its clones, also
// where they were killed as they wrote.
func TestWhatJoinAndEventsLeave(t *testing.T) {
	t.Parallel()
	token := "abcdef.0123456789abcdef"
	kubeconfig := kubeconfigYAML("bootstrap", "token: "+token)
	full := "K10" + strings.Repeat("a", 64) + "::" + token
	left := map[string]string{
		"var/lib/ortet/identity.json":                        `{"state":"joined","vmId":"11111111-2222-3333-4444-555555555555","nodeName":"donor"}`,
		"var/lib/ortet/.identity.json.ortet":                 `{"state"`,
		"var/lib/ortet/events.json":                          `{"vmId":"11111111-2222-3333-4444-555555555555"}`,
		"var/lib/ortet/verdict.json":                         `{"vmId":"11111111-2222-3333-4444-555555555555"}`,
		"var/lib/ortet/.verdict-123":                         `{"vmId"`,
		"var/lib/ortet/boots/1.json":                         "{}",
		"etc/kubernetes/bootstrap-kubelet.conf":              kubeconfig,
		"etc/kubernetes/.bootstrap-kubelet.conf.ortet":       kubeconfig,
		"etc/rancher/k3s/config.yaml.d/50-ortet.yaml":        "token-file: /run/ortet/token\n",
		"etc/rancher/k3s/config.yaml.d/.50-ortet.yaml.ortet": "token-file: /run/ortet/token\n",
		"etc/rancher/rke2/.registries.yaml.ortet":            "configs: {}\n",
		"run/ortet/token":                                    full,
		"run/ortet/kubelet.env":                              "ORTET_KUBELET_ARGS=--hostname-override=donor\n",
		"run/ortet/joined":                                   "",
	}
	d := newDonor(t).capz()
	d.write(left)
	r := d.run(nil)
	wantOutcome(t, r, wire.Generalized)
	paths := d.paths()
	for p := range left {
		if paths[p] {
			t.Errorf("/%s is still there", p)
		}
	}
}

// What lets a clone join is what is left: a bootstrap kubeconfig that kubeadm's join brings
// goes, also in the report of a run that changes nothing.
func TestJoinsAreThoseThatStay(t *testing.T) {
	t.Parallel()
	for _, bootstrap := range []Bootstrap{Keep, Baked} {
		for name, change := range map[string]func(*Options){
			"run": nil, "dry run": func(o *Options) { o.DryRun = true }, "inspection": func(o *Options) { o.Inspect, o.DryRun = true, true },
		} {
			d := newDonor(t).capz().tlsBootstrap()
			r := d.run(func(o *Options) {
				accept(o)
				o.Bootstrap = bootstrap
				if change != nil {
					change(o)
				}
			})
			if joins := len(r.Joins) > 0; joins != (bootstrap == Baked) {
				t.Errorf("%s, %s: clones join by %q", bootstrap, name, r.Joins)
			}
		}
	}
}
