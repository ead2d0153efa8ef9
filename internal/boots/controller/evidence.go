package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
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

	"github.com/ortet/ortet/internal/boots/verdict"
	"github.com/ortet/ortet/internal/fleet"
)

// Evidence is a ConfigMap for each machine whose boot did not end well. It has no
// owner, so that it outlives the machine.
const (
	// EvidenceLabel selects them.
	EvidenceLabel = "ortet.io/evidence"
	EvidenceValue = "boot"
	// EvidenceUntil is when it is deleted.
	EvidenceUntil = "ortet.io/until"

	labelVM   = "ortet.io/vm-id"
	labelPool = "ortet.io/pool"
	digest    = "ortet.io/digest"

	// KeyAssessment, KeyInstance and KeyConsole are the parts: the Assessment and
	// the fleet.Boot as JSON, and what matters of the serial log.
	KeyAssessment = "assessment.json"
	KeyInstance   = "instance.json"
	KeyConsole    = "console.txt"
)

// Bounds of one piece of evidence; together below 64 KiB.
const (
	maxAssessment  = 24 << 10
	maxInstance    = 12 << 10
	maxConsoleText = 24 << 10
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

// evidenceName is a name for one machine, which may have none of its own.
func evidenceName(a Assessment) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s|%s", KeyOf(a.Instance), a.VMID)
	return fmt.Sprintf("boot-%s-%016x", strings.Trim(nameText(first(a.HostName, a.Name), 60), "-"), h.Sum64())
}

// nameText makes a text fit the name of an object.
func nameText(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(s))
	return s[:min(len(s), most)]
}

func evidenceNameOf(b fleet.Boot) string {
	return evidenceName(Assessment{Instance: b.Instance, VMID: strings.ToLower(b.VMID), HostName: strings.ToLower(b.HostName), Name: b.Name})
}

// recall returns what was found out of a machine before, by this controller or the
// one before it; zero where nothing was kept.
func (e *evidence) recall(ctx context.Context, b fleet.Boot) (Assessment, error) {
	if err := e.load(ctx); err != nil {
		return Assessment{}, err
	}
	name := evidenceNameOf(b)
	e.mu.Lock()
	_, ok := e.all[name]
	e.mu.Unlock()
	if !ok {
		return Assessment{}, nil
	}
	var m corev1.ConfigMap
	if err := e.client.Get(ctx, client.ObjectKey{Namespace: e.namespace, Name: name}, &m); err != nil {
		return Assessment{}, ignoreGone(err)
	}
	return parseAssessment([]byte(m.Data[KeyAssessment])), nil
}

// parseAssessment reads what was kept; zero where it is none any more: somebody
// changed it, and it is found out again.
func parseAssessment(text []byte) Assessment {
	var a Assessment
	if err := json.Unmarshal(text, &a); err != nil {
		return Assessment{}
	}
	if a.State.Final() != (a.Verdict != nil) {
		return Assessment{}
	}
	if a.Verdict != nil {
		a.Verdict.Evidence = nil
		if err := a.Verdict.Validate(); err != nil || a.State != State(a.Verdict.Outcome) {
			return Assessment{}
		}
	}
	return a
}

// digestOf is what is published of a boot, its outcome first.
func digestOf(a Assessment) string {
	return strings.Join([]string{string(a.State), a.Reason(), string(a.Source)}, "/")
}

// A record is a piece of evidence that was written, of a verdict that may have to
// be published yet.
type record struct {
	// fresh is that it was not published wholly before.
	fresh bool
	// was is the outcome that was published before of this boot, "" if none.
	was State
	of  *corev1.ConfigMap // nil where there is nothing to be recorded
}

