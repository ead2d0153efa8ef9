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
	"github.com/ortet/ortet/internal/wire"
)

// Defaults of Config.
const (
	DefaultBootsPerVersion = 10
	DefaultMaxBoots        = 1000
	DefaultKeepBoots       = 30 * 24 * time.Hour
)

const (
	// perMachine is how many boots of one machine are kept, so that a machine that reports
	// boots without end takes the place of none but its own.
	perMachine = 3
	// compared is how many image versions of a pool, the last used, are kept longer:
	// a prototype is compared with the one before, however long ago that was made.
	compared   = 2
	keptLonger = 12 // times as long
)

// bootStore keeps the reports of boots as ConfigMaps, and knows of each no more than is
// needed to choose which to keep.
type bootStore struct {
	client     client.Client
	namespace  string
	perVersion int // boots of a pool and image version
	most       int
	keepFor    time.Duration
	now        func() time.Time
	log        *slog.Logger
	// forgot is called once nothing is kept any more of an image version of a pool.
	forgot func(pool, image string)

	mu     sync.Mutex
	loaded bool
	all    map[string]storedBoot
}

// storedBoot is what is known of a ConfigMap: its labels, which are short, and when
// it was stored.
type storedBoot struct {
	pool, image, vm string
	at              time.Time
}

// version names an image version of a pool.
func (b storedBoot) version() [2]string { return [2]string{b.pool, b.image} }

func newBootStore(c client.Client, config Config) *bootStore {
	return &bootStore{
		client: c, namespace: config.Namespace, now: config.Now, log: config.Log,
		perVersion: config.BootsPerVersion, most: config.MaxBoots, keepFor: config.KeepBoots,
		forgot: func(string, string) {}, all: map[string]storedBoot{},
	}
}

// load learns what is stored already.
func (s *bootStore) load(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loaded {
		return nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	if err := s.client.List(ctx, list, client.InNamespace(s.namespace), client.MatchingLabels{assess.BootLabel: assess.BootValue}); err != nil {
		return fmt.Errorf("list the stored boots in %s: %w", s.namespace, err)
	}
	s.all = make(map[string]storedBoot, len(list.Items))
	for i := range list.Items {
		m := &list.Items[i]
		at, err := time.Parse(time.RFC3339, m.Annotations[assess.StoredAt])
		if err != nil || at.After(s.now()) {
			at = m.CreationTimestamp.Time
		}
		s.all[m.Name] = storedBoot{m.Labels[assess.BootPoolLabel], m.Labels[assess.ImageLabel], m.Labels[assess.MachineLabel], at}
	}
	s.loaded = true
	return nil
}

// has reports whether a boot is stored.
func (s *bootStore) has(ctx context.Context, name string) (bool, error) {
	if err := s.load(ctx); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.all[name]
	return ok, nil
}

// keep stores a boot, and returns whether it was not stored before: by this controller,
// or the one before it. What is too much then goes.
func (s *bootStore) keep(ctx context.Context, record assess.BootRecord, report wire.BootReport) (fresh bool, err error) {
	if err := s.load(ctx); err != nil {
		return false, err
	}
	record.Stored = s.now()
	kept, err := record.Record(report)
	if err != nil {
		return false, fmt.Errorf("store a boot of %s: %w", record.Node, err)
	}
	m := configMap(s.namespace, kept)
	err = s.client.Create(ctx, m, client.FieldOwner(fieldManager))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return false, fmt.Errorf("store the boot %s/%s: %w", m.Namespace, m.Name, err)
	}
	fresh = err == nil
	s.mu.Lock()
	if _, ok := s.all[m.Name]; fresh || !ok {
		s.all[m.Name] = storedBoot{m.Labels[assess.BootPoolLabel], m.Labels[assess.ImageLabel], m.Labels[assess.MachineLabel], record.Stored.Truncate(time.Second)}
	}
	s.mu.Unlock()
	if err := s.prune(ctx); err != nil { // the next try is not long in coming
		s.log.WarnContext(ctx, "stored boots not pruned", "namespace", s.namespace, "error", err)
	}
	return fresh, nil
}

// run deletes now and then what is too old.
func (s *bootStore) run(ctx context.Context) error {
	return nowAndThen(ctx, func() {
		if err := s.prune(ctx); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "stored boots not pruned", "namespace", s.namespace, "error", err)
		}
	})
}

func (s *bootStore) prune(ctx context.Context) error {
	if err := s.load(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	obsolete := s.obsolete(s.now())
	s.mu.Unlock()
	var errs []error
	for _, name := range obsolete {
		err := s.client.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace}})
		if err := ignoreGone(err); err != nil {
			errs = append(errs, fmt.Errorf("delete the stored boot %s/%s: %w", s.namespace, name, err))
			continue
		}
		s.mu.Lock()
		gone := s.all[name]
		delete(s.all, name)
		last := !slices.ContainsFunc(slices.Collect(maps.Values(s.all)), func(b storedBoot) bool { return b.version() == gone.version() })
		s.mu.Unlock()
		if last {
			s.forgot(gone.pool, gone.image)
		}
	}
	return errors.Join(errs...)
}

// obsolete returns the names of what is to be deleted: what is too old; of one machine, and
// of one image version of a pool, what is over the limit, the oldest first; and of all, the
// oldest first of what is not kept longer. The caller has locked mu.
func (s *bootStore) obsolete(now time.Time) []string {
	names := slices.Collect(maps.Keys(s.all))
	slices.SortFunc(names, func(a, b string) int { // newest first
		return cmp.Or(s.all[b].at.Compare(s.all[a].at), strings.Compare(a, b))
	})
	versions := map[string][]string{} // of a pool, the last used first
	for _, n := range names {
		b := s.all[n]
		if !slices.Contains(versions[b.pool], b.image) {
			versions[b.pool] = append(versions[b.pool], b.image)
		}
	}
	longer := func(b storedBoot) bool {
		v := versions[b.pool]
		return slices.Contains(v[:min(len(v), compared)], b.image)
	}
	var obsolete, kept, keptLong []string
	ofMachine, ofVersion := map[string]int{}, map[[2]string]int{}
	for _, n := range names {
		b := s.all[n]
		keep, list := s.keepFor, &kept
		if longer(b) {
			keep, list = keptLonger*s.keepFor, &keptLong
		}
		if !b.at.Add(keep).After(now) || b.vm != "" && ofMachine[b.vm] == perMachine || ofVersion[b.version()] == s.perVersion {
			obsolete = append(obsolete, n)
			continue
		}
		ofMachine[b.vm]++
		ofVersion[b.version()]++
		*list = append(*list, n)
	}
	if all := slices.Concat(keptLong, kept); len(all) > s.most {
		obsolete = append(obsolete, all[s.most:]...)
	}
	slices.Sort(obsolete)
	return obsolete
}
