package survey

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// anAzure has scale sets by resource group, each with as many failed instances as its capacity.
type anAzure struct {
	pools map[string][]fleet.Pool
	errs  map[string]fleet.Kind // of a group's list
	logs  atomic.Int32          // that were read
}

func (a *anAzure) Pools(_ context.Context, group fleet.ResourceID) ([]fleet.Pool, error) {
	if kind, fails := a.errs[group.Name()]; fails {
		return nil, &fleet.Error{Op: "list scale sets", Resource: string(group), Kind: kind, Err: errors.New("no")}
	}
	return a.pools[group.Name()], nil
}

func (a *anAzure) Boots(_ context.Context, p fleet.Pool) (all []fleet.Boot, _ error) {
	for i := range p.Capacity {
		all = append(all, fleet.Boot{Instance: p.ID.Child("virtualMachines", fmt.Sprint(i)), Pool: p.ID, Name: fmt.Sprintf("%s_%d", p.ID.Name(), i),
			HostName: fmt.Sprintf("%s%06d", p.ID.Name(), i), VMID: fmt.Sprintf("%08d-2222-4333-8444-555555555555", i), Console: true,
			Created: noon.Add(-5 * time.Minute), ProvisioningState: "Creating", Power: fleet.PowerRunning})
	}
	return all, nil
}

func (a *anAzure) SerialLog(context.Context, fleet.ResourceID) ([]byte, error) {
	a.logs.Add(1)
	return nil, nil
}

// keptRecords are what a controller kept; one of another label has to be left out by the server.
type keptRecords struct {
	err  error
	kept []assess.Assessment
}

func (k keptRecords) Records(_ context.Context, labels map[string]string) iter.Seq2[fleet.Record, error] {
	return func(yield func(fleet.Record, error) bool) {
		if labels[assess.EvidenceLabel] != assess.EvidenceValue {
			yield(fleet.Record{}, errors.New("all ConfigMaps were asked for"))
			return
		}
		for _, a := range k.kept {
			text, _ := json.Marshal(a) // of strings and times
			if !yield(fleet.Record{Data: map[string]string{assess.KeyAssessment: string(text)}}, nil) {
				return
			}
		}
		if k.err != nil {
			yield(fleet.Record{}, k.err)
		}
	}
}

