package generalize

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

const testImage = "example.test/app:1"

// containerd runs Debian's containerd on a tree's state.
type containerd struct {
	t            *testing.T
	dir, root    string
	stop         func()
	socket, conf string
}

func newContainerd(t *testing.T, tree string) *containerd {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: a real containerd needs root")
	}
	for _, tool := range []string{"containerd", "ctr"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("NOT TESTED with a real containerd: %s is not installed", tool)
		}
	}
	dir, err := os.MkdirTemp("", "ctrd") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := &containerd{t: t, dir: dir, root: filepath.Join(tree, "var/lib/containerd"), socket: filepath.Join(dir, "s"), conf: filepath.Join(dir, "config.toml")}
	conf := fmt.Sprintf("version = 2\nroot = %q\nstate = %q\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[grpc]\naddress = %q\n", c.root, filepath.Join(dir, "state"), c.socket)
	if err := os.WriteFile(c.conf, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *containerd) start() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	cmd := exec.CommandContext(ctx, "containerd", "--config", c.conf)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		cancel()
		c.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // ended by a signal
		close(done)
	}()
	c.stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-done
		cancel()
		c.stop = func() {}
	}
	c.t.Cleanup(func() { c.stop() })
	for ctx.Err() == nil {
		if exec.CommandContext(ctx, "ctr", "-a", c.socket, "version").Run() == nil {
			return
		}
		select {
		case <-done:
			c.t.Fatalf("containerd ended: %s", log.String())
		case <-time.After(50 * time.Millisecond):
		}
	}
	c.t.Fatalf("containerd did not start: %s", log.String())
}

