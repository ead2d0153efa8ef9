package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"sigs.k8s.io/yaml"
)

// Helm's media types of a chart in a registry (https://helm.sh/docs/topics/registries/).
const (
	chartConfig  = "application/vnd.cncf.helm.config.v1+json"
	chartContent = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// imageIn reads the image's archive, which it unpacks into the folder, and refuses one
// that another registry's programs and charts name.
func imageIn(from, folder, registry string) (artifact, error) {
	const pattern = "ortet-image_*.tar"
	found, err := filepath.Glob(filepath.Join(from, pattern))
	if err != nil {
		return artifact{}, err
	}
	switch len(found) {
	case 0:
		return artifact{}, fmt.Errorf("no image in %s (%s); run make release REGISTRY=%s", from, pattern, registry)
	case 1:
	default:
		return artifact{}, fmt.Errorf("several images in %s (%s); remove %s, and run make release REGISTRY=%s", from, strings.Join(found, ", "), from, registry)
	}
	a, err := readImage(found[0], folder)
	if err != nil {
		return a, fmt.Errorf("read %s: %w; run make release REGISTRY=%s", found[0], err, registry)
	}
	repository, err := name.NewRepository(registry+"/ortet", name.StrictValidation)
	if err != nil {
		return a, fmt.Errorf("read registry: %w", err)
	}
	if is := a.tag.Repository.Name(); is != repository.Name() {
		return a, fmt.Errorf("push %s to %s: made for %s, and programs and charts name the image by its registry; run make release REGISTRY=%s", found[0], repository, is, registry)
	}
	return a, nil
}

func readImage(archive, folder string) (artifact, error) {
	var a artifact
	if err := unpack(archive, folder); err != nil {
		return a, err
	}
	outer, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return a, err
	}
	manifest, err := outer.IndexManifest()
	if err != nil {
		return a, err
	}
	if len(manifest.Manifests) != 1 {
		return a, fmt.Errorf("%d images, want one", len(manifest.Manifests))
	}
	entry := manifest.Manifests[0]
	index, err := outer.ImageIndex(entry.Digest)
	if err != nil {
		return a, err
	}
	if err := validate.Index(index); err != nil {
		return a, err
	}
	a.digest = entry.Digest
	a.push = func(o ...remote.Option) error { return remote.WriteIndex(a.tag, index, o...) }
	a.tag, err = name.NewTag(entry.Annotations["io.containerd.image.name"], name.StrictValidation)
	return a, err
}

func unpack(archive, folder string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		content, err := io.ReadAll(r)
		if err == nil {
			err = root.MkdirAll(filepath.Dir(h.Name), 0o700)
		}
		if err == nil {
			err = root.WriteFile(h.Name, content, 0o600)
		}
		if err != nil {
			return err
		}
	}
}

// chartsIn reads the charts, and refuses one whose values do not name the image.
func chartsIn(from, registry, image string) ([]artifact, error) {
	found, err := filepath.Glob(filepath.Join(from, "*.tgz"))
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no charts in %s (*.tgz); run make release REGISTRY=%s", from, registry)
	}
	var charts []artifact
	for _, path := range found {
		a, names, err := readChart(path, registry)
		if err != nil {
			return nil, fmt.Errorf("read chart %s: %w; run make release REGISTRY=%s", path, err, registry)
		}
		if names != image {
			return nil, fmt.Errorf("push chart %s: its image is %q, and that of %s is %s; run make release REGISTRY=%s", path, names, from, image, registry)
		}
		charts = append(charts, a)
	}
	return charts, nil
}

// readChart returns a chart and the image that its values name.
func readChart(path, registry string) (a artifact, image string, err error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return a, "", err
	}
	var meta struct{ Name, Version string }
	var values struct {
		Image struct{ Repository, Digest string }
		Ortet struct{ Image string }
	}
	var config []byte
	zipped, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return a, "", err
	}
	for r := tar.NewReader(zipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return a, "", err
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return a, "", err
		}
		_, inside, _ := strings.Cut(h.Name, "/")
		switch inside {
		case "Chart.yaml":
			if config, err = yaml.YAMLToJSON(text); err == nil {
				err = json.Unmarshal(config, &meta)
			}
		case "values.yaml":
			err = yaml.Unmarshal(text, &values)
		}
		if err != nil {
			return a, "", fmt.Errorf("%s: %w", h.Name, err)
		}
	}
	image = values.Ortet.Image
	if v := values.Image; v.Repository != "" {
		image = v.Repository + "@" + v.Digest
	}
	// A tag has no plus sign; Helm writes and reads an underscore in its place.
	a.tag, err = name.NewTag(registry+"/charts/"+meta.Name+":"+strings.ReplaceAll(meta.Version, "+", "_"), name.StrictValidation)
	if err != nil {
		return a, "", err
	}
	chart, err := newChart(config, content, map[string]string{"org.opencontainers.image.title": meta.Name, "org.opencontainers.image.version": meta.Version})
	if err != nil {
		return a, "", err
	}
	a.push = func(o ...remote.Option) error { return remote.Write(a.tag, chart, o...) }
	a.digest, err = chart.Digest()
	return a, image, err
}

// chartArtifact is a chart as Helm keeps it in a registry.
type chartArtifact struct {
	layer            v1.Layer
	config, manifest []byte
}

func newChart(config, content []byte, annotations map[string]string) (v1.Image, error) {
	c := chartArtifact{layer: static.NewLayer(content, chartContent), config: config}
	described := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Annotations: annotations}
	layer, err := partial.Descriptor(c.layer)
	if err != nil {
		return nil, err
	}
	described.Layers = []v1.Descriptor{*layer}
	head, err := partial.Descriptor(static.NewLayer(config, chartConfig))
	if err != nil {
		return nil, err
	}
	described.Config = *head
	if c.manifest, err = json.Marshal(described); err != nil {
		return nil, err
	}
	return partial.CompressedToImage(c)
}

func (c chartArtifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }
func (c chartArtifact) RawConfigFile() ([]byte, error)      { return c.config, nil }
func (c chartArtifact) RawManifest() ([]byte, error)        { return c.manifest, nil }
func (c chartArtifact) LayerByDigest(v1.Hash) (partial.CompressedLayer, error) {
	return c.layer, nil
}
