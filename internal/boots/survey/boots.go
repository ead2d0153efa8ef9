package survey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// A KeptBoot is a boot that a controller keeps.
type KeptBoot struct {
	Record assess.BootRecord
	Report wire.BootReport
}

// Timeline is made of the report and what Azure and the cluster know of the boot.
func (k KeptBoot) Timeline() timeline.Timeline {
	t := timeline.Build(k.Report, k.Record.Cloud())
	t.Node = cmp.Or(k.Record.Node, t.Node)
	return t
}

// KeptBoots are the boots that a controller keeps.
type KeptBoots struct {
	Records   cluster.Records
	Nodes     Nodes
	Namespace string   // of Records
	Notes     []string // what was there and could not be read
}

// Of returns the boots with a label, the newest last.
func (k *KeptBoots) Of(ctx context.Context, label, name string) ([]KeptBoot, error) {
	var out []KeptBoot
	selector := map[string]string{assess.BootLabel: assess.BootValue, label: assess.LabelText(fleet.ResourceID(name).Name())}
	for r, err := range k.Records.Records(ctx, selector) {
		if err != nil {
			return nil, fmt.Errorf("list the boots that are kept in namespace %s: %w", k.Namespace, err)
		}
		record, report, err := assess.ReadBoot(r)
		if err != nil {
			k.Notes = append(k.Notes, err.Error())
			continue
		}
		if label == assess.BootNodeLabel && strings.EqualFold(record.Node, name) || label == assess.BootPoolLabel && (strings.EqualFold(record.Pool.Name(), name) || record.Pool.Equal(fleet.ResourceID(name))) {
			out = append(out, KeptBoot{record, report})
		}
	}
	slices.SortStableFunc(out, func(a, b KeptBoot) int { return a.Record.Stored.Compare(b.Record.Stored) })
	return out, nil
}

// Node returns the boot of a node: the one that is named, by its id or the beginning of
// it, or the last. What no controller has kept yet is on the Node.
func (k *KeptBoots) Node(ctx context.Context, name, boot string) (KeptBoot, error) {
	list, err := k.Of(ctx, assess.BootNodeLabel, name)
	if err != nil {
		return KeptBoot{}, err
	}
	wanted := func(b KeptBoot) bool {
		return strings.HasPrefix(strings.ToLower(b.Report.BootID), strings.ToLower(boot))
	}
	for _, b := range slices.Backward(list) {
		if wanted(b) {
			return b, nil
		}
	}
	var unread error
	n, err := k.Nodes.Node(ctx, strings.ToLower(name))
	if err == nil {
		var b KeptBoot
		var has bool
		if b.Record, b.Report, has, err = assess.BootOf(n); has && err == nil && wanted(b) {
			return b, nil
		}
		unread = err
	} else if !fleet.Is(err, fleet.KindNotFound) {
		unread = fmt.Errorf("read Node %s: %w", name, err)
	}
	switch {
	case unread != nil:
		return KeptBoot{}, unread
	case len(list) > 0:
		var ids []string
		for _, b := range list {
			ids = append(ids, b.Report.BootID)
		}
		return KeptBoot{}, refuse("BootNotFound", "node "+name, "no boot "+boot+" is kept; there are "+strings.Join(ids, ", "), "name one of these with --boot")
	case err != nil:
		return KeptBoot{}, refuse(NodeNotFound, "node "+name, "no boot of "+name+" is kept in namespace "+k.Namespace+", and the cluster has no such Node", "ortet nodes shows those that it has, and why other machines never joined")
	}
	return KeptBoot{}, refuse("BootNotFound", "node "+name, "no boot of it is kept in namespace "+k.Namespace+", nor is one on its Node",
		"the node has to run `ortet-node report --annotate` when it has booted, and the cluster `ortet controller`, which keeps what it says; `ortet boot analyze` shows it from files of the machine")
}

// notKeptError means that no boot of a pool is kept.
type notKeptError struct{ error }

