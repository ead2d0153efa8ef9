//go:build e2e && linux

package lab

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ortet/ortet/azsim/machine"
	rootfs "github.com/ortet/ortet/hack/lab"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/azsimserver"
)

// tuneFiles lists what tunings add, and what of it is on a machine.
const tuneFiles = `ls -d /etc/ortet/tuned.json /etc/systemd/system/containerd.service.d/90-ortet-runtime-early.conf \
	/etc/cloud/cloud.cfg.d/zz-ortet-ssh-host-key.cfg /etc/ortet/kubelet-early.sh /etc/systemd/system/kubelet.service /etc/systemd/system/cloud-init.service 2>/dev/null || true`

// earlyPreparation is the image's node-preparation.service for kubelet-early, which refuses a unit
// before the kubelet that waits for more than it says here.
const earlyPreparation = `[Unit]
Description=Learn from the platform which node this is
After=network.target cloud-init-local.service systemd-networkd-wait-online.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/node-preparation

[Install]
WantedBy=multi-user.target
`

// belowKubelet is a line of /etc/fstab for what every clone's kubelet has to find mounted.
const belowKubelet = "tmpfs /var/lib/kubelet/lab tmpfs size=1m 0 0"

// TestTuneOnRealMachines captures a pool six times from fresh donors, each a clone of the version
// before, with --tune and without. Clones of each version are nodes, with what was asked for alone.
func TestTuneOnRealMachines(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Minute)
	defer cancel()
	line := newTimeline(t)
	l := newLab(ctx, t, line, "tune", func(l *lab, disk string) map[string]string {
		l.buildOrtet(ctx, t)
		folder, out := filepath.Join(l.dir, "overlay"), filepath.Join(l.dir, "tune.img")
		host(ctx, t, l.dir, nil, `install -D "$2" "$1/opt/ortet.tar"`, folder, l.image("ortet"))
		host(ctx, t, l.dir, nil, `mkdir -p "$1/usr/lib/systemd/system"; printf %s "$2" >"$1/usr/lib/systemd/system/node-preparation.service"`, folder, earlyPreparation)
		if err := rootfs.Overlay(ctx, l.checkout, bakeAgent(ctx, t)(l, disk)["*"], folder, out); err != nil {
			t.Fatal(err)
		}
		return map[string]string{"*": out}
	})
	line.begin("pool of one machine boots and joins")
	data := strings.Replace(l.nodeData(ctx, t), lastCommand, "- [systemctl, start, containerd.service]\n- [ctr, --namespace, k8s.io, images, import, /opt/ortet.tar]\n- [sh, -c, 'echo "+belowKubelet+" >>/etc/fstab']\n"+lastCommand, 1)
	if err := l.azure.Create(ctx, azsimserver.Pool{Name: poolName, Capacity: 1, CustomData: data}); err != nil {
		t.Fatalf("create the pool: %v", err)
	}
	worker := l.awaitNodes(ctx, t, 1)[0]
	l.deployDaemon(ctx, t, 1)
	login := l.newLogin(ctx, t)
	failed := l.machines.failedUnits(ctx, t, worker)
	keys := l.checkTuned(ctx, t, login, worker, nil)
	t.Logf("$ ortet boot show %s\n%s", worker, l.bootAdvice(ctx, t, worker))

	nodes := []string{worker}
	for n, tune := range [][]string{wire.RecommendedTunings(), nil, wire.RecommendedTunings(), {wire.TuneSSHHostKey}, wire.Tunings(), nil} {
		flag, kind := strings.Join(tune, ","), strings.Join(tune, " and ")
		switch {
		case kind == "":
			kind = "no tuning"
		case slices.Equal(tune, wire.RecommendedTunings()):
			flag = wire.TuneRecommended
		case slices.Contains(tune, wire.TuneKubeletEarly):
			flag = wire.TuneRecommended + "," + wire.TuneKubeletEarly
		}
		line.begin(fmt.Sprintf("generation %d is captured, with %s", n+1, kind))
		args := []string{"capture", "--pool", poolName, "--fresh", "--again", "--image=" + ortetImage, "--workbench=" + worker, "--history=9",
			"--bootstrap=baked", "--accept-pool-credentials", "--grace-period=30s", "--canary-soak=10s"}
		if flag != "" {
			args = append(args, "--tune="+flag)
		} else {
			args = append(args, "--canary=0")
		}
		if err := l.change(ctx, t, args...); err != nil {
			l.explain(t)
			t.Fatal(err)
		}
		version := l.checkModel(ctx, t)
		tag := ""
		if v := l.tags(ctx, t, version)[fleet.TagTuned]; v != nil {
			tag = *v
		}
		if tag != strings.Join(tune, ",") {
			t.Errorf("version %s has the tag %s=%q, want %v", resource(version).version, fleet.TagTuned, tag, tune)
		}
		l.deleteClones(ctx, t)
		l.checkDonorDeleted(ctx, t, nodes)
		if n == 2 { // the next donor shows it
			continue
		}
		line.begin("a clone of it boots")
		l.machines.forget()
		if err := l.azure.ScaleOut(ctx, poolName, 1); err != nil {
			t.Fatal(err)
		}
		all := l.awaitNodes(ctx, t, len(nodes)+1)
		clone := slices.DeleteFunc(slices.Clone(all), func(n string) bool { return slices.Contains(nodes, n) })
		nodes = all
		l.checkOrigin(ctx, t, clone, version)
		l.checkEarly(ctx, t, clone[0], worker, slices.Contains(tune, wire.TuneKubeletEarly))
		for key := range l.checkTuned(ctx, t, login, clone[0], tune) {
			if keys[key] != "" {
				t.Errorf("%s and %s both have the host key %s", clone[0], keys[key], key)
			}
			keys[key] = clone[0]
		}
		for _, unit := range l.machines.failedUnits(ctx, t, clone[0]) {
			if !slices.Contains(failed, unit) {
				t.Errorf("%s: %s: %s", clone[0], unit, l.machines.sh(ctx, t, clone[0], "journalctl --boot --no-pager --unit "+unit+" | tail -20"))
			}
		}
		t.Logf("$ ortet boot show %s\n%s", clone[0], l.bootAdvice(ctx, t, clone[0]))
	}
	line.begin("what is left")
	l.checkTemporary(ctx, t, nodes)
	line.print()
}

