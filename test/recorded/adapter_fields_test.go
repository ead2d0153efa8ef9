package recorded

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

const (
	setType        = "Microsoft.Compute/virtualMachineScaleSets"
	instanceType   = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines"
	interfaceType  = "Microsoft.Network/networkInterfaces"
	diskType       = "Microsoft.Compute/disks"
	snapshotType   = "Microsoft.Compute/snapshots"
	definitionType = "Microsoft.Compute/galleries/images"
	versionType    = "Microsoft.Compute/galleries/images/versions"
)

// from is a field that is one member, or the first of several that is not empty.
func from(name string, members ...string) field { return field{name: name, members: members} }

// when is a field that is computed of members.
func when(name string, want func(tree) any, members ...string) field {
	return field{name: name, members: members, want: want}
}

// argument is a field that the door's argument says.
func argument(name string) field { return field{name: name} }

var poolFields = slices.Concat([]field{
	from("ID", "id"), from("Name", "name"), from("Location", "location"), from("Zones", "zones"), from("Tags", "tags"),
	when("Sizes", func(b tree) any {
		var sizes []string
		for _, name := range b.all("properties.skuProfile.vmSizes[].name") {
			sizes = append(sizes, name.(string))
		}
		return sizes
	}, "properties.skuProfile.vmSizes[].name"),
	from("HostGroup", "properties.hostGroup.id"), from("PlacementGroup", "properties.proximityPlacementGroup.id"),
	from("Hibernates", "properties.additionalCapabilities.hibernationEnabled"),
	from("Model.Encryption", modelDisk+".managedDisk.diskEncryptionSet.id"),
	from("Model.CapacityReservation", "properties.virtualMachineProfile.capacityReservation.capacityReservationGroup.id"),
	from("Size", "sku.name"), from("Capacity", "sku.capacity"), from("Etag", "etag"),
	when("Orchestration", func(b tree) any {
		return cmp.Or(b.text("properties.orchestrationMode"), fleet.Uniform)
	}, "properties.orchestrationMode"),
	from("UpgradeMode", "properties.upgradePolicy.mode"),
	from("AutomaticOSUpgrade", "properties.upgradePolicy.automaticOSUpgradePolicy.enableAutomaticOSUpgrade"),
	from("AutomaticRepairs", "properties.automaticRepairsPolicy.enabled"),
	from("Overprovision", "properties.overprovision"),
	from("Recreates", "properties.resiliencyPolicy.resilientVMCreationPolicy.enabled"),
	from("ScaleIn", "properties.scaleInPolicy.rules[]"),
	from("ProvisioningState", "properties.provisioningState"),
	when("Spot", func(b tree) any {
		return slices.Contains([]string{"Spot", "Low"}, b.text("properties.virtualMachineProfile.priority"))
	}, "properties.virtualMachineProfile.priority"),
	from("EvictionPolicy", "properties.virtualMachineProfile.evictionPolicy"),
	when("NoProfile", func(b tree) any {
		return b.text("properties.orchestrationMode") == fleet.Flexible && !b.has("properties.virtualMachineProfile")
	}, "properties.virtualMachineProfile"),
	when("SystemIdentity", func(b tree) any { return strings.Contains(b.text("identity.type"), "SystemAssigned") }, "identity.type"),
	when("Joins", joins, append([]string{"identity.userAssignedIdentities"}, joinMembers...)...),
	when("Model.Accelerated", func(b tree) any {
		return slices.Contains(b.all("properties.virtualMachineProfile."+interfaceConfigurations+".enableAcceleratedNetworking"), any(true))
	}, "properties.virtualMachineProfile."+interfaceConfigurations+".enableAcceleratedNetworking"),
	when("Model.Linux", func(b tree) any {
		return b.text(modelDisk+".osType") == "Linux" || b.has("properties.virtualMachineProfile.osProfile.linuxConfiguration")
	}, modelDisk+".osType", "properties.virtualMachineProfile.osProfile.linuxConfiguration"),
	when("Model.NVMe", func(b tree) any {
		return b.text("properties.virtualMachineProfile.storageProfile.diskControllerType") == "NVMe"
	}, "properties.virtualMachineProfile.storageProfile.diskControllerType"),
	when("Model.EphemeralOS", func(b tree) any { return b.has(modelDisk + ".diffDiskSettings") }, modelDisk+".diffDiskSettings"),
	from("Model.OSDiskSizeGB", modelDisk+".diskSizeGB"), from("Model.OSDiskSKU", modelDisk+".managedDisk.storageAccountType"),
	from("Model.SecurityType", "properties.virtualMachineProfile.securityProfile.securityType"),
	from("Model.Created", "properties.virtualMachineProfile.timeCreated"),
	{name: "Model.Extensions", members: []string{"properties.virtualMachineProfile.extensionProfile.extensions"}, each: extensionFields},
}, imageFields("Model.Image.", "properties.virtualMachineProfile.storageProfile.imageReference."))

