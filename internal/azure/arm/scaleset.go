package arm

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

// Pool returns a scale set and its model.
func (c *Cloud) Pool(ctx context.Context, id fleet.ResourceID) (fleet.Pool, error) {
	vmss, err := c.scaleSet(ctx, id)
	if err != nil {
		return fleet.Pool{}, err
	}
	return poolOf(vmss), nil
}

func (c *Cloud) scaleSet(ctx context.Context, id fleet.ResourceID) (*setAnswer, error) {
	const op = "get scale set"
	p, err := c.at(id, typeScaleSet)
	if err != nil {
		return nil, failed(ctx, op, id, err)
	}
	var set setAnswer
	if err := c.get(ctx, c.address(p.id, computeVersion), &set); err != nil {
		return nil, failed(ctx, op, id, err)
	}
	c.flexible.Store(strings.ToLower(string(id)), set.flexible())
	return &set, nil
}

func poolOf(v *setAnswer) fleet.Pool {
	pool := fleet.Pool{
		ID:       fleet.ResourceID(v.ID),
		Name:     v.Name,
		Location: v.Location,
		Tags:     tagged(v.Tags),
		Etag:     v.Etag,
	}
	if len(v.Zones) > 0 {
		pool.Zones = v.Zones
	}
	if v.SKU != nil {
		pool.Size = v.SKU.Name
		pool.Capacity = value(v.SKU.Capacity)
	}
	for _, id := range slices.Sorted(maps.Keys(v.Identity.Assigned)) {
		pool.Joins = append(pool.Joins, fleet.Join{Resource: fleet.ResourceID(id), Action: azure.AssignIdentity})
	}
	pool.SystemIdentity = strings.Contains(strings.ToLower(v.Identity.Type), "systemassigned")
	p := v.Properties
	if p == nil {
		return pool
	}
	pool.ProvisioningState = p.ProvisioningState
	pool.Orchestration = p.OrchestrationMode
	if pool.Orchestration == "" {
		pool.Orchestration = fleet.Uniform // API versions before 2021-03-01 know no other
	}
	for _, z := range p.SKUProfile.VMSizes {
		pool.Sizes = append(pool.Sizes, z.Name)
	}
	pool.HostGroup, pool.PlacementGroup = fleet.ResourceID(p.HostGroup.ID), fleet.ResourceID(p.ProximityPlacementGroup.ID)
	pool.Overprovision, pool.Hibernates = p.Overprovision, p.AdditionalCapabilities.HibernationEnabled
	pool.Recreates = p.ResiliencyPolicy.ResilientVMCreationPolicy.Enabled
	if rules := p.ScaleInPolicy.Rules; len(rules) > 0 {
		pool.ScaleIn = rules[0]
	}
	pool.UpgradeMode = p.UpgradePolicy.Mode
	pool.AutomaticOSUpgrade = p.UpgradePolicy.AutomaticOSUpgradePolicy.EnableAutomaticOSUpgrade
	pool.AutomaticRepairs = p.AutomaticRepairsPolicy.Enabled
	pool.NoProfile = v.flexible() && p.VirtualMachineProfile == nil
	if m := p.VirtualMachineProfile; m != nil {
		pool.Spot = strings.EqualFold(m.Priority, "Spot") || strings.EqualFold(m.Priority, "Low")
		pool.EvictionPolicy = m.EvictionPolicy
		pool.Model = modelOf(m)
		pool.Joins = append(pool.Joins, joinsOf(m)...)
	}
	return pool
}

func modelOf(p *profileAnswer) fleet.Model {
	d := &p.StorageProfile.OSDisk
	m := fleet.Model{
		Image:        imageOf(p.StorageProfile.ImageReference),
		NVMe:         strings.EqualFold(p.StorageProfile.DiskControllerType, "NVMe"),
		EphemeralOS:  d.DiffDiskSettings != nil,
		OSDiskSizeGB: d.DiskSizeGB,
		Linux:        strings.EqualFold(d.OSType, "Linux") || p.OSProfile.LinuxConfiguration != nil,
		OSDiskSKU:    d.ManagedDisk.StorageAccountType,
		Encryption:   fleet.ResourceID(d.ManagedDisk.DiskEncryptionSet.ID),
		SecurityType: p.SecurityProfile.SecurityType,
		Created:      p.TimeCreated.Time,

		CapacityReservation: fleet.ResourceID(p.CapacityReservation.CapacityReservationGroup.ID),
	}
	for _, n := range p.NetworkProfile.NetworkInterfaceConfigurations {
		if n != nil && n.Properties.EnableAcceleratedNetworking {
			m.Accelerated = true
		}
	}
	for _, e := range p.ExtensionProfile.Extensions {
		if e != nil {
			m.Extensions = append(m.Extensions, extensionOf(e))
		}
	}
	return m
}