// checkTuned looks for the files of tunings on a machine, for what they change, a pod that finds a
// name, and a shell by its host key. It returns its host keys.
func (l *lab) checkTuned(ctx context.Context, t *testing.T, login, host string, tune []string) map[string]string {
	t.Helper()
	sh := func(script string) string { return l.machines.sh(ctx, t, host, script) }
	early, one := slices.Contains(tune, wire.TuneRuntimeEarly), slices.Contains(tune, wire.TuneSSHHostKey)
	want := 0
	if len(tune) > 0 {
		want = 1 + len(tune)
	}
	if slices.Contains(tune, wire.TuneKubeletEarly) { // its gate, and copies of the kubelet's unit and of cloud-init's
		want += 2
	}
	if got := strings.Fields(sh(tuneFiles)); len(got) != want {
		t.Errorf("%s has %q, want %d files of %v", host, got, want, tune)
	}
	if got := sh("journalctl --boot --no-pager | grep -i 'ordering cycle' || true"); got != "" {
		t.Errorf("%s: %s", host, got)
	}
	order := "systemctl show --property %s --value %s"
	began := sh(fmt.Sprintf(order, "InactiveExitTimestampMonotonic", "containerd.service"))
	stage := sh(fmt.Sprintf(order, "ActiveEnterTimestampMonotonic", "cloud-init.service"))
	if beside := len(began) < len(stage) || len(began) == len(stage) && began < stage; beside != early {
		t.Errorf("%s: containerd began at %s µs, cloud-init's network stage ended at %s: want it before: %v", host, began, stage, early)
	}

	kinds := sh("cd /etc/ssh; ls ssh_host_*_key | cut -d _ -f 3")
	if want := map[bool]string{true: "ed25519", false: "dsa\necdsa\ned25519\nrsa"}[one]; kinds != want { // cloud-init 22.4's
		t.Errorf("%s has host keys of %q, want %q", host, kinds, want)
	}
	keys := map[string]string{}
	for key := range strings.Lines(sh("cut -d ' ' -f 1,2 /etc/ssh/ssh_host_*_key.pub")) {
		keys[strings.TrimSpace(key)] = host
	}
	l.checkLogin(ctx, t, login, host)

	poll(ctx, t, "the daemon's pod on "+host, 2*time.Minute, func(ctx context.Context) (bool, error) {
		return sh("pgrep -x web || true") != "", nil
	})
	const found = `pid=$(pgrep -x web | head -1); grep -q '^nameserver 168.63.129.16$' /proc/$pid/root/etc/resolv.conf && nsenter --net=/proc/$pid/ns/net getent hosts "$(hostname).internal.cloudapp.net" | cut -d ' ' -f 1`
	if got, want := sh(found), l.addressOf(ctx, t, host); got != want {
		t.Errorf("a pod on %s finds its name at %q, want %q", host, got, want)
	}
	return keys
}

