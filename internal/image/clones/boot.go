package clones

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/prove"
	"github.com/ortet/ortet/internal/wire"
)

// machine returns the id and the vmId of a Node's instance; "" for what is not known.
func machine(ctx context.Context, n fleet.Node, cloud azure.Cloud) (id fleet.ResourceID, vm string) {
	if id, err := n.Instance(); err == nil {
		if i, err := cloud.Instance(ctx, id); err == nil {
			return id, i.VMID
		}
	}
	return "", ""
}

// A Node may have stayed from an earlier machine of its name, so a report counts by its vmId.
func isOf(vm string, r wire.BootReport, err error) bool {
	return err == nil && strings.EqualFold(r.VMID, vm)
}

// stored yields the boot reports of a machine that a controller keeps, with when it stored them. What
// cannot be read is left out.
func stored(ctx context.Context, n fleet.Node, vm string, kept cluster.Records) iter.Seq2[time.Time, wire.BootReport] {
	return func(yield func(time.Time, wire.BootReport) bool) {
		labels := map[string]string{assess.BootLabel: assess.BootValue, assess.BootNodeLabel: assess.LabelText(n.Name)}
		for r, err := range kept.Records(ctx, labels) {
			if err != nil {
				return
			}
			if record, report, err := assess.ReadBoot(r); isOf(vm, report, err) && !yield(record.Stored, report) {
				return
			}
		}
	}
}

// Boot returns what is known of a machine's boot beside its Node: by the report on the Node, by those
// that a controller keeps, the last first, and else by the serial console. What cannot be read is not known.
func Boot(ctx context.Context, n fleet.Node, cloud azure.Cloud, consoles azure.Boots, kept cluster.Records) (b prove.Boot) {
	id, vm := machine(ctx, n, cloud)
	if vm == "" {
		return b
	}
	if _, r, has, err := assess.BootOf(n); has && isOf(vm, r, err) {
		b = prove.Reported(r)
	}
	if !b.Known() {
		var last time.Time
		var found prove.Boot
		for at, r := range stored(ctx, n, vm, kept) {
			if x := prove.Reported(r); x.Failed != nil && !at.Before(last) {
				last, found = at, x
			}
		}
		b = b.Or(found)
	}
	if !b.Known() {
		if log, err := consoles.SerialLog(ctx, id); err == nil {
			b = b.Or(prove.OnConsole(log))
		}
	}
	return b
}

// maxUserData limits what a Node may claim.
const maxUserData = 24 * time.Hour

// UserData returns how long user data took on a machine, by its own reports: of the boot that ran it, which
// is its first. 0 if none shows it.
func UserData(ctx context.Context, n fleet.Node, cloud azure.Cloud, kept cluster.Records) (took time.Duration) {
	_, vm := machine(ctx, n, cloud)
	if vm == "" {
		return 0
	}
	longest := func(r wire.BootReport) {
		if d := timeline.Build(r, timeline.Cloud{}).UserData; d >= timeline.ShortUserData && d.Duration() <= maxUserData {
			took = max(took, d.Duration())
		}
	}
	if _, r, has, err := assess.BootOf(n); has && isOf(vm, r, err) {
		longest(r)
	}
	for _, r := range stored(ctx, n, vm, kept) {
		longest(r)
	}
	return took
}
