// Command image makes the container image of Ortet's binaries as an archive
// that `ctr images import`, `docker load` and `skopeo copy docker-archive:` take,
// without a registry and without a daemon. The image holds the static binaries
// at its root and nothing else, and is the same, bit for bit, for the same
// binaries. Beside the archive it writes what is in the image (ARCHIVE.spdx.json)
// and what it was built from (ARCHIVE.intoto.json), and prints the image's digest.
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// user is nonroot's number in images without a passwd, as distroless has it.
const user = "65532:65532"

func main() {
	out := flag.String("out", "bin/ortet-image.tar", "the archive to write")
	reference := flag.String("name", "localhost/ortet:dev", "name and tag of the image; the default is in no registry")
	version := flag.String("version", "dev", "label org.opencontainers.image.version")
	arch := flag.String("arch", "amd64", "architecture of the binaries, amd64 or arm64")
	flag.Parse()
	if err := write(*out, *reference, *version, *arch, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func write(out, reference, version, arch string, files []string) error {
	if len(files) == 0 {
		return fmt.Errorf("name the binaries to put into the image")
	}
	tag, err := name.NewTag(reference, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("read image name: %w", err)
	}
	layer, err := layerOf(files)
	if err != nil {
		return err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return fmt.Errorf("add layer: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return fmt.Errorf("read image config: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	config.Config.Env = []string{"PATH=/"}
	// No pod that needs root gets it from the image: it says so in its own spec.
	config.Config.User = user
	config.Config.Entrypoint = []string{"/" + filepath.Base(files[0])}
	config.Config.Labels = map[string]string{
		"org.opencontainers.image.title":   "ortet",
		"org.opencontainers.image.version": version,
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return fmt.Errorf("set image config: %w", err)
	}
	digest, err := image.Digest()
	if err != nil {
		return fmt.Errorf("compute image digest: %w", err)
	}
	temporary := out + ".new"
	if err := tarball.WriteToFile(temporary, tag, image); err != nil {
		return fmt.Errorf("write %s: %w", temporary, err)
	}
	if err := os.Rename(temporary, out); err != nil {
		return fmt.Errorf("put the archive in place: %w", err)
	}
	fmt.Printf("%s@%s\n", tag.Repository.Name(), digest)
	return describe(out, tag, digest, arch, files)
}

// layerOf packs the files at the root, executable, with fixed times.
func layerOf(files []string) (v1.Layer, error) {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		header := &tar.Header{Name: filepath.Base(path), Mode: 0o755, Size: int64(len(content)), ModTime: time.Unix(0, 0), Typeflag: tar.TypeReg}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("pack %s: %w", path, err)
		}
		if _, err := w.Write(content); err != nil {
			return nil, fmt.Errorf("pack %s: %w", path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("pack layer: %w", err)
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(packed.Bytes())), nil
	})
}
