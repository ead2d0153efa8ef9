package cli

import (
	"context"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/prove"
	"github.com/ortet/ortet/internal/wire"
)

// seenBoot returns what tells a machine's boot beside its Node: the report on the Node, the one that a
// controller keeps, and else the serial console. What cannot be read is not known, which the capture notes.
func seenBoot(kept interface {
	Record(ctx context.Context, name string) (fleet.Record, error)
}, boots azure.Boots, cloud azure.Cloud) func(context.Context, fleet.Node) prove.Boot {
	return func(ctx context.Context, n fleet.Node) (b prove.Boot) {
		if _, report, has, err := assess.BootOf(n); has && err == nil {
			b = prove.Reported(report)
		}
		id, err := n.Instance()
		if err != nil || b.Known() {
			return b
		}
		if i, err := cloud.Instance(ctx, id); err == nil {
			r, err := kept.Record(ctx, assess.BootName(n.Name, i.VMID, wire.BootReport{BootID: n.BootID}))
			if err == nil {
				if _, report, err := assess.ReadBoot(r); err == nil {
					b = b.Or(prove.Reported(report))
				}
			}
		}
		if !b.Known() {
			if log, err := boots.SerialLog(ctx, id); err == nil {
				b = b.Or(prove.OnConsole(log))
			}
		}
		return b
	}
}
