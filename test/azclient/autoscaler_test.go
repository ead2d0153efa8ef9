package azclient

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
)

const pool = "pool1"

// spec is a pool of two in a region with zones.
const spec = `
scaleSets:
  - name: pool1
    capacity: 2
    body:
      sku: {name: Standard_D2s_v5}
      zones: ["1", "2"]
      properties:
        upgradePolicy: {mode: Manual}
        virtualMachineProfile:
          osProfile: {computerNamePrefix: pool1, adminUsername: azureuser, linuxConfiguration: {disablePasswordAuthentication: true, ssh: {publicKeys: [{path: /home/azureuser/.ssh/authorized_keys, keyData: ssh-ed25519 AAAA}]}}}
          storageProfile:
            imageReference: {publisher: Debian, offer: debian-12, sku: 12-gen2, version: latest}
            osDisk: {createOption: FromImage}
`

// members returns the instance ids with zone, provisioning and power state:
// "0 zone 1 Succeeded running".
func members(t *testing.T, c *Cloud) []string {
	t.Helper()
	list, err := c.GetVirtualMachineScaleSetVMClient().ListVMInstanceView(t.Context(), c.Group, pool)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, vm := range list {
		line := *vm.InstanceID + " zone " + *vm.Zones[0] + " " + *vm.Properties.ProvisioningState
		for _, s := range vm.Properties.InstanceView.Statuses {
			if power, is := strings.CutPrefix(*s.Code, "PowerState/"); is {
				line += " " + power
			}
		}
		out = append(out, line)
	}
	return out
}

// grow sets the capacity as the autoscaler does: by a PUT of name, location and
// SKU alone.
func grow(t *testing.T, c *Cloud, set *armcompute.VirtualMachineScaleSet, n int64) {
	t.Helper()
	p, err := c.Sets.BeginCreateOrUpdate(t.Context(), c.Group, pool, armcompute.VirtualMachineScaleSet{
		Name: set.Name, Location: set.Location, SKU: &armcompute.SKU{Name: set.SKU.Name, Tier: set.SKU.Tier, Capacity: to.Ptr(n)},
	}, &armcompute.VirtualMachineScaleSetsClientBeginCreateOrUpdateOptions{IfMatch: set.Etag})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.PollUntilDone(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

// listsFlexible has the cloud provider's client list the members of a Flexible set, while
// the autoscaler's deletes one by its name.
func listsFlexible(t *testing.T, c *Cloud) {
	t.Helper()
	body := armcompute.VirtualMachineScaleSet{}
	if err := body.UnmarshalJSON([]byte(flexible)); err != nil {
		t.Fatal(err)
	}
	made, err := c.Sets.BeginCreateOrUpdate(t.Context(), c.Group, "flex1", body, nil)
	if err == nil {
		_, err = made.PollUntilDone(t.Context(), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	first, err := c.Members(t.Context(), "flex1")
	if err != nil || len(first) != 2 || !strings.HasPrefix(first[0].InstanceID, "flex1_") || first[0].VMID == first[1].VMID {
		t.Fatalf("members of a Flexible set: %+v, %v", first, err)
	}
	p, err := c.Sets.BeginDeleteInstances(t.Context(), c.Group, "flex1", armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{InstanceIDs: []*string{&first[0].InstanceID}}, nil)
	if err == nil {
		_, err = p.PollUntilDone(t.Context(), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	if left, err := c.Members(t.Context(), "flex1"); err != nil || !slices.Equal(left, first[1:]) {
		t.Errorf("after the deletion of %s: %+v, %v", first[0].InstanceID, left, err)
	}
}

// flexible is a Flexible set of two.
const flexible = `{"location": "westeurope", "sku": {"name": "Standard_D2s_v5", "capacity": 2}, "properties": {
	"orchestrationMode": "Flexible", "platformFaultDomainCount": 1,
	"virtualMachineProfile": {
		"osProfile": {"computerNamePrefix": "flex1", "adminUsername": "azureuser", "adminPassword": "Corr3ct-horse"},
		"storageProfile": {"imageReference": {"publisher": "Debian", "offer": "debian-12", "sku": "12-gen2", "version": "latest"}},
		"networkProfile": {"networkApiVersion": "2020-11-01", "networkInterfaceConfigurations": [
			{"name": "nic", "properties": {"primary": true, "ipConfigurations": [{"name": "ip"}]}}]}}}}`

// The requests of cluster-autoscaler's Azure provider in their order: zones of
// the region, scale sets and machines of the group, members with their instance
// views, a scale-up by a sparse PUT with the set's ETag, a deletion by ids, and one
// that another scale-up pre-empts.
func TestAsTheAutoscalerActs(t *testing.T) {
	c := Serve(t, spec, "--speed", "60")
	zones, err := c.GetProviderClient().GetVirtualMachineSupportedZones(t.Context())
	if err != nil || len(zones["westeurope"]) != 3 {
		t.Errorf("zones %v, %v", zones, err)
	}
	sets, err := c.Sets.List(t.Context(), c.Group)
	if err != nil || len(sets) != 1 || *sets[0].Name != pool || *sets[0].SKU.Capacity != 2 {
		t.Fatalf("scale sets %+v, %v", sets, err)
	}
	if machines, err := c.GetVirtualMachineClient().List(t.Context(), c.Group); err != nil || len(machines) != 0 {
		t.Errorf("machines outside the set %v, %v", machines, err)
	}
	want := []string{"0 zone 1 Succeeded running", "1 zone 2 Succeeded running"}
	if got := members(t, c); !slices.Equal(got, want) {
		t.Fatalf("members %q, want %q", got, want)
	}

	image := *sets[0].Properties.VirtualMachineProfile.StorageProfile.ImageReference.Offer
	grow(t, c, sets[0], 3)
	if got := members(t, c); !slices.Equal(got, append(slices.Clone(want), "2 zone 1 Succeeded running")) {
		t.Errorf("after the scale-up: %q", got)
	}

	p, err := c.Sets.BeginDeleteInstances(t.Context(), c.Group, pool, armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{InstanceIDs: []*string{to.Ptr("0")}},
		&armcompute.VirtualMachineScaleSetsClientBeginDeleteInstancesOptions{ForceDeletion: to.Ptr(false)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.PollUntilDone(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := members(t, c); !slices.Equal(got, []string{want[1], "2 zone 1 Succeeded running"}) {
		t.Errorf("after the deletion: %q", got)
	}
	set, err := c.Sets.Get(t.Context(), c.Group, pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	if *set.SKU.Capacity != 2 || *set.Properties.ProvisioningState != "Succeeded" || *set.Properties.VirtualMachineProfile.StorageProfile.ImageReference.Offer != image {
		t.Errorf("the set after the deletion: %+v", set)
	}

	// By this code the autoscaler knows that its deletion has to be asked for again.
	if p, err = c.Sets.BeginDeleteInstances(t.Context(), c.Group, pool, armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{InstanceIDs: []*string{to.Ptr("1")}}, nil); err != nil {
		t.Fatal(err)
	}
	set.Etag = nil // the deletion has lowered the capacity
	grow(t, c, set, 3)
	var refused *azcore.ResponseError
	if _, err := p.PollUntilDone(t.Context(), nil); !errors.As(err, &refused) || refused.ErrorCode != "OperationPreempted" {
		t.Errorf("a deletion that a scale-up pre-empts ends with %v", err)
	}
	if got := members(t, c); len(got) != 3 || slices.Contains(got, want[1]) {
		t.Errorf("in the end: %q", got)
	}
	listsFlexible(t, c)
}
