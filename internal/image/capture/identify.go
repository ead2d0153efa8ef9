package capture

import (
	"context"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

// unmatchedFor is how long a Node without an instance is not looked for again: a cluster
// may have machines elsewhere, and a canary lists its Nodes every few seconds.
const unmatchedFor = 30 * time.Second

// Identify returns the cluster with a provider id of Azure on each Node that is a member
// of a scale set: Nodes with none, or one of k3s or RKE2, are matched as azure.Places says,
// and have Unmatched otherwise. sets lists the candidates. No Node is changed.
func Identify(c cluster.Cluster, reader azure.Reader, sets func(context.Context) ([]fleet.ResourceID, error),
	now func() time.Time) cluster.Cluster {
	return &identified{Cluster: c, reader: reader, sets: sets, now: now}
}

type identified struct {
	cluster.Cluster
	reader azure.Reader
	sets   func(context.Context) ([]fleet.ResourceID, error)
	now    func() time.Time

	known sync.Map // of match, by nodeKey
}

// A nodeKey is all that a match goes by, and the Node's UID: names are used again.
type nodeKey struct{ name, uid, systemUUID string }

type match struct {
	instance fleet.ResourceID // "" with err
	err      error
	at       time.Time
}

func foreign(n fleet.Node) bool { return !strings.HasPrefix(n.ProviderID, "azure://") }

func (c *identified) Node(ctx context.Context, name string) (fleet.Node, error) {
	n, err := c.Cluster.Node(ctx, name)
	if err == nil && foreign(n) {
		c.identify(ctx, &azure.Places{Reader: c.reader, Sets: c.sets}, &n)
	}
	return n, err
}

func (c *identified) Nodes(ctx context.Context) iter.Seq2[fleet.Node, error] {
	return func(yield func(fleet.Node, error) bool) {
		places := azure.Places{Reader: c.reader, Sets: c.sets}
		for n, err := range c.Cluster.Nodes(ctx) {
			if err == nil && foreign(n) {
				c.identify(ctx, &places, &n)
			}
			if !yield(n, err) || err != nil {
				return
			}
		}
	}
}

// identify matches a Node, unless what is known of it still counts.
func (c *identified) identify(ctx context.Context, places *azure.Places, n *fleet.Node) {
	key := nodeKey{n.Name, n.UID, n.SystemUUID}
	was, known := c.known.Load(key)
	m, _ := was.(match)
	if !known || m.err != nil && c.now().Sub(m.at) >= unmatchedFor {
		place, err := places.Of(ctx, *n)
		m = match{place.Instance, err, c.now()}
		c.known.Store(key, m)
	}
	if n.Unmatched = m.err; m.err == nil {
		n.ProviderID = "azure://" + string(m.instance)
	}
}