// keep writes what shows why a boot did not end well, once for each verdict; of
// one that did it writes only where something was published before. That a verdict was
// published is recorded by markPublished, so until then it stays fresh.
func (e *evidence) keep(ctx context.Context, known Known, a Assessment) (record, error) {
	if err := e.load(ctx); err != nil {
		return record{}, err
	}
	name, publishing := evidenceName(a), digestOf(a)
	e.mu.Lock()
	was, ok := e.all[name]
	if !ok {
		was.digest = e.dropped[name]
	}
	e.mu.Unlock()
	outcome, _, _ := strings.Cut(was.digest, "/")
	rec := record{fresh: was.digest != publishing, was: State(outcome)}
	if !rec.fresh && (len(known.Serial) == 0 || !ok) || !ok && a.State == Succeeded {
		return record{was: rec.was}, nil
	}
	data, err := parts(known, a)
	if err != nil {
		return record{}, fmt.Errorf("evidence of %s: %w", a.Name, err)
	}
	until := e.now().Add(e.keepFor)
	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: e.namespace,
			Labels: map[string]string{
				EvidenceLabel: EvidenceValue, labelVM: labelText(a.VMID), labelPool: labelText(a.Pool.Name()),
				"app.kubernetes.io/managed-by": "ortet",
			},
			Annotations: map[string]string{EvidenceUntil: until.UTC().Format(time.RFC3339), digest: was.digest},
		},
		Data: data,
	}
	if ok {
		// What was read of the console then may be gone by now.
		var old corev1.ConfigMap
		if err := e.client.Get(ctx, client.ObjectKeyFromObject(m), &old); err == nil && data[KeyConsole] == "" && old.Data[KeyConsole] != "" {
			m.Data[KeyConsole] = old.Data[KeyConsole]
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
func (e *evidence) markPublished(ctx context.Context, rec record, a Assessment) error {
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

// parts is what is kept, without secrets and within bounds.
func parts(known Known, a Assessment) (map[string]string, error) {
	b := known.Boot
	b.Provisioning.Message = verdict.RedactText(b.Provisioning.Message)
	b.Agent.Message = verdict.RedactText(b.Agent.Message)
	b.Extensions = slices.Clone(b.Extensions)
	for i := range b.Extensions {
		x := &b.Extensions[i]
		x.Statuses, x.Substatuses = redacted(x.Statuses), redacted(x.Substatuses)
	}
	for range 4 { // messages are most of it
		text, err := json.MarshalIndent(b, "", " ")
		if err != nil {
			return nil, err
		}
		if len(text) <= maxInstance {
			break
		}
		for i := range b.Extensions {
			halve(b.Extensions[i].Statuses)
			halve(b.Extensions[i].Substatuses)
		}
	}
	instance, err := json.MarshalIndent(b, "", " ")
	if err != nil {
		return nil, err
	}
	if len(instance) > maxInstance {
		b.Extensions = nil
		if instance, err = json.MarshalIndent(b, "", " "); err != nil {
			return nil, err
		}
	}
	if a.Verdict != nil {
		v := *a.Verdict
		a.Verdict = &v
	}
	assessment, err := json.MarshalIndent(a, "", " ")
	for err == nil && len(assessment) > maxAssessment && len(a.Verdict.Evidence) > 0 {
		a.Verdict.Evidence = a.Verdict.Evidence[:len(a.Verdict.Evidence)-1]
		assessment, err = json.MarshalIndent(a, "", " ")
	}
	if err != nil {
		return nil, err
	}
	data := map[string]string{KeyAssessment: string(assessment), KeyInstance: string(instance)}
	if len(known.Serial) > 0 {
		lines := Relevant(known.Serial, maxConsole)
		size := 0
		for i := len(lines) - 1; i >= 0; i-- { // the end has most of the evidence
			if size += len(lines[i]) + 1; size > maxConsoleText {
				lines = append([]string{"[…]"}, lines[i+1:]...)
				break
			}
		}
		data[KeyConsole] = strings.Join(lines, "\n") + "\n"
	}
	return data, nil
}

func redacted(list []fleet.BootStatus) []fleet.BootStatus {
	list = slices.Clone(list)
	for i := range list {
		text := strings.Split(list[i].Message, "\n")
		list[i].Message = strings.Join(verdict.Redact(text), "\n")
	}
	return list
}

func halve(list []fleet.BootStatus) {
	for i, st := range list {
		if n := len(st.Message); n > 128 {
			list[i].Message = strings.ToValidUTF8(st.Message[n/2:], "")
		}
	}
}

// labelText makes a text fit a label.
func labelText(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_' {
			return r
		}
		return '-'
	}, s)
	return strings.Trim(s[:min(len(s), 63)], "-._")
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
	if err := e.client.List(ctx, list, client.InNamespace(e.namespace), client.MatchingLabels{EvidenceLabel: EvidenceValue}); err != nil {
		return fmt.Errorf("list the evidence in %s: %w", e.namespace, err)
	}
	e.all = map[string]piece{}
	for _, m := range list.Items {
		until, err := time.Parse(time.RFC3339, m.Annotations[EvidenceUntil])
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
