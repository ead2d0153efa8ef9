package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/cluster/conversion"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// keptBoot is a boot that a controller keeps.
type keptBoot struct {
	record assess.BootRecord
	report wire.BootReport
}

func (k keptBoot) timeline() timeline.Timeline {
	t := timeline.Build(k.report, k.record.Cloud())
	t.Node = cmp.Or(k.record.Node, t.Node)
	return t
}

// keptBoots are the boots that a controller keeps.
type keptBoots struct {
	client    kubernetes.Interface
	namespace string
	notes     []string // what was there and could not be read
}

func (o *options) keptBoots(ctx context.Context) (*keptBoots, error) {
	config, err := o.kubernetes()
	if err != nil {
		return nil, err
	}
	if err := o.reach(ctx, config); err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("set up the Kubernetes client: %w", err)
	}
	return &keptBoots{client: client, namespace: o.namespace}, nil
}

// of returns the boots with a label, the newest last.
func (k *keptBoots) of(ctx context.Context, label, name string) ([]keptBoot, error) {
	var out []keptBoot
	selector := assess.BootLabel + "=" + assess.BootValue + "," + label + "=" + assess.LabelText(fleet.ResourceID(name).Name())
	for options := (metav1.ListOptions{Limit: 100, LabelSelector: selector}); ; {
		page, err := k.client.CoreV1().ConfigMaps(k.namespace).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list the boots that are kept in namespace %s: %w", k.namespace, err)
		}
		for i := range page.Items {
			record, report, err := assess.ReadBoot(conversion.Record(&page.Items[i]))
			if err != nil {
				k.notes = append(k.notes, err.Error())
				continue
			}
			if label == assess.BootNodeLabel && strings.EqualFold(record.Node, name) || label == assess.BootPoolLabel && (strings.EqualFold(record.Pool.Name(), name) || record.Pool.Equal(fleet.ResourceID(name))) {
				out = append(out, keptBoot{record, report})
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			break
		}
	}
	slices.SortStableFunc(out, func(a, b keptBoot) int { return a.record.Stored.Compare(b.record.Stored) })
	return out, nil
}

// node returns the boot of a node: the one that is named, by its id or the beginning of
// it, or the last. What no controller has kept yet is on the Node.
func (k *keptBoots) node(ctx context.Context, name, boot string) (keptBoot, error) {
	list, err := k.of(ctx, assess.BootNodeLabel, name)
	if err != nil {
		return keptBoot{}, err
	}
	wanted := func(b keptBoot) bool {
		return strings.HasPrefix(strings.ToLower(b.report.BootID), strings.ToLower(boot))
	}
	for _, b := range slices.Backward(list) {
		if wanted(b) {
			return b, nil
		}
	}
	var unread error
	n, err := k.client.CoreV1().Nodes().Get(ctx, strings.ToLower(name), metav1.GetOptions{})
	if err == nil {
		var b keptBoot
		var has bool
		if b.record, b.report, has, err = assess.BootOf(conversion.Node(n)); has && err == nil && wanted(b) {
			return b, nil
		}
		unread = err
	} else if !apierrors.IsNotFound(err) {
		unread = fmt.Errorf("read Node %s: %w", name, err)
	}
	switch {
	case unread != nil:
		return keptBoot{}, unread
	case len(list) > 0:
		var ids []string
		for _, b := range list {
			ids = append(ids, b.report.BootID)
		}
		return keptBoot{}, refuse("BootNotFound", "node "+name, "no boot "+boot+" is kept; there are "+strings.Join(ids, ", "), "name one of these with --boot")
	case err != nil:
		return keptBoot{}, refuse(nodeNotFound, "node "+name, "no boot of "+name+" is kept in namespace "+k.namespace+", and the cluster has no such Node", "ortet nodes shows those that it has, and why other machines never joined")
	}
	return keptBoot{}, refuse("BootNotFound", "node "+name, "no boot of it is kept in namespace "+k.namespace+", nor is one on its Node",
		"the node has to run `ortet-node report --annotate` when it has booted, and the cluster `ortet controller`, which keeps what it says; `ortet boot analyze` shows it from files of the machine")
}

// notKeptError means that no boot of a pool is kept.
type notKeptError struct{ error }

