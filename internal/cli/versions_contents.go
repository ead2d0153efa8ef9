package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/manifest"
	"github.com/ortet/ortet/internal/wire"
)

const (
	spdxForm      = "spdx-json"
	cycloneDXForm = "cyclonedx-json"
)

const versionArgs = `A POOL is a scale set's name or ARM id, a version its name. The ARM id of a version
stands for both.`

func newVersionsDiff(o *options) *cobra.Command {
	var named []string
	c := &cobra.Command{
		Use:   "diff POOL A B",
		Short: "Show what changed from one image version to another",
		Long: `diff shows kernel, kubelet and containerd of two image versions, and what
differs of packages, container images, enabled units and the size of all files. It is
read from the lists that captures kept; nothing is changed.

` + versionArgs,
		Example: `  ortet versions diff k8s-pool1-12345678-vmss 2026.11.20 2026.11.21`,
		RunE: func(cmd *cobra.Command, args []string) error {
			both, err := o.contents(cmd.Context(), args, named, 2, "POOL A B")
			if err != nil {
				return err
			}
			d := versionsDiff{both[0].Version.ID, both[1].Version.ID, manifest.Compare(both[0].Manifest, both[1].Manifest)}
			return o.print(d, func(w io.Writer) { writeVersionsDiff(w, d) })
		},
	}
	o.takesForms(c)
	groupsFlag(c.Flags(), &named)
	return c
}

