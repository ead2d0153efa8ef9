//go:build e2e && linux

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/azsim"
	rootfs "github.com/ortet/ortet/hack/lab"
	bootline "github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/boots/timeline/draw"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/controlplane"
)

// Disk images of the site.
const (
	imageBare  = "bare"  // neither kubelet nor containerd is installed
	imageBaked = "baked" // both are
)

// runtimePackage is what a bare image has to install first.
const runtimePackage = "/opt/node/node-runtime.deb"

// bakeBootImages makes the images: on both are the agent and its units, and on the
// bare one a package with the node's programs in their stead.
func bakeBootImages(ctx context.Context, t *testing.T, units ...string) func(s *site, disk string) map[string]string {
	return func(s *site, disk string) map[string]string {
		t.Helper()
		agent := filepath.Join(s.dir, "ortet-node")
		s.run(ctx, t, filepath.Join("hack", "agent.sh"), agent)
		common := map[string]string{"usr/local/bin/ortet-node": agent}
		var wants []string
		for _, u := range units {
			common["usr/lib/systemd/system/"+u] = filepath.Join(s.checkout, "deploy", "systemd", u)
			wants = append(wants, u)
		}
		baked, bare := filepath.Join(s.dir, "baked.raw"), filepath.Join(s.dir, "bare.raw")
		tree := filepath.Join(s.dir, "tree")
		plant(t, tree, common, wants)
		if err := rootfs.Overlay(ctx, s.checkout, disk, tree, baked); err != nil {
			t.Fatal(err)
		}
		image := filepath.Join(s.dir, "image.tar")
		s.run(ctx, t, "go", "run", "./hack/image", "-name", prepulledImage, "-out", image, agent)
		binary, err := controlplane.Binary(ctx)
		if err != nil {
			t.Fatal(err)
		}
		// The host's containerd is the same Debian's.
		runtime := s.buildPackage(ctx, t, "node-runtime", map[string]string{"usr/local/bin/kubelet": binary, "usr/bin/containerd": "/usr/bin/containerd"})
		plant(t, tree, map[string]string{strings.TrimPrefix(runtimePackage, "/"): runtime, "opt/node/image.tar": image}, nil)
		for _, program := range []string{"usr/local/bin/kubelet", "usr/bin/containerd"} {
			path := filepath.Join(tree, program)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("#!/bin/sh\nexit 127\n"), 0o755)); err != nil {
				t.Fatal(err)
			}
		}
		if err := rootfs.Overlay(ctx, s.checkout, disk, tree, bare); err != nil {
			t.Fatal(err)
		}
		return map[string]string{imageBaked: baked, imageBare: bare}
	}
}

// plant copies files into a tree, and enables units in it.
func plant(t *testing.T, tree string, files map[string]string, units []string) {
	t.Helper()
	for to, from := range files {
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o644)
		if strings.Contains(to, "bin/") {
			mode = 0o755
		}
		to = filepath.Join(tree, to)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, content, mode)); err != nil {
			t.Fatal(err)
		}
	}
	for _, u := range units {
		wants := filepath.Join(tree, "etc/systemd/system/multi-user.target.wants")
		if err := errors.Join(os.MkdirAll(wants, 0o755), os.Symlink("/usr/lib/systemd/system/"+u, filepath.Join(wants, u))); err != nil {
			t.Fatal(err)
		}
	}
}

// buildPackage makes a package of programs, and returns its file.
func (s *site) buildPackage(ctx context.Context, t *testing.T, name string, programs map[string]string) string {
	t.Helper()
	tree, out := filepath.Join(s.dir, name), filepath.Join(s.dir, name+".deb")
	plant(t, tree, programs, nil)
	arch := strings.TrimSpace(s.run(ctx, t, "dpkg", "--print-architecture"))
	control := filepath.Join(tree, "DEBIAN", "control")
	if err := errors.Join(os.MkdirAll(filepath.Dir(control), 0o755), os.WriteFile(control, fmt.Appendf(nil,
		"Package: %s\nVersion: 1\nArchitecture: %s\nMaintainer: lab <lab@ortet.invalid>\nDescription: what makes a node\n", name, arch), 0o644)); err != nil {
		t.Fatal(err)
	}
	s.run(ctx, t, "dpkg-deb", "-Zgzip", "-z1", "--root-owner-group", "--build", tree, out)
	return out
}

// A booted machine, with what was collected there.
type booted struct {
	azsim.Computer
	node   *corev1.Node
	report wire.BootReport
	line   bootline.Timeline
}

