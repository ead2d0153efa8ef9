//go:build e2e && linux

package lab

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/ortet/ortet/azsim/machine"
	"github.com/ortet/ortet/test/controlplane"
)

// Where machines find packages and images.
const (
	supplyAddress  = "10.96.0.2"
	supplyRegistry = supplyAddress + ":5000"
	firstImage     = supplyRegistry + "/first:1"
)

// suppliedImages are the registry's, with MB of files beside their program; a half is packed away.
func suppliedImages() map[string]int {
	return map[string]int{"pause": 0, "proxy": 80, "network": 200, "dns": 60, "first": 500}
}

// genericCommands install a node from the mirror and the registry.
func genericCommands() []string {
	return []string{
		"- [sed, -i, 's#http[^ ]*#http://" + supplyAddress + "/debian#', /etc/apt/sources.list]",
		"- [sh, -c, 'echo \"deb [trusted=yes] http://" + supplyAddress + "/node ./\" >/etc/apt/sources.list.d/node.list']",
		"- [apt-get, update]",
		"- [apt-get, install, -y, --no-install-recommends, -o, 'Dpkg::Options::=--force-confold', " + strings.Join(genericPackages(), ", ") + ", node-kubelet]",
		"- [systemctl, enable, --now, containerd.service]",
		"- [sh, -c, 'for i in pause proxy network dns; do ctr -n k8s.io images pull --plain-http " + supplyRegistry + "/$i:1 >/dev/null || exit 1; done']",
		"- [systemctl, enable, --now, node-preparation.service, kubelet.service]",
	}
}

func genericPackages() []string {
	return []string{"containerd", "runc", "containernetworking-plugins", "conntrack", "socat", "ethtool"}
}

// supply serves a mirror of the Debian mirror upstream, a repository with the kubelet's package,
// and a registry.
func (s *site) supply(ctx context.Context, t *testing.T, upstream string) {
	t.Helper()
	binary, err := controlplane.Binary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	deb := s.buildPackage(ctx, t, "node-kubelet", map[string]string{"usr/local/bin/kubelet": binary})
	content, err := os.ReadFile(deb)
	if err != nil {
		t.Fatal(err)
	}
	index := fmt.Sprintf("%s\nFilename: ./node-kubelet.deb\nSize: %d\nSHA256: %x\n", strings.TrimSpace(s.run(ctx, t, "dpkg-deb", "--field", deb)), len(content), sha256.Sum256(content))
	mux := http.NewServeMux()
	mux.HandleFunc("/node/Packages", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, index) })
	mux.HandleFunc("/node/node-kubelet.deb", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) })
	mux.Handle("/debian/", http.StripPrefix("/debian", &aptMirror{upstream: strings.TrimSuffix(upstream, "/"), files: map[string]mirrored{}}))
	serve := func(h http.Handler, listen string) string {
		server := httptest.NewServer(h)
		t.Cleanup(server.Close)
		at := server.Listener.Addr().String()
		if err := s.machines.AddFrontend(machine.Frontend{Listen: listen, Target: at}); err != nil {
			t.Fatal(err)
		}
		return at
	}
	serve(mux, supplyAddress+":80")
	at := serve(registry.New(registry.Logger(log.New(io.Discard, "", 0))), supplyRegistry)
	programs := filepath.Join(s.dir, "programs")
	s.run(ctx, t, "go", "run", "./hack/lab/images", "--out", programs)
	for image, size := range suppliedImages() {
		program := "pause"
		if image == "first" {
			program = "web"
		}
		if err := pushImage(ctx, filepath.Join(programs, program+".tar"), at+"/"+image+":1", size); err != nil {
			t.Fatalf("push the image %s: %v", image, err)
		}
	}
}

// pushImage pushes the image of an archive, with so many MB of files in two more layers.
func pushImage(ctx context.Context, archive, to string, size int) error {
	image, err := tarball.ImageFromPath(archive, nil)
	if err != nil {
		return err
	}
	// Every other 8 bytes are zeros, so that layers pack to half, as programs do.
	block := make([]byte, 1<<20)
	random := rand.NewChaCha8([32]byte{1})
	for i := 0; i < len(block); i += 16 {
		_, _ = random.Read(block[i : i+8]) // returns no error
	}
	for part := range min(size, 2) {
		var files bytes.Buffer
		w := tar.NewWriter(&files)
		var problem error
		for f := range size / 2 {
			h := &tar.Header{Name: fmt.Sprintf("usr/lib/%s/%d-%d", filepath.Base(to), part, f), Mode: 0o644, Size: int64(len(block))}
			problem = errors.Join(problem, w.WriteHeader(h))
			_, err := w.Write(block)
			problem = errors.Join(problem, err)
		}
		if err := errors.Join(problem, w.Close()); err != nil {
			return err
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil },
			tarball.WithCompressionLevel(1), tarball.WithCompressedCaching)
		if err != nil {
			return err
		}
		if image, err = mutate.AppendLayers(image, layer); err != nil {
			return err
		}
	}
	ref, err := name.ParseReference(to, name.Insecure)
	if err != nil {
		return err
	}
	return remote.Write(ref, image, remote.WithContext(ctx))
}

// An aptMirror fetches each file once, also one that is not there, so that the network is in no
// boot but the first.
type aptMirror struct {
	upstream string
	mu       sync.Mutex
	files    map[string]mirrored
}

type mirrored struct {
	missing  bool
	content  []byte
	modified time.Time
}

func (m *aptMirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, err := m.file(r.Context(), r.URL.Path)
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadGateway)
	case f.missing:
		http.NotFound(w, r)
	default:
		http.ServeContent(w, r, "", f.modified, bytes.NewReader(f.content))
	}
}

func (m *aptMirror) file(ctx context.Context, path string) (mirrored, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f, ok := m.files[path]; ok {
		return f, nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.upstream+path, nil)
	if err != nil {
		return mirrored{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return mirrored{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNotFound {
		return mirrored{}, fmt.Errorf("fetch %s: %s", req.URL, resp.Status)
	}
	f := mirrored{missing: resp.StatusCode == http.StatusNotFound}
	if f.content, err = io.ReadAll(resp.Body); err != nil {
		return mirrored{}, fmt.Errorf("fetch %s: %w", req.URL, err)
	}
	f.modified, _ = http.ParseTime(resp.Header.Get("Last-Modified")) // zero: not known
	m.files[path] = f
	return f, nil
}
