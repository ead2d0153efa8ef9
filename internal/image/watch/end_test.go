package watch_test

import (
	"context"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/watch"
)

const scaleSet fleet.ResourceID = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/pool1"

// proven is an Azure whose pool names a version that is proven. Ctrl-C comes as it answers.
type proven struct {
	azure.Cloud
	interrupt context.CancelFunc
}

func (proven) version() fleet.ResourceID {
	return plan.DefinitionOf(scaleSet).Child("versions", "2026.11.28")
}

func (p proven) Pool(context.Context, fleet.ResourceID) (fleet.Pool, error) {
	return fleet.Pool{ID: scaleSet, Model: fleet.Model{Image: fleet.ImageReference{ID: p.version()}}}, nil
}

func (p proven) Definitions(context.Context, fleet.ResourceID) (none []fleet.Definition, _ error) {
	return
}

func (p proven) Versions(context.Context, fleet.ResourceID) ([]fleet.ImageVersion, error) {
	p.interrupt()
	return []fleet.ImageVersion{{ID: p.version(), Name: p.version().Name(), ProvisioningState: "Succeeded",
		Tags: map[string]string{fleet.TagProven: "2026-11-28T10:00:00Z"}}}, nil
}

// A result that is known as the watch is interrupted is its result.
func TestResultBeatsInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := watch.Service{Config: capture.Config{Cloud: proven{interrupt: cancel}, Now: time.Now}}
	r, err := s.Watch(ctx, watch.Request{Pool: scaleSet, For: time.Minute, Nodes: 1, BadNodes: watch.Cordon})
	if err != nil || r.Outcome != watch.Proven || ctx.Err() == nil {
		t.Errorf("%+v, %v", r, err)
	}
}
