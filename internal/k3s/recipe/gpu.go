package recipe

import (
	"maps"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/k3s"
)

const (
	// DriverExtension is the name of the extension that installs a pool's NVIDIA driver.
	DriverExtension     = "ortet-nvidia-driver"
	driverExtensionType = "NvidiaGpuDriverLinux"
)

// ExtensionProfile has all extensions of the pool's model, since a template replaces the list; nil
// leaves those that it has. Publisher, type and version are those of Azure's "NVIDIA GPU Driver Extension for
// Linux". It may restart the machine, so the extensions of others come after it.
func (p pool) ExtensionProfile() object {
	wanted := p.GPU != nil && p.GPU.Driver == k3s.Extension
	all := []object{}
	if wanted {
		all = append(all, object{"name": DriverExtension, "properties": object{
			"publisher": "Microsoft.HpcCompute", "type": driverExtensionType,
			"typeHandlerVersion": "1.6", "autoUpgradeMinorVersion": true, "settings": object{},
		}})
	}
	had := false
	for _, e := range p.extensions {
		name, _ := e["name"].(string)
		properties, _ := e["properties"].(object)
		if ours := strings.EqualFold(name, DriverExtension); ours || wanted && properties["type"] == driverExtensionType {
			had = had || ours
			continue
		}
		properties = maps.Clone(properties)
		delete(properties, "provisioningState")
		after, _ := properties["provisionAfterExtensions"].([]any)
		after = slices.DeleteFunc(slices.Clone(after), func(v any) bool { return v == DriverExtension })
		if wanted {
			after = append(after, DriverExtension)
		}
		properties["provisionAfterExtensions"] = after
		all = append(all, object{"name": name, "properties": literal(properties)})
	}
	if !wanted && !had {
		return nil
	}
	return object{"extensions": all}
}

// literal is a value in which no text is an expression of a template.
func literal(v any) any {
	switch v := v.(type) {
	case string:
		if strings.HasPrefix(v, "[") && strings.HasSuffix(v, "]") {
			return "[" + v
		}
	case []any:
		out := make([]any, len(v))
		for i, one := range v {
			out[i] = literal(one)
		}
		return out
	case object:
		out := object{}
		for key, one := range v {
			out[key] = literal(one)
		}
		return out
	}
	return v
}