func (e notKeptError) Unwrap() error { return e.error }

// The words for image versions of a pool by when they last booted.
const (
	latestVersion   = "latest"
	previousVersion = "previous"
)

// pool returns the boots of a pool, or of one image version of it.
func (k *keptBoots) pool(ctx context.Context, name, version string) ([]keptBoot, error) {
	list, err := k.of(ctx, assess.BootPoolLabel, name)
	if err != nil || version == "" && len(list) > 0 {
		return list, err
	}
	if len(list) == 0 {
		return nil, notKeptError{refuse(poolNotFound, "pool "+name, "no boot is kept of pool "+name+" in namespace "+k.namespace, "ortet status shows the pools; nodes have to run `ortet-node report --annotate`, and the cluster `ortet controller`, which keeps what they say")}
	}
	var versions []string // the last used first
	for _, b := range slices.Backward(list) {
		if v := b.record.ImageVersion(); !slices.Contains(versions, v) {
			versions = append(versions, v)
		}
	}
	switch {
	case version == latestVersion:
		version = versions[0]
	case version == previousVersion && len(versions) > 1:
		version = versions[1]
	}
	list = slices.DeleteFunc(list, func(b keptBoot) bool { return !strings.EqualFold(b.record.ImageVersion(), version) })
	if len(list) == 0 {
		return nil, refuse("VersionNotFound", "pool "+name, "no boot of image version "+version+" is kept; there are "+strings.Join(versions, ", "), "name one of these")
	}
	return list, nil
}

// choice is what a person names: a node, a pool, or POOL@VERSION.
type choice struct {
	What  string   `json:"what"` // in words
	Pool  string   `json:"pool,omitempty"`
	Image []string `json:"imageVersions,omitempty"`
	boots []keptBoot
}

// choose finds what is named. A node goes by its last boot.
func (k *keptBoots) choose(ctx context.Context, name string, nodes bool) (choice, error) {
	pool, version, is := strings.Cut(name, "@")
	if strings.HasPrefix(name, "/") {
		if err := checkPool(pool); err != nil {
			return choice{}, err
		}
		pool = strings.TrimRight(pool, "/")
		nodes = false
	}
	if is && (pool == "" || version == "") {
		return choice{}, usagef("%q: want a node, POOL or POOL@VERSION", name)
	}
	c := choice{What: name}
	if !is && nodes {
		b, err := k.of(ctx, assess.BootNodeLabel, name)
		if err != nil {
			return choice{}, err
		}
		if len(b) > 0 {
			c.What, c.boots = "node "+b[len(b)-1].record.Node, b[len(b)-1:]
		}
	}
	if c.boots == nil {
		b, err := k.pool(ctx, pool, version)
		switch {
		case err == nil:
			c.What, c.Pool, c.boots = "pool "+pool, pool, b
		case is || !nodes || !errors.As(err, new(notKeptError)):
			return choice{}, err
		default: // it may be a Node whose boot nobody has kept yet
			b, err := k.node(ctx, name, "")
			if err != nil {
				return choice{}, fmt.Errorf("%s is no node or pool of which a boot is kept in namespace %s: %w", name, k.namespace, err)
			}
			c.What, c.boots = "node "+b.record.Node, []keptBoot{b}
		}
	}
	images := map[string]bool{}
	for _, b := range c.boots {
		images[first(b.record.ImageVersion(), "unknown")] = true
	}
	c.Image = slices.Sorted(maps.Keys(images))
	if is {
		c.What += " with image version " + strings.Join(c.Image, ", ")
	}
	return c, nil
}

// timelines are those of a choice's boots, as far as they are compared.
func (c choice) timelines() []timeline.Timeline {
	out := make([]timeline.Timeline, 0, len(c.boots))
	for _, b := range c.boots {
		t := b.timeline()
		t.Spans, t.Advice, t.Clocks = nil, nil, nil // they are most of it
		out = append(out, t)
	}
	return out
}

// tellUnread says what is kept and could not be read.
func (o *options) tellUnread(k *keptBoots) {
	for _, n := range k.notes {
		paragraph(o.process.Err, columnsOf(o.process.Err), "note: ", "  ", n)
	}
}
