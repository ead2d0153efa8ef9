//go:build e2e

package kube_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/admission/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

var keyNames = []string{"ortet-admission-authority", "ortet-admission-nonce", "ortet-admission-records"}

// inNamespace names the keys that lie in a namespace.
func (w *world) inNamespace(namespace string) map[string]*corev1.Secret {
	w.Helper()
	found := map[string]*corev1.Secret{}
	for _, name := range keyNames {
		s, err := w.admin.CoreV1().Secrets(namespace).Get(w.ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		must(w, err)
		found[name] = s
	}
	return found
}

// lives has a replica use all of its keys.
func (w *world) lives(c *kube.Cluster, authority string) {
	w.Helper()
	_, err := c.NonceKey(w.ctx)
	must(w, err)
	certificate, _, err := c.Authority(w.ctx, func() ([]byte, []byte, error) { return []byte(authority), []byte("key"), nil })
	must(w, err)
	if string(certificate) != authority {
		w.Errorf("the authority is %s, want %s", certificate, authority)
	}
	must(w, c.Prepare(w.ctx))
}

// The keys lie where nobody else of ours may read, and nowhere else.
func TestKeysLieApart(t *testing.T) {
	w := newWorld(t, "ortet-apart")
	w.lives(w.open(), "ours")
	if n := len(w.inNamespace(kube.KeysNamespace(w.namespace))); n != len(keyNames) {
		t.Errorf("%d keys in their own namespace", n)
	}
	if there := w.inNamespace(w.namespace); len(there) > 0 {
		t.Errorf("keys in Ortet's namespace: %v", there)
	}
}

// The keys of an earlier version are copied, so that what was admitted and spent counts
// still, and are deleted an hour later. A key that differs from the one in use stays.
func TestEarlierKeysAreCopied(t *testing.T) {
	w := newWorld(t, "ortet-copied")
	apart := kube.KeysNamespace(w.namespace)
	before := w.open()
	w.lives(before, "theirs")
	m := w.member("copied0001", "1", machineA)
	_, err := before.Admit(w.ctx, m, wire.Kubelet, admission.NodeState{Exists: true})
	must(t, err)
	must(t, before.Spend(w.ctx, "a1", time.Now().Add(time.Hour)))
	keys := w.inNamespace(apart)
	for name, s := range keys { // as an earlier version has them
		_, err := w.admin.CoreV1().Secrets(w.namespace).Create(w.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Immutable: s.Immutable, Data: s.Data}, metav1.CreateOptions{})
		must(t, err)
		must(t, w.admin.CoreV1().Secrets(apart).Delete(w.ctx, name, metav1.DeleteOptions{}))
	}

	after := w.open()
	w.lives(after, "theirs")
	for name, s := range w.inNamespace(apart) {
		for field, want := range keys[name].Data {
			if !bytes.Equal(s.Data[field], want) {
				t.Errorf("%s of %s differs", field, name)
			}
		}
	}
	if at, err := after.AdmittedAt(w.ctx, m.NodeName()); err != nil || at.IsZero() {
		t.Errorf("admitted at %v, %v", at, err)
	}
	if err := after.Spend(w.ctx, "a1", time.Now().Add(time.Hour)); !errors.Is(err, admission.ErrSpent) {
		t.Errorf("a nonce that was spent: %v", err)
	}
	must(t, after.Sweep(w.ctx))
	if n := len(w.inNamespace(w.namespace)); n != len(keyNames) {
		t.Errorf("%d keys are left to roll back with", n)
	}

	// A nonce's key that is another one.
	const other = "ortet-admission-nonce"
	must(t, w.admin.CoreV1().Secrets(w.namespace).Delete(w.ctx, other, metav1.DeleteOptions{}))
	_, err = w.admin.CoreV1().Secrets(w.namespace).Create(w.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: other}, Data: map[string][]byte{"key": []byte("x")}}, metav1.CreateOptions{})
	must(t, err)
	w.now = func() time.Time { return time.Now().Add(61 * time.Minute) }
	must(t, w.open().Sweep(w.ctx))
	if there := w.inNamespace(w.namespace); len(there) != 1 || there[other] == nil {
		t.Errorf("an hour later %d keys are left", len(there))
	}
	w.lives(w.open(), "theirs")
}

// Without its own namespace the server makes no keys elsewhere, and says what to do.
func TestKeysNeedTheirNamespace(t *testing.T) {
	w := newWorld(t, "ortet-missing")
	config, err := w.cp.RESTConfig()
	must(t, err)
	c, err := kube.New(kube.Config{REST: config, Namespace: "ortet-nowhere", Server: w.cp.Server, CA: w.cp.CA()})
	must(t, err)
	_, err = c.NonceKey(w.ctx)
	var failed *fleet.Error
	if !errors.As(err, &failed) || failed.Remedy != "make the namespace: kubectl create namespace ortet-nowhere-admission" {
		t.Errorf("%v", err)
	}
}