const (
	modelDisk               = "properties.virtualMachineProfile.storageProfile.osDisk"
	interfaceConfigurations = "networkProfile.networkInterfaceConfigurations[].properties"
	addressConfigurations   = "properties.virtualMachineProfile." + interfaceConfigurations + ".ipConfigurations[].properties."
)

var joinActions = [][2]string{
	{"properties.virtualMachineProfile." + interfaceConfigurations + ".networkSecurityGroup.id", azure.JoinSecurityGroup},
	{addressConfigurations + "subnet.id", azure.JoinSubnet},
	{addressConfigurations + "loadBalancerBackendAddressPools[].id", azure.JoinBackendPool},
	{addressConfigurations + "applicationSecurityGroups[].id", azure.JoinApplication},
	{addressConfigurations + "publicIPAddressConfiguration.properties.publicIPPrefix.id", azure.JoinPrefix},
}

var joinMembers = func() (all []string) {
	for _, j := range joinActions {
		all = append(all, j[0])
	}
	return all
}()

// joins lists what instances join: identities by name, then what each interface has.
func joins(b tree) any {
	var out []fleet.Join
	if assigned, ok := b.first("identity.userAssignedIdentities").(map[string]any); ok {
		for _, id := range sortedKeys(assigned) {
			out = append(out, fleet.Join{Resource: fleet.ResourceID(id), Action: azure.AssignIdentity})
		}
	}
	for _, one := range b.all("properties.virtualMachineProfile.networkProfile.networkInterfaceConfigurations[]") {
		nic := tree{"properties": map[string]any{"virtualMachineProfile": map[string]any{"networkProfile": map[string]any{
			"networkInterfaceConfigurations": []any{one}}}}}
		for n, j := range joinActions {
			if n == 0 {
				out = joined(out, nic.all(j[0]), j[1])
			}
		}
		for _, address := range nic.all(strings.TrimSuffix(addressConfigurations, ".properties.")) {
			for _, j := range joinActions[1:] {
				object, _ := address.(map[string]any)
				out = joined(out, tree(object).all("properties."+strings.TrimPrefix(j[0], addressConfigurations)), j[1])
			}
		}
	}
	return out
}

func joined(out []fleet.Join, ids []any, action string) []fleet.Join {
	for _, id := range ids {
		text, _ := id.(string)
		if j := (fleet.Join{Resource: fleet.ResourceID(text), Action: action}); !slices.Contains(out, j) {
			out = append(out, j)
		}
	}
	return out
}

func imageFields(name, member string) []field {
	return []field{
		from(name+"ID", member+"id", member+"sharedGalleryImageId", member+"communityGalleryImageId"),
		from(name+"Publisher", member+"publisher"), from(name+"Offer", member+"offer"), from(name+"SKU", member+"sku"),
		from(name+"Version", member+"version"), from(name+"ExactVersion", member+"exactVersion"),
	}
}

var extensionFields = []field{
	from("Name", "name"), from("Publisher", "properties.publisher"), from("Type", "properties.type"),
	from("Version", "properties.typeHandlerVersion"), from("After", "properties.provisionAfterExtensions"),
	argument("HasProtectedSettings"), // Azure does not say
	from("KeyVault.URL", "properties.protectedSettingsFromKeyVault.secretUrl"),
	from("KeyVault.Vault", "properties.protectedSettingsFromKeyVault.sourceVault.id"),
	from("AutoUpgradeMinorVersion", "properties.autoUpgradeMinorVersion"),
	from("AutomaticUpgrade", "properties.enableAutomaticUpgrade"),
	from("ForceUpdateTag", "properties.forceUpdateTag"), from("SuppressFailures", "properties.suppressFailures"),
	when("Settings", func(b tree) any {
		v := b.first("properties.settings")
		if v == nil {
			return ""
		}
		text, _ := json.Marshal(v)
		return string(text)
	}, "properties.settings"),
}

