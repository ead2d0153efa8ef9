package capture

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture/donor"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

type inspections struct {
	cluster.Cluster
	job   cluster.JobState
	fails error
}

func (k inspections) Job(context.Context, string) (cluster.JobState, error) { return k.job, k.fails }

// TestInspection: what the donor's disk shows is known before the donor is touched. A pod that cannot start
// is a blocker, since the workbench's has the same image; one that gives no report is a note.
func TestInspection(t *testing.T) {
	prints := func(r wire.GeneralizeReport) []byte {
		data, err := json.Marshal(wire.GeneralizeLine{Report: &r})
		if err != nil {
			t.Fatal(err)
		}
		return append(data, '\n')
	}
	good := wire.GeneralizeReport{Outcome: wire.Generalized, DryRun: true, Joins: []string{"/etc/kubernetes/bootstrap.conf"}}
	for name, c := range map[string]struct {
		job   cluster.JobState
		fails error
		since time.Duration
		code  string // of the problem
		says  string // problem or note
		waits bool
	}{
		"nothing against it":                {job: cluster.JobState{Exists: true, Ran: true, Done: true, Output: prints(good)}},
		"reported, and its pod goes on":     {job: cluster.JobState{Exists: true, Ran: true, Output: prints(good)}},
		"its disk is refused":               {job: cluster.JobState{Exists: true, Ran: true, Done: true, Output: prints(wire.GeneralizeReport{Outcome: wire.DiskRefused, Message: "it is LVM"})}, code: "DiskRefused", says: "it is LVM"},
		"another ortet-node":                {job: cluster.JobState{Exists: true, Ran: true, Done: true, ExitCode: 64, Output: []byte("unknown flag")}, code: "PodCannotStart", says: "ortet-node of another version is in image i: \"unknown flag\""},
		"cannot start":                      {job: cluster.JobState{Exists: true, Why: "ErrImagePull"}, since: startFor, code: "PodCannotStart", says: "cannot start from image i: ErrImagePull"},
		"does not start yet":                {job: cluster.JobState{Exists: true, Why: "ErrImagePull"}, since: startFor - time.Second, waits: true},
		"ended without a start":             {job: cluster.JobState{Exists: true, Done: true}, code: "PodCannotStart", says: "it did not start within 2m0s"},
		"did not start, and nobody says so": {job: cluster.JobState{Exists: true}, since: donor.PodFor, code: "PodCannotStart", says: "it did not start within 2m0s"},
		"starts slowly":                     {job: cluster.JobState{Exists: true}, since: donor.PodFor - time.Second, waits: true},
		"works":                             {job: cluster.JobState{Exists: true, Ran: true}, waits: true},
		"works for too long":                {job: cluster.JobState{Exists: true, Ran: true}, since: donor.PodFor, says: "the donor's disk could not be inspected beforehand: its pod gave no report: "},
		"failed":                            {job: cluster.JobState{Exists: true, Ran: true, Done: true, ExitCode: 1, Why: "Error", Output: prints(wire.GeneralizeReport{Outcome: wire.GeneralizeFailed, Message: "no mount"})}, says: "beforehand: no mount"},
		"failed, and works":                 {job: cluster.JobState{Exists: true, Ran: true, Output: prints(wire.GeneralizeReport{Outcome: wire.GeneralizeFailed, Message: "no mount"})}, waits: true},
		"deleted by others":                 {job: cluster.JobState{Why: "NotFound"}, says: "beforehand: NotFound"},
		"ended, and printed nothing":        {job: cluster.JobState{Exists: true, Ran: true, Done: true, ExitCode: 1, Output: []byte("panic")}, says: "beforehand: its pod gave no report: \"panic\""},
		"API server is away":                {fails: &fleet.Error{Op: "get pod", Kind: fleet.KindTransient}, says: "get pod"},
	} {
		k := New(Config{Cluster: inspections{job: c.job, fails: c.fails}, Log: slog.New(slog.DiscardHandler), Now: time.Now, Image: "i"}).capture(Request{Node: "n"})
		k.inspected = true
		w, problems, err := k.inspectOnce(t.Context(), "c", c.since)
		notes, _ := k.Recorded()
		code, said := "", strings.Join(notes, "\n")
		if len(problems) > 0 {
			code, said = problems[0].Code, problems[0].What
		}
		if err != nil {
			said = err.Error()
		}
		if code != c.code || !strings.Contains(said, c.says) || c.says == "" && said != "" || (w.RequeueAfter > 0) != c.waits || (err != nil) != (c.fails != nil) {
			t.Errorf("%s: %v, %v, %v, %q", name, w, problems, err, notes)
		}
	}
}

