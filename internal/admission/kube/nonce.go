package kube

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/admission"
)

const nonceKeySize = 32 // bytes

// NonceKey implements admission.Cluster.
func (c *Cluster) NonceKey(ctx context.Context) ([]byte, error) {
	data, err := c.kept(ctx, nonceKeyName, "nonce-key", func() (map[string][]byte, error) {
		key := make([]byte, nonceKeySize)
		_, err := rand.Read(key)
		return map[string][]byte{"key": key}, err
	})
	if err != nil {
		return nil, err
	}
	if len(data["key"]) != nonceKeySize {
		return nil, fail(ctx, "read the nonces' key", c.onKey(nonceKeyName),
			fmt.Errorf("a key of %d bytes, want %d: delete the Secret and start the replicas again", len(data["key"]), nonceKeySize))
	}
	return data["key"], nil
}

// Authority implements admission.Keys.
func (c *Cluster) Authority(ctx context.Context, fresh func() (certificate, key []byte, err error)) (certificate, key []byte, err error) {
	data, err := c.kept(ctx, authorityName, "authority", func() (map[string][]byte, error) {
		certificate, key, err := fresh()
		return map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key}, err
	})
	if err != nil {
		return nil, nil, err
	}
	return data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey], nil
}

// clientCAs is where every API server publishes how it authenticates.
const clientCAs = "extension-apiserver-authentication"

// ClientCAs implements admission.Keys.
func (c *Cluster) ClientCAs(ctx context.Context) ([]byte, error) {
	op, on := "read whose client certificates the API server takes", "configmap "+metav1.NamespaceSystem+"/"+clientCAs
	found, err := c.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, clientCAs, metav1.GetOptions{})
	if err != nil {
		return nil, fail(ctx, op, on, err)
	}
	bundle := found.Data["client-ca-file"]
	if bundle == "" {
		return nil, fail(ctx, op, on, fmt.Errorf("it has no client-ca-file: the API server takes no client certificates"))
	}
	return []byte(bundle), nil
}

// labelSpentUntil is the minute of the epoch by whose end a used nonce has expired.
const labelSpentUntil = "ortet.io/spent-until"

// Spend implements admission.Cluster: it is the creation of a Lease.
func (c *Cluster) Spend(ctx context.Context, nonce string, expires time.Time) error {
	meta := c.ours(c.namespace, "nonce-"+nonce, "nonce")
	meta.Labels[labelSpentUntil] = strconv.FormatInt(expires.Unix()/60+1, 10)
	_, err := c.client.CoordinationV1().Leases(c.namespace).Create(ctx, &coordinationv1.Lease{ObjectMeta: meta}, metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsAlreadyExists(err) {
		return admission.ErrSpent
	}
	return fail(ctx, "spend a nonce", "lease "+c.namespace+"/"+meta.Name, err)
}

// sweepNonces deletes the Leases of nonces that ran out, by one request.
func (c *Cluster) sweepNonces(ctx context.Context) error {
	past := fmt.Sprintf("%s=nonce,%s<%d", labelPurpose, labelSpentUntil, c.now().Unix()/60)
	err := c.client.CoordinationV1().Leases(c.namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: past})
	return fail(ctx, "sweep spent nonces", "leases of "+c.namespace, err)
}
