package cli

import (
	"github.com/spf13/cobra"
)

func newBootShow(o *options) *cobra.Command {
	var f drawFlags
	c := &cobra.Command{
		Use:   "show NODE",
		Short: "Show where the time of a node's last boot went",
		Long: `show tells of a node's boot how long it took, what its critical path was, with what
was waited for, and what would make such boots faster. It shows what ortet
controller keeps, or what is on the Node where nobody has kept it yet.

-o html is a page for a browser that needs nothing else, -o svg a picture, -o json
the whole (docs/schema/timeline.json).`,
		Args: oneArgument("a node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			kept, err := o.keptBoots(cmd.Context())
			if err != nil {
				return err
			}
			b, err := kept.node(cmd.Context(), args[0], f.boot)
			o.tellUnread(kept)
			if err != nil {
				return err
			}
			return o.draw(cmd.Context(), f, b.timeline())
		},
	}
	f.add(c, "id of the boot, or its beginning, instead of the last one")
	o.takesForms(c, "html", "svg")
	return c
}
