package model

import (
	"context"
	"errors"
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

// A scale is a scale set that others change, too.
type scale struct {
	azure.Cloud
	mu       sync.Mutex
	pool     fleet.Pool
	all      []fleet.Instance
	versions []fleet.ImageVersion
	before   func(fleet.Change) error // a change
	comes    fleet.ResourceID         // image of new instances
	customs  []string                 // customData that the model was given
	nodes    nodes
}

func (s *scale) Pool(context.Context, fleet.ResourceID) (fleet.Pool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pool, nil
}

func (s *scale) Instances(context.Context, fleet.ResourceID) ([]fleet.Instance, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all, nil
}

func (s *scale) Versions(context.Context, fleet.ResourceID) ([]fleet.ImageVersion, error) {
	return s.versions, nil
}

func (s *scale) Now() time.Time { return time.Now() }

func (s *scale) Begin(_ context.Context, change fleet.Change) (fleet.Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.before != nil {
		if err := s.before(change); err != nil {
			return "", err
		}
	}
	switch c := change.(type) {
	case fleet.PatchModel:
		s.pool.Model.Image, s.pool.Etag = c.Image, "patched"
		if c.CustomData != nil {
			s.customs = append(s.customs, c.CustomData.Reveal())
		}
	case fleet.DeleteExtension:
		for i, e := range s.pool.Model.Extensions {
			if e.Name == c.Name {
				s.pool.Model.Extensions = append(s.pool.Model.Extensions[:i:i], s.pool.Model.Extensions[i+1:]...)
			}
		}
	case fleet.SetCapacity:
		for ; s.pool.Capacity < c.Capacity; s.pool.Capacity++ {
			s.adds()
		}
		s.pool.Etag = "grown"
	}
	return "", nil
}

// adds adds an instance with a Node that is Ready.
func (s *scale) adds() {
	id := string(rune('0' + len(s.all)))
	uuid := "5c5e9f1e-6d5b-4f0e-8a9d-00000000000" + id
	image := version
	if s.comes != "" {
		image = s.comes
	}
	s.all = append(s.all, fleet.Instance{ID: set.Child("virtualMachines", id), Name: "pool1_" + id, HostName: "pool100000" + id, VMID: uuid, ProvisioningState: plan.Succeeded,
		Created: time.Now(), Image: fleet.ImageReference{ID: image}})
	s.nodes.all = append(s.nodes.all, fleet.Node{Name: "pool100000" + id, Ready: true, SystemUUID: uuid, ProviderID: "azure://" + string(set.Child("virtualMachines", id))})
}

func (s *scale) model(t Target, h *plan.Inherited) (m *Model, changed *Changed, kept *[]string) {
	var mu sync.Mutex
	t.Pool, t.Version = set, version
	changed, kept = &Changed{}, &[]string{}
	return &Model{Cloud: s, Cluster: &s.nodes, Now: time.Now, Set: workflow.NewScaleSet(s, time.Now), Changed: workflow.PartOf(&mu, changed), Inherited: workflow.PartOf(&mu, h),
		Of: func() Target { return t }, CustomData: func(_ context.Context, sha string) (fleet.Secret, error) {
			return fleet.NewSecret("data of " + sha), nil
		},
		KeepSettings: func(_ context.Context, extension string, settings fleet.Secret) error {
			*kept = append(*kept, extension+"="+settings.Reveal())
			return nil
		}}, changed, kept
}

func pooled() *scale {
	return &scale{pool: fleet.Pool{ID: set, Name: "pool1", Location: "here", UpgradeMode: "Manual", ProvisioningState: plan.Succeeded, Etag: "e1", Capacity: 0, Model: fleet.Model{Image: fleet.ImageReference{ID: other}}}}
}

// TestRowsText: which rows there are, when they are skipped, and where a capture commits.
func TestRowsText(t *testing.T) {
	for name, c := range map[string]struct {
		request   plan.Request
		changed   Changed
		done      bool
		published bool
		want      string
	}{
		"all": {request: plan.Request{NewNodes: 2}, changed: Changed{ToDelete: []string{"a", "b"}}, want: `
model: Point the model at 2026.1.2; after judge; commits here
extensions: Delete extensions from the model: a, b; after model
grow: Add 2 new nodes; after model extensions`},
		"none": {changed: Changed{ModelChanged: true}, published: true, want: `
model: Point the model at 2026.1.2; after judge; skip: the model uses 2026.1.2; commits here
extensions: Delete extensions from the model; after model; skip: none to delete
grow: Add 0 new nodes; after model extensions; skip: not requested`},
		"named, and not complete": {request: plan.Request{NewNodes: 1}, changed: Changed{ModelChanged: true}, done: true, want: `
model: Point the model at 2026.1.2; after judge; commits here
extensions: Delete extensions from the model; after model; skip: none to delete
grow: Add 1 new node; after model extensions; skip: added by an earlier capture`},
		"only published": {request: plan.Request{PublishOnly: true, NewNodes: 1}, changed: Changed{ToDelete: []string{"a"}}, want: `
model: Point the model at 2026.1.2; after judge; skip: the version is only published
extensions: Delete extensions from the model: a; after model; skip: the version is only published
grow: Add 1 new node; after model extensions; skip: the version is only published`},
	} {
		m, changed, _ := pooled().model(Target{Request: c.request}, &plan.Inherited{Growth: plan.Growth{Done: c.done}})
		*changed = c.changed
		point, extensions, grow := m.Rows(c.published, "judge")
		if got := workflowtest.Text(point, extensions, grow); got != strings.TrimSpace(c.want) {
			t.Errorf("%s:\n%s", name, got)
		}
	}
}

// TestPoint points the model at the version only as it was read and may be changed, and ends what a
// rollback left unfinished.
func TestPoint(t *testing.T) {
	named := func(published int64, id fleet.ResourceID) fleet.ImageVersion {
		return fleet.ImageVersion{ID: id, Name: id.Name(), ProvisioningState: plan.Succeeded, Published: time.Unix(published, 0), Tags: map[string]string{fleet.TagCapture: "x"}}
	}
	sha := func(of string) string { return plan.SHA256("data of " + of) }
	for name, c := range map[string]struct {
		of      Target
		last    string
		found   func(*scale)
		says    string
		note    string
		customs string
		lastNow string
		asked   string // ETag
	}{
		"as it was":                       {asked: "e1"},
		"the version needs other data":    {of: Target{CustomData: "a"}, last: "b", note: "the model's customData is replaced by what the nodes of 2026.1.2 need", customs: "data of a", lastNow: sha("a"), asked: "e1"},
		"set again":                       {of: Target{CustomData: "a"}, last: sha("a"), customs: "data of a", lastNow: sha("a"), asked: "e1"},
		"baked":                           {of: Target{Request: plan.Request{Bootstrap: plan.BootstrapBaked}}, customs: "data of " + plan.NoopSHA256, lastNow: sha(plan.NoopSHA256), asked: "e1"},
		"it upgrades its nodes by itself": {found: func(s *scale) { s.pool.UpgradeMode = "Automatic" }, says: "step model: patch model"},
		"it uses a newer version by now":  {found: func(s *scale) { s.versions = []fleet.ImageVersion{named(9, other), named(5, version)} }, says: "the model uses 2026.1.1 by now, which is newer than 2026.1.2; to use the older one: ortet rollback --to 2026.1.2"},
		"it uses an older version":        {found: func(s *scale) { s.versions = []fleet.ImageVersion{named(5, other), named(9, version)} }, asked: "e1"},
		"others change it at the same time": {found: func(s *scale) {
			s.before = func(c fleet.Change) error {
				if c.(fleet.PatchModel).Etag == "e1" {
					s.pool.Etag = "e2"
					return &fleet.Error{Kind: fleet.KindStale}
				}
				return nil
			}
		}, asked: "e2"},
		"refused, after it was updating": {found: func(s *scale) {
			s.pool.ProvisioningState = "Updating"
			s.before = func(fleet.Change) error { return &fleet.Error{Op: "patch", Kind: fleet.KindDenied, Code: "x"} }
		}, says: "step model: patch", asked: "e1", note: "scale set pool1 was updating for 20m0s (the scale set is Updating): it was changed nevertheless"},
		"names it already": {found: func(s *scale) { s.pool.Model.Image.ID = version }},
		"refused": {found: func(s *scale) {
			s.before = func(fleet.Change) error { return &fleet.Error{Op: "patch", Kind: fleet.KindDenied, Code: "x"} }
		}, says: "step model: patch", asked: "e1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, h := pooled(), plan.Inherited{LastCustomData: c.last, Unfinished: &plan.Unfinished{Name: "x"}}
				if c.found != nil {
					c.found(s)
				}
				c.of.Definitions = []fleet.ResourceID{version.Parent()}
				m, changed, _ := s.model(c.of, &h)
				point, _, _ := m.Rows(false, "judge")
				p := workflowtest.Play(t, s, point)
				asked := ""
				for _, x := range p.Changes {
					asked = x.(fleet.PatchModel).Etag
				}
				if c.lastNow == "" {
					c.lastNow = c.last
				}
				if (p.Err != nil) != (c.says != "") || p.Err != nil && !strings.Contains(p.Err.Error(), c.says) || strings.Join(p.Notes, "") != c.note || asked != c.asked {
					t.Errorf("%v, notes %q, asked with %q", p.Err, p.Notes, asked)
				}
				if ok := c.says == ""; changed.ModelChanged != ok || (h.Unfinished == nil) != ok || s.pool.Model.Image.ID.Equal(version) != ok || strings.Join(s.customs, " ") != c.customs || h.LastCustomData != c.lastNow {
					t.Errorf("%+v, %+v, model %+v, given %q", changed, h, s.pool.Model, s.customs)
				}
			})
		})
	}
}

