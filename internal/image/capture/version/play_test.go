package version

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/test/workflowtest"
)

const (
	today = definition + "/versions/2026.1.2"
	again = definition + "/versions/2026.0102.030405"
)

// A shelf is a gallery with its definition's versions.
type shelf struct {
	azure.Cloud
	mu         sync.Mutex
	gallery    *fleet.Gallery
	definition *fleet.Definition
	versions   map[fleet.ResourceID]fleet.ImageVersion
	uses       []fleet.ImageUse
	refuses    map[string]error               // by verb, and by verb and name
	builds     func(v *fleet.ImageVersion)    // what comes of a version that is made
	later      map[fleet.ResourceID]time.Time // when a version that is being built is complete
}

func (s *shelf) Now() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func found[T any](x *T) (v T, err error) {
	if x == nil {
		return v, &fleet.Error{Op: "get", Kind: fleet.KindNotFound}
	}
	return *x, nil
}

func (s *shelf) Gallery(context.Context, fleet.ResourceID) (fleet.Gallery, error) {
	return found(s.gallery)
}

func (s *shelf) Definition(context.Context, fleet.ResourceID) (fleet.Definition, error) {
	return found(s.definition)
}

func (s *shelf) Pool(_ context.Context, id fleet.ResourceID) (fleet.Pool, error) {
	return fleet.Pool{ID: id}, nil
}

func (s *shelf) Version(_ context.Context, id fleet.ResourceID) (fleet.ImageVersion, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, is := s.versions[id]
	if !is {
		return found[fleet.ImageVersion](nil)
	}
	if at, waits := s.later[id]; waits && !time.Now().Before(at) {
		v.ProvisioningState = plan.Succeeded
	}
	return v, nil
}

func (s *shelf) Versions(_ context.Context, of fleet.ResourceID) (all []fleet.ImageVersion, _ error) {
	for _, v := range s.versions {
		if v.ID.Parent() == of {
			all = append(all, v)
		}
	}
	return all, s.refuses["list versions"]
}

func (s *shelf) Uses(context.Context, ...fleet.ResourceID) ([]fleet.ImageUse, error) {
	return s.uses, s.refuses["list uses"]
}

func (s *shelf) Begin(_ context.Context, change fleet.Change) (fleet.Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, by := range []string{change.Verb(), change.Verb() + " " + change.Target().Name()} {
		if err := s.refuses[by]; err != nil {
			return "", err
		}
	}
	tag := func(id fleet.ResourceID, tags map[string]string) {
		v := s.versions[id]
		v.Tags = maps.Clone(v.Tags)
		maps.Copy(v.Tags, tags)
		maps.DeleteFunc(v.Tags, func(_, value string) bool { return value == "" })
		s.versions[id] = v
	}
	switch c := change.(type) {
	case fleet.CreateGallery:
		s.gallery = &fleet.Gallery{}
	case fleet.CreateDefinition:
		s.definition = &c.Definition
	case fleet.CreateVersion:
		v := fleet.ImageVersion{ID: c.ID, Name: c.ID.Name(), Tags: c.Tags, ProvisioningState: plan.Succeeded, ExcludeFromLatest: c.ExcludeFromLatest}
		if s.builds != nil {
			s.builds(&v)
		}
		s.versions[c.ID] = v
	case fleet.DeleteVersion:
		delete(s.versions, c.ID)
	case fleet.TagVersion:
		tag(c.ID, c.Tags)
	case fleet.PublishVersion:
		tag(c.ID, c.Tags)
		v := s.versions[c.ID]
		v.ExcludeFromLatest = false
		s.versions[c.ID] = v
	}
	return "", nil
}

