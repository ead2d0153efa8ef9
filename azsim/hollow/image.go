package hollow

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// imageID is the digest reference that an image of that name would have.
func imageID(image string) string {
	digest := sha256.Sum256([]byte(image))
	name, _, _ := strings.Cut(image, "@")
	if slash, colon := strings.LastIndexByte(name, '/'), strings.LastIndexByte(name, ':'); colon > slash {
		name = name[:colon]
	}
	return name + "@sha256:" + hex.EncodeToString(digest[:])
}

// pullImages puts images into the tree's store where they are not in it, and
// says in the journal which of both it was.
func (r *running) pullImages(images []string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	stored := r.tree.images()
	changed := false
	for _, image := range images {
		if slices.ContainsFunc(stored, func(i corev1.ContainerImage) bool { return slices.Contains(i.Names, image) }) {
			if err := r.journal("kubelet", "Container image %q already present on machine", image); err != nil {
				return err
			}
			continue
		}
		if err := r.journal("kubelet", "Successfully pulled image %q", image); err != nil {
			return err
		}
		digest := sha256.Sum256([]byte(image))
		stored = append(stored, corev1.ContainerImage{
			Names:     []string{imageID(image), image},
			SizeBytes: int64(binary.BigEndian.Uint32(digest[:4])%200_000_000) + 2_000_000,
		})
		changed = true
	}
	if !changed {
		return nil
	}
	content, err := json.MarshalIndent(stored, "", " ")
	if err != nil {
		return err
	}
	r.imagesChanged = true
	return r.tree.writeFile(imageList, append(content, '\n'), 0o600)
}