// TestExtensions deletes what bootstrapped the donor, dependents first, and keeps settings before.
func TestExtensions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := pooled()
		s.pool.Model.Extensions = []fleet.Extension{{Name: "cse", Type: "CustomScript", Settings: fleet.NewSecret("{1}")}, {Name: "plain", Type: "CustomScript", After: []string{"cse"}}, {Name: "stays", Type: "Other"}}
		h := plan.Inherited{Original: &plan.Original{Extensions: plan.OriginalExtensions(s.pool.Model.Extensions, nil)}}
		m, _, kept := s.model(Target{}, &h)
		s.before = func(c fleet.Change) error {
			if c.Target().Name() == "cse" && len(*kept) == 0 {
				return errors.New("deleted before its settings are kept")
			}
			return nil
		}
		_, extensions, _ := m.Rows(true)
		extensions.Skip = ""
		p := workflowtest.Play(t, s, extensions)
		deleted := ""
		for _, e := range h.Original.Extensions {
			if e.Deleted {
				deleted += e.Name + " "
			}
		}
		if p.Err != nil || p.Begun() != "delete extension {Pool:pool1 Name:plain}\ndelete extension {Pool:pool1 Name:cse}" || strings.Join(*kept, " ") != "cse={1}" || deleted != "cse plain " {
			t.Errorf("%v, %q, kept %q, deleted %q", p.Err, p.Begun(), *kept, deleted)
		}
	})
	lost := Target{Request: plan.Request{Bootstrap: plan.BootstrapBaked}}.Irreversible([]fleet.Extension{{Name: "cse", Type: "CustomScript"}, {Name: "stays", Type: "Other"}})
	if len(lost) != 2 || len(lost[StepExtensions]) != 1 || !strings.HasPrefix(lost[StepExtensions][0], "extension cse (CustomScript): its protected settings cannot be read back") || !strings.HasPrefix(lost[StepModel][0], "the model's customData cannot be read back") {
		t.Errorf("%q", lost)
	}
}

