package azsim

// resourceTypes lists the types of this package but for the scale sets' and the
// stored ones.
func resourceTypes() []*resourceType {
	types := []*resourceType{diskType(), snapshotType(), galleryType(), imageType(), versionType(), deletedVersionResourceType(), managedImageType(),
		virtualMachineType(), machineExtensionType()}
	types = append(types, deploymentTypes()...)
	return append(types, authorizationTypes()...)
}
