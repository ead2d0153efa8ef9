package push

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/redact"
)

// maxHistory is how many generations are kept: ten of 64 KiB fit into a ConfigMap.
const maxHistory = 10

const annotationPool = "ortet.io/pool"

// An entry is a generation with its document as userData.
type entry struct {
	Entry
	UserData string `json:"userData"`

	document *nodeconfig.Document // nil where it is not believed
}

// A history is a pool's ConfigMap.
type history struct {
	object  *corev1.ConfigMap // nil where it does not exist
	entries []entry           // newest first; after believe those that are believed
	others  []entry           // that are not
}

func (h history) newest() entry {
	if len(h.entries) == 0 {
		return entry{}
	}
	return h.entries[0]
}

// believe parts the entries: who may write the ConfigMap needs no key, so only documents
// that one of the keys signed count. With reset, those beyond what counts are dropped.
func (h *history) believe(pool fleet.ResourceID, keys []nodeconfig.PublicKey, reset bool) {
	all := h.entries
	h.entries, h.others = nil, nil
	for _, e := range all {
		d, err := e.verify(pool, keys)
		if err == nil {
			e.Digest, err = d.Config.Digest()
		}
		switch {
		case err != nil:
			h.others = append(h.others, e)
		case !reset || d.Generation <= nodeconfig.MaxGeneration:
			e.document = &d
			h.entries = append(h.entries, e)
		}
	}
}

// HistoryName is the name of the ConfigMap with a pool's history.
func HistoryName(pool fleet.ResourceID) string {
	sum := sha256.Sum256([]byte(strings.ToLower(string(pool))))
	return "ortet-config-" + hex.EncodeToString(sum[:])[:12]
}

func (r *Rollout) readHistory(ctx context.Context, pool fleet.ResourceID) (history, error) {
	var h history
	name := HistoryName(pool)
	object, err := r.Kube.CoreV1().ConfigMaps(r.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return h, nil
	}
	where := "ConfigMap " + r.Namespace + "/" + name
	if err != nil {
		return h, kubeError(ctx, "read history", where, err, "get on configmaps in namespace "+r.Namespace)
	}
	h.object = object
	for key, text := range object.Data {
		var e entry
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			return h, &fleet.Error{Op: "read history", Resource: where, Err: fmt.Errorf("%s: %w", key, err), Remedy: "delete the key " + key + " from the ConfigMap"}
		}
		e.By, e.Digest = redact.Plain(e.By, 128), redact.Plain(e.Digest, 128) // a terminal shows them
		h.entries = append(h.entries, e)
	}
	slices.SortFunc(h.entries, func(a, b entry) int { return cmp.Compare(b.Generation, a.Generation) })
	return h, nil
}

// record adds a generation to the history, as which it is allocated. Where another push
// wrote the history since it was read, it is *workflow.Refused.
func (r *Rollout) record(ctx context.Context, pool fleet.ResourceID, h history, e entry, keys []nodeconfig.PublicKey) error {
	name := HistoryName(pool)
	next := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: r.Namespace}}
	if h.object != nil {
		next = h.object.DeepCopy()
	}
	metav1.SetMetaDataLabel(&next.ObjectMeta, "app.kubernetes.io/managed-by", "ortet")
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, annotationPool, strings.ToLower(string(pool)))
	next.Data = map[string]string{}
	for _, e := range slices.Concat([]entry{e}, h.entries, h.others) {
		key := fmt.Sprintf("generation-%d", e.Generation)
		if _, found := next.Data[key]; found || len(next.Data) == maxHistory {
			continue // what is believed comes first
		}
		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		next.Data[key] = string(text)
	}
	client := r.Kube.CoreV1().ConfigMaps(r.Namespace)
	var err error
	if h.object == nil {
		_, err = client.Create(ctx, next, metav1.CreateOptions{})
	} else {
		_, err = client.Update(ctx, next, metav1.UpdateOptions{})
	}
	where := "ConfigMap " + r.Namespace + "/" + name
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		now, err := r.readHistory(ctx, pool)
		if err != nil {
			return err
		}
		now.believe(pool, keys, false)
		what, wayOut := overtaken(now.newest())
		if len(now.entries) == 0 {
			what = "its history was changed meanwhile, by none whose key is accepted"
		}
		return refused(pool, "OtherPush", what, wayOut)
	}
	return kubeError(ctx, "write history", where, err, "create, get and update on configmaps in namespace "+r.Namespace)
}

func overtaken(by entry) (what, wayOut string) {
	return fmt.Sprintf("another push, of generation %d by %s, began at %s", by.Generation, cmp.Or(by.By, "an unknown user"), by.At.UTC().Format("2006-01-02T15:04:05Z")),
		"wait until it has ended (ortet config status), then push again"
}

// Rollback pushes the content of generation to under a new generation. 0 is the model's,
// where the newest did not reach it; or else the newest generation whose content is not the
// newest one's; or goes on with a rollback that Ready nodes or the model lack. What is
// pushed is signed again, so an accepted key must have signed the entry.
func (r *Rollout) Rollback(ctx context.Context, pool fleet.ResourceID, to int64, p Request) (*Result, error) {
	p.rollback, p.to = true, to
	return r.Push(ctx, pool, p)
}

// earlier finds what Rollback pushes.
func (o *observation) earlier(to int64) (entry, error) {
	newest := o.history.newest()
	unfinished := newest.ContentOf > 0 && (o.document == nil || o.document.Generation < newest.Generation ||
		slices.ContainsFunc(o.members, func(m member) bool { return m.Ready && !m.has(newest.Generation) }))
	// A push that stopped at its canary left the model as it was: that is what to go back to.
	if to == 0 && !unfinished && o.document != nil && o.document.Generation < newest.Generation {
		to = o.document.Generation
	}
	var known []string
	for _, e := range slices.Concat(o.history.entries, o.history.others) {
		if e.Generation == to || to == 0 && (unfinished || e.Digest != newest.Digest) {
			return e, nil
		}
		known = append(known, fmt.Sprint(e.Generation))
	}
	what := fmt.Sprintf("the history has no generation %d", to)
	if to == 0 {
		what = "the history has no earlier configuration"
	}
	return entry{}, refused(o.pool, "NoSuchGeneration", what, "choose one of these with --to: "+cmp.Or(strings.Join(known, ", "), "none; push a file instead"))
}

// verify returns an entry's document, where one of the keys signed it for this pool and
// generation.
func (e entry) verify(pool fleet.ResourceID, keys []nodeconfig.PublicKey) (d nodeconfig.Document, err error) {
	signed, err := nodeconfig.Read(e.UserData)
	if err == nil {
		d, err = signed.Verify(keys)
	}
	if err == nil && (d.Generation != e.Generation || d.Pool != strings.ToLower(string(pool))) {
		err = fmt.Errorf("it is generation %d of %s", d.Generation, d.Pool)
	}
	return d, err
}

// config returns an entry's configuration.
func (e entry) config(pool fleet.ResourceID, keys []nodeconfig.PublicKey) (nodeconfig.Config, error) {
	d, err := e.verify(pool, keys)
	if err != nil {
		err = refused(pool, "HistoryNotTrusted", fmt.Sprintf("generation %d of the history cannot be trusted: %v", e.Generation, err),
			"push its file instead; or roll back with the key that signed it, while nodes accept that")
	}
	return d.Config, err
}
