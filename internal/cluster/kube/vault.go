package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

const (
	savedType = corev1.SecretType("ortet.io/saved")
	savedKey  = "data"

	annotationKind   = "ortet.io/kind"
	annotationName   = "ortet.io/name"
	annotationSHA256 = "ortet.io/sha256"
	annotationDonor  = "ortet.io/donor"
	annotationAt     = "ortet.io/at"
)

func (c *Cluster) onSecret(op, verb, name string) act {
	return act{op: op, on: "secret " + c.namespace + "/" + name,
		access: cluster.Access{Verb: verb, Resource: "secrets", Namespace: c.namespace}}
}

// savedName is "ortet-saved-<kind>-<first 16 of the hash>".
func savedName(kind, sum string) string {
	return "ortet-saved-" + strings.ToLower(kind) + "-" + sum[:min(16, len(sum))]
}

// Keep makes an immutable Secret. The same data that is there already is kept as
// it is, with the name and origin of the first time; other data under its name,
// or data that does not have the hash given, is fleet.KindInvalid.
func (c *Cluster) Keep(ctx context.Context, item cluster.Kept) error {
	name := savedName(item.Kind, item.SHA256)
	a := c.onSecret("keep "+item.Kind, "create", name)
	if sum := hashOf(item.Data.Reveal()); sum != item.SHA256 {
		return &fleet.Error{Op: a.op, Resource: a.on, Kind: fleet.KindInvalid, Err: fmt.Errorf("the data has SHA-256 %s, not %s", sum, item.SHA256)}
	}
	meta := c.ours(name, "saved")
	for key, value := range map[string]string{
		annotationKind: item.Kind, annotationName: item.Name, annotationSHA256: item.SHA256,
		annotationPool: string(item.Pool), annotationDonor: item.Donor, annotationAt: item.At.UTC().Format(time.RFC3339Nano),
	} {
		meta.Annotations[key] = value
	}
	_, err := c.client.CoreV1().Secrets(c.namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: meta, Type: savedType, Immutable: ptr(true),
		Data: map[string][]byte{savedKey: []byte(item.Data.Reveal())},
	}, metav1.CreateOptions{FieldManager: fieldManager})
	if !apierrors.IsAlreadyExists(err) {
		return a.fail(ctx, err)
	}
	there, err := c.Kept(ctx, item.Kind, item.SHA256)
	if err != nil {
		return err
	}
	if there.Data.Reveal() != item.Data.Reveal() {
		return &fleet.Error{Op: a.op, Resource: a.on, Kind: fleet.KindInvalid, Err: errors.New("other data is there under its name")}
	}
	return nil
}

// Kept reads an item and checks its hash: a Secret that holds something else is
// fleet.KindInvalid.
func (c *Cluster) Kept(ctx context.Context, kind, sum string) (cluster.Kept, error) {
	a := c.onSecret("read kept "+kind, "get", savedName(kind, sum))
	secret, err := c.client.CoreV1().Secrets(c.namespace).Get(ctx, savedName(kind, sum), metav1.GetOptions{})
	if err != nil {
		return cluster.Kept{}, a.fail(ctx, err)
	}
	data := string(secret.Data[savedKey])
	if got := hashOf(data); got != sum || !strings.EqualFold(secret.Annotations[annotationKind], kind) {
		return cluster.Kept{}, &fleet.Error{Op: a.op, Resource: a.on, Kind: fleet.KindInvalid,
			Err:    fmt.Errorf("it holds %q with SHA-256 %s, not %q with %s", secret.Annotations[annotationKind], got, kind, sum),
			Remedy: "somebody else made or changed it: look at it, then move it out of the way"}
	}
	kept := cluster.Kept{
		Kind: secret.Annotations[annotationKind], Name: secret.Annotations[annotationName], SHA256: sum,
		Data: fleet.NewSecret(data),
		Pool: fleet.ResourceID(secret.Annotations[annotationPool]), Donor: secret.Annotations[annotationDonor],
	}
	// Only for people, so a value that does not parse is left out.
	if at, err := time.Parse(time.RFC3339Nano, secret.Annotations[annotationAt]); err == nil {
		kept.At = at
	}
	return kept, nil
}

func hashOf(data string) string {
	sum := sha256.Sum256([]byte(data))
	return hex.EncodeToString(sum[:])
}
