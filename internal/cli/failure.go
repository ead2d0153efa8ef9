package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/workflow"
)

// writeError tells a person why a command ended otherwise than it should. Lines
// are broken where w is a terminal; in a log, a message stays in one line.
func writeError(w io.Writer, err error) {
	width := columnsOf(w)
	var refused *workflow.Refused
	text := interruption(err)
	switch {
	case errors.As(err, &refused):
		head := refused.Heading()
		if text != "" {
			head = "cannot resume for " + fleet.Count(len(refused.Problems), "reason") + "; run the same command again to resume"
		}
		paragraph(w, width, "ortet: ", "  ", head)
		for _, p := range refused.Problems {
			paragraph(w, width, "  - ", "    ", shortly(p.On)+": "+p.What)
			if p.WayOut != "" {
				paragraph(w, width, "    -> ", "       ", p.WayOut)
			}
		}
		return
	case text != "":
		paragraph(w, width, "ortet: ", "  ", text)
		return
	}
	begin := "ortet: "
	for l := range strings.Lines(err.Error()) {
		rest := strings.TrimLeft(l, " ")
		begin += l[:len(l)-len(rest)]
		paragraph(w, width, begin, strings.Repeat(" ", len(l)-len(rest)+2), rest)
		begin = ""
	}
}

// interruption describes the outcome of an interrupted run, without the request that a
// signal cut short; "" for any other error.
func interruption(err error) string {
	var out *workflow.Outcome
	if !errors.As(err, &out) || out.Exit != workflow.ExitInterrupted {
		return ""
	}
	text := "interrupted"
	if out.Step != "" {
		text += " at step " + out.Step
	}
	if !stopped(out.Err) || errors.As(out.Err, new(*timeoutError)) {
		text += ": " + out.Err.Error()
	}
	again := "; run the same command to resume"
	if out.Step == "preflight" || out.Step == "" { // what there may be to resume is another command's
		again = "; run the same command again"
	}
	return strings.Join(append([]string{text}, out.Left...), "; ") + again
}

// asInterrupted is the end of a command that a signal cut short, which has no workflow to
// say so.
func asInterrupted(err error) error {
	var out *workflow.Outcome
	if err == nil || errors.As(err, &out) || workflow.ExitCode(err) != workflow.ExitFailed || !stopped(err) {
		return err
	}
	return &workflow.Outcome{Exit: workflow.ExitInterrupted, Err: err}
}

// stopped reports whether an error is no more than the trace of a signal.
func stopped(err error) bool {
	return errors.Is(err, context.Canceled) || err.Error() == context.Canceled.Error() || strings.HasSuffix(err.Error(), " signal received")
}

// failure is what a program that reads -o json gets where a command did not end
// well: as far as it came, and why it ended.
type failure struct {
	Result   any             `json:"result"`
	Exit     int             `json:"exit"`
	Error    string          `json:"error"`
	Problems []fleet.Problem `json:"problems,omitempty"` // where it was refused
	Left     []string        `json:"left,omitempty"`     // what needs a person
}

// printFailure writes a failure in the form that -o asks for and gives err back,
// which is reported on standard error in any form. In a table the notes, which are
// part of the result, come before it, unless nothing was begun.
func (o *options) printFailure(result any, notes []string, err error) error {
	err = asInterrupted(err)
	var (
		refused *workflow.Refused
		outcome *workflow.Outcome
	)
	is := errors.As(err, &refused)
	if o.forPerson() {
		if !is {
			list(o.process.Err, "Note", notes)
		}
		return err
	}
	f := failure{Result: result, Exit: workflow.ExitCode(err), Error: cmp.Or(interruption(err), err.Error())}
	if is {
		f.Problems = refused.Problems
	}
	if errors.As(err, &outcome) && outcome.Exit == workflow.ExitNeedsPerson {
		f.Left = outcome.Left
	}
	return errors.Join(err, o.print(f, nil))
}

// shortly is an ARM id in words, "instance 3 of scale set pool1", and anything
// else as it is. The plan in JSON has the ids.
func shortly(on string) string {
	id := fleet.ResourceID(on)
	if !strings.HasPrefix(on, "/subscriptions/") {
		return on
	}
	parts := strings.Split(on, "/")
	switch strings.ToLower(parts[max(0, len(parts)-2)]) {
	case "resourcegroups":
		return "resource group " + id.Name()
	case "virtualmachinescalesets":
		return "scale set " + id.Name()
	case "virtualmachines":
		if set := id.Segment("virtualMachineScaleSets"); set != "" {
			return "instance " + id.Name() + " of scale set " + set
		}
		return "machine " + id.Name()
	case "snapshots":
		return "snapshot " + id.Name()
	case "disks":
		return "disk " + id.Name()
	case "virtualnetworks":
		return "network " + id.Name()
	case "networksecuritygroups":
		return "security group " + id.Name()
	case "storageaccounts":
		return "storage account " + id.Name()
	case "galleries":
		return "gallery " + id.Name()
	case "images":
		return "image definition " + id.Name()
	case "versions":
		return "image version " + id.Name()
	}
	return on
}
