package elastic

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
)

// noDigest stands for a digest that is not known yet.
var noDigest = strings.Repeat("0", 64)

// Digest is what sha256 of an Artifact holds for the bytes of r.
func Digest(r io.Reader) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return "", fmt.Errorf("cannot read artifact: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Placeholders are the names of artifacts whose digest is all zeros, as init writes
// it: a cluster cannot boot by them.
func (a Artifacts) Placeholders() []string {
	var names []string
	for _, n := range a.list() {
		if n.SHA256 == noDigest {
			names = append(names, n.name)
		}
	}
	return names
}

type namedArtifact struct {
	name string
	Artifact
}

func (a Artifacts) list() []namedArtifact {
	list := []namedArtifact{{"k3s", a.K3s}}
	if a.Images != nil {
		list = append(list, namedArtifact{"images", *a.Images})
	}
	return append(list, namedArtifact{"ortet", a.Ortet}, namedArtifact{"ortetNode", a.OrtetNode})
}

// ArtifactsBlock is spec.artifacts of cluster.yaml, indented as it is there.
func ArtifactsBlock(a Artifacts) []byte {
	var b bytes.Buffer
	b.WriteString("  artifacts:\n")
	if a.Version != "" {
		fmt.Fprintf(&b, "    version: %s\n", scalar(a.Version))
	}
	for _, n := range a.list() {
		fmt.Fprintf(&b, "    %s:\n      url: %s\n      sha256: %s\n", n.name, scalar(n.URL), scalar(n.SHA256))
	}
	return b.Bytes()
}
