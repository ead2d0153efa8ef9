package azsim

// skuTier is the tier of a SKU of storage, by its name.
func skuTier(name string) string {
	switch {
	case len(name) > 7 && name[:7] == "Premium":
		return "Premium"
	case len(name) > 5 && name[:5] == "Ultra":
		return "Ultra"
	}
	return "Standard"
}
