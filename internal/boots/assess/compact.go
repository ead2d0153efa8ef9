package assess

import (
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// Compact returns as much of a Boot as is used again: what extensions report is kept
// where they make the node or have a verdict, and bounded.
func Compact(b fleet.Boot) fleet.Boot {
	var kept []fleet.ExtensionStatus
	for _, e := range b.Extensions {
		// Of what makes the node and failed, all that it reports is evidence.
		whole := makesNode(e) && slices.ContainsFunc(e.Statuses, fleet.BootStatus.Failed)
		e.Statuses, e.Substatuses = shorten(e.Statuses, makesNode(e), whole), shorten(e.Substatuses, makesNode(e), whole)
		kept = append(kept, e)
	}
	b.Extensions = kept
	b.Agent.Time = time.Time{} // it changes all the time, and decides nothing
	return b
}

func shorten(list []fleet.BootStatus, makes, whole bool) []fleet.BootStatus {
	var out []fleet.BootStatus
	for _, st := range list {
		hasVerdict := strings.Contains(st.Message, verdictMark)
		switch {
		case !hasVerdict && !whole && !st.Failed() && !makes:
			st.Message = ""
		case !hasVerdict && !whole && !st.Failed():
			st.Message = string(head([]byte(st.Message), 256))
		case len(st.Message) > maxQuoted: // the end has most of the evidence
			st.Message = strings.Clone(strings.ToValidUTF8(tail(st.Message, maxQuoted), ""))
		}
		out = append(out, st)
	}
	return out
}

// verdictMark begins a verdict in one line: see wire.Verdict.ConsoleLine.
const verdictMark = "ortet.io/verdict"
