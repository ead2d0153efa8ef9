package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/fleet"
)

// Labels and annotations of Ortet's own objects.
const (
	labelManagedBy = "app.kubernetes.io/managed-by"
	managedBy      = "ortet"
	// labelPurpose says what an object is for: "capture", "journal", "lease",
	// "saved".
	labelPurpose = "ortet.io/purpose"

	annotationMadeBy = "ortet.io/made-by" // Config.Identity
	annotationPool   = "ortet.io/pool"    // ARM id
)

// objectName returns the name of the object that belongs to a key, such as a
// pool's ARM id: "<prefix>-<last segment>-<hash>". The last segment is for
// people; the hash, of the key in lower case as ARM compares ids, makes it
// unique. It is at most 63 characters: a valid label value too.
func objectName(prefix, key string) string {
	key = strings.ToLower(key)
	sum := sha256.Sum256([]byte(key))
	last := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, fleet.ResourceID(key).Name())
	last = strings.Trim(last[:min(len(last), 30)], "-")
	if last != "" {
		last += "-"
	}
	return prefix + "-" + last + hex.EncodeToString(sum[:6])
}

// ours is the metadata of an object of ours.
func (c *Cluster) ours(name, purpose string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: c.namespace,
		Labels:      map[string]string{labelManagedBy: managedBy, labelPurpose: purpose},
		Annotations: map[string]string{annotationMadeBy: c.identity},
	}
}