// TestGrow adds as many nodes as are missing, once, whatever others do meanwhile.
func TestGrow(t *testing.T) {
	for name, c := range map[string]struct {
		was   plan.Growth
		found func(*scale)
		wants int64
		says  string
		note  string
		asked string // capacities, with ETags
		nodes int    // that count as new
		done  bool
	}{
		"two":                     {wants: 2, asked: "3 e1", nodes: 2, done: true},
		"one of two is there":     {was: plan.Growth{Nodes: []plan.NewNode{{Instance: "pool1_0", Ready: true}}}, wants: 2, asked: "2 e1", nodes: 2, done: true},
		"was asked for, and came": {was: plan.Growth{Capacity: 2, Etag: "e1", Adds: 1, Before: []string{"pool1_0"}}, found: func(s *scale) { s.adds(); s.pool.Capacity = 2 }, wants: 1, nodes: 1, done: true},
		"an earlier operation left the capacity raised": {was: plan.Growth{Unmet: 2}, found: func(s *scale) { s.pool.Capacity = 2 }, wants: 2, asked: "3 e1", nodes: 1},
		"others change it at the same time": {found: func(s *scale) {
			s.before = func(c fleet.Change) error {
				if c.(fleet.SetCapacity).Etag == "e1" {
					s.adds()
					s.pool.Capacity, s.pool.Etag = 2, "e2"
					return &fleet.Error{Kind: fleet.KindStale}
				}
				return nil
			}
		}, wants: 1, asked: "2 e1, 3 e2", nodes: 1, done: true},
		"the model names another by now": {found: func(s *scale) { s.pool.Model.Image.ID = other }, wants: 1, says: "the model names " + string(other) + " by now, not 2026.1.2, so no node was added"},
		"no quota": {found: func(s *scale) {
			s.before = func(fleet.Change) error { return &fleet.Error{Op: "grow", Kind: fleet.KindInvalid, Code: "Quota"} }
		}, wants: 1, says: "step grow: grow", asked: "2 e1"},
		"new nodes come from another image": {found: func(s *scale) { s.comes = other }, wants: 1, asked: "2 e1", says: "0 of 1 new node of 2026.1.2 Ready"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := pooled()
				s.adds()
				s.pool.Capacity, s.pool.Model.Image.ID = 1, version
				if c.found != nil {
					c.found(s)
				}
				c.was.Version, c.was.Wanted = version, c.wants
				h := plan.Inherited{Growth: c.was}
				m, _, _ := s.model(Target{Request: plan.Request{NewNodes: c.wants}}, &h)
				_, _, grow := m.Rows(true)
				p := workflowtest.Play(t, s, grow)
				var asked []string
				for _, x := range p.Changes {
					asked = append(asked, strings.TrimSpace(string(rune('0'+x.(fleet.SetCapacity).Capacity))+" "+x.(fleet.SetCapacity).Etag))
				}
				if (p.Err != nil) != (c.says != "" || !c.done) || p.Err != nil && !strings.Contains(p.Err.Error(), c.says) || strings.Join(p.Notes, "") != c.note || strings.Join(asked, ", ") != c.asked {
					t.Errorf("%v, notes %q, asked for %q", p.Err, p.Notes, asked)
				}
				g := h.Growth
				if len(g.Nodes) != c.nodes || g.Done != c.done || !m.Grew || c.done && g.Accepted.IsZero() || c.says == "step grow: grow" && (g.Capacity != 0 || g.Before != nil) {
					t.Errorf("%+v", g)
				}
			})
		})
	}
}

// TestEnded says from where new nodes come after a growth that failed, and what is left to do.
func TestEnded(t *testing.T) {
	for _, c := range []struct {
		image          fleet.ResourceID
		watched, again bool
		ended, left    string
	}{
		{version, false, false, "new nodes of pool1 come from 2026.1.2, but this needs a person", "Azure did not add 1 new node (the reason is above); the same command adds what is missing"},
		{other, true, true, "new nodes of pool1 come from 2026.1.1, but this needs a person", "Azure did not add 1 new node (the reason is above); the same command without --again adds what is missing; nothing watches the nodes of 2026.1.2; run ortet watch pool1"},
	} {
		s := pooled()
		s.pool.Model.Image.ID = c.image
		m, _, _ := s.model(Target{Watched: c.watched, Request: plan.Request{Again: c.again}}, &plan.Inherited{Growth: plan.Growth{Wanted: 1}})
		m.Set.Last = s.pool
		if ended, left := m.Ended(); ended != c.ended || strings.Join(left, "; ") != c.left {
			t.Errorf("%q, %q", ended, left)
		}
	}
}
