package azsim

// virtualMachineType is that of machines outside Uniform scale sets. There are
// none to be had here, but clients list them, to know who uses an image.
func virtualMachineType() *resourceType {
	return &resourceType{name: "Microsoft.Compute/virtualMachines", versions: scaleSetVersions(), global: true}
}