func (s *shelf) version(i Image) (x *Version, build *Build) {
	var mu sync.Mutex
	build = &Build{}
	i.Capture, i.Pool, i.Location, i.Ortet = "c", "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/p", "here", "1.0"
	if i.Names.Version == "" {
		i.Names.Version = today
	}
	i.Names.Gallery, i.Names.Definition, i.Names.Generalized = definition.Parent(), definition, "/generalized"
	if i.Definitions == nil {
		i.Definitions = []fleet.ResourceID{definition}
	}
	if s.refuses == nil {
		s.refuses = map[string]error{}
	}
	if s.versions == nil {
		s.versions = map[fleet.ResourceID]fleet.ImageVersion{}
	}
	tags := i.Tags
	return &Version{Cloud: s, Set: workflow.NewScaleSet(s, time.Now), Build: workflow.PartOf(&mu, build), Elsewhere: func(...fleet.Definition) error { return nil },
		Of: func() Image {
			now := i
			now.Tags = map[string]string{fleet.TagCapture: "c"}
			maps.Copy(now.Tags, tags)
			return now
		}}, build
}

// each runs a test of each row of a table in virtual time.
func each[C any](t *testing.T, rows map[string]C, test func(*testing.T, C)) {
	for name, c := range rows {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, c) }) })
	}
}

func says(err error, want string) bool {
	return (err != nil) == (want != "") && (err == nil || strings.Contains(err.Error(), want))
}

// TestRowsText: which rows there are, when they are skipped, and what they wait for.
func TestRowsText(t *testing.T) {
	rows := func(i Image, o plan.Observed, was *fleet.ImageVersion, skip string, old []fleet.ImageVersion, published bool) []workflow.Step {
		x, _ := (&shelf{}).version(i)
		gallery, def := x.Place(o, "inspect")
		return []workflow.Step{gallery, def, x.Live(was, "inspect"), x.Row(skip, "a", "b"), x.Prune(old, published, "c"), x.Publish(skip, "d")}
	}
	const row = `
version: Build image version 2026.1.2; after a b; undo delete-version: Delete the image version if it is unfinished; keep running; or az resource delete --ids 2026.1.2`
	for name, c := range map[string]struct {
		got  []workflow.Step
		want string
	}{
		"all": {rows(Image{Request: plan.Request{History: 3}}, plan.Observed{}, &fleet.ImageVersion{ID: today, Name: "x"}, "", []fleet.ImageVersion{{Name: "v1"}, {Name: "v2"}}, true), `
gallery: Create the gallery ortet; after inspect
definition: Create the image definition pool1; after gallery
live: Record that x is live; after inspect; fails without effect` + row + `
prune: Prune versions to the newest 3: v1, v2; after c; fails without effect
publish: Record that the version is live; after d`},
		"none": {rows(Image{Request: plan.Request{History: 3}}, plan.Observed{Gallery: &fleet.Gallery{}, Definition: &fleet.Definition{}}, nil, "why", nil, true), `
gallery: Create the gallery ortet; after inspect; skip: already exists
definition: Create the image definition pool1; after gallery; skip: already exists
live: Record that the model's version is live; after inspect; skip: nothing to record; fails without effect` + strings.Replace(row, "; undo", "; skip: why; undo", 1) + `
prune: Prune versions to the newest 3; after c; skip: no older versions; fails without effect
publish: Record that the version is live; after d; skip: why`},
		"only published": {rows(Image{Request: plan.Request{History: 3, PublishOnly: true}}, plan.Observed{}, nil, "", []fleet.ImageVersion{{Name: "v1"}}, false), `
gallery: Create the gallery ortet; after inspect
definition: Create the image definition pool1; after gallery
live: Record that the model's version is live; after inspect; skip: nothing to record; fails without effect` + row + `
prune: Prune versions to the newest 3: v1; after c; skip: the version is only published; fails without effect
publish: Record that clones of the version came up; after d`},
	} {
		if got := workflowtest.Text(c.got...); got != strings.TrimSpace(c.want) {
			t.Errorf("%s:\n%s", name, got)
		}
	}
	x, _ := (&shelf{}).version(Image{})
	if row := x.Prune(nil, false, "c"); row.Skip != "" {
		t.Errorf("of a version that is still to be built: %s", row.Skip) // others may come meanwhile
	}
	if x, _ := (&shelf{}).version(Image{Request: plan.Request{Shallow: true}}); x.Row("").Usual != time.Minute || x.Row("").Deadline != time.Hour {
		t.Errorf("a shallow version takes %s", x.Row("").Usual)
	}
}

