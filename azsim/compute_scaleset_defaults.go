package azsim

import (
	"cmp"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// What Azure fills in of a scale set's model is as the recordings of the Azure CLI's and
// azure-libraries-for-net's tests show it (test/recorded).

// fillPolicies sets the policies of a scale set that a body leaves out.
func fillPolicies(p *armcompute.VirtualMachineScaleSetProperties, zones []*string) {
	if val(p.OrchestrationMode) == armcompute.OrchestrationModeUniform {
		p.Overprovision = orDefault(p.Overprovision, true)
		p.DoNotRunExtensionsOnOverprovisionedVMs = orDefault(p.DoNotRunExtensionsOnOverprovisionedVMs, false)
		if len(zones) > 0 {
			p.ZoneBalance = orDefault(p.ZoneBalance, false)
		}
		if len(zones) > 0 || isSpot(p.VirtualMachineProfile) {
			p.PlatformFaultDomainCount = orDefault(p.PlatformFaultDomainCount, 1)
		}
	} else {
		p.ConstrainedMaximumCapacity = orDefault(p.ConstrainedMaximumCapacity, false)
	}
	if p.UpgradePolicy == nil {
		return
	}
	if r := p.UpgradePolicy.RollingUpgradePolicy; r != nil {
		r.MaxBatchInstancePercent = orDefault(r.MaxBatchInstancePercent, 20)
		r.MaxUnhealthyInstancePercent = orDefault(r.MaxUnhealthyInstancePercent, 20)
		r.MaxUnhealthyUpgradedInstancePercent = orDefault(r.MaxUnhealthyUpgradedInstancePercent, 20)
		r.PauseTimeBetweenBatches = orDefault(r.PauseTimeBetweenBatches, "PT0S")
		r.MaxSurge = orDefault(r.MaxSurge, false)
		r.RollbackFailedInstancesOnPolicyBreach = orDefault(r.RollbackFailedInstancesOnPolicyBreach, false)
	}
	if a := p.UpgradePolicy.AutomaticOSUpgradePolicy; a != nil {
		a.DisableAutomaticRollback = orDefault(a.DisableAutomaticRollback, false)
		a.UseRollingUpgradePolicy = orDefault(a.UseRollingUpgradePolicy, false)
	}
}

// fillProfile sets what a model leaves out of the recipe for instances. What depends on the
// image stays open where that is gone.
func (c *call) fillProfile(set *armcompute.VirtualMachineScaleSet) {
	p := profileOf(set)
	flex := val(set.Properties.OrchestrationMode) == armcompute.OrchestrationModeFlexible
	img, err := c.s.resolveImage(imageOf(p), val(set.Location))
	size, _ := findSize(sizesOf(set)[0])
	if s := p.StorageProfile; s != nil {
		fillStorage(s, img, size)
	}
	if p.OSProfile != nil && err == nil {
		fillOS(p.OSProfile, img.os() == armcompute.OperatingSystemTypesWindows, flex)
	}
	if p.NetworkProfile != nil {
		for _, n := range p.NetworkProfile.NetworkInterfaceConfigurations {
			fillInterface(n.Properties, flex)
		}
	}
}

func fillStorage(s *armcompute.VirtualMachineScaleSetStorageProfile, img bootImage, size vmSize) {
	account := defaultAccountType(size)
	s.OSDisk = cmp.Or(s.OSDisk, &armcompute.VirtualMachineScaleSetOSDisk{})
	d := s.OSDisk
	canon(d.CreateOption, armcompute.PossibleDiskCreateOptionTypesValues())
	d.CreateOption = orDefault(d.CreateOption, armcompute.DiskCreateOptionTypesFromImage)
	d.Caching = orDefault(d.Caching, armcompute.CachingTypesReadWrite)
	d.OSType = orDefault(d.OSType, img.os())
	if d.VhdContainers == nil { // else the disks are blobs
		if img.sizeGB > 0 {
			d.DiskSizeGB = orDefault(d.DiskSizeGB, img.sizeGB)
		}
		d.ManagedDisk = cmp.Or(d.ManagedDisk, &armcompute.VirtualMachineScaleSetManagedDiskParameters{})
		d.ManagedDisk.StorageAccountType = orDefault(firstOf(d.ManagedDisk.StorageAccountType, img.sku), account)
		canon(d.ManagedDisk.StorageAccountType, armcompute.PossibleStorageAccountTypesValues())
	}
	for _, of := range img.data { // a body need not name them (create_vm_with_shared_gallery_image#69)
		named := func(d *armcompute.VirtualMachineScaleSetDataDisk) bool { return val(d.Lun) == of.lun }
		if !slices.ContainsFunc(s.DataDisks, named) {
			s.DataDisks = append(s.DataDisks, &armcompute.VirtualMachineScaleSetDataDisk{
				Lun: ptr(of.lun), CreateOption: ptr(armcompute.DiskCreateOptionTypesFromImage), Caching: of.caching})
		}
	}
	for _, d := range s.DataDisks {
		canon(d.CreateOption, armcompute.PossibleDiskCreateOptionTypesValues())
		d.Caching = orDefault(d.Caching, armcompute.CachingTypesNone)
		d.ManagedDisk = cmp.Or(d.ManagedDisk, &armcompute.VirtualMachineScaleSetManagedDiskParameters{})
		for _, of := range img.data {
			if of.lun == val(d.Lun) && val(d.CreateOption) == armcompute.DiskCreateOptionTypesFromImage {
				d.ManagedDisk.StorageAccountType = firstOf(d.ManagedDisk.StorageAccountType, of.sku)
				d.DiskSizeGB = orDefault(d.DiskSizeGB, of.sizeGB)
			}
		}
		d.ManagedDisk.StorageAccountType = orDefault(d.ManagedDisk.StorageAccountType, account)
		canon(d.ManagedDisk.StorageAccountType, armcompute.PossibleStorageAccountTypesValues())
	}
	if s.ImageReference != nil {
		s.ImageReference.ExactVersion = nil
	}
}

func fillOS(o *armcompute.VirtualMachineScaleSetOSProfile, windows, flex bool) {
	o.AllowExtensionOperations = orDefault(o.AllowExtensionOperations, true)
	o.RequireGuestProvisionSignal = orDefault(o.RequireGuestProvisionSignal, true)
	if o.Secrets == nil {
		o.Secrets = []*armcompute.VaultSecretGroup{}
	}
	if windows {
		fillWindows(&o.WindowsConfiguration, false)
		return
	}
	fillLinux(&o.LinuxConfiguration, flex)
}

func fillInterface(n *armcompute.VirtualMachineScaleSetNetworkConfigurationProperties, flex bool) {
	if n == nil {
		return
	}
	n.Primary = orDefault(n.Primary, true)
	n.EnableAcceleratedNetworking = orDefault(n.EnableAcceleratedNetworking, false)
	n.DisableTCPStateTracking = orDefault(n.DisableTCPStateTracking, false)
	n.EnableIPForwarding = orDefault(n.EnableIPForwarding, false)
	n.DNSSettings = cmp.Or(n.DNSSettings, &armcompute.VirtualMachineScaleSetNetworkConfigurationDNSSettings{})
	if n.DNSSettings.DNSServers == nil {
		n.DNSSettings.DNSServers = []*string{}
	}
	if flex {
		n.DeleteOption = orDefault(n.DeleteOption, armcompute.DeleteOptionsDelete)
		n.AuxiliaryMode = orDefault(n.AuxiliaryMode, armcompute.NetworkInterfaceAuxiliaryModeNone)
		n.AuxiliarySKU = orDefault(n.AuxiliarySKU, armcompute.NetworkInterfaceAuxiliarySKUNone)
	}
	for _, config := range n.IPConfigurations {
		i := config.Properties
		if i == nil {
			continue
		}
		i.PrivateIPAddressVersion = orDefault(i.PrivateIPAddressVersion, armcompute.IPVersionIPv4)
		if !flex {
			continue
		}
		for _, list := range []*[]*armcompute.SubResource{
			&i.ApplicationSecurityGroups, &i.ApplicationGatewayBackendAddressPools, &i.LoadBalancerBackendAddressPools,
		} {
			if *list == nil {
				*list = []*armcompute.SubResource{}
			}
		}
	}
}
