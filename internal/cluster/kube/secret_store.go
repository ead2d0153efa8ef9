package kube

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
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

	// A Secret's data is limited to 1 MiB, its annotations to 256 KiB.
	savedBytes = 960 << 10
	savedItems = 400

	// savedTries bounds repetitions after a conflict: the pool's lock allows one writer.
	savedTries = 5
)

// errChanged reports an item that is not what its key says.
var errChanged = errors.New("other data is there under its key")

func (c *Cluster) onSecret(op, verb, name string) act {
	a := act{op: op, on: "secret " + c.namespace + "/" + name,
		access: cluster.Access{Verb: verb, Resource: "secrets", Namespace: c.namespace}}
	if verb != "create" { // which RBAC cannot restrict to a name
		a.access.Name = name
	}
	return a
}

// SavedName is the Secret with what was saved of a pool: one for each pool, so that a
// Role can name it.
func SavedName(pool string) string { return objectName("ortet-saved", pool) }

// Secrets names the Secrets of a pool: all that a capture or a rollback of it reads or
// writes, but for what earlier versions saved.
func Secrets(pool fleet.ResourceID) []string {
	return []string{JournalName(strings.ToLower(string(pool))), SavedName(string(pool))}
}

// savedKey is an item's key in the pool's Secret.
func savedKey(kind, sum string) string { return kind + "-" + sum[:min(16, len(sum))] }

// savedOrigin is the annotation of an item, "ortet.io/<key>".
type savedOrigin struct {
	Name   string    `json:"name,omitempty"`
	SHA256 string    `json:"sha256"`
	Donor  string    `json:"donor,omitempty"`
	At     time.Time `json:"at"`
}

func originOf(secret *corev1.Secret, key string) (o savedOrigin, ok bool) {
	err := json.Unmarshal([]byte(secret.Annotations["ortet.io/"+key]), &o)
	return o, err == nil
}

// PutSecret adds an item to the Secret of its pool. The same data that is there already is
// left with the origin of the first time; other data under its key, or data that does
// not have the hash given, is fleet.KindInvalid.
func (c *Cluster) PutSecret(ctx context.Context, item cluster.SecretItem, needed func(context.Context) ([]string, error)) error {
	name, key := SavedName(string(item.Pool)), savedKey(item.Kind, item.SHA256)
	a := c.onSecret("keep "+item.Kind, "create", name)
	invalid := func(err error) error {
		return &fleet.Error{Op: a.op, Resource: a.on, Kind: fleet.KindInvalid, Err: err}
	}
	if sum := hashOf(item.Data.Reveal()); sum != item.SHA256 {
		return invalid(fmt.Errorf("the data has SHA-256 %s, not %s", sum, item.SHA256))
	}
	origin, err := json.Marshal(savedOrigin{item.Name, item.SHA256, item.Donor, item.At.UTC()})
	if err != nil {
		return invalid(err)
	}
	secret := &corev1.Secret{ObjectMeta: c.ours(name, "saved"), Type: savedType, Data: map[string][]byte{}}
	secret.Annotations[annotationPool] = string(item.Pool)
	secrets := c.client.CoreV1().Secrets(c.namespace)
	for range savedTries {
		if there, ok := secret.Data[key]; ok {
			if string(there) != item.Data.Reveal() {
				return invalid(errChanged)
			}
			return nil
		}
		if err := makeRoom(ctx, secret, len(item.Data.Reveal()), needed); err != nil {
			if fleet.KindOf(err) != "" {
				return err
			}
			return invalid(err)
		}
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		if secret.Annotations == nil {
			secret.Annotations = map[string]string{}
		}
		secret.Data[key], secret.Annotations["ortet.io/"+key] = []byte(item.Data.Reveal()), string(origin)
		if secret.ResourceVersion == "" {
			_, err = secrets.Create(ctx, secret, metav1.CreateOptions{FieldManager: fieldManager})
		} else {
			_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{FieldManager: fieldManager})
		}
		if !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
			return a.fail(ctx, err)
		}
		a = c.onSecret(a.op, "get", name)
		if secret, err = secrets.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return a.fail(ctx, err)
		}
		a = c.onSecret(a.op, "update", name)
	}
	return a.fail(ctx, err)
}

