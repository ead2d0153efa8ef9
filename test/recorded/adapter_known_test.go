package recorded

// What the sources of adapterKnown are called.
const (
	newer   = "newer recording of the Azure CLI: "
	example = "armcompute's examples: "
	model   = "armcompute's model "
	rest    = "Azure's REST reference: "
)

// adapterKnown says where each member is known from that Ortet reads and no recording has, by
// kind and member. The golden table holds these and no others.
var adapterKnown = func() map[string]string {
	const (
		extensions = "properties.instanceView.extensions[]."
		profile    = "properties.virtualMachineProfile."
		vault      = profile + "extensionProfile.extensions[].properties.protectedSettingsFromKeyVault."
	)
	all := map[string]string{}
	for _, k := range []struct {
		kind, source string
		members      []string
	}{
		{"Boot", example + "VirtualMachinesClient.InstanceView", []string{
			extensions + "statuses[].time", extensions + "substatuses", extensions + "substatuses[].code", extensions + "substatuses[].level",
			extensions + "substatuses[].displayStatus", extensions + "substatuses[].message", extensions + "substatuses[].time",
		}},
		{"Definition", model + "ImagePurchasePlan", []string{
			"properties.purchasePlan.name", "properties.purchasePlan.product", "properties.purchasePlan.publisher",
		}},
		{"Denied", rest + "Permissions - List For Resource", []string{"actions", "notActions"}},
		{"Disk", example + "DisksClient.BeginCreateOrUpdate", []string{
			"properties.encryption.diskEncryptionSetId", "properties.encryptionSettingsCollection.enabled",
		}},
		{"Gallery", example + "GalleriesClient.BeginCreateOrUpdate", []string{"properties.softDeletePolicy.isSoftDeleteEnabled"}},
		{"ImageVersion", newer + "test_image_version_end_of_life_date (2026)", []string{publishing + "endOfLifeDate"}},
		{"ImageVersion", example + "GalleryImageVersionsClient.Get", []string{
			publishing + "targetRegions[].excludeFromLatest", "properties.safetyProfile.blockDeletionBeforeEndOfLife",
			"properties.replicationStatus.summary[].details",
		}},
		{"ImageVersion", model + "GalleryImageVersionPublishingProfile", []string{publishing + "replicationMode"}},
		{"ImageVersion", example + "GalleryImageVersionsClient.BeginCreateOrUpdate", []string{
			"properties.storageProfile.source.virtualMachineId",
		}},
		{"Instance", newer + "test_vmss_linux_patch_mode (2024)", []string{"tags.VirtualMachineProfileTimeCreated"}},
		{"Instance", newer + "test_vmss_update (2024)", []string{
			"properties.protectionPolicy.protectFromScaleIn", "properties.protectionPolicy.protectFromScaleSetActions",
		}},
		{"Instance", newer + "test_vm_create_with_default_trusted_launch (2023)", []string{"properties.securityProfile.securityType"}},
		{"Instance", example + "VirtualMachinesClient.BeginCreateOrUpdate", []string{"properties.storageProfile.osDisk.diffDiskSettings"}},
		{"Pool", newer + "test_vmss_linux_patch_mode (2024)", []string{"etag", profile + "timeCreated"}},
		{"Pool", newer + "test_vmss_update_enable_auto_os_upgrade (2024)", []string{
			"properties.upgradePolicy.automaticOSUpgradePolicy.enableAutomaticOSUpgrade",
		}},
		{"Pool", newer + "test_vmss_set_orchestration_service_state (2024)", []string{"properties.automaticRepairsPolicy.enabled"}},
		{"Pool", newer + "test_vmss_scale_in_policy (2024)", []string{"properties.scaleInPolicy.rules[]"}},
		{"Pool", newer + "test_vmss_create_ephemeral_os_disk_placement (2024)", []string{modelDisk + ".diffDiskSettings"}},
		{"Pool", newer + "test_vmss_trusted (2024)", []string{profile + "securityProfile.securityType"}},
		{"Pool", "newer recordings: instances have it, models do not", []string{profile + "storageProfile.imageReference.exactVersion"}},
		{"Pool", example + "VirtualMachineScaleSetsClient.BeginCreateOrUpdate", []string{
			vault + "secretUrl", vault + "sourceVault.id", addressConfigurations + "applicationSecurityGroups[].id",
			addressConfigurations + "publicIPAddressConfiguration.properties.publicIPPrefix.id",
			"properties.skuProfile.vmSizes[].name", "properties.hostGroup.id", "properties.proximityPlacementGroup.id",
			"properties.additionalCapabilities.hibernationEnabled", "properties.resiliencyPolicy.resilientVMCreationPolicy.enabled",
			modelDisk + ".managedDisk.diskEncryptionSet.id", profile + "capacityReservation.capacityReservationGroup.id",
		}},
		{"SizeInfo", rest + "Resource Skus - List", []string{
			"name", "family", "resourceType", "locations", "locationInfo[].location", "locationInfo[].zones", "capabilities[].name",
			"capabilities[].value", "restrictions[].type", "restrictions[].reasonCode", "restrictions[].restrictionInfo.locations",
			"restrictions[].restrictionInfo.zones",
		}},
		{"Snapshot", model + "CreationData, which disks share", []string{
			"properties.creationData.galleryImageReference.id", "properties.creationData.imageReference.id",
		}},
		{"Usage", rest + "Usage - List", []string{"currentValue", "limit", "name.value"}},
	} {
		for _, member := range k.members {
			all[k.kind+" "+member] = k.source
		}
	}
	return all
}()
