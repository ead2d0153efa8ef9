package azsim

// scaleSetState is what the scale sets keep in a Server beside the entries.
type scaleSetState struct{}

// scaleSetTypes lists the types of scale sets, their instances and extensions.
func scaleSetTypes() []*resourceType { return nil }