// collected has a machine's boot collected by the agent, once its start is done,
// and made a timeline.
func (s *site) collected(ctx context.Context, t *testing.T, c azsim.Computer, node *corev1.Node) booted {
	t.Helper()
	out := s.sh(ctx, t, c, "timeout 90 systemctl is-system-running --wait >/dev/null; ortet-node report -o json --out none --metadata yes")
	r, err := wire.ParseBootReport([]byte(out))
	if err != nil {
		t.Fatalf("%s: %v", c.HostName, err)
	}
	cloud := bootline.Cloud{Pool: "boot", NodeCreated: node.CreationTimestamp.Time}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			cloud.NodeReady = condition.LastTransitionTime.Time
		}
	}
	return booted{c, node, r, bootline.Build(r, cloud)}
}

// TestBootTimesOnRealMachines boots machines in three ways, and has the agent and
// the timeline tell of them what systemd tells, and more.
func TestBootTimesOnRealMachines(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	line := newTimeline(t)
	s := newSite(ctx, t, line, "boottimes", bakeBootImages(ctx, t))

	line.begin("a generic image: cloud-init installs the node and configures it")
	generic := computer("bootgeneric1", 1, s.dataWith(t,
		"- [dpkg, --force-overwrite, -i, "+runtimePackage+"]",
		"- [systemctl, enable, --now, containerd.service]",
		"- [ctr, -n, k8s.io, images, import, /opt/node/image.tar]",
		"- [systemctl, enable, --now, node-preparation.service, kubelet.service]"))
	first := s.first(ctx, t, generic, imageBare)

	line.begin("a kubelet that waits for something that no unit names")
	late := computer("bootlate2", 2, s.dataWith(t,
		"- [systemctl, enable, --now, containerd.service, node-preparation.service]",
		"- [systemd-run, --unit=gate, sh, -c, 'sleep 3; exec systemctl start kubelet.service']"))
	waited := s.first(ctx, t, late, imageBaked)

	line.begin("a clone of the generic one")
	clone := s.cloneOf(ctx, t, generic, late)
	second := s.collected(ctx, t, clone, s.boot(ctx, t, clone))

	line.begin("what is told of them")
	for _, b := range []booted{waited, second} {
		t.Run(b.HostName+"'s times are systemd's", func(t *testing.T) { s.checkUnits(ctx, t, b) })
	}
	t.Run("a wait that systemd-analyze hides", func(t *testing.T) { s.checkHidden(ctx, t, waited) })
	t.Run("a generic boot is advised what to have in the image, and a clone waits for none of its user data", func(t *testing.T) { checkAdvice(t, first, second) })
	t.Run("the report reaches the Node", func(t *testing.T) {
		s.sh(ctx, t, clone, "ortet-node report --annotate --out none")
		node, err := s.client.CoreV1().Nodes().Get(ctx, clone.HostName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := wire.DecodeBootAnnotation(node.Annotations[wire.BootAnnotation])
		if err != nil || r.BootID != node.Status.NodeInfo.BootID || len(r.Units) != len(second.report.Units) {
			t.Errorf("boot %q with %d units, want %q with %d: %v", r.BootID, len(r.Units), node.Status.NodeInfo.BootID, len(second.report.Units), err)
		}
	})
	line.print()
}

// first boots a machine from an image, and has its boot collected.
func (s *site) first(ctx context.Context, t *testing.T, c azsim.Computer, image string) booted {
	t.Helper()
	if err := s.machines.CreateVolume(ctx, c.OSDisk, azsim.Source{Platform: image}); err != nil {
		t.Fatal(err)
	}
	return s.collected(ctx, t, c, s.boot(ctx, t, c))
}

// cloneOf makes a machine of another's disk, which is generalized on a third.
func (s *site) cloneOf(ctx context.Context, t *testing.T, donor, bench azsim.Computer) azsim.Computer {
	t.Helper()
	if err := s.machines.Shutdown(ctx, donor.ID, true); err != nil {
		t.Fatal(err)
	}
	c := computer("bootclone3", 3, "#cloud-config\n")
	s.generalize(ctx, t, c.OSDisk, donor, bench, "--bootstrap baked")
	return c
}

// generalize makes a volume of a stopped machine's disk, generalized on another.
func (s *site) generalize(ctx context.Context, t *testing.T, v azsim.Volume, donor, bench azsim.Computer, flags string) {
	t.Helper()
	address, err := s.machines.Address(donor.ID)
	if err != nil {
		t.Fatal(err)
	}
	s.edit(ctx, t, bench, v, azsim.Source{Volume: donor.OSDisk}, fmt.Sprintf(
		`ortet-node generalize --root /mnt --donor %s --donor-address %s --capture lab --at %s --accept-pool-credentials %s >/tmp/generalize.out 2>&1 || { tail -c 3000 /tmp/generalize.out; exit 1; }`,
		donor.HostName, address, time.Now().UTC().Format(time.RFC3339), flags))
}

// edit makes a volume, whose root file system a script finds at /mnt of a running machine.
func (s *site) edit(ctx context.Context, t *testing.T, bench azsim.Computer, v azsim.Volume, from azsim.Source, script string) {
	t.Helper()
	if err := s.machines.CreateVolume(ctx, v, from); err != nil {
		t.Fatal(err)
	}
	if err := s.machines.Attach(ctx, bench.ID, 0, v); err != nil {
		t.Fatal(err)
	}
	s.sh(ctx, t, bench, "set -e; mount /dev/disk/azure/scsi1/lun0-part1 /mnt\n"+script+"\numount /mnt")
	if err := s.machines.Detach(ctx, bench.ID, 0); err != nil {
		t.Fatal(err)
	}
}

// checkUnits compares each unit's times with those that systemctl tells.
func (s *site) checkUnits(ctx context.Context, t *testing.T, b booted) {
	text := s.sh(ctx, t, b.Computer, `systemctl show '*' -p Id -p InactiveExitTimestampMonotonic -p ActiveEnterTimestampMonotonic -p ActiveExitTimestampMonotonic -p InactiveEnterTimestampMonotonic`)
	shown := map[string][4]wire.Micros{}
	for block := range strings.SplitSeq(text, "\n\n") {
		name, times := "", [4]wire.Micros{}
		for line := range strings.Lines(block) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			n, _ := strconv.ParseInt(value, 10, 64) // 0 for Id
			switch key {
			case "Id":
				name = value
			case "InactiveExitTimestampMonotonic":
				times[0] = wire.Micros(n)
			case "ActiveEnterTimestampMonotonic":
				times[1] = wire.Micros(n)
			case "ActiveExitTimestampMonotonic":
				times[2] = wire.Micros(n)
			case "InactiveEnterTimestampMonotonic":
				times[3] = wire.Micros(n)
			}
		}
		if times[0] > 0 {
			shown[name] = times
		}
	}
	same := 0
	for _, u := range b.report.Units {
		if u.Grain > 0 || u.Activating == 0 || u.Activating > b.report.System.Finish {
			continue // of the journal alone, not started, or since
		}
		want, ok := shown[u.Name]
		if !ok || want[0] > b.report.System.Finish {
			continue // unloaded since, or started again
		}
		got := [4]wire.Micros{u.Activating, u.Activated, u.Deactivating, u.Deactivated}
		if want != got {
			t.Errorf("%s: %v, systemctl shows %v", u.Name, got, want)
		}
		same++
		delete(shown, u.Name)
	}
	for name, times := range shown {
		if times[0] <= b.report.System.Finish {
			t.Errorf("%s is not in the report", name)
		}
	}
	if same < 50 {
		t.Errorf("only %d units were compared", same)
	}
	t.Logf("%d units' times are the same to the microsecond", same)
}

