package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/auto"
	"github.com/ortet/ortet/internal/operator/export"
)

func newOperatorExport(o *options) *cobra.Command {
	var groups []string
	c := &cobra.Command{
		Use:   "export VALUES|-",
		Short: "Print ScaleSetPools for values of the chart vmss-prototype",
		Long: `export prints a ScaleSetPool for each pool that the CronJob of the chart
vmss-prototype captures with these values: what the CronJob does, the operator does
then. It changes nothing.

VALUES is a file with values of the chart, "-" is standard input: what
helm get values RELEASE -o yaml prints. Values that are
not in it are the chart's defaults. What an object cannot say is in comments, with
the value of the chart ortet that says it, or is refused if the operator would do
something else than the CronJob.

Pools are found as ortet capture --all and --pool NAME find them: the scale sets,
as Azure shows them, of the cluster's Nodes. kamino.targetVMSS with an ARM id needs
neither Azure nor a cluster. Objects of a Job that runs once are suspended.`,
		Example: `  ortet operator export values.yaml
  ortet operator export -`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("name one file with values of the chart vmss-prototype, or - for standard input")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.exportValues(cmd.Context(), args[0], groups) },
	}
	c.Flags().StringArrayVar(&groups, "resource-group", nil,
		"ARM `ID` of a resource group in which pools are found, beside those of the values and of azure.json; repeatable")
	return c
}

func (o *options) exportValues(ctx context.Context, file string, groups []string) error {
	from, name := o.process.In, "standard input"
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return refuseFile(file, err)
		}
		defer opened.Close()
		from, name = opened, file
	}
	text, err := io.ReadAll(io.LimitReader(from, 2<<20)) // the parser refuses more than 1 MiB
	if err != nil {
		return refuseFile(name, err)
	}
	values, err := export.Read(name, text)
	if err != nil {
		return refuseFile(name, err)
	}
	pools, comments, err := o.exported(ctx, values, groups)
	if err != nil {
		return err
	}
	return writeExport(o.process.Out, values, pools, comments)
}

// exported finds the pools that values name. Comments name those that are not Ortet's to change.
func (o *options) exported(
	ctx context.Context, values *export.Values, groups []string,
) (pools []fleet.ResourceID, comments []string, err error) {
	target := values.Target()
	if strings.HasPrefix(target, "/") {
		return []fleet.ResourceID{fleet.ResourceID(target)}, nil, nil
	}
	s := poolSelection{groups: append([]string{}, values.ResourceGroups()...), all: target == export.All} // not nil: see inGroups
	s.groups = append(s.groups, groups...)
	s.policyFlags()
	if !s.all {
		s.pools = []string{target}
	}
	a, found, err := s.open(ctx, o, work{}, func(fleet.ResourceID) *progress { return nil }, auto.Config{})
	if err != nil || !s.all {
		return found, nil, err
	}
	observations, err := a.Observe(ctx, found, true)
	for i, l := range observations {
		switch {
		case l.Left != "":
			comments = append(comments, fmt.Sprintf("Left out, as by ortet capture --all: %s: %s.", found[i], l.Left))
			continue
		case len(l.Unread) > 0:
			comments = append(comments, fmt.Sprintf("Not read: %s: %s.", found[i], cmp.Or(l.Unread[0].What, l.Unread[0].Code)))
		}
		pools = append(pools, found[i])
	}
	return pools, comments, err
}

func writeExport(w io.Writer, values *export.Values, pools []fleet.ResourceID, comments []string) error {
	settings, err := values.Operator(pools)
	if err != nil {
		return err
	}
	for _, text := range append(values.Comments(), comments...) {
		paragraph(w, resultWidth, "# ", "#   ", text)
	}
	if len(pools) == 0 {
		paragraph(w, resultWidth, "# ", "#   ", noPools)
		return nil
	}
	paragraph(w, resultWidth, "# ", "# ", "The operator has to be in namespace "+values.Ortet.Namespace+
		", where the journals and Leases of these pools are. Values of the chart ortet for it:")
	for line := range strings.Lines(string(settings)) {
		fmt.Fprint(w, "#   "+line)
	}
	for _, object := range values.Objects(pools) {
		text, err := export.YAML(object)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "---\n%s", text)
	}
	return nil
}
