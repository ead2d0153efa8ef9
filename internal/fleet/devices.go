package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Devices are the extended resources that a Node had allocatable, after the size of its machine:
// "Standard_NC4as_T4_v3 nvidia.com/gpu=1". "" if it had none. TagDevices has it.
type Devices string

// maxTag is how long the value of a tag may be, in Azure.
const maxTag = 256

// DevicesOf returns those of a machine of a size, in order; what does not fit into a tag is left out.
func DevicesOf(size string, allocatable map[string]int64) Devices {
	text := size
	for _, name := range slices.Sorted(maps.Keys(allocatable)) {
		if one := fmt.Sprintf(" %s=%d", name, allocatable[name]); allocatable[name] > 0 && len(text)+len(one) <= maxTag {
			text += one
		}
	}
	if size == "" || text == size {
		return ""
	}
	return Devices(text)
}

// Fewer returns the first resource of which a machine has less allocatable, and how much that was and
// is; "" if there is none, and for a machine of another size.
func (d Devices) Fewer(size string, allocatable map[string]int64) (name string, was, is int64) {
	of, list, _ := strings.Cut(string(d), " ")
	if of == "" || !strings.EqualFold(of, size) {
		return "", 0, 0
	}
	for one := range strings.FieldsSeq(list) {
		name, count, _ := strings.Cut(one, "=")
		if was, err := strconv.ParseInt(count, 10, 64); err == nil && allocatable[name] < was {
			return name, was, allocatable[name]
		}
	}
	return "", 0, 0
}
