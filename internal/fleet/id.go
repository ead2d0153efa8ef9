package fleet

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A ResourceID is an ARM id as Azure spelled it. Azure ignores letter case in
// ids and does not keep it, so compare with Equal.
type ResourceID string

// Equal reports whether two ids name the same resource.
func (id ResourceID) Equal(other ResourceID) bool {
	return strings.EqualFold(string(id), string(other))
}

// Name is the last segment.
func (id ResourceID) Name() string {
	return string(id[strings.LastIndexByte(string(id), '/')+1:])
}

// Segment returns what follows the named segment: Segment("galleries") of a
// version's id is its gallery. It is "" where there is no such segment.
func (id ResourceID) Segment(after string) string {
	found := false
	for part := range strings.SplitSeq(string(id), "/") {
		if found {
			return part
		}
		found = strings.EqualFold(part, after)
	}
	return ""
}

// UniformPool returns the scale set of a Uniform set's instance; "" for a virtual
// machine, whose id does not name its scale set.
func (id ResourceID) UniformPool() ResourceID {
	if id.Segment("virtualMachineScaleSets") == "" || id.Segment("virtualMachines") == "" {
		return ""
	}
	return id.Parent()
}

// Group returns the id of the resource group that the resource lies in.
func (id ResourceID) Group() ResourceID {
	return ResourceID("/subscriptions/" + id.Segment("subscriptions") + "/resourceGroups/" + id.Segment("resourceGroups"))
}

// Parent returns the id of the enclosing resource: a version's definition, a
// definition's gallery, an instance's scale set.
func (id ResourceID) Parent() ResourceID {
	parts := strings.Split(string(id), "/")
	if len(parts) < 3 {
		return ""
	}
	return ResourceID(strings.Join(parts[:len(parts)-2], "/"))
}

// Child returns the id of a resource within this one.
func (id ResourceID) Child(kind, name string) ResourceID {
	return id + ResourceID("/"+kind+"/"+name)
}

// In returns the id of a compute resource in the same resource group:
// In("snapshots", "s").
func (id ResourceID) In(kind, name string) ResourceID {
	return id.Group() + ResourceID("/providers/Microsoft.Compute/"+kind+"/"+name)
}

// maxProviderID bounds what is parsed: the longest legal ARM id of an instance
// is far below.
const maxProviderID = 1024

// ParseMachine reads a Node's spec.providerID: that of a Uniform scale set's instance, or
// of a virtual machine, which may be a Flexible scale set's member,
//
//	azure:///subscriptions/<s>/resourceGroups/<g>/providers/Microsoft.Compute/virtualMachineScaleSets/<pool>/virtualMachines/<instance>
//	azure:///subscriptions/<s>/resourceGroups/<g>/providers/Microsoft.Compute/virtualMachines/<name>
//
// in any letter case, and returns the machine's ARM id. Anything else is KindInvalid,
// with what the node is instead where that is known.
func ParseMachine(providerID string) (ResourceID, error) {
	fail := func(why string) (ResourceID, error) {
		shown := providerID
		if len(shown) > 120 {
			shown = shown[:120] + "…"
		}
		return "", &Error{Op: "read provider id", Kind: KindInvalid, Err: fmt.Errorf("%q: %s", shown, why)}
	}
	if providerID == "" {
		return fail("the node has none: no Azure cloud provider has set it up")
	}
	if len(providerID) > maxProviderID {
		return fail("longer than any Azure id")
	}
	path, ok := strings.CutPrefix(providerID, "azure://")
	if !ok {
		return fail("not an Azure node")
	}
	parts := strings.Split(path, "/")
	want := []string{"", "subscriptions", "", "resourceGroups", "", "providers", "Microsoft.Compute", "virtualMachineScaleSets", "", "virtualMachines", ""}
	if len(parts) == 9 {
		want = []string{"", "subscriptions", "", "resourceGroups", "", "providers", "Microsoft.Compute", "virtualMachines", ""}
	}
	if len(parts) != len(want) {
		return fail("not the id of a scale set's instance")
	}
	for i, w := range want {
		switch {
		case w != "" && !strings.EqualFold(parts[i], w):
			return fail("not the id of a scale set's instance")
		case w == "" && i > 0 && !ValidName(parts[i]):
			return fail(fmt.Sprintf("%q is not a valid name", parts[i]))
		case i == 0 && parts[i] != "":
			return fail("not the id of a scale set's instance")
		}
	}
	return ResourceID(path), nil
}

// ParseProviderID is ParseMachine for Uniform scale sets alone: a virtual machine is
// KindInvalid.
func ParseProviderID(providerID string) (ResourceID, error) {
	id, err := ParseMachine(providerID)
	if err == nil && id.UniformPool() == "" {
		return "", &Error{Op: "read provider id", Kind: KindInvalid, Err: fmt.Errorf("%q: a virtual machine of its own or of a Flexible scale set, not an instance of a Uniform scale set", providerID)}
	}
	return id, err
}

// ValidName reports whether s can stand as one segment in an ARM id: it is what
// Azure allows in the names of subscriptions, groups and compute resources, so
// that no id leads elsewhere than it seems to.
func ValidName(s string) bool {
	if s == "" || len(s) > 90 || s == "." || s == ".." || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		case strings.ContainsRune("-_.()", r):
		case r > 127 && (unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)): // of resource groups
		default:
			return false
		}
	}
	return true
}

// A Key is an ARM id in lower case, to find what Azure spells in any case.
type Key string

// KeyOf returns the key of an id.
func KeyOf(id ResourceID) Key { return Key(strings.ToLower(string(id))) }
