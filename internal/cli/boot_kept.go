package cli

import (
	"context"
	"strings"

	"github.com/ortet/ortet/internal/boots/survey"
)

// keptBoots connects with the cluster alone.
func (o *options) keptBoots(ctx context.Context) (*survey.KeptBoots, error) {
	c, err := o.openCluster(ctx)
	if err != nil {
		return nil, err
	}
	return &survey.KeptBoots{Records: c, Nodes: c, Namespace: o.namespace}, nil
}

// chooseBoots finds the boots that an argument names: of a node if nodes, POOL or POOL@VERSION.
func chooseBoots(ctx context.Context, kept *survey.KeptBoots, name string, nodes bool) (survey.Choice, error) {
	pool, version, is := strings.Cut(name, "@")
	if strings.HasPrefix(name, "/") {
		if err := checkPool(pool); err != nil {
			return survey.Choice{}, err
		}
	}
	if is && (pool == "" || version == "") {
		return survey.Choice{}, usagef("%q: want a node, POOL or POOL@VERSION", name)
	}
	return kept.Choose(ctx, name, nodes)
}

// tellUnread says what is kept and could not be read.
func (o *options) tellUnread(k *survey.KeptBoots) {
	for _, n := range k.Notes {
		o.note(n)
	}
}