var instanceFields = slices.Concat([]field{
	from("ID", "id"), from("InstanceID", "instanceId", "name"), from("Name", "name"), from("HostName", "properties.osProfile.computerName"),
	argument("Pool"), {members: []string{"properties.virtualMachineScaleSet.id"}},
	from("VMID", "properties.vmId"), from("Zone", "zones[]"), from("Size", "sku.name", "properties.hardwareProfile.vmSize"),
	when("ModelCreated", func(b tree) any {
		at, _ := time.Parse("1/2/2006 3:04:05 PM -07:00", b.text("tags.VirtualMachineProfileTimeCreated"))
		return at
	}, "tags.VirtualMachineProfileTimeCreated"),
	from("Created", "properties.timeCreated"), from("ProvisioningState", "properties.provisioningState"),
	when("Power", power, "properties.instanceView.statuses[].code"),
	from("LatestModelApplied", "properties.latestModelApplied"), from("Tags", "tags"), from("OSDiskSizeGB", "properties.storageProfile.osDisk.diskSizeGB"),
	from("Protection.ScaleIn", "properties.protectionPolicy.protectFromScaleIn"),
	from("Protection.ScaleSetActions", "properties.protectionPolicy.protectFromScaleSetActions"),
	argument("Protection.Off"),
	from("Generation", "properties.instanceView.hyperVGeneration"),
	from("SecurityType", "properties.securityProfile.securityType"),
	when("OSDisk", func(b tree) any {
		if b.has("properties.storageProfile.osDisk.diffDiskSettings") {
			return ""
		}
		return b.text("properties.storageProfile.osDisk.managedDisk.id")
	}, "properties.storageProfile.osDisk.managedDisk.id", "properties.storageProfile.osDisk.diffDiskSettings"),
	when("DataDisks", func(b tree) any {
		var out []fleet.AttachedDisk
		for _, d := range b.all("properties.storageProfile.dataDisks[]") {
			object, _ := d.(map[string]any)
			if lun, _ := object["lun"].(float64); tree(object).has("managedDisk") {
				out = append(out, fleet.AttachedDisk{LUN: int32(lun), Disk: fleet.ResourceID(tree(object).text("managedDisk.id"))})
			}
		}
		return out
	}, "properties.storageProfile.dataDisks[].lun", "properties.storageProfile.dataDisks[].managedDisk.id"),
}, imageFields("Image.", "properties.storageProfile.imageReference."))

// power is what follows "PowerState/" in an instance's last such status.
func power(b tree) any {
	state := ""
	for _, code := range b.all("properties.instanceView.statuses[].code") {
		if text, _ := code.(string); strings.HasPrefix(text, "PowerState/") {
			state = strings.TrimPrefix(text, "PowerState/")
		}
	}
	return state
}

var bootFields = []field{
	from("Instance", "id"), argument("Pool"), argument("Flexible"), argument("Overprovisioned"), argument("Recreated"), {members: []string{"properties.virtualMachineScaleSet.id"}},
	from("Name", "name"), from("HostName", "properties.osProfile.computerName", "properties.instanceView.computerName"),
	from("VMID", "properties.vmId"), from("Zone", "zones[]"), from("Created", "properties.timeCreated"),
	when("Image", func(b tree) any {
		const ref = "properties.storageProfile.imageReference."
		version := b.text(ref+"exactVersion", ref+"version")
		switch id := b.text(ref+"id", ref+"sharedGalleryImageId", ref+"communityGalleryImageId"); {
		case id == "" && !b.has(ref+"publisher"):
			return ""
		case id == "":
			return strings.Join([]string{b.text(ref + "publisher"), b.text(ref + "offer"), b.text(ref + "sku"), version}, ":")
		case version != "" && strings.Contains(strings.ToLower(id), "galleries/") && !strings.Contains(strings.ToLower(id), "/versions/"):
			return id + "/versions/" + version
		default:
			return id
		}
	}, "properties.storageProfile.imageReference.id", "properties.storageProfile.imageReference.publisher",
		"properties.storageProfile.imageReference.exactVersion", "properties.storageProfile.imageReference.version"),
	from("ProvisioningState", "properties.provisioningState"),
	when("Provisioning", func(b tree) any {
		for _, st := range b.all("properties.instanceView.statuses[]") {
			object, _ := st.(map[string]any)
			if s := statusOfView(object); strings.HasPrefix(s.Code, "ProvisioningState/") {
				return s
			}
		}
		return fleet.BootStatus{}
	}, "properties.instanceView.statuses[].code"),
	when("Power", power, "properties.instanceView.statuses[].code"),
	when("Agent.Ready", func(b tree) any { return b.text(agent+"displayStatus") == "Ready" }, agent+"displayStatus"),
	from("Agent.Version", "properties.instanceView.vmAgent.vmAgentVersion"),
	from("Agent.Message", agent+"message"), from("Agent.Time", agent+"time"),
	{name: "Extensions", members: []string{"properties.instanceView.extensions"}, each: []field{
		from("Name", "name"), from("Type", "type"), from("Version", "typeHandlerVersion"),
		{name: "Statuses", members: []string{"statuses"}, each: statusFields},
		{name: "Substatuses", members: []string{"substatuses"}, each: statusFields},
	}},
	when("Console", func(b tree) any {
		return b.first(console+"enabled") == true && b.text(console+"storageUri") == ""
	}, console+"enabled"),
	when("ConsoleStorage", func(b tree) any {
		if b.first(console+"enabled") != true {
			return ""
		}
		return b.text(console + "storageUri")
	}, console+"storageUri"),
}

