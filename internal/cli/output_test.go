package cli

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/workflow"
)

const somePool = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/k8s-pool1-12345678-vmss"

func TestParagraphBreaksBetweenWords(t *testing.T) {
	for _, c := range []struct {
		columns           int
		begin, next, text string
		want              string
	}{
		{20, "- ", "  ", "a word or two more than fit", "- a word or two more\n  than fit\n"},
		{20, "", "", "", "\n"},
		{20, "", "  ", somePool + " stays whole", somePool + "\n  stays whole\n"},
		{9, "", "", "größe größe", "größe\ngröße\n"},
		{11, "", "", "größe größe", "größe größe\n"},
		{0, "", "", strings.Repeat("long ", 50), strings.TrimSpace(strings.Repeat("long ", 50)) + "\n"},
	} {
		var b strings.Builder
		paragraph(&b, c.columns, c.begin, c.next, c.text)
		if b.String() != c.want {
			t.Errorf("%q in %d columns:\n%s\nwant\n%s", c.text, c.columns, b.String(), c.want)
		}
	}
}

func TestPlanFitsATerminal(t *testing.T) {
	p := thePlan()
	p.Notes = []string{strings.Repeat("a note that is long ", 10)}
	var b strings.Builder
	writePlan(&b, p)
	for l := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(l, "\n")); n > resultWidth {
			t.Errorf("%d columns: %s", n, l)
		}
	}
	for _, s := range p.Steps {
		if !strings.Contains(b.String(), s.ID) {
			t.Errorf("step %s is not shown", s.ID)
		}
	}
}

func TestErrorsForPeople(t *testing.T) {
	instance := fleet.ResourceID(somePool).Child("virtualMachines", "3")
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"plain": {errors.New("it broke"), "ortet: it broke\n"},
		"refused": {&workflow.Refused{Problems: []fleet.Problem{
			{On: string(instance), What: "it is off", WayOut: "start it"}, {On: "node n", What: "it is gone"},
		}}, "ortet: refused for 2 reasons, nothing was changed\n  - instance 3 of scale set k8s-pool1-12345678-vmss: it is off\n    -> start it\n  - node n: it is gone\n"},
		"needs a person": {&workflow.Outcome{Exit: workflow.ExitNeedsPerson, Step: "start", Left: []string{"start it"}, Err: errors.New("no capacity")},
			"ortet: step start: no capacity; this needs a person\n  - start it\n"},
		"interrupted": {&workflow.Outcome{Exit: workflow.ExitInterrupted, Step: "stop", Left: []string{"node n is in service"}, Err: errors.New("interrupt signal received")},
			"ortet: interrupted at step stop; node n is in service; run the same command to resume\n"},
		"not resumed": {&workflow.Outcome{Exit: workflow.ExitInterrupted, Step: "preflight", Err: &workflow.Refused{Problems: []fleet.Problem{{On: "node n", What: "it is off"}}}},
			"ortet: cannot resume for 1 reason; run the same command again to resume\n  - node n: it is off\n"},
		"lost": {&workflow.Outcome{Exit: workflow.ExitInterrupted, Step: "stop", Err: errors.New("the hold on the pool was lost")},
			"ortet: interrupted at step stop: the hold on the pool was lost; run the same command to resume\n"},
	} {
		var b strings.Builder
		writeError(&b, c.err)
		if b.String() != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, b.String(), c.want)
		}
	}
}

func TestShortly(t *testing.T) {
	group := "/subscriptions/s/resourceGroups/g"
	compute := group + "/providers/Microsoft.Compute/"
	for on, want := range map[string]string{
		"node a":                "node a",
		"":                      "",
		group:                   "resource group g",
		somePool:                "scale set k8s-pool1-12345678-vmss",
		compute + "snapshots/s": "snapshot s",
		compute + "Disks/d":     "disk d",
		compute + "galleries/g": "gallery g",
		group + "/providers/Microsoft.Network/virtualNetworks/ortet":         "network ortet",
		group + "/providers/Microsoft.Network/networkSecurityGroups/servers": "security group servers",
		group + "/providers/Microsoft.Storage/storageAccounts/tidy1":         "storage account tidy1",
		compute + "galleries/g/images/i":                                     "image definition i",
		compute + "galleries/g/images/i/versions/2026.11.21":                 "image version 2026.11.21",
		"/subscriptions/s": "/subscriptions/s",
		"/subscriptions/":  "/subscriptions/",
	} {
		if got := shortly(on); got != want {
			t.Errorf("%s: %s, want %s", on, got, want)
		}
	}
}

func TestProgressLinesNeverWrap(t *testing.T) {
	e := workflow.Event{
		At: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC), Step: "generalized-snapshot", Kind: workflow.EventDone,
		Message: strings.Repeat("Azure does something at length ", 10), Elapsed: 90 * time.Minute,
	}
	for _, width := range []int{0, 40, 80, 200} {
		if l := endedLine(e, width); utf8.RuneCountInString(l) >= max(40, width) {
			t.Errorf("%d columns of %d: %s", utf8.RuneCountInString(l), width, l)
		}
	}
	e.Kind, e.Message = workflow.EventFailed, "many things\n  - one\n  - two"
	if l := plainLine(e); strings.Contains(l, "\n") || !strings.HasSuffix(l, "many things") {
		t.Errorf("a failure takes more than its first line: %q", l)
	}
}

func TestAge(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for want, at := range map[string]time.Time{
		"-": {}, "0s": now.Add(time.Second), "59s": now.Add(-59 * time.Second), "1m": now.Add(-time.Minute),
		"47h": now.Add(-47 * time.Hour), "2d": now.Add(-48 * time.Hour), "400d": now.AddDate(0, 0, -400),
	} {
		if got := age(at, now); got != want {
			t.Errorf("age of %s: %s, want %s", at, got, want)
		}
	}
}