// TestPlaces makes a gallery and a definition that say what for, and takes none of another kind, or of a
// pool of another namespace.
func TestPlaces(t *testing.T) {
	wanted := fleet.Definition{ID: definition, Generation: "V2", Architecture: "x64", Tags: map[string]string{"a": "b"}}
	other, busy := wanted, wanted
	other.Generation, busy.ProvisioningState = "V1", "Creating"
	type row struct {
		shelf     *shelf
		elsewhere error
		says      string
		waits     time.Duration
		begun     string
	}
	each(t, map[string]row{
		"neither": {shelf: &shelf{}, waits: ClaimSettles, begun: "create gallery {ID:ortet Location:here Tags:map[ortet.io_created-by:ortet 1.0 ortet.io_reason:prototypes of scale sets in g]}\n" +
			"create image definition " + workflowtest.Short(fleet.CreateDefinition{Definition: wanted})},
		"there by now":         {shelf: &shelf{gallery: &fleet.Gallery{}, definition: &wanted}, waits: ClaimSettles},
		"of another kind":      {shelf: &shelf{gallery: &fleet.Gallery{}, definition: &other}, says: "it exists by now, and is of another kind; repeat the command, which takes another"},
		"of another namespace": {shelf: &shelf{gallery: &fleet.Gallery{}, definition: &wanted}, elsewhere: errors.New("elsewhere"), says: "elsewhere"},
		"is made by another":   {shelf: &shelf{gallery: &fleet.Gallery{}, definition: &busy}, waits: ClaimSettles, begun: "create image definition " + workflowtest.Short(fleet.CreateDefinition{Definition: wanted})},
		"gallery is not granted": {shelf: &shelf{refuses: map[string]error{"create gallery": &fleet.Error{Op: "create", Kind: fleet.KindDenied, Code: "x"}}}, says: "step gallery: create",
			begun: "create gallery {ID:ortet Location:here Tags:map[ortet.io_created-by:ortet 1.0 ortet.io_reason:prototypes of scale sets in g]}"},
	}, func(t *testing.T, c row) {
		x, _ := c.shelf.version(Image{Definition: wanted})
		x.Elsewhere = func(...fleet.Definition) error { return c.elsewhere }
		gallery, def := x.Place(plan.Observed{}, "inspect")
		begun := time.Now()
		p := workflowtest.Play(t, x.Cloud, gallery, def)
		if took := time.Since(begun); !says(p.Err, c.says) || took < c.waits || took > c.waits+6*time.Second || p.Begun() != c.begun {
			t.Errorf("%v after %s, %s", p.Err, took, p.Begun())
		}
	})
}