// TestObserve shows what there is, and says what could not be read: without that the rest is no answer.
func TestObserve(t *testing.T) {
	inGroup := func(group string) fleet.ResourceID {
		return fleet.ResourceID("/subscriptions/s/resourceGroups/" + group + "/providers/Microsoft.Compute/virtualMachineScaleSets/pool1")
	}
	groupOf := func(group string) fleet.ResourceID { return inGroup(group).Group() }
	node := providerNodes("azure://" + string(inGroup("g")) + "/virtualMachines/7")
	deleted := assess.Assessment{Instance: inGroup("g").Child("virtualMachines", "9"), Pool: inGroup("g"), Name: "pool1_9", HostName: "pool1000009",
		VMID: "99999999-2222-4333-8444-555555555555", State: assess.Failed, Verdict: &wire.Verdict{Outcome: wire.Failed, Reason: "DiskFull"}}
	type found struct {
		stories, logs           int
		missing, unread, noted  string // the whole, or "" for none
		isGone, isDeletedByKept bool   // node a; the deleted instance is shown
	}
	for name, c := range map[string]struct {
		surveyor Surveyor
		capacity int64
		errs     map[string]fleet.Kind
		kept     keptRecords
		want     found
	}{
		"groups of Nodes":                         {Surveyor{}, 2, nil, keptRecords{}, found{stories: 3, logs: 2, isGone: true}},
		"and another":                             {Surveyor{Groups: []fleet.ResourceID{groupOf("h")}}, 2, nil, keptRecords{}, found{stories: 5, logs: 4, isGone: true}},
		"one pool":                                {Surveyor{Pools: []fleet.ResourceID{inGroup("h")}}, 2, nil, keptRecords{}, found{stories: 2, logs: 2}},
		"more than logs are read of":              {Surveyor{Pools: []fleet.ResourceID{inGroup("h")}}, 40, nil, keptRecords{}, found{stories: 40, logs: 32, noted: "8 more instances"}},
		"the group of a pool does not exist":      {Surveyor{Pools: []fleet.ResourceID{inGroup("x")}}, 2, map[string]fleet.Kind{"x": fleet.KindNotFound}, keptRecords{}, found{missing: string(inGroup("x"))}},
		"the group of a Node does not exist":      {Surveyor{}, 2, map[string]fleet.Kind{"g": fleet.KindNotFound}, keptRecords{}, found{stories: 1, unread: "resourceGroups/g"}},
		"a group may not be listed":               {Surveyor{Groups: []fleet.ResourceID{groupOf("h")}}, 2, map[string]fleet.Kind{"h": fleet.KindDenied}, keptRecords{}, found{stories: 3, logs: 2, unread: "resourceGroups/h"}},
		"that of a pool may not":                  {Surveyor{Pools: []fleet.ResourceID{inGroup("h")}}, 2, map[string]fleet.Kind{"h": fleet.KindDenied}, keptRecords{}, found{unread: "resourceGroups/h"}},
		"Azure is not asked":                      {Surveyor{Unasked: errors.New("no credentials")}, 2, nil, keptRecords{}, found{stories: 1, unread: "no credentials"}},
		"what was kept may not be read":           {Surveyor{}, 2, nil, keptRecords{err: errors.New("configmaps is forbidden")}, found{stories: 3, logs: 2, unread: "configmaps is forbidden"}},
		"an instance that was deleted since":      {Surveyor{}, 2, nil, keptRecords{kept: []assess.Assessment{deleted}}, found{stories: 4, logs: 2, isGone: true, isDeletedByKept: true}},
		"and may not all be read":                 {Surveyor{}, 2, nil, keptRecords{kept: []assess.Assessment{deleted}, err: errors.New("forbidden")}, found{stories: 4, logs: 2, unread: "forbidden", isDeletedByKept: true}},
		"of another pool than the one that is":    {Surveyor{Pools: []fleet.ResourceID{inGroup("h")}}, 2, nil, keptRecords{kept: []assess.Assessment{deleted}}, found{stories: 2, logs: 2}},
		"of no instances, and a Node that is off": {Surveyor{}, 0, nil, keptRecords{}, found{stories: 1, isGone: true}},
	} {
		t.Run(name, func(t *testing.T) {
			a := &anAzure{errs: c.errs, pools: map[string][]fleet.Pool{"g": {{ID: inGroup("g"), Capacity: c.capacity}}, "h": {{ID: inGroup("h"), Capacity: c.capacity}}}}
			v := c.surveyor
			v.Nodes, v.Records, v.Boots, v.Now = node, c.kept, a, func() time.Time { return noon }
			s, err := v.Observe(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			is := func(what string, got []string, want string) {
				if len(got) > 1 || !strings.Contains(strings.Join(got, ""), want) || (want == "") != (len(got) == 0) {
					t.Errorf("%s: %q, want %q", what, got, want)
				}
			}
			is("missing", fleet.Each(s.Missing, func(id fleet.ResourceID) string { return string(id) }), c.want.missing)
			is("unread", s.Unread, c.want.unread)
			is("notes", s.Notes, c.want.noted)
			gone := slices.ContainsFunc(s.Stories, func(n Story) bool { return n.Node == "a" && n.State == assess.Deleting })
			kept := slices.ContainsFunc(s.Stories, func(n Story) bool { return n.Name == "pool1_9" && n.Gone && n.State == assess.Failed })
			if got := int(a.logs.Load()); len(s.Stories) != c.want.stories || got != c.want.logs || gone != c.want.isGone || kept != c.want.isDeletedByKept {
				t.Errorf("%d stories, %d logs, node gone %t, deleted instance %t; want %+v", len(s.Stories), got, gone, kept, c.want)
			}
		})
	}
}

// TestVerdictsMissing waits for instances that Azure does not list yet, and for those without a verdict.
func TestVerdictsMissing(t *testing.T) {
	pool := fleet.Pool{ID: pool1, Capacity: 3}
	came := func(n int, state assess.State) Story {
		s := aStory(n, state, "", "", true)
		s.Boot = &fleet.Boot{Instance: s.Instance}
		return s
	}
	alone := came(3, assess.Succeeded)
	alone.Boot = nil
	for name, c := range map[string]struct {
		stories []Story
		want    string // "" if nothing is missing
	}{
		"all came up":                      {[]Story{came(0, assess.Succeeded), came(1, assess.Succeeded), came(2, assess.Failed)}, ""},
		"one boots":                        {[]Story{came(0, assess.Succeeded), came(1, assess.Succeeded), came(2, assess.Booting)}, "1 instance without a verdict: k8s-pool1-12345678-vmss000002"},
		"one is not listed":                {[]Story{came(0, assess.Succeeded), came(1, assess.Succeeded)}, "1 instance that the scale set's capacity has"},
		"one's Node outlives it":           {[]Story{came(0, assess.Succeeded), came(1, assess.Succeeded), alone}, "1 instance that the scale set's capacity has"},
		"one is being deleted":             {[]Story{came(0, assess.Succeeded), came(1, assess.Succeeded), came(2, assess.Deleting)}, "1 instance that the scale set's capacity has"},
		"one is more than there should be": {[]Story{came(0, assess.Succeeded), came(1, assess.Succeeded), came(2, assess.Succeeded), came(4, assess.Succeeded)}, ""},
	} {
		got := Survey{Stories: c.stories, Pools: []fleet.Pool{pool}, Now: noon}.MissingVerdicts()
		if !strings.HasPrefix(got, c.want) || (c.want == "") != (got == "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
