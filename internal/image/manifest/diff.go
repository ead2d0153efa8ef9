// Package manifest compares what is in two image versions, and writes it as a bill of materials for
// scanners: SPDX 2.3 and CycloneDX 1.5. It is pure; ortet-node generalize lists what is in an image.
package manifest

import (
	"maps"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

// Diff is what changed from one version to another.
type Diff struct {
	Kernel     Change       `json:"kernel"`
	Kubelet    Change       `json:"kubelet"`
	Containerd Change       `json:"containerd"`
	Packages   []Difference `json:"packages"` // [] for none, as the others
	Images     []Difference `json:"images"`
	Units      []Difference `json:"units"`
	Bytes      Sizes        `json:"bytes"`
	NotRead    NotRead      `json:"notRead,omitzero"`
}

// A Change is of what both have; "" where it is not known.
type Change struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// A Difference is of what one may lack: then that is "".
type Difference struct {
	Name string `json:"name"`
	Change
}

// Sizes are the bytes of all files.
type Sizes struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// NotRead is what of each is not known.
type NotRead struct {
	From []string `json:"from,omitempty"`
	To   []string `json:"to,omitempty"`
}

// Compare returns what changed.
func Compare(from, to wire.Manifest) Diff {
	change := func(of func(wire.Manifest) string) Change { return Change{of(from), of(to)} }
	differences := func(of func(wire.Manifest) [][2]string) []Difference { return differences(of(from), of(to)) }
	return Diff{
		Kernel:     change(func(m wire.Manifest) string { return strings.Join(m.Kernels, ", ") }),
		Kubelet:    change(func(m wire.Manifest) string { return m.Kubelet }),
		Containerd: change(func(m wire.Manifest) string { return m.Containerd }),
		Packages: differences(func(m wire.Manifest) (all [][2]string) {
			for _, p := range m.Packages {
				all = append(all, [2]string{strings.TrimSuffix(p.Name+" "+p.Arch, " "), p.Version})
			}
			return all
		}),
		Images: differences(func(m wire.Manifest) (all [][2]string) {
			for _, i := range m.Images {
				name, tag := split(i)
				digest := strings.TrimPrefix(i.Digest, "sha256:")
				all = append(all, [2]string{name, strings.TrimPrefix(tag+"@"+digest[:min(12, len(digest))], "@")})
			}
			return all
		}),
		Units: differences(func(m wire.Manifest) (all [][2]string) {
			for _, u := range m.Units {
				all = append(all, [2]string{u, "enabled"})
			}
			return all
		}),
		Bytes:   Sizes{sum(from), sum(to)},
		NotRead: NotRead{from.NotRead, to.NotRead},
	}
}

// differences compares values by name. A name may have several, as a kernel has with RPM.
func differences(from, to [][2]string) []Difference {
	type both struct{ from, to []string }
	names := map[string]both{}
	for _, x := range from {
		b := names[x[0]]
		b.from = append(b.from, x[1])
		names[x[0]] = b
	}
	for _, x := range to {
		b := names[x[0]]
		b.to = append(b.to, x[1])
		names[x[0]] = b
	}
	all := []Difference{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		b := names[name]
		without := func(list, other []string) string {
			return strings.Join(slices.DeleteFunc(slices.Clone(list), func(v string) bool { return slices.Contains(other, v) }), ", ")
		}
		if d := (Difference{name, Change{without(b.from, b.to), without(b.to, b.from)}}); d.From != d.To {
			all = append(all, d)
		}
	}
	return all
}

func sum(m wire.Manifest) (n int64) {
	for _, b := range m.Bytes {
		n += b
	}
	return n
}

// split returns an image's name without its tag and digest, and the tag.
func split(i wire.ContainerImage) (name, tag string) {
	name, _, _ = strings.Cut(i.Name, "@")
	if at := strings.LastIndexByte(name, ':'); at > strings.LastIndexByte(name, '/') {
		name, tag = name[:at], name[at+1:]
	}
	return name, tag
}
