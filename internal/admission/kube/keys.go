package kube

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names of the Secrets that all replicas share: the key of the nonces, the authority of
// the server's certificates, and the key that authenticates the records of tokens and
// the admitted names.
const (
	nonceKeyName  = "ortet-admission-nonce"
	authorityName = "ortet-admission-authority"
	recordsName   = "ortet-admission-records"
)

// KeysNamespace is where those Secrets lie. It is not Ortet's own namespace: captures
// make pods and read Secrets there, and the controller writes ConfigMaps.
func KeysNamespace(namespace string) string { return namespace + "-admission" }

// earlierKeysFor is how long keys stay in Ortet's namespace, where earlier versions have
// them, after they were copied: so long the upgrade can be rolled back.
const earlierKeysFor = time.Hour

func (c *Cluster) onKey(name string) string {
	return "secret " + KeysNamespace(c.namespace) + "/" + name
}

// kept returns a Secret that the first replica makes, and that is never changed afterwards:
// a copy of the one of an earlier version, or else fresh's.
func (c *Cluster) kept(ctx context.Context, name, purpose string, fresh func() (map[string][]byte, error)) (map[string][]byte, error) {
	op, on := "read what the replicas share", c.onKey(name)
	secrets := c.client.CoreV1().Secrets(KeysNamespace(c.namespace))
	found, err := secrets.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		return found.Data, nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, fail(ctx, op, on, err)
	}
	var data map[string][]byte
	earlier, err := c.client.CoreV1().Secrets(c.namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		data = earlier.Data
		c.log.InfoContext(ctx, "key of an earlier version is copied", "from", "secret "+c.namespace+"/"+name, "to", on)
	case !apierrors.IsNotFound(err):
		return nil, fail(ctx, op, "secret "+c.namespace+"/"+name, err)
	default:
		if data, err = fresh(); err != nil {
			return nil, fail(ctx, op, on, err)
		}
	}
	immutable := true
	made, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: c.ours(KeysNamespace(c.namespace), name, purpose), Immutable: &immutable, Data: data},
		metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsAlreadyExists(err) {
		made, err = secrets.Get(ctx, name, metav1.GetOptions{})
	}
	if err != nil {
		return nil, fail(ctx, op, on, err)
	}
	return made.Data, nil
}

// dropEarlierKeys deletes the keys in Ortet's namespace whose copies are older than
// earlierKeysFor. One of which there is no equal copy stays.
func (c *Cluster) dropEarlierKeys(ctx context.Context) error {
	if c.dropped.Load() {
		return nil
	}
	var errs []error
	left := false
	for _, name := range []string{authorityName, nonceKeyName, recordsName} {
		there, err := c.dropEarlierKey(ctx, name)
		left = left || there
		errs = append(errs, err)
	}
	err := errors.Join(errs...)
	c.dropped.Store(!left && err == nil)
	return err
}

// dropEarlierKey reports whether one still exists.
func (c *Cluster) dropEarlierKey(ctx context.Context, name string) (left bool, err error) {
	op, on := "delete the key of an earlier version", "secret "+c.namespace+"/"+name
	secrets := c.client.CoreV1().Secrets(c.namespace)
	earlier, err := secrets.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return true, fail(ctx, op, on, err)
	}
	copied, err := c.client.CoreV1().Secrets(KeysNamespace(c.namespace)).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return true, fail(ctx, op, c.onKey(name), err)
	case !maps.EqualFunc(earlier.Data, copied.Data, bytes.Equal):
		c.log.WarnContext(ctx, "key differs from the one in use; delete it", "key", on, "used", c.onKey(name))
		return false, nil
	case c.now().Sub(copied.CreationTimestamp.Time) < earlierKeysFor:
		return true, nil
	}
	err = secrets.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &earlier.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		return true, fail(ctx, op, on, err)
	}
	return false, nil
}