const (
	agent   = "properties.instanceView.vmAgent.statuses[]."
	console = "properties.diagnosticsProfile.bootDiagnostics."
)

func statusOfView(b tree) fleet.BootStatus {
	at, _ := time.Parse(time.RFC3339Nano, b.text("time"))
	s := fleet.BootStatus{Code: b.text("code"), Level: b.text("level"), Display: b.text("displayStatus"), Message: b.text("message")}
	if !at.IsZero() {
		s.Time = at.UTC()
	}
	s.Name, s.State, s.Reason = fleet.ParseStatusCode(s.Code)
	return s
}

var statusFields = []field{
	from("Code", "code"), from("Level", "level"), from("Display", "displayStatus"), from("Message", "message"), from("Time", "time"),
	argument("Name"), argument("State"), argument("Reason"), // parts of the code
}

var memberFields = []field{
	from("Instance", "id"), argument("Pool"), argument("Flexible"), {members: []string{"properties.virtualMachineScaleSet.id"}},
	from("Name", "name"), from("HostName", "properties.osProfile.computerName"),
	when("VMID", func(b tree) any { return strings.ToLower(b.text("properties.vmId")) }, "properties.vmId"),
	argument("Addresses"), argument("OfPrimary"), // of interfaces
	{members: []string{"properties.networkProfile.networkInterfaces[].id"}},
	when("Power", power, "properties.instanceView.statuses[].code"),
	from("ProvisioningState", "properties.provisioningState"), from("Created", "properties.timeCreated"),
}

var interfaceFields = []field{
	when("Addresses", func(b tree) any {
		var out []string
		all := b.all(addresses)
		for _, c := range all {
			object, _ := c.(map[string]any)
			ip, primary := tree(object).text("privateIPAddress"), object["primary"] == true || len(all) == 1
			if primary && ip != "" && b.has("properties.virtualMachine.id") {
				out = append(out, ip)
			}
		}
		return out
	}, addresses+".privateIPAddress", addresses+".primary", "properties.virtualMachine.id"),
	{members: []string{"properties.primary"}},
}

const addresses = "properties.ipConfigurations[].properties"

var storedFields = []field{
	from("ID", "id"), from("SizeGB", "properties.diskSizeGB"), from("Generation", "properties.hyperVGeneration"),
	from("Architecture", "properties.supportedCapabilities.architecture"),
	from("Source", "properties.creationData.sourceResourceId", "properties.creationData.galleryImageReference.id",
		"properties.creationData.imageReference.id"),
	from("ProvisioningState", "properties.provisioningState"), from("Tags", "tags"), from("Created", "properties.timeCreated"),
}

var diskFields = slices.Concat(storedFields, []field{
	from("Location", "location"), from("Zone", "zones[]"), from("SKU", "sku.name"), from("ManagedBy", "managedBy"),
	from("Controllers", "properties.supportedCapabilities.diskControllerTypes"),
	from("Encryption", "properties.encryption.diskEncryptionSetId"), from("Encrypted", "properties.encryptionSettingsCollection.enabled"),
	from("Hibernates", "properties.supportsHibernation"),
	from("SecurityType", "properties.securityProfile.securityType"),
})

var snapshotFields = storedFields

var galleryFields = []field{from("ID", "id"), from("Location", "location"), from("Tags", "tags"),
	from("SoftDelete", "properties.softDeletePolicy.isSoftDeleteEnabled")}

