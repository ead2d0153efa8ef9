package cli

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
)

func newVersions(o *options) *cobra.Command {
	var named []string
	c := &cobra.Command{
		Use:   "versions [POOL ...]",
		Short: "List the image versions of pools, with their ids",
		Long: `versions lists the image versions that captures made of each pool, newest first: source
node, age, number of nodes made from each, state. Below them stands the id of the image
definition; a pool that changed its kind has several, that of its newest version first. The id
of a version is that, /versions/ and its name; -o name prints it, and -o json has both.

Without an argument it lists those of all pools that the cluster's nodes belong to. A
POOL is a scale set's name or ARM id.`,
		Example: `  ortet versions k8s-pool1-12345678-vmss
  ortet versions k8s-pool1-12345678-vmss -o name | head -1`,
		Annotations: map[string]string{takesArguments: "true"},
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.showStatus(cmd.Context(), args, named, versionsOf, func(w io.Writer, s capture.PoolStatus, now time.Time) {
				fmt.Fprintln(w, s.Pool.Name)
				writeVersions(w, s, now)
				for _, id := range definitionsOf(s) {
					fmt.Fprintln(w, "  "+string(id)) // in one piece, to be copied
				}
			})
		},
	}
	o.takesForms(c, nameForm)
	groupsFlag(c.Flags(), &named)
	c.AddCommand(newVersionsDiff(o), newVersionsSBOM(o))
	return c
}

// definitionsOf are the image definitions of a pool's versions, that of the newest first.
func definitionsOf(s capture.PoolStatus) (ids []fleet.ResourceID) {
	for _, v := range s.Versions {
		if id := v.ID.Parent(); !slices.ContainsFunc(ids, id.Equal) {
			ids = append(ids, id)
		}
	}
	return ids
}

// poolVersions are the versions of one pool.
type poolVersions struct {
	Pool       fleet.ResourceID        `json:"pool"`
	Definition fleet.ResourceID        `json:"definition"`
	Versions   []capture.VersionStatus `json:"versions"` // [] for none
}

func versionsOf(all []capture.PoolStatus) (_ any, ids []string) {
	list := make([]poolVersions, 0, len(all))
	for _, s := range all {
		list = append(list, poolVersions{s.Pool.ID, s.Definition, append([]capture.VersionStatus{}, s.Versions...)})
		for _, v := range s.Versions {
			ids = append(ids, string(v.ID))
		}
	}
	return list, ids
}
