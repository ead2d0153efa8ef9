package kube

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
)

// journals is the journal.Store in Secrets, one for each pool. It is a Secret
// and no ConfigMap, since the state has the key that opens sealed data. The
// record's revision is the Secret's resourceVersion.
type journals struct{ *Cluster }

const (
	journalType = corev1.SecretType("ortet.io/journal")
	journalKey  = "record"
)

// JournalName is the Secret that holds the pool's journal.
func JournalName(pool string) string { return objectName("ortet-journal", pool) }

func (j journals) Load(ctx context.Context, pool string) (journal.Record, error) {
	name := JournalName(pool)
	secret, err := j.client.CoreV1().Secrets(j.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return journal.Record{}, j.onSecret("read journal", "get", name).fail(ctx, err)
	}
	return recordOf(pool, secret)
}

func recordOf(pool string, secret *corev1.Secret) (journal.Record, error) {
	r, err := journal.Decode(pool, secret.Data[journalKey])
	if err != nil {
		return journal.Record{}, &fleet.Error{Op: "read journal", Resource: "secret " + secret.Namespace + "/" + secret.Name, Kind: fleet.KindOf(err), Err: err}
	}
	r.Revision = secret.ResourceVersion
	return r, nil
}

// Save implements journal.Store.
func (j journals) Save(ctx context.Context, r journal.Record) (journal.Record, error) {
	data, err := journal.Encode(r)
	if err != nil {
		return journal.Record{}, err
	}
	name := JournalName(r.Pool)
	secret := &corev1.Secret{ObjectMeta: j.ours(name, "journal"), Type: journalType, Data: map[string][]byte{journalKey: data}}
	secret.Annotations[annotationPool] = r.Pool
	secret.ResourceVersion = r.Revision

	secrets := j.client.CoreV1().Secrets(j.namespace)
	a := j.onSecret("write journal", "update", name)
	var saved *corev1.Secret
	if r.Revision == "" {
		a.access.Verb = "create"
		saved, err = secrets.Create(ctx, secret, metav1.CreateOptions{FieldManager: fieldManager})
	} else {
		saved, err = secrets.Update(ctx, secret, metav1.UpdateOptions{FieldManager: fieldManager})
		if apierrors.IsNotFound(err) {
			return journal.Record{}, &fleet.Error{Op: a.op, Resource: a.on, Kind: fleet.KindConflict, Err: errors.New("deleted since it was read")}
		}
	}
	if err != nil {
		return journal.Record{}, a.fail(ctx, err)
	}
	return recordOf(r.Pool, saved)
}
