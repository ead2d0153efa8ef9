package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/k3s"
)

func newClusterArtifacts(c *clusterOptions) *cobra.Command {
	var binary, images, ortet, ortetNode, tailscale, prefix, version string
	var manifests, toolkit []string
	cmd := clusterCommand("artifacts DIR", "Copy the files that machines fetch, with their digests", `artifacts copies k3s, its images, ortet, ortet-node and manifests into DIR, which a web
server or the share publishes under --url, and prints the blocks spec.artifacts and
spec.manifests with their digests. Machines verify each file by its digest.

Give each k3s a DIR and --url of its own. Until up, machines fetch by the former block;
restore to an earlier k3s needs its files.`, func(_ context.Context, args []string) error {
		if binary == "" {
			return usagef("--k3s is missing: name the k3s binary of a release")
		}
		if !strings.HasPrefix(prefix, "https://") && !strings.HasPrefix(prefix, "http://") && !strings.HasPrefix(prefix, "file:///srv/") {
			return usagef("--url %q: want https://…, http://… or file:///srv/…", prefix)
		}
		if ortet == "" {
			own, err := os.Executable()
			if err != nil {
				return fmt.Errorf("cannot find this program's file: %w; give --ortet FILE", err)
			}
			ortet = own
		}
		var a struct { // as cluster.yaml has them
			k3s.Artifacts
			Manifests []k3s.Manifest `json:"manifests,omitempty"`
		}
		a.Version, a.Manifests = version, make([]k3s.Manifest, len(manifests))
		type file struct {
			from, name, flag string
			to               *k3s.Artifact
		}
		ortetNode = first(ortetNode, filepath.Join(filepath.Dir(ortet), "ortet-node"))
		files := []file{{binary, "k3s", "k3s", &a.K3s}, {ortet, "ortet", "ortet", &a.Ortet}, {ortetNode, "ortet-node", "ortet-node", &a.OrtetNode}}
		if images != "" {
			a.Images = new(k3s.Artifact)
			files = append(files, file{images, filepath.Base(images), "images", a.Images})
		}
		if tailscale != "" {
			a.Tailscale = new(k3s.Artifact)
			files = append(files, file{tailscale, filepath.Base(tailscale), "tailscale", a.Tailscale})
		}
		a.ContainerToolkit = make([]k3s.Artifact, len(toolkit))
		for i, from := range toolkit {
			files = append(files, file{from, filepath.Base(from), "container-toolkit", &a.ContainerToolkit[i]})
		}
		for i, from := range manifests {
			name := filepath.Base(from)
			a.Manifests[i].Name = strings.TrimSuffix(strings.TrimSuffix(name, ".yml"), ".yaml")
			files = append(files, file{from, name, "manifest", &a.Manifests[i].Artifact})
		}
		if err := os.MkdirAll(args[0], 0o755); err != nil {
			return fmt.Errorf("cannot make directory: %w", err)
		}
		for _, f := range files {
			digest, err := copyArtifact(f.from, args[0], f.name)
			if err != nil {
				return fmt.Errorf("cannot copy artifact %s: %w; name its file with --%s", f.name, err, f.flag)
			}
			*f.to = k3s.Artifact{URL: strings.TrimRight(prefix, "/") + "/" + f.name, SHA256: digest}
		}
		block, err := k3s.ArtifactsBlock(a.Artifacts, a.Manifests)
		if err != nil {
			return err
		}
		return c.print(a, func(w io.Writer) { _, _ = w.Write(block) })
	})
	f := cmd.Flags()
	f.StringVar(&binary, "k3s", "", "`FILE` of the k3s binary")
	f.StringVar(&images, "images", "", "`FILE` of k3s's air-gap images; without it machines pull them")
	f.StringVar(&ortet, "ortet", "", "`FILE` of ortet for Linux (default: this program)")
	f.StringVar(&ortetNode, "ortet-node", "", "`FILE` of ortet-node (default: beside ortet)")
	f.StringVar(&tailscale, "tailscale", "", "`FILE` of Tailscale's archive of static binaries, for spec.access.tailscale")
	f.StringArrayVar(&toolkit, "container-toolkit", nil,
		"`FILE` of a Debian package of NVIDIA's container toolkit, for pools with gpu; repeatable")
	f.StringArrayVar(&manifests, "manifest", nil, "`FILE` of Kubernetes objects that the server applies; repeatable")
	f.StringVar(&version, "k3s-version", "", "`VERSION` of k3s, v1.36.3+k3s1; with it up refuses a downgrade and a skipped minor version")
	f.StringVar(&prefix, "url", "", "`PREFIX` under which DIR is published: https://mirror.example.com/k3s, file:///srv/artifacts")
	return cmd
}

// copyArtifact copies a file into dir, and gives its digest. A new file takes the place of
// an old one: DIR may be published meanwhile.
func copyArtifact(from, dir, name string) (digest string, err error) {
	in, err := os.Open(from)
	if err != nil {
		return "", err
	}
	defer func() { _ = in.Close() }() // only read
	out, err := os.CreateTemp(dir, "."+name+"-*")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(out.Name()) }() // renamed, or incomplete
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, sum), in)
	if err := errors.Join(err, out.Chmod(0o755), out.Close()); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), os.Rename(out.Name(), filepath.Join(dir, name))
}