func newVersionsSBOM(o *options) *cobra.Command {
	var named []string
	c := &cobra.Command{
		Use:   "sbom POOL VERSION",
		Short: "Write a bill of materials of an image version",
		Long: `sbom lists what is in an image version: with -o spdx-json as SPDX 2.3, with
-o cyclonedx-json as CycloneDX 1.5, both for scanners of known vulnerabilities. Other
forms show the list itself. It is what the capture kept; nothing is changed.

` + versionArgs,
		Example: `  ortet versions sbom k8s-pool1-12345678-vmss 2026.11.21 -o spdx-json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			of, err := o.contents(cmd.Context(), args, named, 1, "POOL VERSION")
			if err != nil {
				return err
			}
			return o.printSBOM(of[0])
		},
	}
	o.takesForms(c, spdxForm, cycloneDXForm)
	groupsFlag(c.Flags(), &named)
	return c
}

// contents reads what is in so many versions.
func (o *options) contents(ctx context.Context, args, named []string, count int, want string) ([]capture.Contents, error) {
	type ref struct{ pool, version string }
	var refs []ref
	pool := ""
	for _, a := range args {
		id := fleet.ResourceID(strings.TrimRight(a, "/"))
		definition := id.In("galleries", id.Segment("galleries")).Child("images", id.Segment("images"))
		switch {
		case strings.HasPrefix(a, "/") && id.Segment("versions") != "":
			if !id.Equal(definition.Child("versions", id.Name())) {
				return nil, usagef("%q is not the ARM id of an image version (/subscriptions/…/galleries/G/images/D/versions/NAME)", a)
			}
			refs = append(refs, ref{"", string(id)})
		case pool == "":
			pool = a
		default:
			refs = append(refs, ref{pool, a})
		}
	}
	if len(refs) != count || pool != "" && !slices.ContainsFunc(refs, func(r ref) bool { return r.pool != "" }) {
		return nil, usagef("want %s; the ARM id of a version stands for POOL and its name", want)
	}
	if pool != "" {
		if err := checkPool(pool); err != nil {
			return nil, err
		}
	}
	c, err := o.open(ctx, work{})
	if err != nil {
		return nil, err
	}
	var id fleet.ResourceID
	if pool != "" {
		find, err := c.finder(o, named)
		if err != nil {
			return nil, err
		}
		if id, err = find.ToRead(ctx, pool); err != nil {
			return nil, err
		}
	}
	var all []capture.Contents
	for _, r := range refs {
		of := id
		if r.pool == "" {
			of = ""
		}
		found, err := c.config.Contents(ctx, of, r.version)
		if err != nil {
			return nil, err
		}
		all = append(all, found)
	}
	return all, nil
}

// versionsDiff is what changed, with the ARM ids of both versions.
type versionsDiff struct {
	From fleet.ResourceID `json:"from"`
	To   fleet.ResourceID `json:"to"`
	manifest.Diff
}

func writeVersionsDiff(w io.Writer, d versionsDiff) {
	fmt.Fprintf(w, "%s -> %s\n\n", d.From.Name(), d.To.Name())
	for _, x := range []struct {
		name string
		manifest.Change
	}{{"kernel", d.Kernel}, {"kubelet", d.Kubelet}, {"containerd", d.Containerd}} {
		fmt.Fprintf(w, "%-10s  %s\n", x.name, changed(x.Change))
	}
	fmt.Fprintf(w, "%-10s  %s\n", "files", changed(manifest.Change{From: gibibytes(d.Bytes.From), To: gibibytes(d.Bytes.To)}))
	for _, x := range []struct {
		name string
		list []manifest.Difference
	}{{"Packages", d.Packages}, {"Container images", d.Images}, {"Enabled units", d.Units}} {
		if len(x.list) == 0 {
			fmt.Fprintf(w, "\n%s: no difference\n", x.name)
			continue
		}
		fmt.Fprintf(w, "\n%s:\n", x.name)
		for _, y := range x.list {
			switch {
			case y.From == "":
				fmt.Fprintf(w, "  + %s  %s\n", y.Name, y.To)
			case y.To == "":
				fmt.Fprintf(w, "  - %s  %s\n", y.Name, y.From)
			default:
				fmt.Fprintf(w, "  ~ %s  %s -> %s\n", y.Name, y.From, y.To)
			}
		}
	}
	writeNotRead(w, "Not read in "+d.From.Name(), d.NotRead.From)
	writeNotRead(w, "Not read in "+d.To.Name(), d.NotRead.To)
}

func changed(c manifest.Change) string {
	known := func(s string) string {
		if s == "" {
			return "not known"
		}
		return s
	}
	if c.From == c.To {
		return known(c.To)
	}
	return known(c.From) + " -> " + known(c.To)
}

func gibibytes(n int64) string { return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30)) }

func writeNotRead(w io.Writer, title string, notes []string) {
	if len(notes) > 0 {
		fmt.Fprintln(w)
		list(w, title, notes)
	}
}

// printSBOM writes a bill of materials, or the list that it is made of.
func (o *options) printSBOM(c capture.Contents) error {
	b := manifest.BOM{Manifest: c.Manifest, Version: string(c.Version.ID), Name: c.Version.ID.Parent().Name() + "-" + c.Version.Name,
		Created: c.Version.Published, Ortet: o.process.Version}
	var bill any
	switch o.output {
	case spdxForm:
		bill = b.SPDX()
	case cycloneDXForm:
		bill = b.CycloneDX()
	default:
		return o.print(c.Manifest, func(w io.Writer) { writeContents(w, c) })
	}
	for _, text := range c.Manifest.NotRead {
		o.note("not in the list: " + text)
	}
	e := json.NewEncoder(o.process.Out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false) // of package URLs
	return e.Encode(bill)
}

func writeContents(w io.Writer, c capture.Contents) {
	m := c.Manifest
	fmt.Fprintf(w, "%s\n\n", c.Version.Name)
	for _, x := range [][2]string{
		{"system", m.OS.Name}, {"kernel", strings.Join(m.Kernels, ", ")}, {"kubelet", m.Kubelet}, {"containerd", m.Containerd},
	} {
		fmt.Fprintf(w, "%-10s  %s\n", x[0], changed(manifest.Change{From: x[1], To: x[1]}))
	}
	for _, x := range []struct {
		name  string
		lines []string
	}{
		{"Packages", fleet.Each(m.Packages, func(p wire.Package) string {
			return strings.TrimSpace(p.Name+" "+p.Arch) + "  " + p.Version
		})},
		{"Container images", fleet.Each(m.Images, func(i wire.ContainerImage) string { return i.Name + "  " + i.Digest })},
		{"Enabled units", m.Units},
	} {
		fmt.Fprintf(w, "\n%s: %d\n", x.name, len(x.lines))
		for _, line := range x.lines {
			fmt.Fprintln(w, "  "+line)
		}
	}
	writeNotRead(w, "Not read", m.NotRead)
}
