package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/boots/explain"
	"github.com/ortet/ortet/internal/workflow"
)

// mostExplained bounds what one command judges.
const mostExplained = 50

func newExplain(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "explain FILE...",
		Short: "Say why a node did not come up, from pasted logs and states",
		Long: `explain reads what is there of a node that did not come up, and says why, who can
mend it, and which lines show it. It needs neither cluster nor cloud. Names of
files do not matter. It reads, also quoted or cut (docs/how-to/explain.md):

  - journals, consoles, dmesg
  - logs of kubelet, containerd, k3s, RKE2 and cloud-init
  - systemctl status, cloud-init status --long
  - kubectl describe node, kubectl get nodes, csr and events
  - crictl info, crictl ps -a
  - errors of Azure Resource Manager, and instance views

"-" is standard input: kubectl describe node NODE | ortet explain -. Files of several machines give a verdict each. The exit code is
4 if something failed, 0 if nothing did or nothing says so, and 3 if a file is missing
or no text.`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usagef("name files, or - for standard input")
			case len(args) > mostExplained:
				return usagef("%d files, and %d are read at most", len(args), mostExplained)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := interruptible(cmd.Context(), func() (explain.Report, error) { return o.readTexts(args) })
			if err != nil {
				return err
			}
			if err := o.print(r, func(w io.Writer) { writeExplained(w, r) }); err != nil {
				return err
			}
			if r.Failed() {
				return exitError(workflow.ExitNeedsPerson)
			}
			return nil
		},
	}
}

// readTexts reads and judges files. One that is no text is named beside others, and is
// refused where it is alone.
func (o *options) readTexts(names []string) (explain.Report, error) {
	var texts []explain.Text
	var not []error
	var alone error
	stdin := false
	for _, name := range names {
		err := o.withFile(name, &stdin, func(shown string, r io.Reader) error {
			t, err := explain.Read(shown, r, len(names))
			switch {
			case errors.As(err, new(explain.NoTextError)):
				not = append(not, fmt.Errorf("%s: %w", shown, err))
				alone = refuseFile(shown, err)
			case err == nil:
				texts = append(texts, t)
			default:
				return refuseFile(shown, err)
			}
			return nil
		})
		if err != nil {
			return explain.Report{}, err
		}
	}
	if len(texts) == 0 && len(not) > 1 {
		alone = refuseFile(strings.Join(names, ", "), errors.Join(not...))
	}
	if len(texts) == 0 {
		return explain.Report{}, alone
	}
	for _, err := range not {
		paragraph(o.process.Err, columnsOf(o.process.Err), "note: ", "  ", err.Error())
	}
	return explain.Explain(texts), nil
}

func writeExplained(w io.Writer, r explain.Report) {
	results := map[explain.Result]string{explain.Failed: "failed", explain.NothingFailed: "nothing failed", explain.Unclear: "unclear"}
	for i, m := range r.Machines {
		if i > 0 {
			fmt.Fprintln(w)
		}
		head := first(m.Name, strings.Join(m.Files, ", ")) + ": " + results[m.Result]
		if m.Reason != "" {
			head += ", " + m.Reason
		}
		say(w, "%s", head)
		paragraph(w, resultWidth, "  ", "  ", m.Message)
		fields := [][2]string{{"owner", string(m.Owner)}, {"confidence", string(m.Confidence)}, {"remedy", m.Remedy}, {"more", m.More}}
		for n, f := range fields {
			if n == 0 && (m.Reason != "" || m.More != "") {
				fmt.Fprintln(w)
			}
			if f[1] != "" {
				paragraph(w, resultWidth, fmt.Sprintf("  %-10s ", f[0]), strings.Repeat(" ", 13), f[1])
			}
		}
		if m.Retryable {
			paragraph(w, resultWidth, "  retry      ", "", "the same boot may succeed if it is tried again")
		}
		file := ""
		for n, q := range m.Lines {
			switch {
			case q.File != file:
				fmt.Fprintf(w, "\n%s\n", q.File)
			case q.Line > m.Lines[n-1].Line+1 || q.Line < m.Lines[n-1].Line:
				fmt.Fprintln(w, "       ...")
			}
			file = q.File
			mark := " "
			if q.Shows {
				mark = ">"
			}
			paragraph(w, resultWidth, fmt.Sprintf("%s %5d  ", mark, q.Line), strings.Repeat(" ", 9), q.Text)
		}
	}
	fmt.Fprintln(w)
	for _, f := range r.Files {
		text := fmt.Sprintf("Read %s: %s", f.Name, f.Form)
		if f.Lines == 1 {
			text += ", 1 line"
		} else {
			text += fmt.Sprintf(", %d lines", f.Lines)
		}
		for _, s := range f.Skipped {
			text += "; " + s
		}
		paragraph(w, resultWidth, "", "  ", text)
	}
}