// makeRoom deletes the oldest items that nobody needs until one of the given size fits.
// The newest of each kind and name stays, as does what does not say how old it is.
func makeRoom(ctx context.Context, secret *corev1.Secret, size int, needed func(context.Context) ([]string, error)) error {
	fits := func() bool {
		n := size
		for _, data := range secret.Data {
			n += len(data)
		}
		return n <= savedBytes && len(secret.Data) < savedItems
	}
	if fits() {
		return nil
	}
	stay, err := needed(ctx)
	if err != nil {
		return fmt.Errorf("list which saved items are needed: %w", err)
	}
	origins := map[string]savedOrigin{}
	newest := map[string]string{} // by kind and name
	for _, key := range slices.Sorted(maps.Keys(secret.Data)) {
		o, ok := originOf(secret, key)
		if !ok || o.At.IsZero() {
			continue
		}
		kind, _, _ := strings.Cut(key, "-")
		if of := kind + "/" + o.Name; newest[of] == "" || o.At.After(origins[newest[of]].At) {
			newest[of] = key
		}
		origins[key] = o
	}
	for _, key := range newest {
		delete(origins, key)
	}
	maps.DeleteFunc(origins, func(_ string, o savedOrigin) bool { return slices.Contains(stay, o.SHA256) })
	oldest := slices.SortedFunc(maps.Keys(origins), func(x, y string) int {
		return cmp.Or(origins[x].At.Compare(origins[y].At), cmp.Compare(x, y))
	})
	for _, key := range oldest {
		if fits() {
			return nil
		}
		delete(secret.Data, key)
		delete(secret.Annotations, "ortet.io/"+key)
	}
	if fits() {
		return nil
	}
	return fmt.Errorf("%d bytes do not fit beside the %d items that are needed or the newest of their name: delete image versions that nothing uses, or copy keys of the Secret elsewhere and remove them", size, len(secret.Data))
}

// DropSecret removes an item. The pool's lock allows one writer, so that a conflict is an error.
func (c *Cluster) DropSecret(ctx context.Context, pool fleet.ResourceID, kind, sum string) error {
	name, key := SavedName(string(pool)), savedKey(kind, sum)
	a, secrets := c.onSecret("drop kept "+kind, "get", name), c.client.CoreV1().Secrets(c.namespace)
	secret, err := secrets.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fleet.IgnoreNotFound(a.fail(ctx, err))
	}
	if _, there := secret.Data[key]; !there {
		return nil
	}
	delete(secret.Data, key)
	delete(secret.Annotations, "ortet.io/"+key)
	a = c.onSecret(a.op, "update", name)
	_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{FieldManager: fieldManager})
	return a.fail(ctx, err)
}

// GetSecret reads an item and checks its hash: data that has another is fleet.KindInvalid.
func (c *Cluster) GetSecret(ctx context.Context, pool fleet.ResourceID, kind, sum string) (cluster.SecretItem, error) {
	name, key := SavedName(string(pool)), savedKey(kind, sum)
	a := c.onSecret("read kept "+kind, "get", name)
	secret, err := c.client.CoreV1().Secrets(c.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		secret, err = &corev1.Secret{}, nil
	}
	if err != nil {
		return cluster.SecretItem{}, a.fail(ctx, err)
	}
	data, ok := secret.Data[key]
	if !ok {
		return c.keptEarlier(ctx, kind, sum)
	}
	if got := hashOf(string(data)); got != sum {
		return cluster.SecretItem{}, a.changed(fmt.Errorf("its key %s has SHA-256 %s, not %s", key, got, sum))
	}
	o, _ := originOf(secret, key) // only for people
	return cluster.SecretItem{Kind: kind, Name: o.Name, SHA256: sum, Data: fleet.NewSecret(string(data)), Pool: pool, Donor: o.Donor, At: o.At}, nil
}

// keptEarlier reads an item as earlier versions stored it: in a Secret of its own,
// whose name "ortet-saved-<kind>-<hash>" follows from its content. A Role that does not
// name that Secret is fleet.KindDenied, since it may be there.
func (c *Cluster) keptEarlier(ctx context.Context, kind, sum string) (cluster.SecretItem, error) {
	name := "ortet-saved-" + strings.ToLower(savedKey(kind, sum))
	a := c.onSecret("read kept "+kind, "get", name)
	secret, err := c.client.CoreV1().Secrets(c.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return cluster.SecretItem{}, a.fail(ctx, err)
	}
	data, was := string(secret.Data["data"]), secret.Annotations["ortet.io/kind"]
	if got := hashOf(data); got != sum || !strings.EqualFold(was, kind) {
		return cluster.SecretItem{}, a.changed(fmt.Errorf("it holds %q with SHA-256 %s, not %q with %s", was, got, kind, sum))
	}
	kept := cluster.SecretItem{
		Kind: kind, Name: secret.Annotations["ortet.io/name"], SHA256: sum, Data: fleet.NewSecret(data),
		Pool: fleet.ResourceID(secret.Annotations[annotationPool]), Donor: secret.Annotations["ortet.io/donor"],
	}
	// Only for people, so a value that does not parse is left out.
	if at, err := time.Parse(time.RFC3339Nano, secret.Annotations["ortet.io/at"]); err == nil {
		kept.At = at
	}
	return kept, nil
}

func (a act) changed(err error) error {
	return &fleet.Error{Op: a.op, Resource: a.on, Kind: fleet.KindInvalid, Err: err,
		Remedy: "somebody else changed it: inspect it, then move it out of the way"}
}

func hashOf(data string) string {
	sum := sha256.Sum256([]byte(data))
	return hex.EncodeToString(sum[:])
}
