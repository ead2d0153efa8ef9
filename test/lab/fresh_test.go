//go:build e2e && linux

package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rootfs "github.com/ortet/ortet/hack/lab"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/manifest"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/azsimserver"
)

const (
	// mirrorAddress is that of a package repository, in the machines' network.
	mirrorAddress = "10.96.0.3:80"
	patched       = "lab-patched" // a package of that repository
	generations   = 5
	restartsFor   = 3 // the generation whose package asks for a restart
	// grownAtMost is how many bytes a generation may add to a top folder: a package of 1 MiB is replaced.
	grownAtMost = 4 << 10
)

// TestFreshOnRealMachines captures a pool of one machine five times with --fresh --patch, each time
// after its package repository has a newer package. A clone has the package, and the disk does not grow.
func TestFreshOnRealMachines(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	line := newTimeline(t)
	m := newMirror(t)
	l := newLab(ctx, t, line, "fresh", func(l *lab, disk string) map[string]string {
		l.buildOrtet(ctx, t)
		return m.bake(ctx, t, l, disk)
	}, mirrorAddress+"="+m.address)
	line.begin("pool of one machine boots and joins")
	// What a bare Azure image and its customData install, and the patches are newer than.
	data := strings.Replace(l.nodeData(ctx, t), lastCommand, "- [dpkg, -i, /opt/lab.deb]\n- [sh, -c, 'echo ours >/etc/"+patched+"/settings']\n"+
		"- [systemctl, start, containerd.service]\n- [ctr, --namespace, k8s.io, images, import, /opt/ortet.tar]\n- [rm, /opt/ortet.tar]\n"+lastCommand, 1)
	if err := l.azure.Create(ctx, azsimserver.Pool{Name: poolName, Capacity: 1, CustomData: data}); err != nil {
		t.Fatalf("create the pool: %v", err)
	}
	worker := l.awaitNodes(ctx, t, 1)[0]
	installed := func(node string) string {
		return l.machines.sh(ctx, t, node, "dpkg-query -W -f '${Version} ${db:Status-Abbrev}' "+patched+"; echo; systemctl is-active "+patched+".service; . /run/"+patched+".env; echo $VERSION; cat /etc/"+patched+"/settings")
	}
	if got, want := installed(worker), "1.0-1 ii \nactive\n1.0-1\nours"; got != want {
		t.Fatalf("%s has %q, want %q", worker, got, want)
	}
	boot := l.node(ctx, t, worker).Status.NodeInfo.BootID

	nodes := []string{worker}
	var versions []string
	var before, first wire.Manifest
	for n := 1; n <= generations; n++ {
		line.begin(fmt.Sprintf("generation %d is captured", n))
		m.publish(ctx, t, n+1, n == restartsFor)
		if err := l.change(ctx, t, "capture", "--pool", poolName, "--fresh", "--patch", "--again", "--image="+ortetImage, "--workbench="+worker, "--history=9",
			"--bootstrap=baked", "--accept-pool-credentials", "--grace-period=30s", "--canary=0", "--canary-soak=10s"); err != nil {
			l.explain(t)
			t.Fatal(err)
		}
		version := l.checkModel(ctx, t)
		versions = append(versions, resource(version).version)
		l.checkDonorDeleted(ctx, t, nodes)
		if l.tags(ctx, t, version)[fleet.TagManifest] == nil {
			t.Errorf("version %s has no tag %s", version, fleet.TagManifest)
		}
		var now wire.Manifest
		l.read(ctx, t, &now, "versions", "sbom", poolName, resource(version).version)
		t.Logf("bytes of %s: %v; %d packages; not read: %q", resource(version).version, now.Bytes, len(now.Packages), now.NotRead)
		if n > 1 {
			l.checkDiff(ctx, t, versions[n-2], versions[n-1], n)
			checkGrowth(t, before, now)
			before = now
			continue
		}
		before, first = now, now
		line.begin("a clone boots")
		l.machines.forget()
		if err := l.azure.ScaleOut(ctx, poolName, 1); err != nil {
			t.Fatal(err)
		}
		nodes = l.awaitNodes(ctx, t, 2)
		clone := slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return n == worker })
		l.checkOrigin(ctx, t, clone, version)
		if got, want := installed(clone[0]), "1.0-2 ii \nactive\n1.0-2\nours"; got != want {
			t.Errorf("clone %s has %q, want %q", clone[0], got, want)
		} else {
			t.Logf("clone %s: %q; %s: %q", clone[0], got, worker, installed(worker))
		}
	}
	line.begin("what is left")
	if now := l.node(ctx, t, worker); now.Status.NodeInfo.BootID != boot || now.Spec.Unschedulable {
		t.Errorf("%s: unschedulable %v, the same boot %v", worker, now.Spec.Unschedulable, now.Status.NodeInfo.BootID == boot)
	}
	t.Logf("%d generations added %d bytes", generations-1, sum(before.Bytes)-sum(first.Bytes))
	t.Logf("ortet versions diff:\n%s", l.ortet(ctx, t, "versions", "diff", poolName, versions[0], versions[1]))
	l.checkBills(ctx, t, versions[1])
	l.checkTemporary(ctx, t, nodes)
	line.print()
}