func (e notKeptError) Unwrap() error { return e.error }

// The words for image versions of a pool by when they last booted.
const (
	LatestVersion   = "latest"
	PreviousVersion = "previous"
)

// Pool returns the boots of a pool, or of one image version of it.
func (k *KeptBoots) Pool(ctx context.Context, name, version string) ([]KeptBoot, error) {
	list, err := k.Of(ctx, assess.BootPoolLabel, name)
	if err != nil || version == "" && len(list) > 0 {
		return list, err
	}
	if len(list) == 0 {
		return nil, notKeptError{refuse(PoolNotFound, "pool "+name, "no boot is kept of pool "+name+" in namespace "+k.Namespace, "ortet status shows the pools; nodes have to run `ortet-node report --annotate`, and the cluster `ortet controller`, which keeps what they say")}
	}
	var versions []string // the last used first
	for _, b := range slices.Backward(list) {
		if v := b.Record.ImageVersion(); !slices.Contains(versions, v) {
			versions = append(versions, v)
		}
	}
	switch {
	case version == LatestVersion:
		version = versions[0]
	case version == PreviousVersion && len(versions) > 1:
		version = versions[1]
	}
	list = slices.DeleteFunc(list, func(b KeptBoot) bool { return !strings.EqualFold(b.Record.ImageVersion(), version) })
	if len(list) == 0 {
		return nil, refuse("VersionNotFound", "pool "+name, "no boot of image version "+version+" is kept; there are "+strings.Join(versions, ", "), "name one of these")
	}
	return list, nil
}

// A Choice is what a person names: a node, a pool, or POOL@VERSION.
type Choice struct {
	What  string     `json:"what"` // in words
	Pool  string     `json:"pool,omitempty"`
	Image []string   `json:"imageVersions,omitempty"`
	Boots []KeptBoot `json:"-"`
}

// Choose finds what is named: a node if nodes, POOL or POOL@VERSION. A node goes by its last boot.
func (k *KeptBoots) Choose(ctx context.Context, name string, nodes bool) (Choice, error) {
	pool, version, is := strings.Cut(name, "@")
	if strings.HasPrefix(name, "/") {
		pool = strings.TrimRight(pool, "/")
		nodes = false
	}
	c := Choice{What: name}
	if !is && nodes {
		b, err := k.Of(ctx, assess.BootNodeLabel, name)
		if err != nil {
			return Choice{}, err
		}
		if len(b) > 0 {
			c.What, c.Boots = "node "+b[len(b)-1].Record.Node, b[len(b)-1:]
		}
	}
	if c.Boots == nil {
		b, err := k.Pool(ctx, pool, version)
		switch {
		case err == nil:
			c.What, c.Pool, c.Boots = "pool "+pool, pool, b
		case is || !nodes || !errors.As(err, new(notKeptError)):
			return Choice{}, err
		default: // it may be a Node whose boot nobody has kept yet
			b, err := k.Node(ctx, name, "")
			if err != nil {
				return Choice{}, fmt.Errorf("%s is no node or pool of which a boot is kept in namespace %s: %w", name, k.Namespace, err)
			}
			c.What, c.Boots = "node "+b.Record.Node, []KeptBoot{b}
		}
	}
	images := map[string]bool{}
	for _, b := range c.Boots {
		images[cmp.Or(b.Record.ImageVersion(), "unknown")] = true
	}
	c.Image = slices.Sorted(maps.Keys(images))
	if is {
		c.What += " with image version " + strings.Join(c.Image, ", ")
	}
	return c, nil
}

// Timelines are those of a Choice's boots, as far as they are compared.
func (c Choice) Timelines() []timeline.Timeline {
	out := make([]timeline.Timeline, 0, len(c.Boots))
	for _, b := range c.Boots {
		t := b.Timeline()
		t.Spans, t.Advice, t.Clocks = nil, nil, nil // they are most of it
		out = append(out, t)
	}
	return out
}
