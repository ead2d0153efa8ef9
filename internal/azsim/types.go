package azsim

// resourceTypes lists the types of this package but for the scale sets'.
func resourceTypes() []*resourceType {
	return []*resourceType{diskType(), snapshotType(), galleryType(), imageType(), versionType()}
}
