package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/internal/fleet"
)

// writeError tells a person why a command ended otherwise than it should.
func writeError(w io.Writer, err error) {
	var refused *engine.Refused
	if !errors.As(err, &refused) {
		fmt.Fprintf(w, "ortet: %v\n", err)
		return
	}
	reasons := "1 reason"
	if n := len(refused.Problems); n != 1 {
		reasons = fmt.Sprintf("%d reasons", n)
	}
	say(w, "ortet: refused for %s, nothing was changed", reasons)
	for _, p := range refused.Problems {
		paragraph(w, "  - ", "    ", shortly(p.On)+": "+p.What)
		if p.WayOut != "" {
			paragraph(w, "    -> ", "       ", p.WayOut)
		}
	}
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
	case "galleries":
		return "gallery " + id.Name()
	case "images":
		return "image definition " + id.Name()
	case "versions":
		return "image version " + id.Name()
	}
	return on
}