func (c *containerd) ctr(args ...string) string {
	c.t.Helper()
	out, err := exec.Command("ctr", append([]string{"-a", c.socket, "-n", "k8s.io"}, args...)...).CombinedOutput()
	if err != nil {
		c.t.Fatalf("ctr %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// imageArchive is a Docker archive of an image with one layer.
func imageArchive(t *testing.T) []byte {
	t.Helper()
	archive := func(files map[string]string) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for name, content := range files {
			if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte(content)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	layer := archive(map[string]string{"app": "pre-pulled"})
	config := fmt.Sprintf(`{"architecture":%q,"os":"linux","config":{"Cmd":["/app"]},"rootfs":{"type":"layers","diff_ids":["sha256:%x"]}}`, runtime.GOARCH, sha256.Sum256(layer))
	return archive(map[string]string{
		"layer.tar": string(layer), "config.json": config,
		"manifest.json": `[{"Config":"config.json","RepoTags":["` + testImage + `"],"Layers":["layer.tar"]}]`,
	})
}

// A real containerd, before and after: the image is there and can be used, and
// nothing of the donor's containers is.
func TestContainerdKeepsImages(t *testing.T) {
	t.Parallel()
	d := newDonor(t)
	c := newContainerd(t, d.dir)
	c.start()
	image := filepath.Join(c.dir, "image.tar")
	if err := os.WriteFile(image, imageArchive(t), 0o600); err != nil {
		t.Fatal(err)
	}
	c.ctr("images", "import", image)
	c.ctr("container", "create", testImage, "donors")
	c.ctr("snapshots", "prepare", "left-over")
	active := strings.Count(c.ctr("snapshots", "ls"), "Active")
	if active != 2 {
		t.Fatalf("%d active snapshots before, want 2", active)
	}
	c.stop()
	upper, err := filepath.Glob(filepath.Join(c.root, "io.containerd.snapshotter.v1.overlayfs/snapshots/*"))
	if err != nil || len(upper) != 3 {
		t.Fatalf("snapshots %v, %v", upper, err)
	}
	// A secret in a container's writable layer must not stay, nor in the database.
	_, key := d.nodeCertificate()
	for _, u := range upper[1:] {
		if err := os.WriteFile(filepath.Join(u, "fs", "secret.pem"), []byte(key), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	wantOutcome(t, d.run(nil), wire.Generalized)
	wantOutcome(t, d.run(nil), wire.Generalized) // once more changes nothing
	if left, err := filepath.Glob(filepath.Join(c.root, "io.containerd.snapshotter.v1.overlayfs/snapshots/*")); err != nil || len(left) != 1 {
		t.Errorf("snapshots left: %v, %v; want the layer's only", left, err)
	}
	meta, err := os.ReadFile(filepath.Join(c.root, "io.containerd.metadata.v1.bolt/meta.db"))
	if err != nil || bytes.Contains(meta, []byte("donors")) {
		t.Errorf("the database still names the donor's container (%v)", err)
	}

	if m := d.listed(); len(m.Images) != 1 || m.Images[0].Name != testImage || len(m.Images[0].Digest) != len("sha256:")+64 {
		t.Errorf("listed %+v %q, want %q", m.Images, m.NotRead, testImage)
	}
	c.start()
	if got := c.ctr("images", "ls", "-q"); got != testImage {
		t.Errorf("images %q, want %q", got, testImage)
	}
	if got := c.ctr("containers", "ls", "-q"); got != "" {
		t.Errorf("containers %q, want none", got)
	}
	if got := c.ctr("snapshots", "ls"); strings.Contains(got, "Active") || strings.Count(got, "Committed") != 1 {
		t.Errorf("snapshots: %s", got)
	}
	c.ctr("container", "create", testImage, "clones")
	mount := filepath.Join(c.dir, "mnt")
	if err := os.Mkdir(mount, 0o700); err != nil {
		t.Fatal(err)
	}
	script := c.ctr("snapshots", "mounts", mount, "clones")
	if !strings.Contains(script, "lowerdir=") && !strings.Contains(script, "overlay") {
		t.Errorf("the clone's container has no layers: %s", script)
	}
	if check := c.ctr("images", "check"); !strings.Contains(check, "complete (") || !strings.Contains(check, "true") {
		t.Errorf("image check: %s", check)
	}
}

// A database that is no database stops the run with a message, whatever the
// library makes of it.
func TestDamagedDatabase(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, content string }{
		{"short", "x"},
		{"zeros", strings.Repeat("\x00", 64<<10)},
		{"pages that point nowhere", strings.Repeat("\xed\x0c\xda\xed\xff\x7f", 16<<10)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newDonor(t)
			d.write(map[string]string{"var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db": c.content})
			r := d.run(nil)
			wantOutcome(t, r, wire.GeneralizeFailed)
			if !strings.Contains(r.Message, "meta.db") {
				t.Errorf("message %q", r.Message)
			}
		})
	}
}

func TestDockerKeepsImages(t *testing.T) {
	t.Parallel()
	d := newDonor(t)
	image, layer := strings.Repeat("a", 64), strings.Repeat("b", 64)
	d.write(map[string]string{
		"var/lib/docker/overlay2/" + image + "/diff/app":                     "pre-pulled",
		"var/lib/docker/overlay2/" + layer + "/diff/secret":                  "x",
		"var/lib/docker/overlay2/" + layer + "/link":                         "LINK",
		"var/lib/docker/overlay2/" + layer + "-init/diff/etc":                "x",
		"var/lib/docker/overlay2/l/LINK":                                     "x",
		"var/lib/docker/image/overlay2/layerdb/mounts/container/mount-id":    layer,
		"var/lib/docker/image/overlay2/layerdb/mounts/container/init-id":     layer + "-init",
		"var/lib/docker/image/overlay2/layerdb/sha256/x/cache-id":            image,
		"var/lib/docker/image/overlay2/repositories.json":                    "{}",
		"var/lib/docker/containers/container/config.v2.json":                 "{}",
		"var/lib/docker/volumes/v/_data/x":                                   "x",
		"var/lib/docker/image/overlay2/layerdb/mounts/evil/mount-id":         "../../../../etc",
		"var/lib/docker/containers/container/container-json.log":             "x",
		"var/lib/docker/network/files/local-kv.db":                           "x",
		"var/lib/docker/image/overlay2/imagedb/content/sha256/" + image[:10]: "{}",
	})
	wantOutcome(t, d.run(nil), wire.Generalized)
	var left []string
	for p := range d.paths() {
		if strings.HasPrefix(p, "var/lib/docker/") {
			left = append(left, p)
		}
	}
	if len(left) != 4 || !d.paths()["var/lib/docker/overlay2/"+image+"/diff/app"] || !d.paths()["etc/hosts"] {
		t.Errorf("left: %v", left)
	}
}

func TestCRIOKeepsImages(t *testing.T) {
	t.Parallel()
	d := newDonor(t)
	image, layer := strings.Repeat("a", 64), strings.Repeat("b", 64)
	const root = "var/lib/containers/storage/"
	d.write(map[string]string{
		root + "overlay-containers/containers.json":          `[{"id":"c","layer":"` + layer + `"},{"id":"e","layer":"../../etc"}]`,
		root + "overlay-containers/c/userdata/config.json":   "{}",
		root + "overlay-layers/layers.json":                  `[{"id":"` + image + `","x":1},{"id":"` + layer + `"}]`,
		root + "overlay-images/images.json":                  "[]",
		root + "overlay/" + image + "/diff/app":              "pre-pulled",
		root + "overlay/" + layer + "/diff/secret":           "x",
		root + "overlay-layers/" + image + ".tar-split.gz":   "x",
		root + "overlay-containers/containers.lock":          "",
		root + "overlay-containers/volatile-containers.json": "[]",
	})
	wantOutcome(t, d.run(nil), wire.Generalized)
	if got, want := d.read(root+"overlay-layers/layers.json"), `[{"id":"`+image+`","x":1}]`; got != want {
		t.Errorf("layers %s, want %s", got, want)
	}
	paths := d.paths()
	if !paths[root+"overlay/"+image+"/diff/app"] || paths[root+"overlay/"+layer+"/diff/secret"] || paths[root+"overlay-containers/c/userdata/config.json"] || !paths["etc/hosts"] {
		t.Errorf("left: %v", paths)
	}
}