// TestBuild makes one version: where Azure fails or refuses, and where others are at its name.
func TestBuild(t *testing.T) {
	tags := func(by string) map[string]string { return map[string]string{fleet.TagCapture: by} }
	there := func(state, by string) *shelf {
		return &shelf{versions: map[fleet.ResourceID]fleet.ImageVersion{today: {ID: today, Name: today.Name(), ProvisioningState: state, Tags: tags(by), FailureMessage: "no room"}}}
	}
	failing := func(n int) *shelf {
		return &shelf{builds: func(v *fleet.ImageVersion) {
			if n--; n >= 0 {
				v.ProvisioningState, v.FailureMessage = plan.Failed, "no room"
			}
		}}
	}
	conflict := map[string]error{"create image version": &fleet.Error{Op: "create", Kind: fleet.KindConflict, Code: "Conflict"}}
	type row struct {
		shelf   *shelf
		image   Image
		says    string
		verbs   string // changes
		storage string
		renamed bool
		takes   time.Duration
	}
	slow := there("Creating", "c")
	each(t, map[string]row{
		"built":                            {shelf: &shelf{}, verbs: "create"},
		"donor deleted":                    {shelf: &shelf{}, image: Image{DonorGone: true}, says: "the donor was deleted during the capture"},
		"fails twice":                      {shelf: failing(2), verbs: "create delete create delete create"},
		"fails thrice":                     {shelf: failing(3), verbs: "create delete create delete create", says: "Azure failed to build it: no room"},
		"Failed of an earlier capture":     {shelf: there(plan.Failed, "b"), verbs: "create"},
		"Failed of others":                 {shelf: there(plan.Failed, ""), verbs: "create"},
		"another capture made it":          {shelf: there(plan.Succeeded, "b"), says: "b made a version of this name since this capture began; run the same command again"},
		"another tool made it":             {shelf: there(plan.Succeeded, ""), says: "another tool made a version of this name"},
		"it was found":                     {shelf: there(plan.Succeeded, "b"), image: Image{Found: true}},
		"its own, complete":                {shelf: there(plan.Succeeded, "c")},
		"its own, is built":                {shelf: slow, takes: time.Minute},
		"fails, as another tool's":         {shelf: &shelf{builds: func(v *fleet.ImageVersion) { v.ProvisioningState, v.Tags = plan.Failed, nil }}, verbs: "create", says: "another tool made a version of this name"},
		"fails, as another capture's":      {shelf: &shelf{builds: func(v *fleet.ImageVersion) { v.ProvisioningState, v.Tags = plan.Failed, tags("b") }}, verbs: "create delete create delete create", says: "Azure failed to build it: no reason given"},
		"no zones":                         {shelf: &shelf{refuses: map[string]error{"create image version": &fleet.Error{Kind: fleet.KindUnsupported, Code: "x"}}}, verbs: "create create", storage: fleet.LRS, says: "step version"},
		"conflict":                         {shelf: &shelf{gallery: &fleet.Gallery{}, refuses: conflict}, says: "not done within 2m0s: create"},
		"conflict, gallery deletes softly": {shelf: &shelf{gallery: &fleet.Gallery{SoftDelete: true}, refuses: conflict}, renamed: true, says: "gallery ortet deletes softly, and version 2026.1.2 is made under another name"},
	}, func(t *testing.T, c row) {
		if c.shelf == slow {
			slow.later = map[fleet.ResourceID]time.Time{today: time.Now().Add(time.Minute)}
		}
		x, build := c.shelf.version(c.image)
		renamed := fleet.ResourceID("")
		x.Rename = func(id fleet.ResourceID) { renamed = id }
		begun := time.Now()
		step := x.Row("")
		step.Undo, step.Deadline = nil, 2*time.Minute
		p := workflowtest.Play(t, x.Cloud, step)
		verbs := strings.Join(fleet.Each(p.Changes, func(c fleet.Change) string { verb, _, _ := strings.Cut(c.Verb(), " "); return verb }), " ")
		if !says(p.Err, c.says) || build.StorageType != c.storage || (renamed != "") != c.renamed || renamed != "" && renamed.Name() != "2026.0102.030405" {
			t.Errorf("%v, %+v, renamed %q", p.Err, build, renamed)
		}
		if took := time.Since(begun); took < c.takes || !strings.HasPrefix(c.says, "not done") && !c.renamed && verbs != c.verbs {
			t.Errorf("%s after %s", verbs, took)
		}
	})
	x, _ := (&shelf{}).version(Image{Replicas: 2, Encryption: fleet.Encryption{Set: "/set"}, Tags: map[string]string{"a": "b"}})
	if got, err := x.change(t.Context()); err != nil || workflowtest.Short(got) != "{ID:2026.1.2 Location:here Source:/generalized Replicas:2 StorageType:"+fleet.ZRS+" ReplicationMode:Full ExcludeFromLatest:false "+
		"Tags:map[a:b ortet.io_capture:c ortet.io_not-live:2026-01-02T03:04:05Z] EncryptionSet:/set}" {
		t.Errorf("%v, %v", workflowtest.Short(got), err)
	}
	if x, _ := (&shelf{}).version(Image{Names: plan.Names{Version: again}}); true {
		if got, err := x.change(t.Context()); err != nil || !got.ExcludeFromLatest {
			t.Errorf("a second one of the day is the latest: %+v, %v", got, err) // its name would be the highest for ever
		}
	}
}

