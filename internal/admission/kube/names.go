package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/fleet"
)

// NamesName is the ConfigMap in Ortet's namespace whose keys are the names that were
// admitted: the parameter of the chart's ValidatingAdmissionPolicy.
const NamesName = "ortet-admitted"

// maxNames bounds the ConfigMap, in bytes: the API server takes 1 MiB of an object.
const maxNames = 1<<20 - 64<<10

// writeTimeout bounds the writing of a batch, whose callers may have hung up.
const writeTimeout = 30 * time.Second

// names writes the ConfigMap of names in batches: what is asked while a write is
// under way goes into the next one, so that a thousand at once cost a few.
type names struct {
	cluster *Cluster

	mu      sync.Mutex
	waiting []*nameChange
	writing bool
	last    *corev1.ConfigMap // as this replica wrote it last; only the writer's
	seen    *corev1.ConfigMap // the newest that this replica read or wrote
	seenAt  time.Time
}

// rememberedFor is how long what was read of the names will do: a machine that is
// admitted again retires its certificates, which Azure does not know of.
const rememberedFor = 5 * time.Second

// saw keeps the newest.
func (n *names) saw(m *corev1.ConfigMap) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen, n.seenAt = m, n.cluster.now()
}

// A nameChange sets one name or takes it away.
type nameChange struct {
	name string
	// set returns the new value for the present one; nil removes the name. It may be called
	// more than once, and has to be pure.
	set func(now admitted) admitted
	// only keeps the change from what is there otherwise; nil is always.
	only func(admitted) bool
	// unless is another key whose presence prevents the change; "" is none.
	unless string
	done   chan error
	held   bool // what only said; valid after done
	barred bool // the key unless is present; valid after done
}

// change requests a change and returns once it is written. It reports whether it held.
func (n *names) change(ctx context.Context, change *nameChange) (bool, error) {
	if err := n.changeAll(ctx, []*nameChange{change}); err != nil {
		return false, err
	}
	return change.held, nil
}

// changeAll asks for several, which are written at once, and returns the first error.
func (n *names) changeAll(ctx context.Context, changes []*nameChange) error {
	for _, c := range changes {
		c.done = make(chan error, 1)
	}
	n.mu.Lock()
	n.waiting = append(n.waiting, changes...)
	if !n.writing {
		n.writing = true
		go n.write(context.WithoutCancel(ctx))
	}
	n.mu.Unlock()
	var first error
	for _, c := range changes {
		select {
		case err := <-c.done:
			if first == nil {
				first = err
			}
		case <-ctx.Done():
			return fail(ctx, "write the names admitted", n.on(), context.Cause(ctx))
		}
	}
	return first
}

func (n *names) on() string { return "configmap " + n.cluster.namespace + "/" + NamesName }

// write writes batch after batch until nothing waits.
func (n *names) write(ctx context.Context) {
	for {
		n.mu.Lock()
		batch := n.waiting
		n.waiting = nil
		if len(batch) == 0 {
			n.writing = false
			n.mu.Unlock()
			return
		}
		n.mu.Unlock()
		limited, release := context.WithTimeout(ctx, writeTimeout)
		errs := n.batch(limited, batch)
		release()
		for i, c := range batch {
			c.done <- errs[i]
		}
	}
}