// joinsOf lists what the interfaces of new instances join.
func joinsOf(p *profileAnswer) (joins []fleet.Join) {
	join := func(action string, links ...link) {
		for _, l := range links {
			if j := (fleet.Join{Resource: fleet.ResourceID(l.ID), Action: action}); l.ID != "" && !slices.Contains(joins, j) {
				joins = append(joins, j)
			}
		}
	}
	for _, n := range p.NetworkProfile.NetworkInterfaceConfigurations {
		if n == nil {
			continue
		}
		join(azure.JoinSecurityGroup, n.Properties.NetworkSecurityGroup)
		for _, c := range n.Properties.IPConfigurations {
			q := c.Properties
			join(azure.JoinSubnet, q.Subnet)
			join(azure.JoinBackendPool, q.LoadBalancerBackendAddressPools...)
			join(azure.JoinApplication, q.ApplicationSecurityGroups...)
			join(azure.JoinPrefix, q.PublicIPAddressConfiguration.Properties.PublicIPPrefix)
		}
	}
	return joins
}

func imageOf(r *imageAnswer) fleet.ImageReference {
	if r == nil {
		return fleet.ImageReference{}
	}
	return fleet.ImageReference{
		// Images shared from elsewhere have ids of another form, which serve as
		// well to tell what a model points at.
		ID:           fleet.ResourceID(cmp.Or(r.ID, r.Shared, r.Community)),
		Publisher:    r.Publisher,
		Offer:        r.Offer,
		SKU:          r.SKU,
		Version:      r.Version,
		ExactVersion: r.ExactVersion,
	}
}

// patchModel sends what changes and nothing else. A model that is read and put
// back would lose customData and protected settings, which never read back.
func (c *Cloud) patchModel(ctx context.Context, ch fleet.PatchModel) (fleet.Token, error) {
	p, err := c.at(ch.Pool, typeScaleSet)
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.Pool, err)
	}
	profile := &armcompute.VirtualMachineScaleSetUpdateVMProfile{}
	if ch.Image != (fleet.ImageReference{}) {
		profile.StorageProfile = &armcompute.VirtualMachineScaleSetUpdateStorageProfile{ImageReference: pointAt(ch.Image)}
	}
	if ch.CustomData != nil {
		profile.OSProfile = &armcompute.VirtualMachineScaleSetUpdateOSProfile{
			CustomData: ptr(base64.StdEncoding.EncodeToString([]byte(ch.CustomData.Reveal()))),
		}
	}
	op, err := p.NewVirtualMachineScaleSetsClient().BeginUpdate(ctx, p.group, p.names[0], armcompute.VirtualMachineScaleSetUpdate{
		Properties: &armcompute.VirtualMachineScaleSetUpdateProperties{VirtualMachineProfile: profile},
	}, ifStill(ch.Etag))
	return conditional(begun(ctx, ch, op, err))
}

// ifStill makes an update depend on the scale set being as it was read.
func ifStill(etag string) *armcompute.VirtualMachineScaleSetsClientBeginUpdateOptions {
	return &armcompute.VirtualMachineScaleSetsClientBeginUpdateOptions{IfMatch: orNil(etag)}
}

// conditional returns the answer to an update with a condition that does not hold
// its kind. Azure says 412 PreconditionFailed, "Etag provided in if-match header
// … does not match etag … of resource".
func conditional(tok fleet.Token, err error) (fleet.Token, error) {
	var (
		e *fleet.Error
		r *refusal
	)
	if errors.As(err, &e) && errors.As(e.Err, &r) && r.status == http.StatusPreconditionFailed {
		stale := *e
		stale.Kind = fleet.KindStale
		return tok, &stale
	}
	return tok, err
}

// pointAt gives all members of an image reference: in a PATCH, what is absent
// stays, and Azure refuses an id beside a publisher.
func pointAt(i fleet.ImageReference) *armcompute.ImageReference {
	or := func(s string) *string {
		if s == "" {
			return azcore.NullValue[*string]()
		}
		return ptr(s)
	}
	r := &armcompute.ImageReference{ID: or(string(i.ID))}
	if i.ID != "" {
		r.Publisher, r.Offer, r.SKU, r.Version = or(""), or(""), or(""), or("")
		return r
	}
	r.Publisher, r.Offer, r.SKU, r.Version = or(i.Publisher), or(i.Offer), or(i.SKU), or(i.Version)
	return r
}

// setCapacity changes the capacity alone; Azure wants the size's name with it.
func (c *Cloud) setCapacity(ctx context.Context, ch fleet.SetCapacity) (fleet.Token, error) {
	return c.setSKU(ctx, ch, ch.Pool, ch.Etag, func(sku *armcompute.SKU) { sku.Capacity = ptr(ch.Capacity) })
}

// setSize sends the capacity as it was read, which the Etag guards.
func (c *Cloud) setSize(ctx context.Context, ch fleet.SetSize) (fleet.Token, error) {
	return c.setSKU(ctx, ch, ch.Pool, ch.Etag, func(sku *armcompute.SKU) { sku.Name = ptr(ch.Size) })
}