// TestDelete deletes a version of its own that is not complete.
func TestDelete(t *testing.T) {
	type row struct {
		state, by string
		stays     bool
	}
	each(t, map[string]row{"unfinished": {"Creating", "c", false}, "Failed": {plan.Failed, "c", false}, "complete": {plan.Succeeded, "c", true}, "another's": {"Creating", "b", true}}, func(t *testing.T, c row) {
		s := &shelf{versions: map[fleet.ResourceID]fleet.ImageVersion{today: {ID: today, ProvisioningState: c.state, Tags: map[string]string{fleet.TagCapture: c.by}}}}
		x, _ := s.version(Image{})
		workflowtest.Play(t, s, workflow.Step{ID: "x", Do: x.Row("").Undo.Do})
		if _, stays := s.versions[today]; stays != c.stays {
			t.Errorf("it stays: %t", stays)
		}
	})
}

// TestLive records that the model's version was live, or says what follows if that fails.
func TestLive(t *testing.T) {
	marked := map[string]string{fleet.TagNotLive: "x", fleet.TagPublished: "y", "a": "b"}
	type row struct {
		state, was string
		denied     bool
		note       string
		tags       string
	}
	each(t, map[string]row{
		"recorded":   {state: plan.Succeeded, was: plan.Succeeded, tags: "map[a:b]"},
		"Failed one": {state: plan.Failed, was: plan.Failed, tags: "map[a:b]"},
		"refused": {state: plan.Succeeded, was: plan.Succeeded, denied: true, tags: "map[a:b ortet.io_not-live:x ortet.io_published-only:y]",
			note: "that v was live could not be recorded: a rollback without --to passes over it, and later captures may delete it; to record it, remove its tags ortet.io_not-live and ortet.io_published-only"},
	}, func(t *testing.T, c row) {
		was := fleet.ImageVersion{ID: today, Name: "v", ProvisioningState: c.was, Tags: marked}
		s := &shelf{versions: map[fleet.ResourceID]fleet.ImageVersion{today: was}, refuses: map[string]error{}}
		if c.denied {
			s.refuses["tag image version"] = &fleet.Error{Kind: fleet.KindDenied, Code: "x"}
		}
		x, _ := s.version(Image{})
		did := false
		p := workflowtest.Play(t, s, x.Live(&was, "inspect"), workflow.Step{ID: "model", After: []string{StepLive}, Do: Unrecorded(&was, func(context.Context, *workflow.Pass) (workflow.Wait, error) {
			did = true
			return done, nil
		})})
		if got := fmt.Sprint(s.versions[today].Tags); p.Err != nil || !did || strings.Join(p.Notes, "") != c.note || got != c.tags {
			t.Errorf("%v, %q, %s", p.Err, p.Notes, got)
		}
	})
}