// checkEarly looks whether a clone's kubelet began beside cloud-init's network stage, and whether it
// is the node that it would be after it, compared with one that was made by user data.
func (l *lab) checkEarly(ctx context.Context, t *testing.T, host, worker string, early bool) {
	t.Helper()
	sh := func(script string) string { return l.machines.sh(ctx, t, host, script) }
	at := func(property, unit string) (us int) {
		text := sh("systemctl show --property " + property + "TimestampMonotonic --value " + unit)
		us, err := strconv.Atoi(text)
		if err != nil || us == 0 {
			t.Errorf("%s: %s of %s: %q", host, property, unit, text)
		}
		return us
	}
	began, stage := at("InactiveExit", "kubelet.service"), at("ActiveEnter", "cloud-init.service")
	if began < stage != early {
		t.Errorf("%s: the kubelet began at %d µs, cloud-init's network stage ended at %d: want it before: %t", host, began, stage, early)
	}
	if named := at("ActiveEnter", "cloud-init-local.service"); named > began {
		t.Errorf("%s: the kubelet began at %d µs, before cloud-init's local stage ended at %d", host, began, named)
	}
	if mounted := at("ActiveEnter", "var-lib-kubelet-lab.mount"); mounted > began {
		t.Errorf("%s: the kubelet began at %d µs, before a file system below its folder was mounted at %d", host, began, mounted)
	}
	if got := sh("nsenter --mount --target $(pgrep -x kubelet | head -1) findmnt --noheadings --output FSTYPE /var/lib/kubelet/lab"); got != "tmpfs" {
		t.Errorf("%s: the kubelet sees %q at /var/lib/kubelet/lab", host, got)
	}
	node, like := l.node(ctx, t, host), l.node(ctx, t, worker)
	labels := func(n *corev1.Node) []string {
		return slices.DeleteFunc(slices.Sorted(maps.Keys(n.Labels)), func(key string) bool { return strings.HasPrefix(key, "ortet.io/") })
	}
	if got, want := labels(node), labels(like); !slices.Equal(got, want) || node.Labels[corev1.LabelHostname] != host {
		t.Errorf("%s has the labels %q, want %q and its own name: %v", host, got, want, node.Labels)
	}
	// The host name of the machine with the number 11 ends with B, its Node with b.
	if got := sh("hostname; cat /etc/hostname"); strings.ToLower(got) != host+"\n"+host || !strings.HasPrefix(node.Spec.ProviderID, "azure://") || node.Spec.ProviderID == like.Spec.ProviderID {
		t.Errorf("%s calls itself %q, with the provider id %q", host, got, node.Spec.ProviderID)
	}
	for _, resource := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if got, want := node.Status.Capacity[resource], like.Status.Capacity[resource]; got.Cmp(want) != 0 {
			t.Errorf("%s has %s of %s, %s has %s", host, got.String(), resource, worker, want.String())
		}
	}
	if got := sh("journalctl --boot --no-pager --unit kubelet.service | grep -e 'no name' -e 'Failed to start' || true"); got != "" {
		t.Errorf("%s: %s", host, got)
	}
}

// newLogin makes a user's key, and returns the folder with it.
func (l *lab) newLogin(ctx context.Context, t *testing.T) string {
	t.Helper()
	dir := filepath.Join(l.dir, "login")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l.run(ctx, t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, "id"))
	return dir
}

// checkLogin opens a shell over SSH, by the machine's Ed25519 key alone.
func (l *lab) checkLogin(ctx context.Context, t *testing.T, login, host string) {
	t.Helper()
	user, err := os.ReadFile(filepath.Join(login, "id.pub"))
	if err != nil {
		t.Fatal(err)
	}
	key := l.machines.feed(ctx, t, host, user, "install -d -m 700 /root/.ssh; cat >/root/.ssh/authorized_keys; cat /etc/ssh/ssh_host_ed25519_key.pub")
	address, known := l.addressOf(ctx, t, host), filepath.Join(login, "known_hosts")
	if err := os.WriteFile(known, []byte(address+" "+key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(l.run(ctx, t, "ip", "netns", "exec", machine.Prefix(l.machines.dir), "ssh", "-F", "/dev/null", "-i", filepath.Join(login, "id"),
		"-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "HostKeyAlgorithms=ssh-ed25519", "-o", "UserKnownHostsFile="+known, "root@"+address, "hostname")); strings.ToLower(got) != host {
		t.Errorf("ssh to %s leads to %q", host, got)
	}
	l.machines.sh(ctx, t, host, "rm /root/.ssh/authorized_keys") // a capture refuses none, and clones need none
}

// bootAdvice is what ortet boot shows of a boot that its Node has the report of. It takes the report
// from the Node, as a controller does.
func (l *lab) bootAdvice(ctx context.Context, t *testing.T, host string) string {
	t.Helper()
	poll(ctx, t, "the boot report of "+host, 3*time.Minute, func(context.Context) (bool, error) {
		return l.node(ctx, t, host).Annotations[wire.BootAnnotation] != "", nil
	})
	text := l.ortet(ctx, t, "boot", "show", host)
	empty := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, wire.BootAnnotation)
	if _, err := l.client.CoreV1().Nodes().Patch(ctx, host, types.MergePatchType, empty, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	return text
}
