package play

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	corev1 "k8s.io/api/core/v1"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/test/scenario"
)

// mostNodes are named one by one.
const mostNodes = 20

// tell is what a person sees of a playing: how each process ended and what it
// said, and how the pool is in the end. Of what a change of latencies would
// change it shows nothing.
func (w *world) tell() string {
	var b strings.Builder
	for _, p := range w.processes {
		fmt.Fprintf(&b, "%s %s", p.name, p.ask.Verb)
		if p.ask.Verb == scenario.Capture {
			fmt.Fprintf(&b, " %s", w.nodeOf(p.ask.Node))
		}
		if p.isCut() {
			b.WriteString(": dies\n")
			continue
		}
		fmt.Fprintf(&b, ": exit %d\n", engine.ExitCode(p.err))
		for _, l := range w.says(p) {
			fmt.Fprintf(&b, "    %s\n", l)
		}
	}
	b.WriteString("in the end\n")
	model := "a Marketplace image"
	if id := w.model(); id != "" {
		model = id.Name()
	}
	fmt.Fprintf(&b, "    model: %s\n    versions:", model)
	w.azure.View(func(v *azsim.View) {
		v.Each("Microsoft.Compute/galleries/images/versions", func(id string, body any) {
			r, ok := body.(*armcompute.GalleryImageVersion)
			fmt.Fprintf(&b, " %s", fleet.ResourceID(id).Name())
			if !ok || r.Properties == nil || r.Properties.ProvisioningState == nil {
				return
			}
			if state := string(*r.Properties.ProvisioningState); state != prototype.Succeeded {
				fmt.Fprintf(&b, " (%s)", state)
			}
			if r.Tags[fleet.TagRolledBack] != nil {
				b.WriteString(" (rolled back)")
			}
		})
	})
	b.WriteString("\n    extensions:")
	for _, name := range w.extensionNames() {
		b.WriteString(" " + name)
	}
	b.WriteString("\n    nodes:")
	names := w.nodeNames()
	if len(names) > mostNodes {
		fmt.Fprintf(&b, " %d of them;", len(names))
	}
	for _, name := range names {
		n, ok := w.kube.Get("nodes", "", name).(*corev1.Node)
		cordoned := ok && n.Spec.Unschedulable
		if len(names) <= mostNodes || cordoned {
			fmt.Fprintf(&b, " %s", name)
		}
		if cordoned {
			b.WriteString(" (cordoned)")
		}
	}
	return masked(b.String()) + "\n"
}

// says gives the lines that a process ended with, where there is no order in
// the alphabet's.
func (w *world) says(p *process) (lines []string) {
	refused := new(engine.Refused)
	switch {
	case errors.As(p.err, &refused):
		for _, problem := range refused.Problems {
			lines = append(lines, problem.Code+": "+problem.String())
		}
		slices.Sort(lines)
	case p.err != nil:
		lines = strings.Split(p.err.Error(), "\n")
	case p.capture.NothingToDo || p.rollback.NothingToDo:
		lines = append(lines, "nothing to do")
	case p.ask.Verb == scenario.Rollback:
		to := p.rollback.To.Name()
		if o := p.rollback.Original; o != nil {
			to = o.Image.Text()
		}
		lines = append(lines, fmt.Sprintf("back from %s to %s", p.rollback.From.Name(), to))
	default:
		lines = append(lines, "made "+p.capture.Version.Name()+" from "+p.capture.BuiltFrom)
	}
	if p.err == nil {
		if len(p.capture.Pruned) > 0 {
			lines = append(lines, "pruned "+strings.Join(p.capture.Pruned, " "))
		}
		for _, k := range p.capture.Kept {
			lines = append(lines, "kept "+k)
		}
		notes := slices.Concat(p.capture.Notes, p.rollback.Notes)
		slices.Sort(notes)
		lines = append(lines, notes...)
	}
	return lines
}

// masks take out of a text what each playing or a small change makes otherwise.
var masks = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`), "TIME"},
	{regexp.MustCompile(`\b\d{8}-\d{6}\b`), "CAPTURE"},
	{regexp.MustCompile(`[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}`), "GUID"},
	{regexp.MustCompile(`\b[0-9a-f]{32,64}\b`), "HASH"},
	{regexp.MustCompile(`\b(\d{4}\.\d{4})\.\d{1,6}\b`), "$1.TIME"},
	{regexp.MustCompile(`ortet-pool1-[0-9a-f]{12}|ortet-journal-pool1-[0-9a-f]{12}`), "OBJECT"},
	{regexp.MustCompile(`\b(p\d+)/\d+\b`), "$1"},
	{regexp.MustCompile(`/subscriptions/\S*?/providers/Microsoft\.Compute/`), ".../"},
}

func masked(text string) string {
	for _, m := range masks {
		text = m.what.ReplaceAllString(text, m.by)
	}
	return text
}
