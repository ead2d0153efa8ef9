package rollout

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

	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/plan"
	"github.com/ortet/ortet/internal/redact"
)

// maxHistory is how many generations are kept: ten of 64 KiB fit into a ConfigMap.
const maxHistory = 10

const annotationPool = "ortet.io/pool"

// An entry is a generation with its document as userData.
type entry struct {
	Entry
	UserData string `json:"userData"`
}

// A history is a pool's ConfigMap.
type history struct {
	object  *corev1.ConfigMap // nil where it does not exist
	entries []entry           // newest first
}

func (h history) newest() entry {
	if len(h.entries) == 0 {
		return entry{}
	}
	return h.entries[0]
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
		return h, kubeError("read history", where, err, "get on configmaps in namespace "+r.Namespace)
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
// wrote the history since it was read, it is *engine.Refused.
func (r *Rollout) record(ctx context.Context, pool fleet.ResourceID, h history, e entry) error {
	name := HistoryName(pool)
	next := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: r.Namespace}}
	if h.object != nil {
		next = h.object.DeepCopy()
	}
	metav1.SetMetaDataLabel(&next.ObjectMeta, "app.kubernetes.io/managed-by", "ortet")
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, annotationPool, strings.ToLower(string(pool)))
	next.Data = map[string]string{}
	entries := append([]entry{e}, h.entries...)
	for _, e := range entries[:min(len(entries), maxHistory)] {
		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		next.Data[fmt.Sprintf("generation-%d", e.Generation)] = string(text)
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
		return &engine.Refused{Problems: []plan.Problem{overtaken(pool, now.newest())}}
	case apierrors.IsNotFound(err):
		return &fleet.Error{Op: "write history", Resource: where, Kind: fleet.KindNotFound, Err: err,
			Remedy: "create the namespace: kubectl create namespace " + r.Namespace}
	}
	return kubeError("write history", where, err, "create, get and update on configmaps in namespace "+r.Namespace)
}

func overtaken(pool fleet.ResourceID, by entry) plan.Problem {
	return plan.Problem{On: string(pool), Code: "OtherPush", What: fmt.Sprintf("another push, of generation %d by %s, began at %s", by.Generation, cmp.Or(by.By, "an unknown user"), by.At.UTC().Format("2006-01-02T15:04:05Z")),
		WayOut: "wait until it has ended (ortet config status), then push again"}
}

// Previous gives the configuration of an earlier generation, for a rollback. 0 is the
// newest one that differs from the newest of all. Since it is going to be signed again,
// the history is not believed: a key that the model's document accepts has to have signed
// it.
func (r *Rollout) Previous(ctx context.Context, pool fleet.ResourceID, to int64) (nodeconfig.Config, error) {
	var none nodeconfig.Config
	o := &observation{pool: pool}
	if err := r.readModel(ctx, o); err != nil {
		return none, err
	}
	h, err := r.readHistory(ctx, o.pool)
	if err != nil {
		return none, err
	}
	refuse := func(code, what, wayOut string) error {
		return &engine.Refused{Problems: []plan.Problem{{On: string(o.pool), Code: code, What: what, WayOut: wayOut}}}
	}
	var known []string
	for _, e := range h.entries {
		known = append(known, fmt.Sprint(e.Generation))
		if e.Generation != to && (to != 0 || e.Digest == h.newest().Digest) {
			continue
		}
		d, err := nodeconfig.Document{}, error(nil)
		if signed, bad := nodeconfig.Read(e.UserData); bad != nil {
			err = bad
		} else if d, err = signed.Verify(o.accepted()); err == nil && (d.Generation != e.Generation || d.Pool != strings.ToLower(string(o.pool))) {
			err = fmt.Errorf("it is generation %d of %s", d.Generation, d.Pool)
		}
		if err != nil {
			return none, refuse("HistoryNotTrusted", fmt.Sprintf("generation %d of the history cannot be trusted: %v", e.Generation, err),
				"push its file instead; after a rotation of keys, earlier generations are signed by a key that nodes accept no longer")
		}
		return d.Config, nil
	}
	what := fmt.Sprintf("the history has no generation %d", to)
	if to == 0 {
		what = "the history has no earlier configuration"
	}
	return none, refuse("NoSuchGeneration", what, "choose one of these with --to: "+cmp.Or(strings.Join(known, ", "), "none; push a file instead"))
}
