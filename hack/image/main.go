// Command image makes the container image of Ortet's binaries, without a registry and
// without a daemon: of one architecture (-out), as an archive for `ctr images import`,
// `docker load` and `skopeo copy docker-archive:`, or of several (-layout), as an OCI
// layout with one index for `ctr images import`, `skopeo copy oci-archive:` and
// hack/publish. The image has the static binaries at its root and nothing else, and is
// the same, bit for bit, for the same binaries. Beside the archive it writes what is in
// the image (ARCHIVE.spdx.json) and what it was built from (ARCHIVE.intoto.json), and
// prints the image's digest.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/ortet/ortet/hack/reproducible"
)

// user is nonroot's number in images without a passwd, as distroless has it.
const user = "65532:65532"

func main() {
	out := flag.String("out", "bin/ortet-image.tar", "the archive to write, of one architecture")
	index := flag.String("layout", "", "the OCI archive to write instead, of every OS/ARCH=FOLDER named")
	reference := flag.String("name", "localhost/ortet:dev", "name and tag of the image; the default is in no registry. With -layout the name alone: the tag is the version")
	version := flag.String("version", "dev", "label org.opencontainers.image.version")
	arch := flag.String("arch", runtime.GOARCH, "architecture of the binaries, amd64 or arm64")
	materials := flag.String("bill", "", "bill of materials (SPDX) to write instead, of the one binary named")
	flag.Parse()
	var err error
	switch {
	case *materials != "":
		err = describeProgram(*materials, flag.Args())
	case *index != "":
		err = writeIndex(*index, *reference, *version, flag.Args())
	default:
		err = write(*out, *reference, *version, *arch, flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// write makes the archive of one architecture.
func write(out, reference, version, arch string, files []string) error {
	tag, err := name.NewTag(reference, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("read image name: %w", err)
	}
	i, err := imageOf(version, arch, files, false)
	if err != nil {
		return err
	}
	err = reproducible.Save(out, func(w io.Writer) error { return tarball.Write(tag, i.Image, w) })
	if err != nil {
		return err
	}
	return describe(out, tag, i.digest, []image{i})
}

// writeIndex makes the archive of several architectures, each given as OS/ARCH=FOLDER
// with ortet and ortet-node.
func writeIndex(out, repository, version string, platforms []string) error {
	tag, err := name.NewTag(repository+":"+version, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("read image name: %w", err)
	}
	if len(platforms) == 0 {
		return fmt.Errorf("no binaries: name the folders of ortet and ortet-node, such as linux/amd64=FOLDER")
	}
	var index v1.ImageIndex = empty.Index
	var images []image
	for _, p := range slices.Sorted(slices.Values(platforms)) {
		platform, folder, _ := strings.Cut(p, "=")
		system, arch, _ := strings.Cut(platform, "/")
		if system != "linux" || arch == "" || folder == "" {
			return fmt.Errorf("read platform %q: want linux/ARCH=FOLDER", p)
		}
		i, err := imageOf(version, arch, []string{filepath.Join(folder, "ortet"), filepath.Join(folder, "ortet-node")}, true)
		if err != nil {
			return err
		}
		images = append(images, i)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        i,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: system, Architecture: arch}},
		})
	}
	digest, err := index.Digest()
	if err != nil {
		return fmt.Errorf("compute image digest: %w", err)
	}
	files, err := layoutOf(index, map[string]string{
		"io.containerd.image.name":          tag.String(), // containerd's name of the image
		"org.opencontainers.image.ref.name": version,      // skopeo's and podman's
	})
	if err != nil {
		return fmt.Errorf("lay out image: %w", err)
	}
	if err := reproducible.Save(out, func(w io.Writer) error { return reproducible.Tar(w, files) }); err != nil {
		return err
	}
	return describe(out, tag, digest, images)
}

// layoutOf returns the files of an OCI layout with the index as its one entry.
func layoutOf(index v1.ImageIndex, annotations map[string]string) ([]reproducible.File, error) {
	folder, err := os.MkdirTemp("", "ortet-image-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return nil, err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(annotations)); err != nil {
		return nil, err
	}
	var files []reproducible.File
	tree := os.DirFS(folder)
	err = fs.WalkDir(tree, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(tree, path)
		files = append(files, reproducible.File{Name: path, Mode: 0o644, Content: content})
		return err
	})
	return files, err
}

// image is the image of one architecture.
type image struct {
	v1.Image
	arch   string
	digest v1.Hash
	built  []binary
}

// ArtifactType keeps a type that only artifacts have out of the index: skopeo drops it,
// and with it the index's digest.
func (image) ArtifactType() (string, error) { return "", nil }

// imageOf makes an image with the media types of OCI, as one of an index, or with
// Docker's, which readers of a Docker archive assume for its digest.
func imageOf(version, arch string, files []string, oci bool) (image, error) {
	i := image{arch: arch}
	base := empty.Image
	prefix, layerType := "", types.DockerLayer
	if oci {
		prefix, layerType = "linux/"+arch+"/", types.OCILayer
		base = mutate.ConfigMediaType(mutate.MediaType(base, types.OCIManifestSchema1), types.OCIConfigJSON)
	}
	if len(files) == 0 {
		return i, fmt.Errorf("name the binaries to put into the image")
	}
	var packed []reproducible.File
	for _, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			return i, fmt.Errorf("read binary: %w", err)
		}
		b, err := inspect(path, content)
		if err != nil {
			return i, err
		}
		if is := b.settings["GOOS"] + "/" + b.settings["GOARCH"]; is != "linux/"+arch {
			return i, fmt.Errorf("add %s: built for %s, not linux/%s", path, is, arch)
		}
		packed = append(packed, reproducible.File{Name: b.name, Mode: 0o755, Content: content})
		b.name = prefix + b.name
		i.built = append(i.built, b)
	}
	var content bytes.Buffer
	if err := reproducible.Tar(&content, packed); err != nil {
		return i, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content.Bytes())), nil
	}, tarball.WithMediaType(layerType))
	if err != nil {
		return i, fmt.Errorf("pack layer: %w", err)
	}
	if i.Image, err = mutate.AppendLayers(base, layer); err != nil {
		return i, fmt.Errorf("add layer: %w", err)
	}
	config, err := i.ConfigFile()
	if err != nil {
		return i, fmt.Errorf("read image config: %w", err)
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
	if i.Image, err = mutate.ConfigFile(i.Image, config); err != nil {
		return i, fmt.Errorf("set image config: %w", err)
	}
	if i.digest, err = i.Digest(); err != nil {
		return i, fmt.Errorf("compute image digest: %w", err)
	}
	return i, nil
}