func sum(folders map[string]int64) (n int64) {
	for _, bytes := range folders {
		n += bytes
	}
	return n
}

// read runs a command of ortet with -o json.
func (l *lab) read(ctx context.Context, t *testing.T, into any, args ...string) {
	t.Helper()
	if err := json.Unmarshal([]byte(l.ortet(ctx, t, append(args, "-o", "json")...)), into); err != nil {
		t.Fatal(err)
	}
}

// checkDonorDeleted looks for the donor's instance, and deletes its Node as the cloud's controllers
// do, which the lab does not have.
func (l *lab) checkDonorDeleted(ctx context.Context, t *testing.T, but []string) {
	t.Helper()
	if got := slices.Sorted(maps.Keys(l.instances(ctx, t))); !slices.Equal(got, but) {
		t.Errorf("instances %v, want %v", got, but)
	}
	if set, err := l.azure.Pool(ctx, poolName); err != nil || *set.SKU.Capacity != int64(len(but)) {
		t.Errorf("capacity is not %d: %v", len(but), err)
	}
	nodes, err := l.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes.Items {
		if slices.Contains(but, n.Name) {
			continue
		}
		if n.Annotations[fleet.AnnotationFresh] == "" || !n.Spec.Unschedulable {
			t.Errorf("Node %s is not the donor's: unschedulable %v, annotations %v", n.Name, n.Spec.Unschedulable, n.Annotations)
		}
		if err := l.client.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// checkDiff has generation n differ from the one before by its package alone.
func (l *lab) checkDiff(ctx context.Context, t *testing.T, from, to string, n int) {
	t.Helper()
	var d manifest.Diff
	l.read(ctx, t, &d, "versions", "diff", poolName, from, to)
	want := manifest.Difference{Name: patched + " all", Change: manifest.Change{From: fmt.Sprintf("1.0-%d", n), To: fmt.Sprintf("1.0-%d", n+1)}}
	same := d.Kernel.From == d.Kernel.To && d.Kubelet.From == d.Kubelet.To && d.Containerd.From == d.Containerd.To && slices.Equal(d.NotRead.From, d.NotRead.To)
	if !slices.Equal(d.Packages, []manifest.Difference{want}) || len(d.Images)+len(d.Units) > 0 || !same {
		t.Errorf("from %s to %s: %+v, want %+v alone", from, to, d, want)
	}
}

// checkGrowth has no top folder grow by more than a few lines of the ancestry log and of debconf.
func checkGrowth(t *testing.T, before, now wire.Manifest) {
	t.Helper()
	for folder, bytes := range now.Bytes {
		if grown := bytes - before.Bytes[folder]; grown > grownAtMost {
			t.Errorf("the generation adds %d bytes to %s, want at most %d", grown, folder, grownAtMost)
		}
	}
}

// checkBills writes both bills of materials into Go's artifacts, for scanners.
func (l *lab) checkBills(ctx context.Context, t *testing.T, version string) {
	t.Helper()
	for _, form := range []string{"spdx-json", "cyclonedx-json"} {
		text := l.ortet(ctx, t, "versions", "sbom", poolName, version, "-o", form)
		if !strings.Contains(text, "pkg:deb/debian/"+patched+"@1.0-3?arch=all&distro=debian-12") {
			t.Errorf("%s does not name %s 1.0-3", form, patched)
		}
		if err := os.WriteFile(filepath.Join(t.ArtifactDir(), form+".json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A mirror is a package repository of one package.
type mirror struct {
	dir, address string
	close        func()
}

func newMirror(t *testing.T) *mirror {
	t.Helper()
	m := &mirror{dir: t.TempDir()}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.FileServer(http.Dir(m.dir)), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	m.address, m.close = listener.Addr().String(), func() { _ = server.Close() }
	t.Cleanup(m.close)
	return m
}

// publish adds a version of the package, of 1 MiB and with a unit, which its scripts restart as
// those of Debian's packages do. The script that installs it may ask for a restart of the machine.
func (m *mirror) publish(ctx context.Context, t *testing.T, n int, restart bool) {
	t.Helper()
	asks := ""
	if restart {
		asks = "touch /run/reboot-required"
	}
	host(ctx, t, m.dir, nil, `set -e
		d=$(mktemp -d); trap 'rm -rf "$d"' EXIT
		chmod 755 "$d"
		install -d "$d/DEBIAN" "$d/lib/systemd/system" "$d/usr/share/$1" "$d/etc/$1"
		printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: lab <lab@ortet.invalid>\nDescription: a package of the lab\n' "$1" "$2" >"$d/DEBIAN/control"
		printf '/etc/%s/settings\n' "$1" >"$d/DEBIAN/conffiles"
		echo "version $2" >"$d/etc/$1/settings"
		head -c 1048576 /dev/urandom >"$d/usr/share/$1/data"
		printf '[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -c "echo VERSION=%s >/run/%s.env"\n[Install]\nWantedBy=multi-user.target\n' "$2" "$1" >"$d/lib/systemd/system/$1.service"
		printf '#!/bin/sh\nset -e\ndeb-systemd-helper enable %s.service >/dev/null\nsystemctl --system daemon-reload\ndeb-systemd-invoke restart %s.service\n%s\n' "$1" "$1" "$3" >"$d/DEBIAN/postinst"
		chmod 755 "$d/DEBIAN/postinst"
		dpkg-deb --root-owner-group -b "$d" . >/dev/null
		for f in *.deb; do
			dpkg-deb -f "$f"; printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "$f" "$(stat -c %s "$f")" "$(sha256sum "$f" | cut -d ' ' -f 1)"
		done >Packages`, patched, fmt.Sprintf("1.0-%d", n), asks)
}

// bake puts Ortet's image, the package as it is at first, and the machines' repository on their disk.
func (m *mirror) bake(ctx context.Context, t *testing.T, l *lab, disk string) map[string]string {
	t.Helper()
	m.publish(ctx, t, 1, false)
	folder, out := filepath.Join(l.dir, "overlay"), filepath.Join(l.dir, "fresh.img")
	host(ctx, t, l.dir, nil, `set -e
		install -D "$2" "$1/opt/ortet.tar"; install -D "$3"/*.deb "$1/opt/lab.deb"; install -d "$1/etc/apt"
		echo "deb [trusted=yes] http://$4/ ./" >"$1/etc/apt/sources.list"`, folder, l.image("ortet"), m.dir, strings.TrimSuffix(mirrorAddress, ":80"))
	if err := rootfs.Overlay(ctx, l.checkout, disk, folder, out); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"*": out}
}
