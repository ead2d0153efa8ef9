package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/fleet"
)

const (
	// evidenceUntil annotates when evidence is deleted, and digest what was published of it.
	evidenceUntil = "ortet.io/until"
	digest        = "ortet.io/digest"
)

// pruneEvery is the interval between deletions of what is too old.
const pruneEvery = 10 * time.Minute

type evidence struct {
	client    client.Client
	namespace string
	keepFor   time.Duration
	most      int
	now       func() time.Time
	log       *slog.Logger
	// live returns the names of the evidence of the instances that there are, as far as
	// they were seen lately; false where some pools were never listed. nil is none.
	live func() (names map[string]bool, all bool)

	mu     sync.Mutex
	loaded bool
	all    map[string]piece
	began  time.Time // when run did, zero before
	// dropped is what was published of instances that are there, and whose evidence was
	// over the limit: their digests.
	dropped map[string]string
}

type piece struct {
	until  time.Time
	digest string // of what is published
}

func newEvidence(c client.Client, config Config) *evidence {
	return &evidence{
		client: c, namespace: config.Namespace, now: config.Now, log: config.Log,
		keepFor: config.Keep, most: config.MaxEvidence,
		all: map[string]piece{}, dropped: map[string]string{},
	}
}

// recall returns what was found out of a machine before, by this controller or the
// one before it; zero where nothing was kept.
func (e *evidence) recall(ctx context.Context, b fleet.Boot) (assess.Assessment, error) {
	if err := e.load(ctx); err != nil {
		return assess.Assessment{}, err
	}
	name := assess.EvidenceName(b)
	e.mu.Lock()
	_, ok := e.all[name]
	e.mu.Unlock()
	if !ok {
		return assess.Assessment{}, nil
	}
	var m corev1.ConfigMap
	if err := e.client.Get(ctx, client.ObjectKey{Namespace: e.namespace, Name: name}, &m); err != nil {
		return assess.Assessment{}, ignoreGone(err)
	}
	return assess.ParseAssessment([]byte(m.Data[assess.KeyAssessment])), nil
}

// digestOf is what is published of a boot, its outcome first.
func digestOf(a assess.Assessment) string {
	return strings.Join([]string{string(a.State), a.Reason(), string(a.Source)}, "/")
}

// A record is a piece of evidence that was written, of a verdict that may have to
// be published yet.
type record struct {
	// fresh is that it was not published wholly before.
	fresh bool
	// was is the outcome that was published before of this boot, "" if none.
	was assess.State
	of  *corev1.ConfigMap // nil where there is nothing to be recorded
}

// keep writes what shows why a boot did not end well, once for each verdict; of
// one that did it writes only where something was published before. That a verdict was
// published is recorded by markPublished, so until then it stays fresh.
func (e *evidence) keep(ctx context.Context, known Known, a assess.Assessment) (record, error) {
	if err := e.load(ctx); err != nil {
		return record{}, err
	}
	name, publishing := assess.EvidenceName(known.Boot), digestOf(a)
	e.mu.Lock()
	was, ok := e.all[name]
	if !ok {
		was.digest = e.dropped[name]
	}
	e.mu.Unlock()
	outcome, _, _ := strings.Cut(was.digest, "/")
	rec := record{fresh: was.digest != publishing, was: assess.State(outcome)}
	if !rec.fresh && (len(known.Serial) == 0 || !ok) || !ok && a.State == assess.Succeeded {
		return record{was: rec.was}, nil
	}
	kept, err := assess.EvidenceOf(a, known.Boot, known.Serial)
	if err != nil {
		return record{}, fmt.Errorf("evidence of %s: %w", a.Name, err)
	}
	until := e.now().Add(e.keepFor)
	kept.Annotations = map[string]string{evidenceUntil: until.UTC().Format(time.RFC3339), digest: was.digest}
	m := configMap(e.namespace, kept)
	if ok {
		// What was read of the console then may be gone by now.
		var old corev1.ConfigMap
		if err := e.client.Get(ctx, client.ObjectKeyFromObject(m), &old); err == nil && m.Data[assess.KeyConsole] == "" && old.Data[assess.KeyConsole] != "" {
			m.Data[assess.KeyConsole] = old.Data[assess.KeyConsole]
		}
		err = e.client.Update(ctx, m, client.FieldOwner(fieldManager))
	} else {
		err = e.client.Create(ctx, m, client.FieldOwner(fieldManager))
	}
	if err != nil {
		return record{}, e.unwritten(m, err)
	}
	e.mu.Lock()
	e.all[name] = piece{until, was.digest}
	delete(e.dropped, name)
	e.mu.Unlock()
	rec.of = m
	return rec, nil
}

