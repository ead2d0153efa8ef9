package rollback_test

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/capture"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/rollback"
	"github.com/ortet/ortet/internal/workflow/journal"
)

const pool fleet.ResourceID = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/pool1"

// fake is what Plan reads: a pool that uses the second of two versions.
type fake struct {
	poolErr, nodeErr, keptErr, versionsErr error
	denied                                 []string
	notAllowed                             []cluster.Access
	customData                             string // that the first version needs
	locked                                 bool
}

type clusterOf struct {
	cluster.Cluster
	f *fake
}

func version(name string, at int) fleet.ImageVersion {
	id := prototype.DefinitionOf(pool).Child("versions", name)
	return fleet.ImageVersion{ID: id, Name: name, ProvisioningState: prototype.Succeeded, Published: time.Unix(int64(at), 0), Tags: map[string]string{fleet.TagBuiltFrom: "n"}}
}

type cloudOf struct {
	azure.Cloud
	f *fake
}

func (c cloudOf) Pool(context.Context, fleet.ResourceID) (fleet.Pool, error) {
	return fleet.Pool{ID: pool, Name: "pool1", Model: fleet.Model{Image: fleet.ImageReference{ID: version("2026.01.02", 2).ID}}}, c.f.poolErr
}

func (c cloudOf) Versions(context.Context, fleet.ResourceID) ([]fleet.ImageVersion, error) {
	older := version("2026.01.01", 1)
	if c.f.customData != "" {
		older.Tags[fleet.TagCustomData] = c.f.customData
	}
	return []fleet.ImageVersion{older, version("2026.01.02", 2)}, c.f.versionsErr
}

func (c cloudOf) Denied(context.Context, fleet.ResourceID, []string) ([]string, error) {
	return c.f.denied, nil
}

func (c clusterOf) Denied(context.Context, []cluster.Access) ([]cluster.Access, error) {
	return c.f.notAllowed, nil
}

func (c clusterOf) Node(context.Context, string) (fleet.Node, error) {
	return fleet.Node{ProviderID: "azure://" + string(pool) + "/virtualMachines/0"}, c.f.nodeErr
}

func (c clusterOf) Kept(context.Context, fleet.ResourceID, string, string) (cluster.Kept, error) {
	return cluster.Kept{}, c.f.keptErr
}

func (c clusterOf) Holding(context.Context, string) (cluster.Holding, bool, error) {
	return cluster.Holding{Holder: "b/1", Until: time.Now().Add(time.Minute)}, c.f.locked, nil
}

type noRecords struct{ journal.Store }

func (noRecords) Load(context.Context, string) (journal.Record, error) {
	return journal.Record{}, &fleet.Error{Kind: fleet.KindNotFound}
}

func accesses(fleet.ResourceID) []cluster.Access {
	return []cluster.Access{{Verb: "get", Resource: "nodes"}}
}

// TestPlan gives a version to return to, or all reasons why it cannot.
func TestPlan(t *testing.T) {
	missing, denied := &fleet.Error{Kind: fleet.KindNotFound}, &fleet.Error{Kind: fleet.KindDenied}
	byPool := rollback.Request{Pool: pool}
	for name, c := range map[string]struct {
		f    fake
		q    rollback.Request
		want []string
	}{
		"by pool":                   {q: byPool},
		"by node":                   {q: rollback.Request{Node: "n"}},
		"customData that is kept":   {f: fake{customData: "abc"}, q: byPool},
		"no such node":              {f: fake{nodeErr: missing}, q: rollback.Request{Node: "n"}, want: []string{"NoPool"}},
		"no such pool":              {f: fake{poolErr: missing}, q: byPool, want: []string{"PoolNotFound"}},
		"pool that is not readable": {f: fake{poolErr: denied}, q: byPool, want: []string{"Unreadable"}},
		"versions not readable":     {f: fake{versionsErr: denied}, q: byPool, want: []string{"Unreadable"}},
		"permissions":               {f: fake{denied: []string{"a/write"}, notAllowed: []cluster.Access{{Verb: "get", Resource: "secrets"}}}, q: byPool, want: []string{"AzureDenied", "ClusterDenied"}},
		"permissions and no pool":   {f: fake{poolErr: missing, denied: []string{"a/write"}}, q: byPool, want: []string{"PoolNotFound", "AzureDenied"}},
		"customData that is lost":   {f: fake{customData: "abc", keptErr: missing}, q: byPool, want: []string{"CustomDataLost"}},
		"customData not readable":   {f: fake{customData: "abc", keptErr: denied}, q: byPool, want: []string{"Unreadable"}},
		"no such version":           {q: rollback.Request{Pool: pool, To: "2025.01.01"}, want: []string{"NoVersion"}},
		"another process at work":   {f: fake{locked: true}, q: byPool, want: []string{"Held"}},
		"the model's version":       {q: rollback.Request{Pool: pool, To: "2026.01.02"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := rollback.New(capture.Config{Cloud: cloudOf{f: &c.f}, Cluster: clusterOf{f: &c.f}, Journal: noRecords{}, Now: time.Now, LockFor: time.Minute, Accesses: accesses, Log: slog.New(slog.DiscardHandler)})
			p, err := s.Plan(t.Context(), c.q)
			var codes []string
			for _, x := range p.Problems {
				codes = append(codes, x.Code)
			}
			if err != nil || !slices.Equal(codes, c.want) {
				t.Fatalf("problems %v, want %v; %v", p.Problems, c.want, err)
			}
			to, nothing := cmp.Or(c.q.To, "2026.01.01"), c.q.To != ""
			if len(c.want) == 0 && (p.Version.Name() != to || p.NothingToDo != nothing || len(p.Steps) == 0 || (p.Steps[0].Skip != "") != nothing) {
				t.Errorf("%+v", p)
			}
		})
	}
}