// TestPrune deletes what lies beyond the history, one after the other, and lists what it could not.
func TestPrune(t *testing.T) {
	failure := func(kind fleet.Kind) error { return &fleet.Error{Op: "delete", Kind: kind, Code: "x"} }
	type row struct {
		refuses      map[string]error
		live         string // how the row live ended
		state        string // of the oldest
		pruned, kept string
		fails        bool
		uses         []fleet.ImageUse
	}
	each(t, map[string]row{
		"two are too old":               {pruned: "2026.1.0 2026.1.1"},
		"what was live is unknown":      {live: "failed"},
		"one cannot be deleted":         {refuses: map[string]error{"delete image version 2026.1.0": failure(fleet.KindDenied)}, pruned: "2026.1.1", kept: "2026.1.0: delete"},
		"one is used":                   {uses: []fleet.ImageUse{{Image: definition + "2/versions/2026.1.0", By: "/vm"}}, pruned: "2026.1.1", kept: "2026.1.0: /vm refers to it"},
		"a Failed one of a soft delete": {state: plan.Failed, refuses: map[string]error{"delete image version 2026.1.0": failure(fleet.KindConflict)}, pruned: "2026.1.1", kept: "2026.1.0: delete"},
		"something is under way":        {refuses: map[string]error{"delete image version 2026.1.0": failure(fleet.KindConflict), "delete image version 2026.1.1": failure(fleet.KindConflict)}, fails: true},
		"Azure is away":                 {refuses: map[string]error{"delete image version": failure(fleet.KindTransient)}, fails: true},
		"uses cannot be read":           {refuses: map[string]error{"list uses": failure(fleet.KindDenied)}, fails: true},
		"versions cannot be read":       {refuses: map[string]error{"list versions": failure(fleet.KindDenied)}, fails: true},
	}, func(t *testing.T, c row) {
		s := &shelf{versions: map[fleet.ResourceID]fleet.ImageVersion{}, refuses: c.refuses, uses: c.uses}
		for i := range 4 {
			id := (definition + fleet.ResourceID(workflow.SkipIf(i == 0, "2"))).Child("versions", fmt.Sprintf("2026.1.%d", i)) // one of another kind
			s.versions[id] = fleet.ImageVersion{ID: id, Name: id.Name(), ProvisioningState: plan.Succeeded, Published: s.Now().Add(time.Duration(i-30) * 24 * time.Hour), Tags: map[string]string{fleet.TagCapture: "b"}}
		}
		if oldest := s.versions[definition+"2/versions/2026.1.0"]; c.state != "" {
			oldest.ProvisioningState = c.state
			s.versions[oldest.ID] = oldest
		}
		x, _ := s.version(Image{Request: plan.Request{History: 2}, Names: plan.Names{Version: definition + "/versions/2026.1.3"}, Definitions: []fleet.ResourceID{definition, definition + "2"}})
		live := workflow.Step{ID: StepLive, Optional: true, Do: func(context.Context, *workflow.Pass) (workflow.Wait, error) {
			if c.live != "" {
				return done, errors.New("no")
			}
			return done, nil
		}}
		prune := x.Prune(nil, false, StepLive)
		prune.Deadline = 10 * time.Minute
		p := workflowtest.Play(t, s, live, prune)
		pruned := slices.Sorted(slices.Values(x.Pruned))
		if strings.Join(pruned, " ") != c.pruned || !strings.HasPrefix(strings.Join(x.Kept, " "), c.kept) || (len(x.Kept) > 0) != (c.kept != "") || (p.Steps[stepPrune].State == "failed") != c.fails || p.Err != nil {
			t.Errorf("%v; pruned %q, kept %q, %+v", p.Err, x.Pruned, x.Kept, p.Steps[stepPrune])
		}
		if want := 4 - len(x.Pruned); len(s.versions) != want {
			t.Errorf("%d are left", len(s.versions))
		}
	})
}

