package cli

import (
	"github.com/spf13/cobra"
)

func newBootShow(o *options) *cobra.Command {
	var f drawFlags
	c := &cobra.Command{
		Use:   "show NODE",
		Short: "Show the timeline of a node's last boot",
		Long: `show prints the duration of a node's boot, its critical path with its waits, and
what would make such boots faster. It reads the report that ortet controller
stored, or else the one on the Node.

-o html writes a self-contained page, -o svg a picture, -o json all data
(docs/schema/timeline.json).`,
		Args: oneNode("a node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			kept, err := o.keptBoots(cmd.Context())
			if err != nil {
				return err
			}
			b, err := kept.Node(cmd.Context(), args[0], f.boot)
			o.tellUnread(kept)
			if err != nil {
				return err
			}
			return o.draw(cmd.Context(), f, b.Timeline())
		},
	}
	f.add(c, "boot `ID` or its prefix (default: the last boot)")
	o.takesForms(c, "html", "svg")
	return c
}