var definitionFields = []field{
	from("ID", "id"), from("Location", "location"), from("Tags", "tags"),
	from("Publisher", "properties.identifier.publisher"), from("Offer", "properties.identifier.offer"),
	from("SKU", "properties.identifier.sku"),
	from("OSState", "properties.osState"),
	when("Linux", func(b tree) any { return b.text("properties.osType") == "Linux" }, "properties.osType"),
	from("Generation", "properties.hyperVGeneration"), from("Architecture", "properties.architecture"),
	when("SecurityType", func(b tree) any { return feature(b, "SecurityType") }, "properties.features[].name", "properties.features[].value"),
	when("Controllers", func(b tree) any { return feature(b, "DiskControllerTypes") }, "properties.features[].name"),
	when("Hibernates", func(b tree) any {
		yes, _ := strconv.ParseBool(feature(b, "IsHibernateSupported"))
		return yes
	}, "properties.features[].name"),
	when("Accelerated", func(b tree) any {
		yes, _ := strconv.ParseBool(feature(b, "IsAcceleratedNetworkSupported"))
		return yes
	}, "properties.features[].name"),
	from("PlanName", "properties.purchasePlan.name"), from("PlanProduct", "properties.purchasePlan.product"),
	from("PlanPublisher", "properties.purchasePlan.publisher"),
	from("ProvisioningState", "properties.provisioningState"),
}

func feature(b tree, name string) (value string) {
	for _, f := range b.all("properties.features[]") {
		if object, _ := f.(map[string]any); object["name"] == name {
			value = tree(object).text("value")
		}
	}
	return value
}

const publishing = "properties.publishingProfile."

var versionFields = []field{
	from("ID", "id"), from("Name", "name"), from("Location", "location"), from("Tags", "tags"),
	from("ProvisioningState", "properties.provisioningState"),
	from("Published", publishing+"publishedDate"), from("EndOfLife", publishing+"endOfLifeDate"),
	when("ExcludeFromLatest", func(b tree) any {
		return b.first(publishing+"excludeFromLatest") == true || own(b)["excludeFromLatest"] == true
	}, publishing+"excludeFromLatest", publishing+"targetRegions[].excludeFromLatest"),
	when("Regions", func(b tree) any { return b.all(publishing + "targetRegions[].name") }, publishing+"targetRegions[].name"),
	from("DeletionBlocked", "properties.safetyProfile.blockDeletionBeforeEndOfLife"),
	when("Replicas", func(b tree) any {
		if n := own(b)["regionalReplicaCount"]; n != nil {
			return n
		}
		return b.first(publishing + "replicaCount")
	}, publishing+"replicaCount", publishing+"targetRegions[].regionalReplicaCount"),
	when("StorageType", func(b tree) any {
		return cmp.Or(own(b).text("storageAccountType"), b.text(publishing+"storageAccountType"))
	},
		publishing+"storageAccountType", publishing+"targetRegions[].storageAccountType"),
	from("ReplicationMode", publishing+"replicationMode"),
	from("Source", "properties.storageProfile.osDiskImage.source.id", "properties.storageProfile.source.id",
		"properties.storageProfile.source.virtualMachineId"),
	when("Progress", func(b tree) any {
		least := -1.0
		for _, p := range b.all("properties.replicationStatus.summary[].progress") {
			if n, _ := p.(float64); least < 0 || n < least {
				least = n
			}
		}
		return least
	}, "properties.replicationStatus.summary[].progress"),
	from("FailureMessage", "properties.replicationStatus.summary[].details"),
	{members: []string{"properties.replicationStatus.summary[].state", "properties.replicationStatus.summary[].region"}},
}

// own is what a version says of its own region.
func own(b tree) tree {
	for _, r := range b.all(publishing + "targetRegions[]") {
		if object, _ := r.(map[string]any); fleet.SameRegion(tree(object).text("name"), b.text("location")) {
			return object
		}
	}
	return nil
}

var sizeFields = []field{
	from("Name", "name"), from("Family", "family"), from("Zones", "locationInfo[].zones"), from("Restricted", "restrictions[].reasonCode"),
	from("Architecture", "capabilities[].value"), argument("Generations"), argument("Controllers"), argument("MaxDataDisks"),
	argument("VCPUs"), argument("GPUs"), argument("NoSpot"), argument("NoTempDisk"),
	{members: []string{"resourceType", "locations", "locationInfo[].location", "capabilities[].name", "restrictions[].type",
		"restrictions[].restrictionInfo.locations", "restrictions[].restrictionInfo.zones"}},
}

var usageFields = []field{from("Used", "currentValue"), from("Limit", "limit"), {members: []string{"name.value"}}}

var permissionFields = []field{{members: []string{"actions", "notActions"}}}
