package capture_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/journal/journaltest"
)

// scaleSets are those that Azure has, by name.
type scaleSets struct {
	azure.Cloud
	pools map[string]fleet.Pool
	now   time.Time
}

func (s scaleSets) Now() time.Time { return s.now }

// nodes are the names of scale sets that have a Node each.
type nodes struct {
	cluster.Cluster
	of []string
}

func scaleSet(name string) fleet.ResourceID {
	return fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/" + name)
}

func (s scaleSets) Pool(_ context.Context, id fleet.ResourceID) (fleet.Pool, error) {
	if p, has := s.pools[id.Name()]; has {
		return p, nil
	}
	return fleet.Pool{}, &fleet.Error{Kind: fleet.KindNotFound}
}

func (scaleSets) Definitions(context.Context, fleet.ResourceID) (none []fleet.Definition, _ error) {
	return
}

func (scaleSets) Versions(context.Context, fleet.ResourceID) (none []fleet.ImageVersion, _ error) {
	return
}
func (scaleSets) Instances(context.Context, fleet.ResourceID) (none []fleet.Instance, _ error) {
	return
}
func (nodes) Holding(context.Context, string) (h cluster.Holding, _ bool, _ error) { return }

func (n nodes) Nodes(context.Context) iter.Seq2[fleet.Node, error] {
	return func(yield func(fleet.Node, error) bool) {
		for _, name := range n.of {
			if !yield(fleet.Node{ProviderID: "azure://" + string(scaleSet(name)) + "/virtualMachines/0"}, nil) {
				return
			}
		}
	}
}

func TestStatusOfCanaries(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	const mine, before, later = "capture-20261125-110000", "2026-11-26T11:00:00Z", "2026-11-27T11:00:00Z"
	open := journal.Record{Name: mine}
	for name, c := range map[string]struct {
		tag     string // ortet.io_canary of scale set web-canary
		gone    bool   // scale set web
		lost    bool   // scale set web-canary
		nodes   []string
		record  journal.Record // of web
		denied  bool           // that
		want    []string       // scale sets that are shown
		canary  bool           // with web
		deleted bool           // is what a person is told to do with it
	}{
		"at work": {tag: later, nodes: []string{"web", "web-canary"}, record: open,
			want: []string{"web"}, canary: true},
		"of no Node":           {tag: later, nodes: []string{"web"}, record: open, want: []string{"web"}, canary: true},
		"alone with a Node":    {tag: later, nodes: []string{"web-canary"}, record: open, want: []string{"web"}, canary: true},
		"of a gone pool":       {tag: later, gone: true, nodes: []string{"web", "web-canary"}, want: []string{"web", "web-canary"}, canary: true},
		"alone of a gone pool": {tag: later, gone: true, nodes: []string{"web-canary"}, want: []string{"web-canary"}},
		"lost, with a Node":    {lost: true, nodes: []string{"web", "web-canary"}, want: []string{"web"}},
		"not tagged":           {nodes: []string{"web", "web-canary"}, want: []string{"web", "web-canary"}},
		"expired, open":        {tag: before, nodes: []string{"web"}, record: open, want: []string{"web"}, canary: true},
		"expired, another open": {tag: before, nodes: []string{"web"}, record: journal.Record{Name: "capture-20261126-110000"},
			want: []string{"web"}, canary: true, deleted: true},
		"expired, ended": {tag: before, nodes: []string{"web"}, record: journal.Record{Name: mine, Ended: &journal.End{Exit: 4}},
			want: []string{"web"}, canary: true, deleted: true},
		"expired, no journal":  {tag: before, nodes: []string{"web"}, want: []string{"web"}, canary: true, deleted: true},
		"expired, not allowed": {tag: before, nodes: []string{"web"}, denied: true, want: []string{"web"}, canary: true},
		"ended, not expired": {tag: later, nodes: []string{"web"}, record: journal.Record{Name: mine, Ended: &journal.End{}},
			want: []string{"web"}, canary: true},
	} {
		t.Run(name, func(t *testing.T) {
			world := scaleSets{now: now, pools: map[string]fleet.Pool{
				"web":        {ID: scaleSet("web")},
				"web-canary": {ID: scaleSet("web-canary"), Capacity: 2, Tags: map[string]string{fleet.TagCanary: c.tag, fleet.TagCapture: mine}},
			}}
			if c.gone {
				delete(world.pools, "web")
			}
			if c.lost {
				delete(world.pools, "web-canary")
			}
			var store journal.Store = &journaltest.Memory{}
			if c.record.Name != "" {
				c.record.Pool, c.record.Kind, c.record.Phase = string(scaleSet("web")), capture.Kind, journal.Forward
				if _, err := store.Save(t.Context(), c.record); err != nil {
					t.Fatal(err)
				}
			}
			if c.denied {
				store = unreadable{store}
			}
			s := capture.New(capture.Config{Cloud: world, Cluster: nodes{of: c.nodes}, Journal: store})
			all, err := s.Status(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			var shown []string
			canary := (*capture.CanaryStatus)(nil)
			for _, s := range all {
				if shown = append(shown, s.Pool.ID.Name()); s.Canary != nil {
					canary = s.Canary
				}
			}
			if !slices.Equal(shown, c.want) || (canary != nil) != c.canary {
				t.Errorf("shown: %v, canary %v; want %v, %t", shown, canary, c.want, c.canary)
			}
			if c.canary && fmt.Sprint(*canary) != fmt.Sprint(capture.CanaryStatus{ID: scaleSet("web-canary"), Instances: 2, Capture: mine,
				Expires: canary.Expires, Obsolete: c.deleted}) {
				t.Errorf("%+v, want obsolete: %t", *canary, c.deleted)
			}
		})
	}
}

// unreadable is a journal that these credentials may not read.
type unreadable struct{ journal.Store }

func (unreadable) Load(context.Context, string) (journal.Record, error) {
	return journal.Record{}, &fleet.Error{Kind: fleet.KindDenied}
}