// markPublished records that a verdict was published wholly, so that it is not again.
func (e *evidence) markPublished(ctx context.Context, rec record, a assess.Assessment) error {
	if !rec.fresh || rec.of == nil {
		return nil
	}
	m := rec.of.DeepCopy()
	m.Annotations[digest] = digestOf(a)
	if err := e.client.Update(ctx, m, client.FieldOwner(fieldManager)); err != nil {
		return e.unwritten(m, err)
	}
	e.mu.Lock()
	if p, ok := e.all[m.Name]; ok {
		e.all[m.Name] = piece{p.until, digestOf(a)}
	}
	e.mu.Unlock()
	return nil
}

// unwritten is an error of a write. Where another wrote or deleted meanwhile, what
// is there is read again.
func (e *evidence) unwritten(m *corev1.ConfigMap, err error) error {
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		e.mu.Lock()
		e.loaded = false
		e.mu.Unlock()
	}
	return fmt.Errorf("keep the evidence %s/%s: %w", m.Namespace, m.Name, err)
}

// load learns what is kept already.
func (e *evidence) load(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.loaded {
		return nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	if err := e.client.List(ctx, list, client.InNamespace(e.namespace), client.MatchingLabels{assess.EvidenceLabel: assess.EvidenceValue}); err != nil {
		return fmt.Errorf("list the evidence in %s: %w", e.namespace, err)
	}
	e.all = map[string]piece{}
	for _, m := range list.Items {
		until, err := time.Parse(time.RFC3339, m.Annotations[evidenceUntil])
		if err != nil {
			until = m.CreationTimestamp.Add(e.keepFor)
		}
		e.all[m.Name] = piece{until, m.Annotations[digest]}
	}
	e.loaded = true
	return nil
}

// run deletes now and then what is too old, or too much.
func (e *evidence) run(ctx context.Context) error {
	e.mu.Lock()
	e.began = e.now()
	e.mu.Unlock()
	return nowAndThen(ctx, func() {
		if err := e.prune(ctx); err != nil && ctx.Err() == nil {
			e.log.WarnContext(ctx, "evidence not pruned", "namespace", e.namespace, "error", err)
		}
	})
}

// nowAndThen does something at once, and each pruneEvery, until ctx ends.
func nowAndThen(ctx context.Context, do func()) error {
	ticker := time.NewTicker(pruneEvery)
	defer ticker.Stop()
	for {
		do()
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (e *evidence) prune(ctx context.Context) error {
	if err := e.load(ctx); err != nil {
		return err
	}
	live, all := map[string]bool(nil), true
	if e.live != nil {
		live, all = e.live()
	}
	e.mu.Lock()
	maps.DeleteFunc(e.dropped, func(name, _ string) bool { return !live[name] })
	e.mu.Unlock()
	var errs []error
	for _, name := range e.obsolete(live, all) {
		err := e.client.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: e.namespace}})
		if err := ignoreGone(err); err != nil {
			errs = append(errs, fmt.Errorf("delete the evidence %s/%s: %w", e.namespace, name, err))
			continue
		}
		e.mu.Lock()
		if live[name] {
			e.dropped[name] = e.all[name].digest
		}
		delete(e.all, name)
		e.mu.Unlock()
	}
	return errors.Join(errs...)
}

// unlisted is how long a machine that is not seen any more, since its pool cannot be
// listed, counts as there.
const unlisted = 2 * time.Hour

// lingers is how long after its evidence was written a machine counts as one
// that is not about to be deleted.
const lingers = time.Hour

// obsolete returns the names of what is to be deleted: what is too old of machines that are
// gone, and what is over the limit of the rest. What is known of a machine that is there is
// needed to judge it alike after a restart, so it is never too old. If some pools cannot be
// listed, what was not seen for a while after the start counts as gone.
//
// Of what is over the limit those go first, the oldest first, whose machines are there long
// after: their serial logs can still be read, and no client seems to act on them. Then the
// oldest of all others go. Those that failed lately stay, though their machines are there:
// whoever acts on the condition is about to delete these, and their evidence is needed most.
func (e *evidence) obsolete(live map[string]bool, all bool) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	all = all || !e.began.IsZero() && !now.Before(e.began.Add(unlisted))
	var names, obsolete []string
	for n, p := range e.all {
		if all && !live[n] && !p.until.After(now) {
			obsolete = append(obsolete, n)
		} else {
			names = append(names, n)
		}
	}
	stays := func(n string) int {
		if live[n] && !e.all[n].until.After(now.Add(e.keepFor-lingers)) {
			return 0
		}
		return 1
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(stays(a), stays(b)), e.all[a].until.Compare(e.all[b].until), cmp.Compare(a, b))
	})
	obsolete = append(obsolete, names[:max(0, len(names)-e.most)]...)
	slices.Sort(obsolete)
	return obsolete
}

// configMap is the object that a record is.
func configMap(namespace string, r fleet.Record) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: r.Name, Namespace: namespace, Labels: r.Labels, Annotations: r.Annotations},
		Data:       r.Data, BinaryData: r.Binary,
	}
}