// setSKU sends the scale set's sku as change makes it of the present one.
func (c *Cloud) setSKU(ctx context.Context, ch fleet.Change, pool fleet.ResourceID, etag string, change func(*armcompute.SKU)) (fleet.Token, error) {
	now, err := c.scaleSet(ctx, pool)
	if err != nil {
		return "", failed(ctx, ch.Verb(), pool, err)
	}
	var sku armcompute.SKU
	if now.SKU != nil {
		sku = armcompute.SKU{Name: orNil(now.SKU.Name), Tier: orNil(now.SKU.Tier), Capacity: now.SKU.Capacity}
	}
	was := sku
	change(&sku)
	still := etag == "" || etag == now.Etag
	lacks := now.Properties != nil && slices.Contains([]string{"Failed", "Canceled"}, now.Properties.ProvisioningState) // instances that another write makes
	if still && !lacks && value(sku.Capacity) == value(was.Capacity) && value(sku.Name) == value(was.Name) {
		return "", nil
	}
	p, err := c.at(pool, typeScaleSet)
	if err != nil {
		return "", failed(ctx, ch.Verb(), pool, err)
	}
	op, err := p.NewVirtualMachineScaleSetsClient().BeginUpdate(ctx, p.group, p.names[0],
		armcompute.VirtualMachineScaleSetUpdate{SKU: &sku}, ifStill(etag))
	return conditional(begun(ctx, ch, op, err))
}

// setModelUserData sends the userData and nothing else.
func (c *Cloud) setModelUserData(ctx context.Context, ch fleet.SetModelUserData) (fleet.Token, error) {
	p, err := c.at(ch.Pool, typeScaleSet)
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.Pool, err)
	}
	op, err := p.NewVirtualMachineScaleSetsClient().BeginUpdate(ctx, p.group, p.names[0], armcompute.VirtualMachineScaleSetUpdate{
		Properties: &armcompute.VirtualMachineScaleSetUpdateProperties{VirtualMachineProfile: &armcompute.VirtualMachineScaleSetUpdateVMProfile{UserData: ptr(ch.UserData)}},
	}, ifStill(ch.Etag))
	return conditional(begun(ctx, ch, op, err))
}

func (c *Cloud) upgradeInstances(ctx context.Context, ch fleet.UpgradeInstances) (fleet.Token, error) {
	p, err := c.at(ch.Pool, typeScaleSet)
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.Pool, err)
	}
	op, err := p.NewVirtualMachineScaleSetsClient().BeginUpdateInstances(ctx, p.group, p.names[0],
		armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{InstanceIDs: to.SliceOfPtrs(ch.Instances...)}, nil)
	return begun(ctx, ch, op, err)
}

func (c *Cloud) deleteInstances(ctx context.Context, ch fleet.DeleteInstances) (fleet.Token, error) {
	p, err := c.at(ch.Pool, typeScaleSet)
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.Pool, err)
	}
	op, err := p.NewVirtualMachineScaleSetsClient().BeginDeleteInstances(ctx, p.group, p.names[0],
		armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{InstanceIDs: to.SliceOfPtrs(ch.Instances...)}, nil)
	return begun(ctx, ch, op, err)
}

func (c *Cloud) deallocateScaleSet(ctx context.Context, ch fleet.DeallocateScaleSet) (fleet.Token, error) {
	p, err := c.at(ch.Pool, typeScaleSet)
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.Pool, err)
	}
	var of *armcompute.VirtualMachineScaleSetsClientBeginDeallocateOptions
	if len(ch.Instances) > 0 {
		of = &armcompute.VirtualMachineScaleSetsClientBeginDeallocateOptions{VMInstanceIDs: &armcompute.VirtualMachineScaleSetVMInstanceIDs{InstanceIDs: to.SliceOfPtrs(ch.Instances...)}}
	}
	op, err := p.NewVirtualMachineScaleSetsClient().BeginDeallocate(ctx, p.group, p.names[0], of)
	return begun(ctx, ch, op, err)
}

func (c *Cloud) startScaleSet(ctx context.Context, ch fleet.StartScaleSet) (fleet.Token, error) {
	p, err := c.at(ch.Pool, typeScaleSet)
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.Pool, err)
	}
	op, err := p.NewVirtualMachineScaleSetsClient().BeginStart(ctx, p.group, p.names[0], nil)
	return begun(ctx, ch, op, err)
}

func (c *Cloud) deleteScaleSet(ctx context.Context, ch fleet.DeleteScaleSet) (fleet.Token, error) {
	p, err := c.at(ch.Pool, typeScaleSet)
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.Pool, err)
	}
	op, err := p.NewVirtualMachineScaleSetsClient().BeginDelete(ctx, p.group, p.names[0],
		&armcompute.VirtualMachineScaleSetsClientBeginDeleteOptions{ForceDeletion: orNil(ch.Force)})
	return gone(begun(ctx, ch, op, err))
}
