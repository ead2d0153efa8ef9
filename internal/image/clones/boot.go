package clones

import (
	"context"
	"strings"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/prove"
	"github.com/ortet/ortet/internal/wire"
)

// Boot returns what is known of a machine's boot beside its Node: by the report on the Node, by those
// that a controller keeps, the last first, and else by the serial console. A Node may have stayed from an
// earlier machine of its name, so a report counts by its vmId. What cannot be read is not known.
func Boot(ctx context.Context, n fleet.Node, cloud azure.Cloud, consoles azure.Boots, kept cluster.Records) (b prove.Boot) {
	id, err := n.Instance()
	if err != nil {
		return b
	}
	i, err := cloud.Instance(ctx, id)
	if err != nil || i.VMID == "" {
		return b
	}
	of := func(report wire.BootReport, err error) prove.Boot {
		if err != nil || !strings.EqualFold(report.VMID, i.VMID) {
			return prove.Boot{}
		}
		return prove.Reported(report)
	}
	if _, report, has, err := assess.BootOf(n); has {
		b = of(report, err)
	}
	if !b.Known() {
		var last assess.BootRecord
		var stored prove.Boot
		labels := map[string]string{assess.BootLabel: assess.BootValue, assess.BootNodeLabel: assess.LabelText(n.Name)}
		for r, err := range kept.Records(ctx, labels) {
			if err != nil {
				break
			}
			record, report, err := assess.ReadBoot(r)
			if x := of(report, err); x.Failed != nil && !record.Stored.Before(last.Stored) {
				last, stored = record, x
			}
		}
		b = b.Or(stored)
	}
	if !b.Known() {
		if log, err := consoles.SerialLog(ctx, id); err == nil {
			b = b.Or(prove.OnConsole(log))
		}
	}
	return b
}
