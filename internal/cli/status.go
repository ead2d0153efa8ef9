package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/workflow"
)

func newStatus(o *options) *cobra.Command {
	var named []string
	c := &cobra.Command{
		Use:   "status [POOL ...]",
		Short: "Show image versions, models and the image of each instance",
		Long: `status shows for each pool:

  - its image versions: source node, age, number of nodes made from each
  - the version that the model uses, from which new nodes boot
  - the image of each instance
  - the last capture or rollback, or the current one

Without an argument it shows all pools that the cluster's nodes belong to. A POOL is
a scale set's name or ARM id.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.showStatus(cmd.Context(), args, named, statusOf, writeStatus)
		},
	}
	o.takesForms(c, nameForm)
	groupsFlag(c.Flags(), &named)
	return c
}

// A poolResult is what status makes of pools for other forms than a table: all as JSON or
// YAML, and names.
type poolResult func(all []capture.PoolStatus) (result any, names []string)

func statusOf(all []capture.PoolStatus) (any, []string) {
	var ids []string
	for _, s := range all {
		if !s.Gone {
			ids = append(ids, string(s.Pool.ID))
		}
	}
	return all, ids
}

type poolWriter func(w io.Writer, s capture.PoolStatus, now time.Time)

// showStatus reads the status of the pools, of all if none is named, and shows each by write, or
// what result makes of them.
func (o *options) showStatus(ctx context.Context, args, named []string, result poolResult, write poolWriter) error {
	if len(args) == 0 && len(named) > 0 {
		return usagef("--resource-group says where a POOL is found by its name, and no POOL is given: name one")
	}
	for _, a := range args {
		if err := checkPool(a); err != nil {
			return err
		}
	}
	c, err := o.open(ctx, work{})
	if err != nil {
		return err
	}
	find, err := c.finder(o, named)
	if err != nil {
		return err
	}
	var pools []fleet.ResourceID
	for _, a := range args {
		id, err := find.ToRead(ctx, a)
		if err != nil {
			return err
		}
		pools = append(pools, id)
	}
	service := c.services(nil)
	all, err := service.Status(ctx, pools)
	if err != nil {
		return err
	}
	var gone []fleet.ResourceID
	if len(args) == 0 {
		for _, s := range all {
			if s.Gone {
				gone = append(gone, s.Pool.ID)
			}
		}
		return cmp.Or(o.printStatus(all, result, time.Now(), write, gone...), o.noteOrphans(ctx, service.Cluster, gone))
	}
	err = o.printStatus(all, result, time.Now(), write)
	for _, s := range all {
		if s.Gone {
			gone = append(gone, s.Pool.ID)
		} else if s.Problem != "" {
			return err
		}
	}
	return cmp.Or(refuseGone(gone...), err)
}

// noteOrphans names the Nodes of scale sets that Azure does not have. A kubelet reports its
// own provider id, so they are no failure.
func (o *options) noteOrphans(ctx context.Context, nodes cluster.Nodes, gone []fleet.ResourceID) error {
	if len(gone) == 0 {
		return nil
	}
	for n, err := range nodes.Nodes(ctx) {
		if err != nil {
			return err
		}
		id, err := fleet.ParseMachine(n.ProviderID)
		if pool := id.UniformPool(); err == nil && slices.ContainsFunc(gone, pool.Equal) {
			o.note(fmt.Sprintf("node %s reports scale set %s, which does not exist; if its machine is deleted: kubectl delete node %[1]s", n.Name, pool))
		}
	}
	return nil
}

// printStatus shows the pools as far as they could be read, and is an error where that
// is not all, but for those that are known to be gone.
func (o *options) printStatus(all []capture.PoolStatus, form poolResult, now time.Time, write poolWriter, gone ...fleet.ResourceID) error {
	var unread []error
	for _, s := range all {
		if s.Problem != "" && !slices.ContainsFunc(gone, s.Pool.ID.Equal) {
			unread = append(unread, fmt.Errorf("cannot read all of scale set %s: %s", s.Pool.ID, s.Problem))
		}
	}
	result, names := form(all)
	err := o.printNames(result, names, func(w io.Writer) {
		if len(all) == 0 {
			fmt.Fprintln(w, "No node of this cluster is known to be an instance of a scale set.")
		}
		shown := 0
		for _, s := range all {
			if s.Unread {
				continue
			}
			if shown++; shown > 1 {
				fmt.Fprintln(w)
			}
			write(w, s, now)
		}
	})
	return errors.Join(append(unread, err)...)
}

func writeStatus(w io.Writer, s capture.PoolStatus, now time.Time) {
	say(w, "%s: %s, %s, %s", s.Pool.Name, s.Pool.Location, strings.Join(s.Pool.NewSizes(), " or "), fleet.Count(len(s.Instances), "instance"))
	if s.Problem != "" {
		paragraph(w, resultWidth, "  ", "    ", "could not read all: "+s.Problem)
	}
	if s.Elsewhere != "" {
		paragraph(w, resultWidth, "  ", "    ", s.Elsewhere)
	}
	if c := s.Capture; c != nil {
		writeLast(w, c)
	}
	if c := s.Canary; c != nil {
		expires, at := "expires ", c.Expires.UTC().Format("2006-01-02 15:04:05")
		if c.Obsolete {
			expires, at = "expired ", at+", and no open capture deletes it: az vmss delete --ids "+string(c.ID)
		}
		paragraph(w, resultWidth, "  ", "    ", fmt.Sprintf("canary: %s, %s, of %s, %s", c.ID.Name(),
			fleet.Count(int(c.Instances), "instance"), dash(c.Capture), expires+at))
	}
	for _, f := range s.Fresh {
		text := fmt.Sprintf("fresh donor: %s, instance %s, of %s", dash(f.Node), f.Instance, f.Capture)
		if f.Delete != "" {
			text += "; to delete it: " + f.Delete
		}
		paragraph(w, resultWidth, "  ", "    ", text)
	}
	if s.Standby != "" {
		paragraph(w, resultWidth, "  ", "    ", s.Standby)
	}
	if of, _, is := s.Pool.Canary(); is {
		paragraph(w, resultWidth, "  ", "    ", "a canary: a capture of "+of.Name()+" made it, and deletes it; see ortet status "+of.Name())
	}
	writeVersions(w, s, now)
	switch {
	case !slices.ContainsFunc(s.Versions, func(v capture.VersionStatus) bool { return v.InModel }):
		paragraph(w, resultWidth, "  ", "    ", "new nodes come from "+imageText(s.Pool.Model.Image))
	case s.Pool.Model.Image.LatestOf() != "":
		paragraph(w, resultWidth, "  ", "    ", "the model refers to "+imageText(s.Pool.Model.Image)+": new nodes come from its latest version")
	}
	if len(s.Instances) > 0 {
		rows := [][]string{{"ID", "NODE", "MADE FROM", "LATEST"}}
		var off []string
		for _, i := range s.Instances {
			node := strings.ToLower(i.HostName)
			if i.Power != fleet.PowerRunning {
				off = append(off, node+" ("+first(string(i.Power), "power state unknown")+")")
			}
			rows = append(rows, []string{i.InstanceID, node, dash(shortImage(i.Image)), yes(i.LatestModel)})
		}
		writeIndented(w, rows, 2)
		if len(off) > 0 {
			paragraph(w, resultWidth, "  ", "    ", "not running: "+strings.Join(off, ", "))
		}
		if len(s.Cordoned) > 0 {
			paragraph(w, resultWidth, "  ", "    ", "cordoned as a watch took their version back: "+strings.Join(s.Cordoned, ", ")+
				"; once they are good: kubectl uncordon "+strings.Join(s.Cordoned, " "))
		}
	}
}

func writeVersions(w io.Writer, s capture.PoolStatus, now time.Time) {
	if len(s.Versions) == 0 {
		fmt.Fprintln(w, "  no prototype yet")
		return
	}
	rows := [][]string{{"VERSION", "BUILT FROM", "AGE", "NODES", "STATE"}}
	tuned := make([]string, 1, len(s.Versions)+1)
	for _, v := range s.Versions {
		rows = append(rows, []string{v.Name, dash(v.BuiltFrom), age(v.BuiltAt, now), strconv.Itoa(v.Instances), versionState(v)})
		has := v.Tags[fleet.TagTuned]
		tuned = append(tuned, workflow.SkipIf(has != "", "tuned: "+strings.ReplaceAll(has, ",", " ")))
	}
	writeIndented(w, rows, 1, tuned...)
}

// writeIndented writes a table below a pool's line. Where its rows are too wide, the column beneath
// gets lines of its own: names are not cut, since commands take them. So do notes of rows.
func writeIndented(w io.Writer, rows [][]string, beneath int, notes ...string) {
	const indent = "  "
	texts, title := make([]string, len(rows)), strings.ToLower(rows[0][beneath])
	if len(indent)+total(rows) > resultWidth {
		for i, r := range rows {
			if i > 0 && r[beneath] != "-" {
				texts[i] = title + " " + r[beneath]
			}
			rows[i] = slices.Delete(r, beneath, beneath+1)
		}
	}
	wide := widths(rows)
	for i, r := range rows {
		fmt.Fprint(w, indent)
		writeColumns(w, [][]string{r}, wide)
		if texts[i] != "" {
			fmt.Fprintln(w, indent+indent+texts[i])
		}
		if i < len(notes) && notes[i] != "" {
			fmt.Fprintln(w, indent+indent+notes[i])
		}
	}
}

// versionState tells what is worth knowing of a version in a word or two.
func versionState(v capture.VersionStatus) string {
	state := ""
	switch {
	case v.ProvisioningState != plan.Succeeded:
		state = v.ProvisioningState
	case v.Tags[fleet.TagQuarantine] != "":
		gate, _, _ := strings.Cut(v.Tags[fleet.TagQuarantine], ":")
		state = "quarantined: " + gate
	case v.RolledBack:
		state = "rolled back"
	case v.Tags[fleet.TagProven] != "":
		state = "proven"
	case plan.IsUnjudged(v.ImageVersion):
		state = "not judged"
	case v.Tags[fleet.TagWatch] != "":
		state = "not proven yet"
	case v.Tags[fleet.TagCanary] != "":
		state = "clones came up"
	case plan.IsPublishedOnly(v.ImageVersion):
		state = "published only"
	case plan.NeverLive(v.ImageVersion) && !v.InModel:
		state = "never live"
	}
	if v.Tags[fleet.TagOnline] != "" {
		state = strings.TrimPrefix(state+", online", ", ")
	}
	if v.InModel {
		state = strings.TrimSuffix("in use, "+state, ", ")
	}
	return state
}

// age is how long ago something was, in one unit: "5m", "3h", "12d".
func age(at, now time.Time) string {
	d := now.Sub(at)
	switch {
	case at.IsZero():
		return "-"
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

func writeLast(w io.Writer, c *capture.RunStatus) {
	what := c.Kind
	if c.Donor != "" {
		what += " of " + c.Donor
	}
	what += ", begun " + c.Begun.UTC().Format("2006-01-02 15:04:05") + ", "
	switch {
	case c.Ended == nil:
		if len(c.Running) > 0 {
			what += "at step " + strings.Join(c.Running, ", ") + ", "
		}
		switch {
		case c.Holder != "":
			what += "runs as " + c.Holder
		case c.Resumes:
			what += "can be resumed"
		default: // the Lease cannot be read
			what += "runs or can be resumed"
		}
	case c.Ended.Exit == 0:
		what = "last: " + what + "took " + duration(c.Ended.At.Sub(c.Begun))
	default:
		what = "last: " + what + fmt.Sprintf("ended with %d: %s", c.Ended.Exit, c.Ended.Message)
	}
	paragraph(w, resultWidth, "  ", "    ", what)
	if len(c.Undo) > 0 && (c.Ended == nil || c.Ended.Exit != 0) {
		text := "still to undo, unless it is resumed: "
		if c.Holder != "" {
			text = "still to undo: "
		}
		text += strings.Join(c.Undo, ", ")
		if c.Why != "" {
			text += " (" + c.Why + ")"
		}
		paragraph(w, resultWidth, "  ", "    ", text)
	}
}

func imageText(i fleet.ImageReference) string {
	if i.ID != "" {
		return shortImage(string(i.ID))
	}
	return i.Text()
}

// shortImage leaves of an image's id the names: "gallery/definition/2026.11.21".
func shortImage(image string) string {
	id := fleet.ResourceID(image)
	var names []string
	for _, kind := range []string{"galleries", "images", "versions"} {
		if name := id.Segment(kind); name != "" {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return image
	}
	return strings.Join(names, "/")
}

func dash(s string) string { return first(s, "-") }

func first(s, otherwise string) string {
	if s == "" {
		return otherwise
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
