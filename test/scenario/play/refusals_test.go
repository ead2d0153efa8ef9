package play

import (
	"net/http"
	"testing"

	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/internal/fleet"
)

// ends has a process be refused for some codes; without any it is done.
func ends(codes ...string) func(*world, *process) {
	return func(w *world, p *process) {
		w.expectRefusal(p)
		var problems []fleet.Problem
		for _, c := range codes {
			problems = append(problems, fleet.Problem{Code: c})
		}
		if len(problems) > 0 {
			p.err = &engine.Refused{Problems: problems}
		}
		w.checkRefusal(p)
	}
}

func TestRulesOfRefusals(t *testing.T) {
	stopped := sent(http.MethodPost, powerOff, "")
	var rulings []ruling
	for setting, r := range refusing {
		story := "pool instances=3 versions=2 refuses=" + setting + "\ncapture\n"
		if setting == "definition" {
			story = "pool instances=3 refuses=" + setting + "\ncapture\n"
		}
		rulings = append(rulings,
			ruling{"refuses " + setting, story, nil, nil, ends(r.code), ends(), "and the world is a reason for"},
			ruling{"refuses " + setting + " and no more", story, nil, nil, ends(r.code), ends(r.code, "ExtensionNeeded"), "is refused for ExtensionNeeded"})
	}
	for story, code := range map[string]string{
		"pool instances=3 upgrade=Rolling\ncapture\n":        "RollingUpgrade",
		"pool instances=3 extensions=cse,billing\ncapture\n": "ExtensionNeeded",
		"donor unmanaged=1\ncapture\n":                       "PodNotEvictable",
		"donor blocked\ncapture\n":                           "BudgetAllowsNoEviction",
		"donor disk=preserve\ncapture\n":                     "DiskRefused",
		"pool instances=2 zones=2\ncapture\n":                "NoWorkbench",
	} {
		rulings = append(rulings, ruling{code, story, nil, nil, ends(code), ends(), "and the world is a reason for"})
	}
	judged(t, append(rulings,
		ruling{"no reason", pool3, nil, nil, ends(), ends("ControlPlane"), "which is not so"},
		ruling{"nobody holds the pool", pool3, nil, nil, ends(), ends("Held"), "nothing is in its way"},
		ruling{"all can be read", pool3, nil, nil, ends(), ends("Unreadable"), "nothing is in its way"},
		ruling{"nothing is changed of a pool", pool3, guarded, func(w *world) { w.story.Pool.Refuses = "owned" }, stopped, nil, "goes on where it has to be refused: OwnedByClusterAPI"},
		ruling{"no donor is taken out", pool3, guarded, func(w *world) { w.story.Donor.Unmanaged = 1; w.putPod(w.node(0), "alone", 0, nil) }, stopped, nil, "goes on where it has to be refused: PodNotEvictable"},
		ruling{"the workbench of another", pool3, guarded, func(w *world) {
			w.story.Pool.Refuses = "workbench"
			annotate(w, w.node(0), fleet.AnnotationWorkbench, "x")
		}, stopped, nil, "goes on where it has to be refused: IsWorkbench"},
	))
}