// TestPublish tags a version as what it is proved to be, and puts it among the latest where that is wished.
func TestPublish(t *testing.T) {
	type row struct {
		tags     map[string]string // of the version
		request  plan.Request
		name     fleet.ResourceID
		proved   bool
		excluded bool // by the row version
		in       bool // it is among the latest already
		verb     string
		want     string // tags
		latest   bool
	}
	const proved = "ortet.io_canary:2026-01-02T03:04:05Z"
	notLive := map[string]string{fleet.TagNotLive: "x", fleet.TagPublished: "y"}
	unjudged := map[string]string{fleet.TagNotLive: "x", fleet.TagCanary: plan.Unjudged}
	each(t, map[string]row{
		"proved":                             {tags: unjudged, proved: true, verb: "publish", want: "map[" + proved + "]", latest: true},
		"proved, excluded by request":        {tags: unjudged, proved: true, request: plan.Request{ExcludeFromLatest: true}, verb: "tag", want: "map[" + proved + "]"},
		"proved, stays out":                  {tags: unjudged, proved: true, excluded: true, verb: "tag", want: "map[" + proved + "]"},
		"proved, a second one of the day":    {tags: unjudged, proved: true, name: again, verb: "tag", want: "map[" + proved + "]"},
		"proved, and only published":         {tags: unjudged, proved: true, request: plan.Request{PublishOnly: true}, verb: "publish", want: "map[" + proved + " ortet.io_not-live:x]", latest: true},
		"goes live without a canary":         {tags: unjudged, verb: "publish", want: "map[]", latest: true},
		"without a canary at all":            {tags: notLive, in: true, verb: "tag", want: "map[]", latest: true},
		"out of the latest by another":       {tags: notLive, verb: "tag", want: "map[]"},
		"proved by an earlier capture":       {tags: map[string]string{fleet.TagNotLive: "x", fleet.TagCanary: "2026-01-01"}, verb: "tag", want: "map[ortet.io_canary:2026-01-01]"},
		"proved without a tag of before":     {tags: notLive, proved: true, verb: "publish", want: "map[" + proved + "]", latest: true},
		"proved, live and the latest":        {tags: map[string]string{fleet.TagCanary: plan.Unjudged}, proved: true, in: true, verb: "tag", want: "map[" + proved + "]", latest: true},
		"proved, live, no tag":               {tags: map[string]string{"a": "b"}, proved: true, in: true, verb: "tag", want: "map[a:b " + proved + "]", latest: true},
		"proved, live and out of the latest": {tags: map[string]string{fleet.TagCanary: "2026-01-01"}, proved: true, verb: "publish", want: "map[" + proved + "]", latest: true},
		"live and proved, nothing to change": {tags: map[string]string{fleet.TagCanary: "2026-01-01"}, in: true, want: "map[ortet.io_canary:2026-01-01]", latest: true},
	}, func(t *testing.T, c row) {
		id := today
		if c.name != "" {
			id = c.name
		}
		s := &shelf{versions: map[fleet.ResourceID]fleet.ImageVersion{id: {ID: id, ProvisioningState: plan.Succeeded, Tags: c.tags, ExcludeFromLatest: !c.in}}}
		x, build := s.version(Image{Request: c.request, Proved: c.proved, Names: plan.Names{Version: id}})
		build.Excluded = c.excluded
		p := workflowtest.Play(t, s, x.Publish("", "model"))
		verb := ""
		for _, c := range p.Changes {
			verb, _, _ = strings.Cut(c.Verb(), " ")
		}
		if v := s.versions[id]; p.Err != nil || verb != c.verb || len(p.Changes) > 1 || fmt.Sprint(v.Tags) != c.want || v.ExcludeFromLatest == c.latest {
			t.Errorf("%v, %q, %v, out of the latest: %t", p.Err, p.Begun(), v.Tags, v.ExcludeFromLatest)
		}
	})
}

// TestReadPublished is all that another tool needs of a version, from where Azure shows it.
func TestReadPublished(t *testing.T) {
	s := &shelf{versions: map[fleet.ResourceID]fleet.ImageVersion{today: {Location: "here", Regions: []string{"here", "there"}, ExcludeFromLatest: true}},
		definition: &fleet.Definition{OSState: "Generalized", Generation: "V2", Architecture: "x64", SecurityType: "TrustedLaunch", Controllers: "SCSI, NVMe", PlanPublisher: "pub", PlanProduct: "prod", PlanName: "name"}}
	x, _ := s.version(Image{})
	want := Published{Subscription: "s", ResourceGroup: "g", Gallery: "ortet", Definition: "pool1", DefinitionID: definition, Version: "2026.1.2", Location: "here", Regions: []string{"here", "there"}, ExcludeFromLatest: true,
		OSState: "Generalized", Generation: "V2", Architecture: "x64", SecurityType: "TrustedLaunch", Controllers: "SCSI, NVMe", PlanPublisher: "pub", PlanProduct: "prod", PlanName: "name"}
	if got, err := x.Read(t.Context()); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, %v", got, err)
	}
	s.definition = nil
	if got, err := x.Read(t.Context()); err == nil || got.Location != "here" || got.OSState != "" || got.Gallery != "ortet" {
		t.Errorf("%+v, %v", got, err)
	}
	delete(s.versions, today)
	s.definition = &fleet.Definition{OSState: "Generalized"}
	if got, err := x.Read(t.Context()); err == nil || got.OSState != "Generalized" {
		t.Errorf("%+v, %v", got, err)
	}
}
