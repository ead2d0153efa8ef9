package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/internal/fleet"
)

func newStatus(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "status [SCALE-SET-ID ...]",
		Short: "Show versions, models and what instances were made from",
		Long: `status shows, for each pool, its image versions, what each was built from and
when, which one the model uses, and what every instance was made from. Without
an argument it shows all pools that the cluster's nodes are in.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var pools []fleet.ResourceID
			for _, a := range args {
				if !strings.HasPrefix(a, "/subscriptions/") {
					return usagef("%q is not the ARM id of a scale set (/subscriptions/…)", a)
				}
				pools = append(pools, fleet.ResourceID(a))
			}
			e, err := o.connect(cmd.Context(), nil, defaultImage, "")
			if err != nil {
				return err
			}
			all, err := e.Status(cmd.Context(), pools)
			if err != nil {
				return err
			}
			return o.print(all, func(w io.Writer) {
				if len(all) == 0 {
					fmt.Fprintln(w, "No node of this cluster is an instance of a Uniform scale set.")
				}
				for i, s := range all {
					if i > 0 {
						fmt.Fprintln(w)
					}
					writeStatus(w, s)
				}
			})
		},
	}
}

func writeStatus(w io.Writer, s engine.PoolStatus) {
	fmt.Fprintf(w, "%s  %s, %s, %d instance(s)\n", s.Pool.Name, s.Pool.Location, s.Pool.Size, len(s.Instances))
	if s.Problem != "" {
		fmt.Fprintf(w, "  could not read all: %s\n", s.Problem)
	}
	if c := s.Capture; c != nil {
		writeLast(w, c)
	}
	model := ""
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(s.Versions) > 0 {
		fmt.Fprintln(t, "  VERSION\tSTATE\tBUILT FROM\tBUILT\tNODES\tMODEL")
		for _, v := range s.Versions {
			built := "-"
			if !v.BuiltAt.IsZero() {
				built = v.BuiltAt.UTC().Format("2006-01-02 15:04")
			}
			mark := ""
			if v.InModel {
				mark, model = "*", v.Name
			}
			state := v.ProvisioningState
			if v.RolledBack {
				state = "RolledBack"
			}
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%d\t%s\n", v.Name, state, dash(v.BuiltFrom), built, v.Instances, mark)
		}
		_ = t.Flush()
	} else {
		fmt.Fprintln(w, "  no prototype yet")
	}
	if model == "" {
		fmt.Fprintf(w, "  the model uses %s\n", imageText(s.Pool.Model.Image))
	}
	if len(s.Instances) > 0 {
		fmt.Fprintln(t, "  INSTANCE\tNODE\tPOWER\tMADE FROM\tLATEST MODEL")
		for _, i := range s.Instances {
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\n", i.InstanceID, strings.ToLower(i.HostName), dash(string(i.Power)), dash(i.Image), yes(i.LatestModel))
		}
		_ = t.Flush()
	}
}

func writeLast(w io.Writer, c *engine.CaptureStatus) {
	what := c.Kind
	if c.Donor != "" {
		what += " of " + c.Donor
	}
	begun := c.Begun.UTC().Format("2006-01-02 15:04:05")
	switch {
	case c.Ended == nil:
		fmt.Fprintf(w, "  %s, begun %s, runs or can be resumed\n", what, begun)
		list(w, "  still to be put back", c.Undo)
	case c.Ended.Exit == 0:
		fmt.Fprintf(w, "  last: %s, begun %s, took %s\n", what, begun, duration(c.Ended.At.Sub(c.Begun)))
	default:
		fmt.Fprintf(w, "  last: %s, begun %s, ended with %d: %s\n", what, begun, c.Ended.Exit, c.Ended.Message)
		list(w, "  still to be put back", c.Undo)
	}
}

func imageText(i fleet.ImageReference) string {
	if i.ID != "" {
		return string(i.ID)
	}
	return strings.Join([]string{i.Publisher, i.Offer, i.SKU, i.Version}, ":")
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// duration is short and never finer than a tenth of a second.
func duration(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}