// checkHidden looks for the wait of a kubelet that somebody started, which nothing
// that it is ordered after explains.
func (s *site) checkHidden(ctx context.Context, t *testing.T, b booted) {
	var text strings.Builder
	if err := draw.Text(&text, b.line, draw.Terminal{Width: 100}); err != nil {
		t.Fatal(err)
	}
	printed := s.sh(ctx, t, b.Computer, "SYSTEMD_COLORS=0 LC_ALL=C.UTF-8 systemd-analyze critical-chain --no-pager kubelet.service")
	t.Logf("systemd-analyze critical-chain kubelet.service\n%s\n\n%s", printed, text.String())
	i := slices.IndexFunc(b.line.Path, func(p bootline.Step) bool {
		return p.Wait != nil && p.Wait.Before == "unit/kubelet.service" && p.End-p.Start >= 2500e3
	})
	if i < 0 {
		t.Fatalf("no wait of 3 s before the kubelet: %+v", b.line.Path)
	}
	if !b.line.Path[i].Wait.Hidden {
		t.Error("it does not say that critical-chain hides it")
	}
	if strings.Contains(printed, "gate") {
		t.Error("critical-chain shows the cause, so that it hides nothing")
	}
}

// checkAdvice looks at what a generic boot and a clone's waited for. How long that took depends
// on what else the host does: see TestCloneBoot.
func checkAdvice(t *testing.T, generic, clone booted) {
	t.Helper()
	if !generic.line.Complete || !clone.line.Complete {
		t.Errorf("complete: %v and %v; missing %q, %q", generic.line.Complete, clone.line.Complete, generic.line.Missing, clone.line.Missing)
	}
	if !slices.ContainsFunc(generic.line.Advice, func(a bootline.Advice) bool { return a.Class == bootline.Base && a.Saves > 0 }) {
		t.Errorf("nothing is advised to be put into the image: %+v", generic.line.Advice)
	}
	for _, step := range clone.line.Path {
		if strings.Contains(step.Span, "cloud-final") || strings.Contains(step.Span, "scripts_user") {
			t.Errorf("the clone's Ready waits for user data, which the donor ran: %+v", step)
		}
	}
}