// batch writes the changes at once, over other replicas' writes. Where there are too
// many names, those that add are refused.
func (n *names) batch(ctx context.Context, batch []*nameChange) []error {
	errs := make([]error, len(batch))
	all := func(err error) []error {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	s, err := n.cluster.sealer(ctx)
	if err != nil {
		return all(err)
	}
	maps := n.cluster.client.CoreV1().ConfigMaps(n.cluster.namespace)
	for {
		if n.last == nil {
			found, err := maps.Get(ctx, NamesName, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				found, err = n.begin(ctx)
			}
			if err != nil {
				return all(fail(ctx, "read the names admitted", n.on(), err))
			}
			n.last = found
			n.saw(found)
		}
		next, changed, err := apply(s, n.last, batch)
		if errors.Is(err, errFull) {
			batchOf := slices.Clone(batch)
			for i, c := range batchOf {
				if c.set != nil {
					errs[i] = &fleet.Error{Op: "admit a name", Resource: n.on(), Kind: fleet.KindInvalid, Err: err,
						Remedy: "forget names of machines that are gone: the reaper does so, where it may see the pools"}
				}
			}
			removals := slices.DeleteFunc(batchOf, func(c *nameChange) bool { return c.set != nil })
			if len(removals) == 0 {
				return errs
			}
			rest := n.batch(ctx, removals)
			for i, j := 0, 0; i < len(batch); i++ {
				if batch[i].set == nil {
					errs[i] = rest[j]
					j++
				}
			}
			return errs
		}
		if err != nil {
			return all(fail(ctx, "read the names admitted", n.on(), err))
		}
		if !changed {
			// What this replica remembers may be older than what is there.
			found, err := maps.Get(ctx, NamesName, metav1.GetOptions{})
			switch {
			case err == nil && found.ResourceVersion == n.last.ResourceVersion:
				return errs
			case err != nil && !apierrors.IsNotFound(err):
				return all(fail(ctx, "read the names admitted", n.on(), err))
			case err == nil:
				n.last = found
			default:
				n.last = nil
			}
			continue
		}
		written, err := maps.Update(ctx, next, metav1.UpdateOptions{FieldManager: fieldManager})
		switch {
		case err == nil:
			n.last = written
			n.saw(written)
			return errs
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			n.last = nil
			if ctx.Err() == nil {
				continue
			}
		}
		n.last = nil
		return all(fail(ctx, "write the names admitted", n.on(), err))
	}
}

var errFull = fmt.Errorf("more than %d KiB of names", maxNames>>10)

// apply returns the object after the changes, which are applied in order.
func apply(s *seal, before *corev1.ConfigMap, batch []*nameChange) (next *corev1.ConfigMap, changed bool, err error) {
	pools, err := poolsOf(before)
	if err != nil {
		return nil, false, err
	}
	next = before.DeepCopy()
	if next.Data == nil {
		next.Data = map[string]string{}
	}
	known := len(pools)
	for _, c := range batch {
		text, there := next.Data[c.name]
		var now admitted
		if there {
			// An unreadable or forged entry is replaced, and never taken for another.
			now, _ = s.parse(c.name, text, pools)
		}
		if c.barred = has(s, next, c.unless, pools); c.barred {
			c.held = false
			continue
		}
		if c.held = c.only == nil || c.only(now); !c.held {
			continue
		}
		switch {
		case c.set == nil && there:
			delete(next.Data, c.name)
			changed = true
		case c.set != nil:
			if entry := s.entry(c.name, c.set(now), &pools); !there || entry != text {
				next.Data[c.name] = entry
				changed = true
			}
		}
	}
	if len(pools) != known {
		table, err := json.Marshal(pools)
		if err != nil {
			return nil, false, err
		}
		if next.Annotations == nil {
			next.Annotations = map[string]string{}
		}
		next.Annotations[annotationPools] = string(table)
	}
	if size, was := sizeOf(next), sizeOf(before); size > maxNames && size > was {
		return nil, false, errFull
	}
	return next, changed, nil
}

// has reports whether the list has the key with a valid seal.
func has(s *seal, m *corev1.ConfigMap, name string, pools []string) bool {
	text, there := m.Data[name]
	if name == "" || !there {
		return false
	}
	a, err := s.parse(name, text, pools)
	return err == nil && a.VMID != ""
}

// sizeOf estimates the maximum size of an object, in bytes.
func sizeOf(m *corev1.ConfigMap) int {
	size := len(m.Annotations[annotationPools])
	for name, entry := range m.Data {
		size += len(name) + entrySize(entry) + 8
	}
	return size
}

// begin makes the ConfigMap. Nodes that are there already are in it, without a
// machine: they were not admitted, and may register again, as they could before.
func (n *names) begin(ctx context.Context) (*corev1.ConfigMap, error) {
	c := n.cluster
	made := &corev1.ConfigMap{ObjectMeta: c.ours(c.namespace, NamesName, "admitted"), Data: map[string]string{}}
	options := metav1.ListOptions{Limit: page}
	for {
		list, err := c.metadata.Resource(corev1.SchemeGroupVersion.WithResource("nodes")).List(ctx, options)
		if err != nil {
			return nil, fail(ctx, "list nodes", "", err)
		}
		for i := range list.Items {
			made.Data[list.Items[i].Name] = ""
		}
		if options.Continue = list.Continue; options.Continue == "" {
			break
		}
	}
	maps := c.client.CoreV1().ConfigMaps(c.namespace)
	out, err := maps.Create(ctx, made, metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsAlreadyExists(err) {
		return maps.Get(ctx, NamesName, metav1.GetOptions{})
	}
	return out, err
}

// page bounds what one answer holds.
const page = 500

// Prepare makes the list of names where there is none: the policy refuses every
// Node while there is no list. It is idempotent, and done by Admit too.
func (c *Cluster) Prepare(ctx context.Context) error {
	// The key first: a list that is older is an earlier version's.
	if _, err := c.sealer(ctx); err != nil {
		return err
	}
	_, err := c.client.CoreV1().ConfigMaps(c.namespace).Get(ctx, NamesName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = c.names.begin(ctx)
	}
	if err != nil {
		return fail(ctx, "make the list of names", c.names.on(), err)
	}
	return c.sealEntries(ctx)
}

// admission reads what a name was admitted for; false where it was not.
func (c *Cluster) admission(ctx context.Context, name string) (admitted, bool, error) {
	found, err := c.client.CoreV1().ConfigMaps(c.namespace).Get(ctx, NamesName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return admitted{}, false, nil
	}
	if err != nil {
		return admitted{}, false, fail(ctx, "read the names admitted", c.names.on(), err)
	}
	c.names.saw(found)
	s, err := c.sealer(ctx)
	if err != nil {
		return admitted{}, false, err
	}
	a, known, err := admissionIn(s, found, name)
	return a, known, fail(ctx, "read the names admitted", c.names.on(), err)
}

// AdmittedAt implements admission.Cluster.
func (c *Cluster) AdmittedAt(ctx context.Context, node string) (time.Time, error) {
	a, _, err := c.admission(ctx, node)
	return a.At, err
}

// remembered is admission as this replica saw it a moment ago: only what Azure confirms
// may be done by it.
func (c *Cluster) remembered(name string) (admitted, bool) {
	c.names.mu.Lock()
	seen, age := c.names.seen, c.now().Sub(c.names.seenAt)
	c.names.mu.Unlock()
	s := c.seal.Load()
	if seen == nil || s == nil || age >= rememberedFor {
		return admitted{}, false
	}
	a, known, err := admissionIn(s, seen, name)
	return a, known && err == nil
}

func admissionIn(s *seal, m *corev1.ConfigMap, name string) (admitted, bool, error) {
	text, there := m.Data[name]
	if !there {
		return admitted{}, false, nil
	}
	pools, err := poolsOf(m)
	if err != nil {
		return admitted{}, false, err
	}
	a, err := s.parse(name, text, pools)
	if errors.Is(err, errForged) {
		return admitted{}, false, nil
	}
	return a, err == nil && a.VMID != "", err
}
