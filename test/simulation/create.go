package simulation

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// Create makes a scale set as an operator does, by ARM, and returns when Azure
// has done it: its instances have booted. For pools whose customData names what
// is known only of an Azure that runs, such as its certificates.
func (a *Azure) Create(ctx context.Context, p Pool) error {
	text, err := json.Marshal(p.body())
	if err != nil {
		return err
	}
	var set armcompute.VirtualMachineScaleSet
	if err := json.Unmarshal(text, &set); err != nil {
		return fmt.Errorf("read the body of scale set %s: %w", p.Name, err)
	}
	f, err := a.Clients()
	if err != nil {
		return err
	}
	poller, err := f.NewVirtualMachineScaleSetsClient().BeginCreateOrUpdate(ctx, a.Endpoint.ResourceGroup, p.Name, set, nil)
	if err != nil {
		return err
	}
	_, err = poller.PollUntilDone(ctx, nil)
	return err
}
