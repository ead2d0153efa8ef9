package rollback

import (
	"context"
	"fmt"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
)

// codeOtherKind is the problem of a version that the model's machines cannot boot.
const codeOtherKind = "OtherKind"

// boots refuses a version of another definition than the model names, if the model's size or security
// type does not fit. That sizes cannot be read is no reason to refuse: listing them needs a right on the subscription.
func (r *rollback) boots(ctx context.Context, d *plan.Problems, pool fleet.Pool) {
	definition := plan.FindDefinition(r.definitions, r.s.To.Parent())
	if definition == nil || definition.ID.Equal(plan.NamedDefinition(pool.ID, pool.Model.Image)) {
		return
	}
	var sizes []fleet.SizeInfo
	known, err := r.Cloud.Sizes(ctx, pool.ID.Segment("subscriptions"), pool.Location, pool.NewSizes()...)
	if err != nil {
		r.Log.Debug("cannot read what VM sizes can do", "sizes", pool.NewSizes(), "error", err)
	}
	for _, name := range pool.NewSizes() {
		if size, is := known[strings.ToLower(name)]; is {
			sizes = append(sizes, size)
		}
	}
	what, why := plan.CannotBoot(*definition, pool, sizes)
	d.Refuse(what != "", codeOtherKind, string(pool.ID),
		fmt.Sprintf("version %s of %s does not boot with the model's %s: %s", r.s.To.Name(), definition.ID.Name(), what, why),
		"change the model's size and security type back first (az vmss update), or name another target: --to VERSION, or --to "+plan.ToOriginal)
}
