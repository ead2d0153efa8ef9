package elastic

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"reflect"
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
func (a Artifacts) Placeholders() (names []string) {
	if a.Images == nil {
		a.Images = &Artifact{}
	}
	for i, artifact := range []Artifact{a.K3s, *a.Images, a.Ortet, a.OrtetNode} {
		if artifact.SHA256 == noDigest {
			names = append(names, []string{"k3s", "images", "ortet", "ortetNode"}[i])
		}
	}
	return names
}

// ArtifactsBlock is spec.artifacts of cluster.yaml, indented as it is there.
func ArtifactsBlock(a Artifacts) []byte {
	w := &writer{plain: true}
	w.WriteString("  artifacts:\n")
	w.object(4, reflect.ValueOf(a), reflect.Zero(reflect.TypeFor[Artifacts]()))
	return w.Bytes()
}