// A gallery has one image definition, whose tag Azure shows some reads after it was written.
type gallery struct {
	azure.Cloud
	tag     string
	shows   int // reads until a written tag shows; -1 never
	lists   error
	refuses error
	written string
	lost    bool // another process's write is the last one
	gone    bool // it is deleted meanwhile
}

const claimed = fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/galleries/SIG_g/images/kamino-pool1-prototype")

func (g *gallery) definition() fleet.Definition {
	return fleet.Definition{ID: claimed, Tags: map[string]string{fleet.TagNamespace: g.tag}}
}

func (g *gallery) Definitions(context.Context, fleet.ResourceID) ([]fleet.Definition, error) {
	return []fleet.Definition{g.definition()}, g.lists
}

func (g *gallery) Definition(context.Context, fleet.ResourceID) (fleet.Definition, error) {
	if g.gone {
		return fleet.Definition{}, &fleet.Error{Op: "get definition", Kind: fleet.KindNotFound}
	}
	if g.written != "" && g.shows == 0 {
		g.tag = g.written
	}
	g.shows--
	return g.definition(), nil
}

func (g *gallery) Begin(_ context.Context, c fleet.Change) (fleet.Token, error) {
	if g.refuses != nil {
		return "", g.refuses
	}
	if g.written = c.(fleet.TagDefinition).Tags[fleet.TagNamespace]; g.lost {
		g.written = "team-b"
	}
	return "", nil
}

// TestClaim: a pool's lock and record are in one namespace, which a tag of its image definition says. Where
// the tag cannot be read or written, a note says that others are not kept off.
func TestClaim(t *testing.T) {
	denied := &fleet.Error{Op: "tag", Kind: fleet.KindDenied, Code: "AuthorizationFailed"}
	for name, c := range map[string]struct {
		gallery gallery
		refused bool
		note    string // part of it
		tag     string
	}{
		"claimed before":          {gallery: gallery{tag: "ortet"}, tag: "ortet"},
		"another's":               {gallery: gallery{tag: "team-b"}, refused: true, tag: "team-b"},
		"claimed now":             {gallery: gallery{}, tag: "ortet"},
		"shown late":              {gallery: gallery{shows: 3}, tag: "ortet"},
		"never shown":             {gallery: gallery{shows: -1}, note: "could not be read or written: it is not there after it was written"},
		"another was quicker":     {gallery: gallery{lost: true}, refused: true, tag: "team-b"},
		"may not be written":      {gallery: gallery{refuses: denied}, note: "commands in other namespaces are not kept off this pool"},
		"cannot be listed":        {gallery: gallery{lists: errors.New("no list")}, note: "could not be read or written: no list"},
		"deleted before the read": {gallery: gallery{gone: true}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var notes []string
			config := Config{Cloud: &c.gallery, Now: time.Now, Namespace: "ortet"}
			s := workflow.Summary{}
			err := config.claim(t.Context(), "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/pool1", s.Note)
			notes, _ = s.Recorded()
			if workflow.RefusedFor(err, CodeOtherNamespace) != c.refused || (err != nil) != c.refused || c.gallery.tag != c.tag ||
				len(notes) != len(strings.Fields(workflow.SkipIf(c.note != "", "one"))) || !strings.Contains(strings.Join(notes, ""), c.note) {
				t.Errorf("%s: %v, %q, tag %q", name, err, notes, c.gallery.tag)
			}
		})
	}
}
