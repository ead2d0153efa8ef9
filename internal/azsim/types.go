package azsim

// resourceTypes lists the types of this package but for the scale sets'.
func resourceTypes() []*resourceType {
	types := []*resourceType{diskType(), snapshotType(), galleryType(), imageType(), versionType(), virtualMachineType(), machineExtensionType()}
	types = append(types, storedTypes()...)
	types = append(types, deploymentTypes()...)
	return append(types, authorizationTypes()...)
}
