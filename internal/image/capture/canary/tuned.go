package canary

import (
	"context"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/prove"
)

// tunings names those of the version, after what comes before; "" without any.
func (v Version) tunings(before string) string {
	if len(v.Tuned) == 0 {
		return ""
	}
	return before + strings.Join(v.Tuned, ", ")
}

// readDonor reads the donor's boot while the donor is there, again as long as a part is not known: its
// report may be minutes behind its Node. It notes once what clones cannot be compared with.
func (c *Canary) readDonor(ctx context.Context) {
	var b prove.Boot
	was := c.Outcome.Get().DonorBoot
	if was != nil {
		b = *was
	}
	if n, err := c.Cluster.Node(ctx, c.Of().Tags[fleet.TagBuiltFrom]); !b.Known() && err == nil && c.Boot != nil {
		b = b.Or(c.Boot(ctx, n))
	}
	c.Outcome.Set(func(o *Outcome) { o.DonorBoot = &b })
	if was == nil && !b.Known() {
		clone := prove.Boot{HostKeys: []string{}, Failed: []string{}}
		c.Note("not all SSH host keys and failed units of clones will be checked: %s", prove.Unseen(clone, b))
	}
}

// readBoots reads what is not known yet of the boots of clones that were Ready for long enough.
func (c *Canary) readBoots(ctx context.Context, o prove.Observation) {
	for i, x := range o.Clones {
		b := c.judging.boots[x.Instance.Name]
		ready := x.Node != nil && x.Node.Ready && o.Now.Sub(x.Node.ReadySince) >= o.Soak
		if len(c.Of().Tuned) > 0 && ready && !b.Known() && c.Boot != nil {
			b = b.Or(c.Boot(ctx, *x.Node))
			c.judging.boots[x.Instance.Name] = b
		}
		o.Clones[i].Boot = b
	}
}
