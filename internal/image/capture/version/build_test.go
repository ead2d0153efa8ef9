package version

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/workflow"
)

// A cloud has a pool whose model refers to the definition.
type cloud struct{ azure.Cloud }

const definition = fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/galleries/ortet/images/pool1")

func (cloud) Pool(_ context.Context, id fleet.ResourceID) (fleet.Pool, error) {
	return fleet.Pool{ID: id, Model: fleet.Model{Image: fleet.ImageReference{ID: definition}}}, nil
}

func (cloud) Now() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// TestVersion asks Azure for a version as the request wants it, out of the definition's latest as
// long as new nodes would boot from it too early.
func TestVersion(t *testing.T) {
	for name, c := range map[string]struct {
		request  plan.Request
		version  string
		tags     map[string]string
		build    Build
		storage  string
		mode     string
		excluded bool // from latest for now
		stays    bool // out of it
		tag      string
	}{
		"as usual":               {storage: fleet.ZRS, mode: fleet.ReplicationFull},
		"region without zones":   {build: Build{StorageType: fleet.LRS}, storage: fleet.LRS, mode: fleet.ReplicationFull},
		"shallow":                {request: plan.Request{Shallow: true}, storage: fleet.LRS, mode: fleet.ReplicationShallow},
		"canary":                 {tags: map[string]string{fleet.TagCanary: plan.Unjudged}, storage: fleet.ZRS, mode: fleet.ReplicationFull, excluded: true},
		"excluded by request":    {request: plan.Request{ExcludeFromLatest: true}, storage: fleet.ZRS, mode: fleet.ReplicationFull, excluded: true, stays: true},
		"baked, model on latest": {request: plan.Request{Bootstrap: plan.BootstrapBaked}, storage: fleet.ZRS, mode: fleet.ReplicationFull, excluded: true, stays: true},
		"only published":         {request: plan.Request{PublishOnly: true}, storage: fleet.ZRS, mode: fleet.ReplicationFull, tag: "2026-01-02T03:04:05Z"},
	} {
		var mu sync.Mutex
		tags := map[string]string{fleet.TagCanary: c.tags[fleet.TagCanary]}
		x := Version{Cloud: cloud{}, Set: workflow.NewScaleSet(cloud{}, time.Now), Build: workflow.PartOf(&mu, &c.build), Of: func() Image {
			return Image{Request: c.request, Pool: "p", Tags: tags, Names: plan.Names{Definition: definition, Version: definition.Child("versions", "2026.1.2")}}
		}}
		got, err := x.change(t.Context())
		if err != nil || got.StorageType != c.storage || got.ReplicationMode != c.mode || got.ExcludeFromLatest != c.excluded ||
			c.build.Excluded != c.stays || got.Tags[fleet.TagPublished] != c.tag || got.Tags[fleet.TagNotLive] == "" {
			t.Errorf("%s: %+v, %+v, %v", name, got, c.build, err)
		}
	}
}
