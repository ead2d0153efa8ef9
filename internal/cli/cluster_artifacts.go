package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/elastic"
)

func newClusterArtifacts(c *clusterOptions) *cobra.Command {
	var (
		files        struct{ k3s, images, ortet, ortetNode string }
		url, version string
	)
	cmd := &cobra.Command{
		Use:   "artifacts DIR",
		Short: "Copy the programs that machines fetch, with their digests",
		Long: `artifacts copies k3s, its images, ortet and ortet-node into DIR, which a web server or
the share publishes under --url, and prints the block spec.artifacts with their digests.
Machines verify each file by its digest.`,
		Args: oneArgument("the directory to write to"),
		RunE: func(_ *cobra.Command, args []string) error {
			if files.k3s == "" {
				return usagef("--k3s is missing: name the k3s binary of a release")
			}
			if !strings.HasPrefix(url, "https://") && !strings.HasPrefix(url, "http://") && !strings.HasPrefix(url, "file:///srv/") {
				return usagef("--url %q: want https://…, http://… or file:///srv/…", url)
			}
			if files.ortet == "" {
				own, err := os.Executable()
				if err != nil {
					return fmt.Errorf("cannot find this program's file: %w; give --ortet FILE", err)
				}
				files.ortet = own
			}
			if files.ortetNode == "" {
				files.ortetNode = filepath.Join(filepath.Dir(files.ortet), "ortet-node")
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // published
				return fmt.Errorf("cannot make directory: %w", err)
			}
			a := elastic.Artifacts{Version: version}
			for _, f := range []struct {
				from, name string
				to         *elastic.Artifact
			}{{files.k3s, "k3s", &a.K3s}, {files.ortet, "ortet", &a.Ortet}, {files.ortetNode, "ortet-node", &a.OrtetNode}} {
				var err error
				if *f.to, err = copyArtifact(f.from, args[0], f.name, url); err != nil {
					return err
				}
			}
			if files.images != "" {
				images, err := copyArtifact(files.images, args[0], filepath.Base(files.images), url)
				if err != nil {
					return err
				}
				a.Images = &images
			}
			block, err := elastic.ArtifactsBlock(a)
			if err != nil {
				return err
			}
			return c.print(a, func(w io.Writer) { _, _ = w.Write(block) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&files.k3s, "k3s", "", "`FILE` of the k3s binary")
	f.StringVar(&files.images, "images", "", "`FILE` of k3s's air-gap images; without it machines pull them")
	f.StringVar(&files.ortet, "ortet", "", "`FILE` of ortet for Linux (default: this program)")
	f.StringVar(&files.ortetNode, "ortet-node", "", "`FILE` of ortet-node (default: beside ortet)")
	f.StringVar(&version, "k3s-version", "", "`VERSION` of k3s, for people to read: v1.36.3+k3s1")
	f.StringVar(&url, "url", "", "`PREFIX` under which DIR is published: https://mirror.example.com/k3s, file:///srv/artifacts")
	return cmd
}

// copyArtifact copies a file into dir, and gives its address and digest.
func copyArtifact(from, dir, name, url string) (a elastic.Artifact, err error) {
	in, err := os.Open(from)
	if err != nil {
		return a, fmt.Errorf("cannot read artifact %s: %w", name, err)
	}
	defer func() { _ = in.Close() }() // only read
	// A new file in the place of the old one: DIR may be published meanwhile.
	out, err := os.CreateTemp(dir, "."+name+"-*")
	if err != nil {
		return a, fmt.Errorf("cannot write artifact %s: %w", name, err)
	}
	defer func() { _ = os.Remove(out.Name()) }() // renamed, or incomplete
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, sum), in)
	if err := errors.Join(err, out.Chmod(0o755), out.Close()); err != nil { //nolint:gosec // published
		return a, fmt.Errorf("cannot copy artifact %s: %w", name, err)
	}
	if err := os.Rename(out.Name(), filepath.Join(dir, name)); err != nil {
		return a, fmt.Errorf("cannot write artifact %s: %w", name, err)
	}
	return elastic.Artifact{URL: strings.TrimRight(url, "/") + "/" + name, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}
