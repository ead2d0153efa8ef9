package cli

import (
	"context"
	"iter"

	"github.com/ortet/ortet/internal/fleet"
)

// nodeList is a cluster with these Nodes.
type nodeList []fleet.Node

func (l nodeList) Nodes(context.Context) iter.Seq2[fleet.Node, error] {
	return func(yield func(fleet.Node, error) bool) {
		for _, n := range l {
			if !yield(n, nil) {
				return
			}
		}
	}
}

func (l nodeList) Node(_ context.Context, name string) (fleet.Node, error) {
	for _, n := range l {
		if n.Name == name {
			return n, nil
		}
	}
	return fleet.Node{}, &fleet.Error{Op: "read node", Kind: fleet.KindNotFound}
}

// providerNodes are Nodes with these provider ids.
func providerNodes(ids ...string) (l nodeList) {
	for i, id := range ids {
		l = append(l, fleet.Node{Name: string(rune('a' + i)), ProviderID: id})
	}
	return l
}

// recordList are the ConfigMaps of Ortet's namespace.
type recordList []fleet.Record

func (l recordList) Records(_ context.Context, labels map[string]string) iter.Seq2[fleet.Record, error] {
	return func(yield func(fleet.Record, error) bool) {
		for _, r := range l {
			is := true
			for k, v := range labels {
				is = is && r.Labels[k] == v
			}
			if is && !yield(r, nil) {
				return
			}
		}
	}
}
